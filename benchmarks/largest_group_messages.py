"""Defines the largest decoded requests about members and groups, with few large or many small parts.

`largest_offset_messages` has the requests about offsets. This module defines the names of groups for both modules.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages import consumer_group_heartbeat as heartbeat
from group_sidecar.codecs.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
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
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from group_sidecar.codecs.schema import Struct
from group_sidecar.proxy.handlers.decode_limits import DESCRIBED_COST, MEMBER_COST

OWN = "billing"
"""The group of most requests."""
CROWD = "crowd"
"""A group with very many members."""
TIMES_OF_DESCRIBED = 5
"""How many elements of a commit cost as much as one element of a DescribeGroups reply (`decode_limits`)."""
MEMBERS = 10
"""Members of each group that is described."""
LONG_NOTE = "x" * 100
"""Metadata that is too long for the policy on commits."""
WIDE = -1
"""The argument of `Sizes`, in place of an API key, for requests without a limit of their own."""
SEEN, UNSEEN = "log", "elsewhere"
"""Prefixes of the names of groups whose log is read, and of unknown groups."""


Sizes = Callable[[int], int]
"""Returns how many elements a message of an API may have."""


class Case(NamedTuple):
    """A request and the broker's reply.

    `crowd` is the number of members of `CROWD`, which is created again for each case.
    """

    name: str
    request: Struct
    version: int
    reply: Struct
    crowd: int = 0


def form(many: int, each: int) -> str:
    """Formats a number of parts and the number of elements in each part, for instance ``4 x 10``."""
    return f"{many:,} x {each:,}" if many > 1 else f"1 x {each:,}"


def forms(most: int) -> tuple[tuple[int, int], ...]:
    """Returns the numbers of topics and of partitions per topic: for one large topic, and for many small topics."""
    return (1, most - 1), (most // 2, 1)


def member_id(group: str, number: int) -> str:
    """Returns a member id in the form in which the broker makes it from a client id."""
    return f"consumer-{group}-{number}-5b9c8f0e-8f36-4d3c-9d1a-0c6f2f5a1f6e"


def log_group(number: int) -> str:
    """Returns the name of a group whose log is read."""
    return f"{SEEN}-{number:07}"


def joins(sizes: Sizes) -> Iterator[Case]:
    """Yields cases of JoinGroup and SyncGroup."""
    ids = member_ids(sizes(JoinGroupRequest.KEY))
    protocols = tuple(JoinGroupProtocol(name=f"protocol-{number}", metadata=b"x") for number in range(sizes(WIDE)))
    wide = JoinGroupRequest(
        group_id="wide",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )
    yield Case(
        f"JoinGroup of {len(protocols):,} protocols",
        wide,
        5,
        JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, protocol_name="", leader="", member_id=""),
    )
    join = replace(
        wide, group_id=CROWD, member_id=ids[0], protocols=(JoinGroupProtocol(name="range", metadata=bytes(60)),)
    )
    yield Case(
        f"JoinGroup of a leader, reply with {len(ids):,} members",
        join,
        9,
        JoinGroupResponse(
            error_code=0,
            generation_id=7,
            protocol_type="consumer",
            protocol_name="range",
            leader=ids[0],
            member_id=ids[0],
            members=tuple(JoinGroupMember(member_id=each, metadata=bytes(60)) for each in ids),
        ),
        crowd=1,
    )
    ids = member_ids(sizes(SyncGroupRequest.KEY))
    yield Case(
        f"SyncGroup of {len(ids):,} assignments",
        SyncGroupRequest(
            group_id=CROWD,
            generation_id=7,
            member_id=ids[0],
            assignments=tuple(SyncGroupRequestAssignment(member_id=each, assignment=bytes(60)) for each in ids),
        ),
        5,
        SyncGroupResponse(error_code=0, assignment=bytes(60)),
        crowd=len(ids),
    )


def member_ids(count: int) -> list[str]:
    """Returns the ids of the members of `CROWD`."""
    return [member_id(CROWD, number) for number in range(count)]


def leaves(sizes: Sizes) -> Iterator[Case]:
    """Yields cases of LeaveGroup."""
    ids = member_ids(sizes(LeaveGroupRequest.KEY))
    for what, code in (("", 0), (" that the broker does not know", ErrorCode.UNKNOWN_MEMBER_ID)):
        yield Case(
            f"LeaveGroup of {len(ids):,} members{what}",
            LeaveGroupRequest(group_id=CROWD, members=tuple(MemberIdentity(member_id=each) for each in ids)),
            5,
            LeaveGroupResponse(
                error_code=0,
                members=tuple(MemberResponse(member_id=each, group_instance_id=None, error_code=code) for each in ids),
            ),
            crowd=len(ids),
        )


def heartbeats(sizes: Sizes) -> Iterator[Case]:
    """Yields cases of ConsumerGroupHeartbeat."""
    most = sizes(heartbeat.ConsumerGroupHeartbeatRequest.KEY)
    for topics, each in forms(most):
        owned = tuple(
            heartbeat.TopicPartitions(topic_id=UUID(int=number + 1), partitions=tuple(range(each)))
            for number in range(topics)
        )
        yield Case(
            f"ConsumerGroupHeartbeat with {form(topics, each)} partitions",
            heartbeat.ConsumerGroupHeartbeatRequest(
                group_id="modern", member_id="m", member_epoch=0, topic_partitions=owned
            ),
            1,
            heartbeat.ConsumerGroupHeartbeatResponse(
                throttle_time_ms=0,
                error_code=0,
                member_id="m",
                member_epoch=1,
                heartbeat_interval_ms=5000,
                assignment=heartbeat.Assignment(topic_partitions=owned),
            ),
        )
    yield Case(
        f"ConsumerGroupHeartbeat with {most:,} topic names",
        heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="modern",
            member_id="m",
            member_epoch=0,
            subscribed_topic_names=tuple(f"topic-{number}" for number in range(most)),
        ),
        1,
        heartbeat.ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0, error_code=0, member_id="m", member_epoch=1, heartbeat_interval_ms=5000
        ),
    )


def described(group: str, each: int) -> DescribedGroup:
    """Returns a group as the broker describes it."""
    return DescribedGroup(
        error_code=0,
        group_id=group,
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=tuple(
            DescribedGroupMember(
                member_id=member_id(group, number),
                client_id="consumer-1",
                client_host="/10.0.0.1",
                member_metadata=bytes(60),
                member_assignment=bytes(60),
            )
            for number in range(each)
        ),
    )


def descriptions(sizes: Sizes, settled: str, unsettled: str, groups: int, crowd: int) -> Iterator[Case]:
    """Yields cases of DescribeGroups and ConsumerGroupDescribe, for complete groups and for groups in doubt.

    `crowd` is the number of members of a group that is described alone.
    """
    most = sizes(DescribeGroupsRequest.KEY)
    decodable = most * TIMES_OF_DESCRIBED // (DESCRIBED_COST + MEMBER_COST * MEMBERS)
    for what, prefix, count in (("", settled, decodable), ("", settled, groups), (" in doubt", unsettled, groups)):
        names = tuple(f"{prefix}-{number}" for number in range(count))
        shown = names[: most // (MEMBERS + 1)]
        yield Case(
            f"DescribeGroups of {count} groups{what}",
            DescribeGroupsRequest(groups=names),
            5,
            DescribeGroupsResponse(groups=tuple(described(name, MEMBERS) for name in shown)),
        )
    yield Case(
        f"DescribeGroups of a group of {crowd:,} members",
        DescribeGroupsRequest(groups=(CROWD,)),
        5,
        DescribeGroupsResponse(groups=(described(CROWD, most - 1),)),
        crowd=crowd,
    )
    strangers = tuple(f"{UNSEEN}-{number}" for number in range(groups))
    yield Case(
        f"ConsumerGroupDescribe of {groups} groups",
        ConsumerGroupDescribeRequest(group_ids=strangers, include_authorized_operations=False),
        1,
        ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=()),
    )
    states = sizes(ListGroupsRequest.KEY)
    yield Case(
        f"ListGroups with {states:,} states",
        ListGroupsRequest(states_filter=tuple(f"state-{number}" for number in range(states))),
        4,
        ListGroupsResponse(error_code=0, groups=()),
    )
