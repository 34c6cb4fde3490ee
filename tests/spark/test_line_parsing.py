"""Lines are parsed as records, or go to quarantine with their fault."""

import json
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from group_sidecar.metrics.records import timestamp
from group_sidecar.spark import line_parsing
from group_sidecar.spark.duplicates import deduplicated
from tests.spark.record_frames import RecordsOfBoot, at, frame, rows

NOON = 12 * 3600.0


def line(**changes: Any) -> str:
    """Returns the line of a commit with these changes. A column with the value `...` is left out."""
    cells = {
        "version": 1,
        "kind": "commit",
        "sidecar": "a",
        "boot": "1",
        "seq": 1,
        "observed_at": "2025-01-31T11:59:00.000Z",
        "emitted_at": "2025-01-31T11:59:00.250Z",
        "group": "g",
        "topic": "t",
        "partition": 0,
        "offset": 42,
        "leader_epoch": -1,
        **changes,
    }
    return json.dumps({name: cell for name, cell in cells.items() if cell is not ...})


VERDICT = {"policy": "p", "error_code": 77, "client_id": "c", "client_host": "/h", "size": 2, "limit": 2}
MEMBER = {"kind": "member", "member_id": "m", "client_id": "c", "client_host": "/h", "change": "joined"}
GOOD = (
    line(),
    line(offset=0),
    line(offset=2**48),
    line(colour="red"),
    line(group="größe ☂"),
    line(observed_at="2025-01-31T12:05:00.000Z"),
    line(observed_at="2024-01-31T12:05:00.000Z"),
    # Kafka uses -1 for an unknown time.
    line(observed_at=timestamp(-0.001)),
    line(emitted_at="2025-01-30T12:00:00.000Z"),
    line(kind="log_end", group=..., leader_epoch=...),
    line(kind="heartbeat", sample={"groups": 3}),
    line(kind="refusal", **VERDICT),
    line(kind="audit", **VERDICT),
    line(**MEMBER),
    line(**MEMBER, principal="User:CN=größe, O=x"),
    line(
        kind="group",
        protocol="classic",
        state="Stable",
        protocol_type="consumer",
        assignor="range",
        generation=-1,
        members=0,
        max_size=None,
    ),
)

DAMAGED = {
    "": "not_json_object",
    "   ": "not_json_object",
    "{": "not_json_object",
    line()[:-1]: "not_json_object",
    line()[:40] + line(): "not_json_object",
    "[]": "not_json_object",
    f"[{line()}]": "not_json_object",
    "7": "not_json_object",
    "null": "not_json_object",
    '"text"': "not_json_object",
    line().replace('"', "'"): "not_json_object",
    "{}": "unknown_version",
    line(version=3): "unknown_version",
    line(version=0): "unknown_version",
    line(version="1"): "unknown_version",
    line(version=...): "unknown_version",
    line(version=3, offset={"new": "shape"}): "unknown_version",
    line(kind="weather"): "unknown_kind",
    line(kind=...): "unknown_kind",
    line(kind=None): "unknown_kind",
    line(offset="42"): "wrong_type",
    line(offset=4.2): "wrong_type",
    line(offset=True): "wrong_type",
    line(offset=2**63): "wrong_type",
    line(offset=[42]): "wrong_type",
    line(observed_at="yesterday"): "wrong_type",
    line(observed_at="2025-01-31"): "wrong_type",
    line(kind="heartbeat", sample=[1]): "wrong_type",
    line(offset=...): "missing_column",
    line(offset=None): "missing_column",
    line(group=...): "missing_column",
    line(seq=...): "missing_column",
    line(emitted_at=...): "missing_column",
    line(sidecar=None): "missing_column",
    line(kind="heartbeat"): "missing_column",
    line(offset=-1): "out_of_range",
    line(partition=-1): "out_of_range",
    line(offset=2**48 + 1): "out_of_range",
    line(kind="rebalance", generation=1, reason="join", cause=None, members=1)[:-1]
    + ', "duration_seconds": 1e400}': "out_of_range",
    line(leader_epoch=-2): "out_of_range",
    line(seq=0): "out_of_range",
    line(
        kind="rebalance", generation=1, reason="join", cause="new_member", duration_seconds=-0.5, members=1
    ): "out_of_range",
    line(emitted_at="2025-01-31T12:05:00.001Z"): "in_future",
    line(emitted_at="2025-01-30T11:59:59.999Z"): "too_old",
    # The time of a clock that was never set.
    line(observed_at="1970-01-01T00:00:12.000Z", emitted_at="1970-01-01T00:00:12.000Z"): "too_old",
    line(observed_at="2999-01-01T00:00:00.000Z"): "in_future",
    line(emitted_at="0000-01-01T00:00:00.000Z"): "too_old",
    line(emitted_at="0001-01-01T00:00:00.000Z"): "too_old",
    line(observed_at="0000-01-01T00:00:00.000Z"): "too_old",
    line(observed_at="1969-12-30T23:59:59.999Z"): "too_old",
    line(emitted_at="9999-12-31T23:59:59.999Z"): "in_future",
}


def judged(spark: SparkSession, *lines: str) -> DataFrame:
    """Returns the result for lines that arrive at noon and are judged then. Records older than a day are too old."""
    arrived = spark.createDataFrame([(line, at(NOON)) for line in lines], "value STRING, arrived_at TIMESTAMP")
    return line_parsing.judged(arrived, F.lit(at(NOON)), F.lit(at(NOON - 24 * 3600)))


def test_damaged_lines_are_quarantined(spark: SparkSession) -> None:
    """Damaged lines go to quarantine with their fault."""
    found = line_parsing.quarantined(judged(spark, *GOOD, *DAMAGED)).collect()
    assert {row["line"]: row["fault"] for row in found} == DAMAGED
    assert len(found) == len(DAMAGED)


