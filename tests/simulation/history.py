"""Records the states of the model broker's groups. The checker compares each answer with the states that it may show.

A change of the broker is *visible* when the sidecar must know the change. A change becomes visible when a client has
received the reply to the request that caused the change, or when a client has received a later answer of the broker.
The change also becomes visible when the connection of the request is closed.

The oldest state that an answer may show is the last state that was visible when the question arrived. The newest is the
state at the time of the answer. So each answer is one that the broker could have given, and no client reads an older
state than another client has read before.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from group_sidecar.codecs.messages.describe_groups import DescribedGroup

SETTLED_SECONDS = 60.0
"""All changes before a visible change that is this many seconds old are visible too."""
Offsets = dict[tuple[str, int], tuple[int, int, str]]
"""By topic and partition: the offset, its leader epoch, and its metadata."""


class Aspect(IntEnum):
    """The part of a group's state that a question asks for. The two parts change independently."""

    MEMBERS = 0
    """Whether the group exists, its state and its members."""
    OFFSETS = 1
    """The committed offsets, and which of them are pending."""


class Effect:
    """One cause of changes, such as a request.

    `visible_at`: for each aspect, the time from which the sidecar must know the changes; infinite if not known yet.
    """

    __slots__ = ("visible_at",)

    def __init__(self, visible_at: float = math.inf) -> None:
        self.visible_at = [visible_at, visible_at]

    def show(self, now: float, aspects: Iterable[Aspect] = tuple(Aspect)) -> None:
        """Notes that the changes are visible from now on."""
        for aspect in aspects:
            self.visible_at[aspect] = min(self.visible_at[aspect], now)


class GroupState(NamedTuple):
    """A group at one moment.

    Attributes:
        error: the coordinator's error code; 0 if there is none. With an error, the state does not count.
        pending: the partitions with an offset of an open transaction.
    """

    error: int
    described: DescribedGroup
    offsets: Offsets
    pending: frozenset[tuple[str, int]] = frozenset()


class Version(NamedTuple):
    """A state of a group, when it began, its cause, and the aspects that differ from the previous state."""

    since: float
    state: GroupState
    effect: Effect
    changes: tuple[Aspect, ...]


@dataclass
class History:
    """All states of all groups.

    `ignores_errors`: whether an answer may show the last state before the group had an error. This is true if the
    sidecar does not read the log, because only the log shows that a group moves or is loaded.
    """

    ignores_errors: bool = False
    versions: dict[str, list[Version]] = field(default_factory=lambda: defaultdict(list))

    def record(self, group_id: str, state: GroupState, effect: Effect | None, now: float) -> bool:
        """Records a state, unless it is the last one. Returns whether it has changed.

        `effect`: None if the broker has changed the group without a request. Then the change becomes visible together
        with the change before it.
        """
        versions = self.versions[group_id]
        if versions and versions[-1].state == state:
            return False
        effect = effect or (versions[-1].effect if versions else Effect(now))
        versions.append(Version(now, state, effect, _changes(versions[-1].state, state) if versions else (*Aspect,)))
        return True

    def numbers(self) -> dict[str, int]:
        """Returns how many states each group has had."""
        return {group_id: len(versions) for group_id, versions in self.versions.items()}

    def seen(self, group_id: str, aspect: Aspect, number: int, now: float) -> None:
        """Notes that a client has read an aspect of the group's state number `number`.

        All changes of this aspect up to that state are then visible.
        """
        versions = self.versions[group_id]
        for at in range(number - 1, -1, -1):
            version = versions[at]
            if aspect in version.changes:
                if version.effect.visible_at[aspect] <= now and version.since < now - SETTLED_SECONDS:
                    return
                version.effect.show(now, (aspect,))

    def state_since(self, group_id: str, name: str) -> float:
        """Returns the time since which a group has had the state with this name; infinite if it has another state."""
        since = math.inf
        for version in reversed(self.versions[group_id]):
            if version.state.described.group_state != name:
                break
            since = version.since
        return since

    def since(self, group_id: str, time: float) -> list[GroupState]:
        """Returns the state at a time, and all states after it."""
        versions = self.versions[group_id]
        first = len(versions) - 1
        while first > 0 and versions[first].since > time:
            first -= 1
        return [each.state for each in versions[first:]]

    def possible(self, group_id: str, aspect: Aspect, asked_at: float, answered_at: float) -> list[GroupState]:
        """Returns the states that an answer about an aspect may show."""
        versions = self.versions[group_id]
        first = len(versions) - 1
        while first > 0 and not (
            aspect in versions[first].changes and versions[first].effect.visible_at[aspect] <= asked_at
        ):
            first -= 1
        while first and self.ignores_errors and versions[first].state.error:
            first -= 1
        return [each.state for each in versions[first:] if each.since <= answered_at]

    def values(
        self, group_id: str, value_of: Callable[[GroupState], Any], asked_at: float, answered_at: float
    ) -> list[Any]:
        """Returns the values that an answer may show for one committed offset. `value_of`: returns a state's value."""
        versions, values = self.versions[group_id], list[Any]()
        for at in range(len(versions) - 1, -1, -1):
            version = versions[at]
            value = value_of(version.state)
            if version.since <= answered_at:
                values.append(value)
            is_visible = version.effect.visible_at[Aspect.OFFSETS] <= asked_at
            is_skipped = self.ignores_errors and version.state.error
            if at and is_visible and not is_skipped and value != value_of(versions[at - 1].state):
                break
        return values


def _changes(before: GroupState, after: GroupState) -> tuple[Aspect, ...]:
    has_moved = before.error != after.error
    aspects = (
        (Aspect.MEMBERS, has_moved or before.described != after.described),
        (Aspect.OFFSETS, has_moved or before.offsets != after.offsets or before.pending != after.pending),
    )
    return tuple(aspect for aspect, has_changed in aspects if has_changed)
