"""Finds the broker that coordinates a group, which is the leader of the group's partition of `__consumer_offsets`."""

from collections.abc import Mapping

from group_sidecar.coordinator.state.log_partitions import partition_for
from group_sidecar.proxy.broker.address_rewrite import Advertise
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.broker.group_queries import Node


class GroupCoordinators:
    """The leaders of the partitions of `__consumer_offsets`. The leader of a partition coordinates the groups of the
    partition.

    Args:
        copy: knows how many partitions `__consumer_offsets` has.
        advertise: returns the address that replaces a broker's; None if no address is rewritten.
    """

    def __init__(self, copy: CoordinatorCopy, advertise: Advertise | None) -> None:
        self._copy = copy
        self._advertise = advertise
        self._leaders: Mapping[int, Node] = {}

    def learn(self, leaders: Mapping[int, Node]) -> None:
        """Stores the leader of each partition of the coordinator's log, in place of all earlier leaders."""
        self._leaders = leaders

    def coordinator(self, group_id: str) -> Node | None:
        """Returns the broker that coordinates a group, at the address that clients use, or None if it is not known."""
        count = self._copy.manager.log.partitions.count
        node = self._leaders.get(partition_for(group_id, count)) if count else None
        if node is None or self._advertise is None:
            return node
        return Node(node.id, *self._advertise(node.id, node.host, node.port))
