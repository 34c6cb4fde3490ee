"""Target: lines of the journal, as `metrics.array_lines` reads them. Spark's own reader is not part of this target.

- Any bytes give records or ValueError.
- A single record that was read is written and read again as the same record.
- An array line has records of one kind, with numbers that follow one another.
"""

from collections.abc import Iterator

from group_sidecar.metrics.array_lines import records_of
from group_sidecar.metrics.records import (
    ARRAY_BODIES,
    ARRAY_VERSION,
    KINDS,
    VERSION,
    Body,
    Envelope,
    Record,
    array_columns,
    columns,
)
from tests.fuzzing.target import require


def check(data: bytes) -> object:
    """Reads one line."""
    try:
        records = records_of(data)
    except ValueError as error:
        return type(error).__name__
    first = records[0].envelope
    if first.version == ARRAY_VERSION:
        numbers = [record.envelope.seq for record in records]
        require(numbers == [*range(first.seq, first.seq + len(records))], "the numbers of an array line have gaps")
        require({type(record.body) for record in records} == {KINDS[first.kind]}, "an array line has several kinds")
        return records
    record = records[0]
    line = record.to_line()
    require(line.count(b"\n") == 1 and line.endswith(b"\n"), "a record is not one line")
    require(repr(Record.from_line(line)) == repr(record), "a record changes when it is written")
    return record


def seeds() -> Iterator[bytes]:
    """A line of each kind, and lines that are not journal lines."""
    for name, kind in KINDS.items():
        cells = {**_cells(), "kind": name}
        fields = ",".join(f'"{each}":{cells.get(each, 1)!r}'.replace("'", '"') for each in _names(kind))
        yield f'{{"version":{VERSION},"kind":"{name}",{fields}}}'.encode()
    for kind in ARRAY_BODIES:
        arrays = ",".join(f'"{column.name}":[1,2]' for column in array_columns(kind))
        envelope = f'"version":{ARRAY_VERSION},"kind":"{kind.KIND}","sidecar":"a","boot":"b","seq":1,"count":2'
        yield f'{{{envelope},"emitted_at":"x","columns":{{{arrays}}}}}'.encode()
    yield b"[]"
    yield b'{"version":1,"kind":["x"]}'
    yield b"[" * 4_000
    yield b'{"version":' + b"9" * 4_000 + b"}"


def _names(kind: type[Body]) -> list[str]:
    names = [column.name for part in (Envelope, kind) for column in columns(part)]
    return [name for name in names if name not in ("version", "kind")]


def _cells() -> dict[str, object]:
    return {"sidecar": "a:1", "boot": "b", "emitted_at": "2026-11-18T09:46:40.000Z", "group_id": "g"}
