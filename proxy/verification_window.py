"""The broker's answer to a question beside the sidecar's own, over the time that the copy needs to catch up.

Owns: `Windows`: when the copy is looked at, which of its answers are kept, and that a long comparison runs in a thread.
It does not know which questions are verified and what follows from a difference (`verifying`), nor how two answers are
compared field by field (`comparing`).
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

import trio

from group_sidecar.codecs.registry import APIS
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.proxy.client import LARGEST_AT_ONCE, KafkaClient
from group_sidecar.proxy.comparing import Comparison, Difference, judge

RESTS = 50.0
"""After such a comparison none begins for so many times as long as it took: even a thread slows the data path down."""
CATCH_UP_SECONDS = 2.0
"""Seconds that the copy gets to learn what the broker's reply contains."""
LOOK_SECONDS = 0.02
"""Between two looks whether a group that is verified has changed."""
MOST_LOOKS, FEW_LOOKS = 100, 4
"""Answers of the copy that are kept of one such time; and where they are large, or of many groups."""
MANY_GROUPS = 100
"""Groups in one question from which on few answers are kept."""

Reply = Callable[[Struct, int, float], bytes | None]
"""What the copy makes of a request, a version and a time in seconds since the epoch, whatever is lacking: what stands
behind the correlation id; None where it cannot."""


class Changes(Protocol):
    """The groups of a copy, as far as they are needed here."""

    def changes_of(self, group_id: str) -> tuple[int, int]: ...


class Resting(Protocol):
    """Pauses the sampling of answers."""

    def rest(self, seconds: float) -> None: ...


class Watched(Protocol):
    """The copy of one broker."""

    @property
    def manager(self) -> Changes: ...
    @property
    def samples(self) -> Resting: ...
    @property
    def hides(self) -> bool:
        """Whether the broker may hide something from the sidecar's own user."""

    @property
    def true_hosts(self) -> bool:
        """Whether its answers tell where members are, which the broker does not know."""

    def epoch(self, now: float) -> float: ...


@dataclass(slots=True)
class _Window:
    """The broker's answer to a question, and the sidecar's own from before it until the copy has caught up.

    Attributes:
        changes: the numbers of the groups' changes at the last look.
        ours: what the copy would have answered, each different from the one before.
        theirs: the body of the broker's reply.
        moved: groups that have changed in this time.
        complete: whether the copy could answer at the last look.
    """

    exchange: Exchange
    changes: dict[str, tuple[int, int]]
    ours: list[bytes] = field(default_factory=list)
    theirs: bytes = b""
    moved: set[str] = field(default_factory=set)
    complete: bool = False

    @property
    def most_looks(self) -> int:
        """How many answers are kept before the last."""
        small = sum(map(len, self.ours)) <= LARGEST_AT_ONCE and len(self.changes) <= MANY_GROUPS
        return MOST_LOOKS if small else FEW_LOOKS


class Found(NamedTuple):
    """The outcome of a window.

    Attributes:
        differences: by group; None where there is none. Groups of which nothing can be said are missing: the copy
            cannot answer, or the broker does not.
        moved: groups that changed in this time.
    """

    differences: dict[str, Difference | None]
    moved: set[str]


class Windows:
    """Compares the answers of one copy with its broker's.

    Args:
        copy: the copy.
        reply: what the copy would answer.
    """

    def __init__(self, copy: Watched, reply: Reply) -> None:
        self._copy = copy
        self._reply = reply

    async def compare_anew(
        self, client: KafkaClient, questions: Sequence[tuple[Exchange, Collection[str]]]
    ) -> list[Found]:
        """Compares what the broker says of groups now with what the copy made of it at any moment around that.

        The copy is looked at before the broker is asked, after each change, and when it has had time to catch up.
        """
        windows = []
        for exchange, groups in questions:
            window = _Window(exchange, {group: self._copy.manager.changes_of(group) for group in groups})
            self._look(window)
            window.theirs = await client.ask_undecoded(exchange.request, exchange.version)
            windows.append(window)
        ends = trio.current_time() + CATCH_UP_SECONDS
        while trio.current_time() < ends:
            await trio.sleep(min(LOOK_SECONDS, ends - trio.current_time()))
            for window in windows:
                if len(window.ours) < window.most_looks and self._note_changes(window):
                    self._look(window)
        return [await self._judged(window) for window in windows]

    def _note_changes(self, window: _Window) -> bool:
        """Whether any of the groups has changed since the last look."""
        manager = self._copy.manager
        changed = [group for group, last in window.changes.items() if manager.changes_of(group) != last]
        window.changes |= {group: manager.changes_of(group) for group in changed}
        window.moved.update(changed)
        return bool(changed)

    def _look(self, window: _Window) -> None:
        """Keeps what the copy would answer now, if that is another answer than at the last look."""
        ours = self._reply(window.exchange.request, window.exchange.version, self._copy.epoch(trio.current_time()))
        if ours is not None and (not window.ours or ours != window.ours[-1]):
            window.ours.append(ours)
        window.complete = ours is not None

    async def _judged(self, window: _Window) -> Found:
        self._note_changes(window)
        self._look(window)
        if not window.complete:
            return Found({}, window.moved)
        comparison = await self.compare(window.exchange, window.ours, window.theirs)
        told = [group for group in window.changes if group not in comparison.hidden]
        return Found({group: comparison.differences.get(group) for group in told}, window.moved)

    async def compare(self, exchange: Exchange, ours: Sequence[bytes], theirs: bytes) -> Comparison:
        """Compares what stood behind a correlation id, at several moments, with the body of the broker's reply."""
        if exchange.version >= APIS[exchange.request.KEY].response.HEADER_FLEXIBLE:
            ours = [each[1:] for each in ours]  # The header's tagged fields, of which the sidecar writes none.
        habits = {"sees_all": not self._copy.hides, "true_hosts": self._copy.true_hosts}
        job = partial(judge, exchange.request, exchange.version, ours, theirs, **habits)
        if len(theirs) * len(ours) <= LARGEST_AT_ONCE:
            return job()
        began = time.monotonic()
        comparison = await trio.to_thread.run_sync(job)
        self._copy.samples.rest(RESTS * (time.monotonic() - began))
        return comparison
