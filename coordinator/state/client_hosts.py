"""Puts the true hosts and the principals of members into views from the log.

The broker sees all clients at the sidecar's host, and its log has that host for each member. The log has no principals.
"""

from collections.abc import Mapping
from dataclasses import replace

from group_sidecar.coordinator.model.views import ConsumerGroupView, ConsumerMemberView
from group_sidecar.coordinator.state.member import Member


def with_clients(view: ConsumerGroupView, members: Mapping[str, Member]) -> ConsumerGroupView:
    """Returns a view from the log with the true hosts and principals of the members.

    The result is the same object if no true host is known.
    """
    named = tuple(_with_client(each, members.get(each.member_id)) for each in view.members)
    same = all(new is old for new, old in zip(named, view.members, strict=True))
    return view if same else replace(view, members=named)


def _with_client(view: ConsumerMemberView, member: Member | None) -> ConsumerMemberView:
    if member is None or not member.true_host:
        return view
    return replace(view, client_host=member.true_host, principal=member.principal)
