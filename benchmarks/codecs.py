"""Compares the time to decode and encode a message by its `construct` layout with that of the compiled functions.

    python -m benchmarks.codecs [--quick]

Both take turns in many short runs, and the fastest run of each counts. On a busy machine, longer runs would be
interrupted.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from io import BytesIO

from benchmarks.section import Section
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

RUN_SECONDS = 0.0005
"""The approximate duration of one run."""


def commit(partitions: int) -> OffsetCommitRequest:
    """Returns a commit of one topic. `partitions` is the number of partitions."""
    committed = tuple(
        OffsetCommitRequestPartition(partition_index=index, committed_offset=index, committed_metadata="")
        for index in range(partitions)
    )
    topic = OffsetCommitRequestTopic(name="orders", partitions=committed)
    return OffsetCommitRequest(
        group_id="billing", generation_id_or_member_epoch=3, member_id="billing-1", topics=(topic,)
    )


def committed(partitions: int) -> OffsetCommitResponse:
    """Returns the reply to a commit of one topic. `partitions` is the number of partitions."""
    each = tuple(OffsetCommitResponsePartition(partition_index=index, error_code=0) for index in range(partitions))
    return OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="orders", partitions=each),))


def joined(members: int) -> JoinGroupResponse:
    """Returns the JoinGroup reply to the leader of a group. `members` is the number of members."""
    ids = [f"billing-{number}-5b9c8f0e-8f36-4d3c-9d1a-0c6f2f5a1f6e" for number in range(members)]
    return JoinGroupResponse(
        error_code=0,
        protocol_name="range",
        leader=ids[0],
        member_id=ids[0],
        members=tuple(JoinGroupMember(member_id=each, metadata=bytes(60)) for each in ids),
    )


def owned(partitions: int) -> ConsumerGroupHeartbeatRequest:
    """Returns a ConsumerGroupHeartbeat in which a member reports the partitions that it owns."""
    topic = TopicPartitions(topic_id=ZERO_UUID, partitions=tuple(range(partitions)))
    return ConsumerGroupHeartbeatRequest(group_id="billing", member_id="1", member_epoch=3, topic_partitions=(topic,))


def messages() -> Iterator[tuple[str, Struct, int]]:
    """Yields the measured messages, each as a name, the message, and its version."""
    yield "Heartbeat v4", HeartbeatRequest(group_id="billing", generation_id=3, member_id="billing-1"), 4
    yield "its reply", HeartbeatResponse(error_code=0), 4
    for partitions in (1, 10, 50, 100):
        yield f"OffsetCommit v8, {partitions} partition{'s' * (partitions > 1)}", commit(partitions), 8
    yield "its reply, 50 partitions", committed(50), 8
    yield "JoinGroup reply v9, 100 members", joined(100), 9
    yield "ConsumerGroupHeartbeat v0, 50 partitions", owned(50), 0


def best(runs: int, *candidates: Callable[[], object]) -> list[float]:
    """Returns the microseconds of the fastest call of each candidate."""
    found = [1e9] * len(candidates)
    for _ in range(runs):
        for place, rival in enumerate(candidates):
            loops = max(1, round(RUN_SECONDS / min(found[place] / 1e6, RUN_SECONDS)))
            start = time.perf_counter()
            for _ in range(loops):
                rival()
            found[place] = min(found[place], (time.perf_counter() - start) / loops * 1e6)
    return found


def row(name: str, message: Struct, version: int, runs: int) -> str:
    """Returns a row of the table."""
    data = encode(message, version)
    cls = type(message)
    construct = layout(cls, version, version >= cls.FLEXIBLE)

    def build() -> bytes:
        stream = BytesIO()
        construct._build(message, stream, None, "")
        return stream.getvalue()

    cells = [name, f"{len(data):,}"]
    for candidates in (
        (lambda: construct._parse(BytesIO(data), None, ""), lambda: decode(cls, version, data)),
        (build, lambda: encode(message, version)),
    ):
        slow, fast = best(runs, *candidates)
        cells += [f"{slow:.1f}", f"{fast:.2f}", f"**{slow / fast:.1f}**"]
    return f"| {' | '.join(cells)} |"


def page(runs: int) -> Iterator[str]:
    """Yields the results as lines of Markdown."""
    yield f"""\
`python -m benchmarks.codecs` measures the microseconds to decode and to encode a message's body. *construct* is the
time of the message's declaration in the library construct. *compiled* is the time of the functions that are generated
from this declaration (`codecs/generated_code.py`). *times* is how many times faster the functions are. Each figure is
the best of {runs} runs of {RUN_SECONDS * 1000:g} ms. The runs of the declaration and of the functions took turns.
"""
    yield "| | bytes | decode: construct | compiled | times | encode: construct | compiled | times |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, message, version in messages():
        yield row(name, message, version, runs)


def measure(quick: bool) -> Section:
    """Measures the microseconds per message."""
    return Section("Codecs", "\n".join(page(40 if quick else 400)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    print(measure(parser.parse_args().quick).text)
