"""A share of the answers made here is asked upstream too, and compared.

Owns: which answers, when a difference is one, and when a group that differed is trusted again. Must not know: how
answers are made or compared (`verification_window`), what distrust does.

The copy may be a moment behind the broker, so a first difference says little. The broker is asked again, and the copy
is looked at before that, at each change, and when it has had time to catch up. What the broker says and the copy never
said in that time is a difference, field by field: so a group that commits all the time can be judged as well. It is
told once, the copy learns the group again, and questions about it are left to the broker until both have agreed twice
in a row.

It never stands in the way: what cannot be verified is counted, and that is all.
"""

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import trio

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from group_sidecar.codecs.registry import api_name
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.coordinator.views import Lacking
from group_sidecar.metrics.traffic import Traffic, Verification
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.attempts import Attempts, remedy
from group_sidecar.proxy.client import BrokerError, KafkaClient, UnsupportedApi
from group_sidecar.proxy.comparing import Difference, shown
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.supervision import Supervisor, Task
from group_sidecar.proxy.verification_window import Changes, Reply, Watched, Windows

MOST_WAITING = 64
"""Answers that wait to be verified; further ones are not."""
MOST_CASES = 1000
"""Groups and APIs that differ; while there are so many, no more are looked for."""
CASES_AT_ONCE = 100
MOST_TOLD = 3
"""Groups that the log names at a time, where more differ at once."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
"""Seconds until a group that differed is looked at again; doubled as long as it does."""
RELOAD_SECONDS = 30.0
"""From when the copy learns groups again until it may learn others again: a partition of the log is loaded for that."""
IDLE_SECONDS = 60.0
"""Seconds without anything to ask after which the connection is closed."""
AGREEMENTS = 2
"""In a row, until a group is trusted again."""
MOST_UNJUDGED = 6
"""Looks in a row that do not show whether a group differs, until the group is trusted again: about a minute. The copy
has learnt the group again by then. Such a question may never be answered again: its topic was deleted, for example."""

Lacks = Callable[[Struct, int, float], Lacking | None]
"""Why the copy may not be used to answer such a request; None where it may."""


Reload = Callable[[str], None]
"""Has the copy forget what it has of a group, and learn it again."""


class Trust(Changes, Protocol):
    """The copy of the coordinator, as far as it is needed here. `now`: seconds since the epoch."""

    def distrust(self, group_id: str, now: float) -> None: ...
    def trust(self, group_id: str, now: float) -> None: ...


class Verified(Watched, Protocol):
    """The copy of one broker, and how the broker is asked."""

    @property
    def address(self) -> Address: ...
    @property
    def manager(self) -> Trust: ...
    @property
    def traffic(self) -> Traffic: ...
    @property
    def samples(self) -> "Samples": ...
    def connect(self, *, again: bool = False) -> AbstractAsyncContextManager[KafkaClient]: ...


class Sample(NamedTuple):
    """A question, and what stood behind the correlation id in the answer that a client was given."""

    exchange: Exchange
    answer: bytes


class Samples:
    """Answers that wait to be verified. `share`: of all, from 0 to 1."""

    def __init__(self, share: float, traffic: Traffic) -> None:
        self._share = share
        self._traffic = traffic
        self._sending, self.receiving = trio.open_memory_channel[Sample](MOST_WAITING)
        self.suspended = False
        self._rests_until = -math.inf

    def rest(self, seconds: float) -> None:
        """Keeps none for so long."""
        self._rests_until = time.monotonic() + seconds

    def take(self, exchange: Exchange, answer: bytes) -> None:
        """Is shown every answer, as in `Sample`, and keeps some. Never blocks."""
        if random.random() >= self._share:
            return
        try:
            if self.suspended or time.monotonic() < self._rests_until:
                raise trio.WouldBlock
            self._sending.send_nowait(Sample(exchange, answer))
        except trio.WouldBlock:
            self._traffic.verified(exchange.request.KEY, Verification.LOST)


@dataclass(slots=True)
class _Case:
    """A group that differed, and how it is looked at again."""

    exchange: Exchange
    group: str
    due: float
    pause: float = FIRST_PAUSE
    agreements: int = 0
    unjudged: int = 0
    reloaded: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the group is to be trusted again."""
        return self.agreements >= AGREEMENTS or (self.unjudged >= MOST_UNJUDGED and self.reloaded)


_Job = Sample | list[_Case]


async def verify_forever(
    copy: Verified, reply: Reply, lacks: Lacks, reload: Reload, supervisor: Supervisor | None = None
) -> None:
    """Verifies samples of a copy's answers until cancelled. Never raises."""
    run = _Verifier(copy, reply, lacks, reload).run
    await (supervisor or Supervisor()).keep(Task.VERIFICATION, run, str(copy.address))


