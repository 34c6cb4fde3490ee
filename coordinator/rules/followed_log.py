"""The part of the log's follower that the rules call.

The follower (`coordinator.log.follower`) applies rules, so the rules cannot import it.
"""

from collections.abc import Iterable
from typing import Protocol

from group_sidecar.coordinator.model.events import Event
from group_sidecar.coordinator.model.views import TopicPartition
from group_sidecar.coordinator.state.moved_groups import MovedGroups


class FollowedLog(Protocol):
    """The methods of the follower of ``__consumer_offsets`` that the rules call."""

    @property
    def moved_groups(self) -> MovedGroups:
        """The groups whose partition another broker now leads."""

    def may_include(self, event: Event) -> bool:
        """Whether the log may already contain the effect of an event, and later changes that the wire did not show."""

    def note_not_coordinated(self, group_id: str, now: float) -> None:
        """Notes that the broker replied NOT_COORDINATOR. `bring_back` will merge the group's records again."""

    def expect_group_tombstone(self, group_id: str, now: float, *, existed: bool) -> None:
        """Expects the tombstone of a group that a client deleted."""

    def expect_offset_tombstones(self, group_id: str, partitions: Iterable[TopicPartition], now: float) -> None:
        """Expects the tombstones of offsets that a client deleted."""
