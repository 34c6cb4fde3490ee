"""Answers and group sizes that the broker has refuted before, or may refute because of a request in flight."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.events import (
    LOST_REQUEST_SECONDS,
    NEW_MEMBER_JOIN_TIMEOUT_SECONDS,
    DescribedMember,
    Event,
    GroupDeleted,
    GroupDescribed,
    JoinAccepted,
    JoinSent,
    MembersLeft,
    MemberUnknown,
    OffsetsDeleted,
    OffsetsDoubted,
    OffsetsLearned,
    OffsetsStored,
    ReplyLost,
)
from group_sidecar.coordinator.model.views import CommittedOffset, FallbackReason, GroupState
from tests.coordinator.large_groups import joining
from tests.coordinator.log.test_consumer_group_records import CLASSIC
from tests.coordinator.log.test_consumer_group_records import Log as Records
from tests.coordinator.log.test_follower import (
    T0,
    Reader,
    generation,
    gone,
    heartbeat,
    member_seen,
    offset,
    with_member,
)
from tests.coordinator.sweeping import swept

NEW_GROUP = [*Records().group(4, 4).member("x").current("x", 4).records.items()]
MIXED_GROUP = [
    *Records().group(4, 4).member("x").current("x", 4).member("c", tags=CLASSIC).current("c", 4).records.items()
]
JOINING = joining(1)


def described(manager: GroupMetadataManager, at: float, state: GroupState, *members: str) -> GroupDescribed:
    """The broker's description of the group, which was requested at `at`."""
    return GroupDescribed(
        group_id="g",
        sent_at=at,
        state=state,
        protocol_type="consumer" if members else "",
        protocol="",
        members=tuple(
            DescribedMember(
                member_id=each, instance_id=None, client_id="c", client_host="/h", metadata=b"", assignment=b""
            )
            for each in members
        ),
        as_of=manager.changes_of("g")[0],
    )


def observed() -> GroupMetadataManager:
    """A copy that observes all groups from their creation on, at the only broker, without the log."""
    manager = GroupMetadataManager(exclusive=True)
    manager.set_existing_groups(())
    manager.set_broker_count(1, 0)
    return manager


# Groups of the newer protocols, which DescribeGroups reports as missing.


def test_consumer_group_beyond_bound_is_not_denied() -> None:
    """A description as Dead does not show that a group is missing, because KIP-848 groups are described as Dead too."""
    reader = Reader(exclusive=True, max_groups=1)
    reader.read(offset(0, 5, "kept"), at=1)
    reader.read(*NEW_GROUP, at=2)
    manager = reader.manager
    manager.apply([GroupDeleted(group_id="kept", sent_at=2.1)], 2.15)
    reader.read(offset(0, None, "kept"), gone("kept"), at=2.2)
    assert manager.listing_fallback_reason(2.2) is FallbackReason.COLD
    manager.apply([described(manager, 2.3, GroupState.DEAD)], 2.4)
    assert manager.listing_fallback_reason(2.4) is FallbackReason.COLD
    assert manager.group_fallback_reason("g", 2.4) is FallbackReason.COLD
    assert manager.consumer_fallback_reason("g", 2.4) is FallbackReason.COLD


def test_new_streams_group_is_not_denied() -> None:
    """A description as Dead does not hide a share or streams group whose records were not read yet."""
    reader = Reader(exclusive=True)
    manager = reader.manager
    manager.note_unread_write("g")
    manager.note_unread_write("g", 1)
    manager.apply([described(manager, 1.1, GroupState.DEAD)], 1.2)
    reader.catch_up(0.9, 1.25)  # Fetched before the broker created the group.
    assert manager.listing_fallback_reason(1.25) is FallbackReason.COLD
    assert manager.consumer_fallback_reason("g", 1.25) is FallbackReason.COLD


