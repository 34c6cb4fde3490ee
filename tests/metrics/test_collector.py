"""The series of views: removed series, and merged series."""

from typing import Any

import pytest

from group_sidecar.coordinator.model.views import FallbackReason, GroupKind, GroupState
from group_sidecar.coordinator.state.bounded_table import TableSize
from group_sidecar.metrics.families import FAMILIES
from group_sidecar.metrics.metric_family import Detail
from tests.metrics.metrics_world import CoordinatorCopy, MetricsWorld, Outlet, commits, full_world, group, rebalanced

# Groups by state.


def test_all_known_states_start_at_zero() -> None:
    """The groups metric has a zero for each state that a protocol knows, and for no other."""
    groups = MetricsWorld().series("groups")
    assert set(groups.values()) == {0}
    assert ("classic", "PreparingRebalance") in groups
    assert ("consumer", "Reconciling") in groups
    assert ("consumer", "PreparingRebalance") not in groups
    assert len(groups) == 5 + 5 + 3 + 5


def test_groups_by_protocol_and_state() -> None:
    """The groups metric counts groups by protocol and state."""
    world = MetricsWorld(
        CoordinatorCopy(
            groups=(
                group("a"),
                group("b"),
                group("c", state=GroupState.EMPTY),
                group("d", kind=GroupKind.CONSUMER, state=GroupState.ASSIGNING),
            )
        )
    )
    counted = {labels: value for labels, value in world.series("groups").items() if value}
    assert counted == {("classic", "Stable"): 2, ("classic", "Empty"): 1, ("consumer", "Assigning"): 1}


def test_unexpected_state_is_counted() -> None:
    """A group in a state unknown to its protocol is still counted."""
    world = MetricsWorld(CoordinatorCopy(groups=(group("a", kind=GroupKind.SHARE, state=GroupState.ASSIGNING),)))
    assert world.value("groups", protocol="share", state="Assigning") == 1


def test_group_max_size_needs_limit() -> None:
    """group_max_size is exposed only if a limit is configured."""
    assert MetricsWorld().value("group_max_size") is None
    assert MetricsWorld(max_members=lambda _: 3).value("group_max_size") == 3


def limited(*sizes: int, limit: int | None, **fields: Any) -> MetricsWorld:
    """Returns groups of these sizes under one limit."""
    groups = tuple(group(f"g{number}", members=size, **fields) for number, size in enumerate(sizes))
    return MetricsWorld(CoordinatorCopy(groups=groups), max_members=lambda _: limit)


@pytest.mark.parametrize(
    ("limit", "size", "near", "over"),
    [
        *((10, 8, 0, 0), (10, 9, 1, 0), (10, 10, 1, 0), (10, 11, 0, 1)),
        *((5, 4, 0, 0), (5, 5, 1, 0), (5, 6, 0, 1)),
        *((1, 0, 0, 0), (1, 1, 1, 0), (1, 2, 0, 1)),
        *((30, 26, 0, 0), (30, 27, 1, 0)),
        (None, 1000, 0, 0),
    ],
)
def test_group_near_or_over_limit(limit: int | None, size: int, near: int, over: int) -> None:
    """A group counts as near its limit from 90 percent on, and as over the limit above, but never both."""
    world = limited(size, limit=limit)
    assert (world.value("groups_near_limit"), world.value("groups_over_limit")) == (near, over)


def test_groups_near_and_over_own_limits() -> None:
    """Groups near or over their own limits are counted. Groups with unknown members are left out."""
    limits = {"small": 2, "large": 100, "lapsed": 2}
    world = MetricsWorld(
        CoordinatorCopy(
            groups=(
                *(group("small", members=2), group("large", members=2), group("free", members=9)),
                *(group("lapsed", members=3), group("half seen", members=3, roster_known=False)),
            )
        ),
        max_members=lambda view: limits.get(view.group_id, None if view.group_id == "free" else 1),
    )
    assert (world.value("groups_near_limit"), world.value("groups_over_limit")) == (1, 1)


