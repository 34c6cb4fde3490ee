"""All groups of one broker: the cache, what is lacking to answer for them, and the views.

Owns: `group_metadata_cache`, the one place where group state lives, and its bounds. Must not know:
where events come from, who asks, sockets or clocks. Vocabulary of Kafka's GroupMetadataManager.

The log (`__consumer_offsets`) will be a second source of events beside the wire; it needs no more
than `apply`. Until then, what only time does at the broker is not followed: offsets that expire.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any

from group_sidecar.coordinator.events import (
    LOST_SECONDS,
    NEVER,
    AnyEvent,
    CoordinatorMoved,
    Event,
    GroupDeleted,
    GroupDescribed,
    GroupsListed,
    LogEndsSeen,
    OffsetsDeleted,
    OffsetsDoubted,
    OffsetsLearned,
    OffsetsPending,
    OffsetsStored,
    ReplyLost,
    TransactionEnded,
)
from group_sidecar.coordinator.facts import Fact, OffsetsCommitted
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.membership import HANDLERS, QUIET, expire
from group_sidecar.coordinator.offsets import GroupOffsets
from group_sidecar.coordinator.pasts import UnseenPasts
from group_sidecar.coordinator.views import (
    CommittedOffset,
    GroupKind,
    GroupState,
    GroupView,
    Lacking,
    Snapshot,
    TopicPartition,
)

DISTURBED_SECONDS = 10.0
"""For so long after a topic's deletion a broker may still tell the offsets that it is about to forget."""


