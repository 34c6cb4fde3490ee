"""Tests how `benchmarks.scrape` counts series and summarises the waits of requests."""

from benchmarks.scrape import Waits, series_in


def test_comments_are_not_series() -> None:
    """Comment lines of a scrape do not count as series."""
    body = b'# HELP a b\n# TYPE a gauge\na{group="x#\xc3\xa9\\n# y"} 1.0\n# TYPE b gauge\nb 2.0\n# EOF\n'
    assert series_in(body) == 2
    assert series_in(b"") == series_in(b"# EOF\n") == 0


def test_middle_round_and_worst_wait() -> None:
    """Percentiles of waits come from the median round, and the longest wait from all rounds."""
    waits = Waits([[1.0, 2.0, 9.0], [1.0, 3.0, 30.0], [2.0, 4.0, 10.0]])
    assert (waits.at(0), waits.at(0.5), waits.at(0.99), waits.longest) == (1.0, 3.0, 10.0, 30.0)
    assert waits.cell() == "3.00 10.00 **30.00**"
