"""What the model of Kafka's coordinator keeps of a group.

Owns: the shapes, what of a group can be told from itself, and its offsets. Must not know: requests' order, time.
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
    """A member. `join`, `sync`: where the reply to its parked request goes; `expires`: when its session runs out."""

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
    """A group. `join_by`, `sync_by`: when the join phase ends, and when members must have synced."""

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
        """The longest that any member may take."""
        return max((member.rebalance for member in self.members.values()), default=0.0)

    def static(self, instance_id: str | None) -> ModelMember | None:
        """The member of an instance id."""
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
        """The reply to a join that is in this generation; the leader's with all members if `roster`."""
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
        """The protocol that most members prefer, of those that all support."""
        firsts = (next(name for name, _ in m.protocols if name in self.common) for m in self.members.values())
        votes = Counter(firsts)
        return max(sorted(votes), key=lambda name: votes[name])

    def describe(self) -> DescribedGroup:
        """As DescribeGroups v5 tells of it, members by id."""
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
        """Stores offsets."""
        for topic in request.topics:
            for p in topic.partitions:
                told = (p.committed_offset, p.committed_leader_epoch, p.committed_metadata or "")
                self.offsets[topic.name, p.partition_index] = told

    def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """Forgets offsets."""
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
        """All offsets, as v2 to v7 tell them."""
        return OffsetFetchResponse(
            topics=tuple(
                OffsetFetchResponseTopic(name=name, partitions=(_told(partition, *told),))
                for (name, partition), told in self.offsets.items()
            )
        )


def _told(partition: int, offset: int, epoch: int, metadata: str) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        metadata=metadata,
        error_code=ErrorCode.NONE,
    )


def committed(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The reply to a commit: an error of the group stands on each partition."""
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
