"""One group of the copy: its state, generation and members.

Owns: `Group`, `Member` and the transition table; everything that changes a group's membership is
here. Must not know: offsets' storage, other groups, who asks. Mirrors Kafka's GroupMetadata.

Two things stand beside Kafka's own state, because this copy sees the broker from outside:
- `joins`: joins that are with the broker unanswered. They are reservations, not members. While one of
  them must have started a rebalance, the group *appears* to be preparing one.
- `overdue`: members whose session must have run out. The broker has most likely removed them; should
  one be heard of again, it is back with all that was known of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from group_sidecar.coordinator.events import DescribedMember, Joining
from group_sidecar.coordinator.facts import RebalanceReason
from group_sidecar.coordinator.views import (
    CommittedOffset,
    GroupKind,
    GroupState,
    GroupView,
    Lacking,
    MemberView,
    TopicPartition,
)

SHORTEST_SESSION_MS = 6_000
"""`group.min.session.timeout.ms`: what is assumed of a member whose join was not seen."""

UNKNOWN_GENERATION = -1
"""DescribeGroups does not tell the generation; the next sign of life does."""

TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.DEAD: frozenset(),
}
"""Kafka's GroupState.validPreviousStates turned round; every state may also become DEAD."""


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a classic group. `seen_at`: when the request went out that last reset its session timer."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int = SHORTEST_SESSION_MS
    protocols: dict[str, bytes] = field(default_factory=dict)
    assignment: bytes = b""
    seen_at: float = 0.0

    def overdue(self, now: float) -> bool:
        """Whether its session must have run out."""
        return now > self.seen_at + self.session_timeout_ms / 1000

    def view(self, protocol: str) -> MemberView:
        """As others see it."""
        return MemberView(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            metadata=self.protocols.get(protocol, b""),
            assignment=self.assignment,
        )


@dataclass(slots=True, kw_only=True)
class Rebalance:
    """A rebalance under way: since when, and why."""

    since: float
    reason: RebalanceReason


