"""Measures how the cost of the fleet pipeline grows with its input, compared with pandas, and what its stream keeps.

    python -m benchmarks.fleet [--quick] [--records MILLIONS ...]

`fleet_records` writes the records, `fleet_check` checks the tables, and `fleet_plan` derives the sizing plan.
"""

import argparse
import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa

from benchmarks.fleet_check import differences, wrong
from benchmarks.fleet_cost import Cost, bytes_below, cost
from benchmarks.fleet_plan import Measured, plan_lines
from benchmarks.fleet_records import add_late_lines, begin, fleet_of_one_hour, write
from benchmarks.fleet_shape import Fleet, Shape
from benchmarks.fleet_stream import StreamFootprint, kept
from benchmarks.fleet_truth import Truth
from benchmarks.fleet_versions import version_lines
from benchmarks.markdown_tables import NOTHING, figure, table
from benchmarks.section import Section

PANDAS_BYTES = 1_500
"""Estimated bytes per record that pandas needs, for the first run. pandas is not run without enough memory."""
ABOUT = """\
`python -m benchmarks.fleet` writes records of a simulated fleet (`benchmarks/fleet_records.py`), {per_hour:,} per hour,
in the sidecars' format. A segment has the records of {segment_seconds} s. A few groups have most of the partitions.
{damage:.0%} of the segments arrive twice, and the same share arrives two hours late. There are broken lines of every
kind. Every fifth sidecar has a wrong clock, and two sidecars report some of the groups.

`group_sidecar.spark run` reads all segments into an empty store and computes every table. It is a separate process on
{cores} cores with 1 GB of heap, which is Spark's default, so the seconds include its start. CPU time and *peak MB*, the
maximum of the memory in use, are those of all its processes. *late* is another run after one more line of every hour
has arrived, so that all tables are computed again. *cost of a record* is the CPU time per record, divided by that of
the first row.

A program with pandas computes the same tables from the same segments, and writes the same tables and records
(`benchmarks/fleet_pandas.py`). It keeps all records in memory at once. *pandas with pyarrow* reads JSON with pyarrow's
reader, which is written in C++ and gets the column types. *pandas alone* reads with `pandas.read_json`. *pandas CPU /
Spark CPU* is the CPU time of pandas divided by that of Spark. The benchmark compared all rows of all tables of Spark
and pandas, and those of Spark also with the known facts of the fleet: {compared}"""
STREAM = """\
The same pipeline runs as a stream, in one JVM. Each hour's segments arrive when the hour is over, and late segments
arrive later. The stream has no operator that keeps rows. Each batch computes the tables of the hours for which it has
records. *open hours* are hours whose records are in several folders. They are compacted two hours later. For each
segment, the checkpoint grows by {per_segment:,.0f} bytes for the segment's name. *heap* is the heap in use after a full
garbage collection."""


class Plan(NamedTuple):
    """The amounts that are measured.

    Attributes:
        per_hour: records per hour.
        hours: the hours of each row.
        wide: records per hour of one more row, which has a larger fleet instead of a longer time; None for no such row.
        stream_hours: for how many hours the stream is fed.
        stream_per_hour: records per hour of the stream.
    """

    per_hour: int
    hours: Sequence[int]
    wide: int | None
    stream_hours: int
    stream_per_hour: int


FULL = Plan(1_000_000, (1, 2, 5, 10), 2_000_000, 12, 100_000)
QUICK = Plan(100_000, (1, 3), None, 2, 20_000)


class Row(NamedTuple):
    """The measurements of one size.

    Attributes:
        name: the name of the row.
        truth: the contents of the records that were written.
        written: bytes of the store.
        compressed: the size of a segment compressed with zstd, as a share of its size.
        files: files of the store per hour.
        spark: the cost of a run of Spark.
        late: the cost of another run of Spark, after each hour got one more line.
        pandas, alone: the costs of pandas with pyarrow's reader, and with its own reader; None without enough memory.
        faults: errors in the tables, and differences between them; empty if all tables are right.
    """

    name: str
    truth: Truth
    written: int
    compressed: float
    files: float
    spark: Cost
    late: Cost
    pandas: Cost | None
    alone: Cost | None
    faults: Sequence[str]


