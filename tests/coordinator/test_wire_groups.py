"""What exchanges about members and groups say, API by API and error by error."""

from collections.abc import Sequence
from typing import Any

import pytest

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from group_sidecar.codecs.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.join_group import (
    JoinGroupMember,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from group_sidecar.codecs.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator import wire
from group_sidecar.coordinator.events import (
    AnyEvent,
    ConsumerMemberSeen,
    CoordinatorMoved,
    DescribedMember,
    GroupDeleted,
    GroupDescribed,
    GroupsListed,
    JoinAccepted,
    JoinRejected,
    JoinSent,
    LeaveSent,
    MemberIdIssued,
    MemberSeen,
    MembersLeft,
    MemberUnknown,
    OffsetsDoubted,
    RebalanceSeen,
    ReplyLost,
    Synced,
)
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.coordinator.views import GroupState

SENT, NOW = 10.0, 12.0
SAID = "the consumer is being closed"
WHO: Any = {"client_id": "c", "client_host": "/1.2.3.4"}


def exchange(request: Struct, version: int, **more: Any) -> Exchange:
    return Exchange(request=request, version=version, token="7:1", sent_at=SENT, **WHO, **more)


def told(request: Struct, reply: Struct, version: int, **more: Any) -> Sequence[AnyEvent]:
    return wire.replied(exchange(request, version, **more), reply, NOW)


def lost(request: Struct, version: int) -> Sequence[AnyEvent]:
    return wire.abandoned(exchange(request, version))


def kinds(events: Sequence[AnyEvent]) -> list[type]:
    return [type(event) for event in events]


# JoinGroup.


def joining(member_id: str = "", instance_id: str | None = None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=(
            JoinGroupProtocol(name="range", metadata=b"r"),
            JoinGroupProtocol(name="sticky", metadata=b"s"),
        ),
    )


def joined(error: int = 0, **fields: Any) -> JoinGroupResponse:
    usual: dict[str, Any] = {"protocol_name": "range", "leader": "m", "member_id": "m"}
    return JoinGroupResponse(error_code=error, **(usual | fields))


@pytest.mark.parametrize(
    ("version", "member_id", "instance_id", "parks"),
    [
        (0, "", None, True),
        (3, "", None, True),
        (4, "", None, False),
        (9, "", None, False),
        (4, "m", None, True),
        (5, "", "i", True),
        (9, "m", "i", True),
    ],
)
def test_a_join_without_an_id_only_gets_one_since_v4(
    version: int, member_id: str, instance_id: str | None, parks: bool
) -> None:
    (sent,) = wire.sent(exchange(joining(member_id, instance_id), version))
    assert isinstance(sent, JoinSent)
    assert (sent.group_id, sent.sent_at, sent.joining.token, sent.joining.parks) == ("g", SENT, "7:1", parks)


def test_what_a_join_says_of_its_member() -> None:
    (sent,) = wire.sent(exchange(joining("m", "i"), 5))
    assert isinstance(sent, JoinSent)
    say = sent.joining
    assert (say.member_id, say.instance_id, say.client_id, say.client_host) == ("m", "i", "c", "/1.2.3.4")
    assert (say.session_timeout_ms, say.rebalance_timeout_ms) == (10_000, 60_000)
    assert (say.protocol_type, say.protocols) == ("consumer", (("range", b"r"), ("sticky", b"s")))


def test_v0_has_no_rebalance_timeout_of_its_own() -> None:
    (sent,) = wire.sent(exchange(joining(), 0))
    assert isinstance(sent, JoinSent)
    assert sent.joining.rebalance_timeout_ms == 10_000


@pytest.mark.parametrize("request_", [HeartbeatRequest(group_id="g", generation_id=1, member_id="m")])
def test_nothing_else_holds_a_place(request_: Struct) -> None:
    assert wire.sent(exchange(request_, 0)) == ()


@pytest.mark.parametrize(("version", "protocol_type"), [(6, None), (7, "consumer")])
def test_a_leader_is_told_all_members(version: int, protocol_type: str | None) -> None:
    members = (JoinGroupMember(member_id="m", group_instance_id="i", metadata=b"r"),)
    reply = joined(generation_id=3, protocol_type=protocol_type, members=members)
    (accepted,) = told(joining("m"), reply, version)
    assert isinstance(accepted, JoinAccepted)
    assert (accepted.member_id, accepted.generation, accepted.leader) == ("m", 3, "m")
    assert (accepted.protocol_type, accepted.protocol) == ("consumer", "range")
    assert accepted.roster == (("m", "i", b"r"),)
    assert (accepted.sent_at, accepted.joining.token) == (SENT, "7:1")


def test_a_protocol_name_may_be_null() -> None:
    (accepted,) = told(joining("m"), joined(generation_id=3, protocol_name=None), 9)
    assert isinstance(accepted, JoinAccepted)
    assert accepted.protocol == ""


def test_an_id_is_issued() -> None:
    (issued,) = told(joining(), joined(ErrorCode.MEMBER_ID_REQUIRED, member_id="new"), 4)
    assert isinstance(issued, MemberIdIssued)
    assert (issued.member_id, issued.joining.token) == ("new", "7:1")


@pytest.mark.parametrize(
    ("error", "member_id", "further"),
    [
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "m", []),
        (ErrorCode.UNKNOWN_MEMBER_ID, "m", [MemberUnknown]),
        (ErrorCode.UNKNOWN_MEMBER_ID, "", []),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "m", [MemberUnknown]),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "", []),
        (ErrorCode.FENCED_INSTANCE_ID, "m", []),
        (ErrorCode.NOT_COORDINATOR, "m", [CoordinatorMoved]),
    ],
)
def test_a_join_is_rejected(error: ErrorCode, member_id: str, further: list[type]) -> None:
    events = told(joining(member_id), joined(error, protocol_name="", leader="", member_id=""), 5)
    assert kinds(events) == [JoinRejected, *further]
    rejected = events[0]
    assert isinstance(rejected, JoinRejected)
    assert rejected.error_code == error
    for event in events:
        if isinstance(event, MemberUnknown):
            assert (event.member_id, event.refused) == ("m", error == ErrorCode.GROUP_MAX_SIZE_REACHED)


