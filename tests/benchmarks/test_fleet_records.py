"""The written records of a fleet: each line follows the contract, and the stated truth is what a plain reader finds."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.fleet_records import fleet_of_one_hour, write
from benchmarks.fleet_segments import AGAIN, AGAIN_SECONDS
from benchmarks.fleet_shape import Fleet, Shape
from benchmarks.fleet_truth import WINDOW, Boot, Truth, group_reporters, lag, last_snapshots
from group_sidecar.metrics.records import Record

BEGIN = 1_735_689_600
FLEET = Fleet(
    begin=BEGIN,
    hours=2,
    sidecars=6,
    groups=40,
    topics=8,
    partitions=60,
    commits=150,
    interval_seconds=120,
    segment_seconds=600,
    facts=6,
    moves=0.6,
    damage=0.2,
)
RARE = replace(FLEET, hours=1, interval_seconds=300, seed=11)
"""Each sidecar writes one snapshot per window. So only the old coordinator's sidecar reports a moved group at first."""

Cells = dict[str, Any]


class Written(NamedTuple):
    """A fleet on disk, the truth about it, and all of its lines."""

    folder: Path
    truth: Truth
    lines: list[bytes]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("fleet")
    truth = write(folder, FLEET, processes=1)
    return Written(folder, truth, [line for path in segments(folder) for line in path.read_bytes().splitlines(True)])


@pytest.fixture(scope="module")
def records(written: Written) -> list[Cells]:
    """The records without duplicates."""
    return list({(cells["sidecar"], cells["boot"], cells["seq"]): cells for cells in accepted(written.lines)}.values())


def segments(folder: Path) -> list[Path]:
    return sorted(folder.rglob("segment-*.jsonl"))


def accepted(lines: list[bytes]) -> Iterator[Cells]:
    for line in lines:
        cells = json.loads(line)
        if isinstance(cells, dict) and cells.get("topic") != "broken":
            yield cells


