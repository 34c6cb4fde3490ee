"""Small frames from literal records, and answers as plain Python."""

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from group_sidecar.spark.intake import record_ddl

MIDNIGHT = datetime(2025, 1, 31, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """A moment, in seconds after midnight."""
    return MIDNIGHT + timedelta(seconds=seconds)


class Told:
    """What one start of a sidecar told: each method is a record, numbered from 1 on, as a row of the contract."""

    def __init__(self, sidecar: str = "a", boot: str = "1") -> None:
        self.sidecar = sidecar
        self.boot = boot
        self._numbers = count(1)

    def skip(self, records: int) -> None:
        """So many records were lost."""
        for _ in range(records):
            next(self._numbers)

    def record(self, kind: str, seconds: float, **cells: Any) -> dict[str, Any]:
        """A record of any kind, seen and told `seconds` after midnight."""
        return {
            "version": 1,
            "kind": kind,
            "sidecar": self.sidecar,
            "boot": self.boot,
            "seq": next(self._numbers),
            "observed_at": at(seconds),
            "emitted_at": at(seconds),
            **cells,
        }

    def heartbeat(self, seconds: float) -> dict[str, Any]:
        return self.record("heartbeat", seconds, sample={})

    def group(self, seconds: float, group: str, generation: int, **cells: Any) -> dict[str, Any]:
        return self.record(
            "group",
            seconds,
            **{
                "group": group,
                "protocol": "classic",
                "state": "Stable",
                "protocol_type": "consumer",
                "assignor": "range",
                "generation": generation,
                "members": 1,
                "max_size": None,
                **cells,
            },
        )

    def commit(self, seconds: float, group: str, topic: str, partition: int, offset: int) -> dict[str, Any]:
        return self.record(
            "commit", seconds, group=group, topic=topic, partition=partition, offset=offset, leader_epoch=-1
        )

    def log_end(self, seconds: float, topic: str, partition: int, offset: int) -> dict[str, Any]:
        return self.record("log_end", seconds, topic=topic, partition=partition, offset=offset)

    def rebalance(self, seconds: float, group: str, reason: str, duration: float) -> dict[str, Any]:
        return self.record(
            "rebalance",
            seconds,
            group=group,
            generation=1,
            reason=reason,
            cause="unknown",
            duration_seconds=duration,
            members=1,
        )

    def refusal(
        self, seconds: float, group: str, policy: str, error_code: int, kind: str = "refusal"
    ) -> dict[str, Any]:
        return self.record(
            kind,
            seconds,
            group=group,
            policy=policy,
            error_code=error_code,
            client_id="c",
            client_host="/127.0.0.1",
            size=2,
            limit=2,
        )


def frame(spark: SparkSession, *records: dict[str, Any]) -> DataFrame:
    """Records as `intake` accepts them."""
    schema = StructType.fromDDL(record_ddl())
    assert isinstance(schema, StructType)
    cells: list[tuple[Any, ...]] = [tuple(record.get(name) for name in schema.names) for record in records]
    return spark.createDataFrame(cells, schema)


def rows(answer: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of an answer, only these columns of them, sorted by the first; moments as `at` makes them."""
    found = answer.orderBy(columns[0]).select(*columns).collect()
    return [tuple(cell.astimezone(UTC) if isinstance(cell, datetime) else cell for cell in row) for row in found]
