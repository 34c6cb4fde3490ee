"""Whom policies refused, or would have. Must not know: where answers go."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import Audit, Refusal
from group_sidecar.spark.questions.windows import WINDOW, told_once


def refusals(records: DataFrame, width: str) -> DataFrame:
    """How often each policy refused clients of each group in each window, and with which error.

    Returns:
        window, group, policy, error_code, refusals, clients (how many client ids), last_at.
    """
    return _verdicts(records, width, Refusal.KIND, "refusals")


def audits(records: DataFrame, width: str) -> DataFrame:
    """How often each policy in audit mode would have refused clients of each group, and with which error.

    Returns:
        window, group, policy, error_code, audits, clients (how many client ids), last_at.
    """
    return _verdicts(records, width, Audit.KIND, "audits")


def _verdicts(records: DataFrame, width: str, kind: str, counted: str) -> DataFrame:
    return (
        told_once(records, width, kind)
        .groupBy(WINDOW, "group", "policy", "error_code")
        .agg(
            F.count("*").alias(counted),
            F.count_distinct("client_id").alias("clients"),
            F.max("observed_at").alias("last_at"),
        )
    )
