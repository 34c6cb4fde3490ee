"""ListOffsets (2), v0-11; Kafka 4 accepts v1 and later (KIP-896).

v0 many offsets per partition; v1 one offset, with its timestamp (KIP-79); v2 isolation level (KIP-98), throttle time;
v3 throttling after the reply (KIP-219); v4 leader epoch (KIP-320); v5 OFFSET_NOT_AVAILABLE (KIP-207); v6 flexible
(KIP-482). New meanings of the timestamp: v7 latest by time (KIP-734), v8 first local (KIP-405), v9 last tiered
(KIP-1005), v11 first not yet uploaded (KIP-1023). v10 timeout (KIP-1075).
"""

from group_sidecar.codecs.primitives import INT8, INT16, INT32, INT64, STRING
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field


@struct
class ListOffsetsPartition(Struct):
    """A partition and a timestamp in milliseconds since the epoch. -1 asks for the end of the log, -2 for its start."""

    partition_index: int = wire_field(INT32)
    current_leader_epoch: int = wire_field(INT32, since=4, default=-1)
    timestamp: int = wire_field(INT64)
    max_num_offsets: int = wire_field(INT32, until=0, default=1)


@struct
class ListOffsetsTopic(Struct):
    """A topic's partitions."""

    name: str = wire_field(STRING)
    partitions: tuple[ListOffsetsPartition, ...] = wire_field(Array(ListOffsetsPartition))


@request(key=2, versions=(0, 11), flexible=6)
class ListOffsetsRequest(Struct):
    """Asks for the offsets at timestamps. `replica_id` is -1 for clients."""

    replica_id: int = wire_field(INT32)
    isolation_level: int = wire_field(INT8, since=2, default=0)
    topics: tuple[ListOffsetsTopic, ...] = wire_field(Array(ListOffsetsTopic))
    timeout_ms: int = wire_field(INT32, since=10, default=0)


@struct
class ListOffsetsPartitionResponse(Struct):
    """A partition's offset; -1 if no offset matches the timestamp. v0 has a list of offsets instead."""

    partition_index: int = wire_field(INT32)
    error_code: int = wire_field(INT16)
    old_style_offsets: tuple[int, ...] = wire_field(Array(INT64), until=0, default=())
    timestamp: int = wire_field(INT64, since=1, default=-1)
    offset: int = wire_field(INT64, since=1, default=-1)
    leader_epoch: int = wire_field(INT32, since=4, default=-1)


@struct
class ListOffsetsTopicResponse(Struct):
    """A topic's partitions."""

    name: str = wire_field(STRING)
    partitions: tuple[ListOffsetsPartitionResponse, ...] = wire_field(Array(ListOffsetsPartitionResponse))


@response(key=2, versions=(0, 11), flexible=6)
class ListOffsetsResponse(Struct):
    """The offsets of the requested partitions."""

    throttle_time_ms: int = wire_field(INT32, since=2, default=0)
    topics: tuple[ListOffsetsTopicResponse, ...] = wire_field(Array(ListOffsetsTopicResponse))
