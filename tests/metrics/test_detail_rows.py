"""The rows about single groups, topics and partitions."""

from typing import Any

import pytest

from group_sidecar.coordinator.model.views import CommittedOffset, FallbackReason, GroupKind, GroupState
from group_sidecar.metrics.metric_family import Detail
from tests.metrics.metrics_world import CoordinatorCopy, MetricsWorld, assignment, commits, group, member

# Groups and their members.


def test_group_details() -> None:
    """The detail metrics of a group report its labels, members and last rebalance."""
    world = MetricsWorld(
        CoordinatorCopy(groups=(group("orders", members=3, protocol="range", last_rebalance_at=7.5),)),
        detail=Detail.GROUP,
    )
    info = next(world.samples("group_info"))
    assert info.labels == {
        "group": "orders",
        "protocol": "classic",
        "state": "Stable",
        "protocol_type": "consumer",
        "assignor": "range",
    }
    assert info.value == 1
    assert world.value("group_members", group="orders") == 3
    assert world.value("group_last_rebalance_timestamp_seconds", group="orders") == 7.5


def test_members_limit_per_group() -> None:
    """group_members_limit is exposed for each group with a limit, even if its members are unknown."""
    limits = {"orders": 4, "half seen": 7}
    groups = (group("orders", members=3), group("free", members=3), group("half seen", roster_known=False))
    world = MetricsWorld(
        CoordinatorCopy(groups=groups), detail=Detail.GROUP, max_members=lambda view: limits.get(view.group_id)
    )
    assert world.series("group_members") == {("orders",): 3, ("free",): 3}
    assert world.series("group_members_limit") == {("orders",): 4, ("half seen",): 7}


def test_unknown_values_have_no_series() -> None:
    """Values that are not known have no series."""
    world = MetricsWorld(CoordinatorCopy(groups=(group("g", members=1, roster_known=False),)), detail=Detail.PARTITION)
    for name in (
        "group_members",
        "group_last_rebalance_timestamp_seconds",
        "group_lag",
        "group_lag_unknown_partitions",
    ):
        assert world.series(name) == {}


def assigned_world(*assignments: bytes, **fields: Any) -> MetricsWorld:
    members = tuple(member(number, assigned) for number, assigned in enumerate(assignments))
    return MetricsWorld(CoordinatorCopy(groups=(group("g", members=members, **fields),)), detail=Detail.PARTITION)


def test_assigned_partitions_and_idle_members() -> None:
    """Assigned partitions are counted by topic, and members without partitions are counted per group."""
    world = assigned_world(assignment("t", 0, 1), assignment("u", 0), assignment("t"), b"", assignment("t", 2))
    assert world.series("group_assigned_partitions") == {("g", "t"): 3, ("g", "u"): 1}
    assert world.series("group_members_unassigned") == {("g",): 2}


def test_uncommitted_assigned_partitions() -> None:
    """uncommitted_partitions counts the assigned partitions without a commit."""
    world = assigned_world(assignment("t", 0, 1, 2), assignment("u", 0), offsets=commits("t", 4) | commits("u", 0))
    assert world.series("uncommitted_partitions") == {("g", "t"): 2, ("g", "u"): 0}


def test_uncommitted_needs_complete_offsets() -> None:
    """uncommitted_partitions is not exposed while the copy of the offsets is incomplete."""
    world = assigned_world(assignment("t", 0), offsets_fallback_reason=FallbackReason.COLD)
    assert world.series("uncommitted_partitions") == {}
    assert world.series("group_assigned_partitions") == {("g", "t"): 1}


@pytest.mark.parametrize(
    "fields",
    [
        {"state": GroupState.COMPLETING_REBALANCE},
        {"fallback_reason": FallbackReason.COLD},
        {"kind": GroupKind.CONSUMER},
        {"protocol_type": "connect"},
    ],
)
def test_unsettled_assignment_has_no_series(fields: dict[str, Any]) -> None:
    """Assignment metrics are exposed only for complete, stable classic consumer groups."""
    world = assigned_world(assignment("t", 0), b"", **fields)
    for name in ("group_assigned_partitions", "group_members_unassigned", "uncommitted_partitions"):
        assert world.series(name) == {}


