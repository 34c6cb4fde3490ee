"""Tests committed offsets: commits, deletions, transactions, the broker's replies, and when offsets are uncertain."""

from dataclasses import replace
from typing import Any

import pytest

from group_sidecar.codecs.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from group_sidecar.coordinator.manager import TOPIC_DELETION_SECONDS, GroupMetadataManager
from group_sidecar.coordinator.model.events import (
    LOST_REQUEST_SECONDS,
    AnyEvent,
    GroupDeleted,
    LogEndsSeen,
    LogStartsSeen,
    OffsetsDeleted,
    OffsetsDoubted,
    OffsetsLearned,
    OffsetsPending,
    OffsetsStored,
    TransactionEnded,
)
from group_sidecar.coordinator.model.facts import OffsetsCommitted
from group_sidecar.coordinator.model.views import CommittedOffset, FallbackReason, GroupState, GroupView
from group_sidecar.coordinator.state.group_offsets import MAX_DOUBTFUL, GroupOffsets
from tests.coordinator.all_groups import all_groups
from tests.coordinator.model import Broker
from tests.coordinator.world import Client, World, commit_of

T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)


def copy(**bounds: Any) -> GroupMetadataManager:
    manager = GroupMetadataManager(exclusive=True, **bounds)
    manager.set_existing_groups(())
    return manager


def offset(value: int, at: float, writer: str = "1", **more: Any) -> CommittedOffset:
    return CommittedOffset(value, 3, "", at, writer=writer, **more)


def stored(sent_at: float, at: float, writer: str = "1", group: str = "g", **offsets: int) -> OffsetsStored:
    """Returns a commit. Keyword arguments are p0, p1 and so on with their offsets."""
    values = {("t", int(name[1:])): offset(value, at, writer) for name, value in offsets.items()}
    return OffsetsStored(group_id=group, sent_at=sent_at, offsets=values)


def learned(manager: GroupMetadataManager, sent_at: float, whole: bool = True, **offsets: int) -> OffsetsLearned:
    """Returns offsets that the broker has just reported. -1 stands for no offset."""
    values = {("t", int(name[1:])): value for name, value in offsets.items()}
    return OffsetsLearned(
        group_id="g",
        sent_at=sent_at,
        offsets={partition: offset(value, sent_at, "") for partition, value in values.items() if value >= 0},
        absent=tuple(partition for partition, value in values.items() if value < 0),
        complete=whole,
        as_of=manager.changes_of("g")[1],
    )


def view(manager: GroupMetadataManager, at: float = 60.0) -> GroupView:
    return manager.view("g", at)


def known(manager: GroupMetadataManager) -> dict[tuple[str, int], int]:
    return {partition: committed.offset for partition, committed in view(manager).offsets.items()}


def lacking(manager: GroupMetadataManager) -> FallbackReason | None:
    return view(manager).offsets_fallback_reason


def test_commit_creates_offsets_only_group() -> None:
    """A commit for an unknown group creates an Empty group without a protocol type, with these offsets."""
    manager = copy()
    (fact,) = manager.apply([stored(1, 2, p0=5, p1=6)], 2)
    assert fact == OffsetsCommitted(group_id="g", at=2, accepted=2)
    shown = view(manager)
    assert (shown.state, shown.protocol_type, shown.fallback_reason, shown.offsets_fallback_reason) == (
        GroupState.EMPTY,
        "",
        None,
        None,
    )
    assert known(manager) == {T0: 5, T1: 6}
    assert set().union(*manager.committed_partitions()) == {T0, T1}


def test_refused_partitions_are_reported() -> None:
    """A commit with only refused partitions reports them and creates no group."""
    manager = copy()
    (fact,) = manager.apply([OffsetsStored(group_id="g", sent_at=1, offsets={}, refused=((25, 3),))], 2)
    assert fact == OffsetsCommitted(group_id="g", at=2, accepted=0, refused=((25, 3),))
    assert (view(manager).state, view(manager).fallback_reason) == (GroupState.DEAD, None)


