"""What the log says of offsets and groups, and how it goes with what the wire says."""

from collections.abc import Iterable
from uuid import UUID

import pytest

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.group_records import GroupMetadataValue, MemberMetadata, OffsetCommitValue
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from group_sidecar.codecs.offsets_topic import GroupKey, KeyType, OffsetCommitKey, encode_key, encode_value
from group_sidecar.coordinator.answerable import lacking
from group_sidecar.coordinator.committed import CommittedOffsets
from group_sidecar.coordinator.events import (
    ConsumerGroupDescribed,
    ConsumerMemberSeen,
    CoordinatorMoved,
    DescribedMember,
    GroupDeleted,
    GroupDescribed,
    Joining,
    JoinSent,
    OffsetsDeleted,
    OffsetsPending,
    OffsetsStored,
)
from group_sidecar.coordinator.facts import Departure, MemberGone, OffsetsExpired
from group_sidecar.coordinator.log import PartitionLog
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.partitions import FRESH_SECONDS, PartitionState, StaleEpoch
from group_sidecar.coordinator.tombstones import AWAITED_SECONDS, DELETION_BYTES, MOST_DELETIONS
from group_sidecar.coordinator.views import CommittedOffset, GroupKind, GroupState, Lacking
from tests.coordinator.model_log import Entry, batch
from tests.coordinator.sweeping import in_doubt, swept
from tests.coordinator.test_consumer_group_records import Log as Records

T0, T1 = ("t", 0), ("t", 1)
COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"
PRODUCER = 7


def offset(partition: int, value: int | None, group: str = "g", *, expires: bool = False) -> Entry:
    key = encode_key(KeyType.OFFSET_COMMIT, OffsetCommitKey(group_id=group, topic="t", partition=partition))
    if value is None:
        return key, None
    committed = OffsetCommitValue(offset=value, leader_epoch=1, metadata="m", commit_timestamp=5000)
    return key, encode_value(committed, 1 if expires else 3)


def generation(number: int, group: str = "g", kind: str = "consumer") -> Entry:
    value = GroupMetadataValue(protocol_type=kind, generation=number, protocol=None, leader=None, members=())
    return encode_key(KeyType.GROUP_METADATA, GroupKey(group_id=group)), encode_value(value, 3)


def gone(group: str = "g") -> Entry:
    return encode_key(KeyType.GROUP_METADATA, GroupKey(group_id=group)), None


class Reader:
    """A copy of a coordinator, and one partition of its log."""

    def __init__(self, *, exclusive: bool = False, load: Iterable[Entry] = ()) -> None:
        self.manager = GroupMetadataManager(exclusive=exclusive)
        self.manager.inherit(())
        self.follower = self.manager.log
        self.follower.count_partitions(1, 0)
        self.log = self.follower.begin_load(0, 3, 0, 0)
        self.append(*load)
        self.catch_up(0, 0)

    def append(self, *entries: Entry, producer: int = -1) -> None:
        """The next batch of the log."""
        if not entries:
            return
        data = batch(self.log.next_offset, list(entries), producer_id=producer, transactional=producer >= 0)
        list(self.log.replay(data))

    def end(self, marker: bytes, producer: int = PRODUCER) -> None:
        """A transaction ends."""
        data = batch(self.log.next_offset, [(marker, b"")], producer_id=producer, transactional=True, control=True)
        list(self.log.replay(data))

    def catch_up(self, asked_at: float, now: float) -> OffsetsExpired | None:
        """The end of the log was reached by what was asked for then."""
        list(self.follower.follow(0, asked_at, now))
        return self.follower.caught_up(0, asked_at, now)

    def read(self, *entries: Entry, at: float) -> OffsetsExpired | None:
        """These are new in the log."""
        self.append(*entries)
        return self.catch_up(at, at)

    def offsets(self, at: float, group: str = "g") -> dict[tuple[str, int], int] | Lacking:
        """What would be answered, or why nothing would."""
        view = self.manager.view(group, at)
        return view.offsets_lacking or {partition: each.offset for partition, each in view.offsets.items()}

    def shown(self, at: float) -> dict[tuple[str, int], int]:
        """What metrics and pages show, however sure it is."""
        return {partition: each.offset for partition, each in self.manager.view("g", at).offsets.items()}

    def stored(self, sent_at: float, now: float, **offsets: int) -> None:
        """A commit passed by."""
        told = {("t", int(name[1:])): CommittedOffset(value, 1, "m", now) for name, value in offsets.items()}
        self.manager.apply([OffsetsStored(group_id="g", sent_at=sent_at, offsets=told)], now)


# Loading and tailing.


def test_sessions_of_members_that_are_loaded_begin_anew_as_at_the_broker() -> None:
    member = MemberMetadata(
        member_id="m", client_id="c", client_host="/h", session_timeout=10_000, subscription=b"", assignment=b""
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=3, protocol="range", leader="m", members=(member,))
    reader = Reader(exclusive=True)
    reader.read((encode_key(KeyType.GROUP_METADATA, GroupKey(group_id="g")), encode_value(value, 3)), at=100)
    assert swept(reader.manager, 109) == []
    assert reader.manager.view("g", 109).lacking is not None, "it was not heard of, and may have been silent for long"
    assert [fact.how for fact in swept(reader.manager, 111) if isinstance(fact, MemberGone)] == [Departure.EXPIRED]


