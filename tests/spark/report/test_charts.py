"""The positions of the parts of charts, without Spark."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.spark.report.bar_chart import Amount, BarRow, bars
from group_sidecar.spark.report.collected_rows import Rows
from group_sidecar.spark.report.curve_chart import Curve, curves
from group_sidecar.spark.report.formatting import duration, number, short_number, truncated, visible
from group_sidecar.spark.report.heat_map import LEVELS, HeatCell, heat_map, level_bounds
from group_sidecar.spark.report.html_table import to_table
from group_sidecar.spark.report.scales import (
    DAY,
    HOUR,
    LEFT,
    RIGHT,
    WIDTH,
    Linear,
    Span,
    divided,
    round_values,
    window_of,
)
from group_sidecar.spark.report.sidecars_chapter import restarts
from group_sidecar.spark.report.stack_chart import LEFT as STACK_LEFT
from group_sidecar.spark.report.stack_chart import MAX_SERIES, OTHERS, TALL, TOP, grouped, stacks
from group_sidecar.spark.report.strip_chart import Presence, Strip, strips

MIDNIGHT = 1738281600
"""2025-01-31 in UTC."""
DAYLONG = Span(MIDNIGHT, MIDNIGHT + DAY, HOUR)


# Scales.


@pytest.mark.parametrize(
    ("highest", "values"),
    [
        (0, [0, 1]),
        (1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (7, [0, 2, 4, 6, 8]),
        (10, [0, 2, 4, 6, 8, 10]),
        (11, [0, 5, 10, 15]),
        (99_000, [0, 20_000, 40_000, 60_000, 80_000, 100_000]),
    ],
)
def test_axis_values_are_round(highest: float, values: list[float]) -> None:
    """Axis values are round numbers up to at least the highest amount."""
    assert list(round_values(highest)) == values


@given(st.floats(1e-3, 1e15), st.integers(1, 10))
def test_axis_values_cover_highest(highest: float, at_most: int) -> None:
    """Axis values start at 0, reach the highest amount and stay within the number of steps."""
    values = round_values(highest, at_most)
    assert values[0] == 0
    assert values[-1] >= highest * (1 - 1e-9)
    assert values[-2] < highest
    assert len(values) <= at_most + 1


def test_out_of_range_amount_is_clamped() -> None:
    """A linear scale maps an amount out of range to the nearest end."""
    scale = Linear(10, 100, 200)
    assert [scale(amount) for amount in (-1, 0, 2.5, 10, 11)] == [100, 100, 125, 200, 200]
    assert Linear(0, 100, 200)(5) == 100


@given(
    st.floats(0, 2e9),
    st.floats(1, 400 * DAY),
    st.sampled_from([60, 300, 420, 720, 900, 1200, 1800, 3600]),
    st.integers(8, 200),
    st.sampled_from([0, HOUR]),
)
def test_span_divides_into_whole_windows(since: float, length: float, window: int, at_most: int, least: int) -> None:
    """divided covers the time in few steps, each of whole windows or days."""
    span = divided(since, since + length, window, at_most, least)
    assert span.since <= since
    assert span.until >= since + length
    assert span.since % span.step == span.until % span.step == 0
    assert span.step % window == 0 or span.step % DAY == 0
    assert span.step >= least
    assert 1 <= len(span.steps) <= at_most + 2


@given(st.lists(st.integers(0, 11), min_size=1))
def test_guessed_window_is_not_too_short(places: list[int]) -> None:
    """The guessed window is a multiple of the true window."""
    assert window_of([300 * place for place in places]) % 300 == 0


def test_five_minute_windows_are_detected() -> None:
    """window_of detects windows of five minutes from their start times."""
    assert window_of([0, 1800, 2100]) == 300


def test_ticks_are_round_times() -> None:
    """Time ticks are at round hours or days, and there are few."""
    assert [tick.label for tick in DAYLONG.ticks()][:3] == ["00:00", "03:00", "06:00"]
    week = Span(MIDNIGHT + HOUR, MIDNIGHT + 7 * DAY + HOUR, HOUR)
    assert [tick.label for tick in week.ticks()][:2] == ["01 Feb", "02 Feb"]
    assert len(Span(0, 3 * 365 * DAY, 7 * DAY).ticks()) <= 9


def test_time_axis_spans_chart() -> None:
    """The time axis reaches from the left edge to the right edge of the chart."""
    assert [DAYLONG.x(MIDNIGHT + hours * HOUR) for hours in (0, 12, 24)] == [
        LEFT,
        (LEFT + WIDTH - RIGHT) / 2,
        WIDTH - RIGHT,
    ]


# Charts.


def test_bar_lengths_match_amounts() -> None:
    """Bar lengths are proportional to the amounts. Long and empty labels are abbreviated."""
    chart = bars(
        [
            BarRow("a", [Amount(0, 30, "a 30"), Amount(1, 10, "a 10")], "40"),
            BarRow("b" * 99, [Amount(1, 20, "b 20")], "20"),
            BarRow("", [], "0"),
        ],
        ["x", "y"],
    )
    first, second, third = chart.bars
    assert first.parts[0].x == LEFT
    assert first.parts[0].width == pytest.approx(3 * first.parts[1].width, abs=0.2)
    assert first.parts[1].x == pytest.approx(first.parts[0].x + first.parts[0].width, abs=0.1)
    assert second.parts[0].width == pytest.approx(2 * first.parts[1].width, abs=0.2)
    assert (second.parts[0].series, second.label[-1], second.name) == (1, "…", "b" * 99)
    assert (third.parts, third.label, third.note_x) == ([], "(empty)", LEFT + 8)
    assert [tick.label for tick in chart.ticks] == ["0", "10", "20", "30", "40"]
    assert first.y < second.y < third.y < chart.bottom < chart.height


def test_columns_are_stacked() -> None:
    """Columns are stacked on each other with heights proportional to their amounts."""
    chart = stacks(DAYLONG, {"a": {MIDNIGHT: 3}, "b": {MIDNIGHT: 1, MIDNIGHT + 23 * HOUR: 4}})
    assert chart.series == ["b", "a"]
    lower, upper, last = chart.pieces
    assert lower.x == upper.x == STACK_LEFT
    assert lower.y + lower.height == TOP + TALL
    assert upper.y + upper.height == pytest.approx(lower.y, abs=0.1)
    assert upper.height == pytest.approx(3 * lower.height, abs=0.3)
    assert (upper.y, last.height) == (TOP, TALL)
    assert last.x + last.width == pytest.approx(WIDTH - RIGHT, abs=1.1)
    assert (lower.tooltip, upper.tooltip) == ("2025-01-31 00:00:00: b 1", "2025-01-31 00:00:00: a 3")
    assert [tick.label for tick in chart.values] == ["0", "1", "2", "3", "4"]


def test_columns_begin_at_the_ticks_of_their_times() -> None:
    """A column begins at the tick of its time, because columns and ticks share the chart's left margin."""
    chart = stacks(DAYLONG, {"a": {MIDNIGHT: 1, MIDNIGHT + 3 * HOUR: 1}})
    assert [tick.label for tick in chart.ticks[:2]] == ["00:00", "03:00"]
    assert [piece.x for piece in chart.pieces] == [tick.at for tick in chart.ticks[:2]]


