"""The surface of the records for Spark: the contract, and one line of each kind."""

import json
from typing import Any

from group_sidecar.metrics.records import (
    BODIES,
    EARLIEST,
    EARLIEST_OBSERVATION,
    GREATEST,
    TIMESTAMP_FORMAT,
    VERSION,
    Body,
    Envelope,
    Record,
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
    """Returns the contract: version, bounds, kinds and their ordered columns, and a line of each kind."""
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
        }
    )


def _columns(part: type[Envelope | Body]) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "type": each.sql_type, "nullable": each.nullable, "least": each.note.minimum}
        for each in columns(part)
    ]


def _line(kind: type[Body]) -> str:
    envelope = Envelope(**_cells(Envelope) | {"kind": kind.KIND})
    line = Record(envelope=envelope, body=kind(**_cells(kind))).to_line().decode()
    assert json.loads(line)["kind"] == kind.KIND
    return line


def _cells(part: type[Envelope | Body]) -> dict[str, Any]:
    return {each.name: None if each.nullable else SAMPLES[each.sql_type] for each in columns(part)}