def test_no_session_runs_out_while_the_broker_is_away() -> None:
    """Its members may be with another broker by now."""
    reader = Reader(exclusive=True)
    member = MemberMetadata(
        member_id="m", client_id="c", client_host="/h", session_timeout=10_000, subscription=b"", assignment=b""
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=3, protocol="range", leader="m", members=(member,))
    reader.read((encode_key(KeyType.GROUP_METADATA, GroupKey(group_id="g")), encode_value(value, 3)), at=100)
    list(reader.follower.lose(101))
    assert (swept(reader.manager, 200), reader.manager.refresh("g", 200)) == ([], [])
    assert len(reader.manager.view("g", 200).members) == 1
    reader.catch_up(201, 201)
    assert [type(fact) for fact in swept(reader.manager, 202)] == [MemberGone]


def test_nothing_is_answered_before_the_end_of_the_log() -> None:
    reader = Reader()
    reader.log = reader.follower.begin_load(0, 3, 0, 1)
    reader.append(offset(0, 5))
    assert reader.follower.partitions.states == {0: PartitionState.LOADING}
    assert reader.offsets(1) is Lacking.COLD
    list(reader.follower.follow(0, 1, 1))
    assert reader.offsets(1) is Lacking.COLD
    reader.follower.caught_up(0, 1, 1)
    assert reader.follower.partitions.states == {0: PartitionState.OWNED}
    assert reader.offsets(1) == {T0: 5}
    assert reader.offsets(1, "nope") == {}


def test_a_log_that_is_not_fresh_does_not_count() -> None:
    reader = Reader(load=[offset(0, 5)])
    assert reader.offsets(FRESH_SECONDS) == {T0: 5}
    assert reader.offsets(FRESH_SECONDS + 1) is Lacking.STALE
    reader.catch_up(FRESH_SECONDS + 1, FRESH_SECONDS + 1)
    assert reader.offsets(FRESH_SECONDS + 1) == {T0: 5}


def test_a_tombstone_takes_an_offset_away_and_a_later_record_counts() -> None:
    reader = Reader(load=[offset(0, 5), offset(1, 6), offset(0, None), offset(1, 7)])
    assert reader.offsets(1) == {T1: 7}
    reader.read(offset(0, 8), at=1)
    assert reader.offsets(1) == {T0: 8, T1: 7}


def test_what_the_log_says_is_decoded() -> None:
    reader = Reader(load=[offset(0, 5), offset(1, 6, expires=True)])
    view = reader.manager.view("g", 1)
    assert view.offsets[T0] == CommittedOffset(5, 1, "m", 5.0)
    assert view.offsets[T1] == CommittedOffset(6, -1, "m", 5.0)
    assert (len(view.offsets), set(view.offsets), view.state) == (2, {T0, T1}, GroupState.EMPTY)
    with pytest.raises(KeyError):
        view.offsets["t", 2]


def test_a_batch_that_begins_before_what_was_asked_for_is_read_once() -> None:
    log = PartitionLog(0)
    both = batch(0, [offset(0, 5)]) + batch(1, [offset(0, 6)])
    list(log.replay(both))
    list(log.replay(both + batch(2, [offset(1, 7)])))
    assert (log.next_offset, log.records, len(log.groups[b"g"].offsets)) == (3, 3, 2)


def test_keys_that_are_not_known_are_counted() -> None:
    reader = Reader(load=[(b"\0\x63\0\1g", b"\0\0"), (b"\0", b""), offset(0, 5)])
    assert dict(reader.log.skipped) == {99: 1, -1: 1}
    assert reader.offsets(1) == {T0: 5}


def test_a_group_whose_name_is_not_utf_8_is_read_as_the_broker_reads_it() -> None:
    odd = b"\0\1\0\1\xff\0\1t\0\0\0\0"
    _, value = offset(0, 5)
    _, other = offset(1, 6)
    reader = Reader(load=[offset(0, 4, "\ufffd"), (odd, value), offset(1, 6, "\ufffd"), (odd, other)])
    assert list(reader.log.groups) == ["\ufffd".encode()]
    assert reader.offsets(1, "\ufffd") == {T0: 6, T1: 6}


def test_damage_ends_a_reply_and_what_came_before_counts() -> None:
    log = PartitionLog(0)
    damaged = bytearray(batch(0, [offset(0, 5)]) + batch(1, [offset(1, 6)]))
    damaged[-3] ^= 1
    with pytest.raises(DecodeError):
        list(log.replay(bytes(damaged)))
    assert (log.next_offset, len(log.groups[b"g"].offsets)) == (1, 1)


def test_a_damaged_value_makes_its_group_undecodable_and_no_other() -> None:
    key, _ = generation(1)
    reader = Reader(exclusive=True, load=[(key, b"\0\3\xff"), offset(0, 5, "h")])
    assert reader.manager.view("g", 1).lacking is Lacking.UNDECODABLE
    assert reader.offsets(1, "h") == {T0: 5}


