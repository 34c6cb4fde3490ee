"""Merges the records of ``__consumer_offsets`` into the groups and reconciles them with the wire.

`LogFollower` knows which partitions this broker leads and how far each of them was read. The caller fetches the
records. `rules.log_records` decides how records change a group, and `rules.membership` how events of the wire do.

The log is the base, and newer events from the wire override it. When a Fetch reaches the end of the log, everything
that the broker acknowledged before that Fetch was sent has been read. Offsets that the wire reported before that time
are dropped, because the log contains the same commits in the right order. Doubts from before that time end as well,
except doubts about the members of classic groups. Such doubts end with a description by the broker or a new generation.

Names are those of Kafka's GroupMetadataManager: load, resign, and the states LOADING (`loadingPartitions`) and OWNED
(`ownedPartitions`). The module has more than 400 lines because the log and the wire are reconciled in this one place.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.offsets_topic import decode_key_suffix
from group_sidecar.codecs.offsets_topic import key_suffix as suffix_of
from group_sidecar.coordinator.log.consumer_groups import consumer_group_from_records
from group_sidecar.coordinator.model.events import FOREVER, NEVER, Event, GroupDescribed
from group_sidecar.coordinator.model.facts import Fact, OffsetsExpired
from group_sidecar.coordinator.model.views import DELETED_OFFSET, FallbackReason, GroupKind, GroupState, TopicPartition
from group_sidecar.coordinator.rules.apply import apply
from group_sidecar.coordinator.rules.bypasses import Bypasses
from group_sidecar.coordinator.rules.internal_events import (
    BrokerLost,
    ConsumerGroupLogged,
    DescriptionAwaited,
    GenerationLogged,
    GroupFound,
    GroupLoaded,
    GroupVanished,
    InternalEvent,
    LogCaughtUp,
    RecordsUnreadable,
)
from group_sidecar.coordinator.state.awaited_tombstones import AWAITED_SECONDS, WHOLE_GROUP
from group_sidecar.coordinator.state.bounded_table import ENTRY_BYTES, TABLE_BYTES, TableSize
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.group_cache import GroupCache
from group_sidecar.coordinator.state.log_partitions import (
    MisplacedGroup,
    Partition,
    PartitionState,
    PartitionTable,
    partition_for,
)
from group_sidecar.coordinator.state.logged_group import LoggedGroup
from group_sidecar.coordinator.state.moved_groups import MovedGroups
from group_sidecar.coordinator.state.partition_log import PartitionLog

LOGGED_BYTES = 200
"""Estimated bytes of an offset that the log still has: its key and its value, with a short topic name."""
GROUPS_PER_FORGET_STEP = 20
"""Groups whose state is forgotten before other tasks may run. Forgetting a small group takes about 50 microseconds."""
MEMBERS_PER_FORGOTTEN_GROUP = 20
"""So many members of a group count as another group, because its members take most of the time."""
GROUPS_PER_MERGE_STEP = 50
"""Groups that are merged before other tasks may run."""


class LogFollower:
    """Merges `__consumer_offsets` into a cache of groups.

    Attributes:
        partitions: the partitions that this broker leads, and how far each was read.
        expired: how many offsets the broker has removed without a client's request.
        offsets_removed_at: when a removal of offsets was last read from the log. Deleted topics cause such removals.
        moved_groups: the groups whose partition another broker now leads.
    """

    def __init__(self, cache: GroupCache) -> None:
        self._cache = cache
        self.partitions: PartitionTable = cache.partitions
        self.expired = 0
        self.offsets_removed_at = NEVER
        self.moved_groups = MovedGroups()
        self._cleanup: tuple[int, float] | None = None
        self._forgotten: dict[int, list[str]] = {}  # The groups that `forget_in_steps` has forgotten, by partition.
        self._bypasses = Bypasses(cache)

    @property
    def tables(self) -> Iterator[TableSize]:
        """The size of each table in this object."""
        offsets = sum(partition.log.size for _, partition in self.partitions)
        heavy = sum(partition.log.counted_bytes for _, partition in self.partitions)
        yield TableSize("logged_offsets", offsets, offsets * LOGGED_BYTES + heavy)
        ahead = sum(len(partition.ahead_of_log) for _, partition in self.partitions)
        yield TableSize("groups_ahead_of_log", ahead, ahead * ENTRY_BYTES)
        deleted = [partition.deleted for _, partition in self.partitions]
        yield TableSize("deleted_groups_ahead_of_log", sum(map(len, deleted)), sum(each.bytes for each in deleted))
        awaited = [partition.log.awaited for _, partition in self.partitions]
        yield TableSize("awaited_tombstones", sum(each.size for each in awaited), sum(each.bytes for each in awaited))
        yield self.moved_groups.table

    # Which partitions this broker leads.

    def count_partitions(self, count: int, now: float) -> None:
        """Sets the number of partitions of the topic. If the number changes, everything read before is forgotten."""
        if self.partitions.count == count:
            return
        self.stop_reading(now)
        self.partitions.recount(count, self._cache.groups)
        self._cache.relist_all()

    def stop_reading(self, now: float) -> None:
        """Forgets everything that was read, because the log is no longer read.

        The groups in the log still exist, so any group may have an unseen history.
        """
        for number in list(self.partitions.leader_partitions):
            self._forget_groups(number, now)
        if self.partitions.count is not None:
            self._cache.unseen_history.doubt_others()
            self._cache.note_other_brokers(True)
        self.moved_groups.clear()
        self._forgotten.clear()
        self.partitions.recount(None, ())

    def begin_load(
        self, number: int, leader_epoch: int, start_offset: int, now: float, *, coordinator_loaded: bool = True
    ) -> PartitionLog:
        """Begins to read a partition that this broker leads, from its start.

        If the partition was read before, the state of its groups is forgotten. The broker's coordinator has forgotten
        that state too.

        Args:
            number: the number of the partition.
            leader_epoch: the leader epoch of the partition.
            start_offset: the offset at which the reading begins.
            now: the current time, in seconds since the epoch.
            coordinator_loaded: whether the broker's own coordinator has loaded the partition. If it has not, the
                partition stays LOADING until that load has ended, even if the log was read. True if the broker cannot
                be asked.

        Raises:
            StaleEpoch: a later leader epoch of the partition is known.
        """
        known_before: list[str] = []
        if self.partitions.advance(number, leader_epoch):
            known_before = [*self._forgotten.pop(number, ()), *self.partitions.groups_of(number)]
            self._forget_groups(number, now)
            self.moved_groups.forget_partition(number)
            self._end_elsewhere(number)
        partition = self.partitions.begin(number, leader_epoch, start_offset)
        partition.loaded_at = now
        partition.known_before = known_before
        partition.coordinator_loaded = coordinator_loaded
        if coordinator_loaded:
            _begin_leader_term(partition, now)
        for group_id in self.partitions.groups_of(number):
            if group_id in self._cache.offsets:
                self._cache.attach_log_to_offsets(partition, group_id, None)
                partition.ahead_of_log.add(group_id)
        return partition.log

    def resign(self, number: int, leader_epoch: int, now: float) -> None:
        """Ends the reading of a partition that this broker no longer leads.

        Raises:
            StaleEpoch: a later leader epoch of the partition is known.
        """
        self.partitions.advance(number, leader_epoch)
        for group_id in self.partitions.groups_of(number):
            self.moved_groups.put(group_id, number)
        self._forget_groups(number, now)
        self._forgotten.pop(number, None)
        self.partitions.end(number)
        self._end_elsewhere(number)

    def forget_in_steps(self, number: int, leader_epoch: int, now: float, *, moved: bool) -> Iterator[None]:
        """Forgets the groups of a partition in steps. The caller runs the iterator to its end.

        Then it calls `resign` or `begin_load`, which would otherwise forget all these groups in one step. Until then,
        the partition counts as failed. `moved` is whether another broker leads the partition now. The iterator ends
        early if another task resigns or loads the partition meanwhile.

        Raises:
            StaleEpoch: a later leader epoch of the partition is known.
        """
        self.partitions.check_epoch(number, leader_epoch)
        partition = self.partitions.leader_partitions.get(number)
        if partition is None:
            return
        _mark_failed(partition, "its leader changes")
        groups, done = self.partitions.groups_of(number), 0
        self._forgotten[number] = groups
        for group_id in groups:
            if self.partitions.leader_partitions.get(number) is not partition:
                return
            if moved and self._cache.exists(group_id):  # A reply may have shown meanwhile that the group has moved.
                self.moved_groups.put(group_id, number)
            group = self._cache.groups.get(group_id)
            done += 1 + (len(group.members) // MEMBERS_PER_FORGOTTEN_GROUP if group else 0)
            self._cache.forget_state(group_id)
            if done >= GROUPS_PER_FORGET_STEP:
                done = 0
                self._cache.note_removal(now)
                yield
        self._cache.note_removal(now)

    def _end_elsewhere(self, number: int) -> None:
        """Ends the unseen history that groups of this partition may have had at another broker.

        If this broker leads the partition again, the log contains those groups.
        """
        if count := self.partitions.count:
            self._cache.unseen_history.end_elsewhere(lambda group_id: partition_for(group_id, count) == number)

    def fail(self, number: int, reason: str, now: float) -> None:
        """Marks a partition as failed because it cannot be read. Forgets its groups."""
        if (partition := self.partitions.leader_partitions.get(number)) is not None:
            self._forget_groups(number, now)
            _mark_failed(partition, reason)

    def coordinator_loaded(self, number: int, now: float) -> None:
        """Notes that the broker's own coordinator has loaded the partition."""
        partition = self.partitions.leader_partitions[number]
        partition.coordinator_loaded = True
        _begin_leader_term(partition, now)
        if partition.state is PartitionState.LOADING and partition.fresh_at != NEVER:
            partition.state = PartitionState.OWNED

    def connection_lost(self, now: float, *, coordinator_loaded: bool = True) -> Iterator[None]:
        """Notes that the connection to the broker was lost. The caller runs the iterator to its end.

        No partition is fresh any longer, and the broker may have restarted. `coordinator_loaded` is whether the
        broker's own coordinator has loaded its partitions; True if the broker cannot be asked.
        """
        self._bypasses.connection_lost([partition for _, partition in self.partitions], now)
        for _, partition in self.partitions:
            partition.coordinator_loaded = coordinator_loaded
            if partition.state is PartitionState.OWNED:
                partition.state = PartitionState.LOADING
            partition.fresh_at = NEVER
        groups = [group for number, _ in self.partitions for group in self.partitions.groups_of(number)]
        for done, group_id in enumerate(groups, 1):
            group = self._cache.group(group_id)
            if group is not None and group.kind is GroupKind.CLASSIC:
                apply(group, BrokerLost(), now)
            if done % GROUPS_PER_MERGE_STEP == 0:
                yield

    def _forget_groups(self, number: int, now: float) -> None:
        for group_id in self.partitions.groups_of(number):
            self._cache.forget_state(group_id)
        self._cache.note_removal(now)
        self.partitions.forget_not_coordinated(number)

    # Records from the log.

    def merge(self, number: int, now: float) -> Iterator[list[Fact]]:
        """Merges the records that were read since the last call. Yields the facts of some groups at a time.

        Raises:
            MisplacedGroup: another partition stores a group whose records were read.
        """
        partition = self.partitions.leader_partitions[number]
        changed = partition.log.take_changed()
        self._bypasses.judge_commits(partition, now)
        facts: list[Fact] = []
        for done, name in enumerate(changed, 1):
            if self.partitions.leader_partitions.get(number) is not partition:
                return  # Meanwhile the partition was given up, or its reading began again.
            facts += self._merge_group(partition, name, now)
            if done % GROUPS_PER_MERGE_STEP == 0:
                yield facts
                facts = []
        yield facts

    def end_reached(self, number: int, asked_at: float, now: float) -> Iterator[OffsetsExpired | None]:
        """Notes that a Fetch sent at `asked_at` reached the end of the log and that its records were merged.

        The caller runs the iterator to its end. Only the last step makes the log fresh. If another task has given up
        the partition meanwhile, or has begun to read it again, the iterator ends without that step.

        Yields:
            None after each step. In the end, the fact that the broker has removed offsets on its own; None if it has
            removed none.

        Raises:
            MisplacedGroup: another partition stores a group whose records were read.
        """
        partition = self.partitions.leader_partitions[number]
        if overflowed := self.overflowed(number):
            self.fail(number, overflowed, now)
            yield None
            return
        # Groups that the steps remove were known, so they must not be noted as groups with an unseen history.
        partition.known_before = [each for each in partition.known_before if each not in self._cache.groups]
        log, reconciled = partition.log, set[str]()
        awaited = set(log.awaited)
        for group_id in list(partition.ahead_of_log):
            # The last step reconciles groups with deletions, after it has found out which tombstones are still missing.
            if group_id in partition.deleted or group_id.encode() in awaited:
                continue
            self._reconcile_and_discard(partition, group_id, asked_at, now)
            reconciled.add(group_id)
            if len(reconciled) % GROUPS_PER_MERGE_STEP == 0:
                yield None
                if self.partitions.leader_partitions.get(number) is not partition or partition.log is not log:
                    return
        yield self._become_fresh(partition, reconciled, asked_at, now)

    def _become_fresh(
        self, partition: Partition, reconciled: set[str], asked_at: float, now: float
    ) -> OffsetsExpired | None:
        """Makes a partition fresh, and reconciles the groups that are not in `reconciled`."""
        partition.state = PartitionState.OWNED if partition.coordinator_loaded else PartitionState.LOADING
        partition.reason, partition.fresh_at, partition.read_at = "", asked_at, now
        self._bypasses.begin(partition, asked_at)
        awaited = partition.log.awaited
        for name in awaited:
            self._release(partition.log, name, asked_at)
            partition.ahead_of_log.add(name.decode())
        for group_id in list(partition.deleted):
            at = partition.deleted.get(group_id)
            if at is not None and at <= asked_at and not awaited.awaits_group(group_id.encode()):
                partition.deleted.pop(group_id)
        for name in partition.log.take_changed():
            self._merge_group(partition, name, now)
        for group_id in partition.known_before:
            if group_id not in self._cache.groups:
                self._cache.unseen_history.note(group_id, asked_at)
        partition.known_before = []
        # Deleted groups are left out. Their records were not merged, so newer events of the wire must be kept.
        for group_id in partition.ahead_of_log.difference(partition.deleted, reconciled):
            self._reconcile_and_discard(partition, group_id, asked_at, now)
        return self._cleaned_up(now)

    def _reconcile_and_discard(self, partition: Partition, group_id: str, asked_at: float, now: float) -> None:
        if self._reconcile_group(partition, group_id, asked_at, now):
            partition.ahead_of_log.discard(group_id)

    def overflowed(self, number: int) -> str:
        """Returns why a partition is too large to be kept, and counts the overflow; empty if it is not too large.

        A partition is too large if all partitions together exceed a limit and no other partition is larger.
        """
        cache, log = self._cache, self.partitions.leader_partitions[number].log
        logs = [partition.log for _, partition in self.partitions]
        reason = ""
        if sum(each.size for each in logs) > cache.max_offsets and log.size == max(each.size for each in logs):
            reason = "more offsets than limits.offsets"
        max_bytes = max(TABLE_BYTES, cache.max_offsets * LOGGED_BYTES)
        if sum(each.counted_bytes for each in logs) > max_bytes and log.counted_bytes == max(
            each.counted_bytes for each in logs
        ):
            reason = "more bytes of metadata than limits.offsets allows"
        if reason:
            cache.count_overflow()
        return reason

    def _release(self, log: PartitionLog, name: bytes, asked_at: float) -> None:
        """Stops awaiting the tombstones of keys that the log lacks, or that clients committed again after the deletion.

        The broker acknowledged such a commit before `asked_at`, so the log contains it.
        """
        log.reconcile_awaited(name, asked_at)
        offsets = self._cache.group_offsets(name.decode())
        if offsets is None:
            return
        for key_suffix in log.awaited.overdue(name, asked_at):
            committed = (
                None if key_suffix == WHOLE_GROUP else offsets.committed.get_wire_offset(decode_key_suffix(key_suffix))
            )
            at = offsets.changed_at if key_suffix == WHOLE_GROUP else committed.at if committed else FOREVER
            if at <= asked_at:
                log.awaited.forget(name, key_suffix)

    def _reconcile_group(self, partition: Partition, group_id: str, asked_at: float, now: float) -> bool:
        """Reconciles a group with the log, which contains everything that was acknowledged before `asked_at`.

        Returns whether the log contains all changes of the group that the wire has reported.
        """
        group, offsets = self._cache.group(group_id), self._cache.group_offsets(group_id)
        if group is not None and self._is_obsolete(partition, group, asked_at):
            self._cache.remove(group_id, now)
            return True
        done = True
        if group is not None and group.incomplete_reason and self._log_completes(group):
            if group.settled_at <= asked_at:
                apply(group, LogCaughtUp(), now)
            else:
                done = False
        if offsets is not None:
            overdue = partition.log.awaited.overdue(group_id.encode(), asked_at)
            deleted = [decode_key_suffix(each) for each in overdue if each != WHOLE_GROUP]
            done = offsets.reconcile_with_log(asked_at, deleted, self._cache.unread_writes.until_of(group_id)) and done
            self._cache.update_offset_counts(group_id, now)
        return done

    def _log_completes(self, group: Group) -> bool:
        """Whether the log completes an incomplete group.

        With `answers.exclusive`, only the broker's description completes a classic group.
        """
        return group.kind is not GroupKind.CLASSIC or not self._cache.exclusive

    def _cleaned_up(self, now: float) -> OffsetsExpired | None:
        if self._cleanup is None:
            return None
        (count, since), self._cleanup = self._cleanup, None
        self.expired += count
        return OffsetsExpired(at=now, count=count, seconds=now - since)

    def _merge_group(self, partition: Partition, name: bytes, now: float) -> list[Fact]:
        log, cache = partition.log, self._cache
        logged = self._logged_group(partition, name)
        if logged is None:
            return []
        group_id, removed = logged.group_id, logged.removed
        logged.removed = 0
        log.recount(logged)
        self.partitions.end_not_coordinated(group_id)
        if group_id in partition.deleted:
            log.defer(name)  # The log is older than the wire. The group is merged once the log has caught up.
            return []
        self._count_removed(partition, group_id, removed, now)
        if logged.is_empty:
            log.forget(name)
            self._vanished(partition, group_id, logged.is_deleted, now)
            return []
        group = cache.group(group_id)
        loading = partition.state is not PartitionState.OWNED
        if group is not None and loading and cache.exclusive:
            apply(group, DescriptionAwaited(), now)
        if group is None:
            unseen = loading or not cache.fully_observed(group_id)
            group = cache.enter(group_id, FallbackReason.IN_DOUBT if unseen and cache.exclusive else None)
            if group is None:
                return []
        if logged.offsets or logged.pending or group_id in cache.offsets:
            offsets = cache.attach_log_to_offsets(partition, group_id, logged)
            offsets.note_log_changed(now)
            if not cache.exclusivity.holds(now):
                offsets.doubt_differences(now)
        if partition.read_at == NEVER:  # A group that appears later was not loaded with the partition.
            apply(group, GroupLoaded(partition.leader_term), now)
        # After the wire has removed a group, a new commit makes this method merge the group's old records again. Old
        # records are not live.
        is_live = logged.take_new_state() and not loading
        facts = self._merge_metadata(group, logged, now, is_live=is_live)
        self._bypasses.judge_members(group_id, facts, partition, now)
        return facts

    def _logged_group(self, partition: Partition, name: bytes) -> LoggedGroup | None:
        """Returns the group to merge; None if there is none.

        `bring_back` may have merged the group's tombstones and forgotten the group. A group that another partition
        stores is forgotten here if none of its records survives.

        Raises:
            MisplacedGroup: another partition stores the group, and records of it survive.
        """
        logged = partition.log.groups.get(name)
        if logged is None or self.partitions.partition_of(logged.group_id) is partition:
            return logged
        if not logged.is_empty:
            raise MisplacedGroup(logged.group_id)
        partition.log.forget(name)
        return None

    def _merge_metadata(self, group: Group, logged: LoggedGroup, now: float, *, is_live: bool) -> list[Fact]:
        if group.state is GroupState.DEAD:
            apply(group, GroupFound(), now)
        return apply(group, _logged_event(group, logged, is_live=is_live), now)

    def _vanished(self, partition: Partition, group_id: str, is_deleted: bool, now: float) -> None:
        """Handles a group that has no records in the log any more.

        The broker may still have a group that has neither members nor records. If a client has created a new group with
        the same name, the wire has reported the new group.
        """
        group = self._cache.group(group_id)
        if group is None:
            return
        # The log contains the whole state of a group of the new protocols, so a new group will appear in the log too.
        reported_since = group.kind is GroupKind.CLASSIC and self._wire_reported_since(group, partition.fresh_at)
        if not reported_since and (is_deleted or group.kind is not GroupKind.CLASSIC or not self._cache.exclusive):
            created_again_at = now if group.wire_event_at > partition.fresh_at else NEVER
            offsets = self._cache.group_offsets(group_id)
            until = max(group.completeness.lost_until, offsets.settled_at if offsets else NEVER, created_again_at)
            self._cache.remove(group_id, now)
            self._cache.unseen_history.end(group_id)
            if until > partition.fresh_at:  # A lost request may create the group again.
                self._cache.unseen_history.note(group_id, until)
            return
        if group_id in self._cache.offsets:
            offsets = self._cache.attach_log_to_offsets(partition, group_id, None)
            offsets.note_log_changed(now)
            if not self._cache.exclusivity.holds(now):
                offsets.doubt_differences(now)
        apply(group, GroupVanished(), now)
        partition.ahead_of_log.add(group_id)

    def _wire_reported_since(self, group: Group, at: float) -> bool:
        """Whether the wire has reported the group since `at`, or will soon report it because of joins or members."""
        offsets = self._cache.group_offsets(group.group_id)
        busy = group.joins or group.pending or group.state not in (GroupState.EMPTY, GroupState.DEAD)
        return bool(busy) or group.wire_event_at > at or (offsets is not None and offsets.changed_at > at)

    def _is_obsolete(self, partition: Partition, group: Group, asked_at: float) -> bool:
        """Whether neither the log nor a recent request shows the group, and the broker will not be asked about it.

        A lost join may be parked at the broker until the first generation begins, and then counts for a size limit.
        """
        known = group.group_id.encode() in partition.log.groups or group.pending_joins.has_any
        return not (self._cache.exclusive or known or self._wire_reported_since(group, asked_at))

    def _count_removed(self, partition: Partition, group_id: str, removed: int, now: float) -> None:
        """Counts the offsets that tombstones have removed, unless a client's request explains the removal.

        Tombstones that the load reads are usually older than the load, and do not count.
        """
        offsets = self._cache.group_offsets(group_id)
        asked_for = (
            sum(1 for wire_offset in offsets.committed.wire_offsets.values() if wire_offset.offset == DELETED_OFFSET)
            if offsets
            else 0
        )
        if removed:
            self.offsets_removed_at = now
        if removed > asked_for and partition.read_at != NEVER and not self._cache.exclusivity.is_shared:
            count, since = self._cleanup or (0, now)
            self._cleanup = (count + removed - asked_for, since)

    # Events from the wire.

    def expect_group_tombstone(self, group_id: str, now: float, *, existed: bool) -> None:
        """Notes that the broker has deleted a group for a client, so that the group's tombstone is expected in the log.

        A group that did not exist leaves no tombstone.
        """
        if (partition := self.partitions.partition_of(group_id)) is not None:
            evicts = partition.deleted.put(group_id, now)
            if existed:
                evicts |= partition.log.awaited.expect(group_id.encode(), WHOLE_GROUP, now)
            if evicts:
                partition.evicted_until = now + AWAITED_SECONDS

    def expect_offset_tombstones(self, group_id: str, partitions: Iterable[TopicPartition], now: float) -> None:
        """Notes that the broker has deleted offsets for a client, so that their tombstones are expected in the log."""
        if (partition := self.partitions.partition_of(group_id)) is not None:
            for each in partitions:
                if partition.log.awaited.expect(group_id.encode(), suffix_of(*each), now):
                    partition.evicted_until = now + AWAITED_SECONDS

    def interpret_description(self, event: GroupDescribed) -> GroupDescribed:
        """Returns the event, corrected if the broker described an Empty group as Dead.

        A broker that does not keep Empty groups describes a group as Dead while the group still has offsets. The result
        then describes the group as Empty.
        """
        group, offsets = self._cache.group(event.group_id), self._cache.group_offsets(event.group_id)
        dead = event.state is GroupState.DEAD
        if not dead or self._cache.keeps_empty_groups or offsets is None or not any(offsets.committed):
            return event
        return replace(event, state=GroupState.EMPTY, protocol_type=group.protocol_type if group else "")

    def note_not_coordinated(self, group_id: str, now: float) -> None:
        """Notes that the broker replied NOT_COORDINATOR. `bring_back` will merge the group's records again.

        The broker does not lead the group's partition any more, or was fenced for some seconds and leads it again.
        """
        partition = self.partitions.partition_of(group_id)
        if partition is not None and group_id.encode() in partition.log.groups:
            self.partitions.note_not_coordinated(group_id, now)

    def bring_back(self, group_id: str, now: float) -> list[Fact]:
        """Merges the records of a group in `not_coordinated` again, because the broker coordinates the group again.

        Returns the facts that follow from records that were not merged before.
        """
        partition = self.partitions.partition_of(group_id)
        assert partition is not None
        return self._merge_group(partition, group_id.encode(), now)

    def may_include(self, event: Event) -> bool:
        """Whether the log may already contain the effect of an event, and later changes that the wire did not show."""
        holds = self._cache.exclusivity.holds(event.sent_at)
        partition = None if holds else self.partitions.partition_of(event.group_id)
        return partition is not None and partition.read_at > event.sent_at

    def await_records(self, group: Group) -> None:
        """Marks a group as ahead of its log, because the wire has shown newer state of the group."""
        partition = self.partitions.partition_of(group.group_id)
        if partition is not None:
            partition.ahead_of_log.add(group.group_id)


def _mark_failed(partition: Partition, reason: str) -> None:
    """Marks a partition as failed, and drops what was read of it."""
    partition.state, partition.reason, partition.fresh_at = PartitionState.FAILED, reason, NEVER
    partition.log = PartitionLog(partition.log.next_offset)


def _begin_leader_term(partition: Partition, now: float) -> None:
    partition.leader_term.began_at = min(partition.leader_term.began_at, now)


def _logged_event(group: Group, logged: LoggedGroup, *, is_live: bool) -> InternalEvent:
    """Returns the event for a group whose records have changed."""
    if not logged.records:
        return GenerationLogged(metadata=logged.metadata, is_live=is_live)
    if group.logged_state.is_decoded(logged.changes):
        return ConsumerGroupLogged(metadata=logged.metadata, changes=logged.changes, view=None, is_live=is_live)
    try:
        view = consumer_group_from_records(group.group_id, logged.records, group.logged_state.decoded_members)
    except DecodeError:
        return RecordsUnreadable(metadata=logged.metadata, changes=logged.changes)
    return ConsumerGroupLogged(metadata=logged.metadata, changes=logged.changes, view=view, is_live=is_live)
