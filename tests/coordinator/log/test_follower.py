"""How the copy applies the log's records of offsets and groups, and combines them with exchanges on the wire."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from uuid import UUID

import pytest

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from group_sidecar.codecs.offsets_topic import GroupKey, KeyType, OffsetCommitKey, encode_key, encode_value
from group_sidecar.codecs.offsets_topic_values import GroupMetadataValue, MemberMetadata, OffsetCommitValue
from group_sidecar.coordinator.answer_requirements import fallback_reason
from group_sidecar.coordinator.log.follower import GROUPS_PER_MERGE_STEP
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.events import (
    NEVER,
    ConsumerGroupDescribed,
    ConsumerMemberSeen,
    DescribedMember,
    Event,
    GroupDeleted,
    GroupDescribed,
    JoiningMember,
    JoinSent,
    MemberSeen,
    NotCoordinatorReplied,
    OffsetsDeleted,
    OffsetsLearned,
    OffsetsPending,
    OffsetsStored,
    RebalanceSeen,
    ReplyLost,
)
from group_sidecar.coordinator.model.facts import (
    Departure,
    MemberGone,
    MemberJoined,
    OffsetsCommitted,
    OffsetsExpired,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
)
from group_sidecar.coordinator.model.views import CommittedOffset, FallbackReason, GroupKind, GroupState
from group_sidecar.coordinator.state.awaited_tombstones import AWAITED_SECONDS, DELETION_BYTES, MAX_DELETIONS
from group_sidecar.coordinator.state.committed_offsets import CommittedOffsets
from group_sidecar.coordinator.state.log_partitions import FRESH_SECONDS, PartitionState, StaleEpoch
from group_sidecar.coordinator.state.partition_log import PartitionLog
from tests.coordinator.large_groups import joining
from tests.coordinator.log.test_consumer_group_records import Log as Records
from tests.coordinator.model import Broker
from tests.coordinator.model_log import Entry, batch
from tests.coordinator.sweeping import in_doubt, swept
from tests.coordinator.world import SESSION_MS, Client, World

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


def with_member(number: int, member_id: str = "m") -> Entry:
    """A generation with one member."""
    member = MemberMetadata(
        member_id=member_id, client_id="c", client_host="/h", session_timeout=10_000, subscription=b"", assignment=b""
    )
    value = GroupMetadataValue(
        protocol_type="consumer", generation=number, protocol="range", leader=member_id, members=(member,)
    )
    return encode_key(KeyType.GROUP_METADATA, GroupKey(group_id="g")), encode_value(value, 3)


def gone(group: str = "g") -> Entry:
    return encode_key(KeyType.GROUP_METADATA, GroupKey(group_id=group)), None


class Reader:
    """A copy of a coordinator that follows one partition of the log. `start` is the offset at which the log starts."""

    def __init__(
        self,
        *,
        exclusive: bool = False,
        load: Iterable[Entry] = (),
        max_groups: int = 100,
        max_offsets: int = 10_000,
        start: int = 0,
    ) -> None:
        self.manager = GroupMetadataManager(exclusive=exclusive, max_groups=max_groups, max_offsets=max_offsets)
        self.manager.set_existing_groups(())
        self.follower = self.manager.log
        self.follower.count_partitions(1, 0)
        self.log = self.follower.begin_load(0, 3, start, 0)
        self.append(*load)
        self.catch_up(0, 0)

    def append(self, *entries: Entry, producer: int = -1) -> None:
        """Reads the next batch of the log."""
        if not entries:
            return
        data = batch(self.log.next_offset, list(entries), producer_id=producer, transactional=producer >= 0)
        list(self.log.replay(data))

    def end(self, marker: bytes, producer: int = PRODUCER) -> None:
        """Reads the marker that ends a transaction."""
        data = batch(self.log.next_offset, [(marker, b"")], producer_id=producer, transactional=True, control=True)
        list(self.log.replay(data))

    def catch_up(self, asked_at: float, now: float) -> OffsetsExpired | None:
        """Notes that a Fetch that was sent at `asked_at` reached the end of the log."""
        list(self.follower.merge(0, now))
        return list(self.follower.end_reached(0, asked_at, now))[-1]

    def read(self, *entries: Entry, at: float) -> OffsetsExpired | None:
        """Reads new records up to the end of the log."""
        self.append(*entries)
        return self.catch_up(at, at)

    def offsets(self, at: float, group: str = "g") -> dict[tuple[str, int], int] | FallbackReason:
        """Returns the offsets that the copy would answer, or the reason why it would not."""
        view = self.manager.view(group, at)
        return view.offsets_fallback_reason or {partition: each.offset for partition, each in view.offsets.items()}

    def shown(self, at: float) -> dict[tuple[str, int], int]:
        """Returns the offsets in metrics and pages, even if the copy is in doubt."""
        return {partition: each.offset for partition, each in self.manager.view("g", at).offsets.items()}

    def stored(self, sent_at: float, now: float, **offsets: int) -> None:
        """Applies a commit that the wire showed."""
        stored = {("t", int(name[1:])): CommittedOffset(value, 1, "m", now) for name, value in offsets.items()}
        self.manager.apply([OffsetsStored(group_id="g", sent_at=sent_at, offsets=stored)], now)


# Loading and tailing.


def test_loaded_member_session_restarts() -> None:
    """The session of a member loaded from the log starts at the load, and it expires after one session timeout."""
    reader = Reader(exclusive=True)
    reader.read(with_member(3), at=100)
    assert swept(reader.manager, 109) == []
    assert reader.manager.view("g", 109).fallback_reason is not None, (
        "the member's last request was not seen, so its session may have expired"
    )
    assert [fact.how for fact in swept(reader.manager, 111) if isinstance(fact, MemberGone)] == [Departure.EXPIRED]


@pytest.mark.parametrize("producer", [-1, PRODUCER])
@pytest.mark.parametrize(
    "key", [b"\0\1\0\1g", b"\0\1\0\1g\0\1t\0\0\0", b"\0\1\0\6\0\1g\0\1t\0\0\0\1", b"\0\1\0\1g\xff\xff\0"]
)
def test_offset_with_cut_off_key_is_skipped(producer: int, key: bytes) -> None:
    """An offset whose key ends early is counted and skipped, and the group's other offsets are read (found by the
    fuzzer).
    """
    reader = Reader(exclusive=True)
    value = offset(0, 5)[1]
    reader.append((key, value), producer=producer)
    reader.read(offset(0, 5), at=100)
    assert reader.log.skipped[-1] == 1
    assert reader.offsets(101) == {T0: 5}
    assert {*reader.manager.group_metadata_cache} == {"g"}


@pytest.mark.parametrize("kind", KeyType)
def test_record_with_cut_off_key_adds_no_group(kind: KeyType) -> None:
    """A record whose key ends within the id of its group, or an offset without a topic, is counted and skipped."""
    reader = Reader(exclusive=True)
    cut_off = int(kind).to_bytes(2, "big") + b"\0\5g"
    reader.read((cut_off, b"value"), (b"\0\1\0\1g\0\5t", b"value"), at=100)
    assert reader.log.skipped[-1] == 2
    assert {*reader.manager.group_metadata_cache} == set()


@pytest.mark.parametrize("producer", [-1, PRODUCER])
@pytest.mark.parametrize("lengths", [(0x8000, 1), (1, 0x8000)])
def test_key_with_negative_length_is_skipped(producer: int, lengths: tuple[int, int]) -> None:
    """An offset whose key has a negative length is counted and skipped, even if it would fit as an unsigned length."""
    reader = Reader(exclusive=True)
    group, topic = (length.to_bytes(2, "big") + b"g" * length for length in lengths)
    reader.append((b"\0\1" + group + topic + bytes(4), offset(0, 5)[1]), producer=producer)
    reader.read(offset(0, 5), at=100)
    assert reader.log.skipped[-1] == 1
    assert reader.offsets(101) == {T0: 5}
    assert {*reader.manager.group_metadata_cache} == {"g"}


@pytest.mark.parametrize("producer", [-1, PRODUCER])
def test_bytes_after_key_are_ignored(producer: int) -> None:
    """An offset whose key has further bytes replaces the offset of the same partition, as in Kafka."""
    reader = Reader(exclusive=True)
    key, value = offset(0, 6)
    reader.read(offset(0, 5), at=100)
    reader.append((key + b"more", value), producer=producer)
    if producer == PRODUCER:
        reader.end(COMMIT)
    reader.read(at=200)
    assert reader.offsets(201) == {T0: 6}
    assert reader.log.skipped[-1] == 0


def test_no_expiry_while_broker_is_away() -> None:
    """No session expires between a lost connection and the next read of the log, because members may use another
    broker.
    """
    reader = Reader(exclusive=True)
    member = MemberMetadata(
        member_id="m", client_id="c", client_host="/h", session_timeout=10_000, subscription=b"", assignment=b""
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=3, protocol="range", leader="m", members=(member,))
    reader.read((encode_key(KeyType.GROUP_METADATA, GroupKey(group_id="g")), encode_value(value, 3)), at=100)
    list(reader.follower.connection_lost(101))
    assert (swept(reader.manager, 200), reader.manager.refresh("g", 200)) == ([], [])
    assert len(reader.manager.view("g", 200).members) == 1
    reader.catch_up(201, 201)
    assert [type(fact) for fact in swept(reader.manager, 202)] == [MemberGone]


def test_loading_log_answers_nothing() -> None:
    """A loading partition answers no offsets before the end of the log is reached."""
    reader = Reader()
    reader.log = reader.follower.begin_load(0, 3, 0, 1)
    reader.append(offset(0, 5))
    assert reader.follower.partitions.states == {0: PartitionState.LOADING}
    assert reader.offsets(1) is FallbackReason.COLD
    list(reader.follower.merge(0, 1))
    assert reader.offsets(1) is FallbackReason.COLD
    list(reader.follower.end_reached(0, 1, 1))
    assert reader.follower.partitions.states == {0: PartitionState.OWNED}
    assert reader.offsets(1) == {T0: 5}
    assert reader.offsets(1, "nope") == {}


def test_stale_log_falls_back() -> None:
    """If the log was not read for more than FRESH_SECONDS, the fallback reason is STALE until the next read."""
    reader = Reader(load=[offset(0, 5)])
    assert reader.offsets(FRESH_SECONDS) == {T0: 5}
    assert reader.offsets(FRESH_SECONDS + 1) is FallbackReason.STALE
    reader.catch_up(FRESH_SECONDS + 1, FRESH_SECONDS + 1)
    assert reader.offsets(FRESH_SECONDS + 1) == {T0: 5}


def test_tombstone_removes_offset() -> None:
    """A tombstone removes an offset, and a later record sets the offset again."""
    reader = Reader(load=[offset(0, 5), offset(1, 6), offset(0, None), offset(1, 7)])
    assert reader.offsets(1) == {T1: 7}
    reader.read(offset(0, 8), at=1)
    assert reader.offsets(1) == {T0: 8, T1: 7}


def test_log_values_are_decoded() -> None:
    """Offsets from the log have their leader epoch, metadata and timestamp, and a partition without a record raises
    KeyError.
    """
    reader = Reader(load=[offset(0, 5), offset(1, 6, expires=True)])
    view = reader.manager.view("g", 1)
    assert view.offsets[T0] == CommittedOffset(5, 1, "m", 5.0)
    assert view.offsets[T1] == CommittedOffset(6, -1, "m", 5.0)
    assert (len(view.offsets), set(view.offsets), view.state) == (2, {T0, T1}, GroupState.EMPTY)
    with pytest.raises(KeyError):
        view.offsets["t", 2]


def test_repeated_batch_is_read_once() -> None:
    """A batch that starts before the requested offset and was read already is not applied again."""
    log = PartitionLog(0)
    both = batch(0, [offset(0, 5)]) + batch(1, [offset(0, 6)])
    list(log.replay(both))
    list(log.replay(both + batch(2, [offset(1, 7)])))
    assert (log.next_offset, log.records, len(log.groups[b"g"].offsets)) == (3, 3, 2)


def test_unknown_keys_are_counted() -> None:
    """Records with unknown or malformed keys are skipped and counted by key type."""
    reader = Reader(load=[(b"\0\x63\0\1g", b"\0\0"), (b"\0", b""), offset(0, 5)])
    assert dict(reader.log.skipped) == {99: 1, -1: 1}
    assert reader.offsets(1) == {T0: 5}


def test_invalid_utf8_group_id_matches_broker() -> None:
    """A group id with invalid UTF-8 bytes maps to the replacement character, as at the broker."""
    odd = b"\0\1\0\1\xff\0\1t\0\0\0\0"
    _, value = offset(0, 5)
    _, other = offset(1, 6)
    reader = Reader(load=[offset(0, 4, "\ufffd"), (odd, value), offset(1, 6, "\ufffd"), (odd, other)])
    assert list(reader.log.groups) == ["\ufffd".encode()]
    assert reader.offsets(1, "\ufffd") == {T0: 6, T1: 6}


def test_damage_keeps_earlier_batches() -> None:
    """A damaged batch raises DecodeError, and the batches before it are kept."""
    log = PartitionLog(0)
    damaged = bytearray(batch(0, [offset(0, 5)]) + batch(1, [offset(1, 6)]))
    damaged[-3] ^= 1
    with pytest.raises(DecodeError):
        list(log.replay(bytes(damaged)))
    assert (log.next_offset, len(log.groups[b"g"].offsets)) == (1, 1)


def test_damaged_value_affects_only_its_group() -> None:
    """A damaged group metadata value makes only its own group UNDECODABLE."""
    key, _ = generation(1)
    reader = Reader(exclusive=True, load=[(key, b"\0\3\xff"), offset(0, 5, "h")])
    assert reader.manager.view("g", 1).fallback_reason is FallbackReason.UNDECODABLE
    assert reader.offsets(1, "h") == {T0: 5}


def test_log_value_has_topic_id() -> None:
    """An offset value of v4 in the log adds its topic id to the group's topics."""
    key, _ = offset(0, 5)
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=1, topic_id=UUID(int=9))
    reader = Reader(load=[(key, encode_value(value, 4)), offset(1, 6)])
    offsets = reader.manager.view("g", 1).offsets
    assert isinstance(offsets, CommittedOffsets)
    assert (offsets.topics(), offsets[T0].offset) == ({("t", UUID(int=9))}, 5)


