"""Verifies a share of the local answers by asking the broker the same questions.

The module selects the answers, decides when a difference counts, and when a group that differed is trusted again. The
comparison is in `verification_window` and `verification_diff`.

The copy may lag the broker by a moment, so a first difference is not conclusive. The broker is asked again. The copy's
own answer is recorded before that request, at each change of the group, and once the copy has had time to catch up. A
field counts as different only if the copy never had the broker's value in this time. So a group that commits all the
time can also be verified.

A difference is logged once. The copy then learns the group again, and questions about the group go to the broker until
both sides have agreed twice in a row, or until `MAX_INCONCLUSIVE` comparisons in a row had no result.

A failure here does not affect clients: an answer that cannot be verified is only counted.
"""

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import trio

from group_sidecar.codecs.api_registry import api_name
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.metrics.traffic_counters import TrafficCounters, Verification
from group_sidecar.proxy.broker.broker_errors import BrokerError, UnsupportedApi
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.broker.own_credentials import setting_hint
from group_sidecar.proxy.broker.verification_diff import Difference, format_difference
from group_sidecar.proxy.broker.verification_window import ChangeCounter, ComparedCopy, VerificationWindows
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.runtime.backoff import Backoff
from group_sidecar.proxy.runtime.logging import log

MAX_WAITING_SAMPLES = 64
"""The maximum number of answers that wait to be verified. Further answers are not verified."""
MAX_CASES = 1000
"""While this many cases are open, no further answers are sampled. A case is a group about which the answers of the
sidecar and of the broker to one API differed."""
CASES_AT_ONCE = 100
MAX_LOGGED_GROUPS = 3
"""The maximum number of groups that the sidecar logs if several groups differ at once."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
"""Seconds until a group that differed is compared again: doubled after each comparison that does not agree, up to the
second value."""
RELOAD_SECONDS = 30.0
"""The minimum number of seconds between two reloads of groups. For each group, the copy loads a partition of
`__consumer_offsets` again. Groups that differ at the same time are reloaded together."""
IDLE_SECONDS = 60.0
"""Seconds without a request after which the connection is closed."""
AGREEMENTS = 2
"""The number of comparisons in a row that must agree until a group is trusted again."""
MAX_INCONCLUSIVE = 6
"""After this many comparisons in a row without a result, the group is trusted again, if the copy has learnt the group
again. Six comparisons take about a minute. Without this limit, a group might stay distrusted forever. For example, the
question may never get an answer again because its topic was deleted."""

FindFallbackReason = Callable[[Struct, int, float], FallbackReason | None]
"""Returns why the copy may not be used to answer a request, or None if the copy may be used. The arguments are the
request, its version, and a time in seconds since the epoch."""


Reload = Callable[[str], None]
"""Makes the copy forget a group and learn it again."""


class TrustedGroups(ChangeCounter, Protocol):
    """The part of the coordinator's copy that verification needs."""

    def distrust(self, group_id: str) -> None: ...
    def trust(self, group_id: str) -> None: ...


class VerifiedCopy(ComparedCopy, Protocol):
    """The copy of one broker."""

    @property
    def manager(self) -> TrustedGroups: ...


class Connections(Protocol):
    """Connects to the broker (`OwnConnections`)."""

    @property
    def address(self) -> Address: ...
    def connect(self, *, additional: bool = False) -> AbstractAsyncContextManager[KafkaClient]: ...


class Sample(NamedTuple):
    """A question, and the answer that the client got, without its correlation id."""

    exchange: Exchange
    answer: bytes


class SampleQueue:
    """Answers that wait to be verified. `share`: the fraction of answers to verify, from 0 to 1."""

    def __init__(self, share: float, traffic: TrafficCounters) -> None:
        self._share = share
        self._traffic = traffic
        self._sending, self.receiving = trio.open_memory_channel[Sample](MAX_WAITING_SAMPLES)
        self.suspended = False
        self._paused_until = -math.inf

    def rest(self, seconds: float) -> None:
        """Keeps no samples for this many seconds."""
        self._paused_until = time.monotonic() + seconds

    def sample_answer(self, exchange: Exchange, answer: bytes) -> None:
        """Keeps a share of the answers. Must be called with every answer. Never blocks."""
        if random.random() >= self._share:
            return
        try:
            if self.suspended or time.monotonic() < self._paused_until:
                raise trio.WouldBlock
            self._sending.send_nowait(Sample(exchange, answer))
        except trio.WouldBlock:
            self._traffic.verified(exchange.request.KEY, Verification.LOST)