class _Verifier:
    def __init__(self, copy: Verified, reply: Reply, lacks: Lacks, reload: Reload) -> None:
        self._copy = copy
        self._windows = Windows(copy, reply)
        self._lacks = lacks
        self._reload = reload
        self._reload_at = -math.inf
        self._cases: dict[tuple[str, int], _Case] = {}
        self._distrusted = 0
        self._attempts = Attempts()

    async def run(self) -> None:
        while True:
            await self._connected(await self._next(math.inf))
            if self._attempts.failures:
                await trio.sleep(self._attempts.pause())

    async def _next(self, until: float) -> _Job | None:
        """Cases that are due, else the next sample; None where there is nothing until then."""
        due = min((case.due for case in self._cases.values()), default=math.inf)
        with trio.move_on_at(min(until, due)):
            return await self._copy.samples.receiving.receive()
        cases = [case for case in self._cases.values() if case.due <= trio.current_time()]
        return cases[:CASES_AT_ONCE] or None

    async def _connected(self, job: _Job | None) -> None:
        """Connects, and works for as long as there is something to do."""
        try:
            async with self._copy.connect(again=True) as client:
                while job is not None:
                    await self._do(client, job)
                    self._attempts.failures = 0
                    self._attempts.enters("answers are verified")
                    job = await self._next(trio.current_time() + IDLE_SECONDS)
        except (BrokerError, DecodeError) as error:
            self._lost(job)
            self._attempts.failures += 1
            if self._attempts.enters("answers are not verified"):
                reason = {"broker": str(self._copy.address), "reason": str(error)}
                log.warning("answers are not verified", **reason, **remedy(error))
        except Exception:
            self._lost(job)
            raise

    def _lost(self, job: _Job | None) -> None:
        if isinstance(job, Sample):
            self._copy.traffic.verified(job.exchange.request.KEY, Verification.LOST)
        for case in job if isinstance(job, list) else ():
            case.due = trio.current_time() + case.pause

    async def _do(self, client: KafkaClient, job: _Job) -> None:
        if not isinstance(job, Sample):
            await self._reconsider(client, job)
        else:
            key = job.exchange.request.KEY
            self._copy.traffic.verified(key, await self._verify(client, job))

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
        [second] = await self._windows.compare_anew(client, [(exchange, suspects)])
        found = {group: difference for group, difference in second.differences.items() if difference}
        if moved := found.keys() & second.moved:  # A value that was there for an instant may have been missed.
            [third] = await self._windows.compare_anew(client, [(exchange, moved)])
            found = {group: each for group, each in found.items() if group not in moved or third.differences.get(group)}
        if self._lacks(exchange.request, exchange.version, self._now()):
            return Verification.INCONCLUSIVE  # A transaction began, a member has gone: it would not answer now.
        self._open(exchange, found)
        return Verification.DIFFERENT if found else Verification.INCONCLUSIVE

    # Cases.

    def _open(self, exchange: Exchange, differences: Mapping[str, Difference]) -> None:
        """Distrusts groups, and tells of those that are new; of the first few with both sides."""
        key = exchange.request.KEY
        new = [group for group in differences if (group, key) not in self._cases]
        for group in new:
            self._cases[group, key] = _Case(_about(exchange, group), group, trio.current_time() + FIRST_PAUSE)
        self._distrust([self._cases[group, key] for group in new])
        for group in new[:MOST_TOLD]:
            ours, theirs = shown(differences[group])
            log.warning(
                "an answer differs from the broker's",
                broker=str(self._copy.address),
                api=api_name(key),
                group=group,
                ours=ours,
                theirs=theirs,
                **({"others": len(new) - MOST_TOLD} if len(new) > MOST_TOLD else {}),
            )
        self._count()

    async def _reconsider(self, client: KafkaClient, cases: Sequence[_Case]) -> None:
        """Looks at cases again, and closes those where both sides agree time and again."""
        questions = [(case.exchange, (case.group,)) for case in cases]
        differing = []
        for case, found in zip(cases, await self._windows.compare_anew(client, questions), strict=True):
            case.unjudged = 0 if case.group in found.differences else case.unjudged + 1
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
        """Has the copy learn these groups again, once for each case, and trusts nothing of them until then."""
        if trio.current_time() >= self._reload_at:
            for case in cases:
                if not case.reloaded:
                    self._reload(case.group)
                    case.reloaded = True
                    self._reload_at = trio.current_time() + RELOAD_SECONDS
        for case in cases:
            self._copy.manager.distrust(case.group, self._now())  # The copy may have begun anew.

    def _close(self, cases: Sequence[_Case]) -> None:
        for case in cases:
            del self._cases[case.group, case.exchange.request.KEY]
        open_still = {group for group, _ in self._cases}
        settled = sorted({case.group for case in cases} - open_still)
        for group in settled:
            self._copy.manager.trust(group, self._now())
        if settled:
            told = settled[:MOST_TOLD]
            log.info(
                "answers agree with the broker's again",
                broker=str(self._copy.address),
                groups=told,
                **({"others": len(settled) - len(told)} if len(settled) > len(told) else {}),
            )
        self._count()

    def _count(self) -> None:
        """Tells how many groups are distrusted."""
        groups = len({group for group, _ in self._cases})
        self._copy.traffic.distrusted_groups += groups - self._distrusted
        self._distrusted = groups
        self._copy.samples.suspended = len(self._cases) >= MOST_CASES

    def _now(self) -> float:
        return self._copy.epoch(trio.current_time())


def _about(exchange: Exchange, group: str) -> Exchange:
    """The same question, of one of its groups, and of nobody that may have gone when it is asked again."""
    request: Any = exchange.request
    for name in ("groups", "group_ids"):
        if hasattr(request, name):
            asked = tuple(each for each in getattr(request, name) if getattr(each, "group_id", each) == group)
            if isinstance(request, OffsetFetchRequest):
                asked = tuple(replace(each, member_id=None, member_epoch=-1) for each in asked)
            return replace(exchange, request=replace(request, **{name: asked}))
    return exchange
