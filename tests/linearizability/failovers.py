"""Finds the stale answers that Kafka itself gives after a failover.

A new leader of a partition has all records that the old leader has acknowledged, but its high watermark may be older
than these records. The leader does not advance its high watermark while too few replicas are in sync. Meanwhile the
coordinator of Kafka 4 answers OffsetFetch from the state at the high watermark, so the answers lack commits that were
acknowledged.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from group_sidecar.coordinator.state.log_partitions import partition_for
from tests.linearizability.history import Operation

_LEADER = re.compile(
    r"^(\S+) .* Leader __consumer_offsets-(\d+) .* starts at leader epoch \d+ from offset (\d+) .* high watermark (\d+)"
)
_LAG_NS = 15 * 10**9
"""The maximum time in nanoseconds until the other replicas are in sync again, and the high watermark advances."""


@dataclass(frozen=True)
class Lag:
    """A partition whose new leader has an old high watermark. `since` is in monotonic nanoseconds."""

    partition: int
    since: int


class ForwardedReads:
    """The reads that a broker answered: the last OffsetFetch that the client sent for the read reached the broker.

    A client may repeat an OffsetFetch. If only an earlier one reached a broker, a sidecar answered the last one.

    Args:
        notes: the client and the time of each OffsetFetch that passed to a broker.
        sent: the client and the time of each OffsetFetch that passed to a sidecar; empty if not known.
    """

    def __init__(self, notes: Iterable[tuple[str, int]], sent: Iterable[tuple[str, int]] = ()) -> None:
        self._times, self._sent = _by_client(notes), _by_client(sent)

    def __contains__(self, read: Operation) -> bool:
        ended = read.ended or 0
        sent, times = self._sent.get(read.client, []), self._times.get(read.client, [])
        last = bisect_right(sent, ended) - 1
        since = max(read.began, sent[last]) if last >= 0 else read.began
        first = bisect_left(times, since)
        return first < len(times) and times[first] <= ended


def _by_client(notes: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    times: dict[str, list[int]] = {}
    for client, at in sorted(notes):
        times.setdefault(client, []).append(at)
    return times


def lags(logs: Iterable[Path], clock_offset: int) -> Iterator[Lag]:
    """Yields a lag for each new leader with an old high watermark in the brokers' logs.

    Args:
        logs: the files.
        clock_offset: nanoseconds of the system clock minus those of the monotonic clock.
    """
    for log in logs:
        for line in log.read_text(errors="replace").splitlines():
            if (found := _LEADER.match(line)) and int(found[4]) < int(found[3]):
                yield Lag(int(found[2]), _nanoseconds(found[1]) - clock_offset)


def unexplained(
    operations: Sequence[Operation], lags: Sequence[Lag], partitions: int, forwarded: ForwardedReads | None
) -> list[Operation]:
    """Returns the operations without the reads that a leader with an old high watermark may have answered.

    Args:
        operations: operations on any keys.
        lags: the lags of all brokers.
        partitions: the number of partitions of `__consumer_offsets`.
        forwarded: the reads that a broker answered; None if the brokers answered all.
    """
    return [
        each
        for each in operations
        if each.kind not in ("read", "stable_read")
        or (forwarded is not None and each not in forwarded)
        or not any(
            lag.partition == partition_for(each.key.rpartition("/")[0], partitions)
            and each.began < lag.since + _LAG_NS
            and (each.ended or 0) > lag.since
            for lag in lags
        )
    ]


def _nanoseconds(clock: str) -> int:
    """Returns the last moment at which the system clock showed this time of day, in nanoseconds since the epoch."""
    present = datetime.now()
    at = datetime.combine(present.date(), datetime.strptime(clock, "%H:%M:%S.%f").time())
    seconds = at.timestamp()
    return int((seconds if at <= present else seconds - 86_400) * 1e9)
