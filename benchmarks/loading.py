"""Measures what it costs to load `__consumer_offsets`, from batches in memory.

    python -m benchmarks.loading [--quick]

Reports how many offset commit records per second one core loads, how memory grows with live offsets, and for how long a
load delays another task. Batches have format 2, are not compressed, and have as many records as one commit has
partitions. Memory is the resident memory of a separate process.
"""

import argparse
import gc
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import trio
from google_crc32c import value as crc32c

from benchmarks.section import Section
from group_sidecar.coordinator.state.partition_log import PartitionLog

PARTITIONS = 100
"""Partitions of each topic of a group."""
FETCHED = 1 << 20
"""The approximate size of one Fetch reply in bytes."""
SIZES = (100, 10, 1)
"""Records per batch."""
NOW = 1_750_000_000_000
_VALUE = struct.Struct(">hqihq")
"""OffsetCommitValue v3 with empty metadata: version, offset, leader epoch, length, commit timestamp."""
_HEAD = struct.Struct(">hiqqqhii")
"""The header of a batch from its attributes on. The records follow it."""


ABOUT = """\
`python -m benchmarks.loading` loads batches from memory (format 2, not compressed) on one core. A batch has as many
records as one commit has partitions. Brokers since 4.0 collect all writes of some milliseconds in one batch. Records
per second are records per second of CPU time, in the best of {runs} runs. Memory is the growth of a separate process's
resident memory during the load. The longest wait is CPU time of this process, in the worst of {runs} loads of
{records:,} records."""


class Plan(NamedTuple):
    """The numbers of records that are loaded, and how often."""

    records: int
    offsets: int
    runs: int


FULL = Plan(records=1_000_000, offsets=1_000_000, runs=3)
QUICK = Plan(records=200_000, offsets=100_000, runs=2)


def key(group: int, index: int) -> bytes:
    """Returns the key of a group's offset (OffsetCommitKey v1)."""
    name, topic = b"group-%06d" % group, b"orders-%03d" % (index // PARTITIONS)
    return b"".join((b"\0\1", len(name).to_bytes(2, "big"), name, len(topic).to_bytes(2, "big"), topic)) + (
        index % PARTITIONS
    ).to_bytes(4, "big")


def batch(base: int, keys: list[bytes]) -> bytes:
    """Returns a batch with commits of these keys. `base` is its first offset, and also the committed offset."""
    value = _VALUE.pack(3, base, 0, 0, NOW)
    records = bytearray()
    for delta, each in enumerate(keys):
        body = b"".join((b"\0\0", varint(delta), varint(len(each)), each, varint(len(value)), value, b"\0"))
        records += varint(len(body)) + body
    last = len(keys) - 1
    rest = _HEAD.pack(0, last, NOW, NOW, -1, -1, -1, len(keys)) + records
    return struct.pack(">qiibI", base, len(rest) + 9, 0, 2, crc32c(rest)) + rest


def varint(value: int) -> bytes:
    """Encodes a number of 0 or more as a zigzag varint."""
    value <<= 1
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def log(records: int, groups: int, offsets: int, size: int) -> Iterator[bytes]:
    """Yields Fetch replies with `records` records in total, in batches of `size` records.

    The groups take turns to commit `offsets` keys.
    """
    keys = [[key(group, index) for index in range(offsets)] for group in range(groups)]
    data, base, turn = bytearray(), 0, 0
    while base < records:
        group, first = keys[turn % groups], turn // groups * size % offsets
        data += batch(base, group[first : first + size])
        base, turn = base + size, turn + 1
        if len(data) >= FETCHED or base >= records:
            yield bytes(data)
            data = bytearray()


def load(data: bytes, into: PartitionLog) -> None:
    """Loads one reply."""
    for _ in into.replay(data):
        pass


def rate(size: int, plan: Plan) -> float:
    """Returns the records per second of the fastest run, with 100 groups and batches of `size`."""
    replies = list(log(plan.records, 100, 100, size))
    best = 0.0
    for _ in range(plan.runs):
        into, began = PartitionLog(0), time.process_time()
        for data in replies:
            load(data, into)
        best = max(best, into.records / (time.process_time() - began))
    return best


def resident() -> int:
    """Returns the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def memory(groups: int, offsets: int, times: int) -> None:
    """Loads every offset of the groups `times` times, and prints the additional resident memory in bytes."""
    into = PartitionLog(0)
    before = resident()
    for data in log(groups * offsets * times, groups, offsets, min(offsets, 100)):
        load(data, into)
    assert sum(len(group.offsets) for group in into.groups.values()) == groups * offsets
    print(resident() - before)


def memory_apart(groups: int, offsets: int, times: int) -> float:
    """Runs `memory` in a separate process, and returns its result in MB."""
    command = [sys.executable, "-m", "benchmarks.loading", "--memory", f"{groups},{offsets},{times}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout) / 1e6


async def longest_stall(size: int, records: int) -> float:
    """Returns the maximum milliseconds that another task had to wait while `records` records were loaded.

    The time is CPU time of this process, so the time of other processes does not count. The load yields to other tasks
    as often as the log reader does.
    """
    replies = list(log(records, records // 1_000, 1_000, size))
    longest = 0.0
    done = trio.Event()

    async def watch() -> None:
        nonlocal longest
        while not done.is_set():
            began = time.process_time()
            await trio.lowlevel.checkpoint()
            longest = max(longest, time.process_time() - began)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        into = PartitionLog(0)
        for data in replies:
            for _ in into.replay(data):
                gc.freeze()
                await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
        done.set()
    gc.unfreeze()
    return longest * 1e3


def measure(quick: bool) -> Section:
    """Loads, and reports the costs."""
    plan = QUICK if quick else FULL
    figures = [(f"offset commit records a second, {size} in a batch", f"{rate(size, plan):,.0f}") for size in SIZES]
    live = f"{plan.offsets:,} live offsets"
    for offsets in (1_000, 50, 10):
        taken = memory_apart(plan.offsets // offsets, offsets, 1)
        figures.append((f"memory of {live}, {offsets:,} in a group, MB", f"{taken:,.0f}"))
    some = plan.offsets // 10
    for times in (1, 20):
        taken = memory_apart(some // 100, 100, times)
        often = "once" if times == 1 else f"{times} times"
        figures.append((f"memory of {some:,} live offsets, each committed {often}, MB", f"{taken:,.0f}"))
    for size in (100, 1):
        worst = max(trio.run(longest_stall, size, plan.records) for _ in range(plan.runs))
        figures.append((f"the longest another task waited, {size} in a batch, ms", f"{worst:.1f}"))
    lines = [ABOUT.format(runs=plan.runs, records=plan.records), "", "| | |", "|---|---:|"]
    lines += [f"| {name} | {figure} |" for name, figure in figures]
    return Section("Loading `__consumer_offsets`", "\n".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        memory(*map(int, arguments.memory.split(",")))
    else:
        print(measure(arguments.quick).text)
