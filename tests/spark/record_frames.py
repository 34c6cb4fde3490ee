"""Builds small frames from literal records, and returns tables as plain Python."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from group_sidecar.spark.line_parsing import record_ddl
from group_sidecar.spark.tables import TABLES

Row = dict[str, Any]

MIDNIGHT = datetime(2025, 1, 31, tzinfo=UTC)
WIDTH = "5 minutes"


def at(seconds: float) -> datetime:
    """Returns a moment, given in seconds after midnight."""
    return MIDNIGHT + timedelta(seconds=seconds)


class RecordsOfBoot:
    """The records of one boot of a sidecar. Each method returns a record, numbered from 1 on, as a row of the contract.

    Args:
        sidecar: its id.
        boot: the number of the boot.
        ahead: by how many seconds its clock is ahead; negative if it is behind.
        travels: how many seconds its records take to arrive; None if their arrival time is not known.
    """

    def __init__(self, sidecar: str = "a", boot: str = "1", *, ahead: float = 0, travels: float | None = None) -> None:
        self.sidecar = sidecar
        self.boot = boot
        self._ahead = ahead
        self._travels = travels
        self._numbers = count(1)

    def skip(self, records: int) -> None:
        """Skips the sequence numbers of `records` lost records."""
        for _ in range(records):
            next(self._numbers)

    def record(self, kind: str, seconds: float, *, seen: float | None = None, **cells: Any) -> Row:
        """Returns a record of any kind, emitted `seconds` after midnight.

        It was observed then, or at `seen` if given.
        """
        return {
            "version": 1,
            "kind": kind,
            "sidecar": self.sidecar,
            "boot": self.boot,
            "seq": next(self._numbers),
            "observed_at": at((seconds if seen is None else seen) + self._ahead),
            "emitted_at": at(seconds + self._ahead),
            "arrived_at": None if self._travels is None else at(seconds + self._travels),
            **cells,
        }

    def heartbeat(self, seconds: float, **sample: float) -> Row:
        return self.record("heartbeat", seconds, sample={name: float(figure) for name, figure in sample.items()})

    def group(self, seconds: float, group: str, generation: int, **cells: Any) -> Row:
        standing: Row = {
            "group": group,
            "protocol": "classic",
            "state": "Stable",
            "protocol_type": "consumer",
            "assignor": "range",
            "generation": generation,
            "members": 1,
            "max_size": None,
        }
        return self.record("group", seconds, **(standing | cells))

    def commit(
        self, seconds: float, group: str, topic: str, partition: int, offset: int, seen: float | None = None
    ) -> Row:
        where: Row = {"group": group, "topic": topic, "partition": partition}
        return self.record("commit", seconds, seen=seen, offset=offset, leader_epoch=-1, **where)

    def log_end(self, seconds: float, topic: str, partition: int, offset: int, seen: float | None = None) -> Row:
        return self.record("log_end", seconds, seen=seen, topic=topic, partition=partition, offset=offset)

    def rebalance(self, seconds: float, group: str, reason: str, duration: float, **cells: Any) -> Row:
        defaults: Row = {"generation": 1, "cause": "unknown", "members": 1, "duration_seconds": duration}
        return self.record("rebalance", seconds, group=group, reason=reason, **(defaults | cells))

    def refusal(self, seconds: float, group: str, policy: str, error_code: int, **cells: Any) -> Row:
        """Returns a refusal; with `kind="audit"`, a verdict of a policy in audit mode."""
        defaults: Row = {"kind": "refusal", "client_id": "c", "client_host": "/127.0.0.1", "size": 2, "limit": 2}
        return self.record(seconds=seconds, group=group, policy=policy, error_code=error_code, **(defaults | cells))

    def member(self, seconds: float, group: str, change: str, member_id: str = "m") -> Row:
        client: Row = {"instance_id": None, "client_id": "c", "client_host": "/127.0.0.1", "principal": "User:c"}
        return self.record("member", seconds, group=group, change=change, member_id=member_id, **client)


def frame(spark: SparkSession, *records: Row) -> DataFrame:
    """Returns records as `line_parsing` accepts them."""
    schema = StructType.fromDDL(f"{record_ddl()}, arrived_at TIMESTAMP")
    assert isinstance(schema, StructType)
    cells: list[tuple[Any, ...]] = [tuple(record.get(name) for name in schema.names) for record in records]
    return spark.createDataFrame(cells, schema)


def rows(answer: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Returns these columns of the rows, sorted by the first column. Moments are as in `at`."""
    found = answer.orderBy(columns[0]).select(*columns).collect()
    return [tuple(_moment(cell) for cell in row) for row in found]


def by_key(answer: DataFrame, *keys: str) -> dict[Any, Row]:
    """Returns the rows by their keys, which must be unique. Moments are as in `at`."""
    found: dict[Any, Row] = {}
    for row in answer.collect():
        cells = {name: _moment(cell) for name, cell in row.asDict(recursive=True).items()}
        key = tuple(cells.pop(name) for name in keys)
        assert key not in found, f"two rows have {key}"
        found[key if len(keys) > 1 else key[0]] = cells
    return found


def table(spark: SparkSession, name: str, *records: Row) -> dict[Any, Row]:
    """Returns a table's rows by the beginning of their window, in seconds after midnight, and their keys."""
    answer = TABLES[name].compute(frame(spark, *records), WIDTH)
    assert answer.columns[0] == "window"
    found = by_key(answer, "window", *TABLES[name].keys)
    return {((window - MIDNIGHT).total_seconds(), *keys): cells for (window, *keys), cells in found.items()}


def select_columns(cells: Mapping[Any, Row], *columns: str) -> dict[Any, tuple[Any, ...]]:
    """Returns only these columns of each row."""
    return {key: tuple(row[column] for column in columns) for key, row in cells.items()}


def _moment(cell: Any) -> Any:
    return cell.astimezone(UTC) if isinstance(cell, datetime) else cell
