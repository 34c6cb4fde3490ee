"""What each of the draft's states shows, and what the copy may add to a description."""

from itertools import count

import pytest

from group_sidecar.codecs.group_records import GroupMetadataValue
from group_sidecar.codecs.messages.describe_groups import DescribedGroup, DescribedGroupMember
from group_sidecar.codecs.messages.group_metadata import (
    DraftCoordinator,
    DraftGroup,
    DraftGroupMetadata,
    DraftMember,
    DraftMemberMetadata,
    DraftState,
)
from group_sidecar.codecs.offsets_topic import encode_value
from group_sidecar.coordinator.answers_draft import Known, drafted, initializing, known, refused
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.unread import Unread
from group_sidecar.coordinator.views import GroupState, GroupView, Lacking, MemberView

NOBODY = DraftMemberMetadata()
HERE = DraftCoordinator(id=1, host="here", port=9092)
KNOWN = Known(generation=5, protocol="of before", leader="m1")


def described(state: str = "Stable", error: int = 0, **assignments: bytes) -> DescribedGroup:
    members = tuple(
        DescribedGroupMember(
            member_id=member,
            client_id="c",
            client_host="/9.9.9.9",
            member_metadata=b"sub",
            member_assignment=assignment,
        )
        for member, assignment in assignments.items()
    )
    return DescribedGroup(
        error_code=error,
        group_id="g",
        group_state=state,
        protocol_type="consumer",
        protocol_data="range",
        members=members,
    )


def view(state: GroupState = GroupState.STABLE, **assignments: bytes) -> GroupView:
    members = tuple(
        MemberView(member_id=member, client_host=f"/of {member}", assignment=assignment)
        for member, assignment in assignments.items()
    )
    return GroupView(group_id="g", state=state, generation=5, leader="m1", protocol="range", members=members)


def told(state: DraftState, metadata: DraftGroupMetadata, members: DraftMemberMetadata = NOBODY) -> DraftGroup:
    assert metadata.state == state
    return DraftGroup(error_code=0, group_id="g", coordinator=HERE, group_metadata=metadata, member_metadata=members)


def member(member_id: str, host: str, assignment: bytes) -> DraftMember:
    return DraftMember(
        member_id=member_id, member_host=host, client_id="c", member_metadata=b"sub", member_assignment=assignment
    )


# States.


@pytest.mark.parametrize("state", ["Dead", "Empty"])
def test_without_members_all_is_empty(state: str) -> None:
    found = drafted(described(state), KNOWN, HERE, with_members=True)
    assert found == told(DraftState.DEAD, DraftGroupMetadata(state=0, protocol_type="", generation=-1, protocol=""))


def test_what_loads_is_empty_but_for_its_state() -> None:
    found = drafted(described("", 14, m1=b"a"), KNOWN, HERE, with_members=True)
    assert found == told(DraftState.INITIALIZING, DraftGroupMetadata(state=1)) == initializing("g", HERE)


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "AwaitingSync"])
def test_a_rebalance_shows_what_was_before_and_nobody(state: str) -> None:
    found = drafted(described(state, m1=b""), KNOWN, HERE, with_members=True)
    before = DraftGroupMetadata(state=2, protocol_type="consumer", generation=5, protocol="of before")
    assert found == told(DraftState.REBALANCING, before)


@pytest.mark.parametrize("with_members", [True, False])
def test_a_stable_group_shows_all(with_members: bool) -> None:
    found = drafted(described(m1=b"a", m2=b"b"), KNOWN, HERE, with_members=with_members)
    members = DraftMemberMetadata(leader="m1", members=(member("m1", "/9.9.9.9", b"a"), member("m2", "/9.9.9.9", b"b")))
    metadata = DraftGroupMetadata(state=3, protocol_type="consumer", generation=5, protocol="range")
    assert found == told(DraftState.STABLE, metadata, members if with_members else NOBODY)


def test_a_group_that_is_named_as_missing_is_dead() -> None:
    assert drafted(described("Dead", 69), KNOWN, HERE, with_members=True).group_metadata.state == DraftState.DEAD