# Details: `test_detail_rows` tests their contents, and `test_series_limit` their maximum number.


@pytest.mark.parametrize("detail", list(Detail))
def test_detail_level_selects_families(detail: Detail) -> None:
    """Each detail level exposes its own families and those of coarser levels only."""
    world = full_world()
    shallow = MetricsWorld(*world.copies, detail=detail, max_members=lambda _: 5, log_starts=world.sources.log_starts)
    shallow.fact_counters.observe(rebalanced("orders"))
    levels = list(Detail)[: list(Detail).index(detail) + 1]
    hidden = {family.name for family in FAMILIES if family.detail not in levels}
    shown = {family.name for family in FAMILIES if family.detail in levels and family.detail is not Detail.NONE}
    text = shallow.text()
    assert all(f"# HELP group_sidecar_{name} " not in text for name in hidden)
    assert all(shallow.series(name) for name in shown)


# Removed series.


def test_deleted_group_has_no_series() -> None:
    """Series of a deleted group and its topics disappear from the next scrape."""
    world = MetricsWorld(
        CoordinatorCopy(groups=(group("gone", offsets=commits("t", 5)), group("stays")), log_ends={("t", 0): (9, 1.0)}),
        detail=Detail.PARTITION,
    )
    world.fact_counters.observe(rebalanced("gone"))
    assert '"gone"' in world.text()
    world.copies[:] = [CoordinatorCopy(groups=(group("stays"),))]
    assert '"gone"' not in world.text()
    assert '"t"' not in world.text()
    assert '"stays"' in world.text()


def test_former_state_has_no_series() -> None:
    """group_info shows only the current state of a group."""
    world = MetricsWorld(CoordinatorCopy(groups=(group("g"),)), detail=Detail.GROUP)
    assert len(world.series("group_info")) == 1
    world.copies[:] = [CoordinatorCopy(groups=(group("g", state=GroupState.EMPTY),))]
    assert [sample.labels["state"] for sample in world.samples("group_info")] == ["Empty"]


# The selection of groups.


def test_hidden_groups_count_in_totals() -> None:
    """Groups that are not shown have no series of their own but count in totals."""
    groups = tuple(group(name, members=4, offsets=commits("t", 1)) for name in ("orders", "tmp-1", "tmp-2"))
    world = MetricsWorld(
        CoordinatorCopy(groups=groups, log_ends={("t", 0): (5, 1.0)}),
        detail=Detail.PARTITION,
        max_members=lambda _: 3,
        is_shown=lambda group_id: not group_id.startswith("tmp-"),
    )
    for each in groups:
        world.fact_counters.observe(rebalanced(each.group_id))
    text = world.text()
    assert "tmp-" not in text
    assert world.value("group_lag", group="orders") == 4
    assert world.value("groups", protocol="classic", state="Stable") == 3
    assert world.value("groups_over_limit") == 3
    assert sum(world.series("rebalances_total").values()) == 3
    assert world.value("series_suppressed") == 0


# Several brokers.


def test_group_in_two_copies_counts_once() -> None:
    """A group in the copies of two brokers is counted once, with the newer generation."""
    world = MetricsWorld(
        CoordinatorCopy(groups=(group("g", members=1, generation=4),)),
        CoordinatorCopy(groups=(group("g", members=2, generation=5), group("h"))),
        detail=Detail.PARTITION,
    )
    assert world.series("group_members") == {("g",): 2, ("h",): 0}
    assert world.value("groups", protocol="classic", state="Stable") == 2


def test_complete_copy_wins() -> None:
    """A complete copy of a group takes precedence over a cold copy, whatever their order."""
    complete, cold = group("g", generation=1), group("g", generation=9, fallback_reason=FallbackReason.COLD)
    for views in ((complete, cold), (cold, complete)):
        found = MetricsWorld(*(CoordinatorCopy(groups=(view,)) for view in views)).group_snapshot().groups
        assert [figures.view for figures in found] == [complete]


