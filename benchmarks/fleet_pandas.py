"""Computes the tables of the fleet pipeline with pandas on one machine, for comparison with Spark.

    python -m benchmarks.fleet_pandas INPUT OUTPUT [pyarrow|pandas]

The queries are written as an experienced pandas user with enough memory would write them, independently of the
pipeline's queries.

Lines are read by pyarrow or by pandas' own reader, which takes several times as long. Both readers accept either a
whole block or nothing, so a block with an unreadable line is halved until that line is alone. Names become categories,
so that groups are formed by numbers. All data is in memory at once.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from benchmarks.fleet_pandas_tables import answers
from group_sidecar.metrics.records import BODIES, KINDS, VERSION, Body, Envelope, columns

TYPES = {"STRING": pa.string(), "BIGINT": pa.int64(), "DOUBLE": pa.float64(), "TIMESTAMP": pa.timestamp("ms")}
FUTURE = pd.Timedelta(minutes=5)
PARTS: Sequence[type[Envelope | Body]] = (Envelope, *BODIES)
SCHEMA = pa.schema(
    {column.name: TYPES[column.sql_type] for part in PARTS for column in columns(part) if column.sql_type in TYPES}
)
# The type of `sample` is inferred, because pyarrow cannot read maps from JSON.
PARSING = pj.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="infer")
READING = pj.ReadOptions(use_threads=False, block_size=32 << 20)
MOMENTS = ("observed_at", "emitted_at", "arrived_at")


class Judged(NamedTuple):
    """The result of reading lines.

    Attributes:
        records: the records, without duplicates.
        faults: how many lines are not records, by fault.
    """

    records: pa.Table
    faults: Mapping[str, int]


Reader = Callable[[bytes], pa.Table]
"""Converts lines to a table. Raises ValueError, TypeError or AttributeError if a line cannot be read."""


def by_pyarrow(content: bytes) -> pa.Table:
    """Reads lines with pyarrow's reader, which is written in C++ and gets the column types."""
    return pj.read_json(BytesIO(content), parse_options=PARSING, read_options=READING)


def by_pandas(content: bytes) -> pa.Table:
    """Reads lines with pandas' own reader and converts the types afterwards."""
    if b"\n[" in b"\n" + content:
        raise ValueError("pandas would make a row of a list, too")
    found = pa.Table.from_pandas(
        pd.read_json(BytesIO(content), lines=True, dtype=False, convert_dates=False), preserve_index=False
    )
    cells = {field.name: _typed(found, field) for field in SCHEMA}
    return pa.table(cells | ({"sample": found["sample"]} if "sample" in found.column_names else {}))


