"""Compares both versions of the record contract: bytes of segments, bytes in a topic, and CPU time of the job.

    python -m benchmarks.fleet_versions [--records N]

The records are those of `fleet_records`, without damage. Version 2 has the same records on array lines.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from benchmarks.fleet_check import KEYS, different, table
from benchmarks.fleet_cost import Cost, cost
from benchmarks.fleet_records import add_late_lines, begin, fleet_of_one_hour, write
from benchmarks.fleet_shape import Fleet
from benchmarks.markdown_tables import table as markdown_table
from group_sidecar.codecs.compression import Codec
from group_sidecar.metrics.array_lines import Line, array_line
from group_sidecar.metrics.records import ARRAY_BODIES, ARRAY_RECORDS, ARRAY_VERSION, ArrayEnvelope, Record, Timestamp
from group_sidecar.proxy.config.sections import Journal
from group_sidecar.proxy.journal.idempotent_producer import IdempotentProducer

ABOUT = """\
`python -m benchmarks.fleet_versions --records {records}`: the same {written:,} records of {sidecars} sidecars as single
lines (version 1) and as array lines (version 2). *topic* has the batches that a sidecar sends, with gzip. *intake* is
the CPU time of a run into an empty store, minus that of a second run that only computes all tables again. So it does
not contain Spark's start. *whole run* is the first run with the start and all tables. All rows of all tables of both
versions were compared: {compared}"""


class Footprint(NamedTuple):
    """The size and the cost of a fleet's records in one version of the contract.

    Attributes:
        lines: the number of lines.
        segment_bytes: bytes of all segments.
        topic_bytes: bytes of all batches for a topic, compressed.
        whole: the cost of a run into an empty store.
        late: the cost of a run that computes all tables again.
    """

    lines: int
    segment_bytes: int
    topic_bytes: int
    whole: Cost
    late: Cost


def in_arrays(records: Iterable[Record]) -> Iterator[Line]:
    """Yields the lines of version 2 of one sidecar's records, which are sorted by their number."""
    for (kind, boot, emitted_at), run in groupby(records, _common_columns):
        same = list(run)
        if type(same[0].body) not in ARRAY_BODIES:
            yield from same
            continue
        for at in range(0, len(same), ARRAY_RECORDS):
            part = same[at : at + ARRAY_RECORDS]
            first = part[0].envelope
            envelope = ArrayEnvelope(
                version=ARRAY_VERSION,
                kind=kind,
                sidecar=first.sidecar,
                boot=boot,
                seq=first.seq,
                count=len(part),
                emitted_at=emitted_at,
            )
            yield array_line(envelope, [(each.envelope.observed_at, each.body) for each in part])


def _common_columns(record: Record) -> tuple[str, str, Timestamp]:
    return record.envelope.kind, record.envelope.boot, record.emitted_at


def records_of_segment(path: Path) -> list[Record]:
    """Returns the records of a segment of version 1."""
    with path.open("rb") as file:
        return [Record.from_line(line) for line in file]


def topic_bytes(lines: Iterable[Line], key: bytes) -> int:
    """Returns the bytes of the batches that a sidecar with default settings sends, a snapshot at a time."""
    settings = Journal.model_fields
    producer = IdempotentProducer(key, sys.maxsize, settings["topic_batch_bytes"].default)
    producer.set_producer_id(1, 0)
    producer.set_leader_partitions([0])
    size = 0
    for _, snapshot in groupby(lines, lambda line: line.emitted_at):
        for line in snapshot:
            producer.append(line)
        while producer.unsettled_count:
            producer.hold(producer.take().encoded_records(Codec.GZIP))
            batch = producer.next()
            assert batch is not None
            size += len(batch.data)
            producer.answered(0)
    return size


def footprint(segments: Path, store: Path, fleet: Fleet, lines: int, sent: int) -> Footprint:
    """Runs the job twice over the segments. `sent`: bytes in a topic."""
    size = sum(path.stat().st_size for path in segments.rglob("*.jsonl"))
    command = [sys.executable, "-m", "group_sidecar.spark", "run", "--input", str(segments), "--output", str(store)]
    whole = cost(command, store.with_suffix(".log"))
    add_late_lines(segments, fleet)
    return Footprint(lines, size, sent, whole, cost(command, store.with_suffix(".late.log")))


def version_lines(about_records: int) -> list[str]:
    """Measures both versions with about this number of records. Returns the table with its explanation."""
    fleet = fleet_of_one_hour(about_records, begin=begin(1), damage=0)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        single, arrays = folder / "single", folder / "arrays"
        write(single, fleet)
        lines, sent, array_lines, sent_arrays = 0, 0, 0, 0
        for path in sorted(single.rglob("*.jsonl")):
            records = records_of_segment(path)
            combined = list(in_arrays(records))
            copy = arrays / path.relative_to(single)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(b"".join(line.to_line() for line in combined))
            shutil.copystat(path, copy)
            key = records[0].envelope.sidecar.encode()
            lines, array_lines = lines + len(records), array_lines + len(combined)
            sent, sent_arrays = sent + topic_bytes(records, key), sent_arrays + topic_bytes(combined, key)
        found = (
            footprint(single, folder / "store-1", fleet, lines, sent),
            footprint(arrays, folder / "store-2", fleet, array_lines, sent_arrays),
        )
        faults = [
            fault
            for name, keys in KEYS.items()
            for fault in different(name, table(folder / "store-1", name), table(folder / "store-2", name), keys)
        ]
    compared = f"**they differ**: {'; '.join(faults)}." if faults else "they are the same."
    about = ABOUT.format(records=about_records, written=lines, sidecars=fleet.sidecars, compared=compared)
    return [about, "", *markdown_table(["a record takes", "version 1", "version 2", "ratio"], _rows(found, lines))]


def _rows(found: Sequence[Footprint], records: int) -> Iterator[list[str]]:
    """Yields the rows of the table. `found`: version 1, then version 2."""
    figures: dict[str, list[float]] = {
        "lines": [each.lines for each in found],
        "bytes in segments": [each.segment_bytes for each in found],
        "bytes in a topic": [each.topic_bytes for each in found],
        "us of CPU, intake": [(each.whole.cpu_seconds - each.late.cpu_seconds) * 1e6 for each in found],
        "us of CPU, whole run": [each.whole.cpu_seconds * 1e6 for each in found],
    }
    for name, (first, second) in figures.items():
        yield [name, f"{first / records:,.3g}", f"{second / records:,.3g}", f"{second / first:.2f}"]


def main() -> None:
    """Measures the number of records that the command line gives, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="about how many records (1,000,000)")
    given = parser.parse_args()
    print("\n".join(version_lines(given.records)))


if __name__ == "__main__":
    main()