def test_latest_log_end_wins() -> None:
    """If a log end was observed twice, the later observation is used."""
    early, late = CoordinatorCopy(log_ends={("t", 0): (9, 1.0)}), CoordinatorCopy(log_ends={("t", 0): (3, 2.0)})
    for copies in ((early, late), (late, early)):
        world = MetricsWorld(*copies, detail=Detail.PARTITION)
        assert world.series("log_end_offset") == {("0", "t"): 3}


def test_lag_joins_copies_of_brokers() -> None:
    """Lag combines a commit and a log end from the copies of different brokers."""
    world = MetricsWorld(
        CoordinatorCopy(groups=(group("g", offsets=commits("t", 5)),)),
        CoordinatorCopy(log_ends={("t", 0): (9, 1.0)}),
        detail=Detail.GROUP,
    )
    assert world.value("group_lag", group="g") == 4


# Other families.


@pytest.mark.parametrize(
    ("sources", "name", "value"),
    [
        ({"recorded_bytes": lambda: 17}, "flight_recorder_bytes", 17),
        ({"copies_ready": lambda: True}, "mirror_ready", 1),
        ({"copies_ready": lambda: False}, "mirror_ready", 0),
        ({"refusing_brokers": lambda: 2}, "refusing_brokers", 2),
        ({}, "refusing_brokers", 0),
    ],
)
def test_value_of_source(sources: dict[str, Any], name: str, value: int) -> None:
    """A metric without labels has the value that its source returns."""
    assert MetricsWorld(**sources).value(name) == value


def test_table_sizes_are_summed() -> None:
    """The table metrics sum the entries and bytes of all copies."""
    world = MetricsWorld(
        tables=lambda: [TableSize("groups", 2, 500), TableSize("groups", 1, 300), TableSize("offsets", 7, 70)]
    )
    assert world.value("table_entries", table="groups") == 3
    assert world.value("table_bytes", table="groups") == 800
    assert world.value("table_bytes", table="offsets") == 70


def test_certificates_without_listener() -> None:
    """The certificates of the admin port and of the own connection have an empty label `listener`."""
    world = MetricsWorld(certificates_expire_at=lambda: {("", "admin_access"): 7.0, ("clients", "client"): 6.0})
    dates = world.series("certificate_not_after_timestamp_seconds")
    assert dates == {("clients", "client"): 6.0, ("", "admin_access"): 7.0}


def test_journal_outlets() -> None:
    """The journal metrics report written, dropped and failed records and the last flush of each outlet."""
    world = MetricsWorld(
        outlets={"folder": Outlet(5, {"full": 2, "error": 0}, 3, 12.5), "topic": Outlet(7, {"full": 1})}
    )
    assert world.series("records_written_total") == {("folder",): 5, ("topic",): 7}
    assert world.series("records_dropped_total") == {
        ("folder", "full"): 2,
        ("folder", "error"): 0,
        ("topic", "full"): 1,
    }
    assert world.series("records_write_failures_total") == {("folder",): 3, ("topic",): 0}
    assert world.series("records_last_flush_timestamp_seconds") == {("folder",): 12.5}


def test_unused_outlet_has_no_flush_time() -> None:
    """An outlet that never wrote has no flush timestamp."""
    world = MetricsWorld(outlets={"folder": Outlet()})
    assert world.series("records_written_total") == {("folder",): 0}
    assert world.series("records_last_flush_timestamp_seconds") == {}


def test_record_metrics_need_journal() -> None:
    """Without a journal, there are no metrics about records."""
    assert "records_written" not in MetricsWorld().text()


def test_collect_duration() -> None:
    """collect_duration_seconds is exposed and not negative."""
    seconds = MetricsWorld().value("collect_duration_seconds")
    assert seconds is not None
    assert seconds >= 0