def _typed(found: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    if field.name not in found.column_names:
        return pa.nulls(len(found), field.type)
    cells = found[field.name]
    return (cells.cast(pa.timestamp("ms", "UTC")) if pa.types.is_timestamp(field.type) else cells).cast(field.type)


READERS: Mapping[str, Reader] = MappingProxyType({"pyarrow": by_pyarrow, "pandas": by_pandas})


def read(folder: Path, reader: Reader = by_pyarrow) -> Judged:
    """Reads the lines of all segments below a folder, finds their faults, and removes duplicates."""
    tables, faults = [], dict[str, int]()
    # Segments are read in the order of their arrival, because the first copy of a record counts.
    for path in sorted(folder.rglob("segment-*.jsonl"), key=lambda path: path.stat().st_mtime_ns):
        bad: list[bytes] = []
        arrived = pa.scalar(path.stat().st_mtime_ns // 1_000_000, pa.timestamp("ms"))
        for table in _parsed(path.read_bytes(), reader, bad):
            tables.append(table.append_column("arrived_at", pa.repeat(arrived, len(table))))
        for line in bad:
            _count(faults, {_unreadable(line): 1})
    table = pa.concat_tables(tables, promote_options="default")
    good, others = _judged(table)
    _count(faults, others)
    return Judged(_deduplicated(good), faults)


def _count(faults: dict[str, int], more: Mapping[str, int]) -> None:
    for fault, times in more.items():
        faults[fault] = faults.get(fault, 0) + times


def _parsed(content: bytes, reader: Reader, bad: list[bytes]) -> Iterator[pa.Table]:
    """Yields tables of lines. Lines that cannot be read are added to `bad`."""
    if not content:
        return
    try:
        yield reader(content)
    except (ValueError, TypeError, AttributeError):
        middle = content.find(b"\n", len(content) // 2) + 1
        if middle in (0, len(content)):
            middle = content.rfind(b"\n", 0, len(content) // 2) + 1
        if middle in (0, len(content)):
            bad.append(content)
            return
        yield from _parsed(content[:middle], reader, bad)
        yield from _parsed(content[middle:], reader, bad)


def _unreadable(line: bytes) -> str:
    try:
        return "wrong_type" if isinstance(json.loads(line), dict) else "not_json_object"
    except ValueError:
        return "not_json_object"


def _judged(table: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    """Returns the rows that are records, and the number of other rows by their first fault."""
    kind = table["kind"]
    limit = pa.scalar(pd.Timestamp.now("UTC").tz_localize(None) + FUTURE, pa.timestamp("ms"))
    tests = {
        "unknown_version": pc.fill_null(pc.not_equal(table["version"], VERSION), True),
        "unknown_kind": pc.invert(pc.is_in(kind, pa.array(list(KINDS)))),
        "missing_column": _any(table, kind, lacking=True),
        "out_of_range": _any(table, kind, lacking=False),
        "in_future": pc.or_(pc.greater(table["observed_at"], limit), pc.greater(table["emitted_at"], limit)),
    }
    good, faults = None, {}
    for fault, test in tests.items():
        found = pc.fill_null(test, False)
        faults[fault] = pc.sum(found if good is None else pc.and_(found, good)).as_py() or 0
        good = pc.invert(found) if good is None else pc.and_not(good, found)
    return table.filter(good), {fault: times for fault, times in faults.items() if times}


def _any(table: pa.Table, kind: pa.ChunkedArray, *, lacking: bool) -> pa.ChunkedArray:
    """Returns for each row whether it lacks a column of its kind, or has a value below the column's minimum."""
    found = _breaks(table, Envelope, lacking)
    for body in BODIES:
        found = pc.or_(found, pc.and_(pc.equal(kind, body.KIND), _breaks(table, body, lacking)))
    return found


def _breaks(table: pa.Table, part: type[Envelope | Body], lacking: bool) -> pa.ChunkedArray:
    found = pa.chunked_array([pa.repeat(pa.scalar(False), len(table))])
    for column in columns(part):
        if lacking and not column.nullable:
            found = pc.or_(found, pc.is_null(table[column.name]))
        elif not lacking and column.note.minimum is not None:
            found = pc.or_(found, pc.fill_null(pc.less(table[column.name], column.note.minimum), False))
    return found


def _deduplicated(table: pa.Table) -> pa.Table:
    for name in table.column_names:
        if pa.types.is_string(table.schema.field(name).type):
            at = table.column_names.index(name)
            table = table.set_column(at, name, table[name].dictionary_encode().unify_dictionaries())
    names = pd.DataFrame({name: table[name].to_pandas() for name in ("sidecar", "boot", "seq")})
    return table.filter(pa.array(~names.duplicated().to_numpy()))


def frames(records: pa.Table) -> dict[str, pd.DataFrame]:
    """Returns the records of each kind, with only the columns of that kind, and `all`, the envelopes of all records."""
    envelope = [column.name for column in columns(Envelope)] + ["arrived_at"]
    found = {"all": _frame(records.select(envelope))}
    for body in BODIES:
        names = [*envelope, *(column.name for column in columns(body) if column.name in records.column_names)]
        found[body.KIND] = _frame(records.filter(pc.equal(records["kind"], body.KIND)).select(names))
    return found


def _frame(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas()
    frame["window"] = frame["emitted_at"].dt.floor("5min")
    return frame


def run(source: Path, output: Path, reader: Reader = by_pyarrow) -> Judged:
    """Computes all tables, and writes them and the records as Parquet."""
    output.mkdir(parents=True, exist_ok=True)
    judged = read(source, reader)
    pq.write_table(judged.records, output / "records.parquet")
    frames_by_kind = frames(judged.records)
    for name, answer in answers(frames_by_kind):
        answer.to_parquet(output / f"{name}.parquet", index=False)
    return judged


def main(argv: Sequence[str]) -> None:
    """Processes the folder that the command line names, and prints the numbers of records and faults."""
    judged = run(Path(argv[0]), Path(argv[1]), *(READERS[name] for name in argv[2:]))
    print(json.dumps({"records": len(judged.records), "faults": judged.faults}))


if __name__ == "__main__":
    main(sys.argv[1:])
