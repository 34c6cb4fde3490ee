"""Selects the members to remove from a group over its size limit."""

from collections.abc import Sequence

from group_sidecar.coordinator.model.views import GroupView, MemberView


def excess_members(group: GroupView, limit: int) -> Sequence[MemberView]:
    """Returns the newest members of a group, as many as exceed the limit.

    The leader counts as the oldest member, because without the leader another member has to compute the assignment.
    Members that were first seen together are ordered by their ids, so that each call returns the same members.
    """
    by_age = sorted(group.members, key=lambda each: (each.member_id != group.leader, each.since, each.member_id))
    return by_age[limit:]
