"""The events that follow from exchanges about members and groups, by API and error."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
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
from group_sidecar.coordinator.model.events import (
    AnyEvent,
    ConsumerJoinAnswered,
    ConsumerMemberSeen,
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
    NotCoordinatorReplied,
    OffsetsDoubted,
    RebalanceSeen,
    ReplyLost,
    Synced,
)
from group_sidecar.coordinator.model.views import GroupKind, GroupState
from group_sidecar.coordinator.wire import exchange_events
from group_sidecar.coordinator.wire.exchange import Exchange

SENT, NOW = 10.0, 12.0
SAID = "the consumer is being closed"
WHO: Any = {"client_id": "c", "client_host": "/1.2.3.4"}


def exchange(request: Struct, version: int, **more: Any) -> Exchange:
    return Exchange(request=request, version=version, token="7:1", sent_at=SENT, **WHO, **more)


def events_of(request: Struct, reply: Struct, version: int, **more: Any) -> Sequence[AnyEvent]:
    return exchange_events.reply_events(exchange(request, version, **more), reply, NOW)


def lost(request: Struct, version: int) -> Sequence[AnyEvent]:
    return exchange_events.lost_reply_events(exchange(request, version))


def unknown(member_id: str, instance_id: str | None) -> MemberUnknown:
    """Returns the event of a request of a classic member to which the broker replied UNKNOWN_MEMBER_ID."""
    return MemberUnknown(
        group_id="g", sent_at=SENT, member_id=member_id, instance_id=instance_id, protocol=GroupKind.CLASSIC
    )


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
def test_join_without_id_parks_by_version(version: int, member_id: str, instance_id: str | None, parks: bool) -> None:
    """A join without a member id and instance id is not parked since v4, because the broker only issues an id."""
    (sent,) = exchange_events.request_events(exchange(joining(member_id, instance_id), version))
    assert isinstance(sent, JoinSent)
    assert (sent.group_id, sent.sent_at, sent.joining.token, sent.joining.will_park) == ("g", SENT, "7:1", parks)


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        (joining("m"), joined()),
        (
            SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=()),
            SyncGroupResponse(error_code=0, assignment=b""),
        ),
        (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), HeartbeatResponse(error_code=0)),
        (
            ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0),
            ConsumerGroupHeartbeatResponse(
                throttle_time_ms=0, error_code=0, member_id="m", member_epoch=1, heartbeat_interval_ms=1
            ),
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_events_have_principal(request_: Struct, reply: Struct) -> None:
    """The events of a member's request and of its reply have the principal of the request."""
    version = 0 if isinstance(request_, ConsumerGroupHeartbeatRequest) else 3
    sent = exchange_events.request_events(exchange(request_, version, principal="User:c"))
    events: list[Any] = [*sent, *events_of(request_, reply, version, principal="User:c")]
    named = [getattr(event, "joining", event) for event in events if not isinstance(event, ConsumerJoinAnswered)]
    assert {each.principal for each in named} == {"User:c"}


def test_join_event_fields() -> None:
    """A JoinSent event contains the member's ids, client, timeouts and protocols."""
    (sent,) = exchange_events.request_events(exchange(joining("m", "i"), 5))
    assert isinstance(sent, JoinSent)
    say = sent.joining
    assert (say.member_id, say.instance_id, say.client_id, say.client_host) == ("m", "i", "c", "/1.2.3.4")
    assert (say.session_timeout_ms, say.rebalance_timeout_ms) == (10_000, 60_000)
    assert (say.protocol_type, say.protocols) == ("consumer", (("range", b"r"), ("sticky", b"s")))


def test_join_v0_uses_session_timeout() -> None:
    """JoinGroup v0 uses the session timeout as the rebalance timeout."""
    (sent,) = exchange_events.request_events(exchange(joining(), 0))
    assert isinstance(sent, JoinSent)
    assert sent.joining.rebalance_timeout_ms == 10_000


@pytest.mark.parametrize("request_", [HeartbeatRequest(group_id="g", generation_id=1, member_id="m")])
def test_heartbeat_has_no_request_event(request_: Struct) -> None:
    """A Heartbeat request makes no event before its reply."""
    assert exchange_events.request_events(exchange(request_, 0)) == ()


@pytest.mark.parametrize(("version", "protocol_type"), [(6, None), (7, "consumer")])
def test_leader_join_reply_has_roster(version: int, protocol_type: str | None) -> None:
    """A leader's join reply makes a JoinAccepted event with the roster, generation and protocol."""
    members = (JoinGroupMember(member_id="m", group_instance_id="i", metadata=b"r"),)
    reply = joined(generation_id=3, protocol_type=protocol_type, members=members)
    (accepted,) = events_of(joining("m"), reply, version)
    assert isinstance(accepted, JoinAccepted)
    assert (accepted.member_id, accepted.generation, accepted.leader) == ("m", 3, "m")
    assert (accepted.protocol_type, accepted.protocol) == ("consumer", "range")
    assert accepted.roster == (("m", "i", b"r"),)
    assert (accepted.sent_at, accepted.joining.token) == (SENT, "7:1")


