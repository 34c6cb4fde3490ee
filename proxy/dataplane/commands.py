"""The commands that a session returns and its connection executes."""

from typing import NamedTuple

from group_sidecar.metrics.listener_counters import CloseReason


class ToClient(NamedTuple):
    """Send bytes to the client."""

    data: bytes


class ToUpstream(NamedTuple):
    """Send bytes to the broker."""

    data: bytes


class ShutUpstream(NamedTuple):
    """Send the pending bytes to the broker, then shut down the sending side, because the client has closed its side."""


class Close(NamedTuple):
    """Send the pending bytes to the client, then close both sides."""

    reason: CloseReason


Command = ToClient | ToUpstream | ShutUpstream | Close