# Transactions.


@pytest.mark.parametrize(("marker", "left"), [(COMMIT, {T0: 6, T1: 7}), (ABORT, {T0: 5})])
def test_transaction_offsets_follow_its_marker(marker: bytes, left: dict[tuple[str, int], int]) -> None:
    """Offsets of a transaction are UNSTABLE until its marker, which applies or discards them."""
    reader = Reader(load=[offset(0, 5)])
    reader.append(offset(0, 6), offset(1, 7), producer=PRODUCER)
    reader.catch_up(1, 1)
    assert reader.offsets(1) is FallbackReason.UNSTABLE
    reader.end(marker)
    reader.catch_up(1, 1)
    assert reader.offsets(1) == left


def test_later_commit_beats_earlier_transaction() -> None:
    """A commit after a transactional record keeps its value when the transaction commits later."""
    reader = Reader()
    reader.append(offset(0, 6), offset(1, 7), producer=PRODUCER)
    reader.append(offset(0, 8))
    reader.catch_up(1, 1)
    assert reader.offsets(1) is FallbackReason.UNSTABLE, "the transaction is still open"
    reader.end(COMMIT)
    reader.catch_up(1, 1)
    assert reader.offsets(1) == {T0: 8, T1: 7}


@pytest.mark.parametrize("first", [1, 2])
def test_later_transaction_record_wins(first: int) -> None:
    """The later record of two transactions wins, whichever transaction commits first."""
    reader = Reader()
    reader.append(offset(0, 6), producer=1)
    reader.append(offset(0, 7), producer=2)
    reader.end(COMMIT, first)
    reader.end(COMMIT, 3 - first)
    reader.catch_up(1, 1)
    assert reader.offsets(1) == {T0: 7}


def test_observed_transaction_is_pending() -> None:
    """Transactional offsets seen on the wire make the group UNSTABLE until the log has the commit marker."""
    reader = Reader()
    pending = {T0: CommittedOffset(6, 1, "m", 2)}
    reader.manager.apply([OffsetsPending(group_id="g", sent_at=1, producer_id=PRODUCER, offsets=pending)], 2)
    assert reader.offsets(2) is FallbackReason.UNSTABLE
    reader.append(offset(0, 6), producer=PRODUCER)
    reader.catch_up(3, 3)
    assert reader.offsets(3) is FallbackReason.UNSTABLE
    reader.end(COMMIT)
    reader.catch_up(4, 4)
    assert reader.offsets(4) == {T0: 6}


# Together with the wire.


def test_older_record_keeps_newer_commit() -> None:
    """In an exclusive copy, a commit counts at once and an older log record does not undo the commit."""
    reader = Reader(exclusive=True, load=[offset(0, 5)])
    reader.stored(1, 2, p0=7)
    assert reader.offsets(2) == {T0: 7}
    reader.append(offset(0, 6))
    reader.catch_up(1.5, 2.5)
    assert reader.offsets(2.5) == {T0: 7}, "the Fetch was sent before the commit was acknowledged"
    reader.append(offset(0, 7), offset(0, 8))
    reader.catch_up(2.6, 2.7)
    assert reader.offsets(2.7) == {T0: 8}, "the log now has both commits in order"


