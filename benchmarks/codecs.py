"""What one message costs to decode and to encode: by its construct, and by the functions compiled from it.

    python -m benchmarks.codecs

Prints microseconds on one core and how many times faster the compiled functions are. The two take turns in many runs
of about half a millisecond, and the best of each counts: on a busy machine longer ones are interrupted.
"""

import time
from collections.abc import Callable
from io import BytesIO

from group_sidecar.codecs.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.join_group import JoinGroupMember, JoinGroupResponse
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from group_sidecar.codecs.primitives import ZERO_UUID
from group_sidecar.codecs.schema import Struct, decode, encode, layout

RUNS = 40
SECONDS = 0.0005
"""Of a run, about."""


def commit(partitions: int) -> OffsetCommitRequest:
    """A commit of so many partitions of one topic."""
    committed = tuple(
        OffsetCommitRequestPartition(partition_index=index, committed_offset=index, committed_metadata="")
        for index in range(partitions)
    )
    topic = OffsetCommitRequestTopic(name="orders", partitions=committed)
    return OffsetCommitRequest(
        group_id="billing", generation_id_or_member_epoch=3, member_id="billing-1", topics=(topic,)
    )


def committed(partitions: int) -> OffsetCommitResponse:
    """The reply to it."""
    each = tuple(OffsetCommitResponsePartition(partition_index=index, error_code=0) for index in range(partitions))
    return OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="orders", partitions=each),))


def joined(members: int) -> JoinGroupResponse:
    """What the leader of so many members is told."""
    ids = [f"billing-{number}-5b9c8f0e-8f36-4d3c-9d1a-0c6f2f5a1f6e" for number in range(members)]
    return JoinGroupResponse(
        error_code=0,
        protocol_name="range",
        leader=ids[0],
        member_id=ids[0],
        members=tuple(JoinGroupMember(member_id=each, metadata=bytes(60)) for each in ids),
    )


def owned(partitions: int) -> ConsumerGroupHeartbeatRequest:
    """A member of the new protocol tells what it owns."""
    topic = TopicPartitions(topic_id=ZERO_UUID, partitions=tuple(range(partitions)))
    return ConsumerGroupHeartbeatRequest(group_id="billing", member_id="1", member_epoch=3, topic_partitions=(topic,))


def best(*rivals: Callable[[], object]) -> list[float]:
    """Microseconds of one call of each, at best."""
    found = [1e9] * len(rivals)
    for _ in range(RUNS):
        for place, rival in enumerate(rivals):
            loops = max(1, round(SECONDS / min(found[place] / 1e6, SECONDS)))
            start = time.perf_counter()
            for _ in range(loops):
                rival()
            found[place] = min(found[place], (time.perf_counter() - start) / loops * 1e6)
    return found


def measure(name: str, message: Struct, version: int) -> None:
    """Prints a row."""
    data = encode(message, version)
    cls = type(message)
    construct = layout(cls, version, version >= cls.FLEXIBLE)

    def build() -> bytes:
        stream = BytesIO()
        construct._build(message, stream, None, "")
        return stream.getvalue()

    row = f"{name:36}"
    for rivals in (
        (lambda: construct._parse(BytesIO(data), None, ""), lambda: decode(cls, version, data)),
        (build, lambda: encode(message, version)),
    ):
        slow, fast = best(*rivals)
        row += f"   {slow:8.1f} {fast:8.2f} x{slow / fast:.1f}"
    print(row)


if __name__ == "__main__":
    print(f"{'us':36}   {'decode: construct, compiled':24}   encode: construct, compiled")
    measure("Heartbeat v4", HeartbeatRequest(group_id="billing", generation_id=3, member_id="billing-1"), 4)
    measure("its reply", HeartbeatResponse(error_code=0), 4)
    for partitions in (1, 10, 50, 100):
        measure(f"OffsetCommit v8, {partitions} partitions", commit(partitions), 8)
    measure("its reply, 50 partitions", committed(50), 8)
    measure("JoinGroup reply v9, 100 members", joined(100), 9)
    measure("ConsumerGroupHeartbeat, 50 partitions", owned(50), 0)
