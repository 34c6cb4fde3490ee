"""Measures the CPU time for decoding group traffic, in addition to the plain forwarding of the same bytes.

    python -m benchmarks.group_traffic [--quick]

There is one process, without sockets or a broker. The same frames go through two sessions. The dispatcher of one
session decodes the frames and applies them to a copy. The dispatcher of the other session lets all frames pass. The
sessions take turns in many short runs, and the fastest run of each counts.
"""

import argparse
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from benchmarks.section import Section
from group_sidecar.codecs.headers import RequestHeader, encode_reply, encode_request
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.join_group import (
    JoinGroupMember,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.facts import Fact
from group_sidecar.coordinator.model.views import GroupState
from group_sidecar.coordinator.state.log_partitions import DEFAULT_PARTITIONS
from group_sidecar.metrics.fact_counters import FactCounters
from group_sidecar.metrics.flight_recorder import FlightRecorder
from group_sidecar.proxy.broker.broker_state import BrokerState
from tests.proxy.dataplane.playbook import EPOCH, Line, ScriptedDispatcher, SessionDriver, complete_state, stable_group

MEMBERS, MANY = 10, 100
"""The number of members of each group, and of the group that rebalances."""
GROUP, BIG = "billing-7", "crowd"
COMMITTED = (1, 10, 100)
"""The numbers of partitions of the commits."""
RUN_SECONDS = 0.002
"""The approximate duration of one run. A run has at least one exchange, which may take longer."""
STEP_SECONDS = 0.00001
"""How far the sessions' clock advances with each exchange. The step is small enough for the log to stay fresh."""
HEARTBEAT_BUDGET, COMMIT_BUDGET, PARTITION_BUDGET = 60, 40, 3
"""Microseconds allowed for a Heartbeat, for a commit, and for each partition in a commit."""
METADATA = bytes(60)
"""Metadata of the size of a subscription to a few topics."""


class Kind(NamedTuple):
    """A kind of exchange. `budget`: microseconds that it may cost in addition to forwarding; None for no limit."""

    name: str
    budget: int | None = None


HEARTBEAT = Kind("Heartbeat", HEARTBEAT_BUDGET)
JOIN, SYNC = (Kind(f"{name} of {MANY} members, the leader's") for name in ("JoinGroup", "SyncGroup"))


class Frames(NamedTuple):
    """An encoded request and its reply."""

    request: bytes
    reply: bytes


class SessionPair:
    """One session that forwards everything, and one that applies the exchanges to a copy.

    Attributes:
        best: the minimum cost of one exchange of each kind in each session, in microseconds.
    """

    def __init__(self, state: BrokerState) -> None:
        self.best: dict[Kind, tuple[float, float]] = {}
        self.applying = Line(state)
        self._passing = SessionDriver(ScriptedDispatcher())

    def run(self, kind: Kind, frames: Frames, *, once: bool = False) -> None:
        """Plays an exchange once, or for the length of a run."""
        known = self.best.get(kind, (float("inf"), float("inf")))
        count = 1 if once else max(1, round(RUN_SECONDS * 1e6 / known[1]))
        taken = _play(self._passing, frames, count), _play(self.applying, frames, count)
        self.best[kind] = min(known[0], taken[0]), min(known[1], taken[1])


def _play(session: SessionDriver, frames: Frames, count: int) -> float:
    began = time.process_time()
    for _ in range(count):
        session.now += STEP_SECONDS
        session.client(frames.request)
        session.upstream(frames.reply)
    return (time.process_time() - began) / count * 1e6


def costs(groups: int, runs: int) -> Mapping[Kind, tuple[float, float]]:
    """Returns the cost of each kind with `groups` groups. Raises RuntimeError if the copy missed an exchange."""
    state = populated(groups)
    sessions = SessionPair(state)
    for kind, frames in steady():
        for _ in range(runs):
            sessions.run(kind, frames)
    for generation in range(2, 2 + runs):
        for kind, frames in rebalance(generation):
            sessions.run(kind, frames, once=True)
    crowd, group = state.copy.manager.group_metadata_cache[BIG], state.copy.manager.group_metadata_cache[GROUP]
    applied = [
        (crowd.generation, crowd.state, len(crowd.members)) == (1 + runs, GroupState.STABLE, MANY),
        group.members[member_id(GROUP, 3)].seen_at > state.copy.epoch(Line(state).now),
        len(state.copy.manager.view(GROUP, EPOCH).offsets) == max(COMMITTED),
    ]
    if not all(applied):
        raise RuntimeError(f"the copy lacks what was sent: {applied}")
    return sessions.best


def populated(groups: int) -> BrokerState:
    """Returns a broker's copy set up as in production: its log is read, a policy checks joins, facts are counted."""
    fact_counters, recorder = FactCounters(CollectorRegistry()), FlightRecorder(1 << 20)

    def observe(fact: Fact) -> None:
        fact_counters.observe(fact)
        recorder.observe(fact)

    state = complete_state(observe, policies={"group_max_size": {"limit": 10 * MANY}})
    log = state.copy.manager.log
    log.count_partitions(DEFAULT_PARTITIONS, EPOCH)
    now = state.copy.epoch(Line(state).now)
    for number in range(DEFAULT_PARTITIONS):
        log.begin_load(number, leader_epoch=0, start_offset=0, now=now)
        list(log.end_reached(number, now, now))
    for number in range(groups):
        group = f"billing-{number}"
        stable_group(state, *(member_id(group, each) for each in range(MEMBERS)), group=group)
    stable_group(state, *(member_id(BIG, each) for each in range(MANY)), group=BIG)
    return state


def member_id(group: str, number: int) -> str:
    """Returns a member id in the form in which the broker makes it from a client id."""
    return f"consumer-{group}-{number}-5b9c8f0e-8f36-4d3c-9d1a-0c6f2f5a1f6e"


def steady() -> Iterator[tuple[Kind, Frames]]:
    """Yields the exchanges of a member while its group is stable."""
    member = member_id(GROUP, 3)
    alive = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member)
    yield HEARTBEAT, _frames(alive, HeartbeatResponse(error_code=0), 4)
    for count in COMMITTED:
        offsets = tuple(
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=1_000_000 + index, committed_metadata=""
            )
            for index in range(count)
        )
        stored = tuple(OffsetCommitResponsePartition(partition_index=index, error_code=0) for index in range(count))
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=1,
            member_id=member,
            topics=(OffsetCommitRequestTopic(name="orders", partitions=offsets),),
        )
        reply = OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="orders", partitions=stored),))
        name = f"OffsetCommit of {count} partition{'s' * (count > 1)}"
        yield Kind(name, COMMIT_BUDGET + PARTITION_BUDGET * count), _frames(request, reply, 8)