@dataclass(slots=True)
class _Case:
    """A group that differed, and when it is compared again."""

    exchange: Exchange
    group: str
    due: float
    pause: float = FIRST_PAUSE
    agreements: int = 0
    inconclusive: int = 0
    reloaded: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the group can be trusted again."""
        return self.agreements >= AGREEMENTS or (self.inconclusive >= MAX_INCONCLUSIVE and self.reloaded)


_Job = Sample | list[_Case]


class Verifier:
    """Verifies samples of a copy's answers."""

    def __init__(
        self,
        copy: VerifiedCopy,
        windows: VerificationWindows,
        samples: SampleQueue,
        connections: Connections,
        traffic: TrafficCounters,
        find_fallback_reason: FindFallbackReason,
        reload: Reload,
    ) -> None:
        self._copy = copy
        self._windows = windows
        self._samples = samples
        self._connections = connections
        self._traffic = traffic
        self._find_fallback_reason = find_fallback_reason
        self._reload = reload
        self._reload_at = -math.inf
        self._cases: dict[tuple[str, int], _Case] = {}
        self._distrusted = 0
        self._attempts = Backoff()

    async def run(self) -> None:
        """Verifies samples until cancelled."""
        while True:
            await self._connected(await self._next(math.inf))
            if self._attempts.failures:
                await trio.sleep(self._attempts.pause())

    async def _next(self, until: float) -> _Job | None:
        """Returns the cases that are due, else the next sample. Returns None if there is neither before `until`."""
        due = min((case.due for case in self._cases.values()), default=math.inf)
        with trio.move_on_at(min(until, due)):
            return await self._samples.receiving.receive()
        cases = [case for case in self._cases.values() if case.due <= trio.current_time()]
        return cases[:CASES_AT_ONCE] or None

    async def _connected(self, job: _Job | None) -> None:
        """Connects, and works until there is no further job."""
        try:
            async with self._connections.connect(additional=True) as client:
                while job is not None:
                    await self._do(client, job)
                    self._attempts.failures = 0
                    self._attempts.enters_condition("answers are verified")
                    job = await self._next(trio.current_time() + IDLE_SECONDS)
        except (BrokerError, DecodeError) as error:
            self._count_lost(job)
            self._attempts.failures += 1
            if self._attempts.enters_condition("answers are not verified"):
                reason = {"broker": str(self._connections.address), "reason": str(error)}
                log.warning("answers are not verified", **reason, **setting_hint(error))
        except Exception:
            self._count_lost(job)
            raise

    def _count_lost(self, job: _Job | None) -> None:
        if isinstance(job, Sample):
            self._traffic.verified(job.exchange.request.KEY, Verification.LOST)
        for case in job if isinstance(job, list) else ():
            case.due = trio.current_time() + case.pause

    async def _do(self, client: KafkaClient, job: _Job) -> None:
        if not isinstance(job, Sample):
            await self._reconsider(client, job)
        else:
            key = job.exchange.request.KEY
            self._traffic.verified(key, await self._verify(client, job))

    # Samples.

    async def _verify(self, client: KafkaClient, sample: Sample) -> Verification:
        """Compares an answer with the broker's, and opens a case for each group that differs."""
        exchange = sample.exchange
        try:
            client.version_for(type(exchange.request), exchange.version, exchange.version)
        except UnsupportedApi:
            return Verification.SKIPPED
        theirs = await client.ask_undecoded(exchange.request, exchange.version)
        first = await self._windows.compare(exchange, [sample.answer], theirs)
        if not first.differences:
            return Verification.SKIPPED if first.hidden else Verification.AGREED
        suspects = [group for group in first.differences if group is not None]
        if self._is_left_to_broker(exchange):
            return Verification.INCONCLUSIVE
        [second] = await self._windows.compare_over_time(client, [(exchange, suspects)])
        found = {group: difference for group, difference in second.differences.items() if difference}
        if moved := found.keys() & second.moved:  # A value that the copy had only for an instant may have been missed.
            if self._is_left_to_broker(exchange):
                return Verification.INCONCLUSIVE
            [third] = await self._windows.compare_over_time(client, [(exchange, moved)])
            found = {group: each for group, each in found.items() if group not in moved or third.differences.get(group)}
        if self._is_left_to_broker(exchange):
            return Verification.INCONCLUSIVE
        self._open(exchange, found)
        return Verification.DIFFERENT if found else Verification.INCONCLUSIVE

    def _is_left_to_broker(self, exchange: Exchange) -> bool:
        """Whether the sidecar would leave a question to the broker now, for example because the copy lags.

        If so, a comparison that begins now may miss values: when the copy catches up with the log, it skips to the
        newest value.
        """
        return self._find_fallback_reason(exchange.request, exchange.version, self._now()) is not None

    # Cases.

    def _open(self, exchange: Exchange, differences: Mapping[str, Difference]) -> None:
        """Distrusts groups without an open case. Logs both answers of the first few groups, and the number of the other
        groups.
        """
        key = exchange.request.KEY
        new = [group for group in differences if (group, key) not in self._cases]
        for group in new:
            self._cases[group, key] = _Case(
                _question_about_group(exchange, group), group, trio.current_time() + FIRST_PAUSE
            )
        self._distrust([self._cases[group, key] for group in new])
        for group in new[:MAX_LOGGED_GROUPS]:
            ours, theirs = format_difference(differences[group])
            log.warning(
                "an answer differs from the broker's",
                broker=str(self._connections.address),
                api=api_name(key),
                group=group,
                ours=ours,
                theirs=theirs,
                **({"others": len(new) - MAX_LOGGED_GROUPS} if len(new) > MAX_LOGGED_GROUPS else {}),
            )
        self._report_distrusted()

    async def _reconsider(self, client: KafkaClient, cases: Sequence[_Case]) -> None:
        """Compares the groups of cases again, and closes the cases that are over."""
        questions = [(case.exchange, (case.group,)) for case in cases]
        differing = []
        for case, found in zip(cases, await self._windows.compare_over_time(client, questions), strict=True):
            case.inconclusive = 0 if case.group in found.differences else case.inconclusive + 1
            if found.differences.get(case.group, ()) is None:
                case.agreements += 1
                case.pause = FIRST_PAUSE
            else:
                differing.append(case)
                case.agreements = 0
                case.pause = min(2 * case.pause, LONGEST_PAUSE)
            case.due = trio.current_time() + case.pause
        self._distrust(differing)
        self._close([case for case in cases if case.is_over])

    def _distrust(self, cases: Sequence[_Case]) -> None:
        """Marks these groups as distrusted. Makes the copy learn each group again, unless it has done so for the case.

        Within RELOAD_SECONDS of the last reload, no group is learnt again.
        """
        if trio.current_time() >= self._reload_at:
            for case in cases:
                if not case.reloaded:
                    self._reload(case.group)
                    case.reloaded = True
                    self._reload_at = trio.current_time() + RELOAD_SECONDS
        for case in cases:
            self._copy.manager.distrust(case.group)  # The last step, because a reload ends the distrust.

    def _close(self, cases: Sequence[_Case]) -> None:
        for case in cases:
            del self._cases[case.group, case.exchange.request.KEY]
        open_still = {group for group, _ in self._cases}
        settled = sorted({case.group for case in cases} - open_still)
        for group in settled:
            self._copy.manager.trust(group)
        if settled:
            logged_groups = settled[:MAX_LOGGED_GROUPS]
            log.info(
                "answers agree with the broker's again",
                broker=str(self._connections.address),
                groups=logged_groups,
                **({"others": len(settled) - len(logged_groups)} if len(settled) > len(logged_groups) else {}),
            )
        self._report_distrusted()

    def _report_distrusted(self) -> None:
        """Updates the count of distrusted groups. Suspends sampling if there are too many cases."""
        groups = len({group for group, _ in self._cases})
        self._traffic.distrusted_groups += groups - self._distrusted
        self._distrusted = groups
        self._samples.suspended = len(self._cases) >= MAX_CASES

    def _now(self) -> float:
        return self._copy.epoch(trio.current_time())


def _question_about_group(exchange: Exchange, group: str) -> Exchange:
    """Returns the same question about only one of its groups.

    The new question names no member, because a member may have left before the question is asked again.
    """
    request: Any = exchange.request
    for name in ("groups", "group_ids"):
        if hasattr(request, name):
            asked = tuple(each for each in getattr(request, name) if getattr(each, "group_id", each) == group)
            if isinstance(request, OffsetFetchRequest):
                asked = tuple(replace(each, member_id=None, member_epoch=-1) for each in asked)
            return replace(exchange, request=replace(request, **{name: asked}))
    return exchange