# SyncGroup, Heartbeat.


def test_a_leader_syncs() -> None:
    given = (SyncGroupRequestAssignment(member_id="m", assignment=b"1"),)
    request = SyncGroupRequest(group_id="g", generation_id=3, member_id="m", group_instance_id="i", assignments=given)
    assert told(request, SyncGroupResponse(error_code=0, assignment=b"1"), 3) == [
        Synced(
            group_id="g",
            sent_at=SENT,
            member_id="m",
            instance_id="i",
            generation=3,
            assignment=b"1",
            assignments={"m": b"1"},
            **WHO,
        )
    ]


SYNC = SyncGroupRequest(group_id="g", generation_id=3, member_id="m", assignments=())
BEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="m", group_instance_id="i")


@pytest.mark.parametrize(
    ("error", "events"),
    [
        (27, [RebalanceSeen(group_id="g", sent_at=SENT, member_id="m", generation=3, alive=False)]),
        (25, [MemberUnknown(group_id="g", sent_at=SENT, member_id="m")]),
        (16, [CoordinatorMoved(group_id="g", sent_at=SENT)]),
        (82, []),
        (22, []),
        (15, []),
    ],
)
def test_a_sync_fails(error: int, events: list[AnyEvent]) -> None:
    assert told(SYNC, SyncGroupResponse(error_code=error, assignment=b""), 5) == events


@pytest.mark.parametrize(
    ("error", "events"),
    [
        (
            0,
            [
                MemberSeen(
                    group_id="g",
                    sent_at=SENT,
                    member_id="m",
                    instance_id="i",
                    generation=3,
                    steady=True,
                    **WHO,
                )
            ],
        ),
        (27, [RebalanceSeen(group_id="g", sent_at=SENT, member_id="m", generation=3, alive=True)]),
        (25, [MemberUnknown(group_id="g", sent_at=SENT, member_id="m")]),
        (16, [CoordinatorMoved(group_id="g", sent_at=SENT)]),
        (82, []),
        (22, []),
    ],
)
@pytest.mark.parametrize("version", range(5))
def test_a_heartbeat(version: int, error: int, events: list[AnyEvent]) -> None:
    assert told(BEAT, HeartbeatResponse(error_code=error), version) == events


# LeaveGroup.


def identity(member_id: str, instance_id: str | None = None) -> MemberIdentity:
    return MemberIdentity(member_id=member_id, group_instance_id=instance_id)