class GroupMetadataManager:
    """The copy of one broker's group coordinator.

    Args:
        exclusive: the operator's word that no client reaches the broker but through this sidecar. Without it no
            group is ever complete, since others may change it unseen.
        most_groups, most_offsets: bounds. What comes beyond them is not kept, and counted in `overflowed`.

    Times are seconds since the epoch, on a clock that does not jump.
    """

    def __init__(self, *, exclusive: bool, most_groups: int = 100_000, most_offsets: int = 5_000_000) -> None:
        self.group_metadata_cache: dict[str, Group] = {}
        self.overflowed = 0
        self._offsets: dict[str, GroupOffsets] = {}
        self._offsets_count = 0
        self._transactions: dict[int, set[str]] = {}
        self._log_ends: dict[TopicPartition, tuple[int, float]] = {}
        self._exclusive = exclusive
        self._most_groups = most_groups
        self._most_offsets = most_offsets
        self._ticks = count(1)
        self._pasts = UnseenPasts(most_groups)
        self._removals, self._removed_at = 0, NEVER
        self._disturbed_until: float | None = NEVER
        self._rules: dict[type[Any], Callable[[Any, float], list[Fact]]] = {
            **dict.fromkeys(HANDLERS, self._group_changed),
            ReplyLost: self._reply_lost,
            GroupDescribed: self._group_described,
            GroupsListed: self._groups_listed,
            GroupDeleted: self._group_deleted,
            CoordinatorMoved: self._coordinator_moved,
            OffsetsStored: self._offsets_stored,
            OffsetsPending: self._offsets_pending,
            OffsetsDeleted: self._offsets_deleted,
            OffsetsDoubted: self._offsets_doubted,
            OffsetsLearned: self._offsets_learned,
            TransactionEnded: self._transaction_ended,
            LogEndsSeen: self._log_ends_seen,
        }

    # What happens.

    def inherit(self, groups: Iterable[str]) -> None:
        """Tells which groups the broker has: all others are known from their birth on."""
        self._pasts.inherit(groups)

    def apply(self, events: Iterable[AnyEvent], now: float) -> list[Fact]:
        """Applies events in order. Returns the facts that came of them."""
        facts: list[Fact] = []
        for event in events:
            facts += self._rules[type(event)](event, now)
        return facts

    def refresh(self, group_id: str, now: float) -> list[Fact]:
        """As `sweep`, of one group."""
        group = self.group_metadata_cache.get(group_id)
        return expire(group, now) if group else []

    def sweep(self, now: float) -> list[Fact]:
        """Sets aside members whose sessions must have run out; to be called every few seconds."""
        return [fact for group in self.group_metadata_cache.values() for fact in expire(group, now)]

    def obscure(self, group_id: str | None) -> None:
        """Something passed by that could not be decoded, of this group, or of who knows which."""
        if group_id is None:
            self._pasts.others_seen = False
        else:
            self._pasts.note(group_id, NEVER)
        for each in self.group_metadata_cache if group_id is None else [group_id]:
            if (group := self.group_metadata_cache.get(each)) is not None:
                group.unsure = Lacking.UNDECODABLE
                group.changes = next(self._ticks)
            if (offsets := self._offsets.get(each)) is not None:
                offsets.unsure = Lacking.UNDECODABLE
                offsets.changes = next(self._ticks)

    def disturb_offsets(self) -> None:
        """Something passed by that will change any group's offsets soon, such as the deletion of a topic."""
        self._disturbed_until = None
        for offsets in self._offsets.values():
            offsets.unsure = Lacking.STALE
            offsets.changes = next(self._ticks)

    # Groups.

    def _group_changed(self, event: Event, now: float) -> list[Fact]:
        group = self._get_or_maybe_create(event)
        if group is None:
            return []
        kind, existed = type(event), group.state is not GroupState.DEAD
        facts = HANDLERS[kind](group, event, now)
        if kind not in QUIET:
            group.touch(now)
        if group.state is GroupState.DEAD and existed:
            self._remove(group.group_id, now)
        elif group.state is GroupState.DEAD and not group.joins:
            self._forget(group.group_id)
            if group.settled_at != NEVER:
                self._pasts.note(group.group_id, group.settled_at)
        return facts

    def _get_or_maybe_create(self, event: Event) -> Group | None:
        group = self.group_metadata_cache.get(event.group_id)
        if group is None:
            if len(self.group_metadata_cache) >= self._most_groups:
                self.overflowed += 1
                self._pasts.others_seen = False
                return None
            group = Group(event.group_id, self._past_of(event), self._ticks)
            group.settled_at = self._pasts.settled_at(event.group_id)
            self.group_metadata_cache[event.group_id] = group
        return group

    def _past_of(self, event: Event) -> Lacking | None:
        """Why a group, or its offsets, that an event is the first to tell of may have been there before."""
        if not self._known_from_birth(event.group_id):
            return Lacking.COLD
        return Lacking.IN_DOUBT if event.sent_at < self._removed_at else None

    def _reply_lost(self, event: ReplyLost, now: float) -> list[Fact]:
        if event.group_id in self.group_metadata_cache:
            return self._group_changed(event, now)
        if event.creates:
            self._pasts.note(event.group_id, now + LOST_SECONDS)
        return []

    def _group_described(self, event: GroupDescribed, now: float) -> list[Fact]:
        return self._group_changed(event, now) if event.as_of == self.changes_of(event.group_id)[0] else []

    def _groups_listed(self, event: GroupsListed, now: float) -> list[Fact]:
        """What the broker does not list is not there: it has no past, unless something lost may yet make it."""
        if event.as_of == self._pasts.notings:
            self._pasts.keep(event.groups | self.group_metadata_cache.keys(), event.sent_at)
        return []

    def _group_deleted(self, event: GroupDeleted, now: float) -> list[Fact]:
        group, offsets = self.group_metadata_cache.get(event.group_id), self._offsets.get(event.group_id)
        changed_at = max((each.changed_at for each in (group, offsets) if each), default=NEVER)
        if group and (group.joins or changed_at > event.sent_at):  # It may have been made anew since.
            group.doubt(now)
            self._pasts.note(event.group_id, now)
            if offsets:
                offsets.doubt(None, now)
                self._account(offsets, now)
            return []
        self._remove(event.group_id, now)
        settled_at = max((each.settled_at for each in (group, offsets) if each), default=NEVER)
        if event.sent_at < settled_at:
            self._pasts.note(event.group_id, settled_at)  # What was lost may make it anew.
        elif event.sent_at >= self._pasts.settled_at(event.group_id):
            self._pasts.end(event.group_id)
        return []

    def _coordinator_moved(self, event: CoordinatorMoved, now: float) -> list[Fact]:
        self._remove(event.group_id, now)
        self._pasts.note(event.group_id, now, elsewhere=True)
        return []

    def _remove(self, group_id: str, now: float) -> None:
        self._forget(group_id)
        self._note_removal(now)

    def _note_removal(self, now: float) -> None:
        """Something went of which nothing is kept. What is new after it, but was sent before, may be gone too."""
        self._removals, self._removed_at = next(self._ticks), now

    def _forget(self, group_id: str) -> None:
        self.group_metadata_cache.pop(group_id, None)
        if (offsets := self._offsets.pop(group_id, None)) is not None:
            self._offsets_count -= offsets.counted
            for producer_id in offsets.pending:
                self._transactions[producer_id].discard(group_id)

    # Offsets.

    def _offsets_of(self, event: Event, now: float) -> GroupOffsets | None:
        """The offsets an event is about, with its group: a commit makes an Empty group where there was none."""
        group = self._get_or_maybe_create(event)
        if group is None:
            return None
        if group.state is GroupState.DEAD:
            group.become(GroupState.EMPTY)
            group.touch(now)
        elif self._fades(group) and group.protocol_type:
            group.doubt(now)  # If it was cleared away before, the one that is there now never had a protocol.
        offsets = self._offsets.get(event.group_id)
        if offsets is None:
            settled_at = self._pasts.settled_at(event.group_id)
            offsets = self._offsets[event.group_id] = GroupOffsets(self._past_of(event), settled_at)
        return offsets

    def _account(self, offsets: GroupOffsets, now: float) -> None:
        """Counts a change of offsets, and how many are kept."""
        self._offsets_count += offsets.size - offsets.counted
        offsets.counted = offsets.size
        offsets.changes, offsets.changed_at = next(self._ticks), now

    def _within_bound(
        self, offsets: GroupOffsets, new: Mapping[TopicPartition, CommittedOffset]
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Those that may be kept: all, or at the bound those that take the place of others."""
        if self._offsets_count + len(new) <= self._most_offsets or new.keys() <= offsets.committed.keys():
            return new
        self.overflowed += 1
        offsets.unfollowed = offsets.unfollowed or Lacking.COLD
        return {partition: offset for partition, offset in new.items() if partition in offsets.committed}

    def _offsets_stored(self, event: OffsetsStored, now: float) -> list[Fact]:
        accepted = len(event.offsets) + event.unnamed
        if accepted and (offsets := self._offsets_of(event, now)) is not None:
            kept = self._within_bound(offsets, event.offsets)
            offsets.store(kept, event.sent_at)
            self._account(offsets, now)
            if event.unnamed:
                offsets.unsure = offsets.unsure or Lacking.COLD
            if not event.lasting:
                offsets.unfollowed = offsets.unfollowed or Lacking.STALE
        return [OffsetsCommitted(group_id=event.group_id, at=now, accepted=accepted, refused=event.refused)]

    def _offsets_pending(self, event: OffsetsPending, now: float) -> list[Fact]:
        if (offsets := self._offsets_of(event, now)) is not None:
            kept = self._within_bound(offsets, event.offsets)
            offsets.hold(event.producer_id, kept)
            self._account(offsets, now)
            if kept:
                self._transactions.setdefault(event.producer_id, set()).add(event.group_id)
        return []

    def _transaction_ended(self, event: TransactionEnded, now: float) -> list[Fact]:
        for group_id in self._transactions.pop(event.producer_id, ()):
            offsets = self._offsets[group_id]
            offsets.end(event.producer_id, committed=event.committed)
            self._account(offsets, now)
        return []

    def _offsets_deleted(self, event: OffsetsDeleted, now: float) -> list[Fact]:
        if (offsets := self._offsets.get(event.group_id)) is None:
            self._note_removal(now)
        else:
            offsets.delete(event.partitions, event.sent_at, now)
            self._account(offsets, now)
        return []

    def _offsets_doubted(self, event: OffsetsDoubted, now: float) -> list[Fact]:
        if not self._exists(event.group_id):
            if event.creates:
                self._pasts.note(event.group_id, now + LOST_SECONDS)
        elif (event.creates or event.group_id in self._offsets) and (offsets := self._offsets_of(event, now)):
            offsets.doubt(event.partitions, now + LOST_SECONDS)
            self._account(offsets, now)
        return []

    def _offsets_learned(self, event: OffsetsLearned, now: float) -> list[Fact]:
        """Of a group that is not known to exist nothing is learned."""
        if not self._exists(event.group_id) or event.as_of != self.changes_of(event.group_id)[1]:
            return []
        if self._disturbed_until is None:
            self._disturbed_until = now + DISTURBED_SECONDS
        if now < self._disturbed_until:
            return []
        if (offsets := self._offsets_of(event, now)) is not None:
            kept = self._within_bound(offsets, event.offsets)
            offsets.learn(kept, event.absent, whole=event.whole, sent_at=event.sent_at)
            self._account(offsets, now)
        return []

    def _log_ends_seen(self, event: LogEndsSeen, now: float) -> list[Fact]:
        for partition, end in event.ends.items():
            if partition in self._log_ends or len(self._log_ends) < self._most_offsets:
                self._log_ends[partition] = (end, now)
        return []

    # What is known.

    @property
    def notings(self) -> int:
        """What `as_of` of a listing compares with."""
        return self._pasts.notings

    def changes_of(self, group_id: str) -> tuple[int, int]:
        """What `as_of` of learnt events compares with: it grows when a group or its offsets change, or come and go."""
        group, offsets = self.group_metadata_cache.get(group_id), self._offsets.get(group_id)
        return (group.changes if group else self._removals, offsets.changes if offsets else self._removals)

    def view(self, group_id: str, now: float) -> GroupView:
        """A group at this moment; a Dead one where none is known."""
        group = self.group_metadata_cache.get(group_id)
        if group is None:
            lacking = None if self._known_from_birth(group_id) else Lacking.COLD
            return GroupView(group_id=group_id, roster_known=lacking is None, lacking=lacking, offsets_lacking=lacking)
        return self._view(group, now)

    def views(self, now: float) -> Iterator[GroupView]:
        """All groups that exist, at this moment."""
        groups = self.group_metadata_cache.values()
        return (self._view(group, now) for group in groups if group.state is not GroupState.DEAD)

    def listing_lacking(self, now: float) -> Lacking | None:
        """Why ListGroups may not be answered from this copy; None where it may."""
        if not (self._exclusive and self._pasts.within(self.group_metadata_cache.keys())):
            return Lacking.COLD
        lacking = (self._lacking(group, now) for group in self.group_metadata_cache.values())
        return next((reason for reason in lacking if reason is not None), None)

    def snapshot(self, now: float) -> Snapshot:
        """All that is known at this moment."""
        return Snapshot(groups=tuple(self.views(now)), log_ends=dict(self._log_ends))

    def committed_partitions(self) -> set[TopicPartition]:
        """Partitions of which any group has committed an offset."""
        return {partition for offsets in self._offsets.values() for partition in offsets.committed}

    def _exists(self, group_id: str) -> bool:
        group = self.group_metadata_cache.get(group_id)
        return group is not None and group.state is not GroupState.DEAD

    def _known_from_birth(self, group_id: str) -> bool:
        return self._exclusive and self._pasts.seen_whole(group_id)

    def _view(self, group: Group, now: float) -> GroupView:
        offsets = self._offsets.get(group.group_id)
        return group.view(
            lacking=self._lacking(group, now),
            offsets_lacking=self._offsets_lacking(group, offsets),
            offsets=MappingProxyType(offsets.committed if offsets else {}),
        )

    def _lacking(self, group: Group, now: float) -> Lacking | None:
        if not self._exclusive:
            return Lacking.COLD
        return group.lacking(now) or (Lacking.IN_DOUBT if self._fades(group) else None)

    def _fades(self, group: Group) -> bool:
        """Whether the broker may clear it away within minutes, as it does Empty groups without offsets."""
        offsets = self._offsets.get(group.group_id)
        return group.state is GroupState.EMPTY and not (offsets and offsets.some)

    def _offsets_lacking(self, group: Group, offsets: GroupOffsets | None) -> Lacking | None:
        if not self._exclusive:
            return Lacking.COLD
        if group.kind is not GroupKind.CLASSIC:
            return Lacking.VERSION
        if offsets is not None:
            return offsets.lacking
        return None if self._known_from_birth(group.group_id) else Lacking.COLD
