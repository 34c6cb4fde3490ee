"""Creates many stable groups, each with one member that has committed an offset."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.many_groups import join_request
from benchmarks.workloads import framed
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from group_sidecar.codecs.schema import Struct
from tests.kafka.processes import Address, host_port
from tests.kafka.wire import Wire

TOPIC = "committed"
AT_ONCE = 64
"""Groups that are created at the same time, each over its own connection."""
_JOIN, _SYNC, _HEARTBEAT, _COMMIT = 3, 3, 4, 8


class LoneMember(NamedTuple):
    """The only member of a group."""

    group: str
    member: str
    generation: int

    def heartbeat(self) -> HeartbeatRequest:
        """Returns a heartbeat of the member."""
        return HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member)

    def commit(self) -> OffsetCommitRequest:
        """Returns a commit of the member for one partition."""
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1_000, committed_metadata="")
        return OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member,
            topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=(partition,)),),
        )

    def sync(self) -> SyncGroupRequest:
        """Returns a SyncGroup in which the member assigns itself nothing."""
        own = SyncGroupRequestAssignment(member_id=self.member, assignment=b"\0\1\0\0\0\0\xff\xff\xff\xff")
        return SyncGroupRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member, assignments=(own,)
        )


def create_topic(address: Address, partitions: int = 1) -> None:
    """Creates TOPIC."""
    admin = AdminClient({"bootstrap.servers": host_port(address)})
    admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result()


def create_groups(address: Address, names: Sequence[str]) -> list[LoneMember]:
    """Makes a member join each group and commit."""
    members: list[LoneMember] = []
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(address, client_id="lone")) for _ in range(min(AT_ONCE, len(names)))]
        for first in range(0, len(names), AT_ONCE):
            some = names[first : first + AT_ONCE]
            replies = _ask_all(wires, [join_request(name) for name in some], _JOIN)
            joined = [LoneMember(name, it.member_id, it.generation_id) for name, it in zip(some, replies, strict=True)]
            _ask_all(wires, [member.sync() for member in joined], _SYNC)
            _ask_all(wires, [member.commit() for member in joined], _COMMIT)
            _ask_all(wires, [member.heartbeat() for member in joined], _HEARTBEAT)
            members += joined
    return members


def _ask_all(wires: Sequence[Wire], requests: Sequence[Struct], version: int) -> list[Any]:
    """Sends all requests at once, each over its own connection. Asserts that the broker refuses no request."""
    sent = [
        (wire, request, wire.send_request(request, version)) for wire, request in zip(wires, requests, strict=False)
    ]
    replies = [wire.receive_reply(request, version, number) for wire, request, number in sent]
    for reply in replies:
        parts = [part for topic in getattr(reply, "topics", ()) for part in topic.partitions] or [reply]
        assert not any(part.error_code for part in parts), reply
    return replies


def heartbeat_frames(members: Sequence[LoneMember]) -> list[bytes]:
    """Returns the encoded heartbeats of the members."""
    return [framed(member.heartbeat(), _HEARTBEAT) for member in members]


def commit_frames(members: Sequence[LoneMember]) -> list[bytes]:
    """Returns the encoded commits of the members."""
    return [framed(member.commit(), _COMMIT) for member in members]