def window(cells: Cells) -> int:
    return int((moment(cells["emitted_at"]) - BEGIN * 1000) // WINDOW)


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() * 1000


def test_lines_match_sidecar_format(written: Written) -> None:
    """Generated lines have the same format as those of the sidecar."""
    said = [line for line in written.lines if b'"broken"' not in line and line.startswith(b"{")]
    assert len(said) > 10_000
    assert all(Record.from_line(line).to_line() == line for line in said)


def test_all_lines_are_counted(written: Written) -> None:
    """The truth counts all lines, including damaged and repeated ones."""
    truth, paths = written.truth, segments(written.folder)
    again = [path for path in paths if path.parts[-3] == AGAIN]
    assert again
    assert truth.lines == len(written.lines)
    assert (truth.segments, truth.bytes) == (len(paths), sum(path.stat().st_size for path in paths))
    twice = sum(len(list(accepted(path.read_bytes().splitlines()))) for path in again)
    assert truth.lines == truth.records + truth.faults.total() + twice
    assert len(truth.faults) == 7


def test_counts_match_plain_reader(written: Written, records: list[Cells]) -> None:
    """The true counts of events equal those of a plain reader."""
    truth = written.truth
    assert truth.kinds == Counter(cells["kind"] for cells in records)
    of_kind = defaultdict(list)
    for cells in records:
        of_kind[cells["kind"]].append(cells)
    why = Counter((cells["group"], cells["cause"]) for cells in of_kind["rebalance"])
    assert truth.rebalances == why
    lost: Counter[tuple[str, str]] = Counter()
    for cells in of_kind["rebalance"]:
        lost[cells["group"], cells["cause"]] += cells["duration_seconds"] * cells["members"]
    assert truth.lost == pytest.approx(dict(lost))
    assert truth.verdicts == Counter(
        (cells["kind"], cells["group"], cells["policy"], cells["error_code"])
        for cells in (*of_kind["refusal"], *of_kind["audit"])
    )
    assert truth.changes == Counter((cells["group"], cells["change"]) for cells in of_kind["member"])
    assert all(truth.kinds[kind] for kind in ("rebalance", "refusal", "audit", "member"))


def test_boots_match_plain_reader(written: Written, records: list[Cells]) -> None:
    """The true boots equal those of a plain reader."""
    numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
    beats: Counter[tuple[str, str]] = Counter()
    for cells in records:
        numbers[cells["sidecar"], cells["boot"]].append(cells["seq"])
        beats[cells["sidecar"], cells["boot"]] += cells["kind"] == "heartbeat"
    found = {boot: Boot(min(some), max(some), len(some), beats[boot]) for boot, some in numbers.items()}
    assert written.truth.boots == found
    assert len(found) == FLEET.sidecars + 1


def test_generations_count_rebalances(records: list[Cells]) -> None:
    """Each rebalance increases the group's generation by one."""
    told = sorted((cells for cells in records if cells["kind"] in ("group", "rebalance")), key=lambda one: one["seq"])
    last: dict[str, int] = {}
    checked = 0
    for cells in (cells for cells in told if cells["sidecar"] == "kafka-0000"):
        group, generation = cells["group"], cells["generation"]
        if cells["kind"] == "rebalance" and group in last:
            assert generation == last[group] + 1
            checked += 1
        last[group] = generation
    assert checked


def test_newest_generation_determines_holder(records: list[Cells]) -> None:
    """The sidecar with the newest generation is the holder of the group in each window."""
    shape = Shape(FLEET)
    told: dict[tuple[int, str], dict[str, int]] = defaultdict(dict)
    for cells in records:
        if cells["kind"] == "group":
            said = told[window(cells), cells["group"]]
            said[cells["sidecar"]] = max(said.get(cells["sidecar"], -1), cells["generation"])
    windows = sorted({each for each, _ in told})
    assert windows == list(range(FLEET.length // WINDOW))
    conflicts = 0
    for each in windows:
        found = group_reporters(shape, each)
        conflicts += int((found.speakers == 2).sum())
        for index, group in enumerate(shape.groups):
            said = told[each, group]
            assert max(said, key=said.__getitem__) == shape.sidecars[found.holder[index]]
            assert len(said) == found.speakers[index]
    assert conflicts


def test_lags_match_plain_reader(records: list[Cells]) -> None:
    """The true lags equal those of a plain reader."""
    check_lags(FLEET, records)


def test_lags_of_moved_groups(tmp_path: Path) -> None:
    """The true lags equal those of a plain reader, even for moved groups that their new coordinator has not reported
    yet.
    """
    fleet, shape = RARE, Shape(RARE)
    rare = 0
    for each in range(fleet.length // WINDOW):
        at_home = group_reporters(shape, each).holder == shape.home
        rare += int((at_home & (last_snapshots(shape, each)[shape.home] > shape.moved_at)).sum())
    assert rare
    write(tmp_path, fleet, processes=1)
    lines = [line for path in segments(tmp_path) for line in path.read_bytes().splitlines()]
    check_lags(fleet, list(accepted(lines)))


def check_lags(fleet: Fleet, records: list[Cells]) -> None:
    shape = Shape(fleet)
    commits, ends = newest(records, "commit"), newest(records, "log_end")
    for each in range(fleet.length // WINDOW):
        found = lag(shape, each)
        for index, (group, at) in enumerate(zip(shape.group, shape.partition, strict=True)):
            place = (shape.topics[shape.topic[at]], int(shape.number[at]))
            committed = commits.pop((each, shape.groups[group], *place))
            end = ends.get((each, None, *place))
            assert committed == found.committed[index]
            assert (end is not None) == found.known[index]
            if end is not None:
                assert (end, max(end - committed, 0)) == (found.log_end[index], found.lag[index])
    assert not commits


def newest(records: list[Cells], kind: str) -> dict[tuple[object, ...], int]:
    """Returns the last seen offset by window, group, topic and partition."""
    found: dict[tuple[object, ...], tuple[str, int]] = {}
    for cells in records:
        if cells["kind"] == kind:
            key = (window(cells), cells.get("group"), cells["topic"], cells["partition"])
            found[key] = max(found.get(key, ("", 0)), (cells["observed_at"], cells["offset"]))
    return {key: offset for key, (_, offset) in found.items()}


def test_segments_sealed_by_age_and_size(written: Written, tmp_path: Path) -> None:
    """Segments are sealed by age or, with a small limit, by size."""
    write(tmp_path, replace(FLEET, hours=1, sidecars=2, segment_bytes=1), processes=1)
    assert {path.read_bytes().count(b'"heartbeat"') for path in segments(tmp_path)} <= {0, 1}
    by_age = Counter(path.read_bytes().count(b'"heartbeat"') for path in segments(written.folder))
    assert max(by_age) == FLEET.segment_seconds // FLEET.interval_seconds
    assert by_age[max(by_age)] > len(segments(written.folder)) / 2


def test_segments_arrive_when_sealed(written: Written) -> None:
    """Segments arrive when they are sealed, except some that are more than an hour late."""
    late = 0
    for path in segments(written.folder):
        told = max(moment(cells["emitted_at"]) for cells in accepted(path.read_bytes().splitlines()))
        after = path.stat().st_mtime * 1000 - told
        again = AGAIN_SECONDS * 1000 if AGAIN in path.parts else 0
        assert -3_001 < after - again < 3_000 + FLEET.interval or after > 3_600_000
        late += after > 3_600_000
    assert 0 < late < written.truth.segments / 2


def test_same_seed_gives_same_files(tmp_path: Path) -> None:
    """The same seed gives the same files with any number of processes. Another seed gives others."""
    fleet = replace(FLEET, hours=1, groups=10, commits=20, partitions=20)
    kinds = [
        write(tmp_path / name, each, processes).kinds
        for name, each, processes in (
            ("one", fleet, 1),
            ("two", fleet, 2),
            ("other", replace(fleet, seed=9), 1),
        )
    ]
    one, two, other = (
        {path.relative_to(tmp_path / name): path.read_bytes() for path in segments(tmp_path / name)}
        for name in ("one", "two", "other")
    )
    assert one == two
    assert kinds[0] == kinds[1]
    assert one != other


@pytest.mark.parametrize("records", [100_000, 1_000_000, 10_000_000])
def test_hour_has_requested_records(records: int) -> None:
    """fleet_of_one_hour has the requested number of records within one percent."""
    fleet = fleet_of_one_hour(records)
    assert fleet.snapshot_records * fleet.rounds == pytest.approx(records, rel=0.01)