def test_shared_copy_waits_on_difference() -> None:
    """In a copy that is not exclusive, a log value that differs from a newer observed commit makes the group IN_DOUBT
    until the next read.
    """
    reader = Reader(load=[offset(0, 5)])
    reader.stored(1, 2, p0=7)
    assert reader.offsets(2) == {T0: 7}
    reader.append(offset(0, 7))
    reader.catch_up(1.5, 2.5)
    assert reader.offsets(2.5) == {T0: 7}
    reader.append(offset(0, 8))
    reader.catch_up(1.8, 2.6)
    assert reader.offsets(2.6) is FallbackReason.IN_DOUBT
    reader.catch_up(2.7, 2.8)
    assert reader.offsets(2.8) == {T0: 8}


def test_reported_offset_ahead_of_log_is_left_to_broker() -> None:
    """If the broker's reply shows a commit that the copy has not seen, no client gets the older offset afterwards."""
    reader = Reader(exclusive=True, load=[offset(0, 1)])
    reader.catch_up(1, 1)
    assert reader.offsets(1.5) == {("t", 0): 1}

    def reported(value: int, at: float) -> None:
        offsets = {("t", 0): CommittedOffset(value, 1, "m", at)}
        event = OffsetsLearned(group_id="g", sent_at=at, offsets=offsets, absent=(), complete=True, as_of=0)
        reader.manager.apply([event], at)

    reported(1, 2.0)
    assert reader.offsets(2.0) == {("t", 0): 1}
    reported(2, 2.1)
    assert reader.offsets(2.1) is FallbackReason.IN_DOUBT
    reader.catch_up(2.0, 2.2)  # This Fetch was sent before the reply arrived.
    assert reader.offsets(2.2) is FallbackReason.IN_DOUBT
    reader.read(offset(0, 2), at=2.3)
    assert reader.offsets(2.3) == {("t", 0): 2}


def test_reported_offset_is_compared_with_undecodable_value() -> None:
    """A value in the log that cannot be decoded differs from any reported offset, and hides no other difference."""
    reader = Reader(exclusive=True, load=[offset(0, 1)])
    key, value = offset(1, 1)
    assert value is not None
    reader.append((key, b"\0\x63" + value[2:]))
    reader.catch_up(1, 1)
    offsets = {T0: CommittedOffset(9, 1, "m", 2.0), T1: CommittedOffset(1, 1, "m", 2.0)}
    event = OffsetsLearned(group_id="g", sent_at=2.0, offsets=offsets, absent=(), complete=True, as_of=0)
    reader.manager.apply([event], 2.0)
    assert reader.offsets(2.1) is FallbackReason.IN_DOUBT


def test_log_orders_crossed_commits() -> None:
    """Two commits that crossed on the wire make the group IN_DOUBT until the log shows their order."""
    reader = Reader(exclusive=True)
    one, two = (CommittedOffset(value, 1, "m", 2, writer=str(value)) for value in (6, 7))
    reader.manager.apply([OffsetsStored(group_id="g", sent_at=1, offsets={T0: one})], 2)
    reader.manager.apply([OffsetsStored(group_id="g", sent_at=1.5, offsets={T0: two})], 2)
    assert reader.offsets(2) is FallbackReason.IN_DOUBT
    reader.append(offset(0, 7), offset(0, 6))
    reader.catch_up(2.5, 3)
    assert reader.offsets(3) == {T0: 6}


@pytest.mark.parametrize("exclusive", [False, True])
def test_log_completes_group_after_hand_over(exclusive: bool) -> None:
    """After a hand-over from another sidecar, the log shows the members again, unless the broker will describe them."""
    reader = Reader(load=[with_member(3), offset(0, 5)], exclusive=exclusive)
    reader.manager.begin_sharing()
    reader.manager.end_sharing(2)
    for at in (1.9, 3.0):
        list(reader.manager.sweep(at))
        assert not reader.manager.view("g", at).roster_known
        reader.catch_up(at, at)
    assert reader.manager.view("g", 3).roster_known is not exclusive


def test_loaded_generation_does_not_hide_waiting_join() -> None:
    """A join that waits while an older generation is loaded is the cause of the rebalance that is seen next."""
    reader = Reader(exclusive=True)
    reader.manager.apply([JoinSent(group_id="g", sent_at=1, joining=replace(joining(7), member_id=""))], 1)
    reader.read(with_member(3), at=5)
    seen = RebalanceSeen(group_id="g", sent_at=5.1, member_id="m", generation=3, is_heartbeat=True)
    [started] = [each for each in reader.manager.apply([seen], 5.2) if isinstance(each, RebalanceStarted)]
    assert started.cause is RebalanceCause.NEW_MEMBER


def test_load_keeps_rebalance_of_waiting_join() -> None:
    """A rebalance that began while the log was loaded keeps its cause and its beginning."""
    reader = Reader()
    reader.log = reader.follower.begin_load(0, 4, 0, 0.5)
    joined = replace(joining(7), member_id="")
    reader.manager.apply([JoinSent(group_id="g", sent_at=1, joining=joined)], 1)
    seen = RebalanceSeen(group_id="g", sent_at=2, member_id="m", generation=3, is_heartbeat=True)
    [started] = [each for each in reader.manager.apply([seen], 2) if isinstance(each, RebalanceStarted)]
    assert started.cause is RebalanceCause.NEW_MEMBER
    reader.read(with_member(3), at=5)
    assert reader.manager.view("g", 5).state is GroupState.PREPARING_REBALANCE
    group = reader.manager.group_metadata_cache["g"]
    assert group.rebalance is not None
    assert (group.rebalance.cause_details.cause, group.rebalance.started_at) == (RebalanceCause.NEW_MEMBER, 1)


def test_log_does_not_complete_rebalancing_group() -> None:
    """While a group rebalances, its log has only the members of the last generation."""
    reader = Reader(load=[with_member(3), offset(0, 5)])
    seen = RebalanceSeen(group_id="g", sent_at=1, member_id="m", generation=3, is_heartbeat=True)
    reader.manager.apply([seen], 1)
    reader.manager.note_unread_write("g")
    reader.manager.note_unread_write("g", 2)
    list(reader.manager.sweep(3))
    reader.catch_up(3, 3)
    assert not reader.manager.view("g", 3).roster_known


def test_unread_write_waits_for_log() -> None:
    """An unread write makes its group, or all groups if the group is unknown, UNDECODABLE until the log is read."""
    reader = Reader(load=[offset(0, 5), offset(0, 1, "h")])
    reader.manager.note_unread_write("g")
    reader.catch_up(2, 2)
    assert reader.offsets(2) is FallbackReason.UNDECODABLE
    assert reader.offsets(2, "h") == {T0: 1}
    reader.manager.note_unread_write("g", 3)
    reader.read(offset(0, 6), at=4)
    assert reader.offsets(4) == {T0: 6}
    reader.manager.note_unread_write(None, 5)
    assert (reader.offsets(4), reader.offsets(4, "nope")) == (FallbackReason.UNDECODABLE, FallbackReason.UNDECODABLE)
    reader.catch_up(6, 6)
    assert (reader.offsets(6), reader.offsets(6, "nope")) == ({T0: 6}, {})


def test_moved_group_is_forgotten() -> None:
    """A group whose partition was resigned is removed, and the fallback reason is COLD."""
    reader = Reader(load=[offset(0, 5)])
    reader.manager.apply([NotCoordinatorReplied(group_id="g", sent_at=1)], 1)
    reader.follower.resign(0, 4, 1)
    assert reader.offsets(1) is FallbackReason.COLD
    assert not reader.manager.group_metadata_cache


# Groups.


def moved(reader: Reader) -> None:
    reader.manager.apply([NotCoordinatorReplied(group_id="g", sent_at=1)], 1)


FIRST_SIGNS: tuple[tuple[Event, ...], ...] = (
    (),
    (OffsetsPending(group_id="g", sent_at=1.5, producer_id=7, offsets={T1: CommittedOffset(1, 1, "", 1.5)}),),
)
"""What the wire may show of a removed group before the group's next record."""


@pytest.mark.parametrize("signs", FIRST_SIGNS, ids=["record", "transaction"])
def test_returned_group_has_not_rebalanced(signs: tuple[Event, ...]) -> None:
    """A group that NOT_COORDINATOR removed returns with its next commit, without a rebalance and without new members.

    A broker that was fenced for some seconds replies NOT_COORDINATOR and then leads the same partition again.
    """
    reader = Reader(load=[with_member(3), offset(0, 5)])
    moved(reader)
    reader.manager.apply(signs, 1.5)
    reader.append(offset(0, 6))
    assert [*chain(*reader.follower.merge(0, 2))] == []
    assert reader.manager.view("g", 2).generation == 3
    assert T0 in reader.shown(2)


