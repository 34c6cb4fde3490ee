"""ListOffsets (2), v0-11; Kafka 4 takes v1 and later (KIP-896).

v0 many offsets per partition; v1 one offset, with its timestamp (KIP-79); v2 isolation level (KIP-98), throttle time;
v3 replies before throttling (KIP-219); v4 leader epoch (KIP-320); v5 OFFSET_NOT_AVAILABLE (KIP-207); v6 flexible
(KIP-482). New meanings of the timestamp: v7 latest by time (KIP-734), v8 first local (KIP-405), v9 last tiered
(KIP-1005), v11 first not yet uploaded (KIP-1023). v10 timeout (KIP-1075).
"""

from group_sidecar.codecs.primitives import INT8, INT16, INT32, INT64, STRING
from group_sidecar.codecs.schema import Array, Struct, f, request, response, struct


@struct
class ListOffsetsPartition(Struct):
    """A partition and a time, in milliseconds since the epoch; -1 is the end of the log, -2 its start."""

    partition_index: int = f(INT32)
    current_leader_epoch: int = f(INT32, since=4, default=-1)
    timestamp: int = f(INT64)
    max_num_offsets: int = f(INT32, until=0, default=1)


@struct
class ListOffsetsTopic(Struct):
    """A topic's partitions."""

    name: str = f(STRING)
    partitions: tuple[ListOffsetsPartition, ...] = f(Array(ListOffsetsPartition))


@request(key=2, versions=(0, 11), flexible=6)
class ListOffsetsRequest(Struct):
    """Asks for the offsets at some times. `replica_id` is -1 for clients."""

    replica_id: int = f(INT32)
    isolation_level: int = f(INT8, since=2, default=0)
    topics: tuple[ListOffsetsTopic, ...] = f(Array(ListOffsetsTopic))
    timeout_ms: int = f(INT32, since=10, default=0)


@struct
class ListOffsetsPartitionResponse(Struct):
    """A partition's offset, -1 where none was found; v0 has a list of them instead."""

    partition_index: int = f(INT32)
    error_code: int = f(INT16)
    old_style_offsets: tuple[int, ...] = f(Array(INT64), until=0, default=())
    timestamp: int = f(INT64, since=1, default=-1)
    offset: int = f(INT64, since=1, default=-1)
    leader_epoch: int = f(INT32, since=4, default=-1)


@struct
class ListOffsetsTopicResponse(Struct):
    """A topic's partitions."""

    name: str = f(STRING)
    partitions: tuple[ListOffsetsPartitionResponse, ...] = f(Array(ListOffsetsPartitionResponse))


@response(key=2, versions=(0, 11), flexible=6)
class ListOffsetsResponse(Struct):
    """The offsets found."""

    throttle_time_ms: int = f(INT32, since=2, default=0)
    topics: tuple[ListOffsetsTopicResponse, ...] = f(Array(ListOffsetsTopicResponse))