def test_lost_heartbeat_may_convert_classic_group() -> None:
    """A heartbeat whose reply was lost may have made a classic group a KIP-848 group."""
    reader = Reader(load=[generation(3), offset(0, 5)])
    reader.catch_up(0.5, 0.5)
    assert reader.manager.consumer_fallback_reason("g", 0.6) is None
    reader.manager.apply([ReplyLost(group_id="g", sent_at=0.9, token="1:1", may_create_group=True)], 1)
    assert reader.manager.consumer_fallback_reason("g", 1.1) is FallbackReason.IN_DOUBT
    reader.catch_up(2.1, 2.1)
    assert reader.manager.consumer_fallback_reason("g", 2.2) is None


@pytest.mark.parametrize(
    "event",
    [
        JoinAccepted(
            group_id="g",
            sent_at=1.1,
            joining=JOINING,
            member_id="n",
            generation=5,
            protocol_type="consumer",
            protocol="range",
            leader="",
            roster=(),
        ),
        MembersLeft(group_id="g", sent_at=1.1, members=(("c", None),), client_id="c", client_host="/h"),
        MemberUnknown(group_id="g", sent_at=1.1, member_id="c"),
    ],
    ids=["join", "leave", "unknown"],
)
def test_change_of_classic_member_waits_for_log(event: Event) -> None:
    """After a classic member has joined or left a KIP-848 group, only the log shows the group's new epoch."""
    reader = Reader(load=MIXED_GROUP)
    manager = reader.manager
    manager.apply([heartbeat(changes=False, at=0.5, member_id="x")], 0.6)
    reader.catch_up(1, 1)
    assert manager.consumer_fallback_reason("g", 1) is None
    manager.apply([event], 1.2)
    assert manager.consumer_fallback_reason("g", 1.2) is FallbackReason.IN_DOUBT
    reader.catch_up(1.3, 1.4)
    assert manager.consumer_fallback_reason("g", 1.4) is None


@pytest.mark.parametrize("is_listed", [True, False], ids=["existed", "appeared"])
def test_newer_group_without_log_is_not_denied(is_listed: bool) -> None:
    """Without the log, a group that exists at the start or that sends unread heartbeats is not denied.

    DescribeGroups reports a group of a newer protocol as Dead. The offsets of such a group must not seem to be missing.
    """
    manager = GroupMetadataManager(exclusive=True)
    manager.set_existing_groups(("g",) if is_listed else ())
    manager.set_broker_count(1, 0)
    if not is_listed:
        manager.note_unread_write("g")
        manager.note_unread_write("g", 1)
        manager.apply([stored(1.1, 1.2, 9)], 1.2)
    for at in (2.0, 3.0):
        manager.apply([described(manager, at, GroupState.DEAD)], at + 0.1)
        assert manager.offsets_fallback_reason("g", at + 0.2) is not None
        assert manager.listing_fallback_reason(at + 0.2) is not None
        assert manager.group_fallback_reason("g", at + 0.2) is not None


# Groups whose members or records are gone.


def test_session_of_described_member_may_end_at_once() -> None:
    """A description does not contain when a member sent its last request, even if the log has its session timeout.

    Found by seed 2254 of the simulation.
    """
    reader = Reader(exclusive=True)
    manager = reader.manager
    manager.apply([described(manager, 1, GroupState.STABLE, "m")], 1.1)
    reader.read(with_member(3), at=1.2)
    manager.apply([described(manager, 1.3, GroupState.STABLE, "m")], 1.4)
    reader.catch_up(2, 2)
    assert manager.group_fallback_reason("g", 2.5) is FallbackReason.IN_DOUBT


def test_rebalance_may_wait_for_unseen_ids() -> None:
    """A rebalance without members may wait for ids that the broker issued before the copy knew the group (seed 386)."""
    reader = Reader(exclusive=True, load=[with_member(3), offset(0, 5)])
    manager = reader.manager
    reader.catch_up(1, 1)
    manager.apply([replace(member_seen("m", 1.1), no_rebalance=False)], 1.2)
    manager.apply([described(manager, 1.3, GroupState.PREPARING_REBALANCE, "m")], 1.4)
    reader.catch_up(1.5, 1.5)
    manager.apply(
        [MembersLeft(group_id="g", sent_at=1.6, members=(("m", None),), client_id="c", client_host="/h")], 1.7
    )
    reader.catch_up(2, 2)
    assert manager.view("g", 2).state is GroupState.EMPTY
    assert manager.group_fallback_reason("g", 2) is FallbackReason.IN_DOUBT


