"""Fetch (1), v0-18; Kafka 4 accepts v4 and later (KIP-896).

v1 throttle time; v2 message format 1 (KIP-32); v3 bytes for the whole reply (KIP-74); v4 isolation level, aborted
transactions and message format 2 (KIP-98); v5 log start offset (KIP-107); v6 KAFKA_STORAGE_ERROR (KIP-112);
v7 fetch sessions (KIP-227); v8 throttling after the reply (KIP-219); v9 leader epoch (KIP-320); v10 zstd (KIP-110);
v11 rack and preferred replica (KIP-392); v12 flexible (KIP-482), diverging epochs (KIP-595); v13 topic ids in place of
names (KIP-516); v14 OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405); v15 the replica and its epoch (KIP-903); v16 addresses
of new leaders (KIP-951); v17 the replica's directory (KIP-853); v18 the replica's high watermark (KIP-1166).

Records are bytes here: `group_sidecar.codecs.record_batches` reads them.
"""

from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from typing import Any
from uuid import UUID

from construct import ConstructError

from group_sidecar.codecs.layouts import Layout
from group_sidecar.codecs.messages.produce import LeaderIdAndEpoch, NodeEndpoint
from group_sidecar.codecs.primitives import INT8, INT16, INT32, INT64, RECORDS, STRING, UUID_, ZERO_UUID
from group_sidecar.codecs.schema import Array, Struct, layout, request, response, struct, wire_field


@struct
class ReplicaState(Struct):
    """The follower that sends the request; -1 for consumers."""

    replica_id: int = wire_field(INT32, default=-1)
    replica_epoch: int = wire_field(INT64, default=-1)


@struct
class FetchPartition(Struct):
    """A partition and its start offset. The reply may exceed `partition_max_bytes` by one whole batch (KIP-74)."""

    partition: int = wire_field(INT32)
    current_leader_epoch: int = wire_field(INT32, since=9, default=-1)
    fetch_offset: int = wire_field(INT64)
    last_fetched_epoch: int = wire_field(INT32, since=12, default=-1)
    log_start_offset: int = wire_field(INT64, since=5, default=-1)
    partition_max_bytes: int = wire_field(INT32)
    replica_directory_id: UUID = wire_field(UUID_, since=17, tag=0, default=ZERO_UUID)
    high_watermark: int = wire_field(INT64, since=18, tag=1, default=0x7FFF_FFFF_FFFF_FFFF)


@struct
class FetchTopic(Struct):
    """The partitions of a topic, which has a name up to v12 and an id from v13 on."""

    topic: str = wire_field(STRING, until=12, default="")
    topic_id: UUID = wire_field(UUID_, since=13, default=ZERO_UUID)
    partitions: tuple[FetchPartition, ...] = wire_field(Array(FetchPartition))


@struct
class ForgottenTopic(Struct):
    """Partitions to remove from a fetch session."""

    topic: str = wire_field(STRING, until=12, default="")
    topic_id: UUID = wire_field(UUID_, since=13, default=ZERO_UUID)
    partitions: tuple[int, ...] = wire_field(Array(INT32))


@request(key=1, versions=(0, 18), flexible=12)
class FetchRequest(Struct):
    """Asks for records. `replica_id` is -1 for clients.

    Without a fetch session, `session_id` is 0 and `session_epoch` is -1. The broker waits at most `max_wait_ms` for
    `min_bytes` of records. With `isolation_level` 0 the broker returns all records, with 1 only committed records.
    """

    cluster_id: str | None = wire_field(STRING, since=12, nullable=12, tag=0, default=None)
    replica_id: int = wire_field(INT32, until=14, default=-1)
    replica_state: ReplicaState = wire_field(ReplicaState, since=15, tag=1, default=ReplicaState())
    max_wait_ms: int = wire_field(INT32)
    min_bytes: int = wire_field(INT32)
    max_bytes: int = wire_field(INT32, since=3, default=0x7FFF_FFFF)
    isolation_level: int = wire_field(INT8, since=4, default=0)
    session_id: int = wire_field(INT32, since=7, default=0)
    session_epoch: int = wire_field(INT32, since=7, default=-1)
    topics: tuple[FetchTopic, ...] = wire_field(Array(FetchTopic))
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire_field(Array(ForgottenTopic), since=7, default=())
    rack_id: str = wire_field(STRING, since=11, default="")