def test_smallest_series_are_merged() -> None:
    """The smallest of many series are merged into one, and the total is kept."""
    amounts = {f"{number:02}": {0: float(100 - number), 1 + number: 1.0} for number in range(20)}
    found = grouped(amounts)
    assert [*found] == [*(f"{number:02}" for number in range(MAX_SERIES - 1)), OTHERS]
    assert sum(sum(by_step.values()) for by_step in found.values()) == sum(
        sum(by_step.values()) for by_step in amounts.values()
    )


@pytest.mark.parametrize(
    ("highest", "bounds"), [(0, []), (1, [1]), (3, [1, 2, 3]), (17, [1, 2, 4, 6, 11]), (1000, [1, 4, 16, 64, 252])]
)
def test_level_bounds_grow_geometrically(highest: int, bounds: list[int]) -> None:
    """The bounds of heat levels grow in equal ratios."""
    assert list(level_bounds(highest)) == bounds


@given(st.integers(0, 10**12))
def test_levels_are_few_and_reachable(highest: int) -> None:
    """There are at most LEVELS levels, and the highest amount reaches each."""
    bounds = level_bounds(highest)
    assert len(bounds) <= LEVELS
    assert all(bound <= highest for bound in bounds)
    assert not highest or bounds[0] == 1


def test_heat_map_cells() -> None:
    """Heat map cells are placed at their hour, and larger amounts have higher levels."""
    chart = heat_map(
        DAYLONG,
        {
            "a": {
                MIDNIGHT: HeatCell(1, "a 1"),
                MIDNIGHT + HOUR: HeatCell(17, "a 17"),
                MIDNIGHT - HOUR: HeatCell(9, "before"),
            },
            "b": {MIDNIGHT + 23 * HOUR: HeatCell(5, "b 5")},
        },
    )
    first, second = chart.lanes
    assert [(square.level, square.text) for square in first.squares] == [(1, "1"), (5, "17")]
    assert first.squares[1].x - first.squares[0].x == pytest.approx(chart.square, abs=0.1)
    assert second.squares[0].x + chart.square == pytest.approx(WIDTH - RIGHT, abs=0.1)
    assert second.squares[0].tooltip == "2025-01-31 23:00:00: b 5"
    assert [level.label for level in chart.levels] == ["1", "2 to 3", "4 to 5", "6 to 10", "11 and more"]


