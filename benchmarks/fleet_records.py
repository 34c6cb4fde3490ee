"""Writes the records of a simulated fleet: sealed segments of JSON lines, including damaged, duplicate and late ones.

    python -m benchmarks.fleet_records FOLDER [--hours N] [--per-hour N] [--seed N]

For speed, a line of a snapshot is assembled from its parts. A test compares such lines with the result of
`Record.to_line`. All rarer lines are made by `Record`.
"""

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.fleet_events import Event, events
from benchmarks.fleet_segments import Sealed
from benchmarks.fleet_shape import NEVER, STALE, Fleet, Numbers, Shape
from benchmarks.fleet_truth import LOG_END_AGE, Boot, Truth
from group_sidecar.coordinator.model.views import GroupKind, GroupState
from group_sidecar.metrics.records import (
    VERSION,
    Body,
    Envelope,
    Heartbeat,
    Member,
    Rebalance,
    Record,
    Timestamp,
    Verdict,
    timestamp,
)

LOSSES = 0.002
"""The share of snapshots that follow a loss of some records."""


class SimulatedSidecar:
    """One sidecar, which writes records."""

    def __init__(self, shape: Shape, sidecar: int, sealed: Sealed) -> None:
        self.shape, self.index, self.sealed = shape, sidecar, sealed
        self.name, self.skew = shape.sidecars[sidecar], int(shape.skew[sidecar])
        self.random = np.random.default_rng((shape.fleet.seed, sidecar, 0))
        self.generation = shape.generation.copy()
        self._tails()
        self.start(0)

    def _tails(self) -> None:
        """Prepares the constant text of each line of a snapshot: before the offset, or around the generation."""
        shape, index = self.shape, self.index
        groups, topics = (
            [json.dumps(each, ensure_ascii=False) for each in some] for some in (shape.groups, shape.topics)
        )
        self.mine = np.flatnonzero((shape.home == index) | ((shape.moved_to == index) & (shape.moved_at != NEVER)))
        self.commits = np.flatnonzero(np.isin(shape.group, self.mine))
        self.ends = np.flatnonzero((shape.leader == index) & shape.seen)
        topic, number = shape.topic.tolist(), shape.number.tolist()
        self.commit_tails = [
            f'"group":{groups[group]},"topic":{topics[topic[at]]},"partition":{number[at]},"offset":'
            for group, at in zip(
                shape.group[self.commits].tolist(), shape.partition[self.commits].tolist(), strict=True
            )
        ]
        self.end_tails = [
            f'"topic":{topics[topic[at]]},"partition":{number[at]},"offset":' for at in self.ends.tolist()
        ]
        self.group_tails = [_group_tail(groups[group], int(shape.members[group])) for group in self.mine.tolist()]

    def start(self, moment: int) -> None:
        """Begins another boot of the sidecar."""
        self.boot, self.seq = self.random.bytes(16).hex(), 0
        self.records = self.heartbeats = 0
        self.sealed.begin(self.boot, moment)

    def stop(self) -> None:
        """Ends the boot and adds it to the truth."""
        self.sealed.truth.boots[self.name, self.boot] = Boot(1, self.seq, self.records, self.heartbeats)

    def stamp(self, moment: int) -> Timestamp:
        """Returns a moment by this sidecar's clock."""
        return timestamp((self.shape.fleet.begin * 1000 + moment + self.skew) / 1000)

    def record(self, body: Body, moment: int) -> str:
        """Returns the line of a record whose emission time is its observation time."""
        self.seq += 1
        self.records += 1
        self.sealed.truth.kinds[body.KIND] += 1
        observed_at = self.stamp(moment)
        envelope = Envelope(
            version=VERSION,
            kind=body.KIND,
            sidecar=self.name,
            boot=self.boot,
            seq=self.seq,
            observed_at=observed_at,
            emitted_at=observed_at,
        )
        return Record(envelope=envelope, body=body).to_line().decode()

    def event_line(self, event: Event) -> str:
        """Returns an event as a line."""
        body, truth = event.body, self.sealed.truth
        match body:
            case Rebalance():
                self.generation[event.rebalanced] += 1
                body = replace(body, generation=int(self.generation[event.rebalanced]))
                why = (body.group, body.cause or "unknown")
                truth.rebalances[why] += 1
                truth.lost[why] += body.duration_seconds * body.members
            case Verdict():
                truth.verdicts[body.KIND, body.group, body.policy, body.error_code] += 1
            case Member():
                truth.changes[body.group, body.change] += 1
        return self.record(body, event.moment)

    def lose(self, records: int) -> None:
        """Skips the sequence numbers of `records` records, as if these were dropped before they were written."""
        self.seq += records

    def snapshot(self, moment: int) -> list[str]:
        """Returns the lines of a snapshot of the whole state."""
        self.heartbeats += 1
        sample = {
            "group_sidecar_received_bytes_total": float(self.seq * 1000),
            "group_sidecar_client_connections": float(100 + self.index),
        }
        return [
            self.record(Heartbeat(sample=sample), moment),
            *self._groups(moment),
            *self._commits(moment),
            *self._log_ends(moment),
        ]

    def _head(self, kind: str, records: int) -> tuple[str, range]:
        """Returns the beginning of the lines of a kind, and their sequence numbers."""
        numbers = range(self.seq + 1, self.seq + 1 + records)
        self.seq += records
        self.records += records
        self.sealed.truth.kinds[kind] += records
        return f'{{"version":{VERSION},"kind":"{kind}","sidecar":"{self.name}","boot":"{self.boot}","seq":', numbers

    def _is_reported(self, groups: Numbers, moment: int) -> np.ndarray:
        shape = self.shape
        at_home = (shape.home[groups] == self.index) & (
            moment < np.where(shape.moved_at[groups] == NEVER, moment + 1 - STALE, shape.moved_at[groups]) + STALE
        )
        taken: np.ndarray = at_home | ((shape.moved_to[groups] == self.index) & (shape.moved_at[groups] <= moment))
        return taken

    def _groups(self, moment: int) -> list[str]:
        reported = self._is_reported(self.mine, moment)
        moved = (self.shape.moved_to[self.mine] == self.index) & (self.shape.moved_at[self.mine] <= moment)
        generations = self.generation[self.mine] + moved
        head, numbers = self._head("group", int(reported.sum()))
        stamp = self.stamp(moment)
        middle = f',"observed_at":"{stamp}","emitted_at":"{stamp}",'
        tails = (tail for tail, speaks in zip(self.group_tails, reported.tolist(), strict=True) if speaks)
        return [
            f"{head}{seq}{middle}{before}{generation}{after}"
            for seq, (before, after), generation in zip(numbers, tails, generations[reported].tolist(), strict=True)
        ]

    def _commits(self, moment: int) -> list[str]:
        shape = self.shape
        reported = self._is_reported(shape.group[self.commits], moment)
        commits = self.commits[reported]
        home = shape.home[shape.group[commits]] == self.index
        made_at = np.where(home, shape.committed_at(commits, moment, away=True), shape.committed_at(commits, moment))
        offsets = shape.committed(commits, made_at)
        moments, which = np.unique(made_at, return_inverse=True)
        stamps = [self.stamp(each) for each in moments.tolist()]
        head, numbers = self._head("commit", len(commits))
        emitted = f',"emitted_at":"{self.stamp(moment)}",'
        tails = (tail for tail, speaks in zip(self.commit_tails, reported.tolist(), strict=True) if speaks)
        return [
            f'{head}{seq},"observed_at":"{stamps[at]}"{emitted}{tail}{offset},"leader_epoch":3}}\n'
            for seq, at, tail, offset in zip(numbers, which.tolist(), tails, offsets.tolist(), strict=True)
        ]

    def _log_ends(self, moment: int) -> list[str]:
        seen_at = moment - LOG_END_AGE
        head, numbers = self._head("log_end", len(self.ends))
        middle = f',"observed_at":"{self.stamp(seen_at)}","emitted_at":"{self.stamp(moment)}",'
        offsets = self.shape.log_end(self.ends, seen_at).tolist()
        return [
            f"{head}{seq}{middle}{tail}{offset}}}\n"
            for seq, tail, offset in zip(numbers, self.end_tails, offsets, strict=True)
        ]