def test_view_offsets_are_read_only() -> None:
    """The offsets of a view show later commits and cannot be assigned."""
    manager = copy()
    manager.apply([stored(1, 2, p0=5)], 2)
    shown = view(manager)
    manager.apply([stored(3, 4, p0=6)], 4)
    assert shown.offsets[T0].offset == 6
    with pytest.raises(TypeError):
        shown.offsets[T0] = offset(7, 5)  # type: ignore[index]


def test_offsets_are_deleted() -> None:
    """Deleted offsets are removed, and an Empty group without offsets is IN_DOUBT because the broker may remove the
    group.
    """
    manager = copy()
    manager.apply([stored(1, 2, p0=5, p1=6)], 2)
    manager.apply([OffsetsDeleted(group_id="g", sent_at=3, partitions=(T0, T2))], 4)
    assert (known(manager), lacking(manager)) == ({T1: 6}, None)
    manager.apply([OffsetsDeleted(group_id="g", sent_at=5, partitions=(T1,))], 6)
    assert (known(manager), lacking(manager)) == ({}, None)
    assert view(manager).fallback_reason is FallbackReason.IN_DOUBT, (
        "the broker may remove an Empty group without offsets"
    )


def test_deletion_creates_no_group() -> None:
    """The deletion of an unknown group's offset creates no group."""
    manager = copy()
    manager.apply([OffsetsDeleted(group_id="g", sent_at=1, partitions=(T0,))], 2)
    assert (view(manager).state, lacking(manager)) == (GroupState.DEAD, None)


# Requests and replies that cross.


@pytest.mark.parametrize(
    ("second", "doubtful"),
    [
        ({"sent_at": 5, "writer": "2"}, False),
        ({"sent_at": 3, "writer": "2"}, True),
        ({"sent_at": 3, "writer": "1"}, False),
    ],
)
def test_commits_on_two_connections_may_cross(second: dict[str, Any], doubtful: bool) -> None:
    """Overlapping commits on different connections make the offsets IN_DOUBT until a later commit of this partition."""
    manager = copy()
    manager.apply([stored(1, 4, "1", p0=5, p1=5)], 4)
    manager.apply([stored(at=6, p0=6, **second)], 6)
    assert lacking(manager) is (FallbackReason.IN_DOUBT if doubtful else None)
    manager.apply([stored(5.5, 7, second["writer"], p0=7)], 7)
    assert lacking(manager) is (FallbackReason.IN_DOUBT if doubtful else None), (
        "the commit was sent before the doubt began"
    )
    manager.apply([stored(8, 9, "3", p1=8)], 9)
    assert lacking(manager) is (FallbackReason.IN_DOUBT if doubtful else None), "the commit is of another partition"
    manager.apply([stored(8, 9, "3", p0=8)], 9)
    assert (lacking(manager), known(manager)[T0]) == (None, 8)


def test_commit_and_deletion_may_cross() -> None:
    """A commit and a deletion that overlap make the offsets IN_DOUBT until the broker reports them."""
    manager = copy()
    manager.apply([stored(1, 2, p0=5, p1=5)], 2)
    manager.apply([stored(3, 6, p0=6)], 6)
    manager.apply([OffsetsDeleted(group_id="g", sent_at=4, partitions=(T0,))], 7)
    assert lacking(manager) is FallbackReason.IN_DOUBT
    manager.apply([learned(manager, 8, whole=False, p0=-1)], 9)
    assert lacking(manager) is None
    manager.apply([stored(6.5, 10, p1=7)], 10)
    assert lacking(manager) is FallbackReason.IN_DOUBT, "the order of the commit and the deletion is unknown"


