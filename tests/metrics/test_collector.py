"""Views in, series out; what vanishes, what is limited, what is merged."""

from typing import Any

import pytest

from group_sidecar.coordinator.bounded import Table
from group_sidecar.coordinator.views import GroupKind, GroupState, Lacking
from group_sidecar.metrics import exposition
from group_sidecar.metrics.collector import Tally, scrape, totals
from group_sidecar.metrics.details import FAMILIES as DETAILS
from group_sidecar.metrics.exposition import choose_format
from group_sidecar.metrics.families import FAMILIES
from group_sidecar.metrics.family import Detail
from tests.metrics.world import Copy, Outlet, World, commits, full_world, group, rebalanced, result

# Groups by state.


def test_all_known_states_stand_at_zero() -> None:
    groups = World().series("groups")
    assert set(groups.values()) == {0}
    assert ("classic", "PreparingRebalance") in groups
    assert ("consumer", "Reconciling") in groups
    assert ("consumer", "PreparingRebalance") not in groups
    assert len(groups) == 5 + 5 + 3 + 5


def test_groups_are_counted_by_protocol_and_state() -> None:
    world = World(
        Copy(
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


def test_a_state_that_its_protocol_should_not_have_is_counted_all_the_same() -> None:
    world = World(Copy(groups=(group("a", kind=GroupKind.SHARE, state=GroupState.ASSIGNING),)))
    assert world.value("groups", protocol="share", state="Assigning") == 1


def test_the_limit_is_told_only_where_there_is_one() -> None:
    assert World().value("group_max_size") is None
    assert World(most_members=lambda _: 3).value("group_max_size") == 3


def limited(*sizes: int, limit: int | None, **fields: Any) -> World:
    """Groups of these sizes under one limit."""
    groups = tuple(group(f"g{number}", members=size, **fields) for number, size in enumerate(sizes))
    return World(Copy(groups=groups), most_members=lambda _: limit)


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
def test_a_group_is_near_its_limit_or_over_it_but_never_both(
    limit: int | None, size: int, near: int, over: int
) -> None:
    world = limited(size, limit=limit)
    assert (world.value("groups_near_limit"), world.value("groups_over_limit")) == (near, over)


def test_groups_near_and_over_their_own_limits_are_counted() -> None:
    limits = {"small": 2, "large": 100, "lapsed": 2}
    world = World(
        Copy(
            groups=(
                *(group("small", members=2), group("large", members=2), group("free", members=9)),
                *(group("lapsed", members=3), group("half seen", members=3, roster_known=False)),
            )
        ),
        most_members=lambda view: limits.get(view.group_id, None if view.group_id == "free" else 1),
    )
    assert (world.value("groups_near_limit"), world.value("groups_over_limit")) == (1, 1)


# Details: what they say is in test_details; how much of it is shown, here.


@pytest.mark.parametrize("detail", list(Detail))
def test_each_level_shows_its_families_and_those_above(detail: Detail) -> None:
    world = full_world()
    shallow = World(*world.copies, detail=detail, most_members=lambda _: 5, log_starts=world.sources.log_starts)
    shallow.instruments.observe(rebalanced("orders"))
    levels = list(Detail)[: list(Detail).index(detail) + 1]
    hidden = {family.name for family in FAMILIES if family.detail not in levels}
    shown = {family.name for family in FAMILIES if family.detail in levels and family.detail is not Detail.NONE}
    text = shallow.text()
    assert all(f"# HELP group_sidecar_{name} " not in text for name in hidden)
    assert all(shallow.series(name) for name in shown)


# What vanishes.


def test_what_vanished_vanishes() -> None:
    world = World(
        Copy(groups=(group("gone", offsets=commits("t", 5)), group("stays")), log_ends={("t", 0): (9, 1.0)}),
        detail=Detail.PARTITION,
    )
    world.instruments.observe(rebalanced("gone"))
    assert '"gone"' in world.text()
    world.copies[:] = [Copy(groups=(group("stays"),))]
    assert '"gone"' not in world.text()
    assert '"t"' not in world.text()
    assert '"stays"' in world.text()


def test_a_former_state_vanishes() -> None:
    world = World(Copy(groups=(group("g"),)), detail=Detail.GROUP)
    assert len(world.series("group_info")) == 1
    world.copies[:] = [Copy(groups=(group("g", state=GroupState.EMPTY),))]
    assert [sample.labels["state"] for sample in world.samples("group_info")] == ["Empty"]


# Which groups are told of.


def test_groups_that_are_left_out_have_no_series_and_count_in_totals() -> None:
    groups = tuple(group(name, members=4, offsets=commits("t", 1)) for name in ("orders", "tmp-1", "tmp-2"))
    world = World(
        Copy(groups=groups, log_ends={("t", 0): (5, 1.0)}),
        detail=Detail.PARTITION,
        most_members=lambda _: 3,
        shows=lambda group_id: not group_id.startswith("tmp-"),
    )
    for each in groups:
        world.instruments.observe(rebalanced(each.group_id))
    text = world.text()
    assert "tmp-" not in text
    assert world.value("group_lag", group="orders") == 4
    assert world.value("groups", protocol="classic", state="Stable") == 3
    assert world.value("groups_over_limit") == 3
    assert sum(world.series("rebalances_total").values()) == 3
    assert world.value("series_suppressed") == 0


# The limit on series.


def test_the_series_limit_holds_and_says_what_it_hid() -> None:
    groups = tuple(group(f"g{number:02}", members=1, offsets=commits("t", 1, 2)) for number in range(10))
    snapshot = Copy(groups=groups, log_ends={("t", 0): (5, 1.0), ("t", 1): (5, 1.0)})
    details = [family.name for family in FAMILIES if family.detail is not Detail.NONE]

    def shown(world: World) -> dict[str, int]:
        return {name: len(world.series(name)) for name in details}

    whole, cut = World(snapshot, detail=Detail.PARTITION), World(snapshot, detail=Detail.PARTITION, max_series=25)
    assert whole.value("series_suppressed") == 0
    assert sum(shown(cut).values()) == 25
    assert cut.value("series_suppressed") == sum(shown(whole).values()) - 25
    assert shown(cut)["group_info"] == shown(cut)["group_members"] == 10
    assert shown(cut)["group_partition_lag"] == 0
    assert cut.series("groups") == whole.series("groups")


@pytest.mark.parametrize("limit", [0, 1, 9, 37, 60, 85, 112, 10_000])
def test_what_is_cut_is_the_finest_and_then_the_last(limit: int) -> None:
    groups = tuple(
        group(f"g{number:02}", members=number % 3, offsets=commits(f"t{number % 2}", *range(number)))
        for number in range(9)
    )
    copy = Copy(groups=groups, log_ends={(f"t{number % 2}", number): (50, 1.0) for number in range(8)})
    starts = [{("t0", 0): (2, 1.0), ("t1", 1): (0, 1.0)}]
    whole, cut = (
        World(copy, detail=Detail.PARTITION, max_series=most, log_starts=lambda: starts) for most in (10_000, limit)
    )
    coarse_first = [family.name for family in DETAILS]
    lines = [line for name in coarse_first for line in whole.text_of(name + "{")]
    kept = [line for name in coarse_first for line in cut.text_of(name + "{")]
    assert kept == lines[:limit]
    assert cut.value("series_suppressed") == len(lines) - len(kept)


def test_what_is_left_out_is_not_even_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of millions of series a few thousand may be shown: the rest must not take up memory."""
    written: list[float] = []

    def number(value: float) -> str:
        written.append(value)
        return "0.0"

    monkeypatch.setattr(exposition, "_number", number)
    groups = tuple(group(f"g{number:02}", members=1, offsets=commits("t", *range(30))) for number in range(40))
    world = World(Copy(groups=groups, log_ends={("t", 0): (5, 1.0)}), detail=Detail.PARTITION, max_series=100)
    most = sum(len(metric.samples) for metric in totals(world.sources, Tally()))
    result(scrape(world.sources, choose_format(""), now=1.0))
    assert len(written) <= most + 2 + 4 * 100  # Which of the coarse ones are still to come is not known beforehand.


def test_the_same_series_survive_every_scrape() -> None:
    groups = [group(f"g{number}") for number in range(10)]
    world = World(Copy(groups=tuple(groups)), detail=Detail.GROUP, max_series=4)
    first = world.series("group_info")
    world.copies[:] = [Copy(groups=tuple(reversed(groups)))]
    assert world.series("group_info") == first
    assert len(first) == 4


# Several brokers.


def test_a_group_in_two_copies_is_told_once() -> None:
    world = World(
        Copy(groups=(group("g", members=1, generation=4),)),
        Copy(groups=(group("g", members=2, generation=5), group("h"))),
        detail=Detail.PARTITION,
    )
    assert world.series("group_members") == {("g",): 2, ("h",): 0}
    assert world.value("groups", protocol="classic", state="Stable") == 2


def test_the_complete_copy_wins_whatever_the_order() -> None:
    complete, cold = group("g", generation=1), group("g", generation=9, lacking=Lacking.COLD)
    for views in ((complete, cold), (cold, complete)):
        found = World(*(Copy(groups=(view,)) for view in views)).survey().groups
        assert [figures.view for figures in found] == [complete]


def test_the_later_seen_log_end_wins() -> None:
    early, late = Copy(log_ends={("t", 0): (9, 1.0)}), Copy(log_ends={("t", 0): (3, 2.0)})
    for copies in ((early, late), (late, early)):
        world = World(*copies, detail=Detail.PARTITION)
        assert world.series("log_end_offset") == {("0", "t"): 3}


def test_lag_joins_commits_and_log_ends_of_different_brokers() -> None:
    world = World(
        Copy(groups=(group("g", offsets=commits("t", 5)),)),
        Copy(log_ends={("t", 0): (9, 1.0)}),
        detail=Detail.GROUP,
    )
    assert world.value("group_lag", group="g") == 4


# Everything else.


def test_the_flight_recorder() -> None:
    assert World(recorded_bytes=lambda: 17).value("flight_recorder_bytes") == 17


def test_tables_of_all_copies_are_told_together() -> None:
    world = World(tables=lambda: [Table("groups", 2, 500), Table("groups", 1, 300), Table("offsets", 7, 70)])
    assert world.value("table_entries", table="groups") == 3
    assert world.value("table_bytes", table="groups") == 800
    assert world.value("table_bytes", table="offsets") == 70


@pytest.mark.parametrize("ready", [True, False])
def test_mirror_ready(ready: bool) -> None:
    assert World(mirror_ready=lambda: ready).value("mirror_ready") == ready


def test_refusing_brokers() -> None:
    assert World().value("refusing_brokers") == 0
    assert World(refusing_brokers=lambda: 2).value("refusing_brokers") == 2


def test_the_outlets_of_the_journal() -> None:
    world = World(outlets={"folder": Outlet(5, {"full": 2, "error": 0}, 3, 12.5), "topic": Outlet(7, {"full": 1})})
    assert world.series("records_written_total") == {("folder",): 5, ("topic",): 7}
    assert world.series("records_dropped_total") == {
        ("folder", "full"): 2,
        ("folder", "error"): 0,
        ("topic", "full"): 1,
    }
    assert world.series("records_write_failures_total") == {("folder",): 3, ("topic",): 0}
    assert world.series("records_last_flush_timestamp_seconds") == {("folder",): 12.5}


def test_an_outlet_that_never_wrote_has_no_time() -> None:
    world = World(outlets={"folder": Outlet()})
    assert world.series("records_written_total") == {("folder",): 0}
    assert world.series("records_last_flush_timestamp_seconds") == {}


def test_without_a_journal_nothing_is_said_of_records() -> None:
    assert "records_written" not in World().text()


def test_collecting_is_timed() -> None:
    seconds = World().value("collect_duration_seconds")
    assert seconds is not None
    assert seconds >= 0
