"""The query for members that joined and left."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import Member
from group_sidecar.spark.queries.windows import WINDOW, with_window_distinct


def churn(records: DataFrame, width: str) -> DataFrame:
    """Returns how many members joined and left each group in each window, by kind of change.

    Returns:
        window TIMESTAMP: Beginning of the window.
        group STRING: Group id.
        change STRING: joined, left, expired, dropped, removed, kicked or fenced.
        members BIGINT: Number of members; a member that joined twice counts twice.
    """
    return (
        with_window_distinct(records, width, Member.KIND)
        .groupBy(WINDOW, "group", "change")
        .agg(F.count("*").alias("members"))
    )
