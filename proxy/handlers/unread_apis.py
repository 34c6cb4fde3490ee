"""Handles requests that are not decoded although they change groups or offsets.

The requests are the heartbeats of share groups and streams groups, AlterShareGroupOffsets, and DeleteTopics. The
sidecar reads only the group id of the first three. DeleteTopics makes the broker delete committed offsets.
"""

from group_sidecar.coordinator.wire import exchange_events
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.dataplane.framing import HOLD
from group_sidecar.proxy.dataplane.outcomes import Forward, Origin, PendingReply
from group_sidecar.proxy.handlers.api_handler import ApiHandler
from group_sidecar.proxy.handlers.observer import Observer
from group_sidecar.proxy.handlers.undecoded_writes import UndecodedWrite


class NamedGroupWrites(ApiHandler):
    """Handles writes that are forwarded undecoded. The sidecar reads only their group id."""

    def __init__(self, observer: Observer) -> None:
        super().__init__(HOLD)
        self._observer = observer

    def undecoded(self, api_key: int, version: int, frame: bytes | None) -> PendingReply:
        """See ApiHandler."""
        group = exchange_events.group_in_frame(api_key, frame) if frame else None
        return self._observer.note_undecoded_write(api_key, group)

    def decide(self, frame: bytes, version: int, origin: Origin, now: float) -> Forward:
        """See ApiHandler."""
        return Forward(self.undecoded(int.from_bytes(frame[:2], "big"), version, frame))


class TopicDeletions(ApiHandler):
    """Handles DeleteTopics. When the reply arrives or is lost, the broker may soon delete offsets of any group."""

    def __init__(self, copy: CoordinatorCopy) -> None:
        super().__init__()
        self._copy = copy

    def undecoded(self, api_key: int, version: int, frame: bytes | None) -> PendingReply:
        """See ApiHandler."""
        return UndecodedWrite(self._copy, api_key)
