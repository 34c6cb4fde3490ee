"""What is done to a group of thousands of members at once costs so much for each, not for each of each."""

from collections.abc import Callable
from time import thread_time

import pytest

from group_sidecar.codecs.group_records import GroupMetadataValue, MemberMetadata
from group_sidecar.codecs.offsets_topic import encode_value
from group_sidecar.coordinator.events import (
    DescribedMember,
    GroupDescribed,
    JoinAccepted,
    Joining,
    JoinSent,
    LeaveSent,
    MembersLeft,
    MemberUnknown,
    RebalanceSeen,
    ReplyLost,
)
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.logged import generation_logged
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.views import GroupState

MANY = 4_000
SECONDS = 0.15
"""Of CPU for what is done to each of them: up to 0.08 s without compiled modules, and 0.6 s where each was looked for
among all others."""
NOW = 1_000.0


@pytest.fixture
def manager() -> GroupMetadataManager:
    """One whose clients have nobody beside them, and that knows no group."""
    manager = GroupMetadataManager(exclusive=True)
    manager.inherit(())
    return manager


def member_id(number: int) -> str:
    return f"member-{number}"


def instance_id(number: int) -> str:
    return f"instance-{number}"


def describe(manager: GroupMetadataManager, *, static: bool, state: GroupState = GroupState.STABLE) -> Group:
    """The broker tells of a group of very many members."""
    members = tuple(
        DescribedMember(
            member_id=member_id(number),
            instance_id=instance_id(number) if static else None,
            client_id="c",
            client_host="/10.0.0.1",
            metadata=b"",
            assignment=b"",
        )
        for number in range(MANY)
    )
    manager.apply(
        [
            GroupDescribed(
                group_id="g",
                sent_at=NOW,
                state=state,
                protocol_type="consumer",
                protocol="range",
                members=members,
                as_of=manager.changes_of("g")[0],
            )
        ],
        NOW,
    )
    group = manager.group_metadata_cache["g"]
    assert len(group.members) == MANY
    return group


def joining(number: int, *, static: bool = False, member: str = "") -> Joining:
    return Joining(
        token=f"{number}:1",
        member_id=member,
        instance_id=instance_id(number) if static else None,
        client_id="c",
        client_host="/10.0.0.1",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        parks=True,
        said="",
    )


def taken(step: Callable[[], object]) -> float:
    """Seconds of CPU."""
    began = thread_time()
    step()
    return thread_time() - began


@pytest.mark.parametrize("static", [False, True])
def test_very_many_members_leave_at_once(manager: GroupMetadataManager, static: bool) -> None:
    group = describe(manager, static=static)
    leaving = tuple(("", instance_id(n)) if static else (member_id(n), None) for n in range(MANY))
    sent = LeaveSent(group_id="g", sent_at=NOW + 1, members=leaving, client_id="c", client_host="/10.0.0.1")
    left = MembersLeft(group_id="g", sent_at=NOW + 1, members=leaving, client_id="c", client_host="/10.0.0.1")
    assert taken(lambda: manager.apply([sent, left], NOW + 2)) < SECONDS
    assert not group.members


def test_very_many_members_are_unknown_where_as_many_joins_were_lost(manager: GroupMetadataManager) -> None:
    group = describe(manager, static=False)
    for number in range(MANY):
        sent = joining(number, member=member_id(number))
        manager.apply([JoinSent(group_id="g", sent_at=NOW + 1, joining=sent)], NOW + 1)
        manager.apply([ReplyLost(group_id="g", sent_at=NOW + 1, token=sent.token, creates=True)], NOW + 1)
    unknown = [MemberUnknown(group_id="g", sent_at=NOW + 2, member_id=member_id(number)) for number in range(MANY)]
    assert taken(lambda: manager.apply(unknown, NOW + 3)) < SECONDS
    assert not group.members
    assert not group.reservations.haunted


def test_a_lost_join_counts_again_once_its_member_was_forgotten(manager: GroupMetadataManager) -> None:
    group = describe(manager, static=False)
    for number in range(3):
        sent = joining(number, member=member_id(1))
        manager.apply([JoinSent(group_id="g", sent_at=NOW + 1, joining=sent)], NOW + 1)
        assert group.reservations.is_parked(member_id(1))
        manager.apply([ReplyLost(group_id="g", sent_at=NOW + 1, token=sent.token, creates=True)], NOW + 1)
        assert group.reservations.is_parked(member_id(1))
        manager.apply([MemberUnknown(group_id="g", sent_at=NOW + 2, member_id=member_id(1))], NOW + 3)
        assert not group.reservations.is_parked(member_id(1))


def test_a_group_of_very_many_is_described_where_as_many_joins_were_lost(manager: GroupMetadataManager) -> None:
    describe(manager, static=True, state=GroupState.PREPARING_REBALANCE)
    for number in range(MANY):
        sent = joining(number, member=f"other-{number}")
        manager.apply([JoinSent(group_id="g", sent_at=NOW + 1, joining=sent)], NOW + 1)
        manager.apply([ReplyLost(group_id="g", sent_at=NOW + 1, token=sent.token, creates=True)], NOW + 1)
    assert taken(lambda: describe(manager, static=True, state=GroupState.PREPARING_REBALANCE)) < SECONDS


@pytest.mark.parametrize("static", [False, True])
def test_a_leader_is_told_of_others_than_were_known(manager: GroupMetadataManager, static: bool) -> None:
    group = describe(manager, static=static)
    sent = joining(MANY + 1, member=member_id(0))
    manager.apply([JoinSent(group_id="g", sent_at=NOW + 1, joining=sent)], NOW + 1)
    roster = tuple((f"new-{n}", instance_id(n) if static else None, b"") for n in range(MANY))
    accepted = JoinAccepted(
        group_id="g",
        sent_at=NOW + 1,
        joining=sent,
        member_id="new-0",
        generation=group.generation + 2,
        protocol_type="consumer",
        protocol="range",
        leader="new-0",
        roster=roster,
    )
    assert taken(lambda: manager.apply([accepted], NOW + 2)) < SECONDS
    assert set(group.members) == {f"new-{n}" for n in range(MANY)}


def test_very_many_static_members_join_again_at_once(manager: GroupMetadataManager) -> None:
    group = describe(manager, static=True)
    joins = [joining(number, static=True) for number in range(MANY)]
    manager.apply([JoinSent(group_id="g", sent_at=NOW + 1, joining=each) for each in joins], NOW + 1)
    first, generation = member_id(0), group.generation
    seen = RebalanceSeen(group_id="g", sent_at=NOW + 2, member_id=first, generation=generation, alive=True)
    assert taken(lambda: manager.apply([seen], NOW + 3)) < SECONDS
    assert group.rebalance is not None


def test_the_log_tells_of_others_than_were_known(manager: GroupMetadataManager) -> None:
    group = describe(manager, static=True)
    members = tuple(
        MemberMetadata(
            member_id=f"new-{number}",
            group_instance_id=instance_id(number + MANY // 2),
            client_id="c",
            client_host="/10.0.0.1",
            session_timeout=45_000,
            subscription=b"",
            assignment=b"",
        )
        for number in range(MANY)
    )
    value = GroupMetadataValue(
        protocol_type="consumer", generation=group.generation + 2, protocol="range", leader="new-0", members=members
    )
    raw = encode_value(value, 3)
    assert taken(lambda: generation_logged(group, raw, NOW + 2, news=True)) < SECONDS
    assert set(group.members) == {f"new-{n}" for n in range(MANY)}
