"""A whole sweep at once."""

from group_sidecar.coordinator.facts import Fact
from group_sidecar.coordinator.manager import GroupMetadataManager


def swept(manager: GroupMetadataManager, now: float) -> list[Fact]:
    """The facts of a sweep of all groups, in their order."""
    return [fact for facts in manager.sweep(now) for fact in facts]