def test_the_log_says_of_which_topic_an_offset_is() -> None:
    key, _ = offset(0, 5)
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=1, topic_id=UUID(int=9))
    reader = Reader(load=[(key, encode_value(value, 4)), offset(1, 6)])
    offsets = reader.manager.view("g", 1).offsets
    assert isinstance(offsets, CommittedOffsets)
    assert (offsets.topics(), offsets[T0].offset) == ({("t", UUID(int=9))}, 5)


# Transactions.


@pytest.mark.parametrize(("marker", "left"), [(COMMIT, {T0: 6, T1: 7}), (ABORT, {T0: 5})])
def test_offsets_of_a_transaction_count_when_it_commits(marker: bytes, left: dict[tuple[str, int], int]) -> None:
    reader = Reader(load=[offset(0, 5)])
    reader.append(offset(0, 6), offset(1, 7), producer=PRODUCER)
    reader.catch_up(1, 1)
    assert reader.offsets(1) is Lacking.UNSTABLE
    reader.end(marker)
    reader.catch_up(1, 1)
    assert reader.offsets(1) == left


def test_a_later_commit_outlives_an_earlier_transaction() -> None:
    reader = Reader()
    reader.append(offset(0, 6), offset(1, 7), producer=PRODUCER)
    reader.append(offset(0, 8))
    reader.catch_up(1, 1)
    assert reader.offsets(1) is Lacking.UNSTABLE, "it is open all the same"
    reader.end(COMMIT)
    reader.catch_up(1, 1)
    assert reader.offsets(1) == {T0: 8, T1: 7}


@pytest.mark.parametrize("first", [1, 2])
def test_of_two_transactions_the_later_record_counts(first: int) -> None:
    reader = Reader()
    reader.append(offset(0, 6), producer=1)
    reader.append(offset(0, 7), producer=2)
    reader.end(COMMIT, first)
    reader.end(COMMIT, 3 - first)
    reader.catch_up(1, 1)
    assert reader.offsets(1) == {T0: 7}


def test_a_transaction_that_passed_by_is_pending_until_the_log_says_so() -> None:
    reader = Reader()
    pending = {T0: CommittedOffset(6, 1, "m", 2)}
    reader.manager.apply([OffsetsPending(group_id="g", sent_at=1, producer_id=PRODUCER, offsets=pending)], 2)
    assert reader.offsets(2) is Lacking.UNSTABLE
    reader.append(offset(0, 6), producer=PRODUCER)
    reader.catch_up(3, 3)
    assert reader.offsets(3) is Lacking.UNSTABLE
    reader.end(COMMIT)
    reader.catch_up(4, 4)
    assert reader.offsets(4) == {T0: 6}


# The wire on top.


def test_a_commit_that_passed_by_counts_at_once_and_an_older_record_does_not_undo_it() -> None:
    reader = Reader(exclusive=True, load=[offset(0, 5)])
    reader.stored(1, 2, p0=7)
    assert reader.offsets(2) == {T0: 7}
    reader.append(offset(0, 6))
    reader.catch_up(1.5, 2.5)
    assert reader.offsets(2.5) == {T0: 7}, "it was asked for before the commit was acknowledged"
    reader.append(offset(0, 7), offset(0, 8))
    reader.catch_up(2.6, 2.7)
    assert reader.offsets(2.7) == {T0: 8}, "by now the log says all of it, in the right order"


def test_where_others_commit_unseen_the_log_and_the_wire_must_agree_or_one_waits() -> None:
    reader = Reader(load=[offset(0, 5)])
    reader.stored(1, 2, p0=7)
    assert reader.offsets(2) == {T0: 7}
    reader.append(offset(0, 7))
    reader.catch_up(1.5, 2.5)
    assert reader.offsets(2.5) == {T0: 7}
    reader.append(offset(0, 8))
    reader.catch_up(1.8, 2.6)
    assert reader.offsets(2.6) is Lacking.IN_DOUBT
    reader.catch_up(2.7, 2.8)
    assert reader.offsets(2.8) == {T0: 8}


def test_commits_that_crossed_are_put_in_order_by_the_log() -> None:
    reader = Reader(exclusive=True)
    one, two = (CommittedOffset(value, 1, "m", 2, writer=str(value)) for value in (6, 7))
    reader.manager.apply([OffsetsStored(group_id="g", sent_at=1, offsets={T0: one})], 2)
    reader.manager.apply([OffsetsStored(group_id="g", sent_at=1.5, offsets={T0: two})], 2)
    assert reader.offsets(2) is Lacking.IN_DOUBT
    reader.append(offset(0, 7), offset(0, 6))
    reader.catch_up(2.5, 3)
    assert reader.offsets(3) == {T0: 6}


def test_what_passed_by_unread_is_read_in_the_log() -> None:
    reader = Reader(load=[offset(0, 5), offset(0, 1, "h")])
    reader.manager.obscure("g")
    reader.catch_up(2, 2)
    assert reader.offsets(2) is Lacking.UNDECODABLE
    assert reader.offsets(2, "h") == {T0: 1}
    reader.manager.obscure("g", 3)
    reader.read(offset(0, 6), at=4)
    assert reader.offsets(4) == {T0: 6}
    reader.manager.obscure(None, 5)
    assert (reader.offsets(4), reader.offsets(4, "nope")) == (Lacking.UNDECODABLE, Lacking.UNDECODABLE)
    reader.catch_up(6, 6)
    assert (reader.offsets(6), reader.offsets(6, "nope")) == ({T0: 6}, {})


