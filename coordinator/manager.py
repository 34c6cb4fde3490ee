"""The copy of one broker's groups: applies events to the copy, and returns views and reasons not to use them.

The class is named after Kafka's GroupMetadataManager. Events of the wire enter the copy through `apply`, and records of
the log enter the copy through `log`. The rules (`coordinator.rules`) decide what an event changes.

The module has more than 400 lines because it contains both the views and the reasons not to use them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.coordinator.answers.list_groups import MAX_GROUPS_PER_REQUEST, Listing, ListingEntry, listing_entry
from group_sidecar.coordinator.log.follower import LogFollower
from group_sidecar.coordinator.model.events import (
    FOREVER,
    LOST_REQUEST_SECONDS,
    NEVER,
    AnyEvent,
    ConsumerGroupDescribed,
    ConsumerMemberSeen,
    Event,
    GroupDescribed,
    JoinAccepted,
    LeaveSent,
    LogEndsSeen,
    LogStartsSeen,
    MemberActivity,
    MemberIdIssued,
    MemberSeen,
    MembersLeft,
    MemberUnknown,
    OffsetsLearned,
    OffsetsPending,
    OffsetsStored,
    RebalanceSeen,
    ReplyLost,
    Synced,
)
from group_sidecar.coordinator.model.facts import Fact, MemberJoined
from group_sidecar.coordinator.model.state_transitions import CLASSIC, DEAD
from group_sidecar.coordinator.model.views import (
    NO_OCCUPANCY,
    FallbackReason,
    GroupState,
    GroupView,
    Occupancy,
    TopicPartition,
    group_view,
)
from group_sidecar.coordinator.rules.apply import QUIET, WIRE_RULES, apply, apply_seen
from group_sidecar.coordinator.rules.bypasses import Bypasses
from group_sidecar.coordinator.rules.commits import OffsetRules
from group_sidecar.coordinator.rules.group_existence import GroupExistence
from group_sidecar.coordinator.rules.internal_events import (
    InstanceIdsMissing,
    MembersOrdered,
    MetadataDropped,
    SizeDescribed,
    TimePassed,
)
from group_sidecar.coordinator.state.bounded_table import TableSize
from group_sidecar.coordinator.state.confidence import Confidence, Question
from group_sidecar.coordinator.state.exclusivity import Exclusivity
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.group_cache import GroupCache
from group_sidecar.coordinator.state.group_size import occupancy_of
from group_sidecar.coordinator.state.log_bounds import Bounds, LogBounds
from group_sidecar.coordinator.state.unread_writes import UnreadWrites

_TIME_PASSED = TimePassed()
_COORDINATED = (
    MemberIdIssued,
    JoinAccepted,
    Synced,
    MemberSeen,
    RebalanceSeen,
    MembersLeft,
    OffsetsPending,
    OffsetsLearned,
    GroupDescribed,
    ConsumerMemberSeen,
    ConsumerGroupDescribed,
)
"""Events that only the coordinator of a group causes. `OffsetsStored` is such an event too if the broker stored an
offset."""
GROUPS_PER_SWEEP_STEP = 100
"""Groups per step of a sweep. Each fact, and each expired client that is looked at, counts as a further group. Clients'
traffic waits for about half a millisecond during a step, and longer if many members of one group expire at once."""
TOPIC_DELETION_SECONDS = 10.0
"""A broker may still return the offsets of a deleted topic for this many seconds after the deletion."""


class GroupMetadataManager:
    """The copy of one broker's group coordinator.

    Args:
        exclusive: whether the operator has confirmed that every client reaches the broker through this sidecar.
            If not, the state of a classic group is never certain, because other clients may change the group
            unobserved.
        true_hosts: whether replies contain the addresses from which the requests of members arrive. If not, replies
            contain the hosts that the broker reports.
        max_groups, max_offsets: how many groups and offsets are kept. `overflowed` counts the groups and offsets that
            were not kept.

    Attributes:
        log: merges the records of `__consumer_offsets`.
        log_bounds: the start and end offsets of topic partitions.
        default_assignor: the broker's assignor for KIP-848 groups whose members name none; None if unknown.
        sends_error_messages: whether the broker's reply about a missing KIP-848 group has an error message; None if
            unknown.
        describes_instance_ids: whether the broker has a version of DescribeGroups with the instance ids of members;
            None if unknown. If True, the copy learns no members from a description without these ids. If None, the copy
            doubts members that it learns from such a description.

    Times are in seconds since the epoch, from a clock that does not jump.
    """

    def __init__(
        self, *, exclusive: bool, true_hosts: bool = True, max_groups: int = 100_000, max_offsets: int = 5_000_000
    ) -> None:
        self._cache = GroupCache(
            exclusive=exclusive, true_hosts=true_hosts, max_groups=max_groups, max_offsets=max_offsets
        )
        self.log = LogFollower(self._cache)
        self._bypasses = Bypasses(self._cache)
        self._existence = GroupExistence(self._cache, self.log)
        self._confidence = Confidence(self._cache)
        self._listing = Listing(self._listing_entry, self._cache.changed, self._cache.groups)
        self._cache.follow_listing(self._listing)
        self.log_bounds = LogBounds(max_offsets)
        self.default_assignor: str | None = None
        self.sends_error_messages: bool | None = None
        self.describes_instance_ids: bool | None = None
        self._has_broker_count = False
        self._rules: dict[type[Any], Callable[[Any, float], list[Fact]]] = {
            **dict.fromkeys(WIRE_RULES, self._group_changed),
            **OffsetRules(self._cache, self.log).rules,
            **self._existence.rules,
            MemberSeen: self._member_seen,
            MemberUnknown: self._known_group_changed,
            LeaveSent: self._known_group_changed,
            ReplyLost: self._reply_lost,
            GroupDescribed: self._group_described,
            LogEndsSeen: self.log_bounds.ends_seen,
            LogStartsSeen: self.log_bounds.starts_seen,
            ConsumerGroupDescribed: self._consumer_group_described,
        }

    @property
    def group_metadata_cache(self) -> Mapping[str, Group]:
        """All groups by id, including Dead groups that only have joins in flight."""
        return self._cache.groups

    @property
    def overflowed(self) -> int:
        """How often a group, offset or metadata was not kept because of a bound."""
        return self._cache.overflowed

    @property
    def exclusivity(self) -> Exclusivity:
        """The operator's statement that all clients reach the broker through this sidecar, and evidence against it."""
        return self._cache.exclusivity

    @property
    def unread_writes(self) -> UnreadWrites:
        """Writes that could not be decoded."""
        return self._cache.unread_writes

    def tables(self) -> Iterator[TableSize]:
        """Returns the size of each table that grows with the requests of clients."""
        yield from self._cache.tables
        yield from self._listing.tables
        yield from self.log.tables

    # Events.

    def keep_empty_groups(self, keeps: bool) -> None:
        """Sets whether the broker keeps groups without members."""
        self._cache.keep_empty_groups(keeps)

    @property
    def needs_broker_count(self) -> bool:
        """Whether `set_broker_count` is needed, because the copy answers without the log or may have to soon."""
        return self._cache.exclusive and not (self._has_broker_count and self._cache.partitions.in_use)

    def set_broker_count(self, count: int, now: float) -> None:
        """Sets the number of brokers in the cluster.

        Without the log, the copy answers only if there is one broker. Another broker may coordinate a group, or change
        the group's offsets when a topic is deleted, and this sidecar would not see that.
        """
        if self._has_broker_count and self._cache.may_have_other_brokers and count == 1:
            # The other brokers may have changed any group until now.
            self.note_unread_write(None)
            self.note_unread_write(None, now)
        self._has_broker_count = True
        self._cache.note_other_brokers(count != 1)

    def forget_broker_behaviour(self) -> None:
        """Forgets how the broker describes KIP-848 groups, because the broker may run another release than before."""
        self.default_assignor = self.sends_error_messages = None

    def set_existing_groups(self, groups: Iterable[str]) -> None:
        """Sets the groups that the broker has now. All other groups will be observed from their creation on."""
        self._cache.unseen_history.set_existing_groups(groups)

    def apply(self, events: Iterable[AnyEvent], now: float) -> list[Fact]:
        """Applies events in order. Returns the facts that follow."""
        facts: list[Fact] = []
        partitions = self._cache.partitions
        for event in events:
            if partitions.not_coordinated and isinstance(event, Event) and _is_from_coordinator(event):
                since = partitions.not_coordinated_since(event.group_id)
                if since is not None and event.sent_at >= since:
                    facts += self.log.bring_back(event.group_id, now)
                elif since is not None and _shows_no_join(event):
                    continue  # The broker may have accepted the request before it replied NOT_COORDINATOR.
            facts += self._rules[type(event)](event, now)
        return facts

    def refresh(self, group_id: str, now: float) -> list[Fact]:
        """Applies the passing of time to one group, as `sweep` does to all groups. Returns the facts that follow."""
        group = self._cache.group(group_id)
        return self._expire(group, now) if group else []

    def sweep(self, now: float) -> Iterator[list[Fact]]:
        """Applies the passing of time to all groups, in steps. Yields the facts of each step.

        Members whose sessions must have expired become overdue. The caller runs a sweep every few seconds.
        """
        if not self._cache.exclusive:
            # These histories are so old that a fresh log contains the effects of all their lost requests.
            while self._cache.unseen_history.end_before(now, GROUPS_PER_SWEEP_STEP):
                yield []
        if bypassed := self._bypasses.due(now):
            yield bypassed
        facts, done = list[Fact](), 0
        for group in list(self._cache.groups.values()):
            done += 1 + group.expired_clients_due(now)
            facts += self._sweep_group(group, now)
            if done + len(facts) >= GROUPS_PER_SWEEP_STEP:
                yield facts
                facts, done = [], 0
        yield facts

    def _sweep_group(self, group: Group, now: float) -> list[Fact]:
        """Applies the passing of time to a group, unless the group was removed after the sweep began."""
        self._cache.metadata.recount_if_changed(group)
        if self._cache.group(group.group_id) is not group:
            return []
        if group.incomplete_reason is not None and not self._cache.exclusive:
            self.log.await_records(group)
        if not group.has_timers:
            return []
        had_issued_ids = bool(group.pending)
        facts = self._expire(group, now)
        if had_issued_ids and not group.pending:
            self.log.await_records(group)  # The broker may have removed a group that had only these ids.
        self._forget_unless_real(group)
        return facts

    def _expire(self, group: Group, now: float) -> list[Fact]:
        """Applies the passing of time to a group, unless its partition is still loading.

        During the load, another broker may still keep the members' sessions alive.
        """
        loads = self._confidence.coordinator_error(group.group_id, now) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [] if loads else apply(group, _TIME_PASSED, now)

    def note_unread_write(self, group_id: str | None, until: float = FOREVER, *, members: bool = True) -> None:
        """Notes a write that could not be decoded, to this group or to an unknown group.

        The caller calls this method when it sends the write to the broker, and again when the write has its reply or
        the connection is lost.

        Args:
            group_id: the group; None if the group could not be decoded either.
            until: the time by which the broker has executed the write; FOREVER while the write has no reply. After that
                time, the log contains the effect.
            members: whether such a write may change members of a group.
        """
        cache = self._cache
        if group_id is None:
            if until == FOREVER:
                cache.unread_writes.begin(members=members)
            else:
                cache.unread_writes.end(until, members=members)
                cache.exclusivity.note_unknown_effect(None, until)
            cache.unseen_history.doubt_others()
            self._listing.mark_all_stale()
            return
        if until == FOREVER:
            cache.unread_writes.begin_of(group_id)
        else:
            cache.exclusivity.note_unknown_effect(group_id, until)
            until = cache.unread_writes.end_of(group_id, until)
        lost_until = NEVER if until == FOREVER else until
        cache.unseen_history.note(group_id, lost_until)
        cache.note_unread_write(group_id, lost_until)

    def begin_sharing(self) -> None:
        """Notes that another sidecar now forwards requests of the broker's clients too, until `end_sharing` is called.

        This copy does not see these requests.
        """
        self._cache.exclusivity.is_shared = True
        self.note_unread_write(None)

    def end_sharing(self, until: float) -> None:
        """Notes that the other sidecar has ended. The broker executes the other sidecar's last requests before `until`.

        All that this copy knows from the wire may be outdated, so the broker or the log has to confirm it.
        """
        self._cache.exclusivity.is_shared = False
        # This unread write also puts the groups in doubt that became known since `begin_sharing`.
        self.note_unread_write(None)
        for _ in range(2):  # Ends both unread writes: the one that `begin_sharing` noted, and the one above.
            self.note_unread_write(None, until)

    def note_topic_deletion(self, now: float) -> None:
        """Notes a request that will soon change offsets of any group, such as the deletion of a topic."""
        self._cache.topics_deleted(now + TOPIC_DELETION_SECONDS)
        if not self._cache.partitions.in_use:
            self._listing.mark_all_stale()  # Empty groups may lose all offsets, and no log shows that.

    # Groups.

    def _member_seen(self, event: MemberSeen, now: float) -> list[Fact]:
        """Applies the most frequent kind of event. Skips checks for Dead groups, because the broker has the group."""
        group = self._cache.get_or_maybe_create(event.group_id, event.sent_at)
        if group is None:
            return []
        facts = apply_seen(group, event, now)
        self._await_records(group)
        return self._without_loading_members(group, facts, now) if facts else facts

    def _await_records(self, group: Group) -> None:
        """Marks an incomplete group of a newer protocol, so that records of the log make the group complete.

        The log will contain everything that the wire has shown of such a group.
        """
        if group.incomplete_reason is not None and group.kind is not CLASSIC:
            self.log.await_records(group)

    def _group_changed(self, event: Event, now: float) -> list[Fact]:
        group = self._cache.get_or_maybe_create(event.group_id, event.sent_at)
        if group is None:
            return []
        kind, existed, before = type(event), group.state is not DEAD, _listed_form(group)
        kept = self._cache.metadata.within_bound(group, event)
        facts = apply(group, kept, now)
        if facts and _shows_no_join(event):
            facts = self._without_loading_members(group, facts, now)
        if kept is not event:
            apply(group, MetadataDropped(), now)
            self._cache.count_overflow()
        if kind in QUIET and _listed_form(group) != before:
            self._cache.relist(group.group_id)
        self._await_records(group)
        if group.state is DEAD and existed:
            self._cache.remove(group.group_id, now)
            return facts
        self._forget_unless_real(group)
        return facts

    def _without_loading_members(self, group: Group, facts: list[Fact], now: float) -> list[Fact]:
        """Returns the facts without new members, if the log of the group is not loaded yet.

        An accepted heartbeat, commit or sync does not show a join. Before the log is loaded, such a member is most
        likely one of those that the log will contain, and loaded members are not reported either. A member that was
        reported as gone was known before.
        """
        if not self._cache.partitions.awaits_load(group.group_id):
            return facts

        def is_new(member_id: str) -> bool:
            member = group.members.get(member_id)
            return member is None or member.since >= now

        return [fact for fact in facts if not (isinstance(fact, MemberJoined) and is_new(fact.member_id))]

    def _forget_unless_real(self, group: Group) -> None:
        """Forgets a Dead group without joins in flight. Keeps a note if a lost request may have created the group."""
        if group.state is not DEAD or group.joins or group.group_id not in self._cache.groups:
            return
        if group.doubted_until != NEVER:
            self._cache.unseen_history.note(group.group_id, group.doubted_until)
        if not group.pending_joins.has_any:
            self._cache.forget(group.group_id)

    def _known_group_changed(self, event: Event, now: float) -> list[Fact]:
        """Applies an event if its group is known. Such an event reveals nothing about an unknown group."""
        return self._group_changed(event, now) if event.group_id in self._cache.groups else []

    def _reply_lost(self, event: ReplyLost, now: float) -> list[Fact]:
        self._cache.exclusivity.note_unknown_effect(event.group_id, now)
        if event.group_id in self._cache.groups:
            return self._group_changed(event, now)
        if event.may_create_group:
            self._cache.unseen_history.note(event.group_id, now + LOST_REQUEST_SECONDS)
        return []

    def _group_described(self, event: GroupDescribed, now: float) -> list[Fact]:
        group = self._cache.group(event.group_id)
        before = {*group.members, *group.overdue} if group else set()
        roster_complete = group is not None and group.incomplete_reason is None
        facts = self._bypasses.described(event, now) + self._describe(event, now)
        if (group := self._cache.group(event.group_id)) is not None:
            lacks_instance_ids = _lacks_instance_ids(event)
            if lacks_instance_ids and self.describes_instance_ids is None:
                apply(group, InstanceIdsMissing(), now)
            if not (lacks_instance_ids and self.describes_instance_ids):
                # Without its instance id, a static member would count twice: as a join, and as a new member.
                apply(group, SizeDescribed(event, before, roster_complete), now)
            self._forget_unless_real(group)
        elif event.state is GroupState.DEAD:
            self._existence.note_missing(event, now)
        return facts

    def _describe(self, event: GroupDescribed, now: float) -> list[Fact]:
        offsets = self._cache.group_offsets(event.group_id)
        made_since = event.state is GroupState.DEAD and offsets is not None and offsets.changed_at > event.sent_at
        lacks_instance_ids = self.describes_instance_ids and _lacks_instance_ids(event)
        if made_since or lacks_instance_ids or event.as_of != self.changes_of(event.group_id)[0]:
            return []
        return self._group_changed(self.log.interpret_description(event), now)

    def _consumer_group_described(self, event: ConsumerGroupDescribed, now: float) -> list[Fact]:
        group = self._cache.group(event.group_id)
        unchanged = event.as_of == self.changes_of(event.group_id)[0]
        if not event.assignor:
            self.sends_error_messages = event.has_error_message
        elif unchanged and group is not None and group.consumer is not None:
            apply(group, MembersOrdered(event.members), now)
            if not group.consumer.assignors:
                self.default_assignor = event.assignor
        return []

    # The state of the copy.

    @property
    def note_count(self) -> int:
        """How often the copy has noted a group with unseen history. `GroupsListed.as_of` is such a number."""
        return self._cache.unseen_history.note_count

    def changes_of(self, group_id: str) -> tuple[int, int]:
        """Returns the numbers of the last changes of a group and of its offsets, as in `Exchange.as_of`."""
        return self._cache.changes_of(group_id)

    def view(self, group_id: str, now: float, occupancy: Occupancy = NO_OCCUPANCY) -> GroupView:
        """Returns a view of a group at this moment; the view of a Dead group if the group is unknown."""
        group, offsets = self._cache.group(group_id), self._cache.group_offsets(group_id)
        fallback_reason = self._confidence.reason(Question.STATE, group_id, now)
        offsets_fallback_reason = self._confidence.reason(Question.OFFSETS, group_id, now)
        error_code = self._confidence.coordinator_error(group_id, now)
        if group is None:
            return GroupView(
                group_id=group_id,
                roster_known=fallback_reason is None,
                fallback_reason=fallback_reason,
                offsets_fallback_reason=offsets_fallback_reason,
                error_code=error_code,
                occupancy=occupancy,
            )
        return group.view(
            fallback_reason=fallback_reason,
            offsets_fallback_reason=offsets_fallback_reason,
            offsets=offsets.committed if offsets else {},
            error_code=error_code,
            occupancy=occupancy,
        )

    def offsets_view(self, group_id: str, now: float) -> GroupView:
        """Returns a view with only the offsets of a group and the error that its coordinator would return."""
        offsets, error_code = self._cache.group_offsets(group_id), self._confidence.coordinator_error(group_id, now)
        return group_view(group_id=group_id, offsets=offsets.committed if offsets else {}, error_code=error_code)

    def view_with_occupancy(self, group_id: str, now: float, *, asked_often: bool = False) -> GroupView:
        """Returns the result of `view`, and adds which members and joins count towards the group's size limit.

        `asked_often`: see `occupancy_of`.
        """
        group = self._cache.group(group_id)
        if group is not None:
            exclusive = self._cache.exclusivity.holds(now)
            return self.view(group_id, now, occupancy_of(group, now, exclusive=exclusive, asked_often=asked_often))
        known = self._confidence.reason(Question.STATE, group_id, now) is None
        return self.view(
            group_id, now, Occupancy(certain=known or self._cache.unseen_history.is_missing(group_id, now))
        )

    def group_fallback_reason(self, group_id: str, now: float) -> FallbackReason | None:
        """Returns why DescribeGroups may not be answered from this copy; None if it may."""
        return self._confidence.reason(Question.DESCRIPTION, group_id, now)

    def offsets_fallback_reason(self, group_id: str, now: float) -> FallbackReason | None:
        """Returns why OffsetFetch may not be answered from this copy; None if it may."""
        return self._confidence.reason(Question.OFFSETS, group_id, now)

    def offsets_are_known(self, group_id: str, partitions: Iterable[TopicPartition] | None) -> bool:
        """Whether the broker has no offsets of these partitions that the copy lacks because of deleted records.

        `partitions` is None for all partitions of the group.
        """
        return self._confidence.offsets_are_known(group_id, partitions)

    def consumer_fallback_reason(self, group_id: str, now: float) -> FallbackReason | None:
        """Returns why ConsumerGroupDescribe may not be answered from this copy; None if it may."""
        return self._confidence.reason(Question.CONSUMER_GROUP, group_id, now)

    def existing(self, group_id: str, now: float) -> GroupView | None:
        """Returns a view of a group at this moment; None if the group does not exist or only has joins in flight."""
        group = self._cache.group(group_id)
        return None if group is None or group.state is GroupState.DEAD else self.view(group_id, now)

    def listing_fallback_reason(self, now: float, version: int | None = None) -> FallbackReason | None:
        """Returns why ListGroups may not be answered from this copy; None if it may.

        `version` is the version of the reply. `update_listing` prepares a reply that takes long to build.
        """
        if (reason := self._confidence.listing_fallback_reason(now)) is not None:
            return reason
        self._listing.refresh(now, MAX_GROUPS_PER_REQUEST)
        return (
            FallbackReason.STALE
            if self._listing.has_too_much_work(version)
            else self._listing.fallback_reason(now, MAX_GROUPS_PER_REQUEST)
        )

    def listing(self, now: float) -> Listing:
        """Returns the list of all groups at this moment."""
        self._listing.refresh(now)
        return self._listing

    def update_listing(self, now: float) -> Iterator[None]:
        """Updates the list of groups in steps. The caller runs it about every second."""
        if self._confidence.listing_fallback_reason(now) is None:
            yield from self._listing.update_in_steps(now)

    def _listing_entry(self, group_id: str, now: float) -> ListingEntry:
        group = self._cache.group(group_id)
        if group is None:
            return ListingEntry(None)
        reason = self._confidence.reason(Question.STATE, group_id, now)
        return listing_entry(group, reason, now, self._confidence.expires_at(group))

    def groups_to_describe(self) -> Iterator[list[str]]:
        """Yields the groups that only a description by the broker can make complete, in batches."""
        return self._confidence.groups_to_describe()

    @property
    def learns_from_listings(self) -> bool:
        """Whether a list of the broker's groups would make the copy more complete."""
        return self._cache.exclusive and not self._cache.unseen_history.all_known

    def needs_listing(self) -> bool:
        """Whether the copy can become complete only by a list of the broker's groups."""
        return (
            self._cache.exclusive
            and self._cache.unread_writes.until < FOREVER
            and self._cache.unseen_history.needs_listing
        )

    @property
    def log_ends(self) -> Bounds:
        """The reported log ends, with the times of the reports."""
        return self.log_bounds.ends

    def committed_partitions(self) -> Iterator[set[TopicPartition]]:
        """Yields sets of partitions with committed offsets. A partition may be in several sets."""
        for offsets in list(self._cache.offsets.values()):
            yield from offsets.committed.partitions()

    def distrust(self, group_id: str) -> None:
        """Makes a group distrusted, because verification found a difference to the broker."""
        self._cache.distrust(group_id)

    def forget_group_state(self, group_id: str, now: float) -> None:
        """Forgets the state of a group. Afterwards the copy needs the broker's description of the group."""
        self._cache.forget_state(group_id)
        self._cache.note_removal(now)
        self._cache.unseen_history.note(group_id, now)

    def trust(self, group_id: str) -> None:
        """Ends the distrust of a group, because verification found no difference to the broker."""
        self._cache.trust(group_id)


def _is_from_coordinator(event: Event) -> bool:
    """Whether only the coordinator of the event's group can have sent the reply that the event reports."""
    if isinstance(event, OffsetsStored):
        return bool(event.offsets or event.unresolved)
    return isinstance(event, _COORDINATED)


def _shows_no_join(event: Event) -> bool:
    """Whether the event is an accepted heartbeat, commit or sync, which may be from a member that joined long ago."""
    return isinstance(event, MemberActivity) or (isinstance(event, ConsumerMemberSeen) and not event.is_join)


def _lacks_instance_ids(event: GroupDescribed) -> bool:
    return bool(event.members) and not event.has_instance_ids


def _listed_form(group: Group) -> tuple[object, ...]:
    """Returns the values that decide how a group is listed and that may change while `Group.changes` stays the same."""
    return group.kind, group.state, len(group.joins)
