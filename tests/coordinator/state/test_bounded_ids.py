"""Ids of clients that never became members: how many the copy keeps, and how it behaves above this limit."""

import pytest

from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.events import (
    LOST_REQUEST_SECONDS,
    GroupDescribed,
    JoinAccepted,
    JoiningMember,
    JoinSent,
    MemberIdIssued,
    MembersLeft,
)
from group_sidecar.coordinator.model.views import FallbackReason, GroupState
from group_sidecar.coordinator.state.bounded_ids import (
    MAX_ID_LENGTH,
    MAX_IDS,
    MAX_LEFT_MEMBER_IDS,
    ContestedIds,
    IssuedIds,
)
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.pending_joins import PendingJoins
from tests.coordinator.large_groups import NOW, describe, joining, knowing_nothing, lose

SESSION_SECONDS = 45.0
"""The session timeout of `joining` in seconds. An issued id is valid for this time."""


def issue(manager: GroupMetadataManager, numbers: range) -> None:
    """Applies replies in which the broker issues member ids to one client, which uses none."""
    for number in numbers:
        sent = joining(number)
        issued = MemberIdIssued(group_id="g", sent_at=NOW, joining=sent, member_id=f"m-{number}")
        manager.apply([JoinSent(group_id="g", sent_at=NOW, joining=sent), issued], NOW)


def parked(manager: GroupMetadataManager, sent: JoiningMember, now: float) -> int:
    """Returns how many joins are parked after the policy has judged a join that then goes to the broker."""
    manager.refresh("g", now)
    manager.apply([JoinSent(group_id="g", sent_at=now, joining=sent)], now)
    return manager.view_with_occupancy("g", now).occupancy.parked


def test_the_newest_issued_ids_are_kept() -> None:
    """The pending ids of a group are the MAX_IDS newest issued ids."""
    manager = knowing_nothing()
    issue(manager, range(3 * MAX_IDS))
    assert list(manager.group_metadata_cache["g"].pending) == [f"m-{n}" for n in range(2 * MAX_IDS, 3 * MAX_IDS)]


@pytest.mark.parametrize("is_lost", [False, True])
def test_issued_id_of_join_is_known_until_reply(is_lost: bool) -> None:
    """Whether a join's id was issued is known until the join has its reply or is lost."""
    joins = PendingJoins()
    issued, own = joining(1, member="issued"), joining(2, member="own")
    joins.add_join(JoinSent(group_id="g", sent_at=NOW, joining=issued), has_issued_id=True)
    joins.add_join(JoinSent(group_id="g", sent_at=NOW, joining=own), has_issued_id=False)
    assert (joins.has_issued_id(issued.token), joins.has_issued_id(own.token)) == (True, False)
    if is_lost:
        joins.mark_lost(issued.token, NOW)
    else:
        joins.remove_join(issued.token)
    assert not joins.has_issued_id(issued.token)


def test_forgotten_id_occupies_while_valid() -> None:
    """A join under a forgotten id counts towards the group's size while the broker may still know this id."""
    manager = knowing_nothing()
    issue(manager, range(MAX_IDS))
    assert parked(manager, joining(-1, member="never issued"), NOW) == 0
    issue(manager, range(MAX_IDS, MAX_IDS + 1))
    assert parked(manager, joining(-2, member="m-0"), NOW) == 2, (
        "the copy has forgotten which of the two ids the broker issued"
    )
    later = NOW + SESSION_SECONDS + 1
    assert parked(manager, joining(-3, member="m-1"), later) == 2, "the id has expired at the broker"


def test_parked_join_outlasts_its_issued_id() -> None:
    """A join that waits at the broker counts towards the group's size, also when its issued id would have expired."""
    manager = knowing_nothing()
    issue(manager, range(2))
    assert parked(manager, joining(0, member="m-0"), NOW + 1) == 1
    later = NOW + SESSION_SECONDS + 1
    manager.refresh("g", later)
    assert manager.view_with_occupancy("g", later).occupancy.parked == 1
    assert parked(manager, joining(1, member="m-1"), later) == 1, "the unused id has expired at the broker"


