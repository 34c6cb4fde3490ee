"""Ids that clients can have made without becoming members: how many are kept, and what holds beyond that."""

from group_sidecar.coordinator.bounded_ids import LONGEST_ID, MOST_IDS, ContestedIds, IssuedIds
from group_sidecar.coordinator.events import Joining, JoinSent, MemberIdIssued
from group_sidecar.coordinator.manager import GroupMetadataManager
from tests.coordinator.large_groups import NOW, joining, knowing_nothing, lose

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
