"""The positions of the parts of a timeline's picture."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.proxy.admin import timeline_picture as tp
from group_sidecar.proxy.admin.sentences import plain

UNTIL = datetime(2026, 11, 18, 10, tzinfo=UTC)
SINCE = UNTIL - timedelta(minutes=100)
SCALE = (tp.WIDTH - tp.LEFT - tp.RIGHT) / 100
"""The width of a minute in units of the picture."""


def at(minute: float) -> str:
    """Returns the time that is `minute` minutes after the beginning of the picture."""
    return (SINCE + timedelta(minutes=minute)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def x(minute: float) -> object:
    """Returns the horizontal position of a minute, for comparisons."""
    return pytest.approx(tp.LEFT + minute * SCALE, abs=0.1)


def who(
    member_id: str, client_id: str = "c", host: str = "/10.0.0.1", instance_id: str | None = None
) -> dict[str, Any]:
    return {"member_id": member_id, "client_id": client_id, "client_host": host, "instance_id": instance_id}


def joined(minute: float, member_id: str, client_id: str = "c") -> dict[str, Any]:
    return {"at": at(minute), "what": "member_joined", **who(member_id, client_id)}


def gone(minute: float, member_id: str, client_id: str = "c", how: str = "left") -> dict[str, Any]:
    return {"at": at(minute), "what": "member_gone", "how": how, **who(member_id, client_id)}


def rebalance(minute: float, what: str, reason: str = "join", **fields: Any) -> dict[str, Any]:
    return {"at": at(minute), "what": f"rebalance_{what}", "reason": reason, "generation": 1, "members": 1, **fields}


def draw_timeline(cells: list[dict[str, Any]], members: list[dict[str, Any]] | None = None) -> tp.Picture:
    return tp.draw_timeline(cells, members or [], SINCE, UNTIL)


def bars(picture: tp.Picture) -> dict[str, list[tuple[float, float]]]:
    """Returns the bars of each lane as (start, end)."""
    bars_by_lane: dict[str, list[tuple[float, float]]] = {}
    for lane in picture.lanes:
        bars_by_lane.setdefault(lane.label, []).extend((bar.x, bar.x + bar.width) for bar in lane.bars)
    return bars_by_lane


MOVED = {"at": at(40), "what": "coordinator_moved"}


@pytest.mark.parametrize("noticed_at", [30, 45, 60])
def test_rejoined_member_keeps_lane_at_restart(noticed_at: float) -> None:
    """A member that appears as new around a broker restart keeps one lane with one bar since its first join."""
    cells = [joined(20, "m-1"), MOVED, joined(noticed_at, "m-1")]
    ends = [(x(20), x(100))]
    assert bars(
        draw_timeline(sorted(cells, key=lambda cell: cell["at"]), [{**who("m-1"), "since": at(noticed_at)}])
    ) == {
        "Rebalances": [],
        "c 10.0.0.1": ends,
    }


def test_leave_after_restart_keeps_join_time() -> None:
    """The bar of a member that leaves after a broker restart begins when the member first joined."""
    picture = draw_timeline([joined(20, "m-1"), joined(35, "m-1"), MOVED, gone(70, "m-1", how="dropped")])
    assert bars(picture)["c 10.0.0.1"] == [(x(20), x(70))]
    assert len(picture.lanes) == 2


def test_refused_client_has_no_member_bar() -> None:
    """A former member's bar ends when it leaves, although the group refuses the client later."""
    refused = {"at": at(90), "what": "client_refused", "client_id": "c", "client_host": "/10.0.0.1", "error": "FULL"}
    cells = [joined(20, "m-1"), joined(35, "m-1"), MOVED, gone(70, "m-1", how="dropped"), {**refused, "policy": "p"}]
    assert bars(draw_timeline(cells)) == {"Rebalances": [], "c 10.0.0.1": [(x(20), x(70))], "Refusals": []}


def test_listed_member_keeps_join_time() -> None:
    """The bar of a listed member begins at its join, not at the later time when the copy learned it again."""
    picture = draw_timeline([joined(20, "m-1"), MOVED], [{**who("m-1"), "since": at(50)}])
    assert bars(picture)["c 10.0.0.1"] == [(x(20), x(100))]


def test_refusal_run_has_one_bar() -> None:
    """A run of refusals has a bar from its first to its last refusal and one mark with their count."""
    run = {
        "at": at(60),
        "first_at": at(50),
        "count": 7,
        "what": "client_refused",
        "client_id": "c",
        "client_host": "/h",
        "error": "FULL",
        "policy": "p",
    }
    picture = draw_timeline([run])
    assert bars(picture)["Refusals"] == [(x(50), x(60))]
    [mark] = picture.lanes[-1].marks
    assert (mark.x, plain(mark.description)) == (x(60), "c at h was refused 7 times in 10 min with FULL by p")


