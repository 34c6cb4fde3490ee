"""Both versions of a fleet have the same records, and version 2 takes fewer bytes."""

from pathlib import Path

from benchmarks.fleet_records import write
from benchmarks.fleet_shape import Fleet
from benchmarks.fleet_versions import in_arrays, records_of_segment, topic_bytes
from group_sidecar.metrics.array_lines import Line, records_of
from group_sidecar.metrics.records import ARRAY_BODIES, ARRAY_RECORDS, Record

FLEET = Fleet(
    begin=1_735_689_600,
    sidecars=2,
    groups=30,
    topics=8,
    partitions=1_200,
    commits=1_500,
    interval_seconds=300,
    facts=6,
    damage=0,
)


def facts(records: list[Record]) -> list[str]:
    """Returns all that a record states besides its version."""
    return [
        repr((each.envelope.boot, each.envelope.seq, each.envelope.observed_at, each.emitted_at, each.body))
        for each in records
    ]


def test_array_lines_have_the_same_records(tmp_path: Path) -> None:
    """The array lines of a segment have its records in the same order, and take fewer bytes in a topic."""
    write(tmp_path, FLEET, processes=1)
    records: list[Record] = []
    lines: list[Line] = []
    for path in sorted(tmp_path.rglob("*.jsonl")):
        segment = records_of_segment(path)
        combined = list(in_arrays(segment))
        assert facts([each for line in combined for each in records_of(line.to_line())]) == facts(segment)
        records += segment
        lines += combined
    assert max(line.count for line in lines) == ARRAY_RECORDS
    assert topic_bytes(lines, b"kafka") < topic_bytes(records, b"kafka")
    assert {body.KIND for body in ARRAY_BODIES} < {each.envelope.kind for each in records}