def row(folder: Path, name: str, fleet: Fleet, pandas_bytes: float) -> Row:
    """Writes a fleet's records and runs all programs. `pandas_bytes` is the expected memory of pandas per record."""
    print(f"fleet: {name}", file=sys.stderr, flush=True)
    segments, store = folder / "segments", folder / "store"
    truth = write(segments, fleet)
    command = [sys.executable, "-m", "group_sidecar.spark", "run", "--input", str(segments), "--output", str(store)]
    spark = cost(command, folder / "spark.log")
    add_late_lines(segments, fleet)
    late = cost(command, folder / "late.log")
    faults = wrong(store, Shape(fleet), truth)
    pandas = alone = None
    if truth.lines * pandas_bytes < psutil.virtual_memory().available:
        pandas = _by_pandas("pyarrow", folder, faults)
        alone = _by_pandas("pandas", folder, faults)
    files = sum(1 for _ in store.rglob("hour=*/**/*.parquet")) / fleet.hours
    return Row(name, truth, bytes_below(store), _compressed(segments), files, spark, late, pandas, alone, faults)


def _by_pandas(reader: str, folder: Path, faults: list[str]) -> Cost:
    """Runs pandas, and adds the differences between its tables and Spark's to `faults`."""
    answers = folder / "answers" / reader
    command = [sys.executable, "-m", "benchmarks.fleet_pandas", str(folder / "segments"), str(answers), reader]
    found = cost(command, folder / f"{reader}.log")
    faults += (f"{reader}: {each}" for each in differences(folder / "store", answers))
    return found


def _compressed(segments: Path) -> float:
    """Returns the size of one segment compressed with zstd, as a share of its size."""
    content = next(iter(sorted(segments.glob("*/segment-*.jsonl")))).read_bytes()
    return len(pa.compress(content, codec="zstd", asbytes=True)) / len(content)


def _rows(plan: Plan) -> list[Row]:
    fleets = [
        (f"{hours * plan.per_hour:,}", fleet_of_one_hour(plan.per_hour, hours=hours, begin=begin(hours)))
        for hours in plan.hours
    ]
    if plan.wide is not None:
        fleets.append((f"{plan.wide:,} in one hour", fleet_of_one_hour(plan.wide, begin=begin(1))))
    found: list[Row] = []
    pandas_bytes: float = PANDAS_BYTES
    for name, fleet in fleets:
        with tempfile.TemporaryDirectory() as place:
            found.append(row(Path(place), name, fleet, pandas_bytes))
        figures = (f"{head}: {cell}" for head, cell in zip(TABLE_HEAD, cells(found[-1], found[0]), strict=True))
        print("fleet:", ", ".join([*figures, *(found[-1].faults or ["no fault"])]), file=sys.stderr, flush=True)
        pandas_bytes = _held_by_pandas(found[-1]) or pandas_bytes
    return found


def _held_by_pandas(each: Row) -> float | None:
    """Returns the peak memory of pandas in bytes per record, or None if pandas was not run."""
    return each.pandas and each.pandas.peak_bytes / each.truth.lines


def cells(each: Row, first: Row) -> list[str]:
    """Returns a row of the table."""
    lines, spark, pandas = each.truth.lines, each.spark, each.pandas
    return [
        each.name,
        f"{each.truth.bytes / 1e6:,.0f}",
        f"{each.written / 1e6:,.0f}",
        f"{spark.seconds:,.0f}",
        f"{each.late.seconds:,.0f}",
        f"{lines / spark.cpu_seconds:,.0f}",
        f"{spark.peak_bytes / 1e6:,.0f}",
        f"{lines / pandas.cpu_seconds:,.0f}" if pandas else NOTHING,
        f"{pandas.peak_bytes / 1e6:,.0f}" if pandas else NOTHING,
        figure(pandas and pandas.cpu_seconds / spark.cpu_seconds, 2),
        f"{lines / each.alone.cpu_seconds:,.0f}" if each.alone else NOTHING,
        figure(each.alone and each.alone.cpu_seconds / spark.cpu_seconds, 2),
        f"{(spark.cpu_seconds / lines) / (first.spark.cpu_seconds / first.truth.lines):.2f}",
    ]


TABLE_HEAD = [
    "records",
    "MB in",
    "MB out",
    "s",
    "s, late",
    "records per CPU s",
    "peak MB",
    "pandas with pyarrow, records per CPU s",
    "pandas, peak MB",
    "pandas CPU / Spark CPU",
    "pandas alone, records per CPU s",
    "pandas alone CPU / Spark CPU",
    "cost of a record",
]


def marginal(rows: Sequence[Row]) -> Measured:
    """Returns the cost of a record without start-up costs, from the smallest and the largest row of one fleet."""
    least, most = rows[0], rows[-1]
    more = most.truth.lines - least.truth.lines
    whole = (most.spark.cpu_seconds - least.spark.cpu_seconds) / more
    answer = (most.late.cpu_seconds - least.late.cpu_seconds) / more
    return Measured(
        intake=whole - answer,
        answer=answer,
        start_cpu_seconds=max(least.spark.cpu_seconds - least.truth.lines * whole, 0),
        bytes_per_record=most.truth.bytes / most.truth.lines,
        stored_bytes_per_record=most.written / most.truth.records,
        compressed=most.compressed,
        files_an_hour=most.files,
        peak_bytes=most.spark.peak_bytes,
        cores=psutil.cpu_count() or 1,
    )