def test_a_group_that_is_another_brokers_is_nobodys_here() -> None:
    reader = Reader(load=[offset(0, 5)])
    reader.manager.apply([CoordinatorMoved(group_id="g", sent_at=1)], 1)
    reader.follower.resign(0, 4, 1)
    assert reader.offsets(1) is Lacking.COLD
    assert not reader.manager.group_metadata_cache


# Groups.


def test_groups_are_there_with_their_generation() -> None:
    reader = Reader(load=[generation(4), offset(0, 5, "simple")])
    view = reader.manager.view("g", 1)
    assert (view.state, view.generation, view.protocol_type) == (GroupState.EMPTY, 4, "consumer")
    assert view.lacking is Lacking.COLD, "others may be joining where nobody sees them"
    assert reader.manager.view("simple", 1).state is GroupState.EMPTY


def test_an_exclusive_copy_has_the_broker_asked_about_what_it_loaded() -> None:
    reader = Reader(exclusive=True, load=[generation(4), offset(0, 5)])
    assert (reader.manager.view("g", 1).lacking, in_doubt(reader.manager)) == (Lacking.IN_DOUBT, ["g"])
    reader.read(generation(1, "new"), at=2)
    assert in_doubt(reader.manager) == ["g"]


def test_a_group_ends_with_its_tombstone() -> None:
    reader = Reader(load=[generation(4), offset(0, 5)])
    reader.read(offset(0, None), gone(), at=2)
    assert not reader.manager.group_metadata_cache
    assert reader.offsets(2) == {}
    assert not reader.log.groups


def test_what_the_broker_cleans_up_is_counted_and_what_clients_delete_is_not() -> None:
    reader = Reader(load=[offset(number, 5) for number in range(4)])
    expired = reader.read(offset(0, None), offset(1, None), at=2)
    assert expired is not None
    assert (expired.count, reader.follower.expired) == (2, 2)
    assert reader.read(offset(2, 6), at=3) is None


@pytest.mark.parametrize("producer", [-1, PRODUCER])
def test_a_group_that_was_made_anew_behind_its_tombstone_outlives_its_offsets(producer: int) -> None:
    """All of it is read in one go. Then the topic is deleted: the broker keeps the group, empty."""
    reader = Reader(exclusive=True, load=[offset(0, 5)])
    reader.stored(1, 1, p0=5)
    reader.append(offset(0, None), gone())
    reader.append(offset(1, 6), producer=producer)
    if producer >= 0:
        reader.end(COMMIT)
    reader.catch_up(2, 2)
    reader.read(offset(1, None), at=9)
    assert reader.manager.view("g", 9).state is GroupState.EMPTY


# Deletions whose tombstones are not replicated yet: a Fetch that was sent after the reply ends before them.


def deletes(reader: Reader, at: float, *partitions: tuple[str, int]) -> None:
    reader.manager.apply([OffsetsDeleted(group_id="g", sent_at=at, partitions=partitions)], at)


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_deleted_offset_does_not_come_back_before_its_tombstone_was_read(exclusive: bool) -> None:
    reader = Reader(exclusive=exclusive, load=[offset(0, 5), offset(1, 6)])
    deletes(reader, 1, T0)
    assert reader.offsets(1) == {T1: 6}
    for at in (2, 3, 40):
        reader.catch_up(at, at)
        assert reader.offsets(at) is Lacking.IN_DOUBT
    reader.read(offset(1, 7), at=41)
    assert reader.offsets(41) is Lacking.IN_DOUBT
    reader.read(offset(0, None), at=42)
    assert reader.offsets(42) == {T1: 7}
    assert not reader.log.awaited


def test_nothing_is_awaited_of_an_offset_that_was_not_there() -> None:
    reader = Reader(load=[offset(1, 6)])
    deletes(reader, 1, T0)
    reader.catch_up(2, 2)
    assert (reader.offsets(2), bool(reader.log.awaited)) == ({T1: 6}, False)


def test_a_commit_after_the_deletion_counts() -> None:
    reader = Reader(load=[offset(0, 5)])
    deletes(reader, 1, T0)
    reader.catch_up(2, 2)
    reader.stored(3, 3.5, p0=8)
    assert reader.offsets(3.5) == {T0: 8}
    reader.read(offset(0, None), offset(0, 8), at=4)
    assert (reader.offsets(4), bool(reader.log.awaited)) == ({T0: 8}, False)


def test_a_deletion_of_what_was_committed_and_deleted_before_has_a_tombstone_of_its_own() -> None:
    reader = Reader(load=[offset(0, 5)])
    deletes(reader, 1, T0)
    reader.stored(1.1, 1.2, p0=8)
    deletes(reader, 1.5, T0)
    reader.read(offset(0, None), offset(0, 8), at=2)
    assert reader.offsets(2) is Lacking.IN_DOUBT
    reader.read(offset(0, None), at=3)
    assert reader.offsets(3) == {}


