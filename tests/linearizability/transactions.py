"""Commits offsets in transactions.

A transaction's offset is pending after TxnOffsetCommit (`stage`). It becomes visible some time after EndTxn, when the
coordinator writes the marker. So the end of a transaction has no upper bound in the history.
"""

import time
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from group_sidecar.codecs.messages.end_txn import EndTxnRequest
from group_sidecar.codecs.messages.init_producer_id import InitProducerIdRequest
from group_sidecar.codecs.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from group_sidecar.codecs.schema import Struct
from tests.linearizability.connections import GROUP, TRANSACTION, Connections, NotSent, Progress, Unanswered
from tests.linearizability.history import LineFile, Operation, key_of, now
from tests.linearizability.offsets_client import TOPIC, OffsetsClient

_TIMEOUT_MS = 60_000
_VERSION = 3
"""The version of each request. Later versions give a producer a new epoch with every transaction (KIP-890)."""
_TRIES, _RETRY_SECONDS = 12, 0.2
_RETRIABLE = {
    int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    int(ErrorCode.NOT_COORDINATOR),
    51,  # CONCURRENT_TRANSACTIONS: the markers of the previous transaction are not complete.
}
_COMMITTED = 0.7


class Transactions:
    """The transactions of one client. After an unknown result, the client continues with another transactional id.

    Args:
        client: the client whose group gets the offsets.
        name: the name of the client.
        number: the number of the client.
        connections: the client's connections to the brokers.
        random: decides between commit and abort.
        recorder: records the operations.
        progress: counts errors.
        bounds_ends: whether the offsets of a producer's previous transaction are visible when its next one begins. This
            holds for the coordinator of Kafka 4, which applies the markers before it answers WriteTxnMarkers. The
            classic coordinator applies them later (`GroupMetadataManager.scheduleHandleTxnCompletion`).
    """

    def __init__(
        self,
        client: OffsetsClient,
        name: str,
        number: int,
        connections: Connections,
        random: Random,
        recorder: LineFile,
        progress: Progress,
        *,
        bounds_ends: bool,
    ) -> None:
        self._client, self._name, self._random = client, name, random
        self._bounds_ends = bounds_ends
        self._ends: list[Operation] = []
        self._connections, self._recorder, self._progress = connections, recorder, progress
        self._numbers = count((number << 32) + 1)
        self._ids = count(1)
        self._id = ""
        self._producer = (-1, -1)

    def run(self) -> None:
        """Stages offsets of the client's group, and commits or aborts the transaction."""
        group = self._client.group
        if not self._id and not self._begin_producer():
            return
        producer, epoch = self._producer
        added = AddOffsetsToTxnRequest(
            transactional_id=self._id, producer_id=producer, producer_epoch=epoch, group_id=group
        )
        if self._retried(added) != 0:
            self._abandon()
            return
        self._record_ends(now())
        txn = next(self._numbers)
        values = {partition: self._client.value() for partition in self._client.partitions()}
        staged = self._client.write("stage", values, lambda: self._stage(values), txn)
        self._end(group, values, txn)
        if not staged:  # The staged offset may still arrive, and must not become part of the next transaction.
            self._abandon()

    def close(self) -> None:
        """Records the ends of transactions that are not recorded yet."""
        self._record_ends(None)

    def _abandon(self) -> None:
        """Makes the next transaction use another transactional id."""
        self._id = ""
        self._record_ends(None)

    def _record_ends(self, ended: int | None) -> None:
        """Records the ends of the previous transaction. `ended`: when they were complete; None if that is not known."""
        for each in self._ends:
            self._recorder.append(replace(each, ended=ended if self._bounds_ends else None).line())
        self._ends.clear()

    def _stage(self, values: dict[int, int]) -> Any:
        producer, epoch = self._producer
        partitions = tuple(
            TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=value, committed_metadata="")
            for partition, value in values.items()
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=self._client.group,
            producer_id=producer,
            producer_epoch=epoch,
            topics=(TxnOffsetCommitRequestTopic(name=TOPIC, partitions=partitions),),
        )
        return self._connections.ask(GROUP, self._client.group, request, _VERSION)

    def _end(self, group: str, values: dict[int, int], txn: int) -> None:
        commit = self._random.random() < _COMMITTED
        producer, epoch = self._producer
        request = EndTxnRequest(transactional_id=self._id, producer_id=producer, producer_epoch=epoch, committed=commit)
        began = now()
        kinds = ["end_commit" if commit else "end_abort"]
        failed = self._retried(request) != 0
        if failed and commit:  # The transaction was committed, or it is aborted after its timeout at the latest.
            kinds.append("end_abort")  # The first of the two ends counts.
        for partition, value in values.items():
            for kind in kinds:
                key = key_of(group, partition)
                self._ends.append(Operation(key, f"{self._name}-{kind}-{txn}", kind, began, None, value, txn))
        if failed:
            self._abandon()

    def _begin_producer(self) -> bool:
        self._id = f"{self._name}-{next(self._ids)}"
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=_TIMEOUT_MS)
        code = self._retried(request)
        if code != 0:
            self._id = ""
        return code == 0

    def _retried(self, request: Struct) -> int:
        """Sends a request until it succeeds or fails for good. Returns the last error code, or -1 without a reply."""
        code = -1
        for _ in range(_TRIES):
            try:
                reply = self._connections.ask(TRANSACTION, self._id, request, _VERSION)
            except (NotSent, Unanswered) as error:
                code = -1
                self._progress.failed(str(error))
            else:
                code = int(reply.error_code)
                if code == 0 and isinstance(request, InitProducerIdRequest):
                    self._producer = (reply.producer_id, reply.producer_epoch)
                if code not in _RETRIABLE:
                    break
                self._progress.failed(code)
                self._connections.forget(TRANSACTION, self._id)
            time.sleep(_RETRY_SECONDS)
        return code
