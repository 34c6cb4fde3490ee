"""Members that came and went. Must not know: where answers go."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import Member
from group_sidecar.spark.questions.windows import WINDOW, told_once


def churn(records: DataFrame, width: str) -> DataFrame:
    """How many members came to each group in each window, and went, by how.

    Returns:
        window, group, change (joined, left, expired, dropped, removed, kicked or fenced), members (how many; one that
        came twice counts twice).
    """
    return told_once(records, width, Member.KIND).groupBy(WINDOW, "group", "change").agg(F.count("*").alias("members"))
