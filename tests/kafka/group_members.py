"""Group members that send raw frames, so that each step is under the test's control and a group keeps its state.

There are members of the classic protocol and of the new one (KIP-848).
"""

import uuid
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from group_sidecar.codecs.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol, JoinGroupRequest
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, MemberIdentity
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from group_sidecar.codecs.schema import Struct, encode
from tests.kafka.dialect import Client, until

MINUTES = 5 * 60_000
"""Five minutes in milliseconds: longer than any test, and the maximum session timeout of the oldest brokers."""
GROUP_REMOVED_ERRORS = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_MEMBER_ID)
"""Errors of a join or commit that finds an empty group while the broker removes it, in newer and in older versions."""
JOIN_OF_REMOVED_GROUP_ERRORS = (*GROUP_REMOVED_ERRORS, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
"""Errors of a join that finds an empty group while the broker removes it. Kafka 1.1.1 compares the protocol type before
it notices that the group is dead (its `GroupCoordinator.doJoinGroup`), and a dead group has no protocol type."""
_COMMITS = 5
"""How often a commit is tried if it gets one of `GROUP_REMOVED_ERRORS`. More than one retry is rare. A group with
members returns the same error each time, so there is a maximum."""
_LAST_SINGLE_LEAVE = 2
_FIRST_STATIC_COMMIT = 7


def offsets_to_commit(
    topic: str, offsets: Mapping[int, int], metadata: str | None = "a note"
) -> tuple[OffsetCommitRequestTopic, ...]:
    """Returns one topic with these offsets by partition."""
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=metadata)
        for partition, offset in offsets.items()
    )
    return (OffsetCommitRequestTopic(name=topic, partitions=partitions),)


def error_in(reply: Any) -> int:
    """Returns the first error in a reply, at the top level or of a partition; 0 if there is none."""
    partitions = (part for topic in getattr(reply, "topics", ()) for part in topic.partitions)
    codes = (getattr(each, "error_code", 0) for each in (reply, *partitions))
    return next((int(code) for code in codes if code), 0)


def succeeded(reply: Any) -> Any:
    """Returns the reply, after asserting that it has no error at the top level or of a partition."""
    assert error_in(reply) == 0, reply
    return reply


def commit(client: Client, group: str, topic: str, offsets: Mapping[int, int], **fields: Any) -> None:
    """Commits offsets without a member. With `retention_time_ms`, uses the last version that has this field."""
    request = OffsetCommitRequest(group_id=group, topics=offsets_to_commit(topic, offsets), **fields)
    at_most = 4 if "retention_time_ms" in fields else 9  # From v10 on, topics are identified by id.
    for _ in range(_COMMITS):
        reply = client.ask(request, at_most)
        if error_in(reply) not in GROUP_REMOVED_ERRORS:
            break
    succeeded(reply)


