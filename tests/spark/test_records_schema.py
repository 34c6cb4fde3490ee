"""The JSON Schema of the records and the job's own reading of lines have the same verdict on a line."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from group_sidecar.metrics.records import (
    ARRAY_BODIES,
    BODIES,
    GREATEST,
    ArrayEnvelope,
    Body,
    Column,
    Envelope,
    array_columns,
    columns,
    timestamp,
)
from group_sidecar.metrics.records_schema import json_schema
from group_sidecar.spark import line_parsing
from group_sidecar.spark.line_parsing import Fault
from tests.spark import test_array_lines
from tests.spark.test_array_lines import array
from tests.spark.test_line_parsing import DAMAGED, GOOD

VALIDATOR = Draft202012Validator(json_schema())
SEEN = timestamp(datetime(2025, 1, 31, 12, tzinfo=UTC).timestamp())
PLAIN = {"STRING": "text", "BIGINT": 1, "DOUBLE": 0.5, "TIMESTAMP": SEEN, "MAP<STRING, DOUBLE>": {"a": 1.5}}
ODD: tuple[Any, ...] = (
    *(None, True, "", "1", "text", "NaN", SEEN, SEEN[:10], "2025-13-01T00:00:00.000Z"),
    *([], [1], {}, {"a": 1}, {"a": "1"}, {"a": {}}, {"a": None}),
    *(0, -1, -2, 0.5, -0.5, GREATEST, GREATEST + 1, 2**63, -(2**63), -(2**63) - 1),
)
"""Values of all types, with the bounds of the contract and values beyond them."""
TIMES = (Fault.IN_FUTURE, Fault.TOO_OLD)
"""Faults that depend on a time. A schema cannot compare times."""


def lines_of(body: type[Body]) -> Iterator[tuple[str, str, Any]]:
    """Each column of all kinds, each odd value, and the line of a record of this kind with the value in the column."""
    own = (*columns(Envelope), *columns(body))
    good = {column.name: PLAIN[column.sql_type] for column in own} | {"kind": body.KIND}
    parts: tuple[type[Envelope | Body], ...] = (Envelope, *BODIES)
    for column in {column.name: column for part in parts for column in columns(part)}.values():
        for odd in ODD:
            if not _is_lenient(column, odd):
                yield column.name, repr(odd), json.dumps(good | {column.name: odd})
        if column in own:
            yield column.name, "missing", json.dumps({name: good[name] for name in good if name != column.name})


def _is_lenient(column: Column, odd: Any) -> bool:
    """Whether Spark accepts a value although the schema does not.

    Spark reads any JSON as text, a whole number as a moment, and a null as a figure. Queries leave such a figure out.
    """
    if column.sql_type == "STRING":
        return odd is not None and not isinstance(odd, str)
    if column.sql_type == "TIMESTAMP":
        return isinstance(odd, int) and not isinstance(odd, bool)
    return isinstance(odd, dict) and None in odd.values()


def test_schema_agrees_with_examples() -> None:
    """A line that the job takes is valid. A line in quarantine is not, unless only its time is wrong."""
    assert [line for line in GOOD if not VALIDATOR.is_valid(json.loads(line))] == []
    found = {line for line, fault in DAMAGED.items() if fault not in TIMES and _is_valid(line)}
    assert found == set()
    assert all(_is_valid(line) for line, fault in DAMAGED.items() if fault in TIMES)


UNEXPRESSED = {
    array(offset=[42]),
    array(offset=[42, 43, 44]),
    array("group", max_size=[5]),
    array(count=3),
    array(seq=GREATEST),
}
"""Array lines whose fault a schema cannot express: it cannot compare `count` with the length of an array."""


def test_schema_agrees_with_array_lines() -> None:
    """An array line that the job takes is valid. Others are not, but for times and what a schema cannot express."""
    assert [line for line in test_array_lines.GOOD if not _is_valid(line)] == []
    damaged = test_array_lines.DAMAGED
    found = {line for line, fault in damaged.items() if fault not in TIMES and _is_valid(line)}
    assert found == UNEXPRESSED
    assert all(_is_valid(line) for line, fault in damaged.items() if fault in TIMES)


def test_schema_agrees_with_odd_array_lines(spark: SparkSession) -> None:
    """The schema and the job agree on each odd value in each column and array of an array line of each kind."""
    samples = [each for body in ARRAY_BODIES for each in array_lines_of(body)]
    lines = spark.createDataFrame(samples, "name STRING, odd STRING, value STRING")
    judged = line_parsing.judged(lines.selectExpr("value", "CAST(NULL AS TIMESTAMP) AS arrived_at"))
    faults = {row["line"]: row["fault"] for row in line_parsing.quarantined(judged).collect()}
    apart = [(*each, faults.get(line)) for *each, line in samples if _is_valid(line) != (faults.get(line) is None)]
    assert apart == []
    assert len(faults) < len(samples)


def array_lines_of(body: type[Body]) -> Iterator[tuple[str, str, str]]:
    """Each column and array, each odd value, and the array line with the value there: as one of two, or instead."""
    good = json.loads(array(body.KIND))
    for column in columns(ArrayEnvelope):
        for odd in ODD:
            # `count` and the numbers that follow `seq` are compared in `UNEXPRESSED`.
            if not _is_lenient(column, odd) and (column.name, odd) not in (("count", 1), ("seq", GREATEST)):
                yield column.name, repr(odd), json.dumps(good | {column.name: odd})
    for column in array_columns(body):
        for odd in ODD:
            if not _is_lenient(column, odd):
                arrays = good["columns"] | {column.name: [good["columns"][column.name][0], odd]}
                yield column.name, f"one value is {odd!r}", json.dumps(good | {"columns": arrays})
            if not isinstance(odd, list):
                arrays = good["columns"] | {column.name: odd}
                yield column.name, f"not an array: {odd!r}", json.dumps(good | {"columns": arrays})


def _is_valid(line: str) -> bool:
    try:
        return bool(VALIDATOR.is_valid(json.loads(line)))
    except json.JSONDecodeError:
        return False


def test_schema_agrees_with_odd_lines(spark: SparkSession) -> None:
    """The schema and the job agree on each odd value in each column of a record of each kind."""
    samples = [(body.KIND, *each) for body in BODIES for each in lines_of(body)]
    lines = spark.createDataFrame(samples, "kind STRING, name STRING, odd STRING, value STRING")
    judged = line_parsing.judged(lines.selectExpr("value", "CAST(NULL AS TIMESTAMP) AS arrived_at"))
    faults = {row["line"]: row["fault"] for row in line_parsing.quarantined(judged).collect()}
    apart = [
        (kind, name, odd, faults.get(line))
        for kind, name, odd, line in samples
        if _is_valid(line) != (faults.get(line) is None)
    ]
    assert apart == []
    assert {*faults.values()} >= {fault.value for fault in Fault} - {*TIMES, Fault.NOT_JSON_OBJECT}
    assert len(faults) < len(samples)
