"""The findings of checks. A finding is a fault, which keeps the sidecar from working as configured, or a warning."""

from typing import NamedTuple

from group_sidecar.proxy.config.listener_sections import Listener


class Finding(NamedTuple):
    """A finding about a setting.

    Attributes:
        key: the path of the key, such as ``listeners.0 (INTERNAL).tls.key_file``.
        text: one clause.
        is_fault: whether the sidecar cannot work with the setting. Otherwise the finding is a warning.
    """

    key: str
    text: str
    is_fault: bool

    def __str__(self) -> str:
        return f"{self.key}: {self.text}"


def listener_key(index: int, listener: Listener) -> str:
    """Returns the path of a listener's section in the settings, with the listener's name."""
    return f"listeners.{index} ({listener.name})"


def fault(key: str, text: str) -> Finding:
    """Returns a fault."""
    return Finding(key, text, is_fault=True)


def warning(key: str, text: str) -> Finding:
    """Returns a warning."""
    return Finding(key, text, is_fault=False)