def test_restart_mark_claims_no_move() -> None:
    """The mark of a moved coordinator mentions a restart or another broker as possible causes."""
    [mark] = draw_timeline([MOVED]).lanes[0].marks
    assert (
        plain(mark.description)
        == "The broker said that it does not coordinate the group: it is restarting, or another broker does that now"
    )


def test_bar_spans_join_to_leave() -> None:
    """A member's bar begins at its join and ends at its departure, with a mark for the departure."""
    picture = draw_timeline([joined(20, "m-1"), gone(70, "m-1", how="expired")])
    assert bars(picture)["c 10.0.0.1"] == [(x(20), x(70))]
    [mark] = picture.lanes[1].marks
    assert (mark.kind, mark.x, plain(mark.description)) == (
        "expired",
        x(70),
        "c at 10.0.0.1 was not heard of within its session timeout",
    )


def test_unknown_ends_reach_picture_edges() -> None:
    """A bar whose join or departure is unknown reaches the edge of the picture."""
    picture = draw_timeline([joined(20, "m-1", "a"), gone(30, "m-2", "b")], [who("m-1", "a"), who("m-3", "c")])
    assert bars(picture) == {
        "Rebalances": [],
        "a 10.0.0.1": [(x(20), x(100))],
        "b 10.0.0.1": [(x(0), x(30))],
        "c 10.0.0.1": [(x(0), x(100))],
    }


def test_earlier_events_set_initial_members() -> None:
    """Events before the picture's start determine which members it shows at its left edge."""
    cells = [joined(-50, "m-1"), joined(-40, "m-2", "long gone"), gone(-30, "m-2", "long gone"), gone(10, "m-1")]
    picture = draw_timeline(cells)
    assert bars(picture) == {"Rebalances": [], "c 10.0.0.1": [(x(0), x(10))]}


def test_returning_consumer_keeps_its_lane() -> None:
    """A consumer that leaves and joins again under a new member id keeps its lane."""
    picture = draw_timeline([joined(10, "m-1"), gone(20, "m-1"), joined(30, "m-2"), gone(40, "m-2")])
    assert bars(picture)["c 10.0.0.1"] == [(x(10), x(20)), (x(30), x(40))]


def test_different_consumers_have_own_lanes() -> None:
    """Consumers with different client ids have different lanes."""
    picture = draw_timeline(
        [joined(10, "m-1", "a"), gone(20, "m-1", "a"), joined(30, "m-2", "b"), gone(40, "m-2", "b")]
    )
    assert bars(picture) == {"Rebalances": [], "a 10.0.0.1": [(x(10), x(20))], "b 10.0.0.1": [(x(30), x(40))]}


def test_overlapping_namesakes_have_own_lanes() -> None:
    """Consumers with the same name whose bars overlap have different lanes."""
    picture = draw_timeline([joined(10, "m-1"), joined(20, "m-2"), gone(30, "m-1"), gone(40, "m-2")])
    assert [[(bar.x, bar.x + bar.width) for bar in lane.bars] for lane in picture.lanes[1:]] == [
        [(x(10), x(30))],
        [(x(20), x(40))],
    ]


def test_rebalance_bands_span_their_duration() -> None:
    """A rebalance has a band for its duration, and an unfinished one reaches the right edge."""
    cells = [
        rebalance(10, "started"),
        rebalance(15, "completed", "leave", duration_seconds=300),
        rebalance(40, "completed", "expired", duration_seconds=120),
        rebalance(90, "started", "metadata"),
    ]
    picture = draw_timeline(cells)
    assert [(band.x, band.x + band.width, band.reason) for band in picture.bands] == [
        (x(10), x(15), "leave"),
        (x(38), x(40), "expired"),
        (x(90), x(100), "metadata"),
    ]
    assert [(mark.kind, mark.x) for mark in picture.lanes[0].marks] == [("leave", x(15)), ("expired", x(40))]