def test_committed_minus_one_looks_absent() -> None:
    """A reply about a partition does not end a doubt about a commit of -1: without a commit, the reply is the same."""
    manager = copy()
    manager.apply([stored(1, 2, p0=-1, p1=5)], 2)
    manager.apply([learned(manager, 3, whole=False, p0=-1, p1=-1)], 4)
    assert (lacking(manager), known(manager)) == (None, {T0: -1})
    manager.apply([OffsetsDoubted(group_id="g", sent_at=5, partitions=(T0,))], 6)
    later = 6 + LOST_REQUEST_SECONDS
    manager.apply([learned(manager, later, whole=False, p0=-1)], later + 1)
    assert lacking(manager) is FallbackReason.IN_DOUBT


@pytest.mark.parametrize("values", [(5, -1), (-1, 5)])
def test_commit_of_minus_one_may_cross_another(values: tuple[int, int]) -> None:
    """After a commit of -1 that overlaps another commit, a reply about the partition does not end the doubt.

    Only an OffsetFetch for all topics would show a stored -1.
    """
    manager = copy()
    first, second = values
    manager.apply([stored(1, 4, "1", p0=first)], 4)
    manager.apply([stored(2, 5, "2", p0=second)], 5)
    manager.apply([learned(manager, 6, whole=False, p0=-1)], 7)
    assert lacking(manager) is FallbackReason.IN_DOUBT
    manager.apply([replace(learned(manager, 8), offsets={T0: offset(-1, 8, "")})], 9)
    assert (lacking(manager), known(manager)) == (None, {T0: -1})
    manager.apply([OffsetsDeleted(group_id="g", sent_at=3, partitions=(T0,))], 10)
    manager.apply([learned(manager, 11, whole=False, p0=-1)], 12)
    assert lacking(manager) is FallbackReason.IN_DOUBT, "a deletion overlapped the commit of -1"
    manager.apply([stored(13, 14, "1", p0=6)], 14)
    manager.apply([learned(manager, 15, whole=False, p0=-1)], 16)
    assert (lacking(manager), known(manager)) == (None, {})


def test_unseen_offset_deletion_may_cross_commit() -> None:
    """A deletion of an unknown offset that overlaps its commit makes the group and its offsets IN_DOUBT."""
    manager = copy()
    manager.apply([OffsetsDeleted(group_id="g", sent_at=1, partitions=(T0,))], 3)
    manager.apply([stored(2, 4, p0=5)], 4)
    assert (lacking(manager), view(manager).fallback_reason) == (FallbackReason.IN_DOUBT, FallbackReason.IN_DOUBT)


@pytest.mark.parametrize("partitions", [(T0,), None])
def test_lost_commit_may_arrive_late(partitions: Any) -> None:
    """A lost commit makes the offsets IN_DOUBT until a broker report from after the time in which the commit may
    arrive.
    """
    manager = copy()
    manager.apply([stored(1, 2, p0=5, p1=5)], 2)
    manager.apply([OffsetsDoubted(group_id="g", sent_at=3, partitions=partitions, may_create_group=True)], 4)
    assert lacking(manager) is FallbackReason.IN_DOUBT
    manager.apply([learned(manager, 4.5, p0=6, p1=5)], 4.6)
    assert lacking(manager) is FallbackReason.IN_DOUBT, "the lost commit may still arrive"
    manager.apply([learned(manager, 5.5, p0=6, p1=5)], 5.6)
    assert (lacking(manager), known(manager)) == (None, {T0: 6, T1: 5})


def test_lost_commit_may_have_made_group() -> None:
    """A lost commit makes an unknown group and the list COLD."""
    manager = copy()
    manager.apply([OffsetsDoubted(group_id="g", sent_at=3, partitions=(T0,), may_create_group=True)], 4)
    assert (view(manager).fallback_reason, lacking(manager)) == (FallbackReason.COLD, FallbackReason.COLD)
    assert manager.listing_fallback_reason(5) is FallbackReason.COLD


