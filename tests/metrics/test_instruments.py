"""Facts in, counters out."""

from importlib.metadata import version

from group_sidecar.coordinator.facts import (
    ClientRefused,
    Departure,
    MemberGone,
    MemberJoined,
    OffsetsCommitted,
    RebalanceCause,
    RebalanceReason,
    RebalanceStarted,
)
from group_sidecar.metrics.family import Detail
from tests.metrics.world import Copy, World, group, rebalanced


def test_known_label_sets_stand_at_zero() -> None:
    world = World()
    zeros = {(reason,): 0.0 for reason in RebalanceReason}
    assert world.series("rebalances_total") == zeros
    assert world.series("rebalances_started_total") == zeros
    assert world.series("members_removed_total") == {(how,): 0.0 for how in Departure}
    assert world.value("members_joined_total") == 0
    assert world.value("offset_commits_total") == 0
    assert world.value("offset_commit_failures_total", error="ILLEGAL_GENERATION") == 0
    assert world.value("offset_commit_failures_total", error="other") == 0
    assert world.value("rebalance_duration_seconds_count") == 0


def test_rebalances() -> None:
    world = World()
    world.instruments.observe(RebalanceStarted(group_id="g", at=1.0, cause=RebalanceCause.MEMBER_LEFT))
    world.instruments.observe(RebalanceStarted(group_id="g", at=2.0, cause=RebalanceCause.MEMBER_LEFT))
    world.instruments.observe(rebalanced("g", RebalanceReason.LEAVE, 4.0))
    assert world.value("rebalances_started_total", reason="leave") == 2
    assert world.value("rebalances_total", reason="leave") == 1
    assert sum(world.series("rebalances_total").values()) == 1
    assert world.value("rebalance_duration_seconds_sum") == 4.0
    assert world.value("rebalance_duration_seconds_bucket", le="3.0") == 0
    assert world.value("rebalance_duration_seconds_bucket", le="5.0") == 1


def test_members() -> None:
    world = World()
    who = {"member_id": "m", "client_id": "c", "client_host": "/h"}
    world.instruments.observe(MemberJoined(group_id="g", at=1.0, **who))
    for how in (Departure.EXPIRED, Departure.EXPIRED, Departure.LEFT):
        world.instruments.observe(MemberGone(group_id="g", at=1.0, how=how, **who))
    assert world.value("members_joined_total") == 1
    assert world.value("members_removed_total", reason="expired") == 2
    assert world.value("members_removed_total", reason="left") == 1


def test_commits_count_partitions_and_name_kafkas_errors() -> None:
    world = World()
    world.instruments.observe(OffsetsCommitted(group_id="g", at=1.0, accepted=3))
    world.instruments.observe(
        OffsetsCommitted(group_id="g", at=1.0, accepted=1, refused=((22, 2), (88, 1), (4711, 4), (4712, 1)))
    )
    assert world.value("offset_commits_total") == 4
    failures = {labels: value for labels, value in world.series("offset_commit_failures_total").items() if value}
    assert failures == {("ILLEGAL_GENERATION",): 2, ("UNSTABLE_OFFSET_COMMIT",): 1, ("other",): 5}


def test_refusals_are_left_to_the_policy_counters() -> None:
    world = World()
    before = world.series("policy_rejections_total")
    world.instruments.observe(
        ClientRefused(group_id="g", at=1.0, policy="p", error_code=77, client_id="c", client_host="/h", size=3, limit=3)
    )
    assert world.series("policy_rejections_total") == before == {}


def test_counts_per_group_show_from_detail_group_on() -> None:
    world = World(Copy(groups=(group("a"), group("b"))), detail=Detail.GROUP)
    world.instruments.observe(rebalanced("a", RebalanceReason.JOIN))
    world.instruments.observe(rebalanced("a", RebalanceReason.EXPIRED))
    world.instruments.observe(OffsetsCommitted(group_id="b", at=1.0, accepted=3))
    assert world.series("group_rebalances_total") == {("a", "join"): 1, ("a", "expired"): 1}
    assert world.series("group_offset_commits_total") == {("a",): 0, ("b",): 3}
    assert sum(world.series("rebalances_total").values()) == 2


def test_counts_of_a_group_go_with_the_group_and_totals_stay() -> None:
    world = World(Copy(groups=(group("a"),)), detail=Detail.GROUP)
    world.instruments.observe(rebalanced("a"))
    assert world.series("group_rebalances_total") == {("a", "join"): 1}
    world.copies.clear()
    assert world.series("group_rebalances_total") == {}
    assert world.instruments.by_group == {}
    assert world.value("rebalances_total", reason="join") == 1


def test_no_more_groups_are_counted_one_by_one_than_allowed() -> None:
    world = World(max_groups=2)
    for number in range(5):
        world.instruments.observe(rebalanced(f"g{number}"))
        world.instruments.observe(OffsetsCommitted(group_id=f"g{number}", at=1.0, accepted=1))
    assert set(world.instruments.by_group) == {"g0", "g1"}
    assert world.value("rebalances_total", reason="join") == 5
    assert world.value("offset_commits_total") == 5


def test_build_info_names_the_version() -> None:
    assert World().series("build_info") == {(version("kafka-group-sidecar"),): 1}


def test_without_detail_no_group_is_named() -> None:
    world = World(Copy(groups=(group("secret-group"),)))
    world.instruments.observe(rebalanced("secret-group"))
    assert "secret-group" not in world.text()