def test_a_commit_that_was_not_read_when_its_deletion_passed_by() -> None:
    reader = Reader()
    deletes(reader, 1, T0)
    reader.read(offset(0, 5), at=2)
    assert reader.offsets(2) is Lacking.IN_DOUBT
    reader.read(offset(0, None), at=3)
    assert reader.offsets(3) == {}


@pytest.mark.parametrize("tombstone", [gone(), offset(0, None)])
def test_a_deleted_group_does_not_come_back_before_its_tombstones_were_read(tombstone: Entry) -> None:
    reader = Reader(load=[generation(4), offset(0, 5)])
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=1)], 1)
    for at in (2, 3):
        reader.read(offset(0, 1, group="other"), at=at)
        assert reader.offsets(at) is Lacking.IN_DOUBT
        assert reader.manager.existing("g", at) is None
    reader.read(tombstone, *([gone()] if tombstone[0] != gone()[0] else [offset(0, None)]), at=4)
    assert (reader.offsets(4), bool(reader.log.awaited)) == ({}, False)


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_commit_stays_while_the_log_of_its_deleted_group_is_held_back(exclusive: bool) -> None:
    """The wire tells something more between two reads, so the log is held back longer than it takes to be read."""
    reader = Reader(exclusive=exclusive, load=[offset(0, 5)])
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=1.0)], 1.0)
    reader.stored(1.2, 1.3, p1=6)
    reader.stored(1.5, 1.6, p0=7)
    reader.read(offset(1, 6), at=1.4)
    assert reader.offsets(1.6) is Lacking.IN_DOUBT  # Another client may have made the group again.
    assert reader.shown(1.6) == {T0: 7, T1: 6}, "metrics and pages show the commit meanwhile"
    reader.read(offset(0, 7), at=2)
    assert reader.offsets(2) == {T0: 7, T1: 6}
    assert not reader.log.awaited


def test_no_tombstone_is_awaited_of_a_group_that_the_broker_did_not_have() -> None:
    reader = Reader()
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=1.0, existed=False)], 1.0)
    assert not reader.log.awaited
    reader.read(offset(0, 5), at=2)
    assert reader.offsets(2) == {T0: 5}


def test_a_deletion_that_has_no_tombstone_has_a_way_back() -> None:
    """Of an offset that the broker did not have. Others, unseen, commit it before the log is read."""
    reader = Reader(load=[offset(1, 6)])
    deletes(reader, 1, T0)
    reader.read(offset(0, 9), at=2)
    assert reader.offsets(2) is Lacking.IN_DOUBT
    reader.catch_up(1 + AWAITED_SECONDS, 1 + AWAITED_SECONDS)
    assert reader.offsets(1 + AWAITED_SECONDS) == {T0: 9, T1: 6}


def test_a_commit_ends_the_wait_for_a_tombstone_that_never_was() -> None:
    reader = Reader(exclusive=True, load=[offset(1, 6)])
    deletes(reader, 1, T0)
    reader.stored(1.1, 1.2, p0=9)
    reader.read(offset(0, 9), at=2)
    assert reader.offsets(2) == {T0: 9, T1: 6}


def test_a_group_that_was_deleted_and_made_anew_is_read() -> None:
    reader = Reader(load=[generation(4), offset(0, 5)])
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=1)], 1)
    reader.read(offset(0, None), gone(), offset(1, 7), at=2)
    assert reader.offsets(2) == {T1: 7}


def test_a_partition_that_is_read_anew_awaits_nothing() -> None:
    """A new leader may never have had the tombstone."""
    reader = Reader(load=[offset(0, 5)])
    deletes(reader, 1, T0)
    reader.log = reader.follower.begin_load(0, 4, 0, 2)
    reader.read(offset(0, 5), at=3)
    assert reader.offsets(3) == {T0: 5}


def sizes(reader: Reader) -> dict[str, int]:
    """Entries of the tables of deletions."""
    names = ("deleted_groups_ahead_of_log", "awaited_tombstones")
    return {table.name: table.entries for table in reader.manager.tables() if table.name in names}


@pytest.mark.parametrize("existed", [True, False])
def test_deletions_ahead_of_the_log_are_bounded(existed: bool) -> None:
    """A follower of a broker before 4.0 lags, and a client deletes groups all the while, by long names too."""
    reader = Reader()
    names = [f"g{number}" for number in range(2 * MOST_DELETIONS)] + [f"{'x' * 30_000}{n}" for n in range(100)]
    for name in names:
        reader.manager.apply([GroupDeleted(group_id=name, sent_at=1, existed=existed)], 1)
        deletes(reader, 1, T0)
    assert max(sizes(reader).values()) <= MOST_DELETIONS
    tables = {table.name: table.bytes for table in reader.manager.tables()}
    assert max(tables[name] for name in sizes(reader)) <= DELETION_BYTES


