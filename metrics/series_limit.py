"""Encodes the rows of groups, topics and partitions up to the limit on series (setting `metrics.series`).

Coarse families come first. At the limit, the finest families and the last rows of a family are left out.
"""

from collections.abc import Iterable, Iterator

from group_sidecar.metrics.detail_rows import FAMILIES, GROUP_FAMILIES, ROWS_PER_STEP, GroupDetails, PartitionFamilies
from group_sidecar.metrics.exposition import Escaped, FamilyText
from group_sidecar.metrics.group_snapshot import GROUP_COST, SeenLogEnd, batches
from group_sidecar.metrics.metric_family import Detail


class DetailLines:
    """Encodes the rows of groups, topics and partitions. Rows beyond the limit on series are only counted.

    Args:
        detail: the finest level that is shown.
        max_series: the maximum number of series of all families together.
        openmetrics: whether the format is OpenMetrics.
    """

    def __init__(self, detail: Detail, max_series: int, *, openmetrics: bool) -> None:
        self._max_series = max_series
        self._needs_positions = detail.includes(Detail.TOPIC)
        shown = [family for family in FAMILIES if detail.includes(family.detail)]
        escaped = Escaped()
        self._texts = {family: FamilyText(family, escaped, openmetrics=openmetrics) for family in shown}

    def group(self, details: GroupDetails) -> Iterator[int]:
        """Encodes a group's rows. Yields the work of each step, in rows."""
        if not self._texts:
            return
        yield GROUP_COST
        if self._needs_positions:
            yield from details.read_positions()
        before = 0
        for family, rows in GROUP_FAMILIES:
            if (text := self._texts.get(family)) is not None:
                for batch in batches(rows(details), ROWS_PER_STEP):
                    text.add(batch, self._max_series - before - text.count)
                    yield len(batch)
                before += text.count

    def partitions(self, families: PartitionFamilies, bounds: Iterable[SeenLogEnd]) -> Iterator[int]:
        """Encodes log ends or log starts, after all coarser families. Yields the number of rows in each step."""
        if not all(family in self._texts for family, _ in families):
            return
        coarser = sum(text.count for text in self._texts.values())
        for batch in batches(bounds, ROWS_PER_STEP):
            before = coarser
            for family, row in families:
                text = self._texts[family]
                text.add([row(each) for each in batch], self._max_series - before - text.count)
                before += text.count
                yield len(batch)

    def lines(self) -> tuple[list[bytes], int]:
        """Returns all lines, and the number of suppressed series."""
        lines: list[bytes] = []
        left = self._max_series
        for text in self._texts.values():
            shown = min(text.count, left)
            lines += text.first(shown)
            left -= shown
        return lines, sum(text.count for text in self._texts.values()) - (self._max_series - left)
