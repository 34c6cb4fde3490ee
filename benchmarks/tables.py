"""Results as Markdown tables, with a column for each target.

Owns: how figures are written. Must not know: how they were measured.
"""

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.rounds import Results, Row, Spread
from benchmarks.targets import DIRECT, SIDECAR, Target

NOTHING = "-"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of Markdown. The first column says what a row is; the others are figures, to the right."""
    lines = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return lines + [f"| {' | '.join(cells)} |" for cells in rows]


def ratio_table(results: Results) -> list[str]:
    """Direct's median, and of all others the ratio to it, with the reasons for what is missing below."""
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
    """How many times as good as each of the others the sidecar is."""
    others = [target.name for target in results.targets if target.name not in (DIRECT, SIDECAR)]

    def advantage(row: Row, other: str) -> Spread | None:
        pair = (SIDECAR, other) if row.more_is_better else (other, SIDECAR)
        return results.ratios(row, *pair)

    return table(
        ["measure", *others],
        ([called(row), *(spread(advantage(row, other)) for other in others)] for row in results.rows),
    )


def cpu_table(results: Results) -> list[str]:
    """CPU seconds per unit of work, of each that has a process to be seen."""
    names = [target.name for target in results.targets if target.process]
    return table(
        ["CPU s", *names],
        (
            [f"{row.name}, per {row.unit}", *(figure(results.cpu(row, name), 2) for name in names)]
            for row in results.rows
        ),
    )


def memory_table(results: Results, idle: Mapping[str, float], connections: int) -> list[str]:
    """What each process holds: kilobytes by connection, megabytes under load."""
    names = [target.name for target in results.targets if target.process]
    return table(
        ["memory", *names],
        [
            [f"kB per idle connection, {connections:,} held", *(figure(idle.get(name), 1) for name in names)],
            ["resident MB under load", *(figure(results.resident.get(name, 0) / 1e6, 0) for name in names)],
        ],
    )


def target_table(targets: Sequence[Target]) -> list[str]:
    """Who is compared."""
    lines = ["| | version | settings |", "|---|---|---|"]
    return lines + [f"| {each.name} | {each.version} | {each.settings} |" for each in targets]


def called(row: Row) -> str:
    """What it is, with the unit of its figure."""
    return f"{row.name}, {row.measure}"


def figure(value: float | None, digits: int) -> str:
    """A number with so many digits behind the point."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def spread(ratios: Spread | None) -> str:
    """Minimum, median and maximum of a ratio."""
    return NOTHING if ratios is None else f"{ratios.least:.2f} **{ratios.middle:.2f}** {ratios.most:.2f}"