def member_seen(member_id: str, sent_at: float) -> MemberSeen:
    return MemberSeen(
        group_id="g",
        sent_at=sent_at,
        member_id=member_id,
        instance_id=None,
        generation=3,
        client_id="c",
        client_host="/h",
        no_rebalance=True,
    )


MEMBER_SIGNS: tuple[Event, ...] = (
    member_seen("m", 5),
    OffsetsStored(group_id="g", sent_at=5, offsets={T1: CommittedOffset(1, 1, "", 5)}),
)
"""Events that show that the broker coordinates a removed group again."""


@pytest.mark.parametrize("exclusive", [False, True], ids=["default", "exclusive"])
def test_offsets_of_moved_group_are_left_to_broker(exclusive: bool) -> None:
    """OffsetFetch for a group that NOT_COORDINATOR removed is not answered, although the log was read afterwards."""
    reader = Reader(exclusive=exclusive, load=[with_member(3), offset(0, 5)])
    moved(reader)
    reader.catch_up(2, 2)
    assert reader.offsets(2) is FallbackReason.COLD


@pytest.mark.parametrize("sign", MEMBER_SIGNS, ids=["heartbeat", "commit"])
@pytest.mark.parametrize("join_sent", [False, True], ids=["unknown", "join in flight"])
def test_moved_group_returns_with_accepted_request(sign: Event, join_sent: bool) -> None:
    """If the broker accepts a request of a group that NOT_COORDINATOR removed, the group returns with its whole state.

    No member is reported as joined.
    """
    reader = Reader(load=[with_member(3), offset(0, 5)])
    moved(reader)
    reader.catch_up(2, 2)
    if join_sent:
        reader.manager.apply([JoinSent(group_id="g", sent_at=4, joining=joining(1))], 4)
    facts = reader.manager.apply([sign], 5)
    assert [fact for fact in facts if not isinstance(fact, OffsetsCommitted)] == []
    assert [member.member_id for member in reader.manager.view("g", 5).members] == ["m"]
    offsets = reader.offsets(5)
    assert isinstance(offsets, dict)
    assert offsets[T0] == 5
    reader.append(offset(0, 6))
    assert [*chain(*reader.follower.merge(0, 6))] == []


def test_moved_group_stays_away_without_accepted_request() -> None:
    """Requests that the broker does not accept do not bring back a group that NOT_COORDINATOR removed."""
    reader = Reader(load=[with_member(3), offset(0, 5)])
    moved(reader)
    refused = OffsetsStored(group_id="g", sent_at=1, offsets={}, refused=((int(ErrorCode.NOT_COORDINATOR), 1),))
    reader.manager.apply([refused, NotCoordinatorReplied(group_id="g", sent_at=1)], 2)
    assert not reader.manager.group_metadata_cache
    tables = {table.name: table for table in reader.manager.tables()}
    assert tables["not_coordinated_groups"].entries == 1
    reader.follower.resign(0, 4, 3)
    tables = {table.name: table for table in reader.manager.tables()}
    assert tables["not_coordinated_groups"].entries == 0


def test_deleted_moved_group_is_gone() -> None:
    """A group that NOT_COORDINATOR removed and that a client then deleted does not return with its old offsets."""
    reader = Reader(load=[with_member(3), offset(0, 5)])
    moved(reader)
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=2)], 2)
    reader.manager.apply([OffsetsStored(group_id="g", sent_at=3, offsets={T1: CommittedOffset(1, 1, "", 3)})], 3)
    assert reader.shown(3) == {T1: 1}


def test_member_seen_before_load_has_not_joined() -> None:
    """A heartbeat that the broker accepts before its log is loaded again does not report its member as joined.

    The broker was fenced, and another broker may have led the partition meanwhile.
    """
    reader = Reader(load=[with_member(3), offset(0, 5)])
    reader.follower.resign(0, 4, 1)
    assert reader.manager.apply([member_seen("m", 2)], 2) == []
    reader.log = reader.follower.begin_load(0, 5, 0, 3)
    assert reader.manager.apply([member_seen("m", 4), member_seen("other", 4)], 4) == []
    reader.read(with_member(3), offset(0, 5), at=5)
    [joined] = reader.manager.apply([member_seen("third", 6)], 6)
    assert isinstance(joined, MemberJoined)
    assert joined.member_id == "third"


def test_join_before_load_is_reported() -> None:
    """A KIP-848 join that the broker accepts before its log is loaded again is reported, and a heartbeat is not."""
    reader = Reader(load=[offset(0, 5)])
    reader.log = reader.follower.begin_load(0, 4, 0, 1)
    joined = heartbeat(changes=True, at=3, is_join=True)
    assert reader.manager.apply([heartbeat(changes=True, at=2, member_id="b")], 2) == []
    assert [type(fact) for fact in reader.manager.apply([joined], 3)] == [MemberJoined]


def test_next_generation_of_returned_group_is_new() -> None:
    """After its return, the next generation of a group is a rebalance with new members."""
    reader = Reader(load=[with_member(3), offset(0, 5)])
    moved(reader)
    reader.append(offset(0, 6))
    assert [*chain(*reader.follower.merge(0, 2))] == []
    reader.append(with_member(4, "another"))
    kinds = [type(fact) for fact in chain(*reader.follower.merge(0, 3))]
    assert kinds == [MemberGone, MemberJoined, RebalanceStarted, RebalanceCompleted]


@pytest.mark.parametrize("recreated", [True, False], ids=["created again", "moved"])
def test_new_generation_of_unknown_group_is_new(recreated: bool) -> None:
    """If NOT_COORDINATOR has removed a group and no request has brought it back, its next generation is a rebalance."""
    reader = Reader(load=[with_member(3), offset(0, 5)])
    moved(reader)
    reader.append(*([gone(), offset(0, None)] if recreated else []), with_member(1 if recreated else 4))
    kinds = [type(fact) for fact in chain(*reader.follower.merge(0, 2))]
    assert kinds == [MemberJoined, RebalanceStarted, RebalanceCompleted]


def test_loaded_groups_have_generation() -> None:
    """Loaded groups are Empty with the logged generation and type. Their fallback reason is NOT_EXCLUSIVE, unless the
    copy is exclusive.
    """
    reader = Reader(load=[generation(4), offset(0, 5, "simple")])
    view = reader.manager.view("g", 1)
    assert (view.state, view.generation, view.protocol_type) == (GroupState.EMPTY, 4, "consumer")
    assert view.fallback_reason is FallbackReason.NOT_EXCLUSIVE, "other clients may join without this sidecar"
    assert reader.manager.view("simple", 1).state is GroupState.EMPTY


def test_exclusive_copy_doubts_loaded_groups() -> None:
    """An exclusive copy needs the broker's description of a loaded group, but not of a group that appears later."""
    reader = Reader(exclusive=True, load=[generation(4), offset(0, 5)])
    assert (reader.manager.view("g", 1).fallback_reason, in_doubt(reader.manager)) == (FallbackReason.IN_DOUBT, ["g"])
    reader.read(generation(1, "new"), at=2)
    assert in_doubt(reader.manager) == ["g"]


def test_tombstone_ends_group() -> None:
    """A group tombstone removes the group and its log entries."""
    reader = Reader(load=[generation(4), offset(0, 5)])
    reader.read(offset(0, None), gone(), at=2)
    assert not reader.manager.group_metadata_cache
    assert reader.offsets(2) == {}
    assert not reader.log.groups


def test_expired_offsets_are_counted() -> None:
    """Tombstones that no observed deletion explains count as expired offsets."""
    reader = Reader(load=[offset(number, 5) for number in range(4)])
    expired = reader.read(offset(0, None), offset(1, None), at=2)
    assert expired is not None
    assert (expired.count, reader.follower.expired) == (2, 2)
    assert reader.read(offset(2, 6), at=3) is None


def test_tombstones_before_load_are_no_expiry() -> None:
    """Tombstones that the load reads do not count as expired offsets. Tombstones after a lost connection count."""
    deleted = [*(offset(number, 5) for number in range(3)), offset(0, None), offset(1, None)]
    reader = Reader(load=[*deleted, offset(0, 7, "h"), offset(0, None, "h"), gone("h")])
    assert reader.follower.expired == 0
    list(reader.follower.connection_lost(3))
    assert reader.read(offset(2, None), at=4) == OffsetsExpired(at=4, count=1, seconds=0)
    reader.log = reader.follower.begin_load(0, 4, 0, 5)
    assert reader.read(*deleted, offset(2, None), at=6) is None
    assert reader.follower.expired == 1