@pytest.mark.parametrize("garbage", [b"\x00", b"\xff\xff", b"\x00\x00\x7f\xff\xff\xff", b"connect!"])
def test_unreadable_assignment_hides_own_group(garbage: bytes) -> None:
    """An unreadable assignment hides the assignment metrics of its own group only."""
    odd = group("odd", members=(member(0, assignment("t", 0)), member(1, garbage)))
    fine = group("fine", members=(member(0, assignment("t", 1)),))
    world = MetricsWorld(CoordinatorCopy(groups=(odd, fine)), detail=Detail.TOPIC)
    assert world.series("group_assigned_partitions") == {("fine", "t"): 1}
    assert world.series("group_members_unassigned") == {("fine",): 0}
    assert world.series("group_members") == {("fine",): 1, ("odd",): 2}


# Offsets and lag.


def test_empty_group_keeps_lag() -> None:
    """An empty group keeps its lag."""
    world = MetricsWorld(
        CoordinatorCopy(
            groups=(group("g", state=GroupState.EMPTY, offsets=commits("t", 5)),), log_ends={("t", 0): (12, 1.0)}
        ),
        detail=Detail.GROUP,
    )
    assert world.value("group_lag", group="g") == 7
    assert world.value("group_members", group="g") == 0


def test_lag_at_every_level() -> None:
    """Lag is exposed per group, topic and partition, with commits, log ends and their timestamps."""
    world = MetricsWorld(
        CoordinatorCopy(
            groups=(group("g", offsets=commits("t", 5, 5) | commits("u", 10)),),
            log_ends={("t", 0): (8, 1.0), ("t", 1): (5, 1.0), ("u", 0): (14, 3.0), ("v", 0): (99, 1.0)},
        ),
        detail=Detail.PARTITION,
    )
    assert world.series("group_lag") == {("g",): 7}
    assert world.series("group_topic_lag") == {("g", "t"): 3, ("g", "u"): 4}
    assert world.series("group_partition_lag") == {("g", "0", "t"): 3, ("g", "1", "t"): 0, ("g", "0", "u"): 4}
    assert world.series("committed_offset") == {("g", "0", "t"): 5, ("g", "1", "t"): 5, ("g", "0", "u"): 10}
    assert world.value("log_end_offset", topic="v", partition="0") == 99
    assert world.value("log_end_offset_timestamp_seconds", topic="u", partition="0") == 3.0
    assert world.series("group_lag_unknown_partitions") == {("g",): 0}


def test_known_log_starts() -> None:
    """log_start_offset reports the latest known log starts, at partition detail only."""
    starts = [{("t", 0): (5, 1.0)}, {("t", 0): (7, 2.0), ("u", 3): (0, 1.0)}]
    world = MetricsWorld(detail=Detail.PARTITION, log_starts=lambda: starts)
    assert world.series("log_start_offset") == {("0", "t"): 7, ("3", "u"): 0}
    assert "log_start" not in MetricsWorld(detail=Detail.TOPIC, log_starts=lambda: starts).text()


def test_lag_timestamp() -> None:
    """The lag timestamp is that of the oldest log end that the lag uses."""
    world = MetricsWorld(
        CoordinatorCopy(
            groups=(group("g", offsets=commits("t", 5, 5) | commits("u", 10)), group("h", offsets=commits("w", 1))),
            log_ends={("t", 0): (8, 7.0), ("t", 1): (5, 4.0), ("u", 0): (14, 3.0)},
        ),
        detail=Detail.TOPIC,
    )
    assert world.series("group_lag_timestamp_seconds") == {("g",): 3.0}
    assert world.series("group_topic_lag_timestamp_seconds") == {("g", "t"): 4.0, ("g", "u"): 3.0}


def test_unknown_log_ends_are_counted() -> None:
    """Partitions with unknown log ends are counted separately and left out of the lag."""
    world = MetricsWorld(
        CoordinatorCopy(
            groups=(group("g", offsets=commits("t", 5, 5)), group("h", offsets=commits("w", 1))),
            log_ends={("t", 0): (8, 1.0)},
        ),
        detail=Detail.PARTITION,
    )
    assert world.series("group_lag") == {("g",): 3}
    assert world.series("group_topic_lag") == {("g", "t"): 3}
    assert world.series("group_lag_unknown_partitions") == {("g",): 1, ("h",): 1}


def test_latest_commit_of_topic() -> None:
    """last_commit_timestamp_seconds is the time of the latest commit to any partition of the topic."""
    offsets = commits("t", 1, at=9.0) | {("t", 1): CommittedOffset(2, at=5.0), ("u", 0): CommittedOffset(3)}
    world = MetricsWorld(CoordinatorCopy(groups=(group("g", offsets=offsets),)), detail=Detail.TOPIC)
    assert world.series("last_commit_timestamp_seconds") == {("g", "t"): 9.0}