def outcome(member_id: str, instance_id: str | None, error: int) -> MemberResponse:
    return MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=error)


@pytest.mark.parametrize(
    ("error", "events"),
    [
        (0, [MembersLeft(group_id="g", sent_at=SENT, members=(("m", None),), said=("",), **WHO)]),
        (25, [MemberUnknown(group_id="g", sent_at=SENT, member_id="m")]),
        (16, [CoordinatorMoved(group_id="g", sent_at=SENT)]),
        (15, []),
    ],
)
@pytest.mark.parametrize("version", range(3))
def test_one_member_leaves_up_to_v2(version: int, error: int, events: list[AnyEvent]) -> None:
    request = LeaveGroupRequest(group_id="g", member_id="m")
    assert told(request, LeaveGroupResponse(error_code=error), version) == events


@pytest.mark.parametrize("version", [3, 4, 5])
def test_many_members_leave_since_v3(version: int) -> None:
    request = LeaveGroupRequest(group_id="g", members=(identity("a"), identity("b"), identity("", "i")))
    outcomes = (outcome("a", None, 0), outcome("b", None, 25), outcome("", "i", 0))
    assert told(request, LeaveGroupResponse(error_code=0, members=outcomes), version) == [
        MembersLeft(group_id="g", sent_at=SENT, members=(("a", None), ("", "i")), said=("", ""), **WHO),
        MemberUnknown(group_id="g", sent_at=SENT, member_id="b"),
    ]


def test_who_leaves_and_why_is_known_before_it_is_answered() -> None:
    """KIP-800: since v5 with a reason each."""
    closing = MemberIdentity(member_id="a", reason=SAID)
    request = LeaveGroupRequest(group_id="g", members=(closing, identity("", "i")))
    names: Any = {"members": (("a", None), ("", "i")), "said": (SAID, "")}
    assert wire.sent(exchange(request, 5)) == [LeaveSent(group_id="g", sent_at=SENT, **names, **WHO)]
    reply = LeaveGroupResponse(error_code=0, members=(outcome("", "i", 25), outcome("a", None, 0)))
    left = told(request, reply, 5)[0]
    assert left == MembersLeft(group_id="g", sent_at=SENT, members=(("a", None),), said=(SAID,), **WHO)
    alone = LeaveSent(group_id="g", sent_at=SENT, members=(("m", None),), said=("",), **WHO)
    assert wire.sent(exchange(LeaveGroupRequest(group_id="g", member_id="m"), 2)) == [alone]


@pytest.mark.parametrize(("epoch", "leaves"), [(-1, True), (-2, False), (3, False)])
def test_a_member_of_the_new_protocol_leaves_with_its_epoch(epoch: int, leaves: bool) -> None:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch, instance_id="i")
    leave = LeaveSent(group_id="g", sent_at=SENT, members=(("m", "i"),), **WHO)
    assert list(wire.sent(exchange(request, 0))) == ([leave] if leaves else [])


def test_an_error_of_the_group_is_one_of_each_member() -> None:
    request = LeaveGroupRequest(group_id="g", members=(identity("a"),))
    reply = LeaveGroupResponse(error_code=16, members=(outcome("a", None, 0),))
    assert told(request, reply, 3) == [CoordinatorMoved(group_id="g", sent_at=SENT)]


def test_the_sidecar_removes_a_member() -> None:
    (left,) = told(LeaveGroupRequest(group_id="g", member_id="m"), LeaveGroupResponse(error_code=0), 0, removing=True)
    assert isinstance(left, MembersLeft)
    assert left.removed


# Whole groups.


def test_groups_are_deleted() -> None:
    results = tuple(DeletableGroupResult(group_id=name, error_code=error) for name, error in _DELETIONS.items())
    request = DeleteGroupsRequest(groups_names=tuple(_DELETIONS))
    assert told(request, DeleteGroupsResponse(throttle_time_ms=0, results=results), 2) == [
        GroupDeleted(group_id="gone", sent_at=SENT),
        GroupDeleted(group_id="never there", sent_at=SENT, existed=False),
        CoordinatorMoved(group_id="elsewhere", sent_at=SENT),
    ]


_DELETIONS = {"gone": 0, "never there": 69, "busy": 68, "elsewhere": 16, "loading": 14}


