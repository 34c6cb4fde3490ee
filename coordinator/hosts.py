"""Where members are, in place of where the broker says they are.

Owns: how true hosts get into a view of a group and into a reply of the broker's. Must not know: how a host becomes
known (`membership`), which of both is to be told, to whom. A broker behind a sidecar sees all clients in one place.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsResponse
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.members import Member
from group_sidecar.coordinator.views import ConsumerGroupView

Told = TypeVar("Told", bound=Any)
"""What tells of a group's members, each with its id and host."""


class Whereabouts(Protocol):
    """A group's members, and those whose session must have run out, by id."""

    members: dict[str, Member]
    overdue: dict[str, Member]


def located(view: ConsumerGroupView, members: Mapping[str, Member]) -> ConsumerGroupView:
    """A view made from the log, with its members where they are, as far as that is known."""
    return _moved(view, lambda member_id: members[member_id].true_host if member_id in members else "")


def relocated(reply: Struct, groups: Mapping[str, Whereabouts]) -> Struct:
    """A reply of the broker's about groups, likewise; itself where nothing changes."""
    if not isinstance(reply, DescribeGroupsResponse | ConsumerGroupDescribeResponse):
        return reply
    told: Any = reply
    moved = tuple(_moved(group, partial(_true_host, groups.get(group.group_id))) for group in told.groups)
    same = all(new is old for new, old in zip(moved, told.groups, strict=True))
    return reply if same else replace(told, groups=moved)


def _true_host(group: Whereabouts | None, member_id: str) -> str:
    """Empty where only the broker's word is known."""
    member = (group.members.get(member_id) or group.overdue.get(member_id)) if group else None
    return member.true_host if member else ""


def _moved(group: Told, true_host: Callable[[str], str]) -> Told:
    """The group with its members where they are; itself where all are there already."""
    hosts = [true_host(member.member_id) or member.client_host for member in group.members]
    if all(host == member.client_host for host, member in zip(hosts, group.members, strict=True)):
        return group
    members = (replace(member, client_host=host) for host, member in zip(hosts, group.members, strict=True))
    return replace(group, members=tuple(members))
