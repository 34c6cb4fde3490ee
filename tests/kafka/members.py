"""Group members of bare frames, which take each step only when told to, so that a group stays where it is.

Owns: the steps of a classic member and of one of the new protocol (KIP-848). Must not know: why they are taken.
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
"""Milliseconds; longer than any test, and what the oldest brokers allow at most."""
CLEARED_AWAY = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_MEMBER_ID)
"""What a join or commit is told whose group the broker drops meanwhile, for nothing is in it yet: newer, older ones."""
_COMMITS = 5
"""So often a commit may meet that; more than once hardly happens, and a group with members says the same each time."""
_LAST_SINGLE_LEAVE = 2
_FIRST_STATIC_COMMIT = 7


def offsets_to_commit(
    topic: str, offsets: Mapping[int, int], metadata: str | None = "a note"
) -> tuple[OffsetCommitRequestTopic, ...]:
    """One topic with these offsets by partition."""
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=metadata)
        for partition, offset in offsets.items()
    )
    return (OffsetCommitRequestTopic(name=topic, partitions=partitions),)


def error_in(reply: Any) -> int:
    """The first error in a reply, at the top or at a partition; 0 where there is none."""
    partitions = (part for topic in getattr(reply, "topics", ()) for part in topic.partitions)
    codes = (getattr(each, "error_code", 0) for each in (reply, *partitions))
    return next((int(code) for code in codes if code), 0)


def succeeded(reply: Any) -> Any:
    """The reply; asserts that no error stands in it, at the top or at a partition."""
    assert error_in(reply) == 0, reply
    return reply


def commit(client: Client, group: str, topic: str, offsets: Mapping[int, int], **fields: Any) -> None:
    """Commits as one who is no member: with `retention_time_ms` in the last version that has it."""
    request = OffsetCommitRequest(group_id=group, topics=offsets_to_commit(topic, offsets), **fields)
    at_most = 4 if "retention_time_ms" in fields else 9  # From v10 on topics go by id.
    for _ in range(_COMMITS):
        reply = client.ask(request, at_most)
        if error_in(reply) not in CLEARED_AWAY:
            break
    succeeded(reply)


class ClassicMember:
    """A member of the classic protocol, on a connection of its own; it leaves at the end of a with statement.

    Args:
        instance_id: makes it a static member.
        session_ms: after so many milliseconds without a sign of life the broker drops it.
        rebalance_ms: so long the broker waits for it to join again.
    """

    speaks: tuple[str, ...] = ("range",)
    """The assignors that it offers."""

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
        """As the leader: the ids of all members, its own first."""

    def request_id(self) -> None:
        """Asks for a member id where the broker wants that first (KIP-394), and goes no further."""
        if not self.member_id and not self._instance_id and self._version(JoinGroupRequest) > 3:
            until(self._has_been_given_an_id, "the broker issues a member id")

    def send_join(self) -> None:
        """Sends a join that the broker may keep unanswered."""
        self.request_id()
        self._parked = self._wire.send_request(self._join(), self._version(JoinGroupRequest))

    def receive_join(self) -> Any:
        """Waits for the generation, or for the refusal; returns the reply."""
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

        A group of which there is only an issued id may be cleared away; like any client it then asks for another.
        """
        is_new = not self.member_id

        def joined() -> bool:
            self.send_join()
            reply = self.receive_join()
            if is_new and reply.error_code in CLEARED_AWAY:
                self.member_id = ""
            else:
                succeeded(reply)
            return int(reply.error_code) == 0

        until(joined, "the broker has dropped the group, so that it can be joined anew")

    def answered(self, seconds: float) -> bool:
        """Whether a join or sync that was sent has its reply, within so many seconds."""
        return self._wire.readable(seconds)

    def send_sync(self) -> None:
        """Sends a sync that the broker may keep unanswered; as the leader with one partition for each member."""
        self._parked = self._wire.send_request(self._sync(), self._version(SyncGroupRequest))

    def receive_sync(self) -> Any:
        """Waits for the assignment, or for the refusal; returns the reply."""
        return self._wire.receive_reply(self._sync(), self._version(SyncGroupRequest), self._parked)

    def sync(self) -> None:
        """Syncs, and waits for the assignment."""
        self.send_sync()
        succeeded(self.receive_sync())

    def heartbeat(self) -> int:
        """Sends a sign of life; returns the error code."""
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
        )
        return int(self._ask(request).error_code)

    def commit(self, offsets: Mapping[int, int]) -> Any:
        """Commits offsets of the topic as a member; returns the reply."""
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
        """Leaves, over a connection of its own; returns the reply."""
        if self._version(LeaveGroupRequest) <= _LAST_SINGLE_LEAVE:
            request = LeaveGroupRequest(group_id=self._group, member_id=self.member_id)
        else:
            identity = MemberIdentity(member_id=self.member_id, group_instance_id=self._instance_id)
            request = LeaveGroupRequest(group_id=self._group, members=(identity,))
        self.member_id = ""
        return self._client.ask(request)

    def reconnect(self, client: Client) -> None:
        """Goes on over another connection, and perhaps another way to the same broker."""
        self._wire.__exit__(None, None, None)
        self._client, self._wire = client, client.wire()

    def vanish(self) -> None:
        """Closes the connection and forgets everything, as a killed process does: that is no leave."""
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
    """A member of the new protocol; it leaves at the end of a with statement.

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
        """Joins; what it shall own may come later."""
        self._in_group = True
        self._heartbeat(
            rebalance_timeout_ms=MINUTES, subscribed_topic_names=self._topics, topic_partitions=(), server_assignor=None
        )

    def heartbeat(self) -> None:
        """Sends a sign of life and takes note of what it shall own, without saying that it does."""
        self._heartbeat()

    def take(self) -> None:
        """Says that it owns what it was last told to own."""
        owned = tuple(TopicPartitions(topic_id=topic, partitions=parts) for topic, parts in self.assigned.items())
        self._heartbeat(topic_partitions=owned)

    def leave(self, *, for_a_restart: bool = False) -> None:
        """Leaves; a static member may say that it will be back."""
        self._in_group = False
        self.epoch = -2 if for_a_restart else -1
        self._heartbeat()

    def vanish(self) -> None:
        """Is not heard of any more, as a killed process: that is no leave."""
        self._in_group = False

    def commit(self, topic: str, offsets: Mapping[int, int]) -> Any:
        """Commits offsets as a member; returns the reply."""
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
