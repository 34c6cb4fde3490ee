"""What is done to all groups some at a time, at once."""

from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.facts import Fact


def swept(manager: GroupMetadataManager, now: float) -> list[Fact]:
    """The facts of a sweep of all groups, in their order."""
    return [fact for facts in manager.sweep(now) for fact in facts]


def in_doubt(manager: GroupMetadataManager) -> list[str]:
    """The groups of which the broker must be asked."""
    return [group_id for some in manager.unsettled() for group_id in some]