def test_deletion_through_predecessor_is_no_expiry() -> None:
    """While a predecessor forwards requests too, one of these requests may explain a tombstone."""
    reader = Reader(load=[offset(0, 5), offset(1, 5)])
    reader.manager.begin_sharing()
    assert reader.read(offset(0, None), at=2) is None
    reader.manager.end_sharing(3)
    assert reader.read(offset(1, None), at=4) == OffsetsExpired(at=4, count=1, seconds=0)


@pytest.mark.parametrize("producer", [-1, PRODUCER])
def test_recreated_group_outlives_its_offsets(producer: int) -> None:
    """A group recreated after its tombstone stays as an Empty group after its last offset is deleted."""
    reader = Reader(exclusive=True, load=[offset(0, 5)])
    reader.stored(1, 1, p0=5)
    reader.append(offset(0, None), gone())
    reader.append(offset(1, 6), producer=producer)
    if producer >= 0:
        reader.end(COMMIT)
    reader.catch_up(2, 2)
    reader.read(offset(1, None), at=9)
    assert reader.manager.view("g", 9).state is GroupState.EMPTY


# Deletions whose tombstones are not replicated yet. A Fetch that was sent after the reply ends before them.


def deletes(reader: Reader, at: float, *partitions: tuple[str, int]) -> None:
    reader.manager.apply([OffsetsDeleted(group_id="g", sent_at=at, partitions=partitions)], at)


@pytest.mark.parametrize("exclusive", [False, True])
def test_deleted_offset_waits_for_tombstone(exclusive: bool) -> None:
    """A deleted offset leaves the group IN_DOUBT until its tombstone is read, and does not come back."""
    reader = Reader(exclusive=exclusive, load=[offset(0, 5), offset(1, 6)])
    deletes(reader, 1, T0)
    assert reader.offsets(1) == {T1: 6}
    for at in (2, 3, 40):
        reader.catch_up(at, at)
        assert reader.offsets(at) is FallbackReason.IN_DOUBT
    reader.read(offset(1, 7), at=41)
    assert reader.offsets(41) is FallbackReason.IN_DOUBT
    reader.read(offset(0, None), at=42)
    assert reader.offsets(42) == {T1: 7}
    assert not reader.log.awaited


def test_missing_offset_awaits_no_tombstone() -> None:
    """The deletion of an offset that does not exist awaits no tombstone."""
    reader = Reader(load=[offset(1, 6)])
    deletes(reader, 1, T0)
    reader.catch_up(2, 2)
    assert (reader.offsets(2), bool(reader.log.awaited)) == ({T1: 6}, False)


def test_commit_after_deletion_counts() -> None:
    """A commit after a deletion counts at once and stays after the tombstone is read."""
    reader = Reader(load=[offset(0, 5)])
    deletes(reader, 1, T0)
    reader.catch_up(2, 2)
    reader.stored(3, 3.5, p0=8)
    assert reader.offsets(3.5) == {T0: 8}
    reader.read(offset(0, None), offset(0, 8), at=4)
    assert (reader.offsets(4), bool(reader.log.awaited)) == ({T0: 8}, False)


def test_second_deletion_awaits_second_tombstone() -> None:
    """After a second deletion of the same offset, the group is IN_DOUBT until the second tombstone is read."""
    reader = Reader(load=[offset(0, 5)])
    deletes(reader, 1, T0)
    reader.stored(1.1, 1.2, p0=8)
    deletes(reader, 1.5, T0)
    reader.read(offset(0, None), offset(0, 8), at=2)
    assert reader.offsets(2) is FallbackReason.IN_DOUBT
    reader.read(offset(0, None), at=3)
    assert reader.offsets(3) == {}


def test_deletion_before_commit_is_read() -> None:
    """A deletion observed before its commit was read leaves the group IN_DOUBT until the tombstone is read."""
    reader = Reader()
    deletes(reader, 1, T0)
    reader.read(offset(0, 5), at=2)
    assert reader.offsets(2) is FallbackReason.IN_DOUBT
    reader.read(offset(0, None), at=3)
    assert reader.offsets(3) == {}


@pytest.mark.parametrize("tombstone", [gone(), offset(0, None)])
def test_deleted_group_waits_for_tombstones(tombstone: Entry) -> None:
    """A deleted group is IN_DOUBT and does not exist until all of its tombstones are read."""
    reader = Reader(load=[generation(4), offset(0, 5)])
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=1)], 1)
    for at in (2, 3):
        reader.read(offset(0, 1, group="other"), at=at)
        assert reader.offsets(at) is FallbackReason.IN_DOUBT
        assert reader.manager.existing("g", at) is None
    reader.read(tombstone, *([gone()] if tombstone[0] != gone()[0] else [offset(0, None)]), at=4)
    assert (reader.offsets(4), bool(reader.log.awaited)) == ({}, False)


@pytest.mark.parametrize("exclusive", [False, True])
def test_commit_stays_after_group_deletion(exclusive: bool) -> None:
    """A commit after a group deletion is visible before the tombstones are read, and is certain afterwards."""
    reader = Reader(exclusive=exclusive, load=[offset(0, 5)])
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=1.0)], 1.0)
    reader.stored(1.2, 1.3, p1=6)
    reader.stored(1.5, 1.6, p0=7)
    reader.read(offset(1, 6), at=1.4)
    assert reader.offsets(1.6) is FallbackReason.IN_DOUBT  # Another client may have created the group again.
    assert reader.shown(1.6) == {T0: 7, T1: 6}, "metrics and pages show the commit"
    reader.read(offset(0, 7), at=2)
    assert reader.offsets(2) == {T0: 7, T1: 6}
    assert not reader.log.awaited


def test_unknown_group_awaits_no_tombstone() -> None:
    """The deletion of a group that the broker did not have awaits no tombstone."""
    reader = Reader()
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=1.0, existed=False)], 1.0)
    assert not reader.log.awaited
    reader.read(offset(0, 5), at=2)
    assert reader.offsets(2) == {T0: 5}


def test_missing_tombstone_wait_times_out() -> None:
    """The wait for a tombstone that never comes ends after AWAITED_SECONDS."""
    reader = Reader(load=[offset(1, 6)])
    deletes(reader, 1, T0)
    reader.read(offset(0, 9), at=2)
    assert reader.offsets(2) is FallbackReason.IN_DOUBT
    reader.catch_up(1 + AWAITED_SECONDS, 1 + AWAITED_SECONDS)
    assert reader.offsets(1 + AWAITED_SECONDS) == {T0: 9, T1: 6}


def test_commit_ends_tombstone_wait() -> None:
    """In an exclusive copy, a commit after a deletion ends the wait for a tombstone that never existed."""
    reader = Reader(exclusive=True, load=[offset(1, 6)])
    deletes(reader, 1, T0)
    reader.stored(1.1, 1.2, p0=9)
    reader.read(offset(0, 9), at=2)
    assert reader.offsets(2) == {T0: 9, T1: 6}


def test_recreated_group_is_read() -> None:
    """A group that was deleted and recreated has only the offsets after its tombstones."""
    reader = Reader(load=[generation(4), offset(0, 5)])
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=1)], 1)
    reader.read(offset(0, None), gone(), offset(1, 7), at=2)
    assert reader.offsets(2) == {T1: 7}


def test_reload_awaits_no_tombstone() -> None:
    """A reloaded partition awaits no tombstones, because a new leader may never have had them."""
    reader = Reader(load=[offset(0, 5)])
    deletes(reader, 1, T0)
    reader.log = reader.follower.begin_load(0, 4, 0, 2)
    reader.read(offset(0, 5), at=3)
    assert reader.offsets(3) == {T0: 5}


def sizes(reader: Reader) -> dict[str, int]:
    """Returns the number of entries in the tables of deletions."""
    names = ("deleted_groups_ahead_of_log", "awaited_tombstones")
    return {table.name: table.entries for table in reader.manager.tables() if table.name in names}


@pytest.mark.parametrize("existed", [True, False])
def test_deletions_ahead_of_log_are_bounded(existed: bool) -> None:
    """The tables of deletions ahead of the log stay within MAX_DELETIONS entries and DELETION_BYTES bytes."""
    reader = Reader()
    names = [f"g{number}" for number in range(2 * MAX_DELETIONS)] + [f"{'x' * 30_000}{n}" for n in range(100)]
    for name in names:
        reader.manager.apply([GroupDeleted(group_id=name, sent_at=1, existed=existed)], 1)
        deletes(reader, 1, T0)
    assert max(sizes(reader).values()) <= MAX_DELETIONS
    tables = {table.name: table.bytes for table in reader.manager.tables()}
    assert max(tables[name] for name in sizes(reader)) <= DELETION_BYTES


