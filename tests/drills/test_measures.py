"""Tests the evaluation of the clients' reports."""

import pytest

from tests.drills.measures import Event, Noticed, errors, events_in, idle_seconds
from tests.drills.page import table
from tests.drills.run import DIRECT, THROUGH, Finding

_OUTPUT = """\
a line of a logger
{"at": 10.0, "member": 0, "partitions": [0, 1]}
{"at": 10.5, "member": 1, "error": "it broke"}
{"at": 11.0, "member": 1, "part"""


def test_events_leave_out_other_lines() -> None:
    """Lines of a logger and a line that is not complete yet give no events."""
    assert events_in(_OUTPUT) == [Event(10.0, 0, (0, 1)), Event(10.5, 1, error="it broke")]


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        ([(1, (0, 1)), (2, (0, 1)), (9, (0, 1))], 7.0),
        ([(1, (0, 1)), (5, (0,)), (9, (0, 1))], 8.0),
        ([(1, (0, 1)), (2, (0,))], 9.0),
        ([(8, (0, 1))], 8.0),
        ([(-5, (0, 1)), (15, (0, 1))], 10.0),
    ],
    ids=["both stop", "one partition stops", "to the end", "from the start", "only outside"],
)
def test_idle_seconds_are_those_of_the_worst_partition(
    reads: list[tuple[float, tuple[int, ...]]], expected: float
) -> None:
    """The result is the longest time without a record of one of two partitions in the window from 0 to 10."""
    events = [Event(at, 0, partitions) for at, partitions in reversed(reads)]
    assert idle_seconds(events, (0, 1), 0.0, 10.0) == expected


def test_errors_are_counted_within_the_window() -> None:
    """Equal errors within the window are counted together, and errors before and after the window are not counted."""
    events = [Event(at, 0, error=text) for at, text in ((1, "old"), (2, "a"), (3, "b"), (4, "a"), (6, "new"))]
    assert errors(events, 2, 5) == {"a": 2, "b": 1}


def test_table_has_both_routes_side_by_side() -> None:
    """A drill that the direct route does not have is shown as `-`."""
    findings = [
        Finding("brokers", DIRECT, "client", Noticed(1, 2.04, {"a": 2, "b": 1})),
        Finding("sidecars", THROUGH, "client", Noticed(0, 0.55, {})),
        Finding("brokers", THROUGH, "client", Noticed(2, 3.0, {"a": 1})),
    ]
    assert table(findings).splitlines()[2:] == [
        "| brokers | client | 1 | 2 | 2.0 | 3.0 | 3 | 1 |",
        "| sidecars | client | - | 0 | - | 0.6 | - | 0 |",
    ]
