"""Records that are built from facts and snapshots."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.coordinator.model.facts import (
    ClientRefused,
    Departure,
    Fact,
    MemberGone,
    MemberJoined,
    OffsetsCommitted,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
)
from group_sidecar.coordinator.model.views import (
    CommittedOffset,
    ConsumerGroupView,
    GroupKind,
    GroupState,
    GroupView,
    MemberView,
)
from group_sidecar.metrics.array_lines import Line, records_of
from group_sidecar.metrics.record_builder import RecordBuilder, record_body, snapshot_observations
from group_sidecar.metrics.records import (
    Audit,
    Body,
    Commit,
    Group,
    Heartbeat,
    LogEnd,
    Member,
    Rebalance,
    Record,
    Refusal,
)
from tests.metrics.metrics_world import CoordinatorCopy, visits_of

COMPLETED = RebalanceCompleted(
    group_id="orders",
    at=10.5,
    cause=RebalanceCause.MEMBER_LEFT,
    generation=3,
    protocol="range",
    members=2,
    duration_seconds=0.25,
)
VERDICT: dict[str, Any] = {
    "policy": "group_max_size",
    "error_code": 77,
    "client_id": "c",
    "client_host": "/127.0.0.1",
    "principal": "User:CN=alice",
    "size": 2,
    "limit": 2,
}
STANDING = CoordinatorCopy(
    groups=(
        GroupView(
            group_id="orders",
            kind=GroupKind.CLASSIC,
            state=GroupState.STABLE,
            protocol_type="consumer",
            protocol="range",
            generation=3,
            members=(MemberView(member_id="a"), MemberView(member_id="b")),
            offsets={("t", 1): CommittedOffset(offset=7, leader_epoch=2, at=5.0)},
        ),
        GroupView(group_id="empty", state=GroupState.EMPTY, generation=0),
    ),
    log_ends={("t", 1): (9, 6.0)},
)


@pytest.mark.parametrize(
    ("fact", "body"),
    [
        (
            COMPLETED,
            Rebalance(
                group="orders", generation=3, reason="leave", cause="member_left", duration_seconds=0.25, members=2
            ),
        ),
        (ClientRefused(group_id="orders", at=1.0, **VERDICT), Refusal(group="orders", **VERDICT)),
        (ClientRefused(group_id="orders", at=1.0, enforced=False, **VERDICT), Audit(group="orders", **VERDICT)),
        (
            MemberJoined(
                group_id="orders",
                at=1.0,
                member_id="m",
                client_id="c",
                client_host="/127.0.0.1",
                instance_id="i",
                principal="User:CN=alice",
            ),
            Member(
                group="orders",
                member_id="m",
                instance_id="i",
                client_id="c",
                client_host="/127.0.0.1",
                principal="User:CN=alice",
                change="joined",
            ),
        ),
        (
            MemberGone(
                group_id="orders",
                at=1.0,
                member_id="m",
                client_id="c",
                client_host="/127.0.0.1",
                how=Departure.EXPIRED,
            ),
            Member(
                group="orders",
                member_id="m",
                instance_id=None,
                client_id="c",
                client_host="/127.0.0.1",
                principal=None,
                change="expired",
            ),
        ),
        (RebalanceStarted(group_id="orders", at=1.0, cause=RebalanceCause.NEW_MEMBER), None),
        (OffsetsCommitted(group_id="orders", at=1.0, accepted=3), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_record_body_of_each_fact(fact: Fact, body: Body | None) -> None:
    """Each kind of fact becomes the expected record body, or None if it has no record."""
    assert record_body(fact) == body


def test_snapshot_observations() -> None:
    """A snapshot contains a heartbeat, all groups, their commits and the log ends."""
    limits = {"orders": 5}
    stands = visits_of(STANDING, lambda view: limits.get(view.group_id))
    written = list(snapshot_observations(stands, STANDING.log_ends.items(), {"groups": 2.0}, now=20.0))
    assert written == [
        (20.0, Heartbeat(sample={"groups": 2.0})),
        (
            20.0,
            Group(
                group="empty",
                protocol="classic",
                state="Empty",
                protocol_type="",
                assignor="",
                generation=0,
                members=0,
                max_size=None,
            ),
        ),
        (
            20.0,
            Group(
                group="orders",
                protocol="classic",
                state="Stable",
                protocol_type="consumer",
                assignor="range",
                generation=3,
                members=2,
                max_size=5,
            ),
        ),
        (5.0, Commit(group="orders", topic="t", partition=1, offset=7, leader_epoch=2)),
        (6.0, LogEnd(topic="t", partition=1, offset=9)),
    ]


@pytest.mark.parametrize(
    ("error", "written"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ["empty"]),
        (ErrorCode.NOT_COORDINATOR, ["empty"]),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ["empty", "orders"]),
    ],
)
def test_other_coordinators_group_is_omitted(error: ErrorCode, written: list[str]) -> None:
    """A snapshot leaves out a group that is loading or has another coordinator."""
    orders, empty = STANDING.groups
    stands = visits_of(CoordinatorCopy(groups=(empty, replace(orders, error_code=error))))
    seen = [each[1] for each in snapshot_observations(stands, (), {}, now=20.0) if each is not None]
    assert [body.group for body in seen if isinstance(body, Group)] == written
    assert [body.group for body in seen if isinstance(body, Commit)] == written[1:]


@pytest.mark.parametrize(("named", "written"), [((), ""), (("uniform",), "uniform"), (("range", "uniform"), "")])
def test_consumer_group_assignor(named: tuple[str, ...], written: str) -> None:
    """The assignor of a consumer group is the one that its members name, or empty if they disagree."""
    consumer = ConsumerGroupView(group_id="g", kind=GroupKind.CONSUMER, assignors=named)
    view = GroupView(group_id="g", kind=GroupKind.CONSUMER, state=GroupState.STABLE, consumer=consumer)
    [_, group] = snapshot_observations(visits_of(CoordinatorCopy(groups=(view,))), (), {}, now=20.0)
    assert group is not None
    assert isinstance(group[1], Group)
    assert group[1].assignor == written


def test_snapshot_yields_with_walk() -> None:
    """A snapshot yields control where the walk of the groups does."""
    stands = visits_of(STANDING)
    written = [*snapshot_observations([None, *stands, None], (), {}, now=20.0)]
    assert [place for place, observation in enumerate(written) if observation is None] == [1, 5]


def test_non_finite_samples_are_left_out() -> None:
    """A heartbeat leaves out sample values that are not finite."""
    sample = {"good": 1.0, "nan": float("nan"), "endless": float("inf")}
    assert list(snapshot_observations((), (), sample, now=0.0)) == [(0.0, Heartbeat(sample={"good": 1.0}))]


def test_idle_sidecar_has_heartbeat() -> None:
    """A snapshot without groups consists of a heartbeat."""
    (record,) = RecordBuilder("broker-1").snapshot((), (), {}, now=3.0)
    assert isinstance(record, Record)
    assert (record.envelope.kind, record.envelope.sidecar, record.envelope.version) == ("heartbeat", "broker-1", 1)


def test_records_are_numbered_without_gaps() -> None:
    """Records of one boot have consecutive sequence numbers, with observation and emission times."""
    record_builder = RecordBuilder("broker-1")
    started = RebalanceStarted(group_id="orders", at=10.0, cause=RebalanceCause.NEW_MEMBER)
    stands = visits_of(STANDING)
    snapshot = record_builder.snapshot([None, *stands], STANDING.log_ends.items(), {}, now=20.0)
    records = [
        *record_builder.records_of([started, COMPLETED, replace(COMPLETED, at=11.0)], now=12.0),
        *(record for record in snapshot if isinstance(record, Record)),
    ]
    assert [record.envelope.seq for record in records] == [1, 2, 3, 4, 5, 6, 7]
    assert {record.envelope.boot for record in records} == {record_builder.boot}
    assert records[0].envelope.observed_at == "1970-01-01T00:00:10.500Z"
    assert records[0].envelope.emitted_at == "1970-01-01T00:00:12.000Z"
    assert records[5].envelope.observed_at == "1970-01-01T00:00:05.000Z"
    assert records[5].envelope.emitted_at == "1970-01-01T00:00:20.000Z"


def snapshot_of(version: int, copy: CoordinatorCopy) -> list[Line | None]:
    """The lines of a snapshot, and None where other tasks may run."""
    return list(RecordBuilder("broker-1", version).snapshot(visits_of(copy), copy.log_ends.items(), {"a": 1.0}, 20.0))


def large_copy(groups: int, partitions: int) -> CoordinatorCopy:
    offsets = {("t", number): CommittedOffset(offset=number, at=5.0) for number in range(partitions)}
    views = tuple(GroupView(group_id=f"g{number}", offsets=offsets) for number in range(groups))
    return CoordinatorCopy(groups=views, log_ends=dict.fromkeys(offsets, (9, 6.0)))


def test_versions_have_the_same_records() -> None:
    """A snapshot in array lines has the same records as one of single lines, under numbers without a gap."""
    copy = large_copy(7, 150)
    single, arrays = (
        [record for line in snapshot_of(version, copy) if line for record in records_of(line.to_line())]
        for version in (1, 2)
    )
    assert [record.envelope.seq for record in arrays] == [*range(1, len(single) + 1)]

    def facts(records: Iterable[Record]) -> list[str]:
        return sorted(repr((each.envelope.observed_at, each.envelope.emitted_at, each.body)) for each in records)

    assert facts(arrays) == facts(single)
    assert arrays[0].body.KIND == "heartbeat"


def test_array_lines_are_full_and_let_others_run() -> None:
    """A line has as many records as it may have, and other tasks run after few records."""
    lines = snapshot_of(2, large_copy(2, 1001))
    assert [line.count for line in lines if line] == [1, *[500] * 6, 2, 2, 1]
    steps = "".join("-" if line is None else "#" for line in lines)
    assert re.search("#-{9,11}#", steps)
    assert len(steps) >= sum(line.count for line in lines if line) / 50


def test_record_out_of_contract_is_alone() -> None:
    """An offset or a time that the contract does not allow is on a line of its own, so that it spoils no other."""
    offsets = {
        ("t", 0): CommittedOffset(offset=1, at=5.0),
        ("t", 1): CommittedOffset(offset=2**60, at=5.0),
        ("t", 2): CommittedOffset(offset=3, at=1e11),
        ("t", 3): CommittedOffset(offset=4, at=5.0),
    }
    lines = snapshot_of(2, CoordinatorCopy(groups=(GroupView(group_id="g", offsets=offsets),)))
    written = [line for line in lines if line]
    assert [(line.count, records_of(line.to_line())[0].envelope.version) for line in written] == [
        *[(1, 1)] * 3,
        (1, 2),
        (2, 2),
    ]
    found = [record for line in written for record in records_of(line.to_line())]
    assert [record.envelope.seq for record in found] == [1, 2, 3, 4, 5, 6]
    assert [record.body.offset for record in found if isinstance(record.body, Commit)] == [2**60, 3, 1, 4]


def test_abandoned_snapshot_leaves_no_gap() -> None:
    """A snapshot that is abandoned halfway takes no numbers for the records whose lines it did not complete."""
    builder, copy = RecordBuilder("broker-1", 2), large_copy(1, 300)
    snapshot = builder.snapshot(visits_of(copy), copy.log_ends.items(), {}, now=20.0)
    assert next(snapshot) is not None
    assert next(snapshot) is None
    del snapshot
    [record] = builder.records_of([COMPLETED], now=20.0)
    assert record.envelope.seq == 2


def test_each_start_has_own_boot_id() -> None:
    """Each record builder has a boot id of its own."""
    assert RecordBuilder("broker-1").boot != RecordBuilder("broker-1").boot
