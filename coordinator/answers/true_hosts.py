"""Puts the true hosts of members into replies of the broker.

The broker sees all clients at the sidecar's host, and reports that host for each member.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsResponse
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.state.member import Member

Description = TypeVar("Description", bound=Any)
"""A description of a group in a reply. Each of its members has an id and a host."""


class MemberTables(Protocol):
    """The current and the overdue members of a group."""

    @property
    def members(self) -> Mapping[str, Member]:
        """The members by member id."""

    @property
    def overdue(self) -> Mapping[str, Member]:
        """The members whose sessions must have expired, by member id."""


def reply_with_true_hosts(reply: Struct, groups: Mapping[str, MemberTables]) -> Struct:
    """Returns a reply of the broker with the true hosts of the members; the same object if nothing changes."""
    if not isinstance(reply, DescribeGroupsResponse | ConsumerGroupDescribeResponse):
        return reply
    response: Any = reply
    described = tuple(_with_hosts(group, partial(_true_host, groups.get(group.group_id))) for group in response.groups)
    same = all(new is old for new, old in zip(described, response.groups, strict=True))
    return reply if same else replace(response, groups=described)


def _true_host(group: MemberTables | None, member_id: str) -> str:
    """Returns the true host of a member; empty if unknown."""
    member = (group.members.get(member_id) or group.overdue.get(member_id)) if group else None
    return member.true_host if member else ""


def _with_hosts(group: Description, true_host: Callable[[str], str]) -> Description:
    """Returns the group with the true hosts of its members; the same object if no host changes."""
    hosts = [true_host(member.member_id) or member.client_host for member in group.members]
    if all(host == member.client_host for host, member in zip(hosts, group.members, strict=True)):
        return group
    members = (replace(member, client_host=host) for host, member in zip(hosts, group.members, strict=True))
    return replace(group, members=tuple(members))