@pytest.mark.parametrize("exclusive", [False, True])
def test_evicted_deletion_leaves_groups_to_broker(exclusive: bool) -> None:
    """An evicted group deletion makes all groups IN_DOUBT for AWAITED_SECONDS, because the log may still contain the
    deleted group.
    """
    reader = Reader(exclusive=exclusive, load=[generation(4), offset(0, 5), offset(0, 6, group="h")])
    names = ["g", *(f"d{number}" for number in range(MAX_DELETIONS))]
    reader.manager.apply([GroupDeleted(group_id=name, sent_at=1) for name in names], 1)
    reader.read(offset(0, 1, group="other"), at=2)
    assert [reader.offsets(2), reader.offsets(2, "h")] == [FallbackReason.IN_DOUBT] * 2
    reader.read(offset(0, None), gone(), at=3)
    reader.catch_up(1 + AWAITED_SECONDS, 1 + AWAITED_SECONDS)
    assert [reader.offsets(1 + AWAITED_SECONDS, name) for name in "gh"] == [{}, {T0: 6}]
    assert set(sizes(reader).values()) == {0}


def test_evicted_deletion_leaves_list_to_broker() -> None:
    """An evicted group deletion makes the group list IN_DOUBT for AWAITED_SECONDS."""
    reader = Reader(exclusive=True)
    reader.stored(0.1, 0.2, p0=5)
    reader.read(offset(0, 5), at=0.5)
    assert reader.manager.listing_fallback_reason(0.5) is None
    names = ["g", *(f"d{number}" for number in range(MAX_DELETIONS))]
    reader.manager.apply([GroupDeleted(group_id=name, sent_at=1) for name in names], 1)
    reader.catch_up(2, 2)
    assert reader.manager.listing_fallback_reason(2) is FallbackReason.IN_DOUBT
    reader.read(offset(0, None), gone(), at=3)
    reader.catch_up(1 + AWAITED_SECONDS, 1 + AWAITED_SECONDS)
    assert reader.manager.listing_fallback_reason(1 + AWAITED_SECONDS) is None


def test_evicted_offset_deletion_doubts_groups() -> None:
    """An evicted offset deletion makes all groups IN_DOUBT for AWAITED_SECONDS."""
    reader = Reader(load=[offset(0, 5)])
    deletes(reader, 1, T0)
    for number in range(MAX_DELETIONS):
        reader.manager.apply([OffsetsDeleted(group_id=f"d{number}", sent_at=1, partitions=(T0,))], 1)
    assert sizes(reader)["awaited_tombstones"] == MAX_DELETIONS
    reader.catch_up(2, 2)
    assert reader.offsets(2) is FallbackReason.IN_DOUBT
    reader.read(offset(0, None), at=3)
    reader.catch_up(1 + AWAITED_SECONDS, 1 + AWAITED_SECONDS)
    assert reader.offsets(1 + AWAITED_SECONDS) == {}


def test_read_tombstones_free_deletion_tables() -> None:
    """Tombstones that were read leave no entries in the tables of deletions."""
    reader = Reader(load=[generation(4), offset(0, 5), offset(1, 6)])
    deletes(reader, 1, T0, T1)
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=1)], 1)
    assert sizes(reader) == {"deleted_groups_ahead_of_log": 1, "awaited_tombstones": 3}
    reader.read(offset(0, None), offset(1, None), gone(), at=2)
    assert set(sizes(reader).values()) == {0}
    assert reader.log.awaited.bytes == 0


# Leadership.


def test_a_stale_leader_epoch_is_ignored() -> None:
    """A load or resignation with an older leader epoch raises StaleEpoch and changes nothing."""
    reader = Reader(load=[offset(0, 5)])
    with pytest.raises(StaleEpoch):
        reader.follower.begin_load(0, 2, 0, 1)
    with pytest.raises(StaleEpoch):
        reader.follower.resign(0, 2, 1)
    assert reader.offsets(1) == {T0: 5}


def test_returning_partition_is_reloaded() -> None:
    """A partition that returns after a resignation is loaded again without its old offsets."""
    reader = Reader(load=[offset(0, 5)])
    reader.follower.resign(0, 4, 1)
    reader.log = reader.follower.begin_load(0, 5, 0, 2)
    reader.read(offset(1, 6), at=3)
    assert reader.offsets(3) == {T1: 6}


def test_lost_connection_makes_partitions_cold() -> None:
    """After a lost connection, the group is COLD until the end of the log is reached again."""
    reader = Reader(load=[offset(0, 5)])
    list(reader.follower.connection_lost(1))
    assert reader.offsets(1) is FallbackReason.COLD
    reader.read(offset(0, 6), at=2)
    assert reader.offsets(2) == {T0: 6}


def test_failed_partition_falls_back() -> None:
    """Groups of a failed partition have the fallback reason COLD, and the partition keeps its own reason."""
    reader = Reader(load=[offset(0, 5)])
    reader.follower.fail(0, "damaged", 1)
    assert reader.follower.partitions.states == {0: PartitionState.FAILED}
    assert (reader.offsets(1), reader.follower.partitions.leader_partitions[0].reason) == (
        FallbackReason.COLD,
        "damaged",
    )


@pytest.mark.parametrize("what", ["fails", "is read anew", "has other neighbours"])
def test_lost_partition_keeps_parked_joins(what: str) -> None:
    """A partition that fails, reloads or is recounted still counts the joins that wait at the broker."""
    reader = Reader(exclusive=True)
    for token in "ab":
        joining = JoiningMember(
            token=token,
            member_id="",
            instance_id=None,
            client_id="c",
            client_host="/h",
            session_timeout_ms=9000,
            rebalance_timeout_ms=9000,
            protocol_type="consumer",
            protocols=(("range", b""),),
            will_park=True,
        )
        reader.manager.apply([JoinSent(group_id="g", sent_at=1, joining=joining)], 1)
    if what == "fails":
        reader.follower.fail(0, "damaged", 2)
    elif what == "is read anew":
        reader.follower.begin_load(0, 3, 0, 2)
    else:
        reader.follower.count_partitions(2, 2)
    seats = reader.manager.view_with_occupancy("g", 2).occupancy
    assert (seats.parked, seats.state, seats.certain) == (2, GroupState.PREPARING_REBALANCE, False)


def test_changed_partition_count_forgets_all() -> None:
    """A changed number of partitions removes all partitions and groups."""
    reader = Reader(load=[offset(0, 5)])
    reader.follower.count_partitions(2, 1)
    assert (reader.follower.partitions.states, reader.manager.group_metadata_cache) == ({}, {})
    assert reader.offsets(1) is FallbackReason.COLD


def test_too_many_offsets_fail_partition() -> None:
    """A partition with more offsets than max_offsets fails and counts as overflowed."""
    reader = Reader(max_offsets=2)
    reader.read(*(offset(number, 5) for number in range(3)), at=1)
    assert reader.follower.partitions.states == {0: PartitionState.FAILED}
    assert (reader.manager.overflowed, reader.offsets(1)) == (1, FallbackReason.COLD)


# Groups of the new protocols.


def new_group(*, member: bool = True) -> list[Entry]:
    log = Records().group(7, 7)
    return list((log.member("a").current("a", 7).target("a") if member else log).records.items())


def heartbeat(
    *, changes: bool, at: float, content_hash: int | None = None, member_id: str = "a", is_join: bool = False
) -> ConsumerMemberSeen:
    return ConsumerMemberSeen(
        group_id="g",
        sent_at=at,
        member_id=member_id,
        is_join=is_join,
        instance_id=None,
        epoch=7,
        client_id=f"client-{member_id}",
        client_host="/h",
        may_change_group=changes,
        content_hash=content_hash,
    )


def test_consumer_group_is_answered_from_log() -> None:
    """The log alone is enough to answer for a consumer group and its offsets. An unknown group is NOT_EXCLUSIVE,
    because a classic join may be in flight.
    """
    reader = Reader(load=[*new_group(), offset(0, 5)])
    view = reader.manager.view("g", 1)
    assert (view.kind, view.state, view.fallback_reason) == (GroupKind.CONSUMER, GroupState.STABLE, None)
    assert [member.member_id for member in view.members] == ["a"]
    assert (reader.manager.consumer_fallback_reason("g", 1), reader.offsets(1)) == (None, {T0: 5})
    assert reader.manager.consumer_fallback_reason("nope", 1) is FallbackReason.NOT_EXCLUSIVE, (
        "a classic member may be joining a new group"
    )


