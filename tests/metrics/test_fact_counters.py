"""The counters that facts increase."""

import gc
from importlib.metadata import version

from group_sidecar.coordinator.model.facts import (
    ClientBypassed,
    ClientRefused,
    Departure,
    MemberGone,
    MemberInfo,
    MemberJoined,
    OffsetsCommitted,
    RebalanceCause,
    RebalanceReason,
    RebalanceStarted,
)
from group_sidecar.metrics.metric_family import Detail
from tests.metrics.metrics_world import CoordinatorCopy, MetricsWorld, group, rebalanced


def test_known_labels_start_at_zero() -> None:
    """Counters of rebalances, members and commits start at zero for all known labels."""
    world = MetricsWorld()
    zeros = {(reason,): 0.0 for reason in RebalanceReason}
    assert world.series("rebalances_total") == zeros
    assert world.series("rebalances_started_total") == zeros
    assert world.series("members_removed_total") == {(how,): 0.0 for how in Departure}
    assert world.value("members_joined_total") == 0
    assert world.value("offset_commits_total") == 0
    assert world.value("offset_commit_failures_total", error="ILLEGAL_GENERATION") == 0
    assert world.value("offset_commit_failures_total", error="other") == 0
    assert world.value("rebalance_duration_seconds_count") == 0


def test_rebalance_counters() -> None:
    """Rebalance counters report started and completed rebalances by reason, and their duration."""
    world = MetricsWorld()
    world.fact_counters.observe(RebalanceStarted(group_id="g", at=1.0, cause=RebalanceCause.MEMBER_LEFT))
    world.fact_counters.observe(RebalanceStarted(group_id="g", at=2.0, cause=RebalanceCause.MEMBER_LEFT))
    world.fact_counters.observe(rebalanced("g", RebalanceReason.LEAVE, 4.0))
    assert world.value("rebalances_started_total", reason="leave") == 2
    assert world.value("rebalances_total", reason="leave") == 1
    assert sum(world.series("rebalances_total").values()) == 1
    assert world.value("rebalance_duration_seconds_sum") == 4.0
    assert world.value("rebalance_duration_seconds_bucket", le="3.0") == 0
    assert world.value("rebalance_duration_seconds_bucket", le="5.0") == 1


def test_member_counters() -> None:
    """Member counters report joins, and departures by reason."""
    world = MetricsWorld()
    who = {"member_id": "m", "client_id": "c", "client_host": "/h"}
    world.fact_counters.observe(MemberJoined(group_id="g", at=1.0, **who))
    for how in (Departure.EXPIRED, Departure.EXPIRED, Departure.LEFT):
        world.fact_counters.observe(MemberGone(group_id="g", at=1.0, how=how, **who))
    assert world.value("members_joined_total") == 1
    assert world.value("members_removed_total", reason="expired") == 2
    assert world.value("members_removed_total", reason="left") == 1


def test_bypass_counters() -> None:
    """Records that bypassed the sidecar are counted by kind, from zero on."""
    world = MetricsWorld()
    assert world.series("bypassing_records_total") == {("commit",): 0.0, ("member",): 0.0}
    member = MemberInfo(member_id="m", client_id="c", client_host="/h")
    for fact in (
        ClientBypassed(group_id="g", at=1.0, topic="t", partition=0),
        ClientBypassed(group_id="g", at=1.0, topic="t", partition=1),
        ClientBypassed(group_id="g", at=1.0, member=member),
    ):
        world.fact_counters.observe(fact)
    assert world.series("bypassing_records_total") == {("commit",): 2.0, ("member",): 1.0}


def test_commit_counters() -> None:
    """Commit counters count partitions and name Kafka's errors."""
    world = MetricsWorld()
    world.fact_counters.observe(OffsetsCommitted(group_id="g", at=1.0, accepted=3))
    world.fact_counters.observe(
        OffsetsCommitted(group_id="g", at=1.0, accepted=1, refused=((22, 2), (88, 1), (4711, 4), (4712, 1)))
    )
    assert world.value("offset_commits_total") == 4
    failures = {labels: value for labels, value in world.series("offset_commit_failures_total").items() if value}
    assert failures == {("ILLEGAL_GENERATION",): 2, ("UNSTABLE_OFFSET_COMMIT",): 1, ("other",): 5}


def test_refusals_count_in_policies_only() -> None:
    """A refusal fact does not change policy_rejections_total."""
    world = MetricsWorld()
    before = world.series("policy_rejections_total")
    world.fact_counters.observe(
        ClientRefused(group_id="g", at=1.0, policy="p", error_code=77, client_id="c", client_host="/h", size=3, limit=3)
    )
    assert world.series("policy_rejections_total") == before == {}


def test_counts_per_group_need_group_detail() -> None:
    """Counters per group are exposed at group detail, and totals stay right."""
    world = MetricsWorld(CoordinatorCopy(groups=(group("a"), group("b"))), detail=Detail.GROUP)
    world.fact_counters.observe(rebalanced("a", RebalanceReason.JOIN))
    world.fact_counters.observe(rebalanced("a", RebalanceReason.EXPIRED))
    world.fact_counters.observe(OffsetsCommitted(group_id="b", at=1.0, accepted=3))
    assert world.series("group_rebalances_total") == {("a", "join"): 1, ("a", "expired"): 1}
    assert world.series("group_offset_commits_total") == {("a",): 0, ("b",): 3}
    assert sum(world.series("rebalances_total").values()) == 2


def test_group_counts_end_with_group() -> None:
    """Counters of a group disappear with the group, and totals stay."""
    world = MetricsWorld(CoordinatorCopy(groups=(group("a"),)), detail=Detail.GROUP)
    world.fact_counters.observe(rebalanced("a"))
    assert world.series("group_rebalances_total") == {("a", "join"): 1}
    world.copies.clear()
    assert world.series("group_rebalances_total") == {}
    assert world.fact_counters.by_group == {}
    assert world.value("rebalances_total", reason="join") == 1


def test_counted_groups_are_bounded() -> None:
    """Counters per group are kept for max_groups groups at most, and totals count all groups."""
    world = MetricsWorld(max_groups=2)
    for number in range(5):
        world.fact_counters.observe(rebalanced(f"g{number}"))
        world.fact_counters.observe(OffsetsCommitted(group_id=f"g{number}", at=1.0, accepted=1))
    assert set(world.fact_counters.by_group) == {"g0", "g1"}
    assert world.value("rebalances_total", reason="join") == 5
    assert world.value("offset_commits_total") == 5


def test_build_info_has_version() -> None:
    """build_info has the installed package version."""
    assert MetricsWorld().series("build_info") == {(version("kafka-group-sidecar"),): 1}


def test_scrape_leaves_no_cycle() -> None:
    """A scrape leaves nothing that only the cyclic collector frees, because frozen cycles are never freed.
    `python -m tests.soak` found that each scrape looked up the version, which left a cycle.
    """
    world = MetricsWorld()
    list(world.fact_counters.collect())
    gc.collect()
    gc.disable()
    try:
        list(world.fact_counters.collect())
        assert gc.collect() == 0
    finally:
        gc.enable()
