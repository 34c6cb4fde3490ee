"""All groups of one broker: the cache, what is lacking to answer for them, and the views.

Owns: what each kind of event does, but for offsets (`committing`), why a copy may not be used to answer, and the views.
Must not know: where events come from, who asks, sockets or clocks. Vocabulary of Kafka's GroupMetadataManager.

The wire's events come through `apply`; what the log says is merged by `log` (`following`).
It has more than 400 lines because the views and the reasons not to use them stand beside each other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.coordinator.bounded import Table
from group_sidecar.coordinator.cache import GroupCache
from group_sidecar.coordinator.committing import Committing
from group_sidecar.coordinator.doubts import Doubts
from group_sidecar.coordinator.events import (
    FOREVER,
    LOST_SECONDS,
    NEVER,
    AnyEvent,
    ConsumerGroupDescribed,
    Event,
    GroupDescribed,
    LeaveSent,
    LogEndsSeen,
    LogStartsSeen,
    MemberSeen,
    MemberUnknown,
    ReplyLost,
)
from group_sidecar.coordinator.existence import Existence
from group_sidecar.coordinator.facts import Fact
from group_sidecar.coordinator.following import LogFollower
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.listing import MOST_AT_ONCE, Listed, Listing, listed
from group_sidecar.coordinator.log_bounds import Bounds, LogBounds
from group_sidecar.coordinator.membership import HANDLERS, QUIET, expire, member_seen
from group_sidecar.coordinator.seating import seats
from group_sidecar.coordinator.states import DEAD
from group_sidecar.coordinator.unread import Unread
from group_sidecar.coordinator.views import (
    UNSEATED,
    GroupState,
    GroupView,
    Lacking,
    Seats,
    TopicPartition,
    group_view,
)

SWEPT_AT_ONCE = 100
"""Groups, of a sweep: bytes of clients wait for no more than half a millisecond."""
DISTURBED_SECONDS = 10.0
"""For so long after a topic's deletion a broker may still tell the offsets that it is about to forget."""


