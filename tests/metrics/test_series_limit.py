"""The limit on series: what is left out, and that it is counted but not formatted."""

import pytest

from group_sidecar.metrics import exposition
from group_sidecar.metrics.collector import GroupTotals, scrape, sidecar_families
from group_sidecar.metrics.detail_rows import FAMILIES as DETAILS
from group_sidecar.metrics.exposition import choose_format
from group_sidecar.metrics.families import FAMILIES
from group_sidecar.metrics.metric_family import Detail
from tests.metrics.metrics_world import CoordinatorCopy, MetricsWorld, commits, group, result


def test_series_limit_reports_suppressed() -> None:
    """The series limit holds, keeps coarse families and reports how many series were suppressed."""
    groups = tuple(group(f"g{number:02}", members=1, offsets=commits("t", 1, 2)) for number in range(10))
    snapshot = CoordinatorCopy(groups=groups, log_ends={("t", 0): (5, 1.0), ("t", 1): (5, 1.0)})
    details = [family.name for family in FAMILIES if family.detail is not Detail.NONE]

    def shown(world: MetricsWorld) -> dict[str, int]:
        return {name: len(world.series(name)) for name in details}

    whole, cut = (
        MetricsWorld(snapshot, detail=Detail.PARTITION),
        MetricsWorld(snapshot, detail=Detail.PARTITION, max_series=25),
    )
    assert whole.value("series_suppressed") == 0
    assert sum(shown(cut).values()) == 25
    assert cut.value("series_suppressed") == sum(shown(whole).values()) - 25
    assert shown(cut)["group_info"] == shown(cut)["group_members"] == 10
    assert shown(cut)["group_partition_lag"] == 0
    assert cut.series("groups") == whole.series("groups")


@pytest.mark.parametrize("limit", [0, 1, 9, 37, 60, 85, 112, 10_000])
def test_finest_series_are_cut_first(limit: int) -> None:
    """The series limit cuts the finest families first and the last rows of a family first."""
    groups = tuple(
        group(f"g{number:02}", members=number % 3, offsets=commits(f"t{number % 2}", *range(number)))
        for number in range(9)
    )
    copy = CoordinatorCopy(groups=groups, log_ends={(f"t{number % 2}", number): (50, 1.0) for number in range(8)})
    starts = [{("t0", 0): (2, 1.0), ("t1", 1): (0, 1.0)}]
    whole, cut = (
        MetricsWorld(copy, detail=Detail.PARTITION, max_series=most, log_starts=lambda: starts)
        for most in (10_000, limit)
    )
    coarse_first = [family.name for family in DETAILS]
    lines = [line for name in coarse_first for line in whole.text_of(name + "{")]
    kept = [line for name in coarse_first for line in cut.text_of(name + "{")]
    assert kept == lines[:limit]
    assert cut.value("series_suppressed") == len(lines) - len(kept)


def test_suppressed_series_are_not_formatted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape formats only about as many series as it may show, so suppressed series take no memory."""
    written: list[float] = []

    def number(value: float) -> str:
        written.append(value)
        return "0.0"

    monkeypatch.setattr(exposition, "_number", number)
    groups = tuple(group(f"g{number:02}", members=1, offsets=commits("t", *range(30))) for number in range(40))
    world = MetricsWorld(
        CoordinatorCopy(groups=groups, log_ends={("t", 0): (5, 1.0)}), detail=Detail.PARTITION, max_series=100
    )
    most = sum(len(metric.samples) for metric in sidecar_families(world.sources, GroupTotals()))
    result(scrape(world.sources, choose_format(""), now=1.0))
    assert len(written) <= most + 2 + 4 * 100  # The number of later families without details is not known in advance.
