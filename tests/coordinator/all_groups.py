"""Returns all groups of a copy at once. The product does not do this, because it would block the event loop."""

from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.views import GroupView


def all_groups(manager: GroupMetadataManager, now: float) -> list[GroupView]:
    """Returns the groups that exist at `now`."""
    views = (manager.existing(group_id, now) for group_id in manager.group_metadata_cache)
    return [view for view in views if view is not None]
