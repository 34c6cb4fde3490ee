"""A transactional producer of bare frames, as far as offsets go.

Owns: the requests of one transaction that commits a group's offsets. Must not know: why it is held open.
"""

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
from tests.kafka.members import CLEARED_AWAY, error_in

_INIT_PRODUCER_ID = 22
_TIMEOUT_MS = 5 * 60_000
_TRANSACTION = 1  # A coordinator's key type.
_LATER = (14, 15, 16, 51)
"""The transaction coordinator is being made, or is still at the transaction before."""
_CLASSIC_TRANSACTIONS = 4
"""The last version of each API before producers got a new epoch with every transaction (KIP-890)."""


class Transaction:
    """One producer and its transaction; what is open at the end of a with statement is aborted."""

    def __init__(self, client: Client, transactional_id: str) -> None:
        self._client, self._id = client, transactional_id
        self._open = False
        self.producer_id, self.epoch = -1, -1

    def begin(self) -> None:
        """Finds the coordinator, which makes its topic, and gets a producer id."""
        self._client.ask(FindCoordinatorRequest(key=self._id, key_type=_TRANSACTION), 3)
        until(self._has_producer_id, "the transaction coordinator gives a producer id")

    def commit_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commits offsets, to be seen when the transaction commits."""
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
            later=CLEARED_AWAY,
        )

    def end(self, *, commit: bool) -> None:
        """Commits or aborts; the markers follow by and by."""
        self._open = False
        self._retry(
            EndTxnRequest(
                transactional_id=self._id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
            )
        )

    def _retry(self, request: Struct, later: Collection[int] = _LATER) -> None:
        def done() -> bool:
            code = error_in(self._client.ask(request, _CLASSIC_TRANSACTIONS))
            assert code == 0 or code in later, f"{request} failed with {code}"
            return bool(code == 0)

        until(done, f"{type(request).__name__} is taken")

    def _has_producer_id(self) -> bool:
        name, client = self._id.encode(), self._client.client_id.encode()
        head = struct.pack(">hhih", _INIT_PRODUCER_ID, 0, 1, len(client)) + client
        body = struct.pack(">h", len(name)) + name + struct.pack(">i", _TIMEOUT_MS)
        with self._client.wire() as wire:
            wire.send_token(head + body)
            reply = wire.receive()
        code, self.producer_id, self.epoch = struct.unpack_from(">hqh", reply, 8)
        assert code == 0 or code in _LATER, f"InitProducerId failed with {code}"
        return bool(code == 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self.end(commit=False)