def test_event_lanes_exist_only_with_events() -> None:
    """Refusals and failed commits have lanes only if there are such events."""
    refused = {"policy": "p", "error": "E", "size": 2, "limit": 1, **who("m")}
    cells = [
        {"at": at(1), "what": "client_refused", **refused},
        {"at": at(2), "what": "client_audited", **refused},
        {"at": at(3), "what": "offsets_committed", "accepted": 0, "refused": [{"error": "E", "partitions": 1}]},
    ]
    marks = {lane.label: [(mark.kind, mark.x) for mark in lane.marks] for lane in draw_timeline(cells).lanes}
    assert marks == {
        "Rebalances": [],
        "Refusals": [("refused", x(1)), ("audited", x(2))],
        "Failed commits": [("failed", x(3))],
    }
    assert [lane.label for lane in draw_timeline([]).lanes] == ["Rebalances"]


def test_lane_limit_omits_eventless_members() -> None:
    """Above the lane limit, members without events are omitted and counted."""
    quiet = [who(f"m-{n}", f"quiet-{n}") for n in range(tp.MAX_LANES + 5)]
    picture = draw_timeline([joined(10, "m", "zealous")], [*quiet, who("m", "zealous")])
    assert picture.unseen == 6
    assert len(picture.lanes) == 1 + tp.MAX_LANES
    assert picture.lanes[-1].label.startswith("zealous")


def test_long_name_is_cut_in_label() -> None:
    """A long client name is cut in the lane's label and complete in its description."""
    picture = draw_timeline([joined(10, "m", "n" * 500)])
    assert len(picture.lanes[1].label) == tp.LABEL_CHARACTERS
    assert plain(picture.lanes[1].description) == f"{'n' * 500} at 10.0.0.1"


@pytest.mark.parametrize(
    ("span", "first", "second"),
    [
        (timedelta(seconds=5), "09:59:56", "09:59:57"),
        (timedelta(minutes=15), "09:46", "09:48"),
        (timedelta(hours=1), "09:10", "09:20"),
        (timedelta(hours=6), "05:00", "06:00"),
        (timedelta(days=7), "12 Nov 00:00", "13 Nov 00:00"),
    ],
)
def test_ticks_are_at_round_times(span: timedelta, first: str, second: str) -> None:
    """Axis ticks are at round times and their number is bounded."""
    ticks = tp.draw_timeline([], [], UNTIL - span, UNTIL).ticks
    assert [tick.label for tick in ticks[:2]] == [first, second]
    assert 2 <= len(ticks) <= tp.MAX_TICKS + 1


@pytest.mark.parametrize(
    ("minutes", "members", "begins"),
    [
        ([], [], 0),
        ([-10, 5], [], 0),
        ([50, 60], [], 48.5),
        ([50, 60], [20], 17.6),
        ([50, 60], [None], 48.5),
        ([99.9], [], 98.97),
        ([], [-500], 0),
    ],
)
def test_picture_starts_near_first_event(minutes: list[float], members: list[float | None], begins: float) -> None:
    """The picture begins shortly before its first known event or member."""
    cells = [joined(minute, "m") for minute in minutes]
    there = [{**who("m"), "since": None if minute is None else at(minute)} for minute in members]
    assert tp.picture_start(cells, there, SINCE, UNTIL) == SINCE + timedelta(minutes=begins)


def test_event_names_survive_truncation() -> None:
    """Event names are unique and do not change when older events are dropped."""
    cells = [joined(1, "a"), joined(2, "b"), gone(2, "a"), joined(3, "c")]
    names = tp.event_names(cells)
    assert len(set(names)) == 4
    assert tp.event_names(cells[1:]) == names[1:]


EVENTS = st.tuples(st.floats(-50, 100), st.sampled_from("abc"), st.sampled_from(["joins", "goes", "starts", "ends"]))


@given(st.lists(EVENTS, max_size=40), st.sets(st.sampled_from("abc")))
def test_random_events_stay_within_picture(events: list[tuple[float, str, str]], present: set[str]) -> None:
    """For random events, all bars, marks and bands lie within the picture and bars of a lane do not overlap."""
    cells = []
    for minute, member, what in sorted(events):
        cells.append(
            {
                "joins": joined(minute, member),
                "goes": gone(minute, member),
                "starts": rebalance(minute, "started"),
                "ends": rebalance(minute, "completed", duration_seconds=60.0),
            }[what]
        )
    picture = draw_timeline(cells, [who(member) for member in sorted(present)])
    for lane in picture.lanes:
        ends = [tp.LEFT]
        for bar in lane.bars:
            assert bar.x >= ends[-1] - tp.MIN_WIDTH
            ends.append(bar.x + bar.width)
        places = [*ends, *(mark.x for mark in lane.marks)]
        assert all(tp.LEFT <= place <= picture.right + tp.MIN_WIDTH for place in places)
    assert all(tp.LEFT <= band.x <= band.x + band.width <= picture.right + tp.MIN_WIDTH for band in picture.bands)