@pytest.mark.parametrize("exclusive", [False, True])
def test_evicted_deletion_leaves_all_groups_to_the_broker(exclusive: bool) -> None:
    """The log still has the group, and nobody remembers that it was deleted."""
    reader = Reader(exclusive=exclusive, load=[generation(4), offset(0, 5), offset(0, 6, group="h")])
    names = ["g", *(f"d{number}" for number in range(MOST_DELETIONS))]
    reader.manager.apply([GroupDeleted(group_id=name, sent_at=1) for name in names], 1)
    reader.read(offset(0, 1, group="other"), at=2)
    assert [reader.offsets(2), reader.offsets(2, "h")] == [Lacking.IN_DOUBT] * 2
    reader.read(offset(0, None), gone(), at=3)
    reader.catch_up(1 + AWAITED_SECONDS, 1 + AWAITED_SECONDS)
    assert [reader.offsets(1 + AWAITED_SECONDS, name) for name in "gh"] == [{}, {T0: 6}]
    assert set(sizes(reader).values()) == {0}


def test_evicted_deletion_leaves_the_list_to_the_broker() -> None:
    reader = Reader(exclusive=True)
    reader.stored(0.1, 0.2, p0=5)
    reader.read(offset(0, 5), at=0.5)
    assert reader.manager.listing_lacking(0.5) is None
    names = ["g", *(f"d{number}" for number in range(MOST_DELETIONS))]
    reader.manager.apply([GroupDeleted(group_id=name, sent_at=1) for name in names], 1)
    reader.catch_up(2, 2)
    assert reader.manager.listing_lacking(2) is Lacking.IN_DOUBT
    reader.read(offset(0, None), gone(), at=3)
    reader.catch_up(1 + AWAITED_SECONDS, 1 + AWAITED_SECONDS)
    assert reader.manager.listing_lacking(1 + AWAITED_SECONDS) is None


def test_evicted_deletions_of_offsets_leave_all_groups_to_the_broker() -> None:
    reader = Reader(load=[offset(0, 5)])
    deletes(reader, 1, T0)
    for number in range(MOST_DELETIONS):
        reader.manager.apply([OffsetsDeleted(group_id=f"d{number}", sent_at=1, partitions=(T0,))], 1)
    assert sizes(reader)["awaited_tombstones"] == MOST_DELETIONS
    reader.catch_up(2, 2)
    assert reader.offsets(2) is Lacking.IN_DOUBT
    reader.read(offset(0, None), at=3)
    reader.catch_up(1 + AWAITED_SECONDS, 1 + AWAITED_SECONDS)
    assert reader.offsets(1 + AWAITED_SECONDS) == {}


def test_read_and_forgotten_tombstones_leave_nothing() -> None:
    reader = Reader(load=[generation(4), offset(0, 5), offset(1, 6)])
    deletes(reader, 1, T0, T1)
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=1)], 1)
    assert sizes(reader) == {"deleted_groups_ahead_of_log": 1, "awaited_tombstones": 3}
    reader.read(offset(0, None), offset(1, None), gone(), at=2)
    assert set(sizes(reader).values()) == {0}
    assert reader.log.awaited.bytes == 0


# Leadership.


def test_a_stale_leader_epoch_is_ignored() -> None:
    reader = Reader(load=[offset(0, 5)])
    with pytest.raises(StaleEpoch):
        reader.follower.begin_load(0, 2, 0, 1)
    with pytest.raises(StaleEpoch):
        reader.follower.resign(0, 2, 1)
    assert reader.offsets(1) == {T0: 5}


def test_a_partition_that_comes_back_is_read_anew() -> None:
    reader = Reader(load=[offset(0, 5)])
    reader.follower.resign(0, 4, 1)
    reader.log = reader.follower.begin_load(0, 5, 0, 2)
    reader.read(offset(1, 6), at=3)
    assert reader.offsets(3) == {T1: 6}


def test_after_a_lost_connection_nothing_is_fresh_until_the_end_is_reached_again() -> None:
    reader = Reader(load=[offset(0, 5)])
    list(reader.follower.lose(1))
    assert reader.offsets(1) is Lacking.COLD
    reader.read(offset(0, 6), at=2)
    assert reader.offsets(2) == {T0: 6}


def test_a_partition_that_cannot_be_read_is_left_to_the_broker() -> None:
    reader = Reader(load=[offset(0, 5)])
    reader.follower.fail(0, "damaged", 1)
    assert reader.follower.partitions.states == {0: PartitionState.FAILED}
    assert (reader.offsets(1), reader.follower.partitions.led[0].reason) == (Lacking.COLD, "damaged")


@pytest.mark.parametrize("what", ["fails", "is read anew", "has other neighbours"])
def test_a_partition_that_is_lost_does_not_take_the_joins_that_are_at_the_broker_with_it(what: str) -> None:
    reader = Reader(exclusive=True)
    for token in "ab":
        joining = Joining(
            token=token,
            member_id="",
            instance_id=None,
            client_id="c",
            client_host="/h",
            session_timeout_ms=9000,
            rebalance_timeout_ms=9000,
            protocol_type="consumer",
            protocols=(("range", b""),),
            parks=True,
        )
        reader.manager.apply([JoinSent(group_id="g", sent_at=1, joining=joining)], 1)
    if what == "fails":
        reader.follower.fail(0, "damaged", 2)
    elif what == "is read anew":
        reader.follower.begin_load(0, 3, 0, 2)
    else:
        reader.follower.count_partitions(2, 2)
    seats = reader.manager.seated("g", 2).seats
    assert (seats.parked, seats.state, seats.certain) == (2, GroupState.PREPARING_REBALANCE, False)


