"""Questions that must be left to the broker, because the copy does not know the whole state of a group."""

import pytest

from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from group_sidecar.coordinator.answer_requirements import fallback_reason
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.events import (
    ConsumerMemberSeen,
    Event,
    GroupDeleted,
    JoinSent,
    NotCoordinatorReplied,
    OffsetsDeleted,
    OffsetsDoubted,
    OffsetsLearned,
    OffsetsPending,
    OffsetsStored,
)
from group_sidecar.coordinator.model.views import CommittedOffset, FallbackReason, GroupState
from group_sidecar.coordinator.state.confidence import LEAST_RETENTION_SECONDS
from group_sidecar.coordinator.state.log_partitions import PartitionState
from tests.coordinator.large_groups import joining
from tests.coordinator.log.test_consumer_group_records import Log as Records
from tests.coordinator.log.test_follower import T0, T1, Reader, gone, heartbeat, member_seen, moved, offset, with_member
from tests.coordinator.model_log import batch
from tests.coordinator.test_false_answers import described

RECORDS = [*Records().group(4, 4).member("x").current("x", 4).records.items()]


def bounded(*, exclusive: bool = False) -> Reader:
    """A copy with `limits.groups: 1`."""
    reader = Reader(exclusive=exclusive, max_groups=1)
    reader.read(offset(0, 5, "kept"), at=1)
    return reader


def stored(at: float, partition: tuple[str, int] = T0) -> OffsetsStored:
    return OffsetsStored(group_id="g", sent_at=at - 0.1, offsets={partition: CommittedOffset(9, 1, "m", at)})


def as_member(reader: Reader, at: float, member_id: str, epoch: int) -> FallbackReason | None:
    asked = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=None)
    return fallback_reason(OffsetFetchRequest(groups=(asked,)), 9, reader.manager, at)


@pytest.mark.parametrize("exclusive", [False, True])
def test_logged_offsets_beyond_bound(exclusive: bool) -> None:
    """OffsetFetch for a group that is not kept because of `limits.groups` is left to the broker."""
    reader = bounded(exclusive=exclusive)
    reader.read(offset(0, 7, "beyond"), at=2)
    assert reader.offsets(2, "kept") == {T0: 5}
    assert reader.offsets(2, "beyond") is FallbackReason.COLD
    assert reader.offsets(2, "none") == {}


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("pending", [False, True])
def test_acknowledged_commit_beyond_bound(exclusive: bool, pending: bool) -> None:
    """A commit to a group beyond `limits.groups` is not denied before its record was read."""
    reader = bounded(exclusive=exclusive)
    event = OffsetsPending(group_id="g", sent_at=1.1, producer_id=7, offsets={T0: CommittedOffset(9, 1, "m", 1.2)})
    reader.manager.apply([event if pending else stored(1.2)], 1.2)
    assert reader.offsets(1.2) is FallbackReason.IN_DOUBT


def test_log_that_may_not_be_read_any_more() -> None:
    """After the right to read the log is lost, the copy does not answer that observed groups are gone."""
    reader = Reader(exclusive=True)
    reader.read(with_member(3), offset(0, 5), at=1)
    reader.follower.partitions.expected = False  # As OffsetsTail._connection_failed does.
    reader.follower.stop_reading(2)
    reader.manager.set_broker_count(1, 2)
    assert reader.offsets(2) is FallbackReason.COLD
    assert reader.manager.group_fallback_reason("g", 2) is FallbackReason.COLD
    assert reader.manager.listing_fallback_reason(2) is FallbackReason.COLD


@pytest.mark.parametrize("exclusive", [False, True])
def test_member_epoch_of_group_that_is_not_kept(exclusive: bool) -> None:
    """Only the broker checks member and epoch of a KIP-848 group that NOT_COORDINATOR removed."""
    reader = Reader(exclusive=exclusive, load=RECORDS)
    moved(reader)
    reader.catch_up(2, 2)
    assert as_member(reader, 2, "bogus", 99) is FallbackReason.COLD


def test_member_epoch_of_group_beyond_bound() -> None:
    """Only the broker checks member and epoch of a KIP-848 group beyond `limits.groups`."""
    reader = bounded()
    reader.read(*RECORDS, at=2)
    assert as_member(reader, 2, "bogus", 99) is FallbackReason.COLD


