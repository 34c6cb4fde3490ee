"""Compares the broker's answer with the answers that the copy gives while it catches up with the broker.

`VerificationWindows` decides when the copy's answer is recorded, and runs a long comparison in a thread. `verification`
selects the questions and handles a difference. `verification_diff` compares two answers field by field.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

import trio

from group_sidecar.codecs.api_registry import APIS
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.proxy.broker.kafka_client import MAX_INLINE_BYTES, KafkaClient
from group_sidecar.proxy.broker.verification_diff import Comparison, Difference, compare_over_window

PAUSE_PER_COMPARISON_TIME = 50.0
"""After a comparison in a thread, no sample is taken for this multiple of the comparison's duration. Even work in a
thread slows down the data path."""
CATCH_UP_SECONDS = 2.0
"""Seconds that the copy gets to learn what the broker's reply contains."""
POLL_SECONDS = 0.02
"""Seconds between two checks whether a verified group has changed."""
MAX_KEPT_ANSWERS, FEW_KEPT_ANSWERS = 100, 4
"""The maximum number of the copy's answers that are recorded in one window, and the smaller bound for large answers or
many groups."""
MANY_GROUPS = 100
"""More groups than this in one question make the smaller bound apply."""

Reply = Callable[[Struct, int, float], bytes | None]
"""Returns the part of the copy's answer after the correlation id, or None if the copy cannot answer. The arguments are
a request, its version, and a time in seconds since the epoch. The function does not check whether the copy may be
used."""


class ChangeCounter(Protocol):
    """The part of a copy's groups that verification needs."""

    def changes_of(self, group_id: str) -> tuple[int, int]: ...


class PausableSampling(Protocol):
    """Pauses the sampling of answers."""

    def rest(self, seconds: float) -> None: ...


class ComparedCopy(Protocol):
    """The copy of one broker."""

    @property
    def manager(self) -> ChangeCounter: ...
    def epoch(self, now: float) -> float: ...


class ComparedAuthorizerState(Protocol):
    """The part of the authorizer's state that verification needs."""

    @property
    def may_have_authorizer(self) -> bool:
        """Whether the broker may hide something from the sidecar's own user."""


class ComparedSettings(Protocol):
    """The part of the settings that verification needs."""

    @property
    def true_hosts(self) -> bool:
        """Whether the copy's answers contain the true hosts of members, which the broker does not know."""


@dataclass(slots=True)
class _Window:
    """The broker's answer to a question, and the answers that the copy would have made around the same time.

    The copy's first answer is older than the broker's answer. The copy's last answer is from the moment when the copy
    has caught up.

    Attributes:
        changes: the change counters of the groups at the last check.
        ours: the answers that the copy would have made, each different from the previous one.
        theirs: the body of the broker's reply.
        moved: groups that have changed during the window.
        complete: whether the copy could answer at the last check.
    """

    exchange: Exchange
    changes: dict[str, tuple[int, int]]
    ours: list[bytes] = field(default_factory=list)
    theirs: bytes = b""
    moved: set[str] = field(default_factory=set)
    complete: bool = False

    @property
    def max_kept_answers(self) -> int:
        """The maximum number of answers that are recorded before the last answer."""
        small = sum(map(len, self.ours)) <= MAX_INLINE_BYTES and len(self.changes) <= MANY_GROUPS
        return MAX_KEPT_ANSWERS if small else FEW_KEPT_ANSWERS


class WindowResult(NamedTuple):
    """The result of a window.

    Attributes:
        differences: the difference by group, or None if both sides agree. A group is missing if the copy cannot answer
            for the group, or if the broker hides it.
        moved: groups that changed during the window.
    """

    differences: dict[str, Difference | None]
    moved: set[str]


class VerificationWindows:
    """Compares the answers of one copy with its broker's.

    Args:
        copy: the copy.
        authorizer_state: whether the broker may hide something.
        settings: which hosts the answers contain.
        samples: is paused after a long comparison.
        reply: returns what the copy would answer.
    """

    def __init__(
        self,
        copy: ComparedCopy,
        authorizer_state: ComparedAuthorizerState,
        settings: ComparedSettings,
        samples: PausableSampling,
        reply: Reply,
    ) -> None:
        self._copy = copy
        self._authorizer_state = authorizer_state
        self._settings = settings
        self._samples = samples
        self._reply = reply

    async def compare_over_time(
        self, client: KafkaClient, questions: Sequence[tuple[Exchange, Collection[str]]]
    ) -> list[WindowResult]:
        """Compares the broker's current answer about groups with all answers of the copy around the same time.

        The copy's answer is recorded before the broker is asked, after each change, and once the copy has had time to
        catch up.
        """
        windows = []
        for exchange, groups in questions:
            window = _Window(exchange, {group: self._copy.manager.changes_of(group) for group in groups})
            self._keep_answer(window)
            window.theirs = await client.ask_undecoded(exchange.request, exchange.version)
            windows.append(window)
        ends = trio.current_time() + CATCH_UP_SECONDS
        while trio.current_time() < ends:
            await trio.sleep(min(POLL_SECONDS, ends - trio.current_time()))
            for window in windows:
                if len(window.ours) < window.max_kept_answers and self._note_changes(window):
                    self._keep_answer(window)
        return [await self._result(window) for window in windows]

    def _note_changes(self, window: _Window) -> bool:
        """Records which of the groups have changed since the last check. Returns whether any has changed."""
        manager = self._copy.manager
        changed = [group for group, last in window.changes.items() if manager.changes_of(group) != last]
        window.changes |= {group: manager.changes_of(group) for group in changed}
        window.moved.update(changed)
        return bool(changed)

    def _keep_answer(self, window: _Window) -> None:
        """Records what the copy would answer now, if it is different from the last recorded answer."""
        ours = self._reply(window.exchange.request, window.exchange.version, self._copy.epoch(trio.current_time()))
        if ours is not None and (not window.ours or ours != window.ours[-1]):
            window.ours.append(ours)
        window.complete = ours is not None

    async def _result(self, window: _Window) -> WindowResult:
        self._note_changes(window)
        self._keep_answer(window)
        if not window.complete:
            return WindowResult({}, window.moved)
        comparison = await self.compare(window.exchange, window.ours, window.theirs)
        compared_groups = [group for group in window.changes if group not in comparison.hidden]
        return WindowResult({group: comparison.differences.get(group) for group in compared_groups}, window.moved)

    async def compare(self, exchange: Exchange, ours: Sequence[bytes], theirs: bytes) -> Comparison:
        """Compares answers of the copy at several moments with the body of the broker's reply.

        `ours`: the part of each answer after the correlation id.
        """
        if exchange.version >= APIS[exchange.request.KEY].response.HEADER_FLEXIBLE:
            ours = [each[1:] for each in ours]  # Remove the header's tagged fields: the sidecar writes none.
        options = {"sees_all": not self._authorizer_state.may_have_authorizer, "true_hosts": self._settings.true_hosts}
        job = partial(compare_over_window, exchange.request, exchange.version, ours, theirs, **options)
        if len(theirs) * len(ours) <= MAX_INLINE_BYTES:
            return job()
        began = time.monotonic()
        comparison = await trio.to_thread.run_sync(job)
        self._samples.rest(PAUSE_PER_COMPARISON_TIME * (time.monotonic() - began))
        return comparison