def test_another_number_of_partitions_forgets_them_all() -> None:
    reader = Reader(load=[offset(0, 5)])
    reader.follower.count_partitions(2, 1)
    assert (reader.follower.partitions.states, reader.manager.group_metadata_cache) == ({}, {})
    assert reader.offsets(1) is Lacking.COLD


def test_more_offsets_than_the_bound_are_not_kept() -> None:
    reader = Reader()
    reader.manager = GroupMetadataManager(exclusive=False, most_offsets=2)
    reader.follower = reader.manager.log
    reader.follower.count_partitions(1, 0)
    reader.log = reader.follower.begin_load(0, 0, 0, 0)
    reader.read(*(offset(number, 5) for number in range(3)), at=1)
    assert reader.follower.partitions.states == {0: PartitionState.FAILED}
    assert (reader.manager.overflowed, reader.offsets(1)) == (1, Lacking.COLD)


# Groups of the new protocols.


def new_group(*, member: bool = True) -> list[Entry]:
    log = Records().group(7, 7)
    return list((log.member("a").current("a", 7).target("a") if member else log).records.items())


def heartbeat(*, changes: bool, at: float) -> ConsumerMemberSeen:
    return ConsumerMemberSeen(
        group_id="g",
        sent_at=at,
        member_id="a",
        instance_id=None,
        epoch=7,
        client_id="c",
        client_host="/h",
        changes=changes,
    )


def test_all_that_is_told_of_a_group_of_the_new_protocol_is_in_the_log() -> None:
    reader = Reader(load=[*new_group(), offset(0, 5)])
    view = reader.manager.view("g", 1)
    assert (view.kind, view.state, view.lacking) == (GroupKind.CONSUMER, GroupState.STABLE, None)
    assert [member.member_id for member in view.members] == ["a"]
    assert (reader.manager.consumer_lacking("g", 1), reader.offsets(1)) == (None, {T0: 5})
    assert reader.manager.consumer_lacking("nope", 1) is Lacking.COLD, "a classic one may be joining for the first time"


def test_a_heartbeat_that_changes_something_is_waited_for() -> None:
    reader = Reader(load=new_group())
    reader.manager.apply([heartbeat(changes=False, at=1)], 1)
    assert reader.manager.consumer_lacking("g", 1) is None
    reader.manager.apply([heartbeat(changes=True, at=2)], 2)
    assert reader.manager.consumer_lacking("g", 2) is Lacking.IN_DOUBT
    reader.catch_up(1.5, 2.5)
    assert reader.manager.consumer_lacking("g", 2.5) is Lacking.IN_DOUBT, "it was asked for before"
    reader.read(*new_group(member=False), (Records().member("a").records.popitem()[0], None), at=3)
    assert reader.manager.consumer_lacking("g", 3) is None
    assert reader.manager.view("g", 3).state is GroupState.EMPTY


def test_a_classic_group_becomes_one_of_the_new_protocol_and_back() -> None:
    reader = Reader(load=[generation(4), offset(0, 5)])
    assert reader.manager.view("g", 1).kind is GroupKind.CLASSIC
    reader.read(gone(), *new_group(), at=1)
    assert reader.manager.view("g", 1).kind is GroupKind.CONSUMER
    reader.read(*((key, None) for key, _ in new_group()), generation(8), at=2)
    view = reader.manager.view("g", 2)
    assert (view.kind, view.generation, view.consumer) == (GroupKind.CLASSIC, 8, None)


def test_a_group_with_members_that_becomes_classic_is_in_doubt_until_the_broker_was_asked() -> None:
    """The last member of the new protocol was fenced: the broker prepares a rebalance that the log does not mention."""
    reader = Reader(exclusive=True, load=new_group())
    reader.manager.apply([heartbeat(changes=True, at=1)], 1)
    reader.catch_up(1.5, 1.5)
    assert reader.manager.consumer_lacking("g", 1.5) is None
    left = MemberMetadata(
        member_id="b", client_id="c", client_host="/h", session_timeout=15_000, subscription=b"", assignment=b""
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=8, protocol="range", leader="b", members=(left,))
    classic = encode_key(KeyType.GROUP_METADATA, GroupKey(group_id="g")), encode_value(value, 3)
    reader.read(*((key, None) for key, _ in new_group()), classic, at=2)
    view = reader.manager.view("g", 2)
    assert (view.kind, view.lacking) == (GroupKind.CLASSIC, Lacking.IN_DOUBT)
    assert in_doubt(reader.manager) == ["g"]
    reader.catch_up(3, 3)
    assert reader.manager.group_lacking("g", 3) is Lacking.IN_DOUBT
    here = DescribedMember(
        member_id="b", instance_id=None, client_id="c", client_host="/h", metadata=b"", assignment=b""
    )
    told = GroupDescribed(
        group_id="g",
        sent_at=3,
        state=GroupState.PREPARING_REBALANCE,
        protocol_type="consumer",
        protocol="",
        members=(here,),
        as_of=reader.manager.changes_of("g")[0],
    )
    reader.manager.apply([told], 3)
    assert reader.manager.view("g", 3).state is GroupState.PREPARING_REBALANCE
    assert reader.manager.group_lacking("g", 3) is Lacking.IN_DOUBT


