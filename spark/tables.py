"""Declares the fleet's tables: their names, keys and queries.

Each query is a pure function from the records of one or more whole hours to one row per window and key. So hours can be
computed one by one, again when a record arrives late, or all at once, with the same result.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql import DataFrame

from group_sidecar.spark.queries.churn_table import churn
from group_sidecar.spark.queries.groups_table import groups
from group_sidecar.spark.queries.lag_tables import group_lag, lag
from group_sidecar.spark.queries.metrics_table import metrics
from group_sidecar.spark.queries.policy_tables import audits, refusals
from group_sidecar.spark.queries.rebalances_table import rebalances
from group_sidecar.spark.queries.sidecars_table import sidecars
from group_sidecar.spark.queries.windows import WINDOW

__all__ = ["RECORDS", "TABLES", "WINDOW", "Table", "TableReader"]

RECORDS = "records"
"""The source of most tables."""
TableReader = Callable[[str], DataFrame]
"""Returns the rows of a table for a range of time. The argument is a name in `TABLES`, or `quarantine`."""


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        name: the name of the table and of its folder.
        query: computes the table from the source's rows of one or more whole hours, and from the width of a window,
            such as "5 minutes". The width divides an hour. A duplicate record counts once. The first column is
            `window`, the beginning of the window.
        keys: the columns that, with the window, identify a row.
        doc: the meaning of the table, in one line.
        source: the source of the table: `RECORDS`, or the name of another table.
    """

    name: str
    query: Callable[[DataFrame, str], DataFrame]
    keys: tuple[str, ...]
    doc: str
    source: str = RECORDS

    def compute(self, records: DataFrame, width: str) -> DataFrame:
        """Computes the table from records. If `source` is another table, that table is computed first."""
        source = records if self.source == RECORDS else TABLES[self.source].compute(records, width)
        return self.query(source, width)


_REFUSAL_KEY = ("group", "policy", "error_code")
TABLES: Mapping[str, Table] = MappingProxyType(
    {
        table.name: table
        for table in (
            Table("groups", groups, ("group",), "The state of each group at the end of the window."),
            Table("lag", lag, ("group", "topic", "partition"), "The lag of each group in each partition."),
            Table("group_lag", group_lag, ("group",), "The lag of each group in all partitions.", source="lag"),
            Table(
                "rebalances", rebalances, ("group", "cause", "reason"), "Rebalances by cause, and the time they took."
            ),
            Table("refusals", refusals, _REFUSAL_KEY, "How often policies refused clients of each group."),
            Table("audits", audits, _REFUSAL_KEY, "Refusals that policies in audit mode only recorded."),
            Table("sidecars", sidecars, ("sidecar", "boot"), "The records of each start of each sidecar, by window."),
            Table("churn", churn, ("group", "change"), "Members that joined and left each group."),
            Table("metrics", metrics, ("metric",), "The sidecars' own metrics, summed over the fleet."),
        )
    }
)
"""All tables by name."""