def test_long_issued_id_counts_as_forgotten() -> None:
    """An issued id longer than MAX_ID_LENGTH is not kept, and until its expiry any id may be the issued one."""
    ids = IssuedIds()
    ids.issue("x" * (MAX_ID_LENGTH + 1), 5.0)
    assert (list(ids), ids.forgot_any(5.0), ids.may_be_used(5.0), ids.may_be_used(5.1)) == ([], True, True, False)
    ids.issue("x" * MAX_ID_LENGTH, 7.0)
    assert (len(list(ids)), ids.forgot_any(6.0), ids.may_be_used(6.0)) == (1, False, True)
    ids.expire(7.5, joining={"x" * MAX_ID_LENGTH})
    assert ids
    ids.expire(7.5, joining=())
    assert not ids


def test_contested_instance_ids_are_bounded() -> None:
    """At most MAX_IDS contested instance ids are kept, and above this limit every other id counts as contested."""
    manager = knowing_nothing()
    for number in range(3 * MAX_IDS):
        lose(manager, joining(number, static=True))
    contested = manager.group_metadata_cache["g"].roster.contested
    assert len(contested) == MAX_IDS
    assert "any other" in contested
    assert None not in contested


def test_long_contested_id_contests_all_ids() -> None:
    """A contested id longer than MAX_ID_LENGTH is not kept, and makes all ids count as contested."""
    contested = ContestedIds()
    contested.add("i")
    assert ("i" in contested, "j" in contested) == (True, False)
    contested.add("x" * (MAX_ID_LENGTH + 1))
    assert (len(contested), "j" in contested) == (1, True)


def leave(manager: GroupMetadataManager, member_ids: list[str]) -> None:
    """Applies LeaveGroup replies for these ids."""
    left = tuple((member_id, None) for member_id in member_ids)
    manager.apply([MembersLeft(group_id="g", sent_at=NOW, members=left, client_id="c", client_host="/10.0.0.1")], NOW)


def asked_again(manager: GroupMetadataManager, at: float) -> FallbackReason | None:
    """Applies a description without members, requested at `at`. Returns why the group may still have members."""
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
    return manager.group_metadata_cache["g"].incomplete_reason


def test_left_unused_ids_are_bounded() -> None:
    """At most MAX_LEFT_MEMBER_IDS ids of former members are kept. Beyond this limit, a description counts only after
    LOST_REQUEST_SECONDS.
    """
    manager = knowing_nothing()
    issue(manager, range(1))
    leave(manager, [f"m-{number}" for number in range(MAX_LEFT_MEMBER_IDS)])
    group = manager.group_metadata_cache["g"]
    assert group.settled_at == NOW, "every description from now on is up to date"
    leave(manager, [f"m-{number}" for number in range(MAX_LEFT_MEMBER_IDS, 2 * MAX_LEFT_MEMBER_IDS)])
    assert len(group.left_member_ids) == MAX_LEFT_MEMBER_IDS
    assert group.settled_at == NOW + LOST_REQUEST_SECONDS, (
        "a late reply may still contain a member whose departure was evicted"
    )
    assert asked_again(manager, NOW + LOST_REQUEST_SECONDS / 2) is FallbackReason.IN_DOUBT
    assert asked_again(manager, NOW + LOST_REQUEST_SECONDS) is None


def test_long_left_id_is_not_kept() -> None:
    """A former id longer than MAX_ID_LENGTH is not kept, so the group is in doubt for LOST_REQUEST_SECONDS."""
    manager = knowing_nothing()
    issue(manager, range(1))
    leave(manager, ["x" * MAX_ID_LENGTH, "x" * (MAX_ID_LENGTH + 1)])
    group = manager.group_metadata_cache["g"]
    assert group.left_member_ids == {"x" * MAX_ID_LENGTH}
    assert group.settled_at == NOW + LOST_REQUEST_SECONDS


def restart(manager: GroupMetadataManager, group: Group, number: int) -> None:
    """A static member joins again and gets a new id in the same generation (KIP-345)."""
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


def test_restarting_static_member_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The former ids of a static member that restarts often are bounded. Beyond the bound, the group is in doubt for
    LOST_REQUEST_SECONDS.
    """
    monkeypatch.setattr("group_sidecar.coordinator.state.roster.MAX_LEFT_MEMBER_IDS", 3)
    manager = knowing_nothing()
    group = describe(manager, 1, static=True)
    for number in range(3):
        restart(manager, group, number)
    assert len(group.left_member_ids) == 3
    settled_at = group.settled_at
    restart(manager, group, 3)
    assert list(group.members) == ["again-3"]
    assert len(group.left_member_ids) == 3
    assert group.settled_at == NOW + 1 + LOST_REQUEST_SECONDS > settled_at