@pytest.mark.parametrize(("state", "error", "as_told"), [("", 30, 30), ("Stable", 15, 15), ("Reconciling", 0, 15)])
def test_another_error_or_a_state_to_come_tells_nothing(state: str, error: int, as_told: int) -> None:
    assert drafted(described(state, error, m1=b"a"), KNOWN, HERE, with_members=True) == refused("g", as_told, HERE)


# What the copy adds.


def a_group(state: GroupState, *, generation: int = 5, stable: bool = True, past: bool = False) -> Group:
    group = Group("g", Lacking.COLD if past else None, count(1), set(), Unread())
    group.state, group.generation, group.protocol = state, generation, "range"
    group.generation_at, group.stable_at = 10.0, 11.0 if stable else group.stable_at
    return group


def test_of_a_stable_group_generation_and_leader() -> None:
    now = view(m1=b"a", m2=b"b")
    assert known(described(m1=b"a", m2=b"b"), now, None, now) == Known(generation=5, leader="m1")


@pytest.mark.parametrize(
    "before",
    [
        view(m1=b"a"),
        view(m1=b"a", m2=b"other"),
        view(m1=b"a", m2=b"b", m3=b"c"),
        view(GroupState.PREPARING_REBALANCE, m1=b"a", m2=b"b"),
        GroupView(group_id="g"),
    ],
)
def test_of_a_generation_that_may_be_another_neither(before: GroupView) -> None:
    found = known(described(m1=b"a", m2=b"b"), before, None, view(m1=b"a", m2=b"b"))
    assert found == Known(generation=-1, leader="")


def test_a_leader_that_is_no_member_is_none() -> None:
    now = view(m2=b"b")
    assert known(described(m2=b"b"), now, None, now) == Known(generation=5, leader="")


PREPARING, COMPLETING = "PreparingRebalance", "CompletingRebalance"


@pytest.mark.parametrize(
    ("state", "group", "before"),
    [
        pytest.param(PREPARING, a_group(GroupState.PREPARING_REBALANCE), (5, "range"), id="preparing"),
        pytest.param(PREPARING, a_group(GroupState.STABLE), (5, "range"), id="preparing, not heard of yet"),
        pytest.param(COMPLETING, a_group(GroupState.STABLE), (5, "range"), id="completing, not heard of yet"),
        pytest.param(COMPLETING, a_group(GroupState.COMPLETING_REBALANCE), (5, "range"), id="completing, as described"),
        pytest.param(
            COMPLETING, a_group(GroupState.COMPLETING_REBALANCE, stable=False), (4, ""), id="completing, joins heard"
        ),
        pytest.param(PREPARING, a_group(GroupState.PREPARING_REBALANCE, generation=-1), (-1, ""), id="not known"),
        pytest.param(PREPARING, None, (-1, ""), id="not known at all"),
    ],
)
def test_in_a_rebalance_the_generation_before(state: str, group: Group | None, before: tuple[int, str]) -> None:
    found = known(described(state, m1=b""), view(), group, view(m1=b""))
    assert (found.generation, found.protocol) == before
    assert found.leader == ""


def test_a_past_that_was_not_seen_is_not_made_up() -> None:
    group = Group("g", Lacking.COLD, count(1), set(), Unread())
    group.state = GroupState.PREPARING_REBALANCE
    assert known(described(PREPARING), view(), group, view()).generation == -1


def logged(generation: int, protocol: str | None = "logged") -> bytes:
    value = GroupMetadataValue(
        protocol_type="consumer", generation=generation, protocol=protocol, leader="m1", members=()
    )
    return encode_value(value, 3)


@pytest.mark.parametrize(
    ("raw", "protocol"),
    [(logged(4), "logged"), (logged(4, None), ""), (logged(3), ""), (b"\0\3", ""), (None, "")],
    ids=["the one before", "of an empty group", "an older one", "not to be read", "none"],
)
def test_its_protocol_is_in_the_log(raw: bytes | None, protocol: str) -> None:
    group = a_group(GroupState.COMPLETING_REBALANCE, stable=False)
    group.logged = raw
    assert known(described(COMPLETING), view(), group, view()) == Known(generation=4, protocol=protocol)
