"""A transactional producer that sends raw frames, to commit a group's offsets in a transaction."""

import struct
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Self

from group_sidecar.codecs.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from group_sidecar.codecs.messages.end_txn import EndTxnRequest
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorRequest
from group_sidecar.codecs.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from group_sidecar.codecs.schema import Struct
from tests.kafka.dialect import Client, until
from tests.kafka.group_members import GROUP_REMOVED_ERRORS, error_in

_INIT_PRODUCER_ID = 22
_TIMEOUT_MS = 5 * 60_000
_TRANSACTION = 1  # The key type of a transaction coordinator.
_RETRIABLE = (14, 15, 16, 51)
"""Errors while the transaction coordinator's topic is created, or while the previous transaction is not complete."""
_CLASSIC_TRANSACTIONS = 4
"""The last version of each API before a producer got a new epoch with every transaction (KIP-890)."""


class Transaction:
    """One producer and its transaction. An open transaction is aborted at the end of a with statement."""

    def __init__(self, client: Client, transactional_id: str) -> None:
        self._client, self._id = client, transactional_id
        self._open = False
        self.producer_id, self.epoch = -1, -1

    def begin(self) -> None:
        """Gets a producer id. The first request for a transaction coordinator makes the broker create its topic."""
        self._client.ask(FindCoordinatorRequest(key=self._id, key_type=_TRANSACTION), 3)
        until(self._has_producer_id, "the transaction coordinator gives a producer id")

    def commit_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commits offsets, which become visible when the transaction commits."""
        self._open = True
        self._retry(
            AddOffsetsToTxnRequest(
                transactional_id=self._id, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
            )
        )
        partitions = tuple(
            TxnOffsetCommitRequestPartition(partition_index=part, committed_offset=offset, committed_metadata="txn")
            for part, offset in offsets.items()
        )
        self._retry(
            TxnOffsetCommitRequest(
                transactional_id=self._id,
                group_id=group,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                topics=(TxnOffsetCommitRequestTopic(name=topic, partitions=partitions),),
            ),
            later=GROUP_REMOVED_ERRORS,
        )

    def end(self, *, commit: bool) -> None:
        """Commits or aborts the transaction. The broker writes the markers a little later."""
        self._open = False
        self._retry(
            EndTxnRequest(
                transactional_id=self._id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
            )
        )

    def _retry(self, request: Struct, later: Collection[int] = _RETRIABLE) -> None:
        def done() -> bool:
            code = error_in(self._client.ask(request, _CLASSIC_TRANSACTIONS))
            assert code == 0 or code in later, f"{request} failed with {code}"
            return bool(code == 0)

        until(done, f"the coordinator accepts {type(request).__name__}")

    def _has_producer_id(self) -> bool:
        name, client = self._id.encode(), self._client.client_id.encode()
        head = struct.pack(">hhih", _INIT_PRODUCER_ID, 0, 1, len(client)) + client
        body = struct.pack(">h", len(name)) + name + struct.pack(">i", _TIMEOUT_MS)
        with self._client.wire() as wire:
            wire.send_token(head + body)
            reply = wire.receive()
        code, self.producer_id, self.epoch = struct.unpack_from(">hqh", reply, 8)
        assert code == 0 or code in _RETRIABLE, f"InitProducerId failed with {code}"
        return bool(code == 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self.end(commit=False)