def _group_tail(group: str, members: int) -> tuple[str, str]:
    """Returns the parts of a group's line before and after its generation. `group` is JSON."""
    state, assignor = (GroupState.STABLE, "range") if members else (GroupState.EMPTY, "")
    before = (
        f'"group":{group},"protocol":"{GroupKind.CLASSIC.value}","state":"{state.value}",'
        f'"protocol_type":"consumer","assignor":"{assignor}","generation":'
    )
    return before, f',"members":{members},"max_size":null}}\n'


@cache
def shape_of(fleet: Fleet) -> Shape:
    """Returns the shape of a fleet. All sidecars of a process share it."""
    return Shape(fleet)


def write_sidecar(folder: Path, fleet: Fleet, sidecar: int) -> Truth:
    """Writes all segments of one sidecar."""
    shape = shape_of(fleet)
    sealed = Sealed(folder, fleet, shape.sidecars[sidecar], sidecar)
    simulated, random = SimulatedSidecar(shape, sidecar, sealed), np.random.default_rng((fleet.seed, sidecar, 3))
    restart = int(random.integers(fleet.rounds)) if sidecar % 10 == 3 else 0
    happened = events(shape, sidecar)
    event = next(happened, None)
    for round_, moment in enumerate(shape.snapshots(sidecar).tolist()):
        lines = []
        while event is not None and event.moment < moment:
            lines.append(simulated.event_line(event))
            event = next(happened, None)
        if lines:
            sealed.write(lines, moment)
        if round_ and round_ == restart:
            simulated.stop()
            simulated.start(moment)
        elif random.random() < LOSSES and simulated.seq:
            simulated.lose(int(random.integers(1, 50)))
        sealed.write(simulated.snapshot(moment), moment)
    last = [simulated.event_line(each) for each in ([event, *happened] if event else [])]
    if last:
        sealed.write(last, fleet.length)
    simulated.stop()
    sealed.seal(fleet.length)
    return sealed.truth


