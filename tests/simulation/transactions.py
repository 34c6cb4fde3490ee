"""The transactions of the model broker that contain committed offsets.

An offset is pending from TxnOffsetCommit until the transaction's marker. The broker writes the marker some time after
EndTxn, or when the transaction has been open for too long.
"""

from collections.abc import Callable
from itertools import count
from random import Random

from group_sidecar.codecs.messages.end_txn import EndTxnRequest, EndTxnResponse
from group_sidecar.codecs.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.simulation.history import Offsets
from tests.simulation.offsets_log import OffsetsLog
from tests.simulation.timeline import Timeline

MARKER_SECONDS = 1.0
"""The maximum number of seconds between EndTxn and the marker."""
TIMEOUT_SECONDS = 6.0
"""The broker aborts a transaction that was open for this many seconds (transaction.timeout.ms)."""
Place = tuple[str, int]
"""A topic and a partition."""
CONCURRENT_TRANSACTIONS = 51
"""Kafka's error for a request of a producer while markers of its last transaction are still missing."""
RETRY_SECONDS = 0.3


class Transactions:
    """Open transactions.

    Args:
        timeline: the broker's clock.
        rng: chooses when markers are written.
        log: gets pending offsets and markers.
        error_of: returns the coordinator's error for a group, or 0.
        commit: stores the offsets of a group whose transaction is committed.
        changed: called when pending offsets change without a request.
    """

    def __init__(
        self,
        timeline: Timeline,
        rng: Random,
        log: OffsetsLog,
        error_of: Callable[[str], int],
        commit: Callable[[str, Offsets], None],
        changed: Callable[[], None],
    ) -> None:
        self._timeline, self._rng, self._log = timeline, rng, log
        self._error_of, self._commit, self._changed = error_of, commit, changed
        self._open: dict[int, dict[str, Offsets]] = {}
        self._writes = count(1)
        self._written: dict[tuple[int, str, Place], int] = {}
        """The number of the write of each pending offset, by producer id, group and partition."""
        self._committed: dict[tuple[str, Place], int] = {}
        """The number of the write of each committed offset. A marker does not replace a newer offset."""
        self._ending: set[int] = set()
        self._numbers: dict[int, int] = {}

    def pending(self, group_id: str) -> frozenset[tuple[str, int]]:
        """Returns the partitions of a group with a pending offset."""
        return frozenset(each for groups in self._open.values() for each in groups.get(group_id, ()))

    def groups(self) -> set[str]:
        """Returns the groups with pending offsets."""
        return {group_id for groups in self._open.values() for group_id in groups}

    def overwritten(self, group_id: str, partitions: set[Place]) -> None:
        """Drops pending offsets that are older than a commit without a transaction."""
        self._committed |= dict.fromkeys(((group_id, each) for each in partitions), next(self._writes))
        for groups in self._open.values():
            for each in partitions & groups.get(group_id, {}).keys():
                del groups[group_id][each]

    def store(self, request: TxnOffsetCommitRequest, error: int) -> TxnOffsetCommitResponse:
        """Makes offsets pending, unless `error` is an error code. Returns the reply."""
        producer_id = request.producer_id
        if producer_id in self._ending:
            error = CONCURRENT_TRANSACTIONS
        if not error:
            if producer_id not in self._open:
                self._begin(producer_id)
            pending: Offsets = {
                (topic.name, each.partition_index): (
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata or "",
                )
                for topic in request.topics
                for each in topic.partitions
            }
            self._open[producer_id].setdefault(request.group_id, {}).update(pending)
            written = ((producer_id, request.group_id, each) for each in pending)
            self._written |= dict.fromkeys(written, next(self._writes))
            self._log.write_pending(request.group_id, producer_id, pending)
        return TxnOffsetCommitResponse(
            throttle_time_ms=0,
            topics=tuple(
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                        for each in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )

    def _begin(self, producer_id: int) -> None:
        number = self._numbers[producer_id] = self._numbers.get(producer_id, 0) + 1
        self._open[producer_id] = {}

        def time_out() -> None:
            if self._numbers[producer_id] == number:
                self._end(producer_id, committed=False)

        self._timeline.after(TIMEOUT_SECONDS, time_out)

    def end(self, request: EndTxnRequest) -> EndTxnResponse:
        """Decides the outcome of a transaction. Returns the reply."""
        self._end(request.producer_id, committed=request.committed)
        return EndTxnResponse(throttle_time_ms=0, error_code=0)

    def _end(self, producer_id: int, *, committed: bool) -> None:
        if producer_id in self._open and producer_id not in self._ending:
            self._ending.add(producer_id)
            seconds = self._rng.uniform(0.0, MARKER_SECONDS)
            self._timeline.after(seconds, lambda: self._write_markers(producer_id, committed=committed))

    def _newest(self, producer_id: int, group_id: str, offsets: Offsets) -> Offsets:
        """Returns those of the pending offsets that no newer committed offset has replaced."""
        newest: Offsets = {}
        for place, stored in offsets.items():
            written = self._written[producer_id, group_id, place]
            if written > self._committed.get((group_id, place), 0):
                newest[place] = stored
        return newest

    def _write_markers(self, producer_id: int, *, committed: bool) -> None:
        """Writes the markers to the partitions that this broker leads. Tries the other partitions again later."""
        groups = self._open[producer_id]
        for number in {self._log.partition_of(group_id) for group_id in groups}:
            members = [each for each in groups if self._log.partition_of(each) == number]
            if any(map(self._error_of, members)):
                continue
            newest = {group_id: self._newest(producer_id, group_id, groups.pop(group_id)) for group_id in members}
            self._log.write_marker(number, producer_id, newest, committed=committed)
            for group_id, offsets in newest.items():
                if committed:
                    written = {(group_id, each): self._written[producer_id, group_id, each] for each in offsets}
                    self._committed |= written
                    self._commit(group_id, offsets)
        if groups:
            self._timeline.after(RETRY_SECONDS, lambda: self._write_markers(producer_id, committed=committed))
        else:
            del self._open[producer_id]
            self._ending.discard(producer_id)
            self._numbers[producer_id] += 1
        self._changed()