def test_null_protocol_name_is_empty() -> None:
    """A null protocol name in a join reply becomes an empty string."""
    (accepted,) = events_of(joining("m"), joined(generation_id=3, protocol_name=None), 9)
    assert isinstance(accepted, JoinAccepted)
    assert accepted.protocol == ""


def test_member_id_is_issued() -> None:
    """MEMBER_ID_REQUIRED makes a MemberIdIssued event with the new id."""
    (issued,) = events_of(joining(), joined(ErrorCode.MEMBER_ID_REQUIRED, member_id="new"), 4)
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
        (ErrorCode.NOT_COORDINATOR, "m", [NotCoordinatorReplied]),
    ],
)
def test_join_is_rejected(error: ErrorCode, member_id: str, further: list[type]) -> None:
    """A failed join makes a JoinRejected event, and MemberUnknown or NotCoordinatorReplied for their errors."""
    events = events_of(joining(member_id), joined(error, protocol_name="", leader="", member_id=""), 5)
    assert kinds(events) == [JoinRejected, *further]
    rejected = events[0]
    assert isinstance(rejected, JoinRejected)
    assert rejected.error_code == error
    for event in events:
        if isinstance(event, MemberUnknown):
            assert (event.member_id, event.group_is_full) == ("m", error == ErrorCode.GROUP_MAX_SIZE_REACHED)


# SyncGroup, Heartbeat.


def test_leader_syncs() -> None:
    """A leader's successful sync makes a Synced event with all assignments."""
    given = (SyncGroupRequestAssignment(member_id="m", assignment=b"1"),)
    request = SyncGroupRequest(group_id="g", generation_id=3, member_id="m", group_instance_id="i", assignments=given)
    assert events_of(request, SyncGroupResponse(error_code=0, assignment=b"1"), 3) == [
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
        (27, [RebalanceSeen(group_id="g", sent_at=SENT, member_id="m", generation=3, is_heartbeat=False)]),
        (25, [unknown("m", None)]),
        (16, [NotCoordinatorReplied(group_id="g", sent_at=SENT)]),
        (82, []),
        (22, []),
        (15, []),
    ],
)
def test_sync_fails(error: int, events: list[AnyEvent]) -> None:
    """A failed sync makes the event of its error code, or no event."""
    assert events_of(SYNC, SyncGroupResponse(error_code=error, assignment=b""), 5) == events


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
                    no_rebalance=True,
                    **WHO,
                )
            ],
        ),
        (27, [RebalanceSeen(group_id="g", sent_at=SENT, member_id="m", generation=3, is_heartbeat=True)]),
        (25, [unknown("m", "i")]),
        (16, [NotCoordinatorReplied(group_id="g", sent_at=SENT)]),
        (82, []),
        (22, []),
    ],
)
@pytest.mark.parametrize("version", range(5))
def test_heartbeat_events(version: int, error: int, events: list[AnyEvent]) -> None:
    """A heartbeat reply makes the event of its error code in each version."""
    assert events_of(BEAT, HeartbeatResponse(error_code=error), version) == events


# LeaveGroup.


def identity(member_id: str, instance_id: str | None = None) -> MemberIdentity:
    return MemberIdentity(member_id=member_id, group_instance_id=instance_id)


def outcome(member_id: str, instance_id: str | None, error: int) -> MemberResponse:
    return MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=error)


@pytest.mark.parametrize(
    ("error", "events"),
    [
        (0, [MembersLeft(group_id="g", sent_at=SENT, members=(("m", None),), reasons=("",), **WHO)]),
        (25, [unknown("m", None)]),
        (16, [NotCoordinatorReplied(group_id="g", sent_at=SENT)]),
        (15, []),
    ],
)
@pytest.mark.parametrize("version", range(3))
def test_leave_up_to_v2(version: int, error: int, events: list[AnyEvent]) -> None:
    """A LeaveGroup reply up to v2 makes the event of its error code for one member."""
    request = LeaveGroupRequest(group_id="g", member_id="m")
    assert events_of(request, LeaveGroupResponse(error_code=error), version) == events