def test_late_record_of_passed_generation() -> None:
    """The broker describes the next generation before the log shows the last one (seed 12 of the simulation)."""
    reader = Reader(exclusive=True, load=[with_member(3)])
    manager = reader.manager
    manager.apply([described(manager, 1, GroupState.STABLE, "m")], 1.1)
    manager.apply([described(manager, 2, GroupState.COMPLETING_REBALANCE, "m")], 2.1)
    reader.read(with_member(3), at=2.2)
    assert manager.view("g", 2.2).state is GroupState.COMPLETING_REBALANCE
    reader.read(with_member(4), at=2.3)
    assert manager.view("g", 2.3).state is GroupState.STABLE


@pytest.mark.parametrize("lost", ["commit", "join"])
def test_lost_request_may_create_vanished_group_again(lost: str) -> None:
    """A lost request may create a group again after the log has shown that the broker removed the group."""
    reader = Reader(exclusive=True, load=[generation(3), offset(0, 5)])
    manager = reader.manager
    events: list[Event] = [JoinSent(group_id="g", sent_at=0.9, joining=JOINING)]
    events.append(ReplyLost(group_id="g", sent_at=0.9, token=JOINING.token, may_create_group=True))
    if lost == "commit":
        events = [OffsetsDoubted(group_id="g", sent_at=0.9, partitions=(T0,), may_create_group=True)]
    manager.apply(events, 1)
    reader.catch_up(1.2, 1.2)
    reader.read(offset(0, None), gone(), at=1.3)
    assert "g" not in manager.group_metadata_cache
    assert manager.group_fallback_reason("g", 1.4) is FallbackReason.COLD
    assert manager.listing_fallback_reason(1.4) is FallbackReason.COLD
    assert manager.offsets_fallback_reason("g", 1.4) is FallbackReason.IN_DOUBT


# Offsets.


def stored(sent_at: float, now: float, value: int, writer: str = "") -> OffsetsStored:
    offset = CommittedOffset(value, 1, "m", now, True, writer)
    return OffsetsStored(group_id="g", sent_at=sent_at, offsets={T0: offset})


@pytest.mark.parametrize("partitions", [None, (T0,)], ids=["DeleteGroups", "OffsetDelete"])
def test_lost_deletion_may_follow_first_commit_of_group(partitions: tuple[tuple[str, int], ...] | None) -> None:
    """A lost deletion may remove the first offset of a group that exists already."""
    manager = observed()
    join = JoinAccepted(
        group_id="g",
        sent_at=0.3,
        joining=JOINING,
        member_id="n",
        generation=1,
        protocol_type="other",
        protocol="range",
        leader="n",
        roster=(("n", None, b""),),
    )
    manager.apply([JoinSent(group_id="g", sent_at=0.3, joining=JOINING), join], 0.4)
    manager.apply([OffsetsDoubted(group_id="g", sent_at=1, partitions=partitions)], 1.1)
    manager.apply([stored(1.2, 1.3, 9)], 1.3)
    assert manager.offsets_fallback_reason("g", 1.3) is not None


def _reply() -> list[Event]:
    outdated = OffsetsLearned(
        group_id="g", sent_at=1.1, offsets={T0: CommittedOffset(7, 1, "m", 1.2)}, absent=(), complete=False, as_of=0
    )
    return [outdated]


def _crossing_commit() -> list[Event]:
    return [stored(1.1, 1.2, 6, "2"), stored(1.1, 1.25, 7, "3")]


def _crossing_deletion() -> list[Event]:
    return [stored(1.1, 1.2, 6), OffsetsDeleted(group_id="g", sent_at=1.1, partitions=(T0,))]


