"""Where all groups of one broker are kept.

Owns: `GroupCache`: the groups and their offsets, their bounds, the numbers of their changes, and what is known of
groups that are not there. Must not know: events, the log, who asks.
"""

from collections.abc import Container, Iterator, Mapping
from itertools import count

from group_sidecar.codecs.primitives import MAX_STRING_BYTES
from group_sidecar.coordinator.bounded import TABLE_BYTES, Table, name_bytes
from group_sidecar.coordinator.committed import text_of
from group_sidecar.coordinator.events import FOREVER, NEVER
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.log import LoggedGroup
from group_sidecar.coordinator.member_metadata import MemberMetadata
from group_sidecar.coordinator.offsets import GroupOffsets
from group_sidecar.coordinator.partitions import Partition, PartitionTable
from group_sidecar.coordinator.pasts import UnseenPasts
from group_sidecar.coordinator.states import EMPTY
from group_sidecar.coordinator.unread import Unread
from group_sidecar.coordinator.views import CommittedOffset, GroupKind, GroupState, Lacking, TopicPartition

OFFSET_BYTES = 250
"""Estimated bytes of a committed offset that was seen on the wire, with a short metadata text."""
TRANSACTION_BYTES = 750
"""Estimated bytes of an open transaction beside its offsets: two dictionaries and a set, each with one entry."""
ROOMY_METADATA = 50
"""Characters that the metadata of an offset may have on average before there is too much of it. Kafka lets one have
4,096 (`offset.metadata.max.bytes`)."""
ROOMY_NAME = 1_024
"""Bytes that a group's name may take on average before names, not groups, are too many."""


