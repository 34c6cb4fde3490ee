"""Tables of a fleet from literal rows, in place of those of a store.

One fleet has an example of everything a report shows, and one fleet is empty.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from group_sidecar.spark.tables import TABLES
from tests.spark.record_frames import frame

Rows = Sequence[Mapping[str, Any]]

START = datetime(2025, 1, 30, 22, tzinfo=UTC)
HOURS = 30
GROUPS = 32
TITLE = "Fleet of <b>payments</b>"
EVIL = "<script>alert(1)</script>"
"""The name of a group, chosen by an attacker."""
BACKWARDS = "\u202eorders\x1b[31m"
"""The name of a group with a character that reverses text and an escape sequence of a terminal."""
QUARANTINE = "fault STRING, sidecar STRING, line STRING, arrived_at TIMESTAMP"


def tables(spark: SparkSession, rows: Mapping[str, Rows]) -> Callable[[str], DataFrame]:
    """Returns a function that reads tables with these rows. Missing values are null, and other tables are empty."""

    def read(name: str) -> DataFrame:
        schema = _schema(spark, name)
        cells = [tuple(row.get(column) for column in schema.names) for row in rows.get(name, ())]
        return spark.createDataFrame(cells, schema)

    return read


@cache
def _schema(spark: SparkSession, name: str) -> StructType:
    if name in TABLES:
        return TABLES[name].compute(frame(spark), "30 minutes").schema
    schema = StructType.fromDDL(QUARANTINE)
    assert isinstance(schema, StructType)
    return schema


def at(hours: float) -> datetime:
    """Returns a moment, given in hours after the first one."""
    return START + timedelta(hours=hours)


def names() -> Sequence[str]:
    """Returns all groups, those with the largest lag first."""
    return [EVIL, BACKWARDS, *(f"group-{number:02}" for number in range(2, GROUPS))]


def fleet() -> Mapping[str, Rows]:
    """Returns the tables of a fleet of four sidecars over 30 hours."""
    return {
        "groups": [*_groups()],
        "group_lag": [*_group_lag()],
        "lag": [*_lag()],
        "rebalances": [*_rebalances()],
        "refusals": [*_verdicts("refusals", 3)],
        "audits": [*_verdicts("audits", 1)],
        "sidecars": [*_sidecars()],
        "churn": [*_churn()],
        "metrics": [*_metrics()],
        "quarantine": [*_quarantine()],
    }


def _groups() -> Iterator[Mapping[str, Any]]:
    for index, name in enumerate(names()):
        # The last group exists only at the beginning.
        for hours in (0, 29.5) if index < GROUPS - 1 else (0,):
            yield {
                "window": at(hours),
                "group": name,
                "sidecar": f"broker-{index % 2 + 1}",
                "sidecars": 1,
                "protocol": "classic",
                "state": "Empty" if index % 8 == 7 else "Stable",
                "protocol_type": "consumer",
                "assignor": "range",
                "generation": 3,
                "members": index % 8,
                "observed_at": at(hours),
            }


def _group_lag() -> Iterator[Mapping[str, Any]]:
    for index, name in enumerate(names()[:-1]):
        for half in range(2 * HOURS):
            # The second sidecar reports nothing for three hours.
            if index != 1 or not 10 <= half < 16:
                lag = (GROUPS - 2 - index) * (1000 + 37 * half)
                yield {
                    "window": at(half / 2),
                    "group": name,
                    "lag": lag,
                    "max_partition_lag": lag,
                    "lag_seconds": lag / 10,
                    "topics": 1,
                    "partitions": 1,
                    "partitions_without_log_end": 0,
                }


def _lag() -> Iterator[Mapping[str, Any]]:
    for number in range(3):
        yield {
            "window": at(29.5),
            "group": EVIL,
            "topic": "t",
            "partition": number,
            "committed": 10,
            "log_end": 10 + number,
            "lag": number,
            "lag_seconds": float(number),
            "committed_at": at(29.4),
            "log_end_at": at(29.4),
            "skew_seconds": 0.0,
        }


def _rebalances() -> Iterator[Mapping[str, Any]]:
    causes = ("new_member", "session_expired", "topic_metadata", "unknown")
    for index, name in enumerate(names()):
        for hour in range(HOURS):
            if (hour + index) % 3 == 0:
                cause = causes[(hour + index) // 3 % len(causes)]
                yield {
                    "window": at(hour),
                    "group": name,
                    "cause": cause,
                    "reason": "join",
                    "rebalances": 1 + (hour * (GROUPS - index)) % 17,
                    "seconds": 2.0,
                    "longest_seconds": 1.5,
                    "lost_consumer_seconds": 6.0,
                    "members": 3,
                    "last_at": at(hour),
                }


def _verdicts(table: str, policies: int) -> Iterator[Mapping[str, Any]]:
    known = ("group_max_size", "commit_rate", "offset_metadata")
    for index, name in enumerate(names()[: 25 if policies > 1 else 2]):
        for policy in known[: 1 + index % policies]:
            yield {
                "window": at(5),
                "group": name,
                "policy": policy,
                "error_code": 81,
                table: 40 - index,
                "clients": 2,
                "last_at": at(5.2),
            }


def _sidecars() -> Iterator[Mapping[str, Any]]:
    """Yields the rows of four sidecars: one healthy, one restarted with lost records, one cut off, one silent."""
    half_hours = {
        "broker-1": range(2 * HOURS),
        "broker-2": range(2 * HOURS),
        "broker-3": [*range(20), *range(30, 2 * HOURS)],
        "broker-4 <b>": range(2 * HOURS - 8),
    }
    for name, halves in half_hours.items():
        for half in halves:
            second = name == "broker-2" and half >= 33
            yield {
                "window": at(half / 2),
                "sidecar": name,
                "boot": "two" if second else "one",
                "first_seq": half * 100 + (11 if second and half > 33 else 1),
                "last_seq": half * 100 + 100,
                "records": 90 if second and half > 33 else 100,
                "heartbeats": 0 if name == "broker-3" and half < 4 else 30,
                "last_heartbeat": at(half / 2 + 0.49),
                "last_record": at(half / 2 + 0.49),
                "clock_skew_seconds": -2.5 if name == "broker-1" else 40.0,
            }


def _churn() -> Iterator[Mapping[str, Any]]:
    for hour in range(0, HOURS, 2):
        for change, members in (("joined", 5), ("left", 3), ("expired", hour % 3)):
            yield {"window": at(hour), "group": "group-02", "change": change, "members": members}


def _metrics() -> Iterator[Mapping[str, Any]]:
    yield {"window": at(29.5), "metric": "requests_total", "value": 12345.0, "increase": 45.5, "sidecars": 4}
    yield {"window": at(29.5), "metric": "connections", "value": 7.0, "increase": None, "sidecars": 4}


def _quarantine() -> Iterator[Mapping[str, Any]]:
    for number in range(12):
        broken = {"fault": "not_json_object", "sidecar": None, "line": f"{{<i>{number}"}
        old = {"fault": "unknown_version", "sidecar": "broker-1", "line": '{"version":9}'}
        yield {**(old if number % 3 else broken), "arrived_at": at(number)}
