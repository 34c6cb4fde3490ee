"""All groups of one broker: their state and offsets, the bounds, and the groups that may have an unseen history.

The module has more than 400 lines because creating, forgetting and counting groups change the same tables.
"""

from collections.abc import Collection, Container, Iterator, Mapping
from itertools import count

from group_sidecar.codecs.primitives import MAX_STRING_BYTES
from group_sidecar.coordinator.model.events import FOREVER, NEVER
from group_sidecar.coordinator.model.state_transitions import DEAD, EMPTY
from group_sidecar.coordinator.model.views import CommittedOffset, FallbackReason, GroupKind, GroupState, TopicPartition
from group_sidecar.coordinator.state.bounded_table import TABLE_BYTES, TableSize, name_bytes
from group_sidecar.coordinator.state.committed_offsets import metadata_chars
from group_sidecar.coordinator.state.exclusivity import Exclusivity
from group_sidecar.coordinator.state.expired_clients import ExpiredClientsBudget
from group_sidecar.coordinator.state.former_groups import FormerGroup, FormerGroups
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.group_offsets import GroupOffsets
from group_sidecar.coordinator.state.log_partitions import Partition, PartitionTable
from group_sidecar.coordinator.state.logged_group import LoggedGroup
from group_sidecar.coordinator.state.metadata_budget import MetadataBudget
from group_sidecar.coordinator.state.unread_writes import UnreadWrites
from group_sidecar.coordinator.state.unseen_history import UnseenHistory

OFFSET_BYTES = 250
"""Estimated bytes of a committed offset that was seen on the wire, with a short metadata text."""
TRANSACTION_BYTES = 750
"""Estimated bytes of an open transaction without its offsets: two dictionaries and a set, each with one entry."""
MEAN_METADATA_CHARS = 50
"""The bound for the metadata of all offsets, in characters per offset that may be kept. A single offset may have 4,096
(`offset.metadata.max.bytes`)."""
MEAN_NAME_BYTES = 1_024
"""The bound for the names of all groups, in bytes per group that may be kept."""


