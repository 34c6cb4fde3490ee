"""Formats the result of a run: a table with a row for each tenth, the verdict on each series, and a chart."""

import io
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.charts import COLOURS, STYLE
from tests.soak.run import Result
from tests.soak.samples import HEARTBEAT, OFFSET_FETCH, Point, percentile
from tests.soak.verdict import Trend

ROWS = 10
_MIB = 1 << 20
_HEAD = (
    "from",
    "anonymous",
    "RSS",
    "descriptors",
    "threads",
    "table entries",
    "Heartbeat p50 / p99",
    "OffsetFetch p50 / p99",
)


def text(result: Result) -> str:
    """Returns the whole report in Markdown."""
    parts = [tenths_table(result.points), verdict_table(result.trends), _counts(result)]
    if result.failures:
        parts.append("\n".join(f"- {line}" for line in result.failures[:20]))
        parts.append(f"{len(result.failures)} failures")
    parts.append("passed" if result.passed else "FAILED")
    return "\n\n".join(parts)


def tenths_table(points: Sequence[Point]) -> str:
    """Returns a table with the medians of each tenth of the run. Latencies are percentiles over the tenth."""
    edges = [len(points) * number // ROWS for number in range(ROWS + 1)]
    rows = (_row(points[start:end]) for start, end in itertools.pairwise(edges))
    return _table(_HEAD, rows)


def verdict_table(trends: Sequence[Trend]) -> str:
    """Returns a table with the growth of each series. Series that are 0 throughout are left out."""
    rows = (
        (
            each.name,
            _number(each.early),
            _number(each.late),
            _number(each.by_slope),
            _number(each.allowed),
            "yes" if each.is_flat else "NO",
        )
        for each in trends
        if each.early or each.late or not each.is_flat
    )
    return _table(("series", "second tenth", "last tenth", "growth by slope", "allowed", "flat"), rows)


def chart(points: Sequence[Point]) -> str:
    """Returns an SVG document with memory, descriptors and table entries, and latency over the time in minutes."""
    minutes = [point.seconds / 60 for point in points]
    panels: Sequence[tuple[str, Sequence[tuple[str, Callable[[Point], float]]]]] = (
        ("MiB", [("anonymous", lambda each: each.anonymous / _MIB), ("RSS", lambda each: each.rss / _MIB)]),
        ("number", [("descriptors", lambda each: each.descriptors), ("table entries", _entries)]),
        ("ms, p50", [(api, lambda each, api=api: _ms(each, api, 50)) for api in (HEARTBEAT, OFFSET_FETCH)]),  # type: ignore[misc]
    )
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(12.6, 2.6), layout="constrained")
        for axes, (unit, lines) in zip(figure.subplots(1, len(panels)), panels, strict=True):
            for (name, value), colour in zip(lines, COLOURS, strict=False):
                axes.plot(minutes, [value(point) for point in points], linewidth=1.0, color=colour, label=name)
            axes.set_title(unit, loc="left", fontsize=9)
            axes.set_xlabel("minutes")
            axes.set_ylim(bottom=0)
            axes.grid(axis="y")
            axes.legend()
        document = io.StringIO()
        figure.savefig(document, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return document.getvalue()


def _row(points: Sequence[Point]) -> tuple[str, ...]:
    return (
        f"{points[0].seconds / 60:.1f} min",
        f"{median(point.anonymous for point in points) / _MIB:.1f} MiB",
        f"{median(point.rss for point in points) / _MIB:.1f} MiB",
        f"{median(point.descriptors for point in points):.0f}",
        f"{median(point.threads for point in points):.0f}",
        f"{median(map(_entries, points)):.0f}",
        *(_latency(points, api) for api in (HEARTBEAT, OFFSET_FETCH)),
    )


def _entries(point: Point) -> float:
    """Returns the entries of all tables and the groups."""
    return sum(size for name, size in point.tables.items() if name.endswith("entries") or name == "groups")


def _latency(points: Iterable[Point], api: str) -> str:
    """Returns two percentiles of an API; `-` if there were no requests, for instance while the broker restarts."""
    durations = [each for point in points for each in point.latency.get(api, ())]
    low, high = (percentile(durations, percent) * 1000 for percent in (50, 99))
    return "-" if math.isnan(low) else f"{low:.2f} / {high:.2f} ms"


def _ms(point: Point, api: str, percent: int) -> float:
    return percentile(point.latency.get(api, ()), percent) * 1000


def _counts(result: Result) -> str:
    expected = sum(result.expected.values())
    lines = [f"{count} {name}" for name, count in result.changes.items()]
    lines += [f"{count} rounds of {name}" for name, count in result.rounds.items()]
    return ", ".join(lines) + f", {expected} rounds that failed while the broker restarted"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def lines() -> Iterator[str]:
        yield f"| {' | '.join(head)} |"
        yield "|---" * len(head) + "|"
        for row in rows:
            yield f"| {' | '.join(row)} |"

    return "\n".join(lines())
