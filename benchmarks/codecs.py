"""What one message costs to decode and to encode.

    python -m benchmarks.codecs

Prints microseconds on one core, the best of five runs.
"""

import timeit

from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.schema import Struct, decode, encode

LOOPS = 2_000


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


def measure(name: str, message: Struct, version: int) -> None:
    """Prints a row."""
    data = encode(message, version)
    cls = type(message)
    reading = min(timeit.repeat(lambda: decode(cls, version, data), number=LOOPS)) / LOOPS * 1e6
    writing = min(timeit.repeat(lambda: encode(message, version), number=LOOPS)) / LOOPS * 1e6
    print(f"{name:32} decode {reading:7.1f} us   encode {writing:7.1f} us")


if __name__ == "__main__":
    measure("Heartbeat v4", HeartbeatRequest(group_id="billing", generation_id=3, member_id="billing-1"), 4)
    for partitions in (1, 10, 50, 100):
        measure(f"OffsetCommit v8, {partitions} partitions", commit(partitions), 8)