@pytest.mark.parametrize("version", [3, 4, 5])
def test_leave_since_v3(version: int) -> None:
    """A LeaveGroup reply since v3 makes events for each member by its own error code."""
    request = LeaveGroupRequest(group_id="g", members=(identity("a"), identity("b"), identity("", "i")))
    outcomes = (outcome("a", None, 0), outcome("b", None, 25), outcome("", "i", 0))
    assert events_of(request, LeaveGroupResponse(error_code=0, members=outcomes), version) == [
        MembersLeft(group_id="g", sent_at=SENT, members=(("a", None), ("", "i")), reasons=("", ""), **WHO),
        unknown("b", None),
    ]


def test_leave_reasons_are_known_at_request() -> None:
    """A LeaveGroup request makes a LeaveSent event with members and reasons, and the reply keeps each member's reason
    (KIP-800).
    """
    closing = MemberIdentity(member_id="a", reason=SAID)
    request = LeaveGroupRequest(group_id="g", members=(closing, identity("", "i")))
    names: Any = {"members": (("a", None), ("", "i")), "reasons": (SAID, "")}
    assert exchange_events.request_events(exchange(request, 5)) == [
        LeaveSent(group_id="g", sent_at=SENT, **names, **WHO)
    ]
    reply = LeaveGroupResponse(error_code=0, members=(outcome("", "i", 25), outcome("a", None, 0)))
    left = events_of(request, reply, 5)[0]
    assert left == MembersLeft(group_id="g", sent_at=SENT, members=(("a", None),), reasons=(SAID,), **WHO)
    alone = LeaveSent(group_id="g", sent_at=SENT, members=(("m", None),), reasons=("",), **WHO)
    assert exchange_events.request_events(exchange(LeaveGroupRequest(group_id="g", member_id="m"), 2)) == [alone]


@pytest.mark.parametrize(("epoch", "leaves"), [(-1, True), (-2, False), (3, False)])
def test_consumer_heartbeat_leaves_by_epoch(epoch: int, leaves: bool) -> None:
    """A consumer heartbeat with epoch -1 makes a LeaveSent event, and other epochs make none."""
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch, instance_id="i")
    leave = LeaveSent(group_id="g", sent_at=SENT, members=(("m", "i"),), **WHO)
    assert list(exchange_events.request_events(exchange(request, 0))) == ([leave] if leaves else [])


def test_group_error_counts_for_each_member() -> None:
    """A group error in a LeaveGroup reply overrides the outcomes of its members."""
    request = LeaveGroupRequest(group_id="g", members=(identity("a"),))
    reply = LeaveGroupResponse(error_code=16, members=(outcome("a", None, 0),))
    assert events_of(request, reply, 3) == [NotCoordinatorReplied(group_id="g", sent_at=SENT)]


def test_sidecar_leave_is_marked_removed() -> None:
    """A leave that the sidecar sent makes a MembersLeft event marked as removed."""
    (left,) = events_of(
        LeaveGroupRequest(group_id="g", member_id="m"), LeaveGroupResponse(error_code=0), 0, removing=True
    )
    assert isinstance(left, MembersLeft)
    assert left.removed


# Whole groups.


def test_groups_are_deleted() -> None:
    """A DeleteGroups reply makes GroupDeleted for deleted and missing groups, NotCoordinatorReplied for moved ones, and
    nothing for the others.
    """
    results = tuple(DeletableGroupResult(group_id=name, error_code=error) for name, error in _DELETIONS.items())
    request = DeleteGroupsRequest(groups_names=tuple(_DELETIONS))
    assert events_of(request, DeleteGroupsResponse(throttle_time_ms=0, results=results), 2) == [
        GroupDeleted(group_id="gone", sent_at=SENT),
        GroupDeleted(group_id="never there", sent_at=SENT, existed=False),
        NotCoordinatorReplied(group_id="elsewhere", sent_at=SENT),
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
    """A DescribeGroups reply makes GroupDescribed events, also for old state names, and skips errors and unknown
    states.
    """
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
    events = events_of(request, DescribeGroupsResponse(groups=groups), 6, as_of={"g": (4, 9)})
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
        (NotCoordinatorReplied, "elsewhere", None),
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
    """Only an unfiltered ListGroups reply without an error makes a GroupsListed event."""
    reply = ListGroupsResponse(error_code=error, groups=(ListedGroup(group_id="g", protocol_type=""),))
    expected = [GroupsListed(groups=frozenset({"g"}), sent_at=SENT, as_of=5)] if tells else []
    assert events_of(request_, reply, 5, note_count=5) == expected


# KIP-848.


def consumer_beat(error: int, member_id: str | None, epoch: int = 4) -> Sequence[AnyEvent]:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="mine", member_epoch=3, instance_id="i")
    reply = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=error, member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=5000
    )
    return events_of(request, reply, 1)