class GroupCache:
    """All groups of one broker.

    The methods `group` and `group_offsets` look up a group and its offsets, and first apply unread writes to them.

    Args:
        exclusive: whether the operator has confirmed that every client reaches the broker through this sidecar.
        true_hosts: whether replies contain the addresses from which the requests of members arrive. If not, replies
            contain the hosts that the broker reports.
        max_groups, max_offsets: how many groups and offsets are kept. `overflowed` counts the groups and offsets that
            were not kept.

    Attributes:
        max_metadata_chars: how many characters the metadata of all offsets may have.
        metadata: the bound on metadata and assignments of all members.
        groups, offsets: groups and their offsets, by group id.
        transactions: by producer id, the groups with offsets that are pending in the producer's transaction. Groups
            whose log is read are not included.
        partitions: the partitions of `__consumer_offsets`, and which groups each of them stores.
        unseen_history: groups that may have an unseen history.
        expired_clients: the bound on the expired clients of these groups.
        former_groups: groups whose state was forgotten, because the broker's coordinator has forgotten or deleted them.
        distrusted: groups for which verification found a difference to the broker.
        unread_writes: writes that could not be decoded.
        exclusivity: the operator's statement that every client reaches the broker through this sidecar, and the
            evidence against it.
        ticks: numbers the changes of all groups.
        changed: groups whose entries in the list of groups are outdated.
        listed: groups in the list of groups. The removal of any other group does not change the list.
        may_have_other_brokers: whether another broker of the cluster may coordinate groups too. Only the log shows
            which broker coordinates a group.
        keeps_empty_groups: whether the broker keeps groups without members, as all brokers do since 0.10.1. Older
            brokers keep the offsets of such groups, but neither list nor describe them.
        topic_deletion_until: until when the broker may still return offsets of deleted topics.
    """

    def __init__(self, *, exclusive: bool, true_hosts: bool, max_groups: int, max_offsets: int) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        self.transactions: dict[int, set[str]] = {}
        self.partitions = PartitionTable()
        self.unseen_history = UnseenHistory(max_groups, self.groups)
        self.expired_clients = ExpiredClientsBudget()
        self.former_groups = FormerGroups(max_groups)
        self.unread_writes = UnreadWrites()
        self.distrusted: set[str] = set()
        self.ticks = count(1)
        self.changed: set[str] = set()
        self.listed: Container[str] = ()
        self.exclusive, self.true_hosts = exclusive, true_hosts
        self.exclusivity = Exclusivity(stated=exclusive)
        self.topic_deletion_until = NEVER
        self.overflowed = 0
        self.may_have_other_brokers = False
        self.keeps_empty_groups = True
        self.max_offsets = max_offsets
        self._max_groups = max_groups
        self._max_bytes = max(TABLE_BYTES, max_groups * MEAN_NAME_BYTES)
        self.name_bytes = 0
        self._offsets_count = self._metadata_chars = 0
        self.max_metadata_chars = max(TABLE_BYTES, max_offsets * MEAN_METADATA_CHARS)
        self.metadata = MetadataBudget(max_groups)
        self._removals, self._removed_at = 0, NEVER

    @property
    def tables(self) -> Iterator[TableSize]:
        """The size of each table."""
        yield TableSize("groups", len(self.groups), self.name_bytes)
        yield TableSize("offsets", self._offsets_count, self._offsets_count * OFFSET_BYTES + self._metadata_chars)
        open_bytes = len(self.transactions) * TRANSACTION_BYTES
        yield TableSize("open_transactions", len(self.transactions), open_bytes)
        yield self.metadata.table
        yield TableSize("distrusted_groups", len(self.distrusted), sum(map(name_bytes, self.distrusted)))
        yield self.partitions.not_coordinated_table
        yield from self.unseen_history.tables
        yield self.exclusivity.table
        yield self.expired_clients.table
        yield self.former_groups.table

    # Groups.

    def group(self, group_id: str) -> Group | None:
        """Returns a group, after unread writes were applied to it; None if the group is not kept."""
        group = self.groups.get(group_id)
        if group is not None and group.completeness.epoch != self.unread_writes.epoch:
            self._bring_up_to_date(group)
        return group

    def _bring_up_to_date(self, group: Group) -> None:
        """Applies the unread writes since the last look-up of the group."""
        before = group.completeness.begin_epoch(self.unread_writes.epoch)
        # An unread DeleteGroups may have deleted an Empty group. The request may also have deleted a group that is Dead
        # in the copy although a reply in flight will show that the group exists.
        deletable = before < self.unread_writes.offsets_epoch and group.state in (DEAD, EMPTY)
        if not deletable and before >= self.unread_writes.members_epoch:
            return
        if (
            group.kind is not GroupKind.CLASSIC
            and (partition := self.partitions.partition_of(group.group_id)) is not None
        ):
            if partition.fresh_at >= self.unread_writes.until:
                return  # The log has been read past the unread write.
            partition.ahead_of_log.add(group.group_id)
        group.note_undecoded_write()

    def group_offsets(self, group_id: str) -> GroupOffsets | None:
        """Returns the offsets of a group, after unread writes were applied to them; None if no offsets are kept."""
        offsets = self.offsets.get(group_id)
        if offsets is not None and offsets.epoch != self.unread_writes.epoch:
            before, offsets.epoch = offsets.epoch, self.unread_writes.epoch
            if not offsets.log_is_read and before < max(
                self.unread_writes.offsets_epoch, self.unread_writes.deletions_epoch
            ):
                has_unread_write = before < self.unread_writes.offsets_epoch
                if has_unread_write:
                    offsets.note_undecoded_write(NEVER)
                else:
                    offsets.topics_deleted()
                self.touch_offsets(offsets)
        return offsets

    # State that belongs to no single group.

    def follow_listing(self, listed: Container[str]) -> None:
        """Sets `listed`."""
        self.listed = listed

    def count_overflow(self) -> None:
        """Counts a group, offset or metadata that was not kept because of a bound."""
        self.overflowed += 1

    def topics_deleted(self, topic_deletion_until: float) -> None:
        """Notes a deletion of topics. The broker removes their offsets before the time `topic_deletion_until`."""
        self.topic_deletion_until = topic_deletion_until
        self.unread_writes.topics_deleted()

    def distrust(self, group_id: str) -> None:
        """Makes a group distrusted."""
        self.distrusted.add(group_id)
        if group_id in self.groups:
            self.relist(group_id)

    def trust(self, group_id: str) -> None:
        """Ends the distrust of a group."""
        self.distrusted.discard(group_id)

    def relist(self, group_id: str) -> None:
        """Marks the entry of a group in the list of groups as outdated."""
        self.changed.add(group_id)

    def relist_all(self) -> None:
        """Marks the entries of all groups in the list of groups as outdated."""
        self.changed.update(self.groups)

    def note_other_brokers(self, may_exist: bool) -> None:
        """Sets `may_have_other_brokers`."""
        if may_exist is not self.may_have_other_brokers:
            self.may_have_other_brokers = may_exist
            self.relist_all()

    # Creation and removal of groups.

    def keep_empty_groups(self, keeps: bool) -> None:
        """Sets `keeps_empty_groups`."""
        if keeps is self.keeps_empty_groups:
            return  # The usual case, because this method is called for each client that connects.
        self.keeps_empty_groups = keeps
        for group in self.groups.values():
            group.kept_when_empty = keeps

    def exists(self, group_id: str) -> bool:
        """Whether the broker has the group, according to the copy."""
        group = self.group(group_id)
        return group is not None and group.state is not GroupState.DEAD

    def get_or_maybe_create(self, group_id: str, sent_at: float) -> Group | None:
        """Returns the group of an event, which may be new; None beyond the bound.

        `sent_at` is when the event's request was sent.
        """
        group = self.group(group_id)
        return self.enter(group_id, self.unseen_reason(group_id, sent_at)) if group is None else group

    def enter(self, group_id: str, incomplete_reason: FallbackReason | None) -> Group | None:
        """Creates a group, and notes until when lost requests may change the group. Returns None beyond the bound."""
        group = self.create(group_id, incomplete_reason)
        if group is not None:
            group.completeness.begin(self.unseen_history.settled_at(group_id))
        return group

    def create(self, group_id: str, incomplete_reason: FallbackReason | None) -> Group | None:
        """Creates a group. Returns None beyond the bound."""
        if len(self.groups) >= self._max_groups or self.name_bytes + name_bytes(group_id) > self._max_bytes:
            self.overflowed += 1
            self.unseen_history.note(group_id, NEVER)
            # Replies in flight count as outdated from now on, because such a reply may not contain this group yet.
            self._removals = next(self.ticks)
            return None
        group = self.groups[group_id] = Group(
            group_id, incomplete_reason, self.ticks, self.changed, self.unread_writes, self.expired_clients
        )
        group.exclusive, group.kept_when_empty = self.exclusive, self.keeps_empty_groups
        group.adopt_former(self.former_groups.take(group_id))
        self.name_bytes += name_bytes(group_id)
        self.unseen_history.appeared(group_id)
        self.changed.add(group_id)
        self.partitions.add_group(group_id)
        return group

    def remove(self, group_id: str, now: float) -> None:
        """Removes a group that the broker has deleted. Keeps its expired clients, which may create the group again."""
        self.forget(group_id)
        expired = tuple(each for each in self.former_groups.take(group_id).expired if each.ended_at <= now)
        self.former_groups.put(group_id, FormerGroup(expired=expired))
        self.note_removal(now)

    def remove_moved(self, group_id: str, now: float) -> None:
        """Removes a group that the broker does not coordinate any more."""
        self.forget(group_id)
        self.note_removal(now)

    def note_removal(self, now: float) -> None:
        """Notes the removal of a group, or of offsets that the copy lacks. A reply in flight may be outdated."""
        self._removals, self._removed_at = next(self.ticks), now

    def history_ended(self, now: float) -> None:
        """Notes that unseen histories have ended. An event whose request was sent earlier may be outdated."""
        self._removed_at = now

    def forget(self, group_id: str) -> None:
        """Forgets the state and the offsets of a group. `former_groups` keeps what the copy knew of a classic group."""
        if (group := self.groups.pop(group_id, None)) is not None:
            if group.kind is GroupKind.CLASSIC:
                self.former_groups.put(group_id, group.former())
            group.rebalances.expired_clients.clear()
            self.metadata.forget(group)
            self.name_bytes -= name_bytes(group_id)
            self.unseen_history.vanished(group_id)
        self.partitions.remove_group(group_id)
        if group_id in self.listed:
            self.changed.add(group_id)
        else:
            self.changed.discard(group_id)
        self.distrusted.discard(group_id)
        if (offsets := self.offsets.pop(group_id, None)) is not None:
            self._count_offsets(offsets, (0, 0))
            if offsets.committed.wire_offsets:  # The log may still lack these commits.
                self.exclusivity.note_unknown_effect(group_id, offsets.changed_at)
            for producer_id in offsets.pending:
                self._leave_transaction(producer_id, group_id)

    def _leave_transaction(self, producer_id: int, group_id: str) -> None:
        groups = self.transactions[producer_id]
        groups.discard(group_id)
        if not groups:
            del self.transactions[producer_id]

    def forget_state(self, group_id: str) -> None:
        """Forgets the state and the offsets of a group, but keeps its joins in flight and its lost joins."""
        group = self.groups.get(group_id)
        self.forget(group_id)
        if (
            group is not None
            and group.pending_joins.has_any
            and (recreated := self.create(group_id, FallbackReason.COLD)) is not None
        ):
            recreated.inherit_joins(group)
            self.metadata.recount(recreated)

    def note_unread_write(self, group_id: str, until: float) -> None:
        """Notes an undecodable write to the group, which the broker executes before the time `until`."""
        group, offsets = self.group(group_id), self.group_offsets(group_id)
        partition = self.partitions.partition_of(group_id)
        if group is not None:
            group.note_undecoded_write()
            group.completeness.wait(until)
            self.changed.add(group_id)
        if offsets is not None:
            offsets.note_undecoded_write(until)
            self.touch_offsets(offsets)
        if partition is not None and (group is not None or offsets is not None):
            partition.ahead_of_log.add(group_id)

    def fully_observed(self, group_id: str) -> bool:
        """Whether the copy would observe a group from its creation on, if a client created the group now."""
        return (
            self.exclusive
            and self.unseen_history.observed_whole(group_id)
            and self.unread_writes.until_of(group_id) < FOREVER
            and not self.partitions.may_lack_records(group_id)
        )

    def unseen_reason(self, group_id: str, sent_at: float) -> FallbackReason | None:
        """Returns why a group that is new to the copy may have existed before; None if the group is certainly new."""
        if not self.fully_observed(group_id):
            return FallbackReason.COLD
        return FallbackReason.IN_DOUBT if sent_at < self._removed_at else None

    def changes_of(self, group_id: str) -> tuple[int, int]:
        """Returns the numbers of the last changes of a group and of its offsets. A removal is also a change."""
        group, offsets = self.group(group_id), self.group_offsets(group_id)
        return (group.changes if group else self._removals, offsets.changes if offsets else self._removals)

    def settled_at(self, group_id: str) -> float:
        """Returns until when lost and unread requests may still change a group that is not kept."""
        return max(self.unseen_history.settled_at(group_id), self.unread_writes.until_of(group_id))

    # Offsets.

    def get_or_create_offsets(self, group: Group, sent_at: float) -> GroupOffsets:
        """Returns the offsets of a group, which may be new."""
        group_id = group.group_id
        offsets = self.group_offsets(group_id)
        if offsets is None:
            if (partition := self.partitions.partition_of(group_id)) is not None:
                # If a client deleted the group, the log may still contain the deleted offsets.
                logged = None if group_id in partition.deleted else partition.log.groups.get(group_id.encode())
                offsets = self.attach_log_to_offsets(partition, group_id, logged)
                if sent_at < self._removed_at or (logged is not None and self._removed_at > partition.fresh_at):
                    offsets.doubt(None, self._removed_at)
                    partition.ahead_of_log.add(group_id)
                return offsets
            unseen_reason = self.unseen_reason(group_id, sent_at) if self.keeps_empty_groups else FallbackReason.COLD
            offsets = self.offsets[group_id] = GroupOffsets(
                unseen_reason, self.unseen_history.settled_at(group_id), self.unread_writes.epoch
            )
        return offsets

    def attach_log_to_offsets(self, partition: Partition, group_id: str, logged: LoggedGroup | None) -> GroupOffsets:
        """Returns the offsets of a group whose log is read, connected to the log's records of the group."""
        offsets = self.group_offsets(group_id)
        if offsets is None:
            settled_at = self.settled_at(group_id)
            doubt = FallbackReason.IN_DOUBT if settled_at > partition.fresh_at else None
            offsets = self.offsets[group_id] = GroupOffsets(
                doubt, self.unseen_history.settled_at(group_id), self.unread_writes.epoch
            )
            if doubt:
                partition.ahead_of_log.add(group_id)
        offsets.attach_log(logged)
        self.touch_offsets(offsets)
        self._mark_for_listing(group_id)
        return offsets

    def begin_transaction(self, producer_id: int, group_id: str) -> None:
        """Notes that a group has offsets that are pending in the transaction of a producer."""
        self.transactions.setdefault(producer_id, set()).add(group_id)

    def end_transaction(self, producer_id: int) -> Collection[str]:
        """Forgets a transaction. Returns the groups with offsets that were pending in it."""
        return self.transactions.pop(producer_id, ())

    def update_offset_counts(self, group_id: str, now: float) -> None:
        """Counts a change of a group's offsets, and updates how many offsets are kept."""
        offsets = self.offsets[group_id]
        self._count_offsets(offsets, offsets.size)
        offsets.changed_at = now
        self.touch_offsets(offsets)
        self._mark_for_listing(group_id)
        if (partition := self.partitions.partition_of(group_id)) is not None:
            partition.ahead_of_log.add(group_id)

    def _count_offsets(self, offsets: GroupOffsets, size: tuple[int, int]) -> None:
        self._offsets_count += size[0] - offsets.counted[0]
        self._metadata_chars += size[1] - offsets.counted[1]
        offsets.counted = size

    def _mark_for_listing(self, group_id: str) -> None:
        """Marks the list entry of a group as outdated after its offsets have changed.

        Offsets matter only for the entry of an Empty group.
        """
        group = self.group(group_id)
        if group is not None and group.state is EMPTY:
            self.changed.add(group_id)

    def touch_offsets(self, offsets: GroupOffsets) -> None:
        """Counts a change of offsets."""
        offsets.changes = next(self.ticks)

    def within_bound(
        self,
        offsets: GroupOffsets,
        new: Mapping[TopicPartition, CommittedOffset],
        now: float,
        producer_id: int | None = None,
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Returns the new offsets that may be kept.

        If there are too many offsets, only new offsets that replace kept ones remain. If the metadata is too large, no
        new offset remains. `producer_id` is the producer of the transaction; None if the offsets are committed.
        """
        kept = offsets.committed.wire_offsets if producer_id is None else offsets.pending.get(producer_id, {})
        at_most = self._metadata_chars + MAX_STRING_BYTES * len(new)
        bulky = (
            at_most > self.max_metadata_chars
            and self._metadata_chars + metadata_chars(new.values()) > self.max_metadata_chars
        )
        if not bulky and (self._offsets_count + len(new) <= self.max_offsets or new.keys() <= kept.keys()):
            return new
        self.overflowed += 1
        offsets.leave_to_broker(FallbackReason.COLD, now)  # The log, once read up to `now`, has these offsets.
        return {} if bulky else {partition: offset for partition, offset in new.items() if partition in kept}

    def may_be_removed_soon(self, group: Group) -> bool:
        """Whether the broker may remove the group within minutes. Brokers remove Empty groups without offsets."""
        if group.state is not EMPTY:
            return False
        offsets = self.group_offsets(group.group_id)
        return offsets is None or not offsets.has_certain_offsets
