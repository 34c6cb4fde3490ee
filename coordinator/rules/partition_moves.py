"""Counts the partitions whose owner changes in a rebalance.

A static member that joins again under another member id is the same owner.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from group_sidecar.codecs.consumer_protocol import CONSUMER, partitions_in_assignment
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.coordinator.model.views import ConsumerGroupView, GroupState
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.member import Member
from group_sidecar.coordinator.state.rebalance import OwnedPartitions

NO_PARTITIONS: OwnedPartitions = frozenset()


class Moves(NamedTuple):
    """`moved` counts partitions that lost their previous owner. `added` counts partitions without a previous owner, if
    the group had members before.
    """

    moved: int
    added: int


def save_owners(group: Group) -> None:
    """Keeps the assignments before a rebalance, unless they are kept already. Called before the members change."""
    if group.rebalances.previous_assignments is None:
        if group.assignments_known or (group.state is GroupState.EMPTY and not group.overdue):
            group.rebalances.save_owners(_assignments((*group.members.values(), *group.overdue.values())))
        elif group.state is GroupState.DEAD and group.incomplete_reason is None:
            group.rebalances.save_owners({})


def compare_owners(group: Group) -> Moves | None:
    """Counts the moved partitions of a complete generation, and forgets the assignments before the rebalance.

    Returns None if assignments are unknown or unreadable, or if the group's protocol type is not `consumer`.
    """
    before = group.rebalances.take_owners()
    if before is None or not group.assignments_known or group.protocol_type != CONSUMER:
        return None
    after = _assignments(group.members.values())
    changed = [owner for owner in {**before, **after} if before.get(owner) != after.get(owner)]
    try:
        moves = _moves(
            [
                (partitions_in_assignment(before.get(owner, b"")), partitions_in_assignment(after.get(owner, b"")))
                for owner in changed
            ]
        )
    except DecodeError:
        return None
    return moves if before else moves._replace(added=0)


def consumer_owners(view: ConsumerGroupView | None) -> Mapping[str, OwnedPartitions]:
    """Returns the partitions that each member of a KIP-848 group owns."""
    return {
        member.instance_id or member.member_id: frozenset(
            (topic, each) for topic, parts in member.assignment.items() for each in parts
        )
        for member in (view.members if view else ())
    }


def consumer_moves(before: Mapping[str, OwnedPartitions], after: Mapping[str, OwnedPartitions]) -> int:
    """Returns how many partitions have lost their previous owner."""
    return _moves(
        [(before.get(owner, NO_PARTITIONS), after.get(owner, NO_PARTITIONS)) for owner in {**before, **after}]
    ).moved


def _assignments(members: Iterable[Member]) -> dict[str, bytes]:
    return {member.instance_id or member.member_id: member.assignment for member in members}


def _moves(changed: Iterable[tuple[OwnedPartitions, OwnedPartitions]]) -> Moves:
    had, lost, got = set[tuple[object, int]](), 0, set[tuple[object, int]]()
    for before, after in changed:
        had |= before
        got |= after
        lost += len(before - after)
    return Moves(moved=lost, added=len(got - had))