def test_narrow_cells_have_no_number() -> None:
    """Narrow heat map cells have no number."""
    week = Span(MIDNIGHT, MIDNIGHT + 7 * DAY, HOUR)
    (lane,) = heat_map(week, {"a": {MIDNIGHT: HeatCell(3, "")}}).lanes
    assert [square.text for square in lane.squares] == [""]


def test_curve_has_gap_without_data() -> None:
    """A curve has a gap where there is no data."""
    amounts = {MIDNIGHT + hour * HOUR: float(hour) for hour in (0, 1, 2, 10, 20)}
    words = {at: f"{amount:.0f} messages" for at, amount in amounts.items()}
    (lane,) = curves(DAYLONG, [Curve("g", amounts, words, "now")]).lanes
    assert [len(line) for line in lane.lines] == [3, 1, 1]
    assert lane.lines[0][0][1] == lane.bottom
    assert lane.y < lane.lines[2][0][1] < lane.lines[1][0][1] < lane.bottom
    assert lane.highest == "20"
    assert [spot.tooltip for spot in lane.spots][3] == "g, 2025-01-31 10:00:00: 10 messages"
    half = lane.spots[0].width / 2
    assert lane.lines[1][0][0] == pytest.approx(lane.spots[3].x + half, abs=0.1)