class GroupCache:
    """All groups.

    Args:
        exclusive: the operator's word that no client reaches the broker but through this sidecar.
        true_hosts: whether members are told where they are; else, where the broker says they are.
        most_groups, most_offsets: bounds. What comes beyond them is not kept, and counted in `overflowed`.

    Attributes:
        most_text: characters of the metadata of offsets, a bound too.
        metadata: bytes that the members of all groups have.
        groups, offsets: by group id.
        transactions: by producer id the groups that have offsets pending in its transaction, where the log is not read.
        partitions: which groups the log tells of.
        pasts: groups that may have a past that was not seen.
        distrusted: groups of which the broker was found to say something else.
        unread: writes that passed by without being understood.
        ticks: numbers the changes of all groups.
        changed: groups that are to be looked at again before they are listed.
        listed: groups that the list knows of; nobody else's removal needs a look.
        keeps_empty_groups: whether the broker does; before 0.10.1 a group went with its last member. Offsets stay, but
            no such broker lists or describes a group that has nothing else.
        disturbed_until: until when the broker may still tell offsets that it is about to forget.

    A group is looked up by `group`, and its offsets by `group_offsets`: there they learn what has passed by unread.
    """

    def __init__(self, *, exclusive: bool, true_hosts: bool, most_groups: int, most_offsets: int) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        self.transactions: dict[int, set[str]] = {}
        self.partitions = PartitionTable()
        self.pasts = UnseenPasts(most_groups, self.groups)
        self.unread = Unread()
        self.distrusted: set[str] = set()
        self.ticks = count(1)
        self.changed: set[str] = set()
        self.listed: Container[str] = ()
        self.exclusive, self.true_hosts = exclusive, true_hosts
        self.disturbed_until = NEVER
        self.overflowed = 0
        self.keeps_empty_groups = True
        self.most_offsets = most_offsets
        self._most_groups = most_groups
        self._most_bytes = max(TABLE_BYTES, most_groups * ROOMY_NAME)
        self.name_bytes = 0
        self._offsets_count = self._offsets_text = 0
        self.most_text = max(TABLE_BYTES, most_offsets * ROOMY_METADATA)
        self.metadata = MemberMetadata(most_groups)
        self._removals, self._removed_at = 0, NEVER

    @property
    def tables(self) -> Iterator[Table]:
        """How large each table here is."""
        yield Table("groups", len(self.groups), self.name_bytes)
        yield Table("offsets", self._offsets_count, self._offsets_count * OFFSET_BYTES + self._offsets_text)
        open_bytes = len(self.transactions) * TRANSACTION_BYTES
        yield Table("open_transactions", len(self.transactions), open_bytes)
        yield self.metadata.table
        yield Table("distrusted_groups", len(self.distrusted), sum(map(name_bytes, self.distrusted)))
        yield from self.pasts.tables

    # Groups.

    def group(self, group_id: str) -> Group | None:
        """A group as it is known now; None where it is not kept."""
        group = self.groups.get(group_id)
        if group is not None and group.epoch != self.unread.epoch:
            self._bring_up_to_date(group)
        return group

    def _bring_up_to_date(self, group: Group) -> None:
        """Has a group learn of the unread writes since it was looked at last."""
        before, group.epoch = group.epoch, self.unread.epoch
        emptied = before < self.unread.offsets_epoch and group.state is EMPTY  # It may have been deleted.
        if not emptied and before >= self.unread.members_epoch:
            return
        if group.kind is not GroupKind.CLASSIC and (partition := self.partitions.holding(group.group_id)) is not None:
            if partition.fresh_at >= self.unread.until:
                return  # The log has been read past the unread write.
            partition.ahead.add(group.group_id)
        group.unsure = Lacking.UNDECODABLE
        group.changes = next(self.ticks)

    def group_offsets(self, group_id: str) -> GroupOffsets | None:
        """A group's offsets as they are known now; None where none are kept."""
        offsets = self.offsets.get(group_id)
        if offsets is not None and offsets.epoch != self.unread.epoch:
            before, offsets.epoch = offsets.epoch, self.unread.epoch
            if not offsets.followed and before < max(self.unread.offsets_epoch, self.unread.deletions_epoch):
                unread = before < self.unread.offsets_epoch
                offsets.unsure = Lacking.UNDECODABLE if unread else offsets.unsure or Lacking.STALE
                self.touch_offsets(offsets)
        return offsets

    def keep_empty_groups(self, keeps: bool) -> None:
        """Sets `keeps_empty_groups`."""
        if keeps is self.keeps_empty_groups:
            return  # Each client that connects repeats it.
        self.keeps_empty_groups = keeps
        for group in self.groups.values():
            group.outlasts_members = keeps

    def exists(self, group_id: str) -> bool:
        """Whether the broker has the group, as far as is known."""
        group = self.group(group_id)
        return group is not None and group.state is not GroupState.DEAD

    def get_or_maybe_create(self, group_id: str, sent_at: float) -> Group | None:
        """A group that something was told of; None beyond the bound. `sent_at`: as of an event."""
        group = self.group(group_id)
        if group is None and (group := self.create(group_id, self.past_of(group_id, sent_at))) is not None:
            group.doubted_until = self.pasts.settled_at(group_id)
        return group

    def create(self, group_id: str, unsure: Lacking | None) -> Group | None:
        """A new group; None beyond the bound."""
        if len(self.groups) >= self._most_groups or self.name_bytes + name_bytes(group_id) > self._most_bytes:
            self.overflowed += 1
            self.pasts.note(group_id, NEVER)
            self._removals = next(self.ticks)  # What is on its way may say that there is none.
            return None
        group = self.groups[group_id] = Group(group_id, unsure, self.ticks, self.changed, self.unread)
        group.exclusive, group.outlasts_members = self.exclusive, self.keeps_empty_groups
        self.name_bytes += name_bytes(group_id)
        self.pasts.appeared(group_id)
        self.changed.add(group_id)
        self.partitions.place(group_id)
        return group

    def remove(self, group_id: str, now: float) -> None:
        """The group is gone."""
        self.forget(group_id)
        self.note_removal(now)

    def note_removal(self, now: float) -> None:
        """Something went of which nothing is kept. What is new after it, but was sent before, may be gone too."""
        self._removals, self._removed_at = next(self.ticks), now

    def past_ended(self, now: float) -> None:
        """A group that might have had a past has none. An event that was sent before now may be outdated as well."""
        self._removed_at = now

    def forget(self, group_id: str) -> None:
        """Nothing is kept of the group."""
        if (group := self.groups.pop(group_id, None)) is not None:
            self.metadata.forget(group)
            self.name_bytes -= name_bytes(group_id)
            self.pasts.vanished(group_id)
        self.partitions.displace(group_id)
        if group_id in self.listed:
            self.changed.add(group_id)
        else:
            self.changed.discard(group_id)
        self.distrusted.discard(group_id)
        if (offsets := self.offsets.pop(group_id, None)) is not None:
            self._count_offsets(offsets, (0, 0))
            for producer_id in offsets.pending:
                self._leave_transaction(producer_id, group_id)

    def _leave_transaction(self, producer_id: int, group_id: str) -> None:
        groups = self.transactions[producer_id]
        groups.discard(group_id)
        if not groups:
            del self.transactions[producer_id]

    def unlearn(self, group_id: str) -> None:
        """Nothing is known of the group any more but who is at the broker's door: those replies are yet to come."""
        group = self.groups.get(group_id)
        self.forget(group_id)
        if group is not None and group.reservations.any and (anew := self.create(group_id, Lacking.COLD)) is not None:
            anew.reservations, anew.bare = group.reservations, group.bare
            self.metadata.recount(anew)

    def obscure(self, group_id: str, until: float) -> None:
        """Something of the group passed by unread, which the broker has done by then."""
        group, offsets = self.group(group_id), self.group_offsets(group_id)
        partition = self.partitions.holding(group_id)
        if group is not None:
            group.unsure, group.changes = Lacking.UNDECODABLE, next(self.ticks)
            group.doubted_until = max(group.doubted_until, until)
            self.changed.add(group_id)
        if offsets is not None:
            offsets.unsure, offsets.changes = Lacking.UNDECODABLE, next(self.ticks)
            offsets.settled_at = max(offsets.settled_at, until)
        if partition is not None and (group is not None or offsets is not None):
            partition.ahead.add(group_id)

    def known_from_birth(self, group_id: str) -> bool:
        """Whether all of a group that is not there was seen on the wire."""
        return self.exclusive and self.pasts.seen_whole(group_id) and self.unread.until_of(group_id) < FOREVER

    def past_of(self, group_id: str, sent_at: float) -> Lacking | None:
        """Why a group, or its offsets, that an event is the first to tell of may have been there before."""
        if not self.known_from_birth(group_id):
            return Lacking.COLD
        return Lacking.IN_DOUBT if sent_at < self._removed_at else None

    def changes_of(self, group_id: str) -> tuple[int, int]:
        """Grows when a group or its offsets change, or come and go."""
        group, offsets = self.group(group_id), self.group_offsets(group_id)
        return (group.changes if group else self._removals, offsets.changes if offsets else self._removals)

    def settled_at(self, group_id: str) -> float:
        """Until when what was lost or not read may still change a group of which nothing is kept."""
        return max(self.pasts.settled_at(group_id), self.unread.until_of(group_id))

    # Offsets.

    def offsets_of(self, group: Group, sent_at: float) -> GroupOffsets:
        """The offsets of a group that something was told of."""
        group_id = group.group_id
        offsets = self.group_offsets(group_id)
        if offsets is None:
            if (partition := self.partitions.holding(group_id)) is not None:
                offsets = self.follow_offsets(partition, group_id, None)  # The log has no more of it, or will tell.
                if sent_at < self._removed_at:
                    offsets.doubt(None, self._removed_at)
                    partition.ahead.add(group_id)
                return offsets
            past = self.past_of(group_id, sent_at) if self.keeps_empty_groups else Lacking.COLD
            offsets = self.offsets[group_id] = GroupOffsets(past, self.pasts.settled_at(group_id), self.unread.epoch)
        return offsets

    def follow_offsets(self, partition: Partition, group_id: str, logged: LoggedGroup | None) -> GroupOffsets:
        """The offsets of a group of which the log is read."""
        offsets = self.group_offsets(group_id)
        if offsets is None:
            settled_at = self.settled_at(group_id)
            lost = Lacking.IN_DOUBT if settled_at > partition.fresh_at else None
            offsets = self.offsets[group_id] = GroupOffsets(lost, self.pasts.settled_at(group_id), self.unread.epoch)
            if lost:
                partition.ahead.add(group_id)
        offsets.follow(logged)
        self.touch_offsets(offsets)
        self._relist(group_id)
        return offsets

    def account(self, group_id: str, now: float) -> None:
        """Counts a change of offsets, and how many are kept."""
        offsets = self.offsets[group_id]
        self._count_offsets(offsets, offsets.size)
        offsets.changed_at = now
        self.touch_offsets(offsets)
        self._relist(group_id)
        if (partition := self.partitions.holding(group_id)) is not None:
            partition.ahead.add(group_id)

    def _count_offsets(self, offsets: GroupOffsets, size: tuple[int, int]) -> None:
        self._offsets_count += size[0] - offsets.counted[0]
        self._offsets_text += size[1] - offsets.counted[1]
        offsets.counted = size

    def _relist(self, group_id: str) -> None:
        """Offsets changed: only of an Empty group can that make a difference to how it is listed."""
        group = self.group(group_id)
        if group is not None and group.state is EMPTY:
            self.changed.add(group_id)

    def touch_offsets(self, offsets: GroupOffsets) -> None:
        """Counts a change."""
        offsets.changes = next(self.ticks)

    def within_bound(
        self,
        offsets: GroupOffsets,
        new: Mapping[TopicPartition, CommittedOffset],
        now: float,
        producer_id: int | None = None,
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Those that may be kept: all, or at the bound of their number those that take the place of others, and at the
        bound of their metadata none. `producer_id`: whose transaction they are pending in; None if they are committed.
        """
        kept = offsets.committed.seen if producer_id is None else offsets.pending.get(producer_id, {})
        at_most = self._offsets_text + MAX_STRING_BYTES * len(new)
        bulky = at_most > self.most_text and self._offsets_text + text_of(new.values()) > self.most_text
        if not bulky and (self._offsets_count + len(new) <= self.most_offsets or new.keys() <= kept.keys()):
            return new
        self.overflowed += 1
        offsets.unfollowed = offsets.unfollowed or Lacking.COLD
        offsets.settled_at = max(offsets.settled_at, now)  # A log that was asked for before does not have them.
        return {} if bulky else {partition: offset for partition, offset in new.items() if partition in kept}

    def fades(self, group: Group) -> bool:
        """Whether the broker may clear it away within minutes, as it does Empty groups without offsets."""
        if group.state is not EMPTY:
            return False
        offsets = self.group_offsets(group.group_id)
        return offsets is None or not offsets.some
