"""What a session has its shell do.

Owns: the shapes. Must not know: why, nor how it is done.
"""

from typing import NamedTuple

from group_sidecar.metrics.traffic import CloseReason


class ToClient(NamedTuple):
    """Send to the client."""

    data: bytes


class ToUpstream(NamedTuple):
    """Send to the broker."""

    data: bytes


class ShutUpstream(NamedTuple):
    """The client will send no more: tell the broker, behind what is still to be sent."""


class Close(NamedTuple):
    """Send what is still to be sent to the client, then close both sides."""

    reason: CloseReason


Command = ToClient | ToUpstream | ShutUpstream | Close