class Group:
    """A group as far as it is known.

    Attributes:
        changes: grows with each change; tells whether a reply is older than what is known.
        roster_known: whether `members` are all members of the generation, not only those seen.
        obscured: why the copy is lacking, if something could not be followed.
    """

    def __init__(self, group_id: str, *, roster_known: bool) -> None:
        self.group_id = group_id
        self.kind = GroupKind.CLASSIC
        self.state = GroupState.DEAD  # Until the broker has said that it exists.
        self.generation = 0
        self.protocol_type = ""
        self.protocol = ""
        self.leader = ""
        self.members: dict[str, Member] = {}
        self.overdue: dict[str, Member] = {}
        self.pending: dict[str, float] = {}
        self.joins: dict[str, Joining] = {}
        self.roster_known = roster_known
        self.obscured: Lacking | None = None
        self.rebalance: Rebalance | None = None
        self.last_rebalance_at: float | None = None
        self.changes = 0

    def become(self, state: GroupState) -> None:
        """Changes state, along the table. What the table does not have was seen only in part: it is taken as it is."""
        if state is not self.state and state is not GroupState.DEAD and state not in TRANSITIONS[self.state]:
            self.rebalance = None
        self.state = state

    @property
    def rebalancing_join(self) -> Joining | None:
        """A join at the broker that must have started a rebalance, if there is one."""
        return next((join for join in self.joins.values() if self._forces_rebalance(join)), None)

    def _forces_rebalance(self, join: Joining) -> bool:
        member = self.members.get(join.member_id)
        if not join.parks:
            return False
        return member is None or join.member_id == self.leader or dict(join.protocols) != member.protocols

    @property
    def apparent_state(self) -> GroupState:
        """The state the broker must be in, joins under way considered."""
        return GroupState.PREPARING_REBALANCE if self.rebalancing_join else self.state

    @property
    def awaiting(self) -> frozenset[str]:
        """Whose joins are parked at the broker: member ids, or tokens of those that have no id yet."""
        return frozenset(join.member_id or join.token for join in self.joins.values() if join.parks)

    def begin_rebalance(self, reason: RebalanceReason, now: float) -> bool:
        """The group prepares a rebalance. Whether that is news."""
        if self.state is GroupState.PREPARING_REBALANCE:
            return False
        self.become(GroupState.PREPARING_REBALANCE)
        self.rebalance = Rebalance(since=now, reason=reason)
        return True

    def admit(self, joining: Joining, member_id: str, now: float) -> Member | None:
        """Enters a member that the broker accepted. Returns it where it was not in the group before."""
        known = self.members.get(member_id) or self.overdue.pop(member_id, None)
        # A member that joins again keeps its client id and host (Kafka's updateMember changes timeouts and protocols).
        member = known or Member(
            member_id=member_id,
            instance_id=joining.instance_id,
            client_id=joining.client_id,
            client_host=joining.client_host,
        )
        if not member.client_host:
            member.client_id, member.client_host = joining.client_id, joining.client_host
        member.session_timeout_ms = joining.session_timeout_ms
        member.protocols = dict(joining.protocols)
        member.seen_at = now
        self.members[member_id] = member
        self.pending.pop(member_id, None)
        return None if known else member

    def replace_static(self, joining: Joining, member_id: str) -> Member | None:
        """Takes out the member that held the same instance id under another member id, if there is one (KIP-345)."""
        if joining.instance_id is None:
            return None
        for member in [*self.members.values(), *self.overdue.values()]:
            if member.instance_id == joining.instance_id and member.member_id != member_id:
                self.drop(member.member_id)
                return member
        return None

    def call_roll(
        self, roster: Iterable[tuple[str, str | None, bytes]], protocol: str, now: float
    ) -> tuple[list[Member], list[Member]]:
        """Makes the members exactly those the leader was told of. Returns who is new, and who is no longer there."""
        joining = {join.member_id: join for join in self.joins.values()}
        before = {**self.overdue, **self.members}
        self.members, self.overdue, new = {}, {}, []
        for member_id, instance_id, metadata in roster:
            member = before.pop(member_id, None)
            if member is None:
                member = Member(member_id=member_id, instance_id=instance_id)
                new.append(member)
            if (join := joining.get(member_id)) is not None:
                member.session_timeout_ms = join.session_timeout_ms
                member.client_id = member.client_id or join.client_id
                member.client_host = member.client_host or join.client_host
                member.protocols = dict(join.protocols)
            member.protocols[protocol] = metadata
            member.seen_at = max(member.seen_at, now)
            self.members[member_id] = member
        self.roster_known = True
        return new, list(before.values())

    def drop(self, member_id: str) -> Member | None:
        """Takes a member out, also one that is overdue or only pending."""
        self.pending.pop(member_id, None)
        return self.members.pop(member_id, None) or self.overdue.pop(member_id, None)

    def by_instance(self, instance_id: str | None) -> str:
        """The member id behind a group instance id; empty where there is none."""
        if instance_id is None:
            return ""
        return next((m.member_id for m in self.members.values() if m.instance_id == instance_id), "")

    def hear(self, member: Member, generation: int, now: float) -> None:
        """Notes a sign of life. Of a member or generation that is new to the copy, it learns."""
        known = self.members.get(member.member_id) or self.overdue.pop(member.member_id, None)
        if known is None:
            known = member
            self.roster_known = False
            self.changes += 1
        known.seen_at = max(known.seen_at, now)
        self.members[known.member_id] = known
        if self.generation == UNKNOWN_GENERATION:
            self.generation = generation
        if generation != self.generation:
            self.generation = generation
            self.roster_known = False
            self.changes += 1
            self.become(GroupState.STABLE)
        elif self.state in (GroupState.EMPTY, GroupState.DEAD):
            self.become(GroupState.STABLE)

    def expire(self, now: float) -> list[Member]:
        """Sets aside the members whose session must have run out; those parked in a join do not expire."""
        awaiting = self.awaiting
        late = [m for m in self.members.values() if m.overdue(now) and m.member_id not in awaiting]
        for member in late:
            self.overdue[member.member_id] = self.members.pop(member.member_id)
        for member_id in [m for m, deadline in self.pending.items() if deadline < now]:
            del self.pending[member_id]
        return late

    def empty_out(self, generation: int) -> None:
        """The last member is gone: the group is Empty, one generation on, its protocol forgotten, its type kept."""
        self.become(GroupState.EMPTY)
        self.generation = generation
        self.protocol = self.leader = ""
        self.rebalance = None
        self.overdue.clear()

    def describe(self, members: Iterable[DescribedMember], protocol: str, now: float) -> None:
        """Takes the members as the broker described them, keeping what it does not tell."""
        if not self.roster_known:
            self.generation = UNKNOWN_GENERATION
        before = {**self.overdue, **self.members}
        self.members, self.overdue = {}, {}
        for told in members:
            member = before.get(told.member_id) or Member(member_id=told.member_id, seen_at=now)
            member.instance_id, member.client_id = told.instance_id, told.client_id
            member.client_host, member.assignment = told.client_host, told.assignment
            if protocol:
                member.protocols[protocol] = told.metadata
            self.members[told.member_id] = member
        self.roster_known = True

    def view(
        self,
        *,
        lacking: Lacking | None,
        offsets_lacking: Lacking | None,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> GroupView:
        """As others see it."""
        return GroupView(
            group_id=self.group_id,
            kind=self.kind,
            state=self.apparent_state,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            generation=self.generation,
            members=tuple(member.view(self.protocol) for member in self.members.values()),
            awaiting=self.awaiting,
            offsets=offsets,
            roster_known=self.roster_known,
            lacking=lacking,
            offsets_lacking=offsets_lacking,
            last_rebalance_at=self.last_rebalance_at,
        )