def test_quarantine_has_sidecar_and_arrival(spark: SparkSession) -> None:
    """The quarantine contains a line's sidecar, if it can be read, and its arrival time."""
    found = rows(
        line_parsing.quarantined(judged(spark, line(offset=-1, sidecar="broker-3"), "{")),
        "fault",
        "sidecar",
        "arrived_at",
    )
    assert found == [("not_json_object", None, at(NOON)), ("out_of_range", "broker-3", at(NOON))]


def test_valid_lines_become_records(spark: SparkSession) -> None:
    """Valid lines become records with their values and arrival times."""
    records = line_parsing.accepted(judged(spark, *GOOD, *DAMAGED))
    found = records.collect()
    assert Counter(row["kind"] for row in found) == {
        "commit": 9,
        "log_end": 1,
        "heartbeat": 1,
        "group": 1,
        "refusal": 1,
        "audit": 1,
        "member": 2,
    }
    assert {row["principal"] for row in found if row["kind"] == "member"} == {None, "User:CN=größe, O=x"}
    assert [row["sample"] for row in found if row["kind"] == "heartbeat"] == [{"groups": 3.0}]
    commits = records.where("group = 'größe ☂'").select(
        "version", "sidecar", "boot", "seq", "topic", "partition", "offset", F.unix_millis("emitted_at")
    )
    assert [tuple(row) for row in commits.collect()] == [(1, "a", "1", 1, "t", 0, 42, 1738324740250)]
    assert rows(records.where("kind = 'heartbeat'"), "arrived_at") == [(at(NOON),)]


def test_default_time_limits(
    spark: SparkSession,
) -> None:
    """Without a given time, lines are judged by the current time, and only times before the contract's limit are too
    old.
    """
    old, new, never = (line(emitted_at=f"{year}-01-01T00:00:00.000Z") for year in (2020, 2999, 2019))
    lines = spark.createDataFrame([(each, None) for each in (old, new, never)], "value STRING, arrived_at TIMESTAMP")
    assert [tuple(row) for row in line_parsing.judged(lines).orderBy("fault").select("fault", "line").collect()] == [
        (None, None),
        ("in_future", new),
        ("too_old", never),
    ]


def test_impossible_arrival_time_is_null(spark: SparkSession) -> None:
    """An implausible arrival time becomes null."""
    moments = [at(0).replace(year=year) for year in (1, 1970, 2025, 2026, 9999)]
    arrived = spark.createDataFrame([(line(), each) for each in moments], "value STRING, arrived_at TIMESTAMP")
    records = line_parsing.accepted(line_parsing.judged(arrived, F.lit(at(NOON))))
    assert sorted(map(str, records.select("arrived_at").collect())) == [
        *["Row(arrived_at=None)"] * 4,
        f"Row(arrived_at={at(0).replace(tzinfo=None)!r})",
    ]


def test_line_is_parsed_once(spark: SparkSession) -> None:
    """The query plan parses each line's JSON only once."""
    lines = judged(spark, line())
    for asked in (
        line_parsing.accepted(lines),
        line_parsing.quarantined(lines),
        lines.where("fault IS NULL AND seq > 1"),
    ):
        assert str(asked._jdf.queryExecution().optimizedPlan()).count("from_json") == 1


def test_record_counts_once(spark: SparkSession) -> None:
    """A record is identified by sidecar, boot and number, and its copies count once."""
    first, other_boot, other_sidecar = RecordsOfBoot(), RecordsOfBoot(boot="2"), RecordsOfBoot(sidecar="b")
    once = [boot.heartbeat(1) for boot in (first, first, other_boot, other_sidecar)]
    again = [once[0], once[0], once[3]]
    found = deduplicated(frame(spark, *once, *again)).select("sidecar", "boot", "seq").collect()
    assert sorted(map(tuple, found)) == [("a", "1", 1), ("a", "1", 2), ("a", "2", 1), ("b", "1", 1)]


def test_first_arrival_counts(spark: SparkSession) -> None:
    """If a record has several copies, the earliest arrival time counts."""
    one, two = RecordsOfBoot().heartbeat(1), RecordsOfBoot("b").heartbeat(1)
    copies = [{**each, "arrived_at": at(seconds)} for each, seconds in ((one, 9), (one, 3), (two, 3), (two, 9))]
    found = deduplicated(frame(spark, *copies))
    assert rows(found, "sidecar", "arrived_at") == [("a", at(3)), ("b", at(3))]
    assert found.columns == frame(spark).columns


@pytest.mark.usefixtures("spark")
def test_schema_has_each_column_once() -> None:
    """The schema contains each column of the record contract once, with its type."""
    schema = StructType.fromDDL(line_parsing.record_ddl())
    assert isinstance(schema, StructType)
    assert {field.name: field.dataType.simpleString() for field in schema} == {
        "version": "bigint",
        "kind": "string",
        "sidecar": "string",
        "boot": "string",
        "seq": "bigint",
        "observed_at": "timestamp",
        "emitted_at": "timestamp",
        "sample": "map<string,double>",
        "group": "string",
        "protocol": "string",
        "state": "string",
        "protocol_type": "string",
        "assignor": "string",
        "generation": "bigint",
        "members": "bigint",
        "max_size": "bigint",
        "topic": "string",
        "partition": "bigint",
        "offset": "bigint",
        "leader_epoch": "bigint",
        "reason": "string",
        "cause": "string",
        "duration_seconds": "double",
        "policy": "string",
        "error_code": "bigint",
        "client_id": "string",
        "client_host": "string",
        "principal": "string",
        "size": "bigint",
        "limit": "bigint",
        "member_id": "string",
        "instance_id": "string",
        "change": "string",
    }