def test_a_group_of_the_new_protocol_that_is_deleted_is_gone_before_the_reply_comes() -> None:
    reader = Reader(exclusive=True, load=[*new_group(), offset(0, 5)])
    reader.manager.apply([heartbeat(changes=True, at=1)], 1)
    reader.append(*((key, None) for key, _ in new_group()), offset(0, None))
    reader.catch_up(0.9, 1.2)
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=1.1)], 1.3)
    for at in (1.5, 2):
        reader.catch_up(at, at)
        assert (reader.manager.view("g", at).state, reader.offsets(at)) == (GroupState.DEAD, {})


@pytest.mark.parametrize(
    ("member_id", "epoch", "fits"),
    [(None, -1, True), ("a", 7, True), ("a", 6, False), ("b", 7, False), (None, 7, False)],
)
def test_who_fetches_offsets_as_a_member_must_be_one(member_id: str | None, epoch: int, fits: bool) -> None:
    reader = Reader(load=[*new_group(), offset(0, 5), offset(0, 6, "classic")])
    for group, answered in (("g", fits), ("classic", True)):
        asked = OffsetFetchRequestGroup(group_id=group, member_id=member_id, member_epoch=epoch, topics=None)
        found = lacking(OffsetFetchRequest(groups=(asked,)), 9, reader.manager, 1)
        assert found is (None if answered else Lacking.VERSION)


# In place of a broker that cannot answer.


def test_a_coordinator_says_why_it_does_not_answer() -> None:
    reader = Reader(load=[offset(0, 5)])
    assert reader.manager.view("g", 1).error_code == ErrorCode.NONE
    assert reader.manager.view("g", 1 + FRESH_SECONDS).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    reader.follower.begin_load(0, 3, 0, 2)
    assert reader.manager.view("g", 2).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    reader.follower.resign(0, 4, 3)
    assert reader.manager.view("g", 3).error_code == ErrorCode.NOT_COORDINATOR


def test_members_are_told_in_the_order_in_which_the_broker_last_told_them() -> None:
    def records(epoch: int) -> list[Entry]:
        return list(Records().group(epoch, epoch).member("a").current("a", epoch).member("b").records.items())

    def told(*members: str) -> ConsumerGroupDescribed:
        as_of = reader.manager.changes_of("g")[0]
        return ConsumerGroupDescribed(
            group_id="g", sent_at=1, assignor="uniform", explained=False, members=members, as_of=as_of
        )

    def order() -> list[str] | None:
        view = reader.manager.view("g", 2).consumer
        assert view is not None
        return [member.member_id for member in view.members] if view.ordered else None

    reader = Reader(load=records(7))
    assert order() is None
    reader.manager.apply([told("b", "a", "c")], 1)
    assert order() is None, "it is not of these members"
    reader.manager.apply([told("b", "a")], 1)
    assert (order(), reader.manager.default_assignor) == (["b", "a"], "uniform")
    reader.read(*records(8), at=2)
    assert order() == ["b", "a"]
    key, _ = next(iter(Records().member("b").records.items()))
    reader.read((key, None), *Records().member("c").records.items(), at=2)
    assert order() is None


def test_a_commit_that_a_deletion_has_overtaken_may_be_gone_with_it() -> None:
    reader = Reader(exclusive=True)
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=1.0)], 1.2)
    reader.stored(1.1, 1.3, t0=5)
    assert reader.offsets(1.3) is Lacking.IN_DOUBT
    reader.read(offset(0, 5), at=1.4)
    assert reader.offsets(1.4) == {T0: 5}


@pytest.mark.parametrize(("existed", "told"), [(False, {T0: 5}), (True, Lacking.IN_DOUBT)])
def test_a_group_made_around_the_sidecar_after_its_deletion_is_not_answered_as_gone(
    existed: bool, told: dict[tuple[str, int], int] | Lacking
) -> None:
    reader = Reader()
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=1.0, existed=existed)], 1.1)
    assert reader.offsets(1.1) == {}
    reader.read(offset(0, 5), at=1.2)
    assert reader.offsets(1.2) == told
    for at in (1.3, 1.2 + AWAITED_SECONDS):
        reader.catch_up(at, at)
    assert reader.offsets(1.2 + AWAITED_SECONDS) == {T0: 5}


def test_a_group_that_may_be_gone_is_not_told_of_as_one_of_another_kind() -> None:
    reader = Reader(exclusive=True)
    reader.read(offset(0, 5), at=1)
    assert reader.manager.consumer_lacking("g", 1) is None
    reader.stored(1.1, 1.2, t0=6)
    reader.append(offset(0, None))
    list(reader.follower.follow(0, 1, 1.3))
    assert reader.manager.consumer_lacking("g", 1.3) is Lacking.IN_DOUBT
