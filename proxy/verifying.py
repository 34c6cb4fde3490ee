"""A share of the answers made here is asked upstream too, and compared.

Owns: which answers, when a difference is one, and when a group that differed is trusted again. Must not know: how
answers are made or compared, what distrust does.

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
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import trio

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from group_sidecar.codecs.registry import APIS, api_name
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.coordinator.views import Lacking
from group_sidecar.metrics.traffic import Traffic, Verification
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.attempts import Attempts, remedy
from group_sidecar.proxy.client import BrokerError, KafkaClient, UnsupportedApi
from group_sidecar.proxy.comparing import Comparison, Difference, judge, shown
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.supervision import Supervisor, Task

MOST_WAITING = 64
"""Answers that wait to be verified; further ones are not."""
MOST_CASES = 1000
"""Groups and APIs that differ; while there are so many, no more are looked for."""
LARGEST_AT_ONCE = 16_384
"""Bytes of a reply beyond which it is compared in a thread: the data path shares this one."""
RESTS = 50.0
"""For so many times as long as such a comparison took, none is begun: even a thread slows the data path down."""
CATCH_UP_SECONDS = 2.0
"""What the copy is given to hear of what the broker has told."""
LOOK_SECONDS = 0.02
"""Between two looks whether a group that is verified has changed."""
MOST_LOOKS, FEW_LOOKS = 100, 4
"""Answers of the copy that are kept of one such time; and where they are large, or of many groups."""
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

Reply = Callable[[Struct, int, float], bytes | None]
"""What the copy makes of a request, a version and a time in seconds since the epoch, whatever is lacking: what stands
behind the correlation id; None where it cannot."""


Lacks = Callable[[Struct, int, float], Lacking | None]
"""Why the copy may not be used to answer such a request; None where it may."""


Reload = Callable[[str], None]
"""Has the copy forget what it has of a group, and learn it again."""


class Trust(Protocol):
    """The copy of the coordinator, as far as it is needed here. `now`: seconds since the epoch."""

    def changes_of(self, group_id: str) -> tuple[int, int]: ...
    def distrust(self, group_id: str, now: float) -> None: ...
    def trust(self, group_id: str, now: float) -> None: ...


class Verified(Protocol):
    """The copy of one broker."""

    @property
    def address(self) -> Address: ...
    @property
    def manager(self) -> Trust: ...
    @property
    def traffic(self) -> Traffic: ...
    @property
    def samples(self) -> "Samples": ...
    @property
    def hides(self) -> bool:
        """Whether the broker may hide something from the sidecar's own user."""

    @property
    def true_hosts(self) -> bool:
        """Whether its answers tell where members are, which the broker does not know."""

    def epoch(self, now: float) -> float: ...
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
    reloaded: bool = False


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
        small = sum(map(len, self.ours)) <= LARGEST_AT_ONCE and len(self.changes) <= CASES_AT_ONCE
        return MOST_LOOKS if small else FEW_LOOKS


class _Found(NamedTuple):
    """What came of a window.

    Attributes:
        differences: by group; None where there is none. Groups of which nothing can be said are missing: the copy
            cannot answer, or the broker does not.
        moved: groups that changed in this time.
    """

    differences: dict[str, Difference | None]
    moved: set[str]


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
        self._reply = reply
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
        first = await self._compare(exchange, [sample.answer], theirs)
        if not first.differences:
            return Verification.SKIPPED if first.hidden else Verification.AGREED
        suspects = [group for group in first.differences if group is not None]
        [second] = await self._compare_anew(client, [(exchange, suspects)])
        found = {group: difference for group, difference in second.differences.items() if difference}
        if moved := found.keys() & second.moved:  # A value that was there for an instant may have been missed.
            [third] = await self._compare_anew(client, [(exchange, moved)])
            found = {group: each for group, each in found.items() if group not in moved or third.differences.get(group)}
        if self._lacks(exchange.request, exchange.version, self._now()):
            return Verification.INCONCLUSIVE  # A transaction began, a member has gone: it would not answer now.
        self._open(exchange, found)
        return Verification.DIFFERENT if found else Verification.INCONCLUSIVE

    async def _compare_anew(
        self, client: KafkaClient, questions: Sequence[tuple[Exchange, Collection[str]]]
    ) -> "list[_Found]":
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

    def _note_changes(self, window: "_Window") -> bool:
        """Whether any of the groups has changed since the last look."""
        manager = self._copy.manager
        changed = [group for group, last in window.changes.items() if manager.changes_of(group) != last]
        window.changes |= {group: manager.changes_of(group) for group in changed}
        window.moved.update(changed)
        return bool(changed)

    def _look(self, window: "_Window") -> None:
        """Keeps what the copy would answer now, if that is another answer than at the last look."""
        ours = self._reply(window.exchange.request, window.exchange.version, self._now())
        if ours is not None and (not window.ours or ours != window.ours[-1]):
            window.ours.append(ours)
        window.complete = ours is not None

    async def _judged(self, window: "_Window") -> "_Found":
        self._note_changes(window)
        self._look(window)
        if not window.complete:
            return _Found({}, window.moved)
        comparison = await self._compare(window.exchange, window.ours, window.theirs)
        told = [group for group in window.changes if group not in comparison.hidden]
        return _Found({group: comparison.differences.get(group) for group in told}, window.moved)

    async def _compare(self, exchange: Exchange, ours: Sequence[bytes], theirs: bytes) -> Comparison:
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
        for case, found in zip(cases, await self._compare_anew(client, questions), strict=True):
            if found.differences.get(case.group, ()) is None:
                case.agreements += 1
                case.pause = FIRST_PAUSE
            else:
                differing.append(case)
                case.agreements = 0
                case.pause = min(2 * case.pause, LONGEST_PAUSE)
            case.due = trio.current_time() + case.pause
        self._distrust(differing)
        self._close([case for case in cases if case.agreements >= AGREEMENTS])

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
