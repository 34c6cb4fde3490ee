"""OffsetDelete (47), v0 (KIP-496); never flexible."""

from group_sidecar.codecs.primitives import INT16, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, f, request, response, struct


@struct
class OffsetDeleteRequestPartition(Struct):
    """A partition whose offset is to go."""

    partition_index: int = f(INT32)


@struct
class OffsetDeleteRequestTopic(Struct):
    """A topic's partitions."""

    name: str = f(STRING)
    partitions: tuple[OffsetDeleteRequestPartition, ...] = f(Array(OffsetDeleteRequestPartition))


@request(key=47, versions=(0, 0))
class OffsetDeleteRequest(Struct):
    """Asks to forget a group's offsets of some partitions."""

    group_id: str = f(STRING)
    topics: tuple[OffsetDeleteRequestTopic, ...] = f(Array(OffsetDeleteRequestTopic))


@struct
class OffsetDeleteResponsePartition(Struct):
    """How one partition's deletion went."""

    partition_index: int = f(INT32)
    error_code: int = f(INT16)


@struct
class OffsetDeleteResponseTopic(Struct):
    """A topic's partitions, as in the request."""

    name: str = f(STRING)
    partitions: tuple[OffsetDeleteResponsePartition, ...] = f(Array(OffsetDeleteResponsePartition))


@response(key=47, versions=(0, 0))
class OffsetDeleteResponse(Struct):
    """The group's error, which here stands before the throttle time, and each partition's."""

    error_code: int = f(INT16)
    throttle_time_ms: int = f(INT32)
    topics: tuple[OffsetDeleteResponseTopic, ...] = f(Array(OffsetDeleteResponseTopic))
