"""The record contract as a JSON Schema, draft 2020-12, for programs that read or write records without this project.

The schema is made from the columns that `records` declares. The schema describes one line of a journal, or the value of
one message of the topic. A line has one record (version 1) or many records of one kind (version 2).

``python -m group_sidecar.metrics.records_schema`` prints the schema: docs/records.schema.json.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from group_sidecar.metrics.records import (
    ARRAY_BODIES,
    ARRAY_RECORDS,
    ARRAY_VERSION,
    BODIES,
    EARLIEST,
    EARLIEST_OBSERVATION,
    GREATEST,
    KINDS,
    VERSION,
    AnyPart,
    ArrayEnvelope,
    Body,
    Column,
    Envelope,
    array_columns,
    columns,
)

JsonSchema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
IDENTIFIER = f"urn:kafka-group-sidecar:records:{ARRAY_VERSION}"
"""The `$id` of the schema, which is a name and not an address to fetch."""

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
A line of a journal without its line end, or the value of a message of the topic. docs/records.md describes the \
contract. Columns that the schema does not name are allowed, and readers ignore them. A column that may be null may \
also be missing, as in records of older sidecars. A column that only other kinds have may be there, with its type or \
null, and is ignored. Six rules cannot be expressed here: an integer is written without fraction and exponent, a \
timestamp is of a day that exists, no emitted_at is before {EARLIEST}, no observed_at is before \
{EARLIEST_OBSERVATION}, each array of an array line has count values, and no record of an array line has a number \
greater than {GREATEST}."""


def json_schema() -> JsonSchema:
    """Returns the schema of a line.

    The types of all columns apply to every line. The rest depends on `version` and `kind`.
    """
    return {
        "$schema": DIALECT,
        "$id": IDENTIFIER,
        "title": f"Line of a sidecar's journal, version {VERSION} or {ARRAY_VERSION} of the contract",
        "description": _DESCRIPTION,
        "type": "object",
        "required": [name for name in _required(Envelope) if name in _required(ArrayEnvelope)],
        "properties": {
            **_properties(Envelope),
            **_types_of_bodies(),
            "version": {"description": _note("version"), "enum": [VERSION, ARRAY_VERSION]},
            "kind": {"description": _note("kind"), "enum": [*KINDS]},
            "observed_at": {"description": _note("observed_at"), "$ref": "#/$defs/timestamp_or_null"},
            "count": {"$ref": "#/$defs/bigint_or_null"},
            "columns": {"type": ["object", "null"], "properties": _types_of_arrays()},
        },
        "if": _given("version", ARRAY_VERSION),
        "then": {"$ref": "#/$defs/array_line"},
        "else": {"$ref": "#/$defs/record"},
        "$defs": {
            "record": _record(),
            "array_line": _array_line(),
            **{body.KIND: _definition(body) for body in BODIES},
            **{f"{body.KIND}_columns": _arrays(body) for body in ARRAY_BODIES},
            **{_type_name(column.sql_type): _or_null(_TYPES[column.sql_type]) for column in _typed_columns()},
        },
    }


def json_schema_text() -> str:
    """Returns the schema as text, the content of docs/records.schema.json."""
    return json.dumps(json_schema(), indent=2) + "\n"


def _note(name: str) -> str:
    return next(column.note.text for column in columns(Envelope) if column.name == name)


def _record() -> JsonSchema:
    """Returns the rules for a line that is one record. `json_schema` adds the rules for every line."""
    observed_at = next(column for column in columns(Envelope) if column.name == "observed_at")
    return {
        "description": "A line that is one record.",
        "required": [observed_at.name],
        "properties": {observed_at.name: _described(observed_at)},
        "allOf": [_of_kind(body, {"$ref": f"#/$defs/{body.KIND}"}) for body in BODIES],
    }


def _array_line() -> JsonSchema:
    """Returns the rules for a line with many records. `json_schema` adds the rules for every line."""
    described = _properties(ArrayEnvelope)
    return {
        "description": f"A line with at most {ARRAY_RECORDS} records of one kind.",
        "required": ["count", "columns"],
        "properties": {
            "kind": {**described["kind"], "enum": [body.KIND for body in ARRAY_BODIES]},
            "seq": described["seq"],
            "count": {**described["count"], "maximum": ARRAY_RECORDS},
            "columns": {
                "description": "One array for each column. Each array has `count` values.",
                "type": "object",
            },
        },
        "allOf": [
            _of_kind(body, {"properties": {"columns": {"$ref": f"#/$defs/{body.KIND}_columns"}}})
            for body in ARRAY_BODIES
        ],
    }


def _of_kind(body: type[Body], then: JsonSchema) -> JsonSchema:
    return {"if": _given("kind", body.KIND), "then": then}


def _given(name: str, value: object) -> JsonSchema:
    # A line without the column would match the condition, because `properties` ignores missing columns.
    return {"properties": {name: {"const": value}}, "required": [name]}


def _arrays(body: type[Body]) -> JsonSchema:
    """Returns the arrays of an array line of this kind."""
    chosen = array_columns(body)
    return {
        "description": f"The columns of an array line of the kind {body.KIND}.",
        "required": [column.name for column in chosen if not column.nullable],
        "properties": {column.name: _array(column) for column in chosen},
    }


def _array(column: Column) -> JsonSchema:
    described = _described(column)
    items = {name: each for name, each in described.items() if name != "description"}
    array: JsonSchema = {"type": "array", "items": items, "minItems": 1, "maxItems": ARRAY_RECORDS}
    return {"description": column.note.text, **(_or_null(array) if column.nullable else array)}


def _definition(body: type[Body]) -> JsonSchema:
    return {
        "description": (body.__doc__ or "").strip(),
        "required": _required(body),
        "properties": _properties(body),
    }


def _required(part: AnyPart) -> list[str]:
    return [column.name for column in columns(part) if not column.nullable]


def _properties(part: AnyPart) -> JsonSchema:
    return {column.name: _described(column) for column in columns(part)}


def _types_of_bodies() -> JsonSchema:
    """Returns the type of every column that some kind has. Spark reads all kinds with one schema, so a column has one
    type in all of them.
    """
    return {column.name: _type(column) for body in BODIES for column in columns(body)}


def _types_of_arrays() -> JsonSchema:
    """Returns the type of each array that an array line may have. An array has one type in all kinds."""
    arrays = (column for body in ARRAY_BODIES for column in array_columns(body))
    return {column.name: {"type": ["array", "null"], "items": _type(column)} for column in arrays}


def _typed_columns() -> Iterator[Column]:
    return (column for part in (*BODIES, Envelope) for column in columns(part))


def _type(column: Column) -> JsonSchema:
    return {"$ref": f"#/$defs/{_type_name(column.sql_type)}"}


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