def test_lost_deletion_may_follow_first_commit() -> None:
    """A lost deletion may remove the offsets of a group that does not exist yet (found by seed 4 of the simulation)."""
    manager = copy()
    manager.apply([OffsetsDoubted(group_id="g", sent_at=3, partitions=(T0,))], 4)
    manager.apply([stored(5, 6, p0=5)], 6)
    assert lacking(manager) is FallbackReason.COLD
    manager.apply([learned(manager, 4 + LOST_REQUEST_SECONDS, p0=5)], 5 + LOST_REQUEST_SECONDS)
    assert lacking(manager) is None


# Lifetimes.


def test_client_retention_makes_offsets_stale() -> None:
    """An offset with a client's own retention time makes the offsets STALE."""
    manager = copy()
    manager.apply([OffsetsStored(group_id="g", sent_at=1, offsets={T0: offset(5, 2)}, broker_retention=False)], 2)
    assert lacking(manager) is FallbackReason.STALE
    manager.apply([learned(manager, 5, p0=5)], 6)
    assert lacking(manager) is FallbackReason.STALE, "the offset may expire at any time"


def test_commit_by_unknown_topic_id() -> None:
    """A commit by an unknown topic id counts as accepted and makes the offsets COLD until the broker reports them."""
    manager = copy()
    (fact,) = manager.apply([OffsetsStored(group_id="g", sent_at=1, offsets={}, unresolved=2)], 2)
    assert isinstance(fact, OffsetsCommitted)
    assert fact.accepted == 2
    assert lacking(manager) is FallbackReason.COLD
    manager.apply([learned(manager, 3, p0=5)], 4)
    assert lacking(manager) is None


# Transactions.


@pytest.mark.parametrize("committed", [True, False])
def test_transaction_offsets(committed: bool) -> None:
    """Transactional offsets count only after a commit, and leave the offsets UNSTABLE in a copy without a log."""
    manager = copy()
    manager.apply([stored(1, 2, p0=5)], 2)
    manager.apply([OffsetsPending(group_id="g", sent_at=3, producer_id=9, offsets={T0: offset(6, 4)})], 4)
    assert (known(manager), lacking(manager)) == ({T0: 5}, FallbackReason.UNSTABLE)
    manager.apply([TransactionEnded(producer_id=8, committed=True)], 5)
    assert known(manager) == {T0: 5}
    manager.apply([TransactionEnded(producer_id=9, committed=committed)], 5)
    assert (known(manager), lacking(manager)) == ({T0: 6 if committed else 5}, FallbackReason.UNSTABLE)
    manager.apply([learned(manager, 9, p0=7)], 10)
    assert (known(manager), lacking(manager)) == ({T0: 7}, FallbackReason.UNSTABLE), (
        "the transaction's marker may arrive at any time"
    )


def test_transaction_of_two_groups() -> None:
    """The end of a transaction applies its offsets in all of its groups."""
    manager = copy()
    for group in "gh":
        manager.apply([OffsetsPending(group_id=group, sent_at=3, producer_id=9, offsets={T0: offset(6, 4)})], 4)
    manager.apply([TransactionEnded(producer_id=9, committed=True)], 5)
    assert [len(each.offsets) for each in all_groups(manager, 6)] == [1, 1]


def test_unknown_transaction_offsets_are_unstable() -> None:
    """A transaction with unknown offsets makes the group's offsets UNSTABLE."""
    manager = copy()
    manager.apply([stored(1, 2, p0=5)], 2)
    manager.apply([OffsetsPending(group_id="g", sent_at=3, producer_id=9, offsets={})], 4)
    assert (known(manager), lacking(manager)) == ({T0: 5}, FallbackReason.UNSTABLE)


# Offsets learned from the broker.


