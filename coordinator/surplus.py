"""Who is too much in a group.

Owns: the order in which members would have to go. Must not know: any limit, who removes them.
"""

from collections.abc import Sequence

from group_sidecar.coordinator.views import GroupView, MemberView


def surplus(group: GroupView, limit: int) -> Sequence[MemberView]:
    """The members that a group has beyond a limit: the newest.

    Its leader counts as the oldest, for without it the assignment would have to move. Of members that were first seen
    together nothing tells which is newer; they go by their ids, so that the word is always the same.
    """
    by_age = sorted(group.members, key=lambda each: (each.member_id != group.leader, each.since, each.member_id))
    return by_age[limit:]
