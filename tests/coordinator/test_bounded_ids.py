"""Ids that clients can have made without becoming members: how many are kept, and what holds beyond that."""

import pytest

from group_sidecar.coordinator.bounded_ids import LONGEST_ID, MOST_DEPARTED, MOST_IDS, ContestedIds, IssuedIds
from group_sidecar.coordinator.events import (
    LOST_SECONDS,
    GroupDescribed,
    JoinAccepted,
    Joining,
    JoinSent,
    MemberIdIssued,
    MembersLeft,
)
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.views import GroupState, Lacking
from tests.coordinator.large_groups import NOW, describe, joining, knowing_nothing, lose

SESSION_SECONDS = 45.0
"""Of `joining`: for so long an issued id may be used."""


def issue(manager: GroupMetadataManager, numbers: range) -> None:
    """One client has the broker issue member ids, and uses none."""
    for number in numbers:
        sent = joining(number)
        issued = MemberIdIssued(group_id="g", sent_at=NOW, joining=sent, member_id=f"m-{number}")
        manager.apply([JoinSent(group_id="g", sent_at=NOW, joining=sent), issued], NOW)


def parked(manager: GroupMetadataManager, sent: Joining, now: float) -> int:
    """How many are parked once a join has gone to the broker."""
    manager.apply([JoinSent(group_id="g", sent_at=now, joining=sent)], now)
    manager.refresh("g", now)
    return manager.seated("g", now).seats.parked


def test_the_newest_issued_ids_are_kept() -> None:
    manager = knowing_nothing()
    issue(manager, range(3 * MOST_IDS))
    assert list(manager.group_metadata_cache["g"].pending) == [f"m-{n}" for n in range(2 * MOST_IDS, 3 * MOST_IDS)]


def test_a_join_under_a_forgotten_id_takes_a_place_as_long_as_the_broker_knows_the_id() -> None:
    manager = knowing_nothing()
    issue(manager, range(MOST_IDS))
    assert parked(manager, joining(-1, member="never issued"), NOW) == 0
    issue(manager, range(MOST_IDS, MOST_IDS + 1))
    assert parked(manager, joining(-2, member="m-0"), NOW) == 2, "which of both the broker knows is not known any more"
    assert parked(manager, joining(-3, member="m-1"), NOW + SESSION_SECONDS + 1) == 0


def test_a_long_issued_id_counts_as_forgotten() -> None:
    ids = IssuedIds()
    ids.issue("x" * (LONGEST_ID + 1), 5.0)
    assert (list(ids), ids.forgot_any(5.0), ids.may_be_used(5.0), ids.may_be_used(5.1)) == ([], True, True, False)
    ids.issue("x" * LONGEST_ID, 7.0)
    assert (len(list(ids)), ids.forgot_any(6.0), ids.may_be_used(6.0)) == (1, False, True)
    ids.expire(7.5)
    assert not ids


def test_contested_instance_ids_are_bounded() -> None:
    manager = knowing_nothing()
    for number in range(3 * MOST_IDS):
        lose(manager, joining(number, static=True))
    contested = manager.group_metadata_cache["g"].contested
    assert len(contested) == MOST_IDS
    assert "any other" in contested
    assert None not in contested


def test_a_long_contested_id_makes_any_contested() -> None:
    contested = ContestedIds()
    contested.add("i")
    assert ("i" in contested, "j" in contested) == (True, False)
    contested.add("x" * (LONGEST_ID + 1))
    assert (len(contested), "j" in contested) == (1, True)


def leave(manager: GroupMetadataManager, member_ids: list[str]) -> None:
    """The broker lets these ids go."""
    left = tuple((member_id, None) for member_id in member_ids)
    manager.apply([MembersLeft(group_id="g", sent_at=NOW, members=left, client_id="c", client_host="/10.0.0.1")], NOW)


def asked_again(manager: GroupMetadataManager, at: float) -> Lacking | None:
    """Why there may be other members, once the broker has been asked at a time and has said that nobody is in."""
    empty = GroupDescribed(
        group_id="g",
        sent_at=at,
        state=GroupState.EMPTY,
        protocol_type="consumer",
        protocol="",
        members=(),
        as_of=manager.changes_of("g")[0],
    )
    manager.apply([empty], at)
    return manager.group_metadata_cache["g"].unsure


def test_ids_that_leave_before_they_are_used_are_bounded() -> None:
    manager = knowing_nothing()
    issue(manager, range(1))
    leave(manager, [f"m-{number}" for number in range(MOST_DEPARTED)])
    group = manager.group_metadata_cache["g"]
    assert group.settled_at == NOW, "what the broker says from now on is all"
    leave(manager, [f"m-{number}" for number in range(MOST_DEPARTED, 2 * MOST_DEPARTED)])
    assert len(group.departed) == MOST_DEPARTED
    assert group.settled_at == NOW + LOST_SECONDS, "a late reply may still name one that is not kept"
    assert asked_again(manager, NOW + LOST_SECONDS / 2) is Lacking.IN_DOUBT
    assert asked_again(manager, NOW + LOST_SECONDS) is None


def test_a_long_id_that_leaves_is_not_kept() -> None:
    manager = knowing_nothing()
    issue(manager, range(1))
    leave(manager, ["x" * LONGEST_ID, "x" * (LONGEST_ID + 1)])
    group = manager.group_metadata_cache["g"]
    assert group.departed == {"x" * LONGEST_ID}
    assert group.settled_at == NOW + LOST_SECONDS


def restart(manager: GroupMetadataManager, group: Group, number: int) -> None:
    """A static member joins again, and gets another id in the same generation (KIP-345)."""
    accepted = JoinAccepted(
        group_id="g",
        sent_at=NOW + 1,
        joining=joining(0, static=True),
        member_id=f"again-{number}",
        generation=group.generation,
        protocol_type="consumer",
        protocol="range",
        leader=group.leader,
        roster=(),
    )
    manager.apply([accepted], NOW + 1)


def test_ids_of_a_static_member_that_restarts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("group_sidecar.coordinator.groups.MOST_DEPARTED", 3)
    manager = knowing_nothing()
    group = describe(manager, 1, static=True)
    for number in range(3):
        restart(manager, group, number)
    assert len(group.departed) == 3
    settled_at = group.settled_at
    restart(manager, group, 3)
    assert list(group.members) == ["again-3"]
    assert len(group.departed) == 3
    assert group.settled_at == NOW + 1 + LOST_SECONDS > settled_at
