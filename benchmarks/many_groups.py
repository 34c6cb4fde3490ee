"""Creates thousands of groups through a sidecar, for benchmarks, with clients that send raw frames."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle

from confluent_kafka.admin import AdminClient, NewTopic

from group_sidecar.codecs.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from group_sidecar.codecs.schema import encode
from tests.kafka.processes import Address, host_port
from tests.kafka.wire import Wire

PARTITIONS = 100
"""Partitions of each topic."""
TOPICS = tuple(f"orders-{number:03}" for number in range(100))
TOPICS_AT_ONCE = 50
"""Topics per request. A controller refuses to write more than 10,000 records for one request."""
CONNECTIONS = 8
"""The number of connections that commit. The broker handles one request of a connection at a time, and collects commits
for some milliseconds."""
MAX_IN_FLIGHT = 200
"""The maximum number of in-flight commits."""
MEMBERS = 100
_MINUTES = 30 * 60_000
_JOIN, _SYNC, _COMMIT = 3, 3, 8


def create_topics(address: Address, topics: Sequence[str] = TOPICS) -> None:
    """Creates topics with PARTITIONS partitions each."""
    admin = AdminClient({"bootstrap.servers": host_port(address)})
    for first in range(0, len(topics), TOPICS_AT_ONCE):
        new = [NewTopic(name, PARTITIONS, 1) for name in topics[first : first + TOPICS_AT_ONCE]]
        for created in admin.create_topics(new, request_timeout=120).values():
            created.result()
    while not _led(admin, topics):
        time.sleep(1)


def _led(admin: AdminClient, topics: Sequence[str]) -> bool:
    """Whether the broker knows the leaders of all partitions. Without a leader, no offsets are stored."""
    known = admin.list_topics(timeout=60).topics
    partitions = [each for name in topics if name in known for each in known[name].partitions.values()]
    return len(partitions) == len(topics) * PARTITIONS and all(each.leader >= 0 for each in partitions)


def commit_request(group: str, partitions: int, offset: int = 1_000_000) -> OffsetCommitRequest:
    """Returns a commit without a member, for the first `partitions` partitions of TOPICS."""
    topics = tuple(
        OffsetCommitRequestTopic(
            name=TOPICS[first // PARTITIONS],
            partitions=tuple(
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset + index, committed_metadata=""
                )
                for index in range(min(PARTITIONS, partitions - first))
            ),
        )
        for first in range(0, partitions, PARTITIONS)
    )
    return OffsetCommitRequest(group_id=group, topics=topics)


def commit_all(address: Address, commits: Iterable[OffsetCommitRequest], at_once: int = MAX_IN_FLIGHT) -> None:
    """Sends commits with many in flight, and waits until all are stored.

    Very long commits need a smaller `at_once`.
    """
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(address, client_id="committer")) for _ in range(CONNECTIONS)]
        sent: deque[tuple[Wire, OffsetCommitRequest, int]] = deque()

        def settle() -> None:
            wire, request, correlation = sent.popleft()
            reply = wire.receive_reply(request, _COMMIT, correlation)
            errors = {each.error_code for topic in reply.topics for each in topic.partitions}
            assert errors == {0}, errors

        for wire, request in zip(cycle(wires), commits):
            sent.append((wire, request, wire.send_request(request, _COMMIT)))
            if len(sent) == at_once:
                settle()
        while sent:
            settle()


@contextmanager
def consumers(address: Address, group: str, members: int = MEMBERS) -> Iterator[None]:
    """Runs a stable group for the length of a with statement. The members share all partitions equally.

    Session timeouts are half an hour. The broker must wait long enough for all members to join in one rebalance.
    """
    with groups_of_consumers(address, {group: members}):
        yield


@contextmanager
def groups_of_consumers(address: Address, sizes: Mapping[str, int]) -> Iterator[None]:
    """Runs several stable groups at the same time. `sizes`: the number of members of each group."""
    with ExitStack() as stack:
        joining_now = []
        for group, members in sizes.items():
            wires = [stack.enter_context(Wire(address, client_id=f"consumer-{number}")) for number in range(members)]
            request = join_request(group)
            joining_now.append((request, [(wire, wire.send_request(request, _JOIN)) for wire in wires]))
        for request, sent in joining_now:
            joined = [wire.receive_reply(request, _JOIN, number) for wire, number in sent]
            assert {reply.generation_id for reply in joined} == {joined[0].generation_id}, (
                "the members joined several generations"
            )
            _sync(request.group_id, [wire for wire, _ in sent], joined)
        yield


def join_request(group: str) -> JoinGroupRequest:
    """Returns the JoinGroup request of a new member."""
    subscription = ConsumerProtocolSubscription(topics=TOPICS[:10])
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=_MINUTES,
        rebalance_timeout_ms=_MINUTES,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupProtocol(name="range", metadata=b"\0\1" + encode(subscription, 1)),),
    )


def _sync(group: str, wires: Sequence[Wire], joined: Sequence[JoinGroupResponse]) -> None:
    assignments = tuple(
        SyncGroupRequestAssignment(member_id=reply.member_id, assignment=_assignment(number))
        for number, reply in enumerate(joined)
    )
    sent = []
    for wire, reply in zip(wires, joined, strict=True):
        leads = reply.member_id == reply.leader
        request = SyncGroupRequest(
            group_id=group,
            generation_id=reply.generation_id,
            member_id=reply.member_id,
            assignments=assignments if leads else (),
        )
        sent.append((wire, request, wire.send_request(request, _SYNC)))
    for wire, request, correlation in sent:
        reply = wire.receive_reply(request, _SYNC, correlation)
        assert reply.error_code == 0, reply


def _assignment(number: int) -> bytes:
    parts = tuple(TopicPartition(topic=topic, partitions=(number,)) for topic in TOPICS[:10])
    return b"\0\1" + encode(ConsumerProtocolAssignment(assigned_partitions=parts), 1)