@pytest.mark.parametrize(("given", "member_id"), [("given", "given"), (None, "mine")])
def test_consumer_heartbeat(given: str | None, member_id: str) -> None:
    """A consumer heartbeat reply makes a ConsumerMemberSeen event with the reply's id, or else the request's."""
    assert consumer_beat(0, given) == [
        ConsumerMemberSeen(
            group_id="g", sent_at=SENT, member_id=member_id, instance_id="i", epoch=4, heartbeat_seconds=5, **WHO
        )
    ]


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({}, False),
        ({"instance_id": "i"}, False),
        ({"rack_id": "r"}, True),
        ({"server_assignor": "range"}, True),
        ({"rebalance_timeout_ms": 5000}, True),
        ({"subscribed_topic_names": ("t",)}, True),
        ({"subscribed_topic_regex": "t.*"}, True),
        ({"topic_partitions": ()}, True),
    ],
)
def test_changing_heartbeat_fields(fields: dict[str, Any], changes: bool) -> None:
    """A heartbeat with a field for which the broker may write a record may change the group. Clients repeat only the
    instance id.
    """
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3, **fields)
    reply = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=0, member_id="m", member_epoch=3, heartbeat_interval_ms=5000
    )
    [event] = [each for each in events_of(request, reply, 1) if isinstance(each, ConsumerMemberSeen)]
    assert event.may_change_group is changes
    assert (event.content_hash is not None) is changes


def content_hash(owned: tuple[int, ...] | None, assigned: tuple[int, ...] | None, *, epoch: int, new_epoch: int) -> Any:
    """Returns the content hash of a heartbeat with these owned partitions, whose reply has these partitions."""
    topic = UUID(int=1)
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=epoch,
        topic_partitions=None if owned is None else (TopicPartitions(topic_id=topic, partitions=owned),),
    )
    partitions = None if assigned is None else (TopicPartitions(topic_id=topic, partitions=assigned),)
    reply = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        member_epoch=new_epoch,
        heartbeat_interval_ms=1,
        assignment=None if partitions is None else Assignment(topic_partitions=partitions),
    )
    [event] = [each for each in events_of(request, reply, 1) if isinstance(each, ConsumerMemberSeen)]
    return event.content_hash


def test_heartbeat_content_hash() -> None:
    """Two heartbeats have the same content hash only if their fields and replies are the same."""
    first = content_hash((1,), (1,), epoch=3, new_epoch=3)
    assert first == content_hash((1,), (1,), epoch=3, new_epoch=3)
    others = [
        content_hash((2,), (1,), epoch=3, new_epoch=3),
        content_hash((1,), (2,), epoch=3, new_epoch=3),
        content_hash((1,), None, epoch=3, new_epoch=3),
        content_hash((1,), (1,), epoch=4, new_epoch=4),
    ]
    assert len({first, *others}) == 5


@pytest.mark.parametrize(("epoch", "new_epoch"), [(0, 1), (3, 4), (-1, -1), (-2, -2)])
def test_heartbeat_without_content_hash(epoch: int, new_epoch: int) -> None:
    """A heartbeat that joins, leaves or changes the epoch has no content hash, and neither has an empty heartbeat."""
    assert content_hash((1,), (1,), epoch=epoch, new_epoch=new_epoch) is None
    assert content_hash(None, None, epoch=3, new_epoch=3) is None


@pytest.mark.parametrize(("error", "kind"), [(25, [MemberUnknown]), (16, [NotCoordinatorReplied]), (110, []), (81, [])])
def test_consumer_heartbeat_fails(error: int, kind: list[type]) -> None:
    """A failed consumer heartbeat makes the event of its error code, or none."""
    assert kinds(consumer_beat(error, None)) == kind


# Lost replies.


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
def test_lost_group_write_is_reported(request_: Struct, creates: bool) -> None:
    """A lost reply to a join, sync, leave or consumer join makes a ReplyLost event that says whether the request may
    create a group.
    """
    assert lost(request_, 0) == [ReplyLost(group_id="g", sent_at=SENT, token="7:1", may_create_group=creates)]


@pytest.mark.parametrize("request_", [BEAT, DescribeGroupsRequest(groups=("g",)), ListGroupsRequest()])
def test_lost_read_makes_no_event(request_: Struct) -> None:
    """A lost reply to a request that changes nothing makes no event."""
    assert lost(request_, 0) == ()


def test_lost_delete_groups_doubts_each_group() -> None:
    """A lost DeleteGroups reply makes ReplyLost and OffsetsDoubted events for each group."""
    assert lost(DeleteGroupsRequest(groups_names=("g", "h")), 0) == [
        event
        for group in ("g", "h")
        for event in (
            ReplyLost(group_id=group, sent_at=SENT, token="7:1", may_create_group=False),
            OffsetsDoubted(group_id=group, sent_at=SENT, partitions=None),
        )
    ]