def described(group_id: str, state: str, error: int = 0, members: tuple[DescribedGroupMember, ...] = ()) -> Any:
    return DescribedGroup(
        error_code=error,
        group_id=group_id,
        group_state=state,
        protocol_type="consumer",
        protocol_data="range",
        members=members,
    )


def test_groups_are_described() -> None:
    member = DescribedGroupMember(
        member_id="m", group_instance_id="i", member_metadata=b"r", member_assignment=b"1", **WHO
    )
    groups = (
        described("g", "Stable", members=(member,)),
        described("dead", "Dead", 69),
        described("hidden", "", 30),
        described("loading", "", 14),
        described("elsewhere", "", 16),
        described("odd", "Initializing"),
        described("old", "AwaitingSync"),
    )
    request = DescribeGroupsRequest(groups=tuple(group.group_id for group in groups))
    events = told(request, DescribeGroupsResponse(groups=groups), 6, as_of={"g": (4, 9)})
    assert events[0] == GroupDescribed(
        group_id="g",
        sent_at=SENT,
        state=GroupState.STABLE,
        protocol_type="consumer",
        protocol="range",
        members=(DescribedMember(member_id="m", instance_id="i", metadata=b"r", assignment=b"1", **WHO),),
        as_of=4,
    )
    rest = [(type(event), event.group_id, getattr(event, "state", None)) for event in events[1:]]  # type: ignore[union-attr]
    assert rest == [
        (GroupDescribed, "dead", GroupState.DEAD),
        (CoordinatorMoved, "elsewhere", None),
        (GroupDescribed, "old", GroupState.COMPLETING_REBALANCE),
    ]


@pytest.mark.parametrize(
    ("request_", "error", "tells"),
    [
        (ListGroupsRequest(), 0, True),
        (ListGroupsRequest(states_filter=("Stable",)), 0, False),
        (ListGroupsRequest(types_filter=("classic",)), 0, False),
        (ListGroupsRequest(), 14, False),
    ],
)
def test_groups_are_listed(request_: ListGroupsRequest, error: int, tells: bool) -> None:
    reply = ListGroupsResponse(error_code=error, groups=(ListedGroup(group_id="g", protocol_type=""),))
    expected = [GroupsListed(groups=frozenset({"g"}), sent_at=SENT, as_of=5)] if tells else []
    assert told(request_, reply, 5, notings=5) == expected


# KIP-848.


def consumer_beat(error: int, member_id: str | None, epoch: int = 4) -> Sequence[AnyEvent]:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="mine", member_epoch=3, instance_id="i")
    reply = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=error, member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=1
    )
    return told(request, reply, 1)


@pytest.mark.parametrize(("given", "member_id"), [("given", "given"), (None, "mine")])
def test_a_consumer_heartbeat(given: str | None, member_id: str) -> None:
    assert consumer_beat(0, given) == [
        ConsumerMemberSeen(group_id="g", sent_at=SENT, member_id=member_id, instance_id="i", epoch=4, **WHO)
    ]


@pytest.mark.parametrize(("error", "kind"), [(25, [MemberUnknown]), (16, [CoordinatorMoved]), (110, []), (81, [])])
def test_a_consumer_heartbeat_fails(error: int, kind: list[type]) -> None:
    assert kinds(consumer_beat(error, None)) == kind


# What will not be answered.


@pytest.mark.parametrize(
    ("request_", "creates"),
    [
        (joining("m"), True),
        (joining(), True),
        (SYNC, False),
        (LeaveGroupRequest(group_id="g"), False),
        (ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0), True),
    ],
)
def test_the_outcome_is_not_known(request_: Struct, creates: bool) -> None:
    assert lost(request_, 0) == [ReplyLost(group_id="g", sent_at=SENT, token="7:1", creates=creates)]


@pytest.mark.parametrize("request_", [BEAT, DescribeGroupsRequest(groups=("g",)), ListGroupsRequest()])
def test_where_nothing_was_to_change_nothing_is_in_doubt(request_: Struct) -> None:
    assert lost(request_, 0) == ()


def test_whether_groups_were_deleted_is_not_known() -> None:
    assert lost(DeleteGroupsRequest(groups_names=("g", "h")), 0) == [
        event
        for group in ("g", "h")
        for event in (
            ReplyLost(group_id=group, sent_at=SENT, token="7:1", creates=False),
            OffsetsDoubted(group_id=group, sent_at=SENT, partitions=None),
        )
    ]