class GroupMetadataManager:
    """The copy of one broker's group coordinator.

    Args:
        exclusive: the operator's word that no client reaches the broker but through this sidecar. Without it no
            group is ever complete, since others may change it unseen.
        true_hosts: whether DescribeGroups is to tell where members are; else, where the broker says they are.
        most_groups, most_offsets: bounds. What comes beyond them is not kept, and counted in `overflowed`.

    Attributes:
        log: what `__consumer_offsets` says comes in there.
        log_bounds: where the logs of topics begin and end.
        default_assignor: the broker's for groups of KIP-848 in which nobody names one; None until it has said so.
        explains: whether the broker says in words that there is no such group of KIP-848; likewise.

    Times are seconds since the epoch, on a clock that does not jump.
    """

    def __init__(
        self, *, exclusive: bool, true_hosts: bool = True, most_groups: int = 100_000, most_offsets: int = 5_000_000
    ) -> None:
        self._cache = GroupCache(
            exclusive=exclusive, true_hosts=true_hosts, most_groups=most_groups, most_offsets=most_offsets
        )
        self.log = LogFollower(self._cache)
        self._existence = Existence(self._cache, self.log)
        self._doubts = Doubts(self._cache)
        self._listing = Listing(self._listed, self._cache.changed, self._cache.groups)
        self._cache.listed = self._listing
        self.log_bounds = LogBounds(most_offsets)
        self.default_assignor: str | None = None
        self.explains: bool | None = None
        self._rules: dict[type[Any], Callable[[Any, float], list[Fact]]] = {
            **dict.fromkeys(HANDLERS, self._group_changed),
            **Committing(self._cache, self.log).rules,
            **self._existence.rules,
            MemberSeen: self._member_seen,
            MemberUnknown: self._of_known,
            LeaveSent: self._of_known,
            ReplyLost: self._reply_lost,
            GroupDescribed: self._group_described,
            LogEndsSeen: self.log_bounds.ends_seen,
            LogStartsSeen: self.log_bounds.starts_seen,
            ConsumerGroupDescribed: self._consumer_group_described,
        }

    @property
    def group_metadata_cache(self) -> Mapping[str, Group]:
        """All groups by id, Dead ones that only joins are under way for included."""
        return self._cache.groups

    @property
    def overflowed(self) -> int:
        """How often something was not kept, for a bound."""
        return self._cache.overflowed

    @property
    def unread(self) -> Unread:
        """Writes that passed by without being understood."""
        return self._cache.unread

    def tables(self) -> Iterator[Table]:
        """How large each table is that grows with what clients send."""
        yield from self._cache.tables
        yield from self._listing.tables
        yield from self.log.tables

    # What happens.

    def keep_empty_groups(self, keeps: bool) -> None:
        """Tells whether the broker does, as of a `GroupCache`."""
        self._cache.keep_empty_groups(keeps)

    def forget_habits(self) -> None:
        """Forgets how the broker describes groups of KIP-848, because it may be another release than before."""
        self.default_assignor = self.explains = None

    def inherit(self, groups: Iterable[str]) -> None:
        """Tells which groups the broker has: all others are known from their birth on."""
        self._cache.pasts.inherit(groups)

    def apply(self, events: Iterable[AnyEvent], now: float) -> list[Fact]:
        """Applies events in order. Returns the facts that came of them."""
        facts: list[Fact] = []
        for event in events:
            facts += self._rules[type(event)](event, now)
        return facts

    def refresh(self, group_id: str, now: float) -> list[Fact]:
        """As `sweep`, of one group."""
        group = self._cache.group(group_id)
        return self._expire(group, now) if group else []

    def sweep(self, now: float) -> Iterator[list[Fact]]:
        """Sets aside members whose sessions must have run out, some groups at a time; to be done every few seconds."""
        if not self._cache.exclusive:
            while self._cache.pasts.end_before(now, SWEPT_AT_ONCE):  # What came of a lost write is in the log by now.
                yield []
        groups = list(self._cache.groups.values())
        for first in range(0, len(groups), SWEPT_AT_ONCE):
            facts: list[Fact] = []
            for group in groups[first : first + SWEPT_AT_ONCE]:
                self._cache.metadata.weigh(group)
                if group.timed and self._cache.group(group.group_id) is group:  # It may have gone meanwhile.
                    facts += self._expire(group, now)
                    self._forget_unless_real(group)
            yield facts

    def _expire(self, group: Group, now: float) -> list[Fact]:
        """Nobody while the partition is being read, as when the broker is away: sessions may go on elsewhere."""
        loads = self._doubts.error_of(group.group_id, now) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [] if loads else expire(group, now)

    def obscure(self, group_id: str | None, until: float = FOREVER, *, members: bool = True) -> None:
        """Notes a write that could not be decoded, to this group or to an unknown one.

        To be called when the write goes to the broker, and again when it is answered or its connection is gone.

        Args:
            group_id: None where not even that is known.
            until: when the broker will have done it; FOREVER while it is unanswered. After it the log tells all.
            members: whether such a write may change members of a group.
        """
        cache = self._cache
        if group_id is None:
            if until == FOREVER:
                cache.unread.begin(members=members)
            else:
                cache.unread.end(until, members=members)
            cache.pasts.doubt_others()
            self._listing.begin_anew()
            return
        if until == FOREVER:
            cache.unread.begin_of(group_id)
        else:
            until = cache.unread.end_of(group_id, until)
        lost_until = NEVER if until == FOREVER else until
        cache.pasts.note(group_id, lost_until)
        cache.obscure(group_id, lost_until)

    def disturb_offsets(self, now: float) -> None:
        """Something passed by that will change any group's offsets soon, such as the deletion of a topic."""
        self._cache.disturbed_until = now + DISTURBED_SECONDS
        self._cache.unread.topics_deleted()
        if not self._cache.partitions.matter:
            self._listing.begin_anew()  # Empty groups may be left without offsets, and the log does not tell.

    # Groups.

    def _member_seen(self, event: MemberSeen, now: float) -> list[Fact]:
        """As `_group_changed`, of what is most frequent: it counts what it changes itself, and its group is real."""
        group = self._cache.get_or_maybe_create(event.group_id, event.sent_at)
        if group is None:
            return []
        facts = member_seen(group, event, now)
        self.log.told_of(group, now)
        return facts

    def _group_changed(self, event: Event, now: float) -> list[Fact]:
        group = self._cache.get_or_maybe_create(event.group_id, event.sent_at)
        if group is None:
            return []
        kind, existed, before = type(event), group.state is not DEAD, _listed_form(group)
        kept = self._cache.metadata.within_bound(group, event)
        facts = HANDLERS[kind](group, kept, now)
        if kept is not event:
            group.bare = True
            self._cache.overflowed += 1
        if kind not in QUIET:
            group.touch(now)
        elif _listed_form(group) != before:
            self._cache.changed.add(group.group_id)
        self.log.told_of(group, now)
        if group.state is DEAD and existed:
            self._cache.remove(group.group_id, now)
            return facts
        self._forget_unless_real(group)
        return facts

    def _forget_unless_real(self, group: Group) -> None:
        """Forgets a group that only joins were under way for. What of them was lost may have made it."""
        if group.state is not DEAD or group.joins or group.group_id not in self._cache.groups:
            return
        if group.doubted_until != NEVER:
            self._cache.pasts.note(group.group_id, group.doubted_until)
        if not group.reservations.any:
            self._cache.forget(group.group_id)

    def _of_known(self, event: Event, now: float) -> list[Fact]:
        """Of a group that is not known it says nothing."""
        return self._group_changed(event, now) if event.group_id in self._cache.groups else []

    def _reply_lost(self, event: ReplyLost, now: float) -> list[Fact]:
        if event.group_id in self._cache.groups:
            return self._group_changed(event, now)
        if event.creates:
            self._cache.pasts.note(event.group_id, now + LOST_SECONDS)
        return []

    def _group_described(self, event: GroupDescribed, now: float) -> list[Fact]:
        group = self._cache.group(event.group_id)
        before = {*group.members, *group.overdue} if group else set()
        sure = group is not None and group.unsure is None
        facts = self._describe(event, now)
        if (group := self._cache.group(event.group_id)) is not None:
            group.reservations.described(event, before, now, sure=sure)
            self._forget_unless_real(group)
        elif event.state is GroupState.DEAD:
            self._existence.missed(event, now)
        return facts

    def _describe(self, event: GroupDescribed, now: float) -> list[Fact]:
        offsets = self._cache.group_offsets(event.group_id)
        made_since = event.state is GroupState.DEAD and offsets is not None and offsets.changed_at > event.sent_at
        if made_since or event.as_of != self.changes_of(event.group_id)[0]:
            return []
        return self._group_changed(self.log.understood(event), now)

    def _consumer_group_described(self, event: ConsumerGroupDescribed, now: float) -> list[Fact]:
        group = self._cache.group(event.group_id)
        unchanged = event.as_of == self.changes_of(event.group_id)[0]
        if not event.assignor:
            self.explains = event.explained
        elif unchanged and group is not None and group.consumer is not None:
            group.order(event.members)
            if not group.consumer.assignors:
                self.default_assignor = event.assignor
        return []

    # What is known.

    @property
    def notings(self) -> int:
        """What `as_of` of a listing compares with."""
        return self._cache.pasts.notings

    def changes_of(self, group_id: str) -> tuple[int, int]:
        """What `as_of` of learnt events compares with: it grows when a group or its offsets change, or come and go."""
        return self._cache.changes_of(group_id)

    def view(self, group_id: str, now: float, seats: Seats = UNSEATED) -> GroupView:
        """A group at this moment; a Dead one where none is known."""
        group, offsets = self._cache.group(group_id), self._cache.group_offsets(group_id)
        lacking = self._doubts.of_group(group_id, group, now)
        offsets_lacking = self._doubts.of_offsets(group_id, group, offsets, now)
        error_code = self._doubts.error_of(group_id, now)
        if group is None:
            return GroupView(
                group_id=group_id,
                roster_known=lacking is None,
                lacking=lacking,
                offsets_lacking=offsets_lacking,
                error_code=error_code,
                seats=seats,
            )
        return group.view(
            lacking=lacking,
            offsets_lacking=offsets_lacking,
            offsets=offsets.committed if offsets else {},
            error_code=error_code,
            seats=seats,
        )

    def offsets_view(self, group_id: str, now: float) -> GroupView:
        """A group's offsets alone, and what its coordinator would say instead of them."""
        offsets, error_code = self._cache.group_offsets(group_id), self._doubts.error_of(group_id, now)
        return group_view(group_id=group_id, offsets=offsets.committed if offsets else {}, error_code=error_code)

    def seated(self, group_id: str, now: float) -> GroupView:
        """The same, with who has a place in it."""
        group = self._cache.group(group_id)
        if group is not None:
            return self.view(group_id, now, seats(group, now, exclusive=self._cache.exclusive))
        known = self._doubts.of_group(group_id, None, now) is None
        return self.view(group_id, now, Seats(certain=known or self._cache.pasts.is_missing(group_id, now)))

    def group_lacking(self, group_id: str, now: float) -> Lacking | None:
        """Why DescribeGroups may not be answered from this copy; None where it may."""
        return self._doubts.of_description(group_id, self._cache.group(group_id), now)

    def offsets_lacking(self, group_id: str, now: float) -> Lacking | None:
        """Why OffsetFetch may not be answered from this copy; None where it may."""
        cache = self._cache
        return self._doubts.of_offsets(group_id, cache.group(group_id), cache.group_offsets(group_id), now)

    def consumer_lacking(self, group_id: str, now: float) -> Lacking | None:
        """Why ConsumerGroupDescribe may not be answered from this copy; None where it may."""
        return self._doubts.of_consumer(group_id, self._cache.group(group_id), now)

    def existing(self, group_id: str, now: float) -> GroupView | None:
        """A group at this moment; None where there is none, or only joins are under way for it."""
        group = self._cache.group(group_id)
        return None if group is None or group.state is GroupState.DEAD else self.view(group_id, now)

    def listing_lacking(self, now: float, version: int | None = None) -> Lacking | None:
        """Why ListGroups may not be answered from this copy; None where it may.

        `version`: that of the reply. Where it would take long to make, it is made ready until it is asked for again.
        """
        if (reason := self._doubts.of_listing(now)) is not None:
            return reason
        self._listing.refresh(now, MOST_AT_ONCE)
        return Lacking.STALE if self._listing.overdue(version) else self._listing.lacking(now, MOST_AT_ONCE)

    def listing(self, now: float) -> Listing:
        """The list of all groups, at this moment."""
        self._listing.refresh(now)
        return self._listing

    def relist(self, now: float) -> Iterator[None]:
        """Brings the list up to date where it may be told, some groups at a time; to be called every second or so."""
        if self._doubts.of_listing(now) is None:
            yield from self._listing.tend(now)

    def _listed(self, group_id: str, now: float) -> Listed:
        group = self._cache.group(group_id)
        if group is None:
            return Listed(None)
        return listed(group, self._doubts.of_group(group_id, group, now), now)

    def unsettled(self) -> Iterator[list[str]]:
        """Groups of which only the broker can say how they are; where its word would make a difference.

        Some at a time: between two steps others may have their turn.
        """
        return self._doubts.unsettled()

    @property
    def learns_from_lists(self) -> bool:
        """Whether a list of the broker's groups would tell anything."""
        return self._cache.exclusive and not self._cache.pasts.all_known

    def wants_list(self) -> bool:
        """Whether only a list of the broker's groups would end a doubt."""
        return self._cache.exclusive and self._cache.unread.until < FOREVER and self._cache.pasts.wants_list

    @property
    def log_ends(self) -> Bounds:
        """Log ends that passed by, and when each was seen."""
        return self.log_bounds.ends

    def committed_partitions(self) -> Iterator[set[TopicPartition]]:
        """Partitions of which any group has committed an offset; some at a time, and some of them more than once."""
        for offsets in list(self._cache.offsets.values()):
            yield from offsets.committed.partitions()

    def distrust(self, group_id: str, now: float) -> None:
        """The broker was found to say something else of the group."""
        self._cache.distrusted.add(group_id)
        if group_id in self._cache.groups:
            self._cache.changed.add(group_id)

    def relearn(self, group_id: str, now: float) -> None:
        """Forgets what is known of a group. Afterwards the broker has to be asked about the group."""
        self._cache.unlearn(group_id)
        self._cache.note_removal(now)
        self._cache.pasts.note(group_id, now)

    def trust(self, group_id: str, now: float) -> None:
        """The broker was found to say the same of the group."""
        self._cache.distrusted.discard(group_id)


def _listed_form(group: Group) -> tuple[object, ...]:
    """What of a group decides how it is listed, and of which quiet events count no change."""
    return group.kind, group.state, len(group.joins)
