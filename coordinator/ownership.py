"""Which partitions have changed hands.

Owns: what members owned before a rebalance, and the comparison with what they own after it. Must not know: why, nor
what is told of it. A static member that is back under another member id is the same owner.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from group_sidecar.codecs.consumer_protocol import CONSUMER, assigned_to
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.members import Member
from group_sidecar.coordinator.rebalances import Owned
from group_sidecar.coordinator.views import ConsumerGroupView, GroupState

NOBODYS: Owned = frozenset()


class Moves(NamedTuple):
    """How many partitions have another owner than before, or none; and how many that nobody had have one now."""

    moved: int
    added: int


def keep_owners(group: Group) -> None:
    """Something is about to change who is in the group: from now on it is known what they owned before."""
    if group.owned is None:
        if group.assigned or (group.state is GroupState.EMPTY and not group.overdue):
            group.owned = _assignments((*group.members.values(), *group.overdue.values()))
        elif group.state is GroupState.DEAD and group.unsure is None:
            group.owned = {}


def settle_owners(group: Group) -> Moves | None:
    """The generation is complete. What has moved with it; None where that cannot be read."""
    before, group.owned = group.owned, None
    if before is None or not group.assigned or group.protocol_type != CONSUMER:
        return None
    after = _assignments(group.members.values())
    changed = [owner for owner in {**before, **after} if before.get(owner) != after.get(owner)]
    try:
        return _moves([(assigned_to(before.get(owner, b"")), assigned_to(after.get(owner, b""))) for owner in changed])
    except DecodeError:
        return None


def consumer_owners(view: ConsumerGroupView | None) -> Mapping[str, Owned]:
    """What each member of a group of KIP-848 owns."""
    return {
        member.instance_id or member.member_id: frozenset(
            (topic, each) for topic, parts in member.assignment.items() for each in parts
        )
        for member in (view.members if view else ())
    }


def consumer_moves(before: Mapping[str, Owned], after: Mapping[str, Owned]) -> int:
    """How many partitions have another owner than before, or none."""
    return _moves([(before.get(owner, NOBODYS), after.get(owner, NOBODYS)) for owner in {**before, **after}]).moved


def _assignments(members: Iterable[Member]) -> dict[str, bytes]:
    return {member.instance_id or member.member_id: member.assignment for member in members}


def _moves(changed: Iterable[tuple[Owned, Owned]]) -> Moves:
    had, lost, got = set[tuple[object, int]](), 0, set[tuple[object, int]]()
    for before, after in changed:
        had |= before
        got |= after
        lost += len(before - after)
    return Moves(moved=lost, added=len(got - had))
