"""Formats results as Markdown tables, with a column for each target."""

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.rounds import Results, Row, Spread
from benchmarks.targets import DIRECT, SIDECAR, Target

NOTHING = "-"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the lines of a Markdown table. The first column names the row. All others are aligned to the right."""
    lines = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return lines + [f"| {' | '.join(cells)} |" for cells in rows]


def ratio_table(results: Results) -> list[str]:
    """Returns the table with the median of the direct connection and the ratio of each other target to it.

    Reasons for missing values follow below the table.
    """
    others = [target.name for target in results.targets if target.name != DIRECT]
    lines = table(
        ["measure", DIRECT, *others],
        (
            [called(row), figure(results.middle(row, DIRECT), 0)]
            + [spread(results.ratios(row, other)) for other in others]
            for row in results.rows
        ),
    )
    return lines + [f"\n{target}, {row}: {why}." for (row, target), why in results.failed.items()]


def sidecar_table(results: Results) -> list[str]:
    """Returns the table that compares the sidecar with each other target. Above 1, the sidecar is better."""
    others = [target.name for target in results.targets if target.name not in (DIRECT, SIDECAR)]

    def advantage(row: Row, other: str) -> Spread | None:
        pair = (SIDECAR, other) if row.more_is_better else (other, SIDECAR)
        return results.ratios(row, *pair)

    return table(
        ["measure", *others],
        ([called(row), *(spread(advantage(row, other)) for other in others)] for row in results.rows),
    )


def cpu_table(results: Results) -> list[str]:
    """Returns the CPU seconds per unit of work, for each target whose process is accessible."""
    names = [target.name for target in results.targets if target.process]
    return table(
        ["CPU s", *names],
        (
            [f"{row.name}, per {row.unit}", *(figure(results.cpu(row, name), 2) for name in names)]
            for row in results.rows
        ),
    )


def memory_table(results: Results, idle: Mapping[str, float], connections: int) -> list[str]:
    """Returns the memory of each process: kB per connection, and MB under load."""
    names = [target.name for target in results.targets if target.process]
    return table(
        ["memory", *names],
        [
            [f"kB per idle connection, {connections:,} held", *(figure(idle.get(name), 1) for name in names)],
            ["resident MB under load", *(figure(results.resident.get(name, 0) / 1e6, 0) for name in names)],
        ],
    )


def target_table(targets: Sequence[Target]) -> list[str]:
    """Returns the table of the compared targets."""
    lines = ["| | version | settings |", "|---|---|---|"]
    return lines + [f"| {each.name} | {each.version} | {each.settings} |" for each in targets]


def called(row: Row) -> str:
    """Returns the name of a row with its unit."""
    return f"{row.name}, {row.measure}"


def figure(value: float | None, digits: int) -> str:
    """Formats a number with `digits` decimal places. None is formatted as `NOTHING`."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def spread(ratios: Spread | None) -> str:
    """Formats the minimum, median and maximum of a ratio."""
    return NOTHING if ratios is None else f"{ratios.least:.2f} **{ratios.middle:.2f}** {ratios.most:.2f}"