def write(folder: Path, fleet: Fleet, processes: int | None = None) -> Truth:
    """Writes the records of a fleet. Returns the truth, against which tables can be checked.

    Args:
        folder: the folder in which each sidecar gets a folder.
        fleet: the size of the fleet.
        processes: how many processes run at once; one per core if None; only this process if 1. The files do not depend
            on the number.
    """
    truth, sidecars, one = Truth(), range(fleet.sidecars), partial(write_sidecar, folder, fleet)
    if processes == 1:
        for sidecar in sidecars:
            truth.add(one(sidecar))
        return truth
    with ProcessPoolExecutor(processes or os.cpu_count(), get_context("spawn")) as pool:
        for each in pool.map(one, sidecars):
            truth.add(each)
    return truth


def add_late_lines(segments: Path, fleet: Fleet) -> None:
    """Repeats the first line of each hour. These lines are duplicates, but the job must compute every hour again."""
    lines: dict[str, bytes] = {}
    for path in sorted(segments.glob("kafka-0000/segment-*.jsonl")):
        with path.open("rb") as file:
            line = file.readline()
        lines.setdefault(Record.from_line(line).envelope.emitted_at[:13], line)
    if len(lines) != fleet.hours:
        raise RuntimeError(f"the first sidecar's records are of {len(lines)} hours, not of {fleet.hours}")
    (segments / "segment-late.jsonl").write_bytes(b"".join(lines.values()))


def fleet_of_one_hour(records: int, **others: int) -> Fleet:
    """Returns a fleet that writes about `records` records per hour, in the proportions of the default fleet."""
    usual = Fleet(begin=0)
    share = records / (usual.snapshot_records * usual.rounds)
    sizes: dict[str, int] = {
        name: max(2, round(getattr(usual, name) * share))
        for name in ("sidecars", "groups", "topics", "partitions", "commits")
    }
    return Fleet(**({"begin": begin(1)} | sizes | others))


def begin(hours: int) -> int:
    """Returns a full hour in the past, in seconds since the epoch.

    The simulated time ends before now, and late segments also arrive before now.
    """
    return (int(time.time()) // 3600 - hours - 4) * 3600


def main() -> None:
    """Writes a fleet's records to the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--hours", type=int, default=1)
    parser.add_argument("--per-hour", type=int, default=1_000_000, help="records of an hour (1,000,000)")
    parser.add_argument("--seed", type=int, default=8)
    given = parser.parse_args()
    fleet = fleet_of_one_hour(given.per_hour, hours=given.hours, begin=begin(given.hours), seed=given.seed)
    began = time.monotonic()
    truth = write(given.folder, fleet)
    seconds = time.monotonic() - began
    print(f"{truth.lines:,} lines, {truth.bytes / 1e6:,.0f} MB in {truth.segments:,} segments, {seconds:.1f} s")


if __name__ == "__main__":
    main()
