"""Tests the reply for each state of KIP-40's draft, and the copy's additions to the broker's description."""

from itertools import count

import pytest

from group_sidecar.codecs.messages.describe_groups import DescribedGroup, DescribedGroupMember
from group_sidecar.codecs.messages.group_metadata import (
    Kip40Coordinator,
    Kip40Group,
    Kip40GroupMetadata,
    Kip40Member,
    Kip40MemberMetadata,
    Kip40State,
)
from group_sidecar.codecs.offsets_topic import encode_value
from group_sidecar.codecs.offsets_topic_values import GroupMetadataValue
from group_sidecar.coordinator.answers.kip40_group_metadata import (
    KnownGeneration,
    kip40_error,
    kip40_group_metadata,
    kip40_initializing,
    known_generation,
)
from group_sidecar.coordinator.model.views import FallbackReason, GroupState, GroupView, MemberView
from group_sidecar.coordinator.state.expired_clients import ExpiredClientsBudget
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.unread_writes import UnreadWrites

NOBODY = Kip40MemberMetadata()
HERE = Kip40Coordinator(id=1, host="here", port=9092)
KNOWN = KnownGeneration(generation=5, protocol="of before", leader="m1")


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


def kip40_group(state: Kip40State, metadata: Kip40GroupMetadata, members: Kip40MemberMetadata = NOBODY) -> Kip40Group:
    assert metadata.state == state
    return Kip40Group(error_code=0, group_id="g", coordinator=HERE, group_metadata=metadata, member_metadata=members)


def member(member_id: str, host: str, assignment: bytes) -> Kip40Member:
    return Kip40Member(
        member_id=member_id, member_host=host, client_id="c", member_metadata=b"sub", member_assignment=assignment
    )


# States.


@pytest.mark.parametrize("state", ["Dead", "Empty"])
def test_memberless_group_has_no_metadata(state: str) -> None:
    """A dead or empty group is reported as Dead without protocol, generation and members."""
    found = kip40_group_metadata(described(state), KNOWN, HERE, with_members=True)
    assert found == kip40_group(
        Kip40State.DEAD, Kip40GroupMetadata(state=0, protocol_type="", generation=-1, protocol="")
    )


def test_loading_group_is_initializing() -> None:
    """A group whose coordinator is loading is reported as Initializing without metadata and members."""
    found = kip40_group_metadata(described("", 14, m1=b"a"), KNOWN, HERE, with_members=True)
    assert found == kip40_group(Kip40State.INITIALIZING, Kip40GroupMetadata(state=1)) == kip40_initializing("g", HERE)


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "AwaitingSync"])
def test_rebalance_shows_previous_generation(state: str) -> None:
    """A rebalancing group is reported with its previous generation and protocol and without members."""
    found = kip40_group_metadata(described(state, m1=b""), KNOWN, HERE, with_members=True)
    before = Kip40GroupMetadata(state=2, protocol_type="consumer", generation=5, protocol="of before")
    assert found == kip40_group(Kip40State.REBALANCING, before)


@pytest.mark.parametrize("with_members", [True, False])
def test_stable_group_shows_members(with_members: bool) -> None:
    """A stable group is reported with its generation and protocol, and with its leader and members if requested."""
    found = kip40_group_metadata(described(m1=b"a", m2=b"b"), KNOWN, HERE, with_members=with_members)
    members = Kip40MemberMetadata(leader="m1", members=(member("m1", "/9.9.9.9", b"a"), member("m2", "/9.9.9.9", b"b")))
    metadata = Kip40GroupMetadata(state=3, protocol_type="consumer", generation=5, protocol="range")
    assert found == kip40_group(Kip40State.STABLE, metadata, members if with_members else NOBODY)


def test_group_id_not_found_is_dead() -> None:
    """A group that DescribeGroups reports as not found has the state Dead."""
    assert (
        kip40_group_metadata(described("Dead", 69), KNOWN, HERE, with_members=True).group_metadata.state
        == Kip40State.DEAD
    )


@pytest.mark.parametrize(("state", "error", "as_told"), [("", 30, 30), ("Stable", 15, 15), ("Reconciling", 0, 15)])
def test_unknown_state_becomes_error(state: str, error: int, as_told: int) -> None:
    """The reply has the error of the description, or COORDINATOR_NOT_AVAILABLE if the state is unknown."""
    assert kip40_group_metadata(described(state, error, m1=b"a"), KNOWN, HERE, with_members=True) == kip40_error(
        "g", as_told, HERE
    )


# Additions from the copy.


def a_group(state: GroupState, *, generation: int = 5, stable: bool = True, past: bool = False) -> Group:
    group = Group("g", FallbackReason.COLD if past else None, count(1), set(), UnreadWrites(), ExpiredClientsBudget())
    lifecycle = group.lifecycle
    lifecycle.state, lifecycle.generation, lifecycle.protocol = state, generation, "range"
    lifecycle.generation_at, lifecycle.stable_at = 10.0, 11.0 if stable else lifecycle.stable_at
    return group


def test_known_generation_of_stable_group() -> None:
    """known_generation returns the generation and leader of a stable group if the copy had the described members before
    the broker was asked.
    """
    now = view(m1=b"a", m2=b"b")
    assert known_generation(described(m1=b"a", m2=b"b"), now, None, now) == KnownGeneration(generation=5, leader="m1")


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
def test_mismatched_copy_gives_no_generation(before: GroupView) -> None:
    """known_generation returns neither generation nor leader if the earlier copy differs from the description."""
    found = known_generation(described(m1=b"a", m2=b"b"), before, None, view(m1=b"a", m2=b"b"))
    assert found == KnownGeneration(generation=-1, leader="")


def test_leader_outside_members_is_empty() -> None:
    """known_generation returns an empty leader if the leader is not among the described members."""
    now = view(m2=b"b")
    assert known_generation(described(m2=b"b"), now, None, now) == KnownGeneration(generation=5, leader="")


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
def test_rebalance_gives_previous_generation(state: str, group: Group | None, before: tuple[int, str]) -> None:
    """During a rebalance, known_generation returns the generation before the rebalance and its protocol, if the copy
    knows them.
    """
    found = known_generation(described(state, m1=b""), view(), group, view(m1=b""))
    assert (found.generation, found.protocol) == before
    assert found.leader == ""


def test_unseen_history_gives_no_generation() -> None:
    """known_generation returns generation -1 for a rebalancing group whose history the copy has not seen."""
    group = Group("g", FallbackReason.COLD, count(1), set(), UnreadWrites(), ExpiredClientsBudget())
    group.lifecycle.report(GroupState.PREPARING_REBALANCE)
    assert known_generation(described(PREPARING), view(), group, view()).generation == -1


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
def test_previous_protocol_comes_from_log(raw: bytes | None, protocol: str) -> None:
    """known_generation takes the previous protocol from the logged record of exactly that generation, and otherwise
    leaves the protocol empty.
    """
    group = a_group(GroupState.COMPLETING_REBALANCE, stable=False)
    group.logged_state.set_metadata(raw)
    assert known_generation(described(COMPLETING), view(), group, view()) == KnownGeneration(
        generation=4, protocol=protocol
    )