def test_member_that_has_left() -> None:
    """Only the broker checks member and epoch of a KIP-848 group that is in doubt."""
    reader = Reader(load=RECORDS)
    reader.catch_up(1, 1)
    assert as_member(reader, 1, "x", 4) is None
    left = ConsumerMemberSeen(
        group_id="g", sent_at=1.1, member_id="x", instance_id=None, epoch=-1, client_id="c", client_host="/h"
    )
    reader.manager.apply([left], 1.2)
    assert as_member(reader, 1.2, "x", 4) is FallbackReason.VERSION


def test_deleted_offset_of_group_that_was_not_kept() -> None:
    """An offset that was deleted while the group was beyond the bound does not return with the group's next commit."""
    reader = bounded()
    reader.read(offset(0, 5), offset(1, 6), at=1)
    reader.manager.apply([OffsetsDeleted(group_id="g", sent_at=1.1, partitions=(T0,))], 1.2)
    reader.manager.apply([GroupDeleted(group_id="kept", sent_at=1.2)], 1.3)
    reader.manager.apply([stored(1.5, T1)], 1.5)
    assert reader.offsets(1.5) is FallbackReason.IN_DOUBT


def test_consumer_group_created_again() -> None:
    """A KIP-848 group that was deleted and accepted a new member does not count as missing."""
    reader = Reader(exclusive=True, load=RECORDS)
    reader.catch_up(1, 1)
    joined = heartbeat(changes=True, at=2.1, member_id="n", is_join=True)
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=1.5)], 2)
    reader.manager.apply([joined], 2.2)
    reader.append(*((key, None) for key, _ in RECORDS))
    list(reader.follower.merge(0, 2.3))
    list(reader.follower.end_reached(0, 2.05, 2.35))  # Fetched before the new member joined.
    assert reader.manager.consumer_fallback_reason("g", 2.35) is FallbackReason.COLD


@pytest.mark.parametrize("seen", [member_seen("m", 4.9), heartbeat(changes=False, at=4.9)], ids=["classic", "KIP-848"])
def test_overtaken_reply_brings_no_group_back(seen: Event) -> None:
    """If a request was sent before the one that got NOT_COORDINATOR, its reply does not bring the group back."""
    reader = Reader(load=[with_member(3), offset(0, 5)])
    facts = reader.manager.apply([NotCoordinatorReplied(group_id="g", sent_at=5)], 6)
    facts += reader.manager.apply([seen], 6.1)
    facts += reader.manager.apply([NotCoordinatorReplied(group_id="g", sent_at=5.1)], 6.2)
    assert [type(fact).__name__ for fact in facts] == ["CoordinatorMoved"]


def test_large_commit_is_seen_whole() -> None:
    """While a large batch is replayed, no answer has a part of it."""
    reader = Reader(load=[offset(partition, 1) for partition in range(3000)])
    data = batch(reader.log.next_offset, [offset(partition, 2) for partition in range(3000)])
    for _ in reader.log.replay(data):
        offsets = reader.offsets(1)
        assert isinstance(offsets, FallbackReason) or len(set(offsets.values())) == 1


def test_later_note_keeps_lost_commit() -> None:
    """A commit whose reply was lost may take effect although NOT_COORDINATOR arrives in between."""
    reader = Reader(exclusive=True, load=[offset(0, 5, "kept")])
    reader.manager.apply([OffsetsDoubted(group_id="g", sent_at=1, partitions=None, may_create_group=True)], 1)
    reader.manager.apply([NotCoordinatorReplied(group_id="g", sent_at=1.1)], 1.2)
    reader.catch_up(1.3, 1.4)
    assert reader.offsets(1.4) is FallbackReason.IN_DOUBT


# Copies without the log.


def without_log(brokers: int) -> GroupMetadataManager:
    """An exclusive copy that has seen a commit at 1, in a cluster with this many brokers."""
    manager = GroupMetadataManager(exclusive=True)
    assert manager.needs_broker_count
    manager.set_broker_count(brokers, 0)
    manager.set_existing_groups(())
    manager.apply([stored(1)], 1)
    return manager