@pytest.mark.parametrize("seen", [True, False], ids=["after a heartbeat", "before any heartbeat"])
def test_returned_consumer_group_has_not_rebalanced(seen: bool) -> None:
    """A consumer group that NOT_COORDINATOR removed returns with its next commit, without a rebalance."""
    reader = Reader(load=[*new_group(), offset(0, 5)])
    moved(reader)
    if seen:
        reader.manager.apply([heartbeat(changes=False, at=1.5)], 1.5)
    reader.append(offset(0, 6))
    assert [*chain(*reader.follower.merge(0, 2))] == []
    assert [member.member_id for member in reader.manager.view("g", 2).members] == ["a"]


def test_members_join_before_first_record() -> None:
    """Two members of a new KIP-848 group that join at once have joined once each, whichever the log shows first."""
    reader = Reader()
    joined = [heartbeat(changes=True, at=1.5, member_id=name, is_join=True) for name in "ab"]
    facts = reader.manager.apply(joined, 1.6)
    for epoch, names in ((1, "b"), (2, "ab")):
        log = Records().group(epoch, epoch)
        for name in names:
            log.member(name).current(name, epoch)
        reader.append(*log.records.items())
        facts += chain(*reader.follower.merge(0, 1.7))
    assert [fact.member_id for fact in facts if isinstance(fact, MemberJoined)] == ["a", "b"]
    assert [fact for fact in facts if isinstance(fact, MemberGone)] == []
    assert sorted(member.member_id for member in reader.manager.view("g", 2).members) == ["a", "b"]


def test_unknown_group_may_be_consumer_group_until_load() -> None:
    """In a copy that is not exclusive, an unknown group is COLD until the log is read, and NOT_EXCLUSIVE afterwards.

    ListGroups is NOT_EXCLUSIVE from the start, because the log cannot answer it.
    """
    reader = Reader()
    reader.log = reader.follower.begin_load(0, 3, 0, 1)
    reader.append(*new_group())

    def reasons(group: str) -> set[FallbackReason | None]:
        manager = reader.manager
        return {manager.group_fallback_reason(group, 1), manager.consumer_fallback_reason(group, 1)}

    assert reasons("g") == reasons("nope") == {FallbackReason.COLD}
    assert reader.manager.listing_fallback_reason(1) is FallbackReason.NOT_EXCLUSIVE
    reader.catch_up(1, 1)
    assert (reasons("g"), reasons("nope")) == ({None}, {FallbackReason.NOT_EXCLUSIVE})


def test_changing_heartbeat_waits_for_log() -> None:
    """A heartbeat that may change the group makes the group IN_DOUBT until a read that started after the heartbeat."""
    reader = Reader(load=new_group())
    reader.manager.apply([heartbeat(changes=False, at=1)], 1)
    assert reader.manager.consumer_fallback_reason("g", 1) is None
    reader.manager.apply([heartbeat(changes=True, at=2)], 2)
    assert reader.manager.consumer_fallback_reason("g", 2) is FallbackReason.IN_DOUBT
    reader.catch_up(1.5, 2.5)
    assert reader.manager.consumer_fallback_reason("g", 2.5) is FallbackReason.IN_DOUBT, (
        "the Fetch was sent before the heartbeat"
    )
    reader.read(*new_group(member=False), (Records().member("a").records.popitem()[0], None), at=3)
    assert reader.manager.consumer_fallback_reason("g", 3) is None
    assert reader.manager.view("g", 3).state is GroupState.EMPTY


def test_repeated_heartbeat_adds_no_doubt() -> None:
    """A heartbeat that repeats the member's last one does not extend a doubt, however often the member repeats it."""
    reader = Reader(load=new_group())
    for at in (1.0, 1.2, 1.4, 1.6):
        reader.manager.apply([heartbeat(changes=True, at=at, content_hash=5)], at)
    assert reader.manager.consumer_fallback_reason("g", 1.6) is FallbackReason.IN_DOUBT
    reader.catch_up(1.1, 1.7)
    assert reader.manager.consumer_fallback_reason("g", 1.7) is None
    reader.manager.apply([heartbeat(changes=False, at=2), heartbeat(changes=True, at=2.1, content_hash=5)], 2.1)
    assert reader.manager.consumer_fallback_reason("g", 2.1) is None


@pytest.mark.parametrize("content_hash", [6, None])
def test_other_heartbeat_ends_repetition(content_hash: int | None) -> None:
    """A heartbeat with other content, and the return to the content before it, each wait for the log."""
    reader = Reader(load=new_group())
    for at, each in ((1.0, 5), (2.0, content_hash), (3.0, 5)):
        reader.manager.apply([heartbeat(changes=True, at=at, content_hash=each)], at)
        assert reader.manager.consumer_fallback_reason("g", at) is FallbackReason.IN_DOUBT
        reader.catch_up(at, at + 0.5)
        assert reader.manager.consumer_fallback_reason("g", at + 0.5) is None


@pytest.mark.parametrize("unknown", ["lost", "unread"])
def test_unknown_request_ends_repetition(unknown: str) -> None:
    """After a lost or unread request, which may have changed the member, a repeated heartbeat waits for the log."""
    reader = Reader(load=new_group())
    reader.manager.apply([heartbeat(changes=True, at=1, content_hash=5)], 1)
    if unknown == "lost":
        reader.manager.apply([ReplyLost(group_id="g", sent_at=2, token="t", may_create_group=True)], 2)
    else:
        reader.manager.note_unread_write("g")
        reader.manager.note_unread_write("g", 3)
    reader.catch_up(3.5, 3.5)
    assert reader.manager.consumer_fallback_reason("g", 3.5) is None
    reader.manager.apply([heartbeat(changes=True, at=4, content_hash=5)], 4)
    assert reader.manager.consumer_fallback_reason("g", 4) is FallbackReason.IN_DOUBT


def test_log_upgrades_and_downgrades_group() -> None:
    """Log records turn a classic group into a consumer group and back into a classic group."""
    reader = Reader(load=[generation(4), offset(0, 5)])
    assert reader.manager.view("g", 1).kind is GroupKind.CLASSIC
    reader.read(gone(), *new_group(), at=1)
    assert reader.manager.view("g", 1).kind is GroupKind.CONSUMER
    reader.read(*((key, None) for key, _ in new_group()), generation(8), at=2)
    view = reader.manager.view("g", 2)
    assert (view.kind, view.generation, view.consumer) == (GroupKind.CLASSIC, 8, None)


def test_downgraded_group_is_in_doubt() -> None:
    """A consumer group that becomes classic with members is IN_DOUBT, because the log does not mention the broker's
    rebalance.
    """
    reader = Reader(exclusive=True, load=new_group())
    reader.manager.apply([heartbeat(changes=True, at=1)], 1)
    reader.catch_up(1.5, 1.5)
    assert reader.manager.consumer_fallback_reason("g", 1.5) is None
    left = MemberMetadata(
        member_id="b", client_id="c", client_host="/h", session_timeout=15_000, subscription=b"", assignment=b""
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=8, protocol="range", leader="b", members=(left,))
    classic = encode_key(KeyType.GROUP_METADATA, GroupKey(group_id="g")), encode_value(value, 3)
    reader.read(*((key, None) for key, _ in new_group()), classic, at=2)
    view = reader.manager.view("g", 2)
    assert (view.kind, view.fallback_reason) == (GroupKind.CLASSIC, FallbackReason.IN_DOUBT)
    assert in_doubt(reader.manager) == ["g"]
    reader.catch_up(3, 3)
    assert reader.manager.group_fallback_reason("g", 3) is FallbackReason.IN_DOUBT
    here = DescribedMember(
        member_id="b", instance_id=None, client_id="c", client_host="/h", metadata=b"", assignment=b""
    )
    description = GroupDescribed(
        group_id="g",
        sent_at=3,
        state=GroupState.PREPARING_REBALANCE,
        protocol_type="consumer",
        protocol="",
        members=(here,),
        as_of=reader.manager.changes_of("g")[0],
    )
    reader.manager.apply([description], 3)
    assert reader.manager.view("g", 3).state is GroupState.PREPARING_REBALANCE
    assert reader.manager.group_fallback_reason("g", 3) is FallbackReason.IN_DOUBT


def test_deleted_consumer_group_is_dead() -> None:
    """A deleted consumer group whose tombstones were read before the DeleteGroups reply is Dead without offsets."""
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
def test_member_fetch_needs_matching_epoch(member_id: str | None, epoch: int, fits: bool) -> None:
    """OffsetFetch as a consumer group member is answered only if member id and epoch match the log."""
    reader = Reader(load=[*new_group(), offset(0, 5), offset(0, 6, "classic")])
    for group, answered in (("g", fits), ("classic", True)):
        request_group = OffsetFetchRequestGroup(group_id=group, member_id=member_id, member_epoch=epoch, topics=None)
        found = fallback_reason(OffsetFetchRequest(groups=(request_group,)), 9, reader.manager, 1)
        assert found is (None if answered else FallbackReason.VERSION)