def test_broker_report_is_learned() -> None:
    """Offsets from the broker's reply update the copy, and a complete reply makes them complete and keeps known commit
    times.
    """
    manager = copy()
    manager.set_existing_groups(["g"])
    manager.apply([stored(1, 2, p0=5)], 2)
    assert lacking(manager) is FallbackReason.COLD
    manager.apply([learned(manager, 3, whole=False, p1=7)], 4)
    assert (known(manager), lacking(manager)) == ({T0: 5, T1: 7}, FallbackReason.COLD)
    manager.apply([learned(manager, 5, whole=False, p1=-1)], 6)
    assert known(manager) == {T0: 5}
    manager.apply([learned(manager, 7, p0=5, p2=8)], 8)
    assert (known(manager), lacking(manager)) == ({T0: 5, T2: 8}, None)
    assert view(manager).offsets[T0].at == 2, "an unchanged offset keeps the time of its commit"


def test_outdated_report_is_ignored() -> None:
    """A broker reply from before a commit changes no offsets."""
    manager = copy()
    manager.set_existing_groups(["g"])
    manager.apply([stored(1, 2, p0=5)], 2)
    late = learned(manager, 3, p0=5)
    manager.apply([stored(3, 4, p0=6)], 4)
    manager.apply([late], 5)
    assert (known(manager), lacking(manager)) == ({T0: 6}, FallbackReason.COLD)


def test_unknown_group_learns_nothing() -> None:
    """Offsets from the broker's reply do not create a group."""
    manager = copy()
    manager.set_existing_groups(["g"])
    manager.apply([learned(manager, 3, p0=5)], 4)
    assert (view(manager).state, lacking(manager)) == (GroupState.DEAD, FallbackReason.COLD)


def test_leader_epoch_is_learned_since_v5() -> None:
    """A reply without leader epochs keeps a known epoch only of an offset that the copy was sure of."""
    manager = copy()
    manager.set_existing_groups(["g"])
    manager.apply([stored(1, 2, p0=5)], 2)
    old = {T0: offset(5, 3, "", epoch_known=False)}
    as_of = manager.changes_of("g")[1]
    manager.apply([OffsetsLearned(group_id="g", sent_at=3, offsets=old, absent=(), complete=True, as_of=as_of)], 4)
    assert not view(manager).offsets[T0].epoch_known, "the group's history was unseen, so the known epoch may be wrong"
    manager.apply([learned(manager, 5, p0=5)], 6)
    assert view(manager).offsets[T0].epoch_known
    as_of = manager.changes_of("g")[1]
    manager.apply([OffsetsLearned(group_id="g", sent_at=7, offsets=old, absent=(), complete=True, as_of=as_of)], 8)
    assert view(manager).offsets[T0].epoch_known, "an unchanged offset keeps its known epoch"


def test_deleted_topic_makes_offsets_stale() -> None:
    """A topic deletion makes offsets STALE until a broker reply from TOPIC_DELETION_SECONDS later."""
    manager = copy()
    manager.apply([stored(1, 2, p0=5)], 2)
    manager.note_topic_deletion(2)
    assert lacking(manager) is FallbackReason.STALE
    manager.apply([stored(3, 4, p1=6)], 4)
    assert lacking(manager) is FallbackReason.STALE
    for at in (10.0, 2 + TOPIC_DELETION_SECONDS - 1):
        manager.apply([learned(manager, at, p0=5, p1=6)], at)
        assert lacking(manager) is FallbackReason.STALE, "the broker may still return an offset that it will remove"
    at = 11 + TOPIC_DELETION_SECONDS
    manager.apply([learned(manager, at, p1=6)], at)
    assert (known(manager), lacking(manager)) == ({T1: 6}, None)