@pytest.mark.parametrize(("brokers", "reason"), [(1, None), (2, FallbackReason.COLD)])
def test_other_brokers_may_coordinate(brokers: int, reason: FallbackReason | None) -> None:
    """Without the log, nothing is answered if another broker may coordinate the groups."""
    manager = without_log(brokers)
    manager.apply([GroupDeleted(group_id="g", sent_at=1.5)], 1.6)
    assert manager.listing_fallback_reason(2) is reason, "there is no group"
    for group_id in ("g", "unknown"):
        assert manager.offsets_fallback_reason(group_id, 2) is reason
        assert manager.group_fallback_reason(group_id, 2) is reason
    assert manager.listing_fallback_reason(2) is reason


def test_single_remaining_broker_answers_new_groups() -> None:
    """When the other brokers have left, the copy doubts all that it knew before."""
    manager = without_log(2)
    manager.set_broker_count(1, 3)
    assert manager.offsets_fallback_reason("g", 4) is FallbackReason.UNDECODABLE
    assert manager.listing_fallback_reason(4) is FallbackReason.COLD


def test_offsets_may_have_expired() -> None:
    """Without the log, old offsets of a group without members are left to the broker, which removes them some day.

    A commit of another partition does not change that.
    """
    manager = without_log(1)
    assert manager.listing_fallback_reason(2) is None
    manager.apply([stored(50, T1)], 50)
    expires_at = stored(1).sent_at + LEAST_RETENTION_SECONDS
    assert manager.offsets_fallback_reason("g", expires_at - 0.1) is None
    assert manager.listing_fallback_reason(expires_at - 0.1) is None
    assert manager.offsets_fallback_reason("g", expires_at) is FallbackReason.STALE
    assert manager.group_fallback_reason("g", expires_at) is FallbackReason.IN_DOUBT
    assert manager.listing_fallback_reason(expires_at) is FallbackReason.IN_DOUBT


def test_complete_reply_confirms_offsets() -> None:
    """Without the log, a reply with all offsets of a group shows that they had not expired."""
    manager = without_log(1)
    learned = OffsetsLearned(
        group_id="g",
        sent_at=100,
        offsets={T0: CommittedOffset(9, 1, "m", 1)},
        absent=(),
        complete=True,
        as_of=manager.changes_of("g")[1],
    )
    manager.apply([learned], 100)
    assert manager.offsets_fallback_reason("g", 101) is None
    assert manager.group_fallback_reason("g", 101) is None


def test_brokers_are_counted_before_answers() -> None:
    """The number of brokers is needed at first even if the log is read, and later only without the log."""
    reader = Reader(exclusive=True)
    needed = [reader.manager.needs_broker_count]
    reader.manager.set_broker_count(1, 1)
    needed.append(reader.manager.needs_broker_count)
    reader.follower.partitions.expected = False
    reader.follower.stop_reading(2)
    needed.append(reader.manager.needs_broker_count)
    assert needed == [True, False, True]


def test_tombstones_of_returning_group_are_merged_once() -> None:
    """If a group returns while its tombstones are being merged, the rest of the merge skips the group."""
    reader = Reader(load=[with_member(3), offset(0, 5)])
    moved(reader)
    reader.append(gone(), offset(0, None))
    reader.manager.apply([member_seen("m", 2)], 2)
    reader.catch_up(3, 3)
    assert reader.manager.log.partitions.not_coordinated == {}
    assert reader.follower.partitions.leader_partitions[0].state is PartitionState.OWNED


def test_group_that_is_kept_for_its_join() -> None:
    """Logged offsets of a group that the copy keeps only for a join in flight are left to the broker."""
    reader = Reader(load=[with_member(3), offset(0, 5)])
    moved(reader)
    reader.manager.apply([JoinSent(group_id="g", sent_at=2, joining=joining(1))], 2)
    reader.catch_up(3, 3)
    assert reader.offsets(3) is FallbackReason.COLD


def test_group_without_records_after_late_load() -> None:
    """A group whose offsets were deleted before the copy loads its partition may exist (seed 159 of the simulation)."""
    reader = Reader(exclusive=True)
    moved(reader)
    reader.manager.apply([stored(2)], 2)
    reader.log = reader.follower.begin_load(0, 4, 0, 3)
    reader.read(offset(0, 9), offset(0, None), at=3)
    assert reader.manager.group_fallback_reason("g", 3) is not None
    reader.manager.apply([described(reader.manager, 4, GroupState.DEAD)], 4)
    assert reader.manager.group_fallback_reason("g", 4) is None
    assert reader.manager.group_fallback_reason("other", 4) is None
