"""The state of one group in the model of Kafka's coordinator.

Contains members, groups, their offsets, and the results that depend on one group alone. `model.Broker` handles the
order of requests and the timers.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.describe_groups import DescribedGroup, DescribedGroupMember
from group_sidecar.codecs.messages.join_group import JoinGroupMember, JoinGroupResponse
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from group_sidecar.codecs.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"
DEAD = "Dead"
NEVER = float("inf")
Respond = Callable[[Any], None]
Protocols = tuple[tuple[str, bytes], ...]


@dataclass(kw_only=True)
class ModelMember:
    """A member of a group.

    Attributes:
        session: the session timeout in seconds.
        rebalance: the rebalance timeout in seconds.
        join: the function that takes the reply to the parked JoinGroup; None if none is parked.
        sync: the function that takes the reply to the parked SyncGroup; None if none is parked.
        is_new: whether the member waits for its first generation.
        expires: the time at which the session expires.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session: float
    rebalance: float
    protocols: Protocols
    assignment: bytes = b""
    join: Respond | None = None
    sync: Respond | None = None
    is_new: bool = True
    expires: float = NEVER


@dataclass
class ModelGroup:
    """A group.

    Attributes:
        initial: whether the group was empty when the rebalance began.
        pending: by member id without a join yet, the time at which the id expires.
        unsynced: ids of the members that have not sent SyncGroup in this generation.
        join_by: the time at which the join phase ends.
        sync_by: the time at which members must have sent SyncGroup.
        offsets: by topic and partition, the offset, its leader epoch and its metadata.
    """

    group_id: str
    state: str = EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    initial: bool = False
    members: dict[str, ModelMember] = field(default_factory=dict)
    pending: dict[str, float] = field(default_factory=dict)
    unsynced: set[str] = field(default_factory=set)
    join_by: float = NEVER
    sync_by: float = NEVER
    offsets: dict[tuple[str, int], tuple[int, int, str]] = field(default_factory=dict)

    @property
    def awaiting(self) -> list[ModelMember]:
        """The members whose join is parked."""
        return [member for member in self.members.values() if member.join]

    @property
    def rebalance_timeout(self) -> float:
        """The longest rebalance timeout of all members, in seconds; 0 without members."""
        return max((member.rebalance for member in self.members.values()), default=0.0)

    def static(self, instance_id: str | None) -> ModelMember | None:
        """Returns the member with an instance id, or None."""
        return next((m for m in self.members.values() if instance_id and m.instance_id == instance_id), None)

    def accepts(self, member_id: str, max_size: int | None) -> bool:
        """Whether a join is accepted under group.max.size (acceptJoiningMember)."""
        if max_size is None or self.state == EMPTY:
            return True
        known = self.members.get(member_id)
        if self.state == PREPARING:
            return bool(known and known.join) or len(self.awaiting) < max_size
        return known is not None or len(self.members) < max_size

    def joined(self, member: ModelMember, *, roster: bool) -> JoinGroupResponse:
        """Returns the successful reply to a member's join. The leader's reply has all members if `roster` is set."""
        members = tuple(
            JoinGroupMember(
                member_id=m.member_id, group_instance_id=m.instance_id, metadata=dict(m.protocols)[self.protocol]
            )
            for m in self.members.values()
        )
        return JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=self.generation,
            protocol_name=self.protocol,
            leader=self.leader,
            member_id=member.member_id,
            members=members if roster and self.leader == member.member_id else (),
        )

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in the group."""
        if not self.members:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(name in self.common for name, _ in protocols)

    @property
    def common(self) -> set[str]:
        """The protocols that all members support."""
        return set.intersection(*({name for name, _ in member.protocols} for member in self.members.values()))

    def selected(self) -> str:
        """Returns the protocol with most votes. Each member votes for its first protocol that all members support."""
        firsts = (next(name for name, _ in m.protocols if name in self.common) for m in self.members.values())
        votes = Counter(firsts)
        return max(sorted(votes), key=lambda name: votes[name])

    def describe(self) -> DescribedGroup:
        """Returns the group in the form of DescribeGroups v5, with members sorted by id."""
        settled = self.state == STABLE
        members = (
            DescribedGroupMember(
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                member_metadata=dict(m.protocols)[self.protocol] if settled else b"",
                member_assignment=m.assignment if settled else b"",
            )
            for m in self.members.values()
        )
        return DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=self.group_id,
            group_state=self.state,
            protocol_type=self.protocol_type,
            protocol_data=self.protocol if settled else "",
            members=tuple(sorted(members, key=lambda member: member.member_id)),
        )

    def commit(self, request: OffsetCommitRequest) -> None:
        """Stores the offsets of a commit."""
        for topic in request.topics:
            for p in topic.partitions:
                stored = (p.committed_offset, p.committed_leader_epoch, p.committed_metadata or "")
                self.offsets[topic.name, p.partition_index] = stored

    def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """Removes the offsets that a request names, and returns the reply."""
        topics = []
        for topic in request.topics:
            for p in topic.partitions:
                self.offsets.pop((topic.name, p.partition_index), None)
            deleted = (
                OffsetDeleteResponsePartition(partition_index=p.partition_index, error_code=ErrorCode.NONE)
                for p in topic.partitions
            )
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=tuple(deleted)))
        return OffsetDeleteResponse(error_code=ErrorCode.NONE, throttle_time_ms=0, topics=tuple(topics))

    def fetch(self) -> OffsetFetchResponse:
        """Returns the reply with all offsets, in the form of OffsetFetch v2 to v7."""
        return OffsetFetchResponse(
            topics=tuple(
                OffsetFetchResponseTopic(name=name, partitions=(_fetched_partition(partition, *stored),))
                for (name, partition), stored in self.offsets.items()
            )
        )


def _fetched_partition(partition: int, offset: int, epoch: int, metadata: str) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        metadata=metadata,
        error_code=ErrorCode.NONE,
    )


def committed(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """Returns the reply to a commit, with the same error code for each partition."""
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=error)
                    for p in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
