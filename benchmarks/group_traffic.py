"""What group traffic costs when it is looked into: the CPU above plain forwarding of the same bytes.

    python -m benchmarks.group_traffic [--quick]

One process, no sockets, no broker: the same frames go through a session whose desk reads and applies them, and through
one whose desk lets everything pass. The two take turns in many short runs, and the best of each counts.
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
from group_sidecar.coordinator.facts import Fact
from group_sidecar.coordinator.partitions import DEFAULT_PARTITIONS
from group_sidecar.coordinator.views import GroupState
from group_sidecar.metrics.flight_recorder import FlightRecorder
from group_sidecar.metrics.instruments import Instruments
from group_sidecar.proxy.broker_copy import BrokerCopy
from tests.proxy.playbook import EPOCH, Line, Playbook, ScriptedDesk, certain_copy, settled

MEMBERS, MANY = 10, 100
"""Of each group, and of the one that rebalances."""
GROUP, BIG = "billing-7", "crowd"
COMMITTED = (1, 10, 100)
"""Partitions of the commits."""
RUN_SECONDS = 0.002
"""Of a run, about; an exchange that takes longer is one alone."""
STEP_SECONDS = 0.00001
"""The sessions' clock moves so far with each exchange: not so far that the log would no longer be fresh."""
HEARTBEAT_BUDGET, COMMIT_BUDGET, PARTITION_BUDGET = 60, 40, 3
"""Microseconds: of a Heartbeat; of a commit, and of each partition in it."""
METADATA = bytes(60)
"""As long as the subscription to some topics."""


class Kind(NamedTuple):
    """What is sent. `budget`: microseconds that it may cost above plain forwarding; None where there is none."""

    name: str
    budget: int | None = None


HEARTBEAT = Kind("Heartbeat", HEARTBEAT_BUDGET)
JOIN, SYNC = (Kind(f"{name} of {MANY} members, the leader's") for name in ("JoinGroup", "SyncGroup"))


class Frames(NamedTuple):
    """A request and its reply, as they stand on the wire."""

    request: bytes
    reply: bytes


class Rivals:
    """One session that passes everything on, and one that applies it to a copy.

    Attributes:
        best: the least that one exchange of a kind has cost each of them, in microseconds.
    """

    def __init__(self, copy: BrokerCopy) -> None:
        self.best: dict[Kind, tuple[float, float]] = {}
        self.applying = Line(copy)
        self._passing = Playbook(ScriptedDesk())

    def run(self, kind: Kind, frames: Frames, *, once: bool = False) -> None:
        """Plays an exchange `once`, or for as long as a run takes."""
        known = self.best.get(kind, (float("inf"), float("inf")))
        count = 1 if once else max(1, round(RUN_SECONDS * 1e6 / known[1]))
        taken = _play(self._passing, frames, count), _play(self.applying, frames, count)
        self.best[kind] = min(known[0], taken[0]), min(known[1], taken[1])


def _play(session: Playbook, frames: Frames, count: int) -> float:
    began = time.process_time()
    for _ in range(count):
        session.now += STEP_SECONDS
        session.client(frames.request)
        session.upstream(frames.reply)
    return (time.process_time() - began) / count * 1e6


def costs(groups: int, runs: int) -> Mapping[Kind, tuple[float, float]]:
    """What each kind costs beside so many groups. Raises RuntimeError where the copy does not say what was sent."""
    copy = populated(groups)
    rivals = Rivals(copy)
    for kind, frames in steady():
        for _ in range(runs):
            rivals.run(kind, frames)
    for generation in range(2, 2 + runs):
        for kind, frames in rebalance(generation):
            rivals.run(kind, frames, once=True)
    crowd, group = copy.manager.group_metadata_cache[BIG], copy.manager.group_metadata_cache[GROUP]
    applied = [
        (crowd.generation, crowd.state, len(crowd.members)) == (1 + runs, GroupState.STABLE, MANY),
        group.members[member_id(GROUP, 3)].seen_at > copy.epoch(Line(copy).now),
        len(copy.manager.view(GROUP, EPOCH).offsets) == max(COMMITTED),
    ]
    if not all(applied):
        raise RuntimeError(f"what was sent is not in the copy: {applied}")
    return rivals.best


def populated(groups: int) -> BrokerCopy:
    """A broker's copy with the settings of production: its log is read, a policy judges joins, facts are counted."""
    instruments, recorder = Instruments(CollectorRegistry()), FlightRecorder(1 << 20)

    def observe(fact: Fact) -> None:
        instruments.observe(fact)
        recorder.observe(fact)

    copy = certain_copy(observe, policies={"group_max_size": {"limit": 10 * MANY}})
    log = copy.manager.log
    log.count_partitions(DEFAULT_PARTITIONS, EPOCH)
    now = copy.epoch(Line(copy).now)
    for number in range(DEFAULT_PARTITIONS):
        log.begin_load(number, leader_epoch=0, start_offset=0, now=now)
        log.caught_up(number, now, now)
    for number in range(groups):
        group = f"billing-{number}"
        settled(copy, *(member_id(group, each) for each in range(MEMBERS)), group=group)
    settled(copy, *(member_id(BIG, each) for each in range(MANY)), group=BIG)
    return copy


def member_id(group: str, number: int) -> str:
    """As the broker makes them of a client id."""
    return f"consumer-{group}-{number}-5b9c8f0e-8f36-4d3c-9d1a-0c6f2f5a1f6e"


def steady() -> Iterator[tuple[Kind, Frames]]:
    """What a member of a group says while nothing happens."""
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
    """The leader joins again, is told of all members, and gives them their assignments."""
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
    """CPU per exchange, and what it may be."""
    groups, runs = (200, 100) if quick else (2_000, 500)
    return Section("Group traffic", "\n".join(page(costs(groups, runs), groups)))


def page(found: Mapping[Kind, tuple[float, float]], groups: int) -> Iterator[str]:
    """The figures as Markdown."""
    yield f"""\
`python -m benchmarks.group_traffic`: microseconds of CPU for a request and its reply. *Forwarded*: both pass a session
that looks at frame heads only. *Forwarded and applied*: both are decoded, judged by a policy where they are joins, and
applied to a group among {groups:,} of {MEMBERS} members each, with the log read, and facts counted and recorded. The
frames are the same and the clients' own; one process without sockets, so that the kernel's share, the same for both, is
left out. The best of many runs of {RUN_SECONDS * 1000:g} ms, in which the two took turns.
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