def rebalance(generation: int) -> Iterator[tuple[Kind, Frames]]:
    """Yields the exchanges of a rebalance: the leader joins again, receives all members, and assigns partitions."""
    members = [member_id(BIG, number) for number in range(MANY)]
    join = JoinGroupRequest(
        group_id=BIG,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        member_id=members[0],
        protocol_type="consumer",
        protocols=tuple(JoinGroupProtocol(name=name, metadata=METADATA) for name in ("range", "cooperative-sticky")),
    )
    joined = JoinGroupResponse(
        error_code=0,
        generation_id=generation,
        protocol_type="consumer",
        protocol_name="range",
        leader=members[0],
        member_id=members[0],
        members=tuple(JoinGroupMember(member_id=member, metadata=METADATA) for member in members),
    )
    yield JOIN, _frames(join, joined, 9)
    sync = SyncGroupRequest(
        group_id=BIG,
        generation_id=generation,
        member_id=members[0],
        assignments=tuple(SyncGroupRequestAssignment(member_id=member, assignment=METADATA) for member in members),
    )
    yield SYNC, _frames(sync, SyncGroupResponse(error_code=0, assignment=METADATA), 5)


def _frames(request: Struct, reply: Struct, version: int) -> Frames:
    header = RequestHeader(request.KEY, version, 1, "consumer-1")
    return Frames(encode_request(request, header), encode_reply(reply, version, header.correlation_id))


def measure(quick: bool) -> Section:
    """Measures the CPU time per exchange, and checks it against the budgets."""
    groups, runs = (200, 100) if quick else (2_000, 500)
    return Section("Group traffic", "\n".join(page(costs(groups, runs), groups)))


def page(found: Mapping[Kind, tuple[float, float]], groups: int) -> Iterator[str]:
    """Yields the results as lines of Markdown."""
    yield f"""\
`python -m benchmarks.group_traffic` measures the microseconds of CPU for a request and its reply. *forwarded*: a
session forwards both and reads only the frame heads. *forwarded and applied*: both are also decoded and applied to one
of {groups:,} groups of {MEMBERS} members each. A policy judges joins, the log is read, and facts are counted and
recorded. Both cases have the same frames. There is one process without sockets, so the figures exclude the kernel's
share, which is equal in both cases. Each figure is the best of many runs of {RUN_SECONDS * 1000:g} ms. The runs of the
two cases took turns.
"""
    yield "| | forwarded | forwarded and applied | above plain forwarding | budget |"
    yield "|---|---|---|---|---|"
    for kind, (passed, applied) in found.items():
        budget = f"{kind.budget}" if kind.budget is not None else ""
        yield f"| {kind.name} | {passed:.1f} | {applied:.1f} | **{applied - passed:.1f}** | {budget} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer groups and runs")
    print(measure(parser.parse_args().quick).text)
