"""All groups of one broker: the cache, what is lacking to answer for them, and the views.

Owns: `group_metadata_cache`, the one place where group state lives, and its bounds. Must not know:
where events come from, who asks, sockets or clocks. Vocabulary of Kafka's GroupMetadataManager.

The log (`__consumer_offsets`) will be a second source of events beside the wire; it needs no more
than `apply`.
"""

from collections.abc import Callable, Iterable, Iterator
from types import MappingProxyType
from typing import Any

from group_sidecar.coordinator.events import (
    AnyEvent,
    CoordinatorMoved,
    Event,
    GroupDeleted,
    JoinAbandoned,
    LogEndsSeen,
    MemberSeen,
    OffsetsDeleted,
    OffsetsLearned,
    OffsetsPending,
    OffsetsStored,
    TransactionEnded,
)
from group_sidecar.coordinator.facts import Fact, OffsetsCommitted
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.membership import HANDLERS, expire
from group_sidecar.coordinator.offsets import GroupOffsets
from group_sidecar.coordinator.views import (
    GroupKind,
    GroupState,
    GroupView,
    Lacking,
    Snapshot,
    TopicPartition,
)

SETTLED = frozenset({GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD})
"""States of which DescribeGroups tells the same whichever coordinator answers, and which last."""


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
        self._log_ends: dict[TopicPartition, tuple[int, float]] = {}
        self._exclusive = exclusive
        self._most_groups = most_groups
        self._most_offsets = most_offsets
        self._inherited: set[str] | None = None
        self._offset_rules: dict[type[Event], Callable[[Any, float], list[Fact]]] = {
            OffsetsStored: self._offsets_stored,
            OffsetsPending: self._offsets_pending,
            OffsetsDeleted: self._offsets_deleted,
            OffsetsLearned: self._offsets_learned,
            GroupDeleted: self._group_deleted,
            CoordinatorMoved: self._coordinator_moved,
        }

    # What happens.

    def inherit(self, groups: Iterable[str]) -> None:
        """Tells which groups the broker had when this copy began: all others are known from their birth on."""
        self._inherited = set(groups)

    def apply(self, events: Iterable[AnyEvent], now: float) -> list[Fact]:
        """Applies events in order. Returns the facts that came of them."""
        facts: list[Fact] = []
        for event in events:
            if isinstance(event, LogEndsSeen):
                self._see_log_ends(event, now)
            elif isinstance(event, TransactionEnded):
                for offsets in self._offsets.values():
                    offsets.end(event.producer_id, committed=event.committed)
            elif (rule := self._offset_rules.get(type(event))) is not None:
                facts += rule(event, now)
            else:
                facts += self._apply_to_group(event, now)
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
        for group in [self.group_metadata_cache.get(group_id)] if group_id else self.group_metadata_cache.values():
            if group is not None:
                group.obscured = Lacking.UNDECODABLE
                group.roster_known = False
                group.changes += 1

    def disturb_offsets(self) -> None:
        """Something passed by that may change any group's offsets, such as the deletion of a topic."""
        for offsets in self._offsets.values():
            offsets.whole = False
            offsets.changes += 1

    def _apply_to_group(self, event: Event, now: float) -> list[Fact]:
        group = self._get_or_maybe_create(event.group_id, create=not isinstance(event, JoinAbandoned))
        if group is None:
            return []
        facts = HANDLERS[type(event)](group, event, now)
        if not isinstance(event, MemberSeen):
            group.changes += 1
        if group.state is GroupState.DEAD and not group.joins:
            self._remove(group.group_id)
        return facts

    def _get_or_maybe_create(self, group_id: str, *, create: bool) -> Group | None:
        group = self.group_metadata_cache.get(group_id)
        if group is None and create:
            if len(self.group_metadata_cache) >= self._most_groups:
                self.overflowed += 1
                return None
            group = Group(group_id, roster_known=self._born_here(group_id))
            self.group_metadata_cache[group_id] = group
        return group

    def _remove(self, group_id: str) -> None:
        self.group_metadata_cache.pop(group_id, None)
        offsets = self._offsets.pop(group_id, None)
        self._offsets_count -= len(offsets.committed) if offsets else 0

    def _offsets_of(self, event: Event) -> GroupOffsets | None:
        """The offsets an event is about, with its group: a commit makes an Empty group where there was none."""
        group = self._get_or_maybe_create(event.group_id, create=True)
        if group is None:
            return None
        if group.state is GroupState.DEAD:
            group.become(GroupState.EMPTY)
            group.changes += 1
        offsets = self._offsets.get(event.group_id)
        if offsets is None:
            offsets = self._offsets[event.group_id] = GroupOffsets(whole=self._born_here(event.group_id))
        if self._offsets_count >= self._most_offsets:
            self.overflowed += 1
            offsets.whole = False
            return None
        return offsets

    def _offsets_stored(self, event: OffsetsStored, now: float) -> list[Fact]:
        accepted = len(event.offsets) + event.unnamed
        if accepted and (offsets := self._offsets_of(event)) is not None:
            self._counted(offsets, lambda: offsets.store(event.offsets))
            offsets.whole = offsets.whole and not event.unnamed
        return [OffsetsCommitted(group_id=event.group_id, at=now, accepted=accepted, refused=event.refused)]

    def _offsets_pending(self, event: OffsetsPending, now: float) -> list[Fact]:
        if (offsets := self._offsets_of(event)) is not None:
            offsets.hold(event.producer_id, event.offsets)
        return []

    def _offsets_deleted(self, event: OffsetsDeleted, now: float) -> list[Fact]:
        if (offsets := self._offsets.get(event.group_id)) is not None:
            self._counted(offsets, lambda: offsets.delete(event.partitions))
        return []

    def _offsets_learned(self, event: OffsetsLearned, now: float) -> list[Fact]:
        known = self._offsets.get(event.group_id)
        if event.as_of != (known.changes if known else 0) or not (known or event.offsets):
            return []
        if (offsets := self._offsets_of(event)) is not None:
            self._counted(offsets, lambda: offsets.learn(event.offsets, event.absent, whole=event.whole))
        return []

    def _counted(self, offsets: GroupOffsets, change: Callable[[], None]) -> None:
        before = len(offsets.committed)
        change()
        self._offsets_count += len(offsets.committed) - before

    def _group_deleted(self, event: GroupDeleted, now: float) -> list[Fact]:
        self._remove(event.group_id)
        if self._inherited is not None:
            self._inherited.discard(event.group_id)
        return []

    def _coordinator_moved(self, event: CoordinatorMoved, now: float) -> list[Fact]:
        self._remove(event.group_id)
        if self._inherited is not None:
            self._inherited.add(event.group_id)  # Should it come back, it has a past elsewhere.
        return []

    def _see_log_ends(self, event: LogEndsSeen, now: float) -> None:
        for partition, end in event.ends.items():
            if partition in self._log_ends or len(self._log_ends) < self._most_offsets:
                self._log_ends[partition] = (end, now)

    # What is known.

    def changes_of(self, group_id: str) -> tuple[int, int]:
        """How often a group and its offsets have changed: what `as_of` of learnt events compares with."""
        group, offsets = self.group_metadata_cache.get(group_id), self._offsets.get(group_id)
        return (group.changes if group else 0, offsets.changes if offsets else 0)

    def view(self, group_id: str, now: float) -> GroupView:
        """A group at this moment; a Dead one where none is known."""
        group = self.group_metadata_cache.get(group_id)
        if group is None:
            lacking = None if self._born_here(group_id) else Lacking.COLD
            return GroupView(group_id=group_id, roster_known=lacking is None, lacking=lacking, offsets_lacking=lacking)
        return self._view(group, now)

    def views(self, now: float) -> Iterator[GroupView]:
        """All groups that exist, at this moment."""
        groups = self.group_metadata_cache.values()
        return (self._view(group, now) for group in groups if group.state is not GroupState.DEAD)

    def listing_lacking(self, now: float) -> Lacking | None:
        """Why ListGroups may not be answered from this copy; None where it may."""
        if not self._exclusive or self._inherited is None or self._inherited or self.overflowed:
            return Lacking.COLD
        lacking = (self._lacking(group, now) for group in self.group_metadata_cache.values())
        return next((reason for reason in lacking if reason is not None), None)

    def snapshot(self, now: float) -> Snapshot:
        """All that is known at this moment."""
        return Snapshot(groups=tuple(self.views(now)), log_ends=dict(self._log_ends))

    def committed_partitions(self) -> set[TopicPartition]:
        """Partitions of which any group has committed an offset."""
        return {partition for offsets in self._offsets.values() for partition in offsets.committed}

    def _born_here(self, group_id: str) -> bool:
        return self._exclusive and self._inherited is not None and group_id not in self._inherited

    def _view(self, group: Group, now: float) -> GroupView:
        offsets = self._offsets.get(group.group_id)
        return group.view(
            lacking=self._lacking(group, now),
            offsets_lacking=self._offsets_lacking(group, offsets),
            offsets=MappingProxyType(offsets.committed if offsets else {}),
        )

    def _lacking(self, group: Group, now: float) -> Lacking | None:
        if not self._exclusive or self._inherited is None:
            return Lacking.COLD
        if group.obscured is not None:
            return group.obscured
        if group.kind is not GroupKind.CLASSIC:
            return Lacking.VERSION
        late = group.overdue or any(member.overdue(now) for member in group.members.values())
        if group.joins or late or group.state not in SETTLED:
            return Lacking.IN_DOUBT
        return None if group.roster_known else Lacking.COLD

    def _offsets_lacking(self, group: Group, offsets: GroupOffsets | None) -> Lacking | None:
        if not self._exclusive or self._inherited is None:
            return Lacking.COLD
        if group.obscured is not None:
            return group.obscured
        if group.kind is not GroupKind.CLASSIC:
            return Lacking.VERSION
        if offsets is None:
            return None if self._born_here(group.group_id) else Lacking.COLD
        if offsets.transactional:
            return Lacking.UNSTABLE
        return None if offsets.whole else Lacking.COLD