def test_client_fetch_completes_copy() -> None:
    """OffsetFetch requests of a client complete the offsets after a lost commit."""
    world = World(Broker())
    client = Client(world, "a", "g")
    world.send(client.connection, commit_of("g", 0, 5), 7, "a")
    client.reconnect()
    world.handle_lost(0)
    world.send(client.connection, commit_of("g", 1, 6), 7, "a")
    world.settle()
    world.pass_time(2)
    for version in (3, 7):
        as_of = {"g": world.manager.changes_of("g")}
        world.send(client.connection, OffsetFetchRequest(group_id="g", topics=None), version, "a", as_of=as_of)
        world.settle()
    assert world.manager.view("g", world.now()).offsets_fallback_reason is None
    assert {p: o.offset for p, o in world.manager.view("g", world.now()).offsets.items()} == {T0: 5, T1: 6}
    gone = OffsetDeleteRequestTopic(name="t", partitions=(OffsetDeleteRequestPartition(partition_index=0),))
    world.send(client.connection, OffsetDeleteRequest(group_id="g", topics=(gone,)), 0, "a")
    world.settle()
    assert list(world.manager.view("g", world.now()).offsets) == [T1]


# Bounds.


def test_offset_count_is_bounded() -> None:
    """Offsets beyond max_offsets are not kept and make their group COLD, while kept offsets are still updated."""
    manager = copy(max_offsets=3)
    manager.apply([stored(1, 2, p0=5, p1=6)], 2)
    manager.apply([stored(3, 4, group="h", p0=1)], 4)
    assert manager.overflowed == 0
    manager.apply([stored(5, 6, p0=7, p2=8)], 6)
    assert (known(manager), lacking(manager), manager.overflowed) == ({T0: 7, T1: 6}, FallbackReason.COLD, 1)
    assert manager.view("h", 7).offsets_fallback_reason is None
    manager.apply([stored(7, 8, p0=9)], 8)
    assert (known(manager)[T0], manager.overflowed) == (9, 1), "kept offsets are still updated"
    manager.apply([learned(manager, 9, p0=9, p1=6, p2=8)], 10)
    assert lacking(manager) is FallbackReason.COLD


@pytest.mark.parametrize(
    "room",
    [
        [OffsetsDeleted(group_id="g", sent_at=5, partitions=(T0, T1))],
        [TransactionEnded(producer_id=9, committed=False)],
    ],
)
def test_removed_offsets_make_room(room: list[AnyEvent]) -> None:
    """Deleted offsets and aborted transactions make room for new offsets."""
    manager = copy(max_offsets=4)
    manager.apply([stored(1, 2, p0=5, p1=6)], 2)
    pending = {T0: offset(1, 2), T1: offset(1, 2)}
    manager.apply([OffsetsPending(group_id="g", sent_at=3, producer_id=9, offsets=pending)], 4)
    manager.apply([stored(4, 4, group="h", p0=1)], 4)
    assert manager.overflowed == 1
    manager.apply(room, 6)
    manager.apply([stored(7, 8, group="h", p0=1, p1=2)], 8)
    assert manager.overflowed == 1
    manager.apply([stored(9, 10, group="h", p2=3)], 10)
    assert manager.overflowed == 2


def test_transaction_offsets_are_bounded() -> None:
    """Pending offsets of each producer count towards max_offsets, and kept ones are still updated."""
    manager = copy(max_offsets=4)
    manager.apply([stored(1, 2, p0=5)], 2)
    for producer_id in range(9):
        manager.apply([pending_of(producer_id)], 4)
    assert (tables(manager), manager.overflowed) == ({"offsets": 4, "open_transactions": 3}, 6)
    manager.apply([pending_of(2, value=7)], 5)
    manager.apply([TransactionEnded(producer_id=2, committed=True)], 6)
    assert (known(manager), tables(manager)) == ({T0: 7}, {"offsets": 3, "open_transactions": 2})
    assert manager.overflowed == 6, "kept offsets are still updated"


def test_deleted_group_drops_its_transactions() -> None:
    """A deleted group removes its open transactions, and other groups' transactions stay."""
    manager = copy()
    manager.apply([pending_of(8, "g"), pending_of(9, "g"), pending_of(9, "h")], 4)
    manager.apply([GroupDeleted(group_id="g", sent_at=5)], 6)
    assert tables(manager) == {"offsets": 1, "open_transactions": 1}
    manager.apply([TransactionEnded(producer_id=producer_id, committed=True) for producer_id in (8, 9)], 7)
    assert tables(manager) == {"offsets": 1, "open_transactions": 0}


