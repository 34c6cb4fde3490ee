"""Declares the summaries for people: their names, queries, orders and columns.

A summary aggregates the tables' rows of a range of time. `summary_queries` has the queries.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql import DataFrame

from group_sidecar.spark.summary_queries import (
    audits,
    churn,
    groups,
    lag,
    metrics,
    quarantine,
    rebalances,
    refusals,
    sidecars,
)
from group_sidecar.spark.tables import TableReader


@dataclass(frozen=True)
class Summary:
    """One summary, and how it is shown.

    Attributes:
        name: the name of the summary.
        compute: computes the summary with a function that reads tables.
        first_by: the column by which rows are sorted first, in descending order; None if there is none.
        then_by: the columns by which rows are sorted after that.
        terminal_columns: the columns that a terminal shows; all columns if empty.
        doc: the meaning of the summary, in one line.
    """

    name: str
    compute: Callable[[TableReader], DataFrame]
    first_by: str | None
    then_by: tuple[str, ...]
    terminal_columns: tuple[str, ...]
    doc: str


_REFUSAL_KEY = ("group", "policy", "error_code")
SUMMARIES: Mapping[str, Summary] = MappingProxyType(
    {
        summary.name: summary
        for summary in (
            Summary(
                "groups",
                groups,
                "lag",
                ("group",),
                ("group", "state", "members", "lag", "lag_seconds", "rebalances", "main_cause", "refusals", "gone"),
                "The state, the lag, the rebalances and the refusals of each group.",
            ),
            Summary(
                "lag",
                lag,
                "lag",
                ("group", "topic", "partition"),
                ("group", "topic", "partition", "committed", "log_end", "lag", "lag_seconds", "log_end_at"),
                "The lag of each group in each partition.",
            ),
            Summary(
                "rebalances",
                rebalances,
                "lost_consumer_seconds",
                ("group", "cause", "reason"),
                ("group", "cause", "rebalances", "seconds", "longest_seconds", "lost_consumer_seconds", "last_at"),
                "Rebalances by cause, and the time they took.",
            ),
            Summary("refusals", refusals, "refusals", _REFUSAL_KEY, (), "How often policies refused clients."),
            Summary("audits", audits, "audits", _REFUSAL_KEY, (), "Refusals that were only recorded."),
            Summary("sidecars", sidecars, "silent_seconds", ("sidecar",), (), "Which sidecars are alive."),
            Summary("churn", churn, "members", ("group", "change"), (), "Members that joined and left."),
            Summary("metrics", metrics, None, ("metric",), (), "The sidecars' own metrics, summed over the fleet."),
            Summary("quarantine", quarantine, "lines", ("fault", "sidecar"), (), "Lines that are not valid records."),
        )
    }
)
"""All summaries by name."""