@struct
class EpochEndOffset(Struct):
    """A leader epoch and its end offset."""

    epoch: int = wire_field(INT32, default=-1)
    end_offset: int = wire_field(INT64, default=-1)


@struct
class SnapshotId(Struct):
    """The end offset and the epoch of a snapshot of the metadata log."""

    end_offset: int = wire_field(INT64, default=-1)
    epoch: int = wire_field(INT32, default=-1)


@struct
class AbortedTransaction(Struct):
    """A producer whose records from `first_offset` up to its marker were aborted."""

    producer_id: int = wire_field(INT64)
    first_offset: int = wire_field(INT64)


@struct
class PartitionData(Struct):
    """A partition's records, from the batch that contains the requested offset. The last batch may be truncated."""

    partition_index: int = wire_field(INT32)
    error_code: int = wire_field(INT16)
    high_watermark: int = wire_field(INT64)
    last_stable_offset: int = wire_field(INT64, since=4, default=-1)
    log_start_offset: int = wire_field(INT64, since=5, default=-1)
    diverging_epoch: EpochEndOffset = wire_field(EpochEndOffset, since=12, tag=0, default=EpochEndOffset())
    current_leader: LeaderIdAndEpoch = wire_field(LeaderIdAndEpoch, since=12, tag=1, default=LeaderIdAndEpoch())
    snapshot_id: SnapshotId = wire_field(SnapshotId, since=12, tag=2, default=SnapshotId())
    aborted_transactions: tuple[AbortedTransaction, ...] | None = wire_field(
        Array(AbortedTransaction), since=4, nullable=4, default=()
    )
    preferred_read_replica: int = wire_field(INT32, since=11, default=-1)
    records: bytes | None = wire_field(RECORDS, nullable=0)


@struct
class FetchableTopicResponse(Struct):
    """The partitions of a topic, which has a name up to v12 and an id from v13 on."""

    topic: str = wire_field(STRING, until=12, default="")
    topic_id: UUID = wire_field(UUID_, since=13, default=ZERO_UUID)
    partitions: tuple[PartitionData, ...] = wire_field(Array(PartitionData))


@response(key=1, versions=(0, 18), flexible=12)
class FetchResponse(Struct):
    """The records of the requested partitions."""

    throttle_time_ms: int = wire_field(INT32, since=1, default=0)
    error_code: int = wire_field(INT16, since=7, default=0)
    session_id: int = wire_field(INT32, since=7, default=0)
    responses: tuple[FetchableTopicResponse, ...] = wire_field(Array(FetchableTopicResponse))
    node_endpoints: tuple[NodeEndpoint, ...] = wire_field(Array(NodeEndpoint), since=16, tag=0, default=())


def partitions_with_high_watermark(version: int, head: bytes) -> tuple[FetchableTopicResponse, ...]:
    """Returns the partitions whose high watermark is in the first bytes of a reply.

    The high watermark precedes a partition's records. A caller that does not wait for a long reply can therefore still
    read at least the first partition's high watermark.

    Args:
        version: the reply's API version, one of the declared versions.
        head: the first bytes of the *body*.

    Returns:
        One topic per partition, with the fields up to the high watermark. All other fields have their defaults.
        Reading stops without an error at a truncated or invalid value.
    """
    stream, found = BytesIO(head), []
    whole = layout(FetchResponse, version, version >= FetchResponse.FLEXIBLE)
    named: dict[str, Any] = {}
    with suppress(ConstructError):
        for topic in _elements("responses", whole, stream, {}):
            for partition in _elements("partitions", topic, stream, named):
                values: dict[str, Any] = {}
                for name, construct in partition.plain.items():
                    values[name] = construct._parse(stream, None, "")
                    if name == "high_watermark":
                        found.append(
                            FetchableTopicResponse(**named, partitions=(PartitionData(**values, records=None),))
                        )
    return tuple(found)


def _elements(array: str, of: Layout, stream: BytesIO, before: dict[str, Any]) -> Iterator[Layout]:
    """Yields the layout of each element of `array`. The caller reads the element's fields from `stream`.

    The values of the fields that precede the array are stored in `before`.
    """
    for name, construct in of.plain.items():
        if name != array:
            before[name] = construct._parse(stream, None, "")
            continue
        for _ in range(construct.length.read(stream)):
            yield construct.element
            if of.flexible:
                construct.element._parse_tags(stream)
        return
