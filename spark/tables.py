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

__all__ = ["TABLES", "WINDOW", "Table"]


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        name: its name, and that of its folder.
        ask: makes it, from deduplicated records of one or more whole hours and the width of a window, which divides
            an hour ("5 minutes"). The first column is `window`: when the window begins.
        keys: of which columns, beside the window, there is one row each.
        doc: what it tells, in one line.
    """

    name: str
    ask: Callable[[DataFrame, str], DataFrame]
    keys: tuple[str, ...]
    doc: str


_VERDICT = ("group", "policy", "error_code")
TABLES: Mapping[str, Table] = MappingProxyType(
    {
        table.name: table
        for table in (
            Table("groups", groups, ("group",), "Every group as it stood at the end of the window."),
            Table("lag", lag, ("group", "topic", "partition"), "How far behind in each partition."),
            Table("group_lag", group_lag, ("group",), "How far behind in all."),
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
