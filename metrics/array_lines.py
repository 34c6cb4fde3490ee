"""Array lines of the record contract: many records of one kind on one line of JSON.

`ArrayBuilder` collects records of one kind until a line is full. `ArrayLine` is a complete line. The line is kept as
bytes, which take less memory than its records. `records_of` reads the records of any line.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from group_sidecar.metrics.records import (
    ARRAY_BODIES,
    ARRAY_RECORDS,
    ARRAY_VERSION,
    EARLIEST_OBSERVATION,
    GREATEST,
    KINDS,
    ArrayEnvelope,
    Body,
    Envelope,
    Record,
    Timestamp,
    array_columns,
    columns,
)

ARRAY_LINE_BYTES = 128 * 1024
"""The largest size of an array line of several records. A topic accepts messages of 1 MiB by default
(`message.max.bytes`)."""

_COUNTS = re.compile(rb'"count":([0-9]+),"emitted_at":"[^"]*","columns":')
"""Finds the number of records in an array line. In a JSON string, a backslash precedes each quotation mark, so this
text is never part of a string."""
_NUMBERS = {
    body: [(column.name, column.note.minimum) for column in columns(body) if column.sql_type == "BIGINT"]
    for body in ARRAY_BODIES
}
_TEXTS = {body: [column.name for column in columns(body) if column.sql_type == "STRING"] for body in ARRAY_BODIES}

Row = tuple[Timestamp, Body]
"""The values of a record that differ between the records of an array line: `observed_at`, and the body."""


class Line(Protocol):
    """A line of the journal: a `Record`, or an `ArrayLine`."""

    @property
    def count(self) -> int:
        """The number of records of the line."""

    @property
    def emitted_at(self) -> Timestamp:
        """When the records were made."""

    def to_line(self) -> bytes:
        """Returns the line with its line end."""

    def halves(self) -> "Sequence[Line]":
        """Returns two lines with the same records, or no line if there is only one record."""


@dataclass(frozen=True, slots=True)
class ArrayLine:
    """A line with many records of one kind.

    Attributes:
        envelope: the values that all records of the line share.
        encoded: the line in UTF-8, with its line end.
    """

    envelope: ArrayEnvelope
    encoded: bytes

    @property
    def count(self) -> int:
        """The number of records."""
        return self.envelope.count

    @property
    def emitted_at(self) -> Timestamp:
        """When the records were made."""
        return self.envelope.emitted_at

    def to_line(self) -> bytes:
        """Returns the line with its line end."""
        return self.encoded

    def halves(self) -> "Sequence[ArrayLine]":
        """Returns two lines with the same records under the same numbers, or no line if there is only one record."""
        if self.count == 1:
            return ()
        arrays = json.loads(self.encoded)["columns"]
        first = (self.count + 1) // 2
        ranges = ((0, first), (first, self.count))
        return [
            _encoded(
                replace(self.envelope, seq=self.envelope.seq + begin, count=end - begin),
                {name: array[begin:end] for name, array in arrays.items()},
            )
            for begin, end in ranges
        ]


def array_line(envelope: ArrayEnvelope, rows: Sequence[Row]) -> ArrayLine:
    """Returns the line of `envelope.count` records. Never raises if all types are right."""
    names = [column.name for column in columns(KINDS[envelope.kind])]
    bodies = [body for _, body in rows]
    arrays: dict[str, list[Any]] = {"observed_at": [observed_at for observed_at, _ in rows]}
    return _encoded(envelope, arrays | {name: [getattr(body, name) for body in bodies] for name in names})


def _encoded(envelope: ArrayEnvelope, arrays: Mapping[str, Sequence[Any]]) -> ArrayLine:
    cells = {field.name: getattr(envelope, field.name) for field in fields(envelope)} | {"columns": arrays}
    text = json.dumps(cells, ensure_ascii=False, separators=(",", ":"))
    # A lone surrogate is written as its JSON escape.
    return ArrayLine(envelope, text.encode("utf-8", "backslashreplace") + b"\n")


def record_count(lines: bytes) -> int:
    """Returns the number of records of lines that a sidecar has written."""
    return lines.count(b"\n") + sum(int(count) - 1 for count in _COUNTS.findall(lines))


def records_of(line: bytes) -> Sequence[Record]:
    """Returns the records of a line of any version. The types of the values in the records are not checked.

    Raises:
        ValueError: the line is not a JSON object, has an unknown version or kind, or lacks a column or a value.
    """
    try:
        cells = json.loads(line)
    except RecursionError as error:
        raise ValueError("a line that is nested too deeply") from error
    if not isinstance(cells, dict) or cells.get("version") != ARRAY_VERSION:
        return (Record.from_line(line),)
    lacking = [column.name for column in columns(ArrayEnvelope) if cells.get(column.name) is None]
    kind, count, arrays = cells.get("kind"), cells.get("count"), cells.get("columns")
    if lacking or not isinstance(arrays, dict):
        raise ValueError(f"an array line lacks {', '.join(lacking or ['columns'])}")
    if not isinstance(kind, str) or KINDS.get(kind) not in ARRAY_BODIES:
        raise ValueError(f"no such kind of array line: {kind!r}")
    if not isinstance(cells["seq"], int) or not isinstance(count, int) or not 1 <= count <= ARRAY_RECORDS:
        raise ValueError(f"an array line of {count!r} records from number {cells['seq']!r} on")
    return tuple(_records(cells, KINDS[kind], arrays))


def _records(cells: Mapping[str, Any], kind: type[Body], arrays: Mapping[str, Any]) -> Iterator[Record]:
    count = cells["count"]
    values = {column.name: arrays.get(column.name) for column in array_columns(kind)}
    for column in array_columns(kind):
        array = values[column.name]
        if array is None and column.nullable:
            values[column.name] = array = [None] * count
        if not isinstance(array, list) or len(array) != count or (not column.nullable and None in array):
            raise ValueError(f"an array line lacks values of {column.name}")
    shared = {field.name: cells[field.name] for field in fields(Envelope) if field.name in cells}
    for place in range(count):
        row = {name: array[place] for name, array in values.items() if array is not None}
        envelope = Envelope(**shared | {"seq": cells["seq"] + place, "observed_at": row.pop("observed_at")})
        yield Record(envelope=envelope, body=kind(**row))


class ArrayBuilder:
    """Collects records of one kind, all made at one time, until an array line is full.

    Attributes:
        rows: the collected records.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._characters = 0

    def add(self, row: Row) -> bool:
        """Adds a record. Returns whether the line is full."""
        self.rows.append(row)
        body = row[1]
        # A character takes at least one byte. `take` splits lines that are too long because characters take more.
        self._characters += sum(len(getattr(body, name)) for name in _TEXTS[type(body)])
        return len(self.rows) >= ARRAY_RECORDS or self._characters >= ARRAY_LINE_BYTES

    def take(self, envelope: ArrayEnvelope) -> Sequence[ArrayLine]:
        """Returns the lines of the collected records, and forgets the records.

        The result is one line, or several lines if a single line would exceed `ARRAY_LINE_BYTES`.

        `envelope`: the envelope of one line with all collected records.
        """
        line = array_line(envelope, self.rows)
        self.rows = []
        self._characters = 0
        return tuple(_within_limit(line))


def _within_limit(line: ArrayLine) -> Iterator[ArrayLine]:
    halves = line.halves() if len(line.encoded) > ARRAY_LINE_BYTES else ()
    if not halves:
        yield line
    for half in halves:
        yield from _within_limit(half)


def is_surely_valid(row: Row, emitted_at: Timestamp) -> bool:
    """Whether the contract allows a record that was made at `emitted_at`, whatever the reader's clock shows."""
    observed_at, body = row
    if not EARLIEST_OBSERVATION <= observed_at <= emitted_at:
        return False
    for name, minimum in _NUMBERS[type(body)]:
        value = getattr(body, name)
        if value is not None and (value > GREATEST or (minimum is not None and value < minimum)):
            return False
    return True
