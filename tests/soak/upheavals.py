"""Makes changes around a sidecar under load: restarts the broker, reloads settings, and replaces certificates."""

import signal
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.certificates import Authority, Certificate
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address
from tests.kafka.sidecar_process import SidecarProcess

_SETTLE_SECONDS = 2.0
"""Seconds after a restart of the broker in which clients may still get errors, because members are unknown or
coordinators load."""
LIMITS = (50, 60)


@dataclass
class Upheavals:
    """Makes changes around one sidecar.

    Args:
        broker: the broker behind the sidecar.
        sidecar: the sidecar.
        settings: returns the sidecar's settings for a limit of `group.max.size`.
        certificate: the files that the listener with TLS uses.
        authority: the authority of its certificates.

    Attributes:
        done: how often each change was made.
    """

    broker: KafkaBroker
    sidecar: SidecarProcess
    settings: Callable[[int], dict[str, Any]]
    certificate: Certificate
    authority: Authority
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._up = threading.Event()
        self._up.set()
        self._disturbed_until = float("-inf")

    def wait_for_broker(self, stop: threading.Event) -> None:
        """Waits until the broker is not restarting, or until `stop` is set."""
        while not self._up.wait(0.1) and not stop.is_set():
            pass

    def disturbed_since(self, moment: float) -> bool:
        """Whether the broker was restarting, or had just restarted, at this moment (`time.monotonic`) or later."""
        return not self._up.is_set() or moment < self._disturbed_until

    def restart_broker(self) -> None:
        """Stops the broker in order, starts it again, and waits until it has loaded its groups."""
        self._up.clear()
        self.broker.stop()
        self.broker.start()
        self.broker.wait_for_coordinator()
        self.sidecar.wait_for_log()
        self._disturbed_until = time.monotonic() + _SETTLE_SECONDS
        self._up.set()
        self.done["restarts of the broker"] += 1

    def reload(self) -> None:
        """Changes the limit in the sidecar's settings, and makes the sidecar reload them."""
        limit = LIMITS[self.done["reloads"] % 2]
        self.sidecar.write(self.settings(limit))
        self.sidecar.process.running.send_signal(signal.SIGHUP)
        self.sidecar.process.wait_until(lambda: self.sidecar.metric("group_sidecar_group_max_size") == limit)
        self.done["reloads"] += 1

    def change_certificate(self, address: Address, context: ssl.SSLContext) -> None:
        """Replaces the certificate of the listener with TLS. Waits until new clients get the new certificate."""
        fresh = self.authority.issue(address[0])
        expected = ssl.PEM_cert_to_DER_cert(fresh.certificate_file.read_text())
        for source, target in (
            (fresh.key_file, self.certificate.key_file),
            (fresh.certificate_file, self.certificate.certificate_file),
        ):
            source.replace(target)
        self.sidecar.process.wait_until(lambda: presented_certificate(address, context) == expected)
        self.done["certificate changes"] += 1


def presented_certificate(address: Address, context: ssl.SSLContext) -> bytes | None:
    """Returns the certificate that a server presents, in DER. None if the handshake fails."""
    with (
        suppress(OSError),
        socket.create_connection(address, timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=address[0]) as secure,
    ):
        return secure.getpeercert(binary_form=True)
    return None
