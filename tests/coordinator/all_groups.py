"""All groups of a copy at once, which only a test has the time for."""

from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.views import GroupView


def all_groups(manager: GroupMetadataManager, now: float) -> list[GroupView]:
    """Those that exist, at one moment."""
    views = (manager.existing(group_id, now) for group_id in manager.group_metadata_cache)
    return [view for view in views if view is not None]