# Answers in place of a broker that cannot answer.


def test_unanswered_group_has_error_code() -> None:
    """A stale, loading or resigned partition gives its group the matching coordinator error code."""
    reader = Reader(load=[offset(0, 5)])
    assert reader.manager.view("g", 1).error_code == ErrorCode.NONE
    assert reader.manager.view("g", 1 + FRESH_SECONDS).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    reader.follower.begin_load(0, 3, 0, 2)
    assert reader.manager.view("g", 2).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    reader.follower.resign(0, 4, 3)
    assert reader.manager.view("g", 3).error_code == ErrorCode.NOT_COORDINATOR


def test_members_keep_described_order() -> None:
    """Members keep the order of the broker's last ConsumerGroupDescribe while the set of members stays the same."""

    def records(epoch: int) -> list[Entry]:
        return list(Records().group(epoch, epoch).member("a").current("a", epoch).member("b").records.items())

    def ordered(*members: str) -> ConsumerGroupDescribed:
        as_of = reader.manager.changes_of("g")[0]
        return ConsumerGroupDescribed(
            group_id="g", sent_at=1, assignor="uniform", has_error_message=False, members=members, as_of=as_of
        )

    def order() -> list[str] | None:
        view = reader.manager.view("g", 2).consumer
        assert view is not None
        return [member.member_id for member in view.members] if view.ordered else None

    reader = Reader(load=records(7))
    assert order() is None
    reader.manager.apply([ordered("b", "a", "c")], 1)
    assert order() is None, "the description has other members"
    reader.manager.apply([ordered("b", "a")], 1)
    assert (order(), reader.manager.default_assignor) == (["b", "a"], "uniform")
    reader.read(*records(8), at=2)
    assert order() == ["b", "a"]
    key, _ = next(iter(Records().member("b").records.items()))
    reader.read((key, None), *Records().member("c").records.items(), at=2)
    assert order() is None


def test_overtaken_commit_is_in_doubt() -> None:
    """A commit that was sent before the reply to a deletion arrived makes the group IN_DOUBT until the log is read."""
    reader = Reader(exclusive=True)
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=1.0)], 1.2)
    reader.stored(1.1, 1.3, t0=5)
    assert reader.offsets(1.3) is FallbackReason.IN_DOUBT
    reader.read(offset(0, 5), at=1.4)
    assert reader.offsets(1.4) == {T0: 5}


@pytest.mark.parametrize(("existed", "expected"), [(False, {T0: 5}), (True, FallbackReason.IN_DOUBT)])
def test_unseen_recreation_is_not_reported_gone(
    existed: bool, expected: dict[tuple[str, int], int] | FallbackReason
) -> None:
    """A deleted group that another client recreates unseen still exists: it has its offset or is IN_DOUBT."""
    reader = Reader()
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=1.0, existed=existed)], 1.1)
    assert reader.offsets(1.1) == {}
    reader.read(offset(0, 5), at=1.2)
    assert reader.offsets(1.2) == expected
    for at in (1.3, 1.2 + AWAITED_SECONDS):
        reader.catch_up(at, at)
    assert reader.offsets(1.2 + AWAITED_SECONDS) == {T0: 5}


def test_unreplicated_removal_is_in_doubt() -> None:
    """A simple group whose last offset disappears from the log while a newer commit is unread is IN_DOUBT for
    ConsumerGroupDescribe.
    """
    reader = Reader(exclusive=True)
    reader.read(offset(0, 5), at=1)
    assert reader.manager.consumer_fallback_reason("g", 1) is None
    reader.stored(1.1, 1.2, t0=6)
    reader.append(offset(0, None))
    list(reader.follower.merge(0, 1.3))
    assert reader.manager.consumer_fallback_reason("g", 1.3) is FallbackReason.IN_DOUBT


@pytest.mark.parametrize("removed", ["before the id expires", "afterwards"])
def test_group_of_issued_id_is_forgotten(removed: str) -> None:
    """The copy forgets a group that had only an issued member id, once the id may not be used any more."""
    world = World(Broker(), exclusive=False)
    world.read_log()
    client = Client(world, "a", "g")
    client.join()
    world.settle()
    world.tail.catch_up(world.now())
    assert world.manager.existing("g", world.now()) is not None
    if removed == "before the id expires":
        world.clean_up()
    world.pass_time(SESSION_MS / 1000 + 1)
    world.tail.catch_up(world.now())
    world.clean_up()
    world.sweep()
    world.tail.catch_up(world.now())
    assert world.manager.existing("g", world.now()) is None


# The end of the log is reached in steps.

MANY_GROUPS = [f"g{number}" for number in range(4 * GROUPS_PER_MERGE_STEP + 1)]


def emptied() -> Reader:
    """Returns a copy that has merged the tombstones of the only offset of many groups."""
    load = [offset(0, 5, group) for group in MANY_GROUPS]
    reader = Reader(exclusive=True, load=load, max_groups=len(MANY_GROUPS))
    reader.append(*(offset(0, None, group) for group in MANY_GROUPS))
    list(reader.follower.merge(0, 1))
    return reader


def committed(reader: Reader, group: str, sent_at: float) -> None:
    """Applies a commit of offset 7 that the broker has acknowledged."""
    offsets = {T0: CommittedOffset(7, 1, "m", sent_at)}
    reader.manager.apply([OffsetsStored(group_id=group, sent_at=sent_at, offsets=offsets)], sent_at)


def test_end_of_log_is_reached_in_steps() -> None:
    """Each step reconciles a limited number of groups, and only the last step makes the log fresh."""
    reader = emptied()
    partition = reader.follower.partitions.leader_partitions[0]
    before = len(partition.ahead_of_log)
    assert before == len(MANY_GROUPS)
    fresh_at = []
    for _ in reader.follower.end_reached(0, 1, 1):
        assert before - len(partition.ahead_of_log) <= GROUPS_PER_MERGE_STEP
        before = len(partition.ahead_of_log)
        fresh_at.append(partition.fresh_at)
    assert fresh_at == [0, 0, 0, 0, 1]
    assert not partition.ahead_of_log


@pytest.mark.parametrize("what", ["fails", "is resigned", "is loaded again", "is forgotten", "is left by its leader"])
def test_abandoned_partition_does_not_become_fresh(what: str) -> None:
    """If another task gives up a partition, or loads it again, the reached end no longer counts."""
    reader = emptied()
    follower = reader.follower
    steps = follower.end_reached(0, 1, 1)
    next(steps)
    assert follower.partitions.leader_partitions[0].fresh_at == 0
    match what:
        case "fails":
            follower.fail(0, "damaged", 1)
        case "is resigned":
            follower.resign(0, 4, 1)
        case "is loaded again":
            follower.begin_load(0, 4, 0, 1)
        case "is forgotten":
            follower.stop_reading(1)
        case _:
            next(follower.forget_in_steps(0, 4, 1, moved=True), None)
    assert list(steps) == []
    assert [each.fresh_at for _, each in follower.partitions] in ([], [NEVER])
    assert PartitionState.OWNED not in follower.partitions.states.values()


def test_commit_between_steps_is_kept() -> None:
    """A commit that the broker acknowledges while the end of the log is handled counts, for all groups alike."""
    reader = emptied()
    steps = reader.follower.end_reached(0, 1, 1)
    next(steps)
    for group in MANY_GROUPS:
        committed(reader, group, 1.5)
    list(steps)
    assert {str(reader.offsets(2, group)) for group in MANY_GROUPS} == {str({T0: 7})}
    reader.read(*(offset(0, 7, group) for group in MANY_GROUPS), at=3)
    assert {str(reader.offsets(3, group)) for group in MANY_GROUPS} == {str({T0: 7})}


def test_deletion_between_steps_is_kept() -> None:
    """A group that the broker deletes while the end of the log is handled stays deleted."""
    reader = Reader(load=[offset(0, 5, group) for group in MANY_GROUPS], max_groups=len(MANY_GROUPS))
    for group in MANY_GROUPS:
        committed(reader, group, 0.5)
    steps = reader.follower.end_reached(0, 1, 1)
    next(steps)
    for group in MANY_GROUPS:
        reader.manager.apply([GroupDeleted(group_id=group, sent_at=1.5)], 1.5)
    list(steps)
    assert not any(isinstance(each, dict) and each for each in (reader.offsets(2, group) for group in MANY_GROUPS))
    reader.read(*(offset(0, None, group) for group in MANY_GROUPS), at=3)
    assert {str(reader.offsets(3, group)) for group in MANY_GROUPS} == {"{}"}