def pending_of(producer_id: int, group: str = "g", value: int = 6) -> OffsetsPending:
    return OffsetsPending(group_id=group, sent_at=3, producer_id=producer_id, offsets={T0: offset(value, 4)})


def tables(manager: GroupMetadataManager) -> dict[str, int]:
    """Returns the number of entries in the tables of offsets."""
    return {table.name: table.entries for table in manager.tables() if table.name in ("offsets", "open_transactions")}


def test_ended_transaction_takes_no_extra_room() -> None:
    """A committed transaction does not add to the number of offsets."""
    manager = copy(max_offsets=2)
    manager.apply([stored(1, 2, p0=5)], 2)
    manager.apply([OffsetsPending(group_id="g", sent_at=3, producer_id=9, offsets={T0: offset(6, 4)})], 4)
    manager.apply([TransactionEnded(producer_id=9, committed=True)], 5)
    manager.apply([stored(6, 7, group="h", p0=1)], 7)
    assert (manager.overflowed, known(manager)) == (0, {T0: 6})


def test_log_ends_are_bounded() -> None:
    """At most max_offsets log ends are kept."""
    manager = copy(max_offsets=2)
    manager.apply([LogEndsSeen(ends={T0: 5, T1: 6, T2: 7})], 2)
    manager.apply([LogEndsSeen(ends={T1: 8, T2: 9})], 3)
    assert dict(manager.log_ends) == {T0: (5, 2), T1: (8, 3)}


def test_newest_log_end_wins() -> None:
    """The newest log end of a partition counts, even if it is lower."""
    manager = copy()
    manager.apply([LogEndsSeen(ends={T0: 9, T1: 9})], 2)
    manager.apply([LogEndsSeen(ends={T0: 4})], 3)
    manager.apply([LogEndsSeen(ends={T0: 8, T1: 10})], 2.5)
    assert dict(manager.log_ends) == {T0: (4, 3), T1: (10, 2.5)}


def test_unseen_log_ends() -> None:
    """partitions_with_stale_log_end returns the partitions whose log end was not seen since the given time."""
    manager = copy()
    manager.apply([LogEndsSeen(ends={T0: 9})], 2)
    manager.apply([LogEndsSeen(ends={T1: 9})], 3)
    assert manager.log_bounds.partitions_with_stale_log_end([T0, T1, T2], since=3) == {T0, T2}


def test_newest_log_start_wins() -> None:
    """The newest log start of a partition counts."""
    manager = copy()
    manager.apply([LogStartsSeen(starts={T0: 5, T1: 7})], 2)
    manager.apply([LogStartsSeen(starts={T0: 6})], 3)
    manager.apply([LogStartsSeen(starts={T1: 6})], 1)
    assert dict(manager.log_bounds.starts) == {T0: (6, 3), T1: (7, 2)}
    assert not manager.log_ends


def test_doubtful_partitions_are_bounded() -> None:
    """If a client's lost requests name very many partitions, all offsets become incomplete until a complete reply."""
    offsets = GroupOffsets(None)
    offsets.doubt([(f"t{number}", 0) for number in range(MAX_DOUBTFUL)], 1.0)
    assert (offsets.incomplete_reason, offsets.fallback_reason) == (None, FallbackReason.IN_DOUBT)
    offsets.doubt([("one more", 0)], 2.0)
    assert (offsets.incomplete_reason, len(offsets.doubtful)) == (FallbackReason.IN_DOUBT, MAX_DOUBTFUL)
    offsets.adopt({}, (), complete=True, sent_at=3.0)
    assert (offsets.fallback_reason, offsets.doubtful) == (None, {})
