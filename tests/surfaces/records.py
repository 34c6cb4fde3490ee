"""The surface of the records for Spark: the contract, and one line of each kind."""

import json
from typing import Any

from group_sidecar.metrics.array_lines import array_line
from group_sidecar.metrics.records import (
    ARRAY_BODIES,
    ARRAY_RECORDS,
    ARRAY_VERSION,
    BODIES,
    EARLIEST,
    EARLIEST_OBSERVATION,
    GREATEST,
    TIMESTAMP_FORMAT,
    VERSION,
    AnyPart,
    ArrayEnvelope,
    Body,
    Envelope,
    Record,
    array_columns,
    columns,
    timestamp,
)
from tests.surfaces.texts import as_json

SAMPLES = {
    "STRING": "text",
    "BIGINT": 1,
    "DOUBLE": 0.5,
    "TIMESTAMP": timestamp(0.25),
    "MAP<STRING, DOUBLE>": {"a": 1.5},
}
"""A sample value of each type that a column may have."""


def records() -> str:
    """Returns the contract: version, bounds, kinds and their ordered columns, and lines of each kind."""
    return as_json(
        {
            "version": VERSION,
            "greatest": GREATEST,
            "earliest": EARLIEST,
            "earliest_observation": EARLIEST_OBSERVATION,
            "timestamp_format": TIMESTAMP_FORMAT,
            "envelope": _columns(Envelope),
            "kinds": {body.KIND: _columns(body) for body in BODIES},
            "lines": [_line(body) for body in BODIES],
            "array_version": ARRAY_VERSION,
            "array_records": ARRAY_RECORDS,
            "array_envelope": _columns(ArrayEnvelope),
            "array_kinds": {body.KIND: [column.name for column in array_columns(body)] for body in ARRAY_BODIES},
            "array_lines": [_array_line(body) for body in ARRAY_BODIES],
        }
    )


def _columns(part: AnyPart) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "type": each.sql_type, "nullable": each.nullable, "least": each.note.minimum}
        for each in columns(part)
    ]


def _line(kind: type[Body]) -> str:
    envelope = Envelope(**_cells(Envelope) | {"kind": kind.KIND})
    line = Record(envelope=envelope, body=kind(**_cells(kind))).to_line().decode()
    assert json.loads(line)["kind"] == kind.KIND
    return line


def _array_line(kind: type[Body]) -> str:
    envelope = ArrayEnvelope(**_cells(ArrayEnvelope) | {"version": ARRAY_VERSION, "kind": kind.KIND, "count": 2})
    row = SAMPLES["TIMESTAMP"], kind(**_cells(kind))
    return array_line(envelope, [row, row]).to_line().decode()  # type: ignore[list-item]


def _cells(part: AnyPart) -> dict[str, Any]:
    return {each.name: None if each.nullable else SAMPLES[each.sql_type] for each in columns(part)}