@pytest.mark.parametrize("doubt", [_reply, _crossing_commit, _crossing_deletion])
def test_later_doubt_does_not_end_earlier_doubt(doubt: Callable[[], list[Event]]) -> None:
    """Another doubt of the same offset does not shorten the time in which a lost commit may still take effect.

    Found by seed 2094 of the simulation.
    """
    manager = observed()
    manager.apply([stored(0.5, 0.6, 5)], 0.6)
    manager.apply([OffsetsDoubted(group_id="g", sent_at=1, partitions=(T0,), may_create_group=True)], 1.1)
    manager.apply(doubt(), 1.25)
    manager.apply([stored(1.3, 1.4, 8)], 1.4)
    assert manager.offsets_fallback_reason("g", 1.5) is FallbackReason.IN_DOUBT


# The size of a group.


def accepted(generation: int, at: float, member_id: str, *roster: str, token: str = "1:1") -> JoinAccepted:
    return JoinAccepted(
        group_id="g",
        sent_at=at,
        joining=replace(JOINING, token=token, member_id=member_id),
        member_id=member_id,
        generation=generation,
        protocol_type="consumer",
        protocol="range",
        leader=roster[0] if roster else "a",
        roster=tuple((each, None, b"") for each in roster),
    )


def test_late_join_outdates_description() -> None:
    """A join that the broker answered at once may have given a static member another id.

    A description from before then has the old id. So a join with the new id would not count as parked. Found by seed
    2118 of the simulation.
    """
    manager = observed()
    manager.apply([accepted(3, 1, "a", "a", "old")], 1.1)
    manager.apply([described(manager, 1.2, GroupState.STABLE, "a", "old")], 1.3)
    manager.apply([accepted(3, 1.4, "new", token="2:1")], 1.5)
    assert not manager.view_with_occupancy("g", 1.55).occupancy.certain
    manager.apply([described(manager, 1.6, GroupState.STABLE, "a", "new")], 1.7)
    again = replace(JOINING, token="2:2", member_id="new")
    manager.apply([JoinSent(group_id="g", sent_at=1.8, joining=again)], 1.8)
    occupancy = manager.view_with_occupancy("g", 1.9).occupancy
    assert (occupancy.certain, occupancy.parked) == (True, 1)


@pytest.mark.parametrize("timeout_ms", [JOINING.session_timeout_ms, JOINING.rebalance_timeout_ms])
@pytest.mark.parametrize(("state", "valid"), [(GroupState.PREPARING_REBALANCE, True), (GroupState.STABLE, False)])
def test_end_of_sessions_outdates_description(state: GroupState, valid: bool, timeout_ms: int) -> None:
    """The end of a member's session outdates a description of a settled group, but not that of a rebalance.

    In a rebalance, only the parked joins count. In a storm of joins, sessions end all the time, and each join would
    otherwise need a description of its own. After the session timeout, the broker may have removed the member. After
    the rebalance timeout, it must have removed the member, because the member does not sync.
    """
    manager = observed()
    manager.apply([accepted(3, 1, "a", "a")], 1.1)
    ended = 1.1 + timeout_ms / 1000
    again = replace(JOINING, token="2:1", member_id="b")
    manager.apply([JoinSent(group_id="g", sent_at=ended, joining=again)], ended)
    manager.apply([described(manager, ended - 0.1, state, "a", "b")], ended)
    manager.refresh("g", ended + 0.1)
    assert manager.view_with_occupancy("g", ended + 0.2).occupancy.certain is valid
    assert manager.view_with_occupancy("g", ended + 0.2, asked_often=True).occupancy.certain


def test_lost_join_of_new_group_is_kept() -> None:
    """A lost join of a group that the log does not show yet is kept, because the broker may have parked it.

    Found by seed 742 of the simulation: a full group let another member in.
    """
    reader = Reader()
    reader.manager.apply([JoinSent(group_id="g", sent_at=1, joining=JOINING)], 1)
    reader.manager.apply([ReplyLost(group_id="g", sent_at=1, token=JOINING.token, may_create_group=True)], 1.1)
    swept(reader.manager, 1.5)
    reader.catch_up(1.6, 1.7)
    assert reader.manager.view_with_occupancy("g", 1.8).occupancy.parked == 1
    swept(reader.manager, 1.1 + LOST_REQUEST_SECONDS + NEW_MEMBER_JOIN_TIMEOUT_SECONDS)
    assert "g" not in reader.manager.group_metadata_cache
