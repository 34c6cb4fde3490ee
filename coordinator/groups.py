"""One group of the copy: its state, generation and members.

Owns: `Group`. Must not know: what events do (`membership`),
offsets, other groups, who asks. Mirrors Kafka's ClassicGroup.

Some things stand beside Kafka's own state, because this copy sees the broker from outside:
- `reservations`: joins that are with the broker unanswered. They are no members. While one of them must have
  started a rebalance, the group *appears* to be preparing one.
- `overdue`: members whose session must have run out. The broker has most likely removed them; should
  one be heard of again, it is back with all that was known of it.
- `unsure`: why the members may not be those that the broker has.

It has more than 400 lines because a group's members, joins and doubts change together; what events do is elsewhere.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from group_sidecar.coordinator.bounded_ids import LONGEST_ID, MOST_DEPARTED, ContestedIds, IssuedIds
from group_sidecar.coordinator.events import (
    FOREVER,
    LOST_SECONDS,
    NEVER,
    DescribedMember,
    JoinAccepted,
    Joining,
    JoinSent,
)
from group_sidecar.coordinator.hosts import located
from group_sidecar.coordinator.members import SHORTEST_TIMEOUT_MS, Leave, Member
from group_sidecar.coordinator.partitions import UNMOVED
from group_sidecar.coordinator.rebalances import Blame, Rebalance
from group_sidecar.coordinator.reservations import Reservations
from group_sidecar.coordinator.states import COMPLETING_REBALANCE, SETTLED, STABLE, TRANSITIONS
from group_sidecar.coordinator.unread import Unread
from group_sidecar.coordinator.views import (
    CommittedOffset,
    ConsumerGroupView,
    GroupKind,
    GroupState,
    GroupView,
    Lacking,
    MemberView,
    Seats,
    TopicPartition,
    group_view,
)

NOBODY, UNKNOWN_GENERATION = frozenset[str](), -1
"""DescribeGroups does not tell the generation; the next sign of life does."""
StaticMembers = Mapping[str, Sequence[Member]]
"""Members by their instance ids."""


class Group:
    """A group as far as it is known.

    Attributes:
        generation_at, stable_at: when this generation was first seen, and first seen stable.
        pending: member ids that were issued and not used yet (KIP-394).
        departed: member ids that have left this generation, or were issued and given up. Replies that are on their way
            may still name them.
        contested: instance ids of which a new member was fenced before it was in; the next one took over who it is.
        past: whether it may have static members that were not seen.
        unsure: why `members` may not be all members of the generation; None where they are.
        doubted_until: until when something known to have been lost may change it.
        epoch: the epoch of unread writes in which it was looked at last.
        assigned: whether all assignments of this generation are known.
        owned: the assignments before the rebalance that is under way, by instance or member id; None without one.
        leaving: members whose leaves were not answered, or not yet.
        came, went, tenure: ids of members since the last rebalance; since when the broker coordinates it.
        foretold: what will make a group of a newer protocol rebalance, as soon as its log says so.
        exclusive: whether nobody reaches the broker but through this sidecar.
        outlasts_members: whether the broker keeps it, and counts on, when its last member has gone.
        changes: grows with each change; tells whether a reply is older than what is known.
        changed_at: when something last changed.
        told_at: when the wire last told of it.
        logged: the raw metadata of the generation that the log last said; None where it says none.
        consumer: what the log says of a group of another protocol than the classic one.
        read_changes: the number of changes of its records that `consumer` was read at.
        metadata_bytes, weighed: of its members, at most; the number of changes at which these bytes were counted.
        bare: whether metadata or assignments of its members may be missing, for which there was no room.

    `ticks` numbers the changes of all groups; `changed` is where the names of those go that have changed; `unread` has
    the writes that were not understood.
    """

    def __init__(
        self, group_id: str, unsure: Lacking | None, ticks: Iterator[int], changed: set[str], unread: Unread
    ) -> None:
        self.group_id = group_id
        self._ticks, self._changed, self._unread = ticks, changed, unread
        self.epoch = unread.epoch
        self.kind, self.exclusive, self.outlasts_members = GroupKind.CLASSIC, False, True
        self.state = GroupState.DEAD  # Until the broker has said that it exists.
        self.generation = 0
        self.generation_at = self.stable_at = NEVER
        self.protocol_type = self.protocol = self.leader = ""
        self.members: dict[str, Member] = {}
        self.overdue: dict[str, Member] = {}
        self.pending = IssuedIds()
        self.departed: set[str] = set()
        self.contested = ContestedIds()
        self.reservations = Reservations()
        self.past, self.unsure = unsure is not None, unsure
        self.doubted_until = NEVER
        self.assigned = False
        self.owned: dict[str, bytes] | None = None
        self.leaving: dict[str, Leave] = {}
        self.came: Set[str] = NOBODY
        self.went: Set[str] = NOBODY
        self.tenure = UNMOVED
        self.rebalance: Rebalance | None = None
        self.foretold: Blame | None = None
        self.last_rebalance_at: float | None = None
        self.changes = self.read_changes = 0
        self.changed_at = self.told_at = NEVER
        self.logged: bytes | None = None
        self.consumer: ConsumerGroupView | None = None
        self.metadata_bytes, self.weighed, self.bare = 0, -1, False
        self._seen: tuple[int, ConsumerGroupView | None] = (0, None)
        self._shown: tuple[tuple[MemberView, ...], ConsumerGroupView | None] = ((), None)
        self._all_known_at = -1
        self._sound: tuple[int, float] = (-1, NEVER)

    # State.

    def become(self, state: GroupState) -> None:
        """Changes state, along the table. What the table does not have was seen only in part: it is taken as it is."""
        if state is not self.state and state is not GroupState.DEAD and state not in TRANSITIONS[self.state]:
            self.rebalance = None
        self.state = state

    @property
    def joins(self) -> Mapping[str, JoinSent]:
        """Joins that are with the broker unanswered, by their tokens."""
        return self.reservations.sent

    @property
    def rebalancing_join(self) -> JoinSent | None:
        """The first join at the broker that must have started a rebalance, if there is one."""
        return next((sent for sent in self.joins.values() if self.forces_rebalance(sent.joining)), None)

    def forces_rebalance(self, joining: Joining) -> bool:
        """Whether the broker must prepare a rebalance for a join, as far as is known."""
        if not joining.parks:
            return False
        member = self.members.get(joining.member_id)
        if self.bare or member is None or member.member_id == self.leader:
            return True
        return joining.protocols != tuple(member.protocols.items())

    @property
    def apparent_state(self) -> GroupState:
        """The state the broker must be in, joins under way and sessions that have run out considered."""
        if self.consumer is not None:
            return self.consumer.state or GroupState.STABLE
        if self.state is GroupState.PREPARING_REBALANCE or self.rebalancing_join is not None:
            return GroupState.PREPARING_REBALANCE
        return GroupState.EMPTY if self.overdue and not self.members else self.state

    @property
    def awaiting(self) -> frozenset[str]:
        """Whose joins are parked at the broker: member ids, or tokens of those that have no id yet."""
        return frozenset(self.reservations.joining)

    def start_generation(self, event: JoinAccepted, now: float) -> None:
        """The join phase is over. Who is in is known for sure from the leader's reply only."""
        self.kind = GroupKind.CLASSIC
        self.become(GroupState.COMPLETING_REBALANCE)
        self.generation, self.generation_at, self.stable_at = event.generation, now, NEVER
        self.protocol_type, self.protocol, self.leader = event.protocol_type, event.protocol, event.leader
        self.assigned = False
        self.departed.intersection_update(sent.joining.member_id for sent in self.joins.values())
        self.reservations.begin_generation(now)
        self.unsure = self.unsure or Lacking.IN_DOUBT

    def adopt_generation(self, generation: int, now: float) -> None:
        """A generation is under way of which the beginning was not seen."""
        self.become(GroupState.STABLE)
        self.generation, self.generation_at = generation, now
        self.assigned, self.owned, self.rebalance = False, None, None
        self.reservations.begin_generation(now)
        self.unsure = self.unsure or Lacking.COLD

    def empty_out(self, now: float) -> None:
        """The last member is gone: the group is Empty, one generation on, its protocol forgotten, its type kept."""
        preparing = self.joins or self.state is GroupState.PREPARING_REBALANCE
        if preparing and self.pending.may_be_used(now):
            self.doubt(now)  # The rebalance waits for these, with nobody in the group.
        self.become(GroupState.EMPTY)
        self.generation, self.generation_at = self.generation + 1 if self.outlasts_members else 0, now
        self.protocol = self.leader = ""
        self.rebalance = None
        self.reservations.begin_generation(now)

    # Certainty.

    def touch(self, now: float) -> None:
        """Counts a change."""
        self.changes = next(self._ticks)
        self.changed_at = now
        self._changed.add(self.group_id)

    def doubt(self, until: float) -> None:
        """Something was, or until then will be, done to the group whose outcome is not known."""
        self.unsure = self.unsure or Lacking.IN_DOUBT
        self.doubted_until = max(self.doubted_until, until)
        self._changed.add(self.group_id)

    @property
    def settled_at(self) -> float:
        """The time from which on a question to the broker settles the doubt: lost and unread requests act before it."""
        return max(self.doubted_until, self._unread.until_of(self.group_id))

    def be_sure(self) -> None:
        """All members are known."""
        self.unsure, self.past = None, False

    def lacking(self, now: float) -> Lacking | None:
        """Why DescribeGroups may not be answered from this copy; None where it may."""
        if self.kind is not GroupKind.CLASSIC and (self.consumer is None or self.consumer.state is None):
            return Lacking.VERSION
        if self.unsure is not None or self.kind is not GroupKind.CLASSIC:
            return self.unsure
        if self.joins or self.overdue or self.state not in SETTLED:
            return Lacking.IN_DOUBT
        if self.state is GroupState.STABLE and not self.assigned:
            return Lacking.IN_DOUBT
        if self._all_known_at != self.changes:
            if not all(member.client_host and member.certain for member in self.members.values()):
                return Lacking.COLD
            self._all_known_at = self.changes
        return None if now <= self.sound_until(now) else Lacking.IN_DOUBT

    def sound_until(self, now: float) -> float:
        """Until when nobody's timers run out, at least: as found last, for none is set to an earlier time."""
        if self._sound[0] != self.changes or now > self._sound[1]:
            until = min((member.sound_until for member in self.members.values()), default=FOREVER)
            self._sound = self.changes, until
        return self._sound[1]

    def order(self, members: tuple[str, ...]) -> None:
        """In this order the broker tells the members of a group of a newer protocol: that of its hash table."""
        if self.consumer is not None and set(members) == {member.member_id for member in self.consumer.members}:
            by_id = {member.member_id: member for member in self.consumer.members}
            self.consumer = replace(self.consumer, members=tuple(by_id[each] for each in members), ordered=True)

    @property
    def unsettled(self) -> bool:
        """Whether a description by the broker would settle what is in doubt."""
        return self.unsure is not None and self.kind is GroupKind.CLASSIC and not self.joins

    def late(self, now: float) -> list[Member]:
        """The members that the broker must have removed. It does not remove those that wait in a join or a sync."""
        if self.consumer is not None or now <= self.sound_until(now):
            return []  # Of a consumer group the log says when one has gone.
        awaiting = self.awaiting if self.joins else ()
        return [
            member
            for member in self.members.values()
            if self._removed(member, now) and member.member_id not in awaiting
        ]

    def _removed(self, member: Member, now: float) -> bool:
        over = member.silent(now, self.tenure.began_at)
        if self.state is COMPLETING_REBALANCE:  # Whether it waits in its sync, the end of all syncs tells.
            return over and now > member.sync_by
        return over or (self.state is STABLE and now > member.sync_by)

    @property
    def timed(self) -> bool:
        """Whether time alone changes anything."""
        return bool(self.members or self.pending or self.reservations.any)

    def expire(self, now: float) -> list[Member]:
        """Sets aside the members that the broker must have removed."""
        self.reservations.expire(now)
        self.pending.expire(now)
        late = self.late(now)
        for member in late:
            self.overdue[member.member_id] = self.members.pop(member.member_id)
        return late

    # Members.

    def admit(self, joining: Joining, member_id: str, now: float) -> Member:
        """Enters a member that the broker took into this generation."""
        member = self.members.get(member_id) or self.overdue.pop(member_id, None)
        if member is None:
            member = self._new_member(member_id, joining.instance_id, now)
        member.take(joining)
        self._enter(member)
        return member

    def _new_member(self, member_id: str, instance_id: str | None, now: float) -> Member:
        """A static one may have taken over who it is from one that was not seen."""
        certain = not (instance_id and self.past)
        return Member(member_id=member_id, since=now, instance_id=instance_id, certain=certain)

    def _enter(self, member: Member) -> None:
        """The broker's timers of a member begin anew with the generation."""
        member.certain = member.certain and member.instance_id not in self.contested
        member.seen_at = max(member.seen_at, self.generation_at)
        if self.state is COMPLETING_REBALANCE:
            member.sync_by = self.generation_at + member.rebalance_timeout_ms / 1000
            member.assignment = b""
        self.members[member.member_id] = member
        self.pending.discard(member.member_id)

    def static_members(self) -> StaticMembers:
        """The static members by their instance ids, for whoever looks for many of them."""
        found: dict[str, list[Member]] = {}
        for member in (*self.members.values(), *self.overdue.values()):
            if member.instance_id:
                found.setdefault(member.instance_id, []).append(member)
        return found

    def _namesakes(self, instance_id: str, static: StaticMembers | None) -> Iterable[Member]:
        """The members with this instance id. `static`: all that there were, of which some may have gone since."""
        if static is None:
            return [m for m in (*self.members.values(), *self.overdue.values()) if m.instance_id == instance_id]
        known = static.get(instance_id, ())
        return [m for m in known if m.member_id in self.members or m.member_id in self.overdue]

    def predecessor(
        self, instance_id: str | None, member_id: str, static: StaticMembers | None = None
    ) -> Member | None:
        """The member that holds the same instance id under another member id, if there is one (KIP-345).

        `static`: as of `static_members`, taken since the last member came.
        """
        if instance_id is None:
            return None
        return next((m for m in self._namesakes(instance_id, static) if m.member_id != member_id), None)

    def replace_static(self, old: Member, event: JoinAccepted, now: float) -> Member:
        """A static member is back under another id. All but what its join says stays."""
        joining, member_id = event.joining, event.member_id
        new = old.successor(member_id, now)
        new.identify(joining.client_id, joining.client_host)
        new.take(joining)
        new.seen_at = event.sent_at
        self.drop(old.member_id, now)
        self.members[member_id] = new
        if self.leader == old.member_id:
            self.leader = member_id
        return new

    def call_roll(
        self, roster: Iterable[tuple[str, str | None, bytes]], protocol: str, now: float
    ) -> tuple[list[Member], list[Member]]:
        """Makes the members exactly those the leader was told of. Returns who is new, and who is no longer there."""
        joins = {sent.joining.member_id or sent.joining.instance_id: sent.joining for sent in self.joins.values()}
        here, before, new = self.members, {**self.overdue, **self.members}, []
        static = {member.instance_id: member for member in before.values() if member.instance_id}
        self.members, self.overdue = {}, {}
        for member_id, instance_id, metadata in roster:
            if member_id in self.departed:
                continue  # It has gone since.
            member = before.get(member_id)
            if member is None:
                old = static.get(instance_id) if instance_id else None
                member = old.successor(member_id, now) if old else self._new_member(member_id, instance_id, now)
                new.append(member)
                if instance_id and member.client_host and (back := joins.get(instance_id)) is not None:
                    member.true_host = back.client_host  # Who it is will be told when its own join is answered.
            if (joining := joins.get(member_id)) is not None:
                member.identify(joining.client_id, joining.client_host)
                member.take(joining)
            member.protocols[protocol] = metadata
            self._enter(member)
        return new, [member for member in here.values() if member.member_id not in self.members]

    def locate(self, member: Member, true_host: str) -> None:
        """Takes note of whence a member speaks. For the broker that changes nothing."""
        if true_host and member.true_host != true_host:
            member.true_host, self.changes = true_host, next(self._ticks)

    def drop(self, member_id: str, now: float) -> Member | None:
        """Takes a member out for good, also one that is overdue or only pending."""
        self.pending.discard(member_id)
        self.leaving.pop(member_id, None)
        self.reservations.forget(member_id)
        member = self.members.pop(member_id, None) or self.overdue.pop(member_id, None)
        if member is not None:
            self.depart(member_id, now)
        return member

    def depart(self, member_id: str, now: float) -> None:
        """Notes that a member id has gone. Where there are too many of them, the group is in doubt instead, until late
        replies have come and the broker has been asked.
        """
        if len(self.departed) < MOST_DEPARTED and len(member_id) <= LONGEST_ID:
            self.departed.add(member_id)
        elif member_id not in self.departed:
            self.doubt(now + LOST_SECONDS)

    def contest(self, instance_id: str, static: StaticMembers | None = None) -> None:
        """Another new member had this instance id: whoever has it now may pass for that one."""
        self.contested.add(instance_id)
        if (member := self.members.get(self.by_instance(instance_id, static))) is not None:
            member.certain = False

    def by_instance(self, instance_id: str | None, static: StaticMembers | None = None) -> str:
        """The member id behind a group instance id; empty where there is none. `static`: as of `predecessor`."""
        namesakes = self._namesakes(instance_id, static) if instance_id else ()
        return next((member.member_id for member in namesakes), "")

    def describe(self, members: Iterable[DescribedMember], protocol: str, now: float) -> None:
        """Takes the members as the broker described them, keeping what it does not tell."""
        before = {**self.overdue, **self.members}
        self.members, self.overdue = {}, {}
        long_ago = now - SHORTEST_TIMEOUT_MS / 1000  # When one was heard of last is not told.
        for told in members:
            member = before.get(told.member_id)
            if member is None:
                member = Member(member_id=told.member_id, since=now, instance_id=told.instance_id, seen_at=long_ago)
            member.told(told.client_id, told.client_host)
            member.assignment = told.assignment
            if protocol:
                member.protocols[protocol] = told.metadata
            self.members[told.member_id] = member

    def view(
        self,
        *,
        lacking: Lacking | None,
        offsets_lacking: Lacking | None,
        offsets: Mapping[TopicPartition, CommittedOffset],
        error_code: int,
        seats: Seats,
    ) -> GroupView:
        """As others see it."""
        if self._seen != (self.changes, self.consumer):
            self._seen = self.changes, self.consumer
            members = tuple(member.view(self.protocol) for member in self.members.values())
            self._shown = members, located(self.consumer, self.members) if self.consumer else None
        return group_view(
            group_id=self.group_id,
            kind=self.kind,
            state=self.apparent_state,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            generation=self.generation,
            members=self._shown[0],
            seats=seats,
            offsets=offsets,
            roster_known=self.unsure is None,
            lacking=lacking,
            offsets_lacking=offsets_lacking,
            error_code=error_code,
            last_rebalance_at=self.last_rebalance_at,
            consumer=self._shown[1],
        )
