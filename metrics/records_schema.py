"""The record contract as a JSON Schema, draft 2020-12, for programs that read or write records without this project.

The schema is made from the columns that `records` declares. It describes one line of a journal and the value of one
message of the topic.

``python -m group_sidecar.metrics.records_schema`` prints the schema: docs/records.schema.json.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from group_sidecar.metrics.records import (
    BODIES,
    EARLIEST,
    EARLIEST_OBSERVATION,
    GREATEST,
    KINDS,
    VERSION,
    Body,
    Column,
    Envelope,
    columns,
)

JsonSchema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
IDENTIFIER = f"urn:kafka-group-sidecar:records:{VERSION}"
"""The `$id` of the schema. It is a name and no address: nobody has to fetch it."""

_TIMESTAMP_PATTERN = (
    "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{3}Z$"
)
_TYPES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "STRING": {"type": "string"},
        "BIGINT": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
        "DOUBLE": {"type": "number"},
        # In some languages, Python among them, `$` also matches before a line feed at the end. `maxLength` refuses it.
        "TIMESTAMP": {"type": "string", "format": "date-time", "pattern": _TIMESTAMP_PATTERN, "maxLength": 24},
        "MAP<STRING, DOUBLE>": {"type": "object", "additionalProperties": {"type": "number"}},
    }
)
"""The JSON Schema of each type that a column may have in Spark SQL."""
_BOUNDED = ("integer", "number")

_DESCRIPTION = f"""\
One record: a line of a journal without its line end, or the value of a message of the topic. docs/records.md \
describes the contract. Columns that the schema does not name are allowed, and readers ignore them. A column that may \
be null may also be missing, as in records of older sidecars. A column that only other kinds have may be there, with \
its type or null, and is ignored. Four rules cannot be expressed here: an integer is written without fraction and \
exponent, a timestamp is of a day that exists, no emitted_at is before {EARLIEST}, and no observed_at is before \
{EARLIEST_OBSERVATION}."""


def json_schema() -> JsonSchema:
    """Returns the schema of a record.

    The columns of the envelope and the types of all columns apply to every record. The rest depends on `kind`.
    """
    return {
        "$schema": DIALECT,
        "$id": IDENTIFIER,
        "title": f"Record of a sidecar, version {VERSION} of the contract",
        "description": _DESCRIPTION,
        "type": "object",
        "required": _required(Envelope),
        "properties": {**_properties(Envelope), **_fixed(), **_types_of_bodies()},
        "allOf": [_of_kind(body) for body in BODIES],
        "$defs": {
            **{body.KIND: _definition(body) for body in BODIES},
            **{_type_name(column.sql_type): _or_null(_TYPES[column.sql_type]) for column in _body_columns()},
        },
    }


def json_schema_text() -> str:
    """Returns the schema as text, the content of docs/records.schema.json."""
    return json.dumps(json_schema(), indent=2) + "\n"


def _fixed() -> JsonSchema:
    """Returns the columns of the envelope whose values are known, with these values."""
    version, kind = (_described(column) for column in columns(Envelope) if column.name in ("version", "kind"))
    return {"version": {**version, "const": VERSION}, "kind": {**kind, "enum": [*KINDS]}}


def _of_kind(body: type[Body]) -> JsonSchema:
    # A record without `kind` would match the condition of every kind, because `properties` ignores missing columns.
    condition = {"properties": {"kind": {"const": body.KIND}}, "required": ["kind"]}
    return {"if": condition, "then": {"$ref": f"#/$defs/{body.KIND}"}}


def _definition(body: type[Body]) -> JsonSchema:
    return {
        "description": (body.__doc__ or "").strip(),
        "required": _required(body),
        "properties": _properties(body),
    }


def _required(part: type[Envelope | Body]) -> list[str]:
    return [column.name for column in columns(part) if not column.nullable]


def _properties(part: type[Envelope | Body]) -> JsonSchema:
    return {column.name: _described(column) for column in columns(part)}


def _types_of_bodies() -> JsonSchema:
    """Returns the type of every column that some kind has. Spark reads all kinds with one schema, so a column has one
    type in all of them.
    """
    return {column.name: {"$ref": f"#/$defs/{_type_name(column.sql_type)}"} for column in _body_columns()}


def _body_columns() -> Iterator[Column]:
    return (column for body in BODIES for column in columns(body))


def _type_name(sql_type: str) -> str:
    """Returns the name of a type under `$defs`, for instance `map_string_double_or_null`."""
    return "_".join((*re.findall(r"[a-z]+", sql_type.lower()), "or_null"))


def _described(column: Column) -> JsonSchema:
    """Returns the schema of a column of a part: its meaning, type and bounds."""
    declared = {**_TYPES[column.sql_type], **dict(_bounds(column))}
    return {"description": column.note.text, **(_or_null(declared) if column.nullable else declared)}


def _bounds(column: Column) -> Iterator[tuple[str, int]]:
    if _TYPES[column.sql_type]["type"] in _BOUNDED:
        if column.note.minimum is not None:
            yield "minimum", column.note.minimum
        yield "maximum", GREATEST


def _or_null(declared: Mapping[str, Any]) -> JsonSchema:
    return {**declared, "type": [declared["type"], "null"]}


if __name__ == "__main__":
    sys.stdout.write(json_schema_text())
