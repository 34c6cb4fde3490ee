"""The states that the model broker had, so that an answer can be compared with all states that it may show.

A change of the broker is *visible* when the sidecar must know it: the reply to the request that caused it has reached
the client, or a later answer of the broker has, or the connection is closed. An answer may show any state from the last
visible one on (at the time when the question arrived) up to the state at the time of the answer. So each answer is one
that the broker could have given, and nobody reads an older state than the one that another client was told of.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from group_sidecar.codecs.messages.describe_groups import DescribedGroup

Offsets = dict[tuple[str, int], tuple[int, int, str]]
"""By topic and partition: the offset, its leader epoch, and its metadata."""


@dataclass(slots=True)
class Effect:
    """What caused changes. `visible_at`: when the sidecar must know them; infinite while their request has no reply."""

    visible_at: float = math.inf

    def show(self, now: float) -> None:
        """Notes that the changes are visible from now on."""
        self.visible_at = min(self.visible_at, now)


class GroupState(NamedTuple):
    """A group at one moment.

    Attributes:
        error: the coordinator's error code, in place of the state.
        pending: the partitions with an offset of an open transaction.
    """

    error: int
    described: DescribedGroup
    offsets: Offsets
    pending: frozenset[tuple[str, int]] = frozenset()


class Version(NamedTuple):
    """A state, since when the broker had it, and what caused it."""

    since: float
    state: GroupState
    effect: Effect


@dataclass
class History:
    """All states of all groups.

    `ignores_errors`: whether an answer may show the state before the broker moved or loaded the group. So it is if the
    sidecar does not read the log, which alone shows a load.
    """

    ignores_errors: bool = False
    versions: dict[str, list[Version]] = field(default_factory=lambda: defaultdict(list))

    def record(self, group_id: str, state: GroupState, effect: Effect, now: float) -> bool:
        """Records a state, unless it is the last one. Returns whether it has changed."""
        versions = self.versions[group_id]
        if versions and versions[-1].state == state:
            return False
        versions.append(Version(now, state, effect))
        return True

    def numbers(self) -> dict[str, int]:
        """Returns how many states each group has had."""
        return {group_id: len(versions) for group_id, versions in self.versions.items()}

    def seen(self, group_id: str, number: int, now: float) -> None:
        """Notes that a client has learned of a group's state with this number. So all changes up to it are visible."""
        for version in self.versions[group_id][:number]:
            version.effect.show(now)

    def since(self, group_id: str, time: float) -> list[GroupState]:
        """Returns the state at a time, and all states after it."""
        versions = self.versions[group_id]
        first = max((at for at, each in enumerate(versions) if each.since <= time), default=0)
        return [each.state for each in versions[first:]]

    def possible(self, group_id: str, asked_at: float, answered_at: float) -> list[GroupState]:
        """Returns the states that an answer may show."""
        versions = self.versions[group_id]
        visible = [at for at, each in enumerate(versions) if each.effect.visible_at <= asked_at]
        first = visible[-1] if visible else 0
        while first and self.ignores_errors and versions[first].state.error:
            first -= 1
        return [each.state for each in versions[first:] if each.since <= answered_at]
