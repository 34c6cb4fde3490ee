"""Closes sockets of clients so that each client receives all its replies, and then the end of the stream.

If a socket is closed while it contains unread bytes, the kernel resets the connection (RFC 2525, 2.17). A client that
pipelines requests would then see an error, and lose the replies that are still on their way. So the sending side is
shut down first, and the socket is closed when the client's kernel has acknowledged all bytes and the end. Requests that
arrive meanwhile are dropped, and the broker does not get them.
"""

import os
from functools import partial
from select import EPOLLIN
from typing import Final

from group_sidecar.proxy.dataplane.endpoint_socket import EndpointSocket
from group_sidecar.proxy.dataplane.poller import Poller

DELIVERY_SECONDS: Final = 2.0
"""After this many seconds without an acknowledgement a socket is closed, because its client does not read."""
DROP_BYTES: Final = 65_536
"""The maximum number of bytes that are read and dropped at a time."""


class DeliveredCloses:
    """The sockets that wait for the acknowledgement of their last bytes."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._waiting: dict[EndpointSocket, tuple[int, float]] = {}
        """The number of unacknowledged bytes of each socket, and when the socket is closed if the number does not
        shrink."""

    def __len__(self) -> int:
        return len(self._waiting)

    def close(self, endpoint: EndpointSocket, now: float) -> None:
        """Closes a socket when its peer has received all bytes. The poller must not watch the socket any more.

        Args:
            endpoint: the socket, without a backlog. The caller gives the socket up.
            now: the time on the poller's clock.
        """
        try:
            endpoint.shut()
            if count := endpoint.unacknowledged_bytes:
                self._poller.watch(endpoint.fd, EPOLLIN, partial(self._drop, endpoint))
                self._waiting[endpoint] = count, now + DELIVERY_SECONDS
                return
        except OSError:
            pass  # The connection is broken, so nothing can be delivered.
        endpoint.close()

    def sweep(self, now: float) -> None:
        """Closes the sockets whose bytes were acknowledged, and the sockets whose client has stopped reading."""
        for endpoint, (last_count, deadline) in [*self._waiting.items()]:
            count = endpoint.unacknowledged_bytes
            if not count or (count >= last_count and now > deadline):
                self._finish(endpoint)
            elif count < last_count:
                self._waiting[endpoint] = count, now + DELIVERY_SECONDS

    def close_all(self) -> None:
        """Closes all sockets now."""
        for endpoint in [*self._waiting]:
            self._finish(endpoint)

    def _drop(self, endpoint: EndpointSocket, _: int) -> None:
        """Drops bytes that have arrived, so that a client that sends before it reads is not blocked."""
        try:
            if os.read(endpoint.fd, DROP_BYTES):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._finish(endpoint)

    def _finish(self, endpoint: EndpointSocket) -> None:
        del self._waiting[endpoint]
        self._poller.forget(endpoint.fd)
        endpoint.close()
