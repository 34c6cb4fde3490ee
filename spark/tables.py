"""The tables: what is asked of the records of whole hours.

Owns: their names, keys and questions. Must not know: where records come from, nor where tables are kept.

Each question is a pure function from the records of one or more whole hours to one row per window and key; so hours
can be answered one by one, again when something comes late, or all at once, with the same result.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql import DataFrame

from group_sidecar.spark.questions.churn import churn
from group_sidecar.spark.questions.groups import groups
from group_sidecar.spark.questions.lag import group_lag, lag
from group_sidecar.spark.questions.metrics import metrics
from group_sidecar.spark.questions.rebalances import rebalances
from group_sidecar.spark.questions.sidecars import sidecars
from group_sidecar.spark.questions.verdicts import audits, refusals
from group_sidecar.spark.questions.windows import WINDOW

__all__ = ["RECORDS", "TABLES", "WINDOW", "Table"]

RECORDS = "records"
"""The source of most tables."""


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        name: its name, and that of its folder.
        ask: makes it, from what its source has of one or more whole hours and the width of a window, which divides an
            hour ("5 minutes"). A record that is there twice counts once. The first column is `window`: when the window
            begins.
        keys: of which columns, beside the window, there is one row each.
        doc: what it tells, in one line.
        source: what is asked: the records, or another table that is asked of them.
    """

    name: str
    ask: Callable[[DataFrame, str], DataFrame]
    keys: tuple[str, ...]
    doc: str
    source: str = RECORDS

    def asked_of(self, records: DataFrame, width: str) -> DataFrame:
        """What it says of records, whatever its source."""
        source = records if self.source == RECORDS else TABLES[self.source].asked_of(records, width)
        return self.ask(source, width)


_VERDICT = ("group", "policy", "error_code")
TABLES: Mapping[str, Table] = MappingProxyType(
    {
        table.name: table
        for table in (
            Table("groups", groups, ("group",), "Every group as it stood at the end of the window."),
            Table("lag", lag, ("group", "topic", "partition"), "How far behind in each partition."),
            Table("group_lag", group_lag, ("group",), "How far behind in all.", source="lag"),
            Table("rebalances", rebalances, ("group", "cause", "reason"), "Rebalances, by cause, and what they cost."),
            Table("refusals", refusals, _VERDICT, "Clients that a policy refused."),
            Table("audits", audits, _VERDICT, "Clients that a policy in audit mode would have refused."),
            Table("sidecars", sidecars, ("sidecar", "boot"), "What each start of each sidecar told."),
            Table("churn", churn, ("group", "change"), "Members that came and went."),
            Table("metrics", metrics, ("metric",), "The sidecars' own metrics, summed."),
        )
    }
)
"""All tables by name."""
