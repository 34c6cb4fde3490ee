"""One group of the copy, which owns all state of that group. Mirrors Kafka's ClassicGroup.

`Group` consists of parts, each in its own module. The methods of `Group` make the changes that concern several parts.
Other modules read a group through its properties. Outside this package, only the rules change a group (`rules.apply`).

The copy observes the broker from outside, so a group has some state that Kafka's own class does not have:

- `pending_joins`: joins without a reply. The joining client may not be a member yet. If one of these joins must have
  started a rebalance, `Group.apparent_state` is PreparingRebalance.
- `Roster.overdue`: members whose sessions must have expired. The broker has most likely removed these members.
- `completeness`: why the copy's members may differ from the broker's.

The module has more than 400 lines because each property that other modules read takes four lines.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from group_sidecar.codecs.offsets_topic_values import GroupMetadataValue
from group_sidecar.coordinator.model.events import (
    LOST_REQUEST_SECONDS,
    NEVER,
    GroupDescribed,
    JoinAccepted,
    JoiningMember,
    JoinSent,
)
from group_sidecar.coordinator.model.state_transitions import COMPLETING_REBALANCE, STABLE
from group_sidecar.coordinator.model.views import (
    CommittedOffset,
    ConsumerGroupView,
    FallbackReason,
    GroupKind,
    GroupState,
    GroupView,
    MemberView,
    Occupancy,
    TopicPartition,
    group_view,
)
from group_sidecar.coordinator.state.bounded_ids import IssuedIds
from group_sidecar.coordinator.state.client_hosts import with_clients
from group_sidecar.coordinator.state.completeness import Completeness
from group_sidecar.coordinator.state.expired_clients import ExpiredClientsBudget
from group_sidecar.coordinator.state.former_groups import NOTHING_KNOWN, FormerGroup
from group_sidecar.coordinator.state.lifecycle import UNKNOWN_GENERATION, Lifecycle
from group_sidecar.coordinator.state.log_partitions import ALWAYS_LED, LeaderTerm
from group_sidecar.coordinator.state.logged_state import LoggedState
from group_sidecar.coordinator.state.member import Member
from group_sidecar.coordinator.state.pending_joins import PendingJoins
from group_sidecar.coordinator.state.rebalance import Rebalance
from group_sidecar.coordinator.state.rebalance_tracking import RebalanceTracking
from group_sidecar.coordinator.state.roster import Roster
from group_sidecar.coordinator.state.unread_writes import UnreadWrites

MAX_LEFT_MEMBERS_KEPT = 1_000
"""Maximum number of members that left during the last generation and that are kept when a group's state is forgotten.
"""


class Group:
    """The copy's state of one group.

    Args:
        group_id: the name of the group.
        incomplete_reason: why the group may have members that were not observed; None for a group that was observed
            from its creation on.
        ticks: numbers the changes of all groups.
        changed: collects the names of the groups that have changed.
        unread_writes: the writes that could not be decoded.
        expired_clients_budget: counts the expired clients of all groups.

    Attributes:
        lifecycle: the state and the generation.
        roster: the members, and the ids of former members.
        pending_joins: joins without a reply, and lost joins.
        rebalances: the rebalance that is in progress, and the counts that are kept until it ends.
        logged_state: the last generation in the log, or a KIP-848 group as its records describe it.
        completeness: why `members` may not be all members of the generation.
        leader_term: since when the broker coordinates the group.
        exclusive: whether the operator has confirmed that every client reaches the broker through this sidecar.
        kept_when_empty: whether the broker keeps a group without members and increments its generation.
        changes: the number of the last change. A reply that was requested at a lower number may be outdated.
        changed_at: when the group last changed.
        wire_event_at: when the wire last showed an event of the group.
        metadata_bytes: an upper bound for the bytes of the members' metadata and assignments.
        metadata_counted_at: the number of the change at which these bytes were last counted.
    """

    def __init__(
        self,
        group_id: str,
        incomplete_reason: FallbackReason | None,
        ticks: Iterator[int],
        changed: set[str],
        unread_writes: UnreadWrites,
        expired_clients_budget: ExpiredClientsBudget,
    ) -> None:
        self.group_id = group_id
        self._ticks, self._changed = ticks, changed
        self.exclusive, self.kept_when_empty = False, True
        self.lifecycle = Lifecycle()
        self.logged_state = LoggedState()
        self.roster = Roster(may_have_unseen_static=incomplete_reason is not None)
        self.pending_joins = PendingJoins()
        self.completeness = Completeness(incomplete_reason, unread_writes)
        self.leader_term = ALWAYS_LED
        # What the copy knew before it forgot the group's state, until the log shows the group or a generation begins.
        self._former = NOTHING_KNOWN
        self.rebalances = RebalanceTracking(expired_clients_budget)
        self.changes = 0
        self.changed_at = self.wire_event_at = NEVER
        self.metadata_bytes, self.metadata_counted_at = 0, -1
        self._has_unseen_history = incomplete_reason is not None
        self._view_key: tuple[int, ConsumerGroupView | None] = (0, None)
        self._view_parts: tuple[tuple[MemberView, ...], ConsumerGroupView | None] = ((), None)

    # The parts, for other modules to read.

    @property
    def kind(self) -> GroupKind:
        """The protocol that the group uses."""
        return self.lifecycle.kind

    @property
    def state(self) -> GroupState:
        """The state of a classic group."""
        return self.lifecycle.state

    @property
    def generation(self) -> int:
        """The number of the generation, or the epoch of a KIP-848 group."""
        return self.lifecycle.generation

    @property
    def generation_at(self) -> float:
        """When the generation was first seen."""
        return self.lifecycle.generation_at

    @property
    def stable_at(self) -> float:
        """When the generation was first seen stable."""
        return self.lifecycle.stable_at

    @property
    def protocol_type(self) -> str:
        """The protocol type; empty if unknown."""
        return self.lifecycle.protocol_type

    @property
    def protocol(self) -> str:
        """The protocol of the generation; empty if it has none."""
        return self.lifecycle.protocol

    @property
    def leader(self) -> str:
        """The member id of the leader; empty if there is none."""
        return self.lifecycle.leader

    @property
    def assignments_known(self) -> bool:
        """Whether all assignments of the generation are known."""
        return self.lifecycle.assignments_known

    @property
    def logged_metadata(self) -> bytes | None:
        """The raw metadata of the last generation in the log; None if the log has no generation."""
        return self.logged_state.logged_metadata

    @property
    def consumer(self) -> ConsumerGroupView | None:
        """A group of a newer protocol, as the log describes it; None if the log has not shown such a group."""
        return self.logged_state.consumer

    @property
    def members(self) -> dict[str, Member]:
        """The members by member id."""
        return self.roster.members

    @property
    def overdue(self) -> dict[str, Member]:
        """The members whose sessions must have expired, by member id."""
        return self.roster.overdue

    @property
    def presumed_members(self) -> Mapping[str, Member]:
        """The members, and the overdue members that may still be in the group because they bypass this sidecar.

        An overdue member whose requests were never seen may bypass this sidecar, unless the sidecar is exclusive. The
        broker writes a record when such a member is gone.
        """
        if not self.overdue or self.logged_metadata is None:
            return self.members
        bypassing = {
            member_id: member
            for member_id, member in self.overdue.items()
            if not member.was_seen and (member.bypasses or not self.exclusive)
        }
        return {**self.members, **bypassing}

    @property
    def pending(self) -> IssuedIds:
        """Member ids that the broker issued and no client has used yet."""
        return self.roster.pending

    @property
    def left_member_ids(self) -> set[str]:
        """Ids of members that left during this generation."""
        return self.roster.left_member_ids

    @property
    def incomplete_reason(self) -> FallbackReason | None:
        """Why `members` may not be all members of the generation; None if they are."""
        return self.completeness.incomplete_reason

    @property
    def doubted_until(self) -> float:
        """Until when a request of unknown outcome may still change the group."""
        return self.completeness.doubted_until

    @property
    def metadata_omitted(self) -> bool:
        """Whether metadata or assignments of members are missing."""
        return self.completeness.metadata_omitted

    # State.

    def begin_leader_term(self, leader_term: LeaderTerm) -> None:
        """Notes since when the broker leads the partition of the group."""
        self.leader_term = leader_term

    @property
    def rebalance(self) -> Rebalance | None:
        """The rebalance that is in progress; None if there is none."""
        return self.rebalances.rebalance

    @property
    def joins(self) -> Mapping[str, JoinSent]:
        """Joins without a reply, by their tokens."""
        return self.pending_joins.sent

    @property
    def rebalancing_join(self) -> JoinSent | None:
        """The first join without a reply that must have started a rebalance; None if there is none."""
        return next((sent for sent in self.joins.values() if self.forces_rebalance(sent)), None)

    def forces_rebalance(self, sent: JoinSent) -> bool:
        """Whether the broker must prepare a rebalance for a join, according to the copy."""
        joining = sent.joining
        if not self.pending_joins.may_wait(sent):
            return False
        member = self.members.get(joining.member_id)
        if self.metadata_omitted or member is None or member.member_id == self.leader:
            return True
        return joining.protocols != tuple(member.protocols.items())

    @property
    def apparent_state(self) -> GroupState:
        """The state that the group must have at the broker, given joins in flight and expired sessions."""
        if self.consumer is not None:
            return self.consumer.state or GroupState.STABLE
        if self.state is GroupState.PREPARING_REBALANCE or self.rebalancing_join is not None:
            return GroupState.PREPARING_REBALANCE
        return GroupState.EMPTY if self.overdue and not self.presumed_members else self.state

    @property
    def parked_ids(self) -> frozenset[str]:
        """The members whose joins are parked at the broker: their ids, or the tokens of joins without an id."""
        return frozenset(self.pending_joins.parked_ids)

    def start_generation(self, event: JoinAccepted, now: float) -> None:
        """Starts the generation that follows a join phase.

        The members are incomplete until the leader's reply is seen, because only that reply lists all members.
        """
        self._former = NOTHING_KNOWN
        self.lifecycle.start_generation(event, now)
        self.roster.forget_metadata()
        self.roster.retain_left_ids([sent.joining.member_id for sent in self.joins.values()])
        self.pending_joins.begin_generation(now)
        self.completeness.begin_generation()

    def doubt_unknown_metadata(self) -> None:
        """Makes the members incomplete if the metadata of any member is unknown.

        The broker's description of a Stable group contains the metadata of all members. Descriptions of a group whose
        members still sync lack the metadata.
        """
        protocol = self.protocol
        if not self.metadata_omitted and any(protocol not in each.protocols for each in self.members.values()):
            self.completeness.miss_metadata()

    def adopt_generation(self, generation: int, now: float) -> None:
        """Adopts a generation whose beginning was not observed."""
        self.lifecycle.adopt_generation(generation, now)
        self.roster.forget_metadata()
        self.rebalances.abandon()
        self.pending_joins.forget_descriptions()
        self.completeness.miss_members()

    def empty_out(self, now: float) -> None:
        """Makes the group Empty after its last member has left.

        The broker forgets the protocol, keeps the protocol type, and begins a new generation.
        """
        preparing = self.joins or self.state is GroupState.PREPARING_REBALANCE
        if preparing and (self._has_unseen_history or self.pending.may_be_used(now)):
            self.doubt(now)  # The broker's rebalance may still wait for clients that were issued a member id.
        self.lifecycle.empty_out(now, kept=self.kept_when_empty)
        self.rebalances.drop()
        self.pending_joins.begin_generation(now)

    def adopt_former(self, former: FormerGroup) -> None:
        """Sets what the copy knew of the group before it forgot the group's state."""
        self._former = former._replace(expired=())
        self.rebalances.expired_clients.adopt(former.expired)

    def apply_former(self, now: float) -> None:
        """Applies what the copy knew to the members and drops it, because the log has shown the group again."""
        self._apply_former(now)
        self._former = NOTHING_KNOWN

    def _apply_former(self, now: float) -> None:
        self.roster.adopt_former(self._former.reported_gone)
        generations = {UNKNOWN_GENERATION, self._former.generation, self.generation}
        if len(generations) == 3:  # Both are known, and they differ.
            self.rebalances.expired_clients.forget_assumed(self.members)
        self.rebalances.expired_clients.note_listed(self.members, self.leader_term.began_at, now)
        self.roster.note_seen_before(self.rebalances.expired_clients.assumed_ids)

    def former(self) -> FormerGroup:
        """Returns what the copy keeps of the group if it forgets the group's state now.

        The broker may end the sessions of the current members while the copy has no state of the group.
        """
        expired = self.rebalances.expired_clients.with_members(self.members.values())
        if self.state is GroupState.DEAD:
            return self._former._replace(expired=expired)
        known = self.roster.known()
        gone = {member_id: at for member_id, at in self._former.reported_gone.items() if member_id not in known}
        gone |= {member_id: each.reported_gone_at for member_id, each in known.items() if each.is_reported_gone}
        # The broker has members again that have left, if it loads a generation from before they left.
        gone |= dict.fromkeys(islice(self.left_member_ids, MAX_LEFT_MEMBERS_KEPT), self.changed_at)
        if not self._knows_generation:
            return self._former._replace(reported_gone=gone, expired=expired)
        return FormerGroup(self.generation, max(self.changed_at, self.wire_event_at), gone, expired)

    @property
    def _knows_generation(self) -> bool:
        return self.generation_at != NEVER and self.generation != UNKNOWN_GENERATION

    def continues_generation(self, generation: int, now: float) -> bool:
        """Whether a reply shows the generation that the group had before its state was forgotten.

        No rebalance has begun since then. Always False if the copy knows the generation.
        """
        return not self._knows_generation and self._former.may_continue(generation, now)

    def inherit_joins(self, before: "Group") -> None:
        """Takes over the joins in flight from `before`, the dropped `Group` object of the same group."""
        self.pending_joins = before.pending_joins
        if before.metadata_omitted:
            self.completeness.drop_metadata()

    # Changes and doubts.

    def touch(self, now: float) -> None:
        """Counts a change of the group."""
        self.changes = next(self._ticks)
        self.changed_at = now
        self._changed.add(self.group_id)

    def doubt(self, until: float) -> None:
        """Puts the group in doubt, because the outcome of a request is unknown.

        The broker executes that request before the time `until`, if at all.
        """
        self.completeness.doubt(until)
        self._changed.add(self.group_id)

    def doubt_lost(self, until: float) -> None:
        """Puts the group in doubt, because a request is lost. The broker executes it before `until`, if at all."""
        self.completeness.wait(until)
        self.doubt(until)

    def await_epoch(self, now: float) -> None:
        """Puts a group of a newer protocol in doubt until the log shows its next epoch."""
        if self.kind is not GroupKind.CLASSIC:
            self.doubt(now)

    @property
    def unknown_until(self) -> float:
        """The time after which no request of unknown content or effect can change the group.

        Such requests include those that pass through another sidecar, a predecessor or a successor of this one.
        """
        return self.completeness.unknown_until(self.group_id)

    def repeats_heartbeat(self, member_id: str, content_hash: int | None, now: float) -> bool:
        """Notes the content of a KIP-848 member's heartbeat. Returns whether it repeats the member's last heartbeat.

        Only heartbeats that may change the group are compared. A repeated heartbeat changes nothing at the broker,
        unless a request of unknown content came between the two.
        """
        member = self.members.get(member_id)
        if member is None:
            return False
        return member.note_heartbeat(content_hash, now) > self.unknown_until

    def note_undecoded_write(self) -> None:
        """Marks the group as incomplete, because a write that may have changed it could not be decoded."""
        self.completeness.note_undecoded_write()
        self.changes = next(self._ticks)

    def observe(self, now: float) -> None:
        """Notes that the wire has shown an event of the group."""
        self.wire_event_at = now

    @property
    def settled_at(self) -> float:
        """The time after which no lost or unread request can change the group.

        A reply is up to date if it was requested after this time.
        """
        return self.completeness.settled_at(self.group_id)

    def adopt_description(self, event: GroupDescribed, now: float) -> None:
        """Adopts the broker's description of the group, which contains all members."""
        if self.incomplete_reason is not None and self.logged_metadata is None:
            # Neither the description nor the log contains the generation.
            self.lifecycle.forget_generation()
        elif event.state is COMPLETING_REBALANCE and self.state is not COMPLETING_REBALANCE:
            self.lifecycle.pass_generation()
        self.roster.adopt_description(event.members, event.protocol, now)
        if self.state is not event.state:
            self.rebalances.drop()
        self.lifecycle.describe(event, now)
        self.completeness.describe()
        self.roster.complete()
        self._apply_former(now)

    def adopt_logged(self, value: GroupMetadataValue, members: dict[str, Member], now: float) -> None:
        """Adopts a generation with all its members from the log. The wire has not shown this generation."""
        self.rebalances.drop()
        self.lifecycle.adopt_logged(value, now)
        self.roster.replace(members)
        self.roster.retain_left_ids([sent.joining.member_id for sent in self.joins.values()])
        self.roster.complete()
        self.pending_joins.forget_descriptions()
        self.completeness.adopt_logged()
        self.apply_former(now)
        self.touch(now)

    def disprove_rebalance(self, now: float) -> None:
        """Returns the group to Stable, because the broker turned out not to prepare a rebalance.

        If a member had left, the broker has restarted. It then has the members of the log again, also this member.
        """
        if self.left_member_ids:
            self.doubt(now)
        self.lifecycle.disprove_rebalance()
        self.rebalances.drop()
        self.touch(now)

    def mark_complete(self) -> None:
        """Marks the members as complete."""
        self.completeness.all_known()
        self.roster.complete()

    def fallback_reason(self, now: float) -> FallbackReason | None:
        """Returns why state and members may not be used to answer; None if they may."""
        return self.completeness.reason(
            self.lifecycle, self.logged_state, self.roster, joins=bool(self.joins), changes=self.changes, now=now
        )

    def earliest_timeout(self, now: float) -> float:
        """Returns a time before which no timer of a member expires."""
        return self.roster.earliest_timeout(self.changes, now, log_shows_sessions=self.consumer is not None)

    @property
    def needs_description(self) -> bool:
        """Whether a description by the broker would make the group complete."""
        if self.kind is not GroupKind.CLASSIC or self.joins:
            return False
        if self.incomplete_reason is not None:
            return True
        return self.state is STABLE and not self.completeness.identifies_members(self.roster, self.changes)

    def expired_members(self, now: float) -> list[Member]:
        """Returns the members that the broker must have removed.

        The broker does not remove members that wait for the reply to a join or a sync.
        """
        if self.consumer is not None or now <= self.earliest_timeout(now):
            return []  # The log shows when a member of a consumer group has left.
        awaiting = self.parked_ids if self.joins else ()
        return [
            member
            for member in self.members.values()
            if self._has_timed_out(member, now) and member.member_id not in awaiting
        ]

    def _has_timed_out(self, member: Member, now: float) -> bool:
        over = member.session_expired(now, self.leader_term.began_at)
        if self.state is COMPLETING_REBALANCE:  # The member may wait for the reply to its sync.
            return over and now > member.sync_by
        return over or (self.state is STABLE and now > member.sync_by)

    @property
    def has_timers(self) -> bool:
        """Whether the passing of time can change the group."""
        return bool(self.members or self.pending or self.pending_joins.has_any or self.rebalances.expired_clients)

    def expired_clients_due(self, now: float) -> int:
        """Returns how many expired clients `expire` has to look at."""
        return self.rebalances.expired_clients.due(now)

    def expire(self, now: float) -> list[Member]:
        """Moves the members that the broker must have removed to `overdue`. Returns these members."""
        self.pending_joins.expire(now)
        self.pending.expire(now, self.pending_joins.joining_member_ids)
        if self.rebalances.expired_clients:
            self.rebalances.expired_clients.expire(now)
        late = self.expired_members(now)
        self.roster.set_aside(late)
        if late:
            self.pending_joins.note_ended_sessions(now)
        return late

    # Members.

    def add_member(self, joining: JoiningMember, member_id: str, now: float) -> Member:
        """Adds a member that the broker accepted into this generation. Returns the member."""
        self.rebalances.expired_clients.forget(member_id)
        return self.roster.add_member(
            joining, member_id, now, self.generation_at, syncs=self.state is COMPLETING_REBALANCE
        )

    def replace_static(self, old: Member, event: JoinAccepted, now: float) -> Member:
        """Replaces a static member that joined again under a new member id. Returns the member with the new id.

        The member keeps everything that its new join does not contain.
        """
        new = self.roster.succeed(old, event.joining, event.member_id, event.sent_at, now)
        self.drop(old.member_id, now)
        self.roster.include(new)
        self.lifecycle.succeed_leader(old.member_id, new.member_id)
        return new

    def replace_members(
        self, roster: Iterable[tuple[str, str | None, bytes]], protocol: str, now: float
    ) -> tuple[list[Member], list[Member]]:
        """Replaces the members with those in the leader's reply. Returns the added and the removed members."""
        joins = {sent.joining.member_id or sent.joining.instance_id: sent.joining for sent in self.joins.values()}
        syncs = self.state is COMPLETING_REBALANCE
        return self.roster.replace_members(roster, protocol, joins, now, self.generation_at, syncs=syncs)

    def set_client(self, member: Member, true_host: str, principal: str, client_id: str = "") -> None:
        """Notes the client of a member's request. The broker's state does not change.

        Nothing changes if the host is empty, because the client is then unknown. An empty client id is not known.
        """
        same_client = member.true_host == true_host and client_id in ("", member.true_client_id)
        if not true_host or (member.principal is principal and same_client):
            return
        if member.principal != principal or member.true_host != true_host:
            self.changes = next(self._ticks)
        # An equal principal replaces the old text, so that all members with this principal share one text.
        member.see_client(client_id, true_host, principal)

    def record_activity(self, member: Member, sent_at: float) -> None:
        """Resets the session timer of a member, because the broker accepted a request of the member."""
        self.roster.record_activity(member, sent_at)
        if self.rebalances.expired_clients:  # Rarely. Most calls are for heartbeats.
            self.note_session(member, sent_at)

    def note_session(self, member: Member, sent_at: float) -> None:
        """Notes that the session of a member had not expired, because the broker accepted a request of the member.

        A request that was sent before the member was reported as gone shows nothing.
        """
        if sent_at > member.reported_gone_at:
            self.rebalances.expired_clients.forget(member.member_id)

    def drop(self, member_id: str, now: float) -> Member | None:
        """Removes a member, which may be overdue or pending. Returns the member; None if it was not known."""
        self.pending_joins.forget(member_id)
        member = self.roster.remove(member_id)
        if member is not None:
            self.record_departure(member_id, now)
        return member

    def record_departure(self, member_id: str, now: float) -> None:
        """Keeps the id of a member that has left.

        If there is no room for the id, a late reply may add the member again, so the group is in doubt.
        """
        if not self.roster.record_departure(member_id):
            self.doubt(now + LOST_REQUEST_SECONDS)

    def view(
        self,
        *,
        fallback_reason: FallbackReason | None,
        offsets_fallback_reason: FallbackReason | None,
        offsets: Mapping[TopicPartition, CommittedOffset],
        error_code: int,
        occupancy: Occupancy,
    ) -> GroupView:
        """Returns a read-only view of the group at this moment."""
        if self._view_key != (self.changes, self.consumer):
            self._view_key = self.changes, self.consumer
            members = tuple(member.view(self.protocol) for member in self.presumed_members.values())
            self._view_parts = members, with_clients(self.consumer, self.members) if self.consumer else None
        return group_view(
            group_id=self.group_id,
            kind=self.kind,
            state=self.apparent_state,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            generation=self.generation,
            members=self._view_parts[0],
            occupancy=occupancy,
            offsets=offsets,
            roster_known=self.incomplete_reason is None,
            fallback_reason=fallback_reason,
            offsets_fallback_reason=offsets_fallback_reason,
            error_code=error_code,
            last_rebalance_at=self.rebalances.last_rebalance_at,
            consumer=self._view_parts[1],
        )
