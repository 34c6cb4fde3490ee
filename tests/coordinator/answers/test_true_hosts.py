"""Replies of the broker with the true hosts of members."""

from dataclasses import replace

from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.list_groups import ListGroupsResponse
from group_sidecar.coordinator.answers.true_hosts import reply_with_true_hosts
from group_sidecar.coordinator.state.member import Member

SIDECAR = "/the-sidecar"


def test_true_hosts_replace_broker_hosts() -> None:
    """reply_with_true_hosts replaces only the hosts of members with a known true host."""
    reply = DescribeGroupsResponse(groups=(classic("g", "a", "b"), classic("h", "a")))
    moved = reply_with_true_hosts(reply, {"g": Held(a="", b="/10.0.0.7")})
    assert isinstance(moved, DescribeGroupsResponse)
    assert [[m.client_host for m in group.members] for group in moved.groups] == [[SIDECAR, "/10.0.0.7"], [SIDECAR]]
    there = tuple(replace(member, client_host=SIDECAR) for member in moved.groups[0].members)
    assert replace(moved.groups[0], members=there) == reply.groups[0], "all other fields stay the same"
    assert moved.groups[1] is reply.groups[1]


def test_reply_with_correct_hosts_is_unchanged() -> None:
    """reply_with_true_hosts returns the same object if no host needs a change."""
    reply = DescribeGroupsResponse(groups=(classic("g", "a"), classic("h")))
    assert reply_with_true_hosts(reply, {"g": Held(a=SIDECAR)}) is reply
    assert reply_with_true_hosts(reply, {"g": Held(a="")}) is reply
    assert reply_with_true_hosts(reply, {}) is reply
    other = ListGroupsResponse(error_code=0, groups=())
    assert reply_with_true_hosts(other, {"g": Held(a="/10.0.0.7")}) is other


def test_overdue_member_keeps_true_host() -> None:
    """An overdue member has its true host in the broker's reply."""
    reply, held = DescribeGroupsResponse(groups=(classic("g", "a"),)), Held(a="/10.0.0.7")
    held.members, held.overdue = held.overdue, held.members
    moved = reply_with_true_hosts(reply, {"g": held})
    assert isinstance(moved, DescribeGroupsResponse)
    assert moved.groups[0].members[0].client_host == "/10.0.0.7"


class Held:
    """A group with these members and their hosts."""

    def __init__(self, **hosts: str) -> None:
        self.members = {name: Member(member_id=name, since=0, true_host=host) for name, host in hosts.items()}
        self.overdue: dict[str, Member] = {}


def classic(group: str, *members: str) -> DescribedGroup:
    described_members = (
        DescribedGroupMember(
            member_id=member, client_id="c", client_host=SIDECAR, member_metadata=b"", member_assignment=b"1"
        )
        for member in members
    )
    return DescribedGroup(
        error_code=0,
        group_id=group,
        group_state="Stable",
        protocol_type="",
        protocol_data="",
        members=tuple(described_members),
    )
