"""What the log says, merged into the groups.

Owns: `LogFollower`: which partitions are read, and how what they say and what the wire has said come together. Must
not know: connections, what wire events do (`membership`), what a record of a classic group does to it (`logged`).

The log is the base and the wire lies on top. A Fetch that was sent at some time, and whose reply reaches the end of
the log, brings all that was acknowledged before that time. So what the wire said before then is dropped: the log says
it too, in the right order; and what was in doubt before then is not any longer.

Names are Kafka's (GroupMetadataManager): load, resign, `loading_partitions` and `owned_partitions` as states.
It has more than 400 lines because the log and the wire are reconciled in this one place.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.offsets_topic import read_suffix
from group_sidecar.codecs.offsets_topic import suffix as suffix_of
from group_sidecar.coordinator.bounded import ENTRY_BYTES, TABLE_BYTES, BoundedTable, Table
from group_sidecar.coordinator.cache import GroupCache
from group_sidecar.coordinator.causes import after_move
from group_sidecar.coordinator.consumer_groups import read
from group_sidecar.coordinator.events import FOREVER, NEVER, Event, GroupDescribed
from group_sidecar.coordinator.facts import Fact, OffsetsExpired
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.log import LoggedGroup, PartitionLog
from group_sidecar.coordinator.logged import consumer_group_logged, generation_logged, metadata_gone
from group_sidecar.coordinator.partitions import Partition, PartitionState, PartitionTable, Tenure, partition_for
from group_sidecar.coordinator.tombstones import AWAITED_SECONDS, WHOLE_GROUP
from group_sidecar.coordinator.views import DELETED_OFFSET, GroupKind, GroupState, Lacking, TopicPartition

LEFT_BEHIND = 100_000
"""Groups that are remembered of partitions that went to another broker. A rebalance of any other such group is not
explained by the move."""
LOGGED_BYTES = 200
"""Estimated bytes of an offset in the log, key and value, with a short topic name."""
GROUPS_AT_ONCE = 50
"""Groups merged between two breaths."""


class LogFollower:
    """Merges `__consumer_offsets` into a cache of groups.

    Attributes:
        partitions: those that this broker leads, and how far each was read.
        expired: how many offsets the broker has removed, as far as no client had asked for it.
        offsets_removed_at: when the log last told that offsets were removed, which follows a topic's deletion.
        left_behind: groups that were in partitions which another broker leads now, and which partition it was.
    """

    def __init__(self, cache: GroupCache) -> None:
        self._cache = cache
        self.partitions: PartitionTable = cache.partitions
        self.expired = 0
        self.offsets_removed_at = NEVER
        self.left_behind: BoundedTable[int] = BoundedTable(LEFT_BEHIND)
        self._cleanup: tuple[int, float] | None = None

    @property
    def tables(self) -> Iterator[Table]:
        """How large each table here is."""
        offsets = sum(partition.log.size for _, partition in self.partitions)
        heavy = sum(partition.log.heavy for _, partition in self.partitions)
        yield Table("logged_offsets", offsets, offsets * LOGGED_BYTES + heavy)
        ahead = sum(len(partition.ahead) for _, partition in self.partitions)
        yield Table("groups_ahead_of_log", ahead, ahead * ENTRY_BYTES)
        deleted = [partition.deleted for _, partition in self.partitions]
        yield Table("deleted_groups_ahead_of_log", sum(map(len, deleted)), sum(each.bytes for each in deleted))
        awaited = [partition.log.awaited for _, partition in self.partitions]
        yield Table("awaited_tombstones", sum(each.size for each in awaited), sum(each.bytes for each in awaited))
        yield Table("groups_left_behind", len(self.left_behind), self.left_behind.bytes)

    # Which partitions there are.

    def count_partitions(self, count: int, now: float) -> None:
        """The topic has so many partitions; None of what was read counts if it had another number before."""
        if self.partitions.count == count:
            return
        self.unread(now)
        self.partitions.recount(count, self._cache.groups)
        self._cache.changed.update(self._cache.groups)

    def unread(self, now: float) -> None:
        """The log is not read any more: what it said is forgotten."""
        for number in list(self.partitions.led):
            self._forget_groups(number, now)
        self.left_behind.clear()
        self.partitions.recount(None, ())

    def begin_load(
        self, number: int, leader_epoch: int, start_offset: int, now: float, *, serves: bool = True
    ) -> PartitionLog:
        """The broker leads a partition: it is read from its start.

        If it was read before, what was known of its groups is forgotten: the broker's coordinator has done the same.
        It may still be loading when the log has been read; where that can be asked, `serves` is False, and the groups
        are not answered for before it is known to serve. Raises StaleEpoch.
        """
        if self.partitions.advance(number, leader_epoch):
            self._forget_groups(number, now)
            for group_id in [each for each in self.left_behind if self.left_behind.get(each) == number]:
                self.left_behind.pop(group_id)
            self._end_elsewhere(number)
        partition = self.partitions.begin(number, leader_epoch, start_offset)
        partition.serves = serves
        if serves:
            _begun(partition, now)
        for group_id in self.partitions.groups_of(number):
            if group_id in self._cache.offsets:
                self._cache.follow_offsets(partition, group_id, None)
                partition.ahead.add(group_id)
        return partition.log

    def resign(self, number: int, leader_epoch: int, now: float) -> None:
        """The broker does not lead the partition any more. Raises StaleEpoch."""
        self.partitions.advance(number, leader_epoch)
        for group_id in self.partitions.groups_of(number):
            self.left_behind.put(group_id, number)
        self._forget_groups(number, now)
        self.partitions.end(number)
        self._end_elsewhere(number)

    def _end_elsewhere(self, number: int) -> None:
        """Ends the pasts at another broker of the partition's groups: its log brings them back when read again."""
        if count := self.partitions.count:
            self._cache.pasts.end_elsewhere(lambda group_id: partition_for(group_id, count) == number)

    def fail(self, number: int, reason: str, now: float) -> None:
        """The partition cannot be read."""
        if (partition := self.partitions.led.get(number)) is not None:
            self._forget_groups(number, now)
            partition.state, partition.reason, partition.fresh_at = PartitionState.FAILED, reason, NEVER
            partition.log = PartitionLog(partition.log.next_offset)

    def serves(self, number: int, now: float) -> None:
        """The broker's own coordinator has loaded the partition."""
        partition = self.partitions.led[number]
        partition.serves = True
        _begun(partition, now)
        if partition.state is PartitionState.LOADING and partition.fresh_at != NEVER:
            partition.state = PartitionState.OWNED

    def lose(self, now: float, *, serves: bool = True) -> Iterator[None]:
        """The connection is gone: nothing is fresh, and the broker may have been away. To be followed to its end.

        `serves`: as of `begin_load`.
        """
        for _, partition in self.partitions:
            partition.serves = serves
            if partition.state is PartitionState.OWNED:
                partition.state = PartitionState.LOADING
            partition.fresh_at = NEVER
        groups = [group for number, _ in self.partitions for group in self.partitions.groups_of(number)]
        for done, group_id in enumerate(groups, 1):
            group = self._cache.group(group_id)
            if group is not None and group.kind is GroupKind.CLASSIC:
                group.doubt(now)
                group.touch(now)
            if done % GROUPS_AT_ONCE == 0:
                yield

    def _forget_groups(self, number: int, now: float) -> None:
        for group_id in self.partitions.groups_of(number):
            self._cache.unlearn(group_id)
        self._cache.note_removal(now)

    # What they say.

    def follow(self, number: int, asked_at: float, now: float) -> Iterator[list[Fact]]:
        """Merges what was read since the last time, some groups at a time. Yields the facts that come of it."""
        partition = self.partitions.led[number]
        changed, partition.log.changed = partition.log.changed, {}
        facts: list[Fact] = []
        for done, name in enumerate(changed, 1):
            if self.partitions.led.get(number) is not partition:
                return  # It went to another broker meanwhile.
            facts += self._follow_group(partition, name, now)
            if done % GROUPS_AT_ONCE == 0:
                yield facts
                facts = []
        yield facts

    def caught_up(self, number: int, asked_at: float, now: float) -> OffsetsExpired | None:
        """What was asked for at that time, and has been followed, reached the end of the log.

        Returns what the broker has cleaned up, where it has.
        """
        partition = self.partitions.led[number]
        if overflowed := self.overflowed(number):
            self.fail(number, overflowed, now)
            return None
        partition.state = PartitionState.OWNED if partition.serves else PartitionState.LOADING
        partition.reason, partition.fresh_at, partition.read_at = "", asked_at, now
        awaited = partition.log.awaited
        for name in awaited:
            self._release(partition.log, name, asked_at)
            partition.ahead.add(name.decode())
        for group_id in list(partition.deleted):
            at = partition.deleted.get(group_id)
            if at is not None and at <= asked_at and not awaited.awaits_group(group_id.encode()):
                partition.deleted.pop(group_id)
        held_back, partition.log.changed = partition.log.changed, {}
        for name in held_back:
            self._follow_group(partition, name, now)
        # Of a deleted group the log is held back: what the wire has said since is not to be found below it yet.
        for group_id in partition.ahead.difference(partition.deleted):
            if self._catch_up(partition, group_id, asked_at, now):
                partition.ahead.discard(group_id)
        return self._cleaned_up(now)

    def overflowed(self, number: int) -> str:
        """Returns why a partition cannot be kept, and counts that; empty where it can. It is the largest that goes."""
        cache, log = self._cache, self.partitions.led[number].log
        logs = [partition.log for _, partition in self.partitions]
        reason = ""
        if sum(each.size for each in logs) > cache.most_offsets and log.size == max(each.size for each in logs):
            reason = "more offsets than limits.offsets"
        most_heavy = max(TABLE_BYTES, cache.most_offsets * LOGGED_BYTES)
        if sum(each.heavy for each in logs) > most_heavy and log.heavy == max(each.heavy for each in logs):
            reason = "more bytes of metadata than limits.offsets allows"
        cache.overflowed += bool(reason)
        return reason

    def _release(self, log: PartitionLog, name: bytes, asked_at: float) -> None:
        """Awaits no tombstone of what was committed after its deletion: the broker has acknowledged that commit."""
        log.settle(name, asked_at)
        offsets = self._cache.group_offsets(name.decode())
        if offsets is None:
            return
        for suffix in log.awaited.overdue(name, asked_at):
            committed = None if suffix == WHOLE_GROUP else offsets.committed.get_seen(read_suffix(suffix))
            at = offsets.changed_at if suffix == WHOLE_GROUP else committed.at if committed else FOREVER
            if at <= asked_at:
                log.awaited.forget(name, suffix)

    def _catch_up(self, partition: Partition, group_id: str, asked_at: float, now: float) -> bool:
        """The log says all of a group that was acknowledged until then. Whether it says all there is to say."""
        group, offsets = self._cache.group(group_id), self._cache.group_offsets(group_id)
        if group is not None and self._lapsed(partition, group, asked_at):
            self._cache.remove(group_id, now)
            return True
        done = True
        if group is not None and group.kind is not GroupKind.CLASSIC and group.unsure:
            if group.settled_at <= asked_at:
                group.unsure = None
                group.touch(now)
            else:
                done = False
        if offsets is not None:
            overdue = partition.log.awaited.overdue(group_id.encode(), asked_at)
            deleted = [read_suffix(each) for each in overdue if each != WHOLE_GROUP]
            done = offsets.catch_up(asked_at, deleted, self._cache.unread.until_of(group_id)) and done
            self._cache.account(group_id, now)
        return done

    def _cleaned_up(self, now: float) -> OffsetsExpired | None:
        if self._cleanup is None:
            return None
        (count, since), self._cleanup = self._cleanup, None
        self.expired += count
        return OffsetsExpired(at=now, count=count, seconds=now - since)

    def _follow_group(self, partition: Partition, name: bytes, now: float) -> list[Fact]:
        log, cache = partition.log, self._cache
        logged = log.groups[name]
        group_id, removed = logged.group_id, logged.removed
        logged.removed = 0
        log.recount(logged)
        if group_id in partition.deleted:
            log.changed[name] = None  # The log is behind the wire: it counts when it has caught up.
            return []
        self._count_removed(group_id, removed, now)
        if logged.gone:
            log.forget(name)
            self._vanished(partition, group_id, logged.tombstone, now)
            return []
        group = cache.group(group_id)
        loading = partition.state is not PartitionState.OWNED
        if group is not None and loading and cache.exclusive and group.unsure is Lacking.COLD:
            group.unsure = Lacking.IN_DOUBT  # The broker will tell, when it is asked.
        if group is None:
            unseen = loading or not cache.known_from_birth(group_id)
            group = cache.create(group_id, Lacking.IN_DOUBT if unseen and cache.exclusive else None)
            if group is None:
                return []
            group.doubted_until = cache.pasts.settled_at(group_id)
        if logged.offsets or logged.pending or group_id in cache.offsets:
            offsets = cache.follow_offsets(partition, group_id, logged)
            if not cache.exclusive:
                offsets.compare(now)
        if partition.read_at == NEVER:  # What comes later was not brought along.
            _brought_along(group, partition.tenure)
        return self._follow_metadata(group, logged, now, news=not loading)

    def _follow_metadata(self, group: Group, logged: LoggedGroup, now: float, *, news: bool) -> list[Fact]:
        if group.state is GroupState.DEAD:
            group.become(GroupState.EMPTY)
            group.touch(now)
        before, group.logged = group.logged, logged.metadata
        try:
            if logged.records:
                if group.consumer is None or group.read_changes != logged.changes:
                    group.read_changes = logged.changes
                    return consumer_group_logged(group, read(group.group_id, logged.records), now, news=news)
            elif logged.metadata is not None and logged.metadata is not before:
                return generation_logged(group, logged.metadata, now, news=news)
            elif logged.metadata is None and (before is not None or group.kind is not GroupKind.CLASSIC):
                metadata_gone(group, now)
        except DecodeError:
            group.unsure = Lacking.UNDECODABLE
            group.touch(now)
        return []

    def _vanished(self, partition: Partition, group_id: str, tombstone: bool, now: float) -> None:
        """Nothing is left of a group in the log.

        It may still be there, empty, until the broker clears it away. Or the wire knows of a new one under its name.
        """
        group = self._cache.group(group_id)
        if group is None:
            return
        # Of groups of the new protocols all is in the log: one that the wire tells of next will be, too.
        told_since = group.kind is GroupKind.CLASSIC and self._told_since(group, partition.fresh_at)
        if not told_since and (tombstone or group.kind is not GroupKind.CLASSIC or not self._cache.exclusive):
            self._cache.remove(group_id, now)
            self._cache.pasts.end(group_id)
            return
        if group_id in self._cache.offsets:
            offsets = self._cache.follow_offsets(partition, group_id, None)
            if not self._cache.exclusive:
                offsets.compare(now)
        group.logged = None
        group.doubt(now)
        group.touch(now)
        partition.ahead.add(group_id)

    def _told_since(self, group: Group, at: float) -> bool:
        """Whether the wire has told of a group since then, or will."""
        offsets = self._cache.group_offsets(group.group_id)
        busy = group.joins or group.pending or group.state not in (GroupState.EMPTY, GroupState.DEAD)
        return bool(busy) or group.told_at > at or (offsets is not None and offsets.changed_at > at)

    def _lapsed(self, partition: Partition, group: Group, asked_at: float) -> bool:
        """Whether neither the log nor the wire knows of a group any more, and nobody will ask the broker."""
        logged = group.group_id.encode() in partition.log.groups
        return not (self._cache.exclusive or logged or self._told_since(group, asked_at))

    def _count_removed(self, group_id: str, removed: int, now: float) -> None:
        offsets = self._cache.group_offsets(group_id)
        asked_for = (
            sum(1 for seen in offsets.committed.seen.values() if seen.offset == DELETED_OFFSET) if offsets else 0
        )
        if removed:
            self.offsets_removed_at = now
        if removed > asked_for:
            count, since = self._cleanup or (0, now)
            self._cleanup = (count + removed - asked_for, since)

    # What the wire says.

    def deleted(self, group_id: str, now: float, *, existed: bool) -> None:
        """A client had a group deleted: the log will say so. A group that did not exist leaves no tombstone."""
        if (partition := self.partitions.holding(group_id)) is not None:
            evicts = partition.deleted.put(group_id, now)
            if existed:
                evicts |= partition.log.awaited.expect(group_id.encode(), WHOLE_GROUP, now)
            if evicts:
                partition.evicted_until = now + AWAITED_SECONDS

    def deleted_offsets(self, group_id: str, partitions: Iterable[TopicPartition], now: float) -> None:
        """A client had offsets deleted: likewise."""
        if (partition := self.partitions.holding(group_id)) is not None:
            for each in partitions:
                if partition.log.awaited.expect(group_id.encode(), suffix_of(*each), now):
                    partition.evicted_until = now + AWAITED_SECONDS

    def understood(self, event: GroupDescribed) -> GroupDescribed:
        """What it means that a group is described as Dead: where Empty ones are not kept, it may have offsets yet."""
        group, offsets = self._cache.group(event.group_id), self._cache.group_offsets(event.group_id)
        dead = event.state is GroupState.DEAD
        if not dead or self._cache.keeps_empty_groups or offsets is None or not any(offsets.committed):
            return event
        return replace(event, state=GroupState.EMPTY, protocol_type=group.protocol_type if group else "")

    def overtook(self, event: Event) -> bool:
        """Whether the log may have said already what an event tells, and what others, unseen, have done since."""
        partition = None if self._cache.exclusive else self.partitions.holding(event.group_id)
        return partition is not None and partition.read_at > event.sent_at

    def told_of(self, group: Group, now: float) -> None:
        """The wire told something of a group; of one of the new protocols the log will tell it too."""
        group.told_at = now
        if group.unsure and group.kind is not GroupKind.CLASSIC:
            partition = self.partitions.holding(group.group_id)
            if partition is not None:
                partition.ahead.add(group.group_id)


def _begun(partition: Partition, now: float) -> None:
    partition.tenure.began_at = min(partition.tenure.began_at, now)


def _brought_along(group: Group, tenure: Tenure) -> None:
    """A group came with its partition. Members may have joined again before that was seen here."""
    group.tenure, rebalance = tenure, group.rebalance
    if rebalance is not None and rebalance.blame.token:
        rebalance.blame = after_move(group, rebalance.blame, rebalance.began)
