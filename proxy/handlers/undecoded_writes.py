"""Handles the replies to writes that were forwarded undecoded.

A write may change its group. The copy notes the write when it is forwarded, and again when the reply arrives or is
lost. The group is then in doubt, because only `__consumer_offsets` shows how the group has changed. DeleteTopics has no
group. The copy notes DeleteTopics only when the reply arrives or is lost.
"""

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.coordinator.model.events import LOST_REQUEST_SECONDS
from group_sidecar.coordinator.wire import exchange_events
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.dataplane.outcomes import PendingNotice, PendingReply

_DELETE_TOPICS = int(ApiKey.DELETE_TOPICS)


class UndecodedWrite(PendingNotice):
    """The pending reply of a write that was not decoded.

    Args:
        copy: the copy of the broker's group coordinator.
        api_key: the API key of the request.
        group: the group that the request changes, or None if that is not known.
    """

    __slots__ = ("_api_key", "_copy", "_group")

    def __init__(self, copy: CoordinatorCopy, api_key: int, group: str | None = None) -> None:
        self._copy = copy
        self._api_key = api_key
        self._group = group

    @property
    def api_key(self) -> int:
        """See PendingReply."""
        return self._api_key

    def lost(self, now: float) -> None:
        """Notes the write in the copy, because the request's effect on the broker is not known."""
        copy, key = self._copy, self._api_key
        if key == _DELETE_TOPICS:
            copy.manager.note_topic_deletion(copy.epoch(now))
            return
        members = key not in exchange_events.MEMBER_PRESERVING_WRITES
        copy.manager.note_unread_write(self._group, copy.epoch(now) + LOST_REQUEST_SECONDS, members=members)

    def evict(self, reason: CloseReason) -> PendingReply:
        """See PendingReply. This object handles the reply without the request's bytes."""
        return self