def test_strip_shows_gaps_and_silence() -> None:
    """A strip shows gaps and, for a silent sidecar, the silence up to the end."""
    presence_by_step = {MIDNIGHT + hour * HOUR: Presence.ALIVE for hour in (2, 3, 6)} | {
        MIDNIGHT + 4 * HOUR: Presence.RECORDS_ONLY
    }
    chart = strips(
        DAYLONG,
        [
            Strip("s", presence_by_step, [MIDNIGHT + 6 * HOUR], "bad", True),
            Strip("t", presence_by_step, (), "", False),
            Strip("u", {}, (), "", True),
        ],
    )
    silent, well, never = chart.lanes
    assert [run.presence for run in silent.runs] == [
        Presence.ALIVE,
        Presence.RECORDS_ONLY,
        Presence.GAP,
        Presence.ALIVE,
        Presence.SILENT,
    ]
    assert [(run.x, run.presence) for run in well.runs] == [(run.x, run.presence) for run in silent.runs[:-1]]
    assert never.runs == []
    hour = silent.runs[1].width
    assert silent.runs[0].width == pytest.approx(2 * hour, abs=0.2)
    assert silent.runs[0].x == pytest.approx(LEFT + 2 * hour, abs=0.2)
    assert silent.runs[-1].x + silent.runs[-1].width == pytest.approx(chart.right, abs=0.1)
    assert silent.marks[0].x == silent.runs[3].x
    assert silent.runs[2].tooltip == "s: no records, 2025-01-31 05:00:00 to 2025-01-31 06:00:00"


def test_new_boot_is_restart() -> None:
    """A step with another boot id, or with several boots, is a restart."""
    steps = [
        {"at": 0, "boot": "b", "boots": 2},
        {"at": 1, "boot": "b", "boots": 1},
        {"at": 2, "boot": "c", "boots": 1},
    ]
    assert list(restarts(steps)) == [0, 2]
    assert list(restarts([])) == []


# Texts.


@pytest.mark.parametrize(
    ("seconds", "tooltip"),
    [
        (0, "0 s"),
        (0.04, "40 ms"),
        (2.5, "2.5 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (7200, "2 h"),
        (3 * DAY + 4 * HOUR, "3 d 4 h"),
        (-90, "-1 min 30 s"),
    ],
)
def test_duration_text(seconds: float, tooltip: str) -> None:
    """duration formats seconds as short text with fitting units."""
    assert duration(seconds) == tooltip


@pytest.mark.parametrize(
    ("value", "whole", "short"),
    [
        (0, "0", "0"),
        (9999, "9,999", "9,999"),
        (12_345, "12,345", "12.3k"),
        (3_200_000, "3,200,000", "3.2M"),
        (4.5e12, "4,500,000,000,000", "4.5T"),
        (999_999, "999,999", "1,000k"),
        (0.25, "0.25", "0.25"),
    ],
)
def test_number_text(value: float, whole: str, short: str) -> None:
    """number and short_number format values in full and abbreviated."""
    assert (number(value), short_number(value)) == (whole, short)


def test_unprintable_characters_are_visible() -> None:
    """Unprintable characters are replaced by visible signs, and long or empty text is marked."""
    assert visible("a\x00\x1b\x7f\x85\u202e\u2067b") == "a␀␛␡���b"
    assert truncated("", 9) == "(empty)"
    assert truncated("abcdef", 5) == "abcd…"


def test_cells_are_formatted_by_column_type() -> None:
    """Table cells are formatted, aligned and sorted by their column's type."""
    types = {
        "group": "string",
        "lag": "bigint",
        "lag_seconds": "double",
        "last_at": "timestamp",
        "gone": "boolean",
        "causes": "map<string,bigint>",
    }
    row = {"group": "\x1b", "lag": 1234, "lag_seconds": 90.0, "last_at": MIDNIGHT, "gone": True, "causes": {"join": 2}}
    table = to_table("t", Rows(types, [row, dict.fromkeys(types)], 3))
    assert [(heading.text, heading.right) for heading in table.headings] == [
        ("group", False),
        ("lag", True),
        ("lag time", True),
        ("last at", False),
        ("gone", False),
        ("causes", False),
    ]
    assert [cell.text for cell in table.rows[0]] == ["␛", "1,234", "1 min 30 s", "2025-01-31 00:00:00", "yes", "join 2"]
    assert [cell.sort for cell in table.rows[0]] == [None, 1234, 90, MIDNIGHT, None, None]
    assert {cell.text for cell in table.rows[1]} == {"-"}
    assert table.left_out == 3
