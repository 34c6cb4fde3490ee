"""Computes the required size of a fleet pipeline from the measured cost of a record."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.markdown_tables import table

DAY, HOUR = 86_400, 3_600
BUSY = 0.5
"""The share of its cores that a job may use. The other half is for hours that are computed again because records
arrived late, and for catching up after a stop."""
PARTITION_BYTES_A_SECOND = 2_000_000
"""The maximum bytes per second for one partition of the journal's topic, before compression."""
INTERVALS = (10, 30, 60, 120, 300)
TRIGGERS = (60, 600, 3_600)
WINDOW_SECONDS = 300


class Measured(NamedTuple):
    """The cost of records on one machine.

    Attributes:
        intake, answer: CPU seconds per record without start-up: `intake` to parse and store the record, `answer` to
            compute all tables.
        start_cpu_seconds: CPU seconds of a run that do not depend on its input.
        bytes_per_record: bytes of a line.
        stored_bytes_per_record: bytes in the store, tables included.
        compressed: the size of lines compressed with zstd, as a share of their size.
        files_an_hour: files that remain in the store for each hour of records once the hour is over.
        peak_bytes: the maximum memory of all processes of the largest run, on `cores` cores.
    """

    intake: float
    answer: float
    start_cpu_seconds: float
    bytes_per_record: float
    stored_bytes_per_record: float
    compressed: float
    files_an_hour: float
    peak_bytes: int
    cores: int


class Cluster(NamedTuple):
    """The cluster to be monitored.

    Attributes:
        commits: partitions with a committed offset, in each group.
        partitions: partitions of the cluster, each of which has a log end.
    """

    sidecars: int = 1_000
    groups: int = 100_000
    commits: int = 10
    partitions: int = 200_000

    @property
    def snapshot_records(self) -> int:
        """The number of records in one snapshot of all sidecars."""
        return self.sidecars + self.groups * (1 + self.commits) + self.partitions


class Need(NamedTuple):
    """The resources that the pipeline needs if sidecars write snapshots at a given interval.

    Attributes:
        records: records per second.
        day_bytes: bytes of lines per day, before compression.
        stored_bytes: bytes per day in the store.
        cores: cores of the executors, by the trigger interval of the stream.
        partitions: partitions of the topic.
        segment_bytes: bytes of the segment that a sidecar seals every five minutes.
    """

    records: float
    day_bytes: float
    stored_bytes: float
    cores: Sequence[int]
    partitions: int
    segment_bytes: float


def streamed(measured: Measured, trigger_seconds: int) -> float:
    """Returns the CPU seconds per record in a stream.

    Each batch computes the tables of the current hour again. With n batches an hour, the tables of a record are thus
    computed (n + 1) / 2 times on average.
    """
    return measured.intake + measured.answer * (HOUR / trigger_seconds + 1) / 2


def need(measured: Measured, cluster: Cluster, interval_seconds: int) -> Need:
    """Returns the resources for a cluster whose sidecars write a snapshot at this interval."""
    records = cluster.snapshot_records / interval_seconds
    line_bytes = records * measured.bytes_per_record
    return Need(
        records=records,
        day_bytes=line_bytes * DAY,
        stored_bytes=records * DAY * measured.stored_bytes_per_record,
        cores=[math.ceil(records * streamed(measured, trigger) / BUSY) for trigger in TRIGGERS],
        partitions=max(1, math.ceil(line_bytes / PARTITION_BYTES_A_SECOND)),
        segment_bytes=line_bytes * WINDOW_SECONDS / cluster.sidecars,
    )


def plan_lines(measured: Measured, cluster: Cluster | None = None) -> Iterator[str]:
    """Yields the plan as lines of Markdown."""
    cluster = cluster or Cluster()
    yield (
        "`benchmarks/fleet_plan.py` computes this plan from the figures above. Parsing, checking and storing a record "
        f"take {measured.intake * 1e6:,.0f} us of CPU. Computing its tables takes {measured.answer * 1e6:,.0f} us. "
        f"A start takes {measured.start_cpu_seconds:,.0f} s of CPU. The line of a record has "
        f"{measured.bytes_per_record:,.0f} bytes, which zstd compresses to {measured.compressed:.0%}. A record and its "
        f"share of the tables take {measured.stored_bytes_per_record:,.1f} bytes in the store. The plan assumes "
        f"{cluster.commits} committed partitions per group and {cluster.partitions:,} partitions. These are "
        f"{cluster.snapshot_records:,} records per snapshot. Cores may be busy for {BUSY:.0%} of the time."
    )
    yield ""
    heads = ["snapshot every", "records/s", "GB a day, lines", "GB a day in the topic", "GB a day in the store"]
    heads += [f"cores, batches every {trigger // 60} min" for trigger in TRIGGERS]
    heads += ["partitions of the topic", "kB a segment of 5 min"]
    yield from table(heads, (_cells(measured, cluster, interval) for interval in INTERVALS))
    yield ""
    yield (
        "Each batch computes the tables of the current hour again, with all its records so far. So a stream with more "
        f"frequent batches costs more. The largest of these runs needed {measured.peak_bytes / 1e9:,.1f} GB of memory "
        f"on {measured.cores} cores. Spark spills data to disk if the heap is too small. Each sidecar seals a segment "
        f"every five minutes, so there are {cluster.sidecars * DAY // WINDOW_SECONDS:,} segments a day. The store "
        f"gets {measured.files_an_hour:,.0f} files per hour."
    )


def _cells(measured: Measured, cluster: Cluster, interval: int) -> list[str]:
    found = need(measured, cluster, interval)
    return [
        f"{interval} s",
        f"{found.records:,.0f}",
        f"{found.day_bytes / 1e9:,.0f}",
        f"{found.day_bytes * measured.compressed / 1e9:,.0f}",
        f"{found.stored_bytes / 1e9:,.1f}",
        *(f"{cores:,}" for cores in found.cores),
        f"{found.partitions}",
        f"{found.segment_bytes / 1e3:,.0f}",
    ]
