"""Runs the background jobs that visit all groups in slices, until they end."""

from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.facts import Fact


def swept(manager: GroupMetadataManager, now: float) -> list[Fact]:
    """Sweeps all groups. Returns the facts in the order in which the sweep reports them."""
    return [fact for facts in manager.sweep(now) for fact in facts]


def in_doubt(manager: GroupMetadataManager) -> list[str]:
    """Returns the groups in doubt, about which the broker must be asked."""
    return [group_id for some in manager.groups_to_describe() for group_id in some]