class ClassicMember:
    """A member of the classic protocol, on its own connection. It leaves at the end of a with statement.

    Args:
        instance_id: makes it a static member.
        session_ms: the session timeout in milliseconds.
        rebalance_ms: the rebalance timeout in milliseconds.
    """

    speaks: tuple[str, ...] = ("range",)
    """The assignors that the member supports."""

    def __init__(
        self,
        client: Client,
        group: str,
        topic: str,
        *,
        instance_id: str | None = None,
        session_ms: int = MINUTES,
        rebalance_ms: int = MINUTES,
    ) -> None:
        self._client, self._group, self._topic = client, group, topic
        self._instance_id, self._session_ms, self._rebalance_ms = instance_id, session_ms, rebalance_ms
        self._wire = client.wire()
        self._parked = 0
        self._assignor = ""
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self.others: tuple[str, ...] = ()
        """For the leader: the ids of all members, its own id first. For any other member: empty."""

    def request_id(self) -> None:
        """Requests a member id if the broker requires that first (KIP-394). Does not join."""
        if not self.member_id and not self._instance_id and self._version(JoinGroupRequest) > 3:
            until(self._has_been_given_an_id, "the broker issues a member id")

    def send_join(self) -> None:
        """Sends a JoinGroup without waiting for its reply."""
        self.request_id()
        self._parked = self._wire.send_request(self._join(), self._version(JoinGroupRequest))

    def receive_join(self) -> Any:
        """Waits for the JoinGroup reply, or for its error. Returns the reply."""
        reply = self._wire.receive_reply(self._join(), self._version(JoinGroupRequest), self._parked)
        if reply.error_code == 0:
            self.member_id, self.generation = reply.member_id, reply.generation_id
            self.leads = reply.leader == reply.member_id
            self._assignor = reply.protocol_name
            ids = (member.member_id for member in reply.members)
            self.others = tuple(sorted(ids, key=lambda member_id: member_id != self.member_id))
        return reply

    def join(self) -> None:
        """Joins, and waits for the generation.

        The broker may remove a group without members even if it has issued a member id for the group. Like any client,
        the member then requests another id.
        """
        is_new = not self.member_id

        def joined() -> bool:
            self.send_join()
            reply = self.receive_join()
            if is_new and reply.error_code in JOIN_OF_REMOVED_GROUP_ERRORS:
                self.member_id = ""
            else:
                succeeded(reply)
            return int(reply.error_code) == 0

        until(joined, "the broker has removed the empty group and accepts the join")

    def answered(self, seconds: float) -> bool:
        """Whether the reply to a join or sync that was sent arrives within `seconds`."""
        return self._wire.readable(seconds)

    def send_sync(self) -> None:
        """Sends a SyncGroup without waiting for its reply. A leader assigns one partition to each member."""
        self._parked = self._wire.send_request(self._sync(), self._version(SyncGroupRequest))

    def receive_sync(self) -> Any:
        """Waits for the SyncGroup reply, or for its error. Returns the reply."""
        return self._wire.receive_reply(self._sync(), self._version(SyncGroupRequest), self._parked)

    def sync(self) -> None:
        """Syncs, and waits for the assignment."""
        self.send_sync()
        succeeded(self.receive_sync())

    def heartbeat(self) -> int:
        """Sends a heartbeat. Returns the error code."""
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
        )
        return int(self._ask(request).error_code)

    def commit(self, offsets: Mapping[int, int]) -> Any:
        """Commits offsets of the topic as a member. Returns the reply."""
        version = self._client.dialect.newest(OffsetCommitRequest.KEY, 9)
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self._instance_id if version >= _FIRST_STATIC_COMMIT else None,
            topics=offsets_to_commit(self._topic, offsets),
        )
        return self._wire.ask(request, version)

    def leave(self) -> Any:
        """Leaves the group over the member's own connection. Returns the reply."""
        if self._version(LeaveGroupRequest) <= _LAST_SINGLE_LEAVE:
            request = LeaveGroupRequest(group_id=self._group, member_id=self.member_id)
        else:
            identity = MemberIdentity(member_id=self.member_id, group_instance_id=self._instance_id)
            request = LeaveGroupRequest(group_id=self._group, members=(identity,))
        self.member_id = ""
        return self._client.ask(request)

    def reconnect(self, client: Client) -> None:
        """Continues over another connection, possibly by another route to the same broker."""
        self._wire.__exit__(None, None, None)
        self._client, self._wire = client, client.wire()

    def vanish(self) -> None:
        """Closes the connection and forgets everything, like a killed process. The member does not leave the group."""
        self._wire.__exit__(None, None, None)
        self.member_id = ""

    def _has_been_given_an_id(self) -> bool:
        reply = self._ask(self._join())
        assert reply.error_code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.COORDINATOR_NOT_AVAILABLE), reply
        self.member_id = reply.member_id
        return bool(self.member_id)

    def _join(self) -> JoinGroupRequest:
        subscription = b"\0\0" + encode(ConsumerProtocolSubscription(topics=(self._topic,)), 0)
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=tuple(JoinGroupProtocol(name=name, metadata=subscription) for name in self.speaks),
        )

    def _sync(self) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocol_name=self._assignor,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member, assignment=self._share(number))
                for number, member in enumerate(self.others)
            ),
        )

    def _share(self, partition: int) -> bytes:
        parts = (TopicPartition(topic=self._topic, partitions=(partition,)),)
        return b"\0\0" + encode(ConsumerProtocolAssignment(assigned_partitions=parts), 0)

    def _version(self, request: type[Struct]) -> int:
        return self._client.dialect.newest(request.KEY)

    def _ask(self, request: Struct) -> Any:
        return self._wire.ask(request, self._version(type(request)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wire.__exit__(kind, error, trace)
        if self.member_id:
            with suppress(OSError):
                self.leave()


class ConsumerMember:
    """A member of the new protocol. It leaves at the end of a with statement.

    Args:
        instance_id: makes it a static member.
    """

    def __init__(self, client: Client, group: str, topics: tuple[str, ...], *, instance_id: str | None = None) -> None:
        self._client, self._group, self._topics, self._instance_id = client, group, topics, instance_id
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.assigned: dict[UUID, tuple[int, ...]] = {}
        self._in_group = False

    def join(self) -> None:
        """Joins the group. The target assignment may arrive with a later heartbeat."""
        self._in_group = True
        self._heartbeat(
            rebalance_timeout_ms=MINUTES, subscribed_topic_names=self._topics, topic_partitions=(), server_assignor=None
        )

    def heartbeat(self) -> None:
        """Sends a heartbeat and notes the target assignment, without reporting that it owns the assignment."""
        self._heartbeat()

    def take(self) -> None:
        """Reports that it owns the assignment that it received last."""
        owned = tuple(TopicPartitions(topic_id=topic, partitions=parts) for topic, parts in self.assigned.items())
        self._heartbeat(topic_partitions=owned)

    def leave(self, *, for_a_restart: bool = False) -> None:
        """Leaves. A static member may announce that it will return."""
        self._in_group = False
        self.epoch = -2 if for_a_restart else -1
        self._heartbeat()

    def vanish(self) -> None:
        """Sends nothing more, like a killed process. The member does not leave the group."""
        self._in_group = False

    def commit(self, topic: str, offsets: Mapping[int, int]) -> Any:
        """Commits offsets as a member. Returns the reply."""
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=offsets_to_commit(topic, offsets),
        )
        return self._client.ask(request, 9)

    def _heartbeat(self, **fields: Any) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self._instance_id,
            **fields,
        )
        reply = succeeded(self._client.ask(request))
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.assigned = {each.topic_id: each.partitions for each in reply.assignment.topic_partitions}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._in_group:
            with suppress(OSError, AssertionError):
                self.leave()
