"""Reports the state of the sidecar to systemd, by the protocol of sd_notify(3).

systemd names a datagram socket in `NOTIFY_SOCKET`. Without that variable, nothing is reported.
"""

import os
import socket
import time
from collections.abc import Mapping

import trio

from group_sidecar.proxy.runtime.log_throttle import LogThrottle
from group_sidecar.proxy.runtime.logging import log

SEND_SECONDS = 0.2
"""The maximum number of seconds that a report waits if systemd does not read its socket."""


class ServiceManager:
    """Sends reports to systemd.

    Args:
        environment: the environment of the process. Empty if there is no service manager.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._watchdog_seconds = _watchdog_seconds(environment)
        self._log_throttle = LogThrottle()

    def ready(self, status: str) -> None:
        """Reports that the sidecar serves clients, after a start or a reload."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Reports that the settings are being read again. `ready` ends the reload."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        """Reports that the sidecar has begun to stop."""
        self._send("STOPPING=1", f"STATUS={status}")

    def succeeded_by(self, pid: int) -> None:
        """Reports that another process serves clients from now on. The service manager then watches that process."""
        self._send(f"MAINPID={pid}")

    async def feed_watchdog(self) -> None:
        """Reports twice in each watchdog interval that the event loop runs. Returns at once if there is no watchdog."""
        while self._watchdog_seconds:
            self._send("WATCHDOG=1")
            await trio.sleep(self._watchdog_seconds / 2)

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.settimeout(SEND_SECONDS)
                sock.connect(self._address)
                sock.sendall("\n".join(lines).encode())
        except OSError as error:
            if times := self._log_throttle.due("notify"):
                log.warning("the service manager cannot be reached", cause=error.strerror or str(error), times=times)


def _watchdog_seconds(environment: Mapping[str, str]) -> float:
    """Returns the watchdog's interval in seconds, or 0 if this process has no watchdog (sd_watchdog_enabled(3))."""
    microseconds = environment.get("WATCHDOG_USEC", "")
    is_for_this_process = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(microseconds) / 1e6 if microseconds.isdecimal() and is_for_this_process else 0.0
