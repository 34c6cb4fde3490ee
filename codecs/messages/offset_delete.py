"""OffsetDelete (47), v0 (KIP-496); never flexible."""

from group_sidecar.codecs.primitives import INT16, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field


@struct
class OffsetDeleteRequestPartition(Struct):
    """A partition whose offset is to be deleted."""

    partition_index: int = wire_field(INT32)


@struct
class OffsetDeleteRequestTopic(Struct):
    """A topic's partitions."""

    name: str = wire_field(STRING)
    partitions: tuple[OffsetDeleteRequestPartition, ...] = wire_field(Array(OffsetDeleteRequestPartition))


@request(key=47, versions=(0, 0))
class OffsetDeleteRequest(Struct):
    """Asks to delete a group's offsets of some partitions."""

    group_id: str = wire_field(STRING)
    topics: tuple[OffsetDeleteRequestTopic, ...] = wire_field(Array(OffsetDeleteRequestTopic))


@struct
class OffsetDeleteResponsePartition(Struct):
    """The result for one partition."""

    partition_index: int = wire_field(INT32)
    error_code: int = wire_field(INT16)


@struct
class OffsetDeleteResponseTopic(Struct):
    """The results for a topic's partitions."""

    name: str = wire_field(STRING)
    partitions: tuple[OffsetDeleteResponsePartition, ...] = wire_field(Array(OffsetDeleteResponsePartition))


@response(key=47, versions=(0, 0))
class OffsetDeleteResponse(Struct):
    """The group's error and each partition's error. In this API the group's error precedes the throttle time."""

    error_code: int = wire_field(INT16)
    throttle_time_ms: int = wire_field(INT32)
    topics: tuple[OffsetDeleteResponseTopic, ...] = wire_field(Array(OffsetDeleteResponseTopic))
