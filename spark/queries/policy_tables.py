"""The queries for requests that policies refused or would have refused."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import Audit, Refusal
from group_sidecar.spark.queries.windows import WINDOW, with_window_distinct


def refusals(records: DataFrame, width: str) -> DataFrame:
    """Returns how often each policy refused clients of each group in each window, by error.

    Returns:
        window TIMESTAMP: Beginning of the window.
        group STRING: Group id.
        policy STRING: Name of the policy.
        error_code BIGINT: Kafka's error code.
        refusals BIGINT: Number of refusals.
        clients BIGINT: Number of different client ids.
        last_at TIMESTAMP: When the last refusal was observed.
    """
    return _verdicts(records, width, Refusal.KIND, "refusals")


def audits(records: DataFrame, width: str) -> DataFrame:
    """Returns how often each policy in audit mode would have refused clients of each group, by error.

    Returns:
        window TIMESTAMP: Beginning of the window.
        group STRING: Group id.
        policy STRING: Name of the policy.
        error_code BIGINT: Kafka's error code.
        audits BIGINT: Number of requests that would have been refused.
        clients BIGINT: Number of different client ids.
        last_at TIMESTAMP: When the last of these requests was observed.
    """
    return _verdicts(records, width, Audit.KIND, "audits")


def _verdicts(records: DataFrame, width: str, kind: str, counted: str) -> DataFrame:
    return (
        with_window_distinct(records, width, kind)
        .groupBy(WINDOW, "group", "policy", "error_code")
        .agg(
            F.count("*").alias(counted),
            F.count_distinct("client_id").alias("clients"),
            F.max("observed_at").alias("last_at"),
        )
    )
