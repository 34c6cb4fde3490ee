"""How many members of a KIP-848 group count towards its size limit before the log shows them."""

from typing import Any

import pytest

from group_sidecar.coordinator.model.events import (
    ConsumerJoinAnswered,
    ConsumerJoinSent,
    ConsumerMemberSeen,
    MemberUnknown,
    ReplyLost,
)
from group_sidecar.coordinator.model.views import GroupKind
from group_sidecar.coordinator.state.unlogged_members import (
    IN_FLIGHT_SECONDS,
    UNLOGGED_SECONDS,
    UnloggedMembers,
)
from tests.coordinator.rules.test_logged_rebalances import Copy, Group


def grown() -> Copy:
    """Returns a copy of a KIP-848 group with the logged member "a"."""
    return Copy(load=Group().at(1).member("a", 0).write())


def send(copy: Copy, token: str, member_id: str) -> None:
    """A client sends a heartbeat with which a member joins."""
    copy.wire_says(ConsumerJoinSent, token=token, member_key=member_id or token, client_host="/h")


def reject(copy: Copy, token: str) -> None:
    """The broker rejects a join."""
    copy.wire_says(ConsumerJoinAnswered, token=token)


def accept(copy: Copy, token: str, member_id: str, epoch: int = 1) -> None:
    """The broker accepts a join, or a leave if the epoch is -1."""
    copy.wire_says(ConsumerJoinAnswered, token=token)
    seen: dict[str, Any] = {"member_id": member_id, "instance_id": None, "client_id": "c", "client_host": "/h"}
    copy.wire_says(ConsumerMemberSeen, epoch=epoch, is_join=epoch > 0, may_change_group=True, **seen)


def counted(copy: Copy) -> list[str]:
    """Returns the members that count towards the size of the group."""
    return sorted(copy.manager.view_with_occupancy("g", copy.now).occupancy.members)


def test_join_in_flight_counts() -> None:
    """A join counts until the broker rejects it, also without a member id."""
    copy = grown()
    send(copy, "t1", "b")
    send(copy, "t2", "")
    assert counted(copy) == ["a", "b", "t2"]
    reject(copy, "t1")
    reject(copy, "t2")
    assert counted(copy) == ["a"]


def test_rejected_join_keeps_accepted_member() -> None:
    """A member that the broker has accepted counts although a later join with its member id is rejected."""
    copy = grown()
    send(copy, "t1", "b")
    accept(copy, "t1", "b")
    send(copy, "t2", "b")
    reject(copy, "t2")
    assert counted(copy) == ["a", "b"]


def test_rejected_join_keeps_other_join() -> None:
    """A join counts although another join with the same member id is rejected before."""
    copy = grown()
    send(copy, "t1", "b")
    send(copy, "t2", "b")
    reject(copy, "t1")
    assert counted(copy) == ["a", "b"]


@pytest.mark.parametrize("way", ["wrong instance", "overtaken"])
def test_unknown_member_keeps_accepted_member(way: str) -> None:
    """UNKNOWN_MEMBER_ID removes no accepted member if the instance id was wrong, or the request is older."""
    copy = grown()
    sent_at = copy.now
    send(copy, "t1", "b")
    accept(copy, "t1", "b")
    if way == "wrong instance":
        copy.wire_says(MemberUnknown, member_id="b", instance_id="i", protocol=GroupKind.CONSUMER)
    else:
        event = MemberUnknown(group_id="g", sent_at=sent_at, member_id="b", protocol=GroupKind.CONSUMER)
        copy.manager.apply([event], copy.now)
    assert counted(copy) == ["a", "b"]
    copy.wire_says(MemberUnknown, member_id="b", protocol=GroupKind.CONSUMER)
    assert counted(copy) == ["a"]


def test_lost_join_counts_for_a_while() -> None:
    """A join whose reply was lost counts until the log would show the member."""
    copy = grown()
    send(copy, "t1", "b")
    copy.now += 2 * UNLOGGED_SECONDS
    assert counted(copy) == ["a", "b"]
    copy.wire_says(ReplyLost, token="t1", may_create_group=True)
    assert counted(copy) == ["a", "b"]
    copy.now += UNLOGGED_SECONDS
    assert counted(copy) == ["a"]


def test_join_that_is_lost_again_counts_anew() -> None:
    """A member counts from the last of its lost joins on."""
    copy = grown()
    for token in ("t1", "t2"):
        send(copy, token, "b")
    copy.wire_says(ReplyLost, token="t1", may_create_group=True)
    copy.now += UNLOGGED_SECONDS - 1
    copy.wire_says(ReplyLost, token="t2", may_create_group=True)
    copy.now += 1
    assert counted(copy) == ["a", "b"]


def test_client_of_accepted_member_counts() -> None:
    """A join of another client with the id of an accepted member does not change the member's client."""
    members = UnloggedMembers()
    members.add_join("t1", "b", 1, "/first", "User:first")
    members.end_join("t1")
    members.add_joined("b", 1, "/first", "User:first")
    members.add_join("t2", "b", 2, "/second", "User:second")
    assert members.client_of("b") == ("/first", "User:first")


def test_join_without_reply_ends() -> None:
    """A join whose reply never comes does not take a place for ever."""
    members = UnloggedMembers()
    members.add_join("t1", "b", 1, "/h", "")
    members.expire(IN_FLIGHT_SECONDS)
    assert [*members.joining_ids(IN_FLIGHT_SECONDS)] == ["b"]
    members.expire(1 + IN_FLIGHT_SECONDS)
    assert not members


def test_member_joins_again_while_log_has_it() -> None:
    """A member that has left counts again when it joins, although the log does not show the leave yet."""
    copy = grown()
    accept(copy, "t0", "a", epoch=-1)
    assert counted(copy) == []
    send(copy, "t1", "a")
    assert counted(copy) == ["a"]
    reject(copy, "t1")
    assert counted(copy) == []