def comparison_text(rows: Sequence[Row]) -> str:
    """Returns the text on the size from which Spark needs less CPU than pandas, and on the memory of pandas.

    `rows` are rows of one fleet that differ only in the number of hours, in ascending order.
    """
    sentences = [
        _who_is_faster("pandas with pyarrow", [(each, each.pandas) for each in rows if each.pandas]),
        _who_is_faster("pandas alone", [(each, each.alone) for each in rows if each.alone]),
    ]
    most = max((each for each in rows if each.pandas), key=lambda each: each.truth.lines, default=None)
    if most and (held := _held_by_pandas(most)):
        memory = psutil.virtual_memory().total
        sentences.append(
            f"At {most.name} records pandas held {held:,.0f} bytes per record. The {memory / 1e9:,.0f} GB of this "
            f"machine are enough for {memory / held / 1e6:,.0f} million records."
        )
    without = next((each.name for each in rows if each.pandas is None), None)
    return " ".join(
        filter(
            None, [*sentences, without and f"pandas was not run from {without} on, because there is too little memory."]
        )
    )


def _who_is_faster(program: str, compared: Sequence[tuple[Row, Cost]]) -> str:
    """Returns the text on whether Spark or `program` needs less CPU. `compared` is sorted by size."""
    if not compared:
        return ""
    behind = [place for place, (each, theirs) in enumerate(compared) if each.spark.cpu_seconds >= theirs.cpu_seconds]
    since = behind[-1] + 1 if behind else 0
    if since < len(compared):
        return f"Per core Spark is ahead of {program} from {compared[since][0].name} records on."
    return f"Per core {program} is ahead at {compared[-1][0].name} records, the most that both were given."


def stream_lines(found: Sequence[StreamFootprint], truth: Truth) -> list[str]:
    """Returns the table of the stream's state over time, with its explanation."""
    last = found[-1]
    heads = ["hours", "lines", "s of the last batch", "state, bytes", "checkpoint, kB", "open hours", "heap, MB"]
    rows = (
        [
            f"{each.hours}",
            f"{each.lines:,}",
            f"{each.seconds:.1f}",
            f"{each.state_bytes:,}",
            f"{each.checkpoint_bytes / 1e3:,.0f}",
            f"{each.open_hours}",
            f"{each.heap_bytes / 1e6:,.0f}",
        ]
        for each in found
    )
    return [STREAM.format(per_segment=last.checkpoint_bytes / truth.segments), "", *table(heads, rows)]


def measure(quick: bool, millions: Sequence[int] = ()) -> Section:
    """Measures Spark and pandas. `millions`: sizes in millions of records, in place of those of the plan."""
    plan = QUICK if quick else FULL
    if millions:
        plan = plan._replace(hours=tuple(1_000_000 * size // plan.per_hour for size in millions))
    rows = _rows(plan)
    growing = rows[: len(plan.hours)]
    streamed = fleet_of_one_hour(plan.stream_per_hour, hours=plan.stream_hours, begin=begin(plan.stream_hours))
    with tempfile.TemporaryDirectory() as place, ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as one:
        truth, found = one.submit(kept, Path(place), streamed).result()
    text = [
        _about(plan, streamed, rows),
        "",
        *table(TABLE_HEAD, (cells(each, rows[0]) for each in rows)),
        "",
        comparison_text(growing),
        "",
        "### What a stream keeps",
        "",
        *stream_lines(found, truth),
        "",
        "### Both versions of the contract",
        "",
        *version_lines(plan.per_hour),
        "",
        "### A plan for 1,000 brokers and 100,000 groups",
        "",
        *plan_lines(marginal(growing)),
    ]
    return Section("The fleet", "\n".join(text))


def _about(plan: Plan, fleet: Fleet, rows: Sequence[Row]) -> str:
    faults = [f"{each.name}: {fault}" for each in rows for fault in each.faults]
    return ABOUT.format(
        per_hour=plan.per_hour,
        segment_seconds=fleet.segment_seconds,
        damage=fleet.damage,
        cores=psutil.cpu_count(),
        compared="they are the same." if not faults else f"**they differ**: {'; '.join(faults)}.",
    )


def main() -> None:
    """Measures the sizes that the command line names, and prints the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100,000 and 300,000 records")
    parser.add_argument("--records", type=int, nargs="+", default=(), metavar="MILLIONS", help="these sizes instead")
    given = parser.parse_args()
    print(measure(given.quick, given.records).text)


if __name__ == "__main__":
    main()
