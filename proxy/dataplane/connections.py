"""Serves all connections until they end.

`ConnectionManager` closes connections that were without traffic or authentication for too long. `draining` ends all
connections when the sidecar stops.
"""

import math
import sys
from collections.abc import Iterable

import trio

from group_sidecar.metrics.listener_counters import CloseReason, ListenerCounters
from group_sidecar.proxy.dataplane.buffer_budget import FREE_BYTES, BufferBudget
from group_sidecar.proxy.dataplane.connection import Connection, InactivityTimeouts, SharedResources
from group_sidecar.proxy.dataplane.connections_per_address import ConnectionsPerAddress
from group_sidecar.proxy.dataplane.delivered_closes import DeliveredCloses
from group_sidecar.proxy.dataplane.draining import drain, next_of
from group_sidecar.proxy.dataplane.endpoint_socket import EndpointSocket, SplicePipe, keep_read_buffers
from group_sidecar.proxy.dataplane.poller import Poller
from group_sidecar.proxy.dataplane.session import Session
from group_sidecar.proxy.runtime.supervision import Supervisor, Task

try:
    from group_sidecar.proxy.dataplane.fast_path import FastPath, Outbox

    FAST_PATH: type[FastPath] | None = FastPath
except ImportError:  # There was no C compiler when the sidecar was installed.
    FAST_PATH = None

SWEEP_SECONDS = 1.0
NO_TIMEOUTS = InactivityTimeouts()
NO_BUDGET = sys.maxsize


class ConnectionManager:
    """Serves connections until they end. Call `add` for each connection, and `run` in a task.

    Args:
        poller: calls the connections when their sockets are ready.
        timeouts: how long a connection may be without traffic before it is closed.
        max_bytes: the maximum number of bytes that all connections hold.
        max_per_address: the maximum number of connections of one client address, or 0 for no limit.
        batched: whether the small frames of one round of the poller leave in one system call. Needs the compiled fast
            path and a kernel that allows io_uring.
    """

    def __init__(
        self,
        poller: Poller,
        timeouts: InactivityTimeouts = NO_TIMEOUTS,
        *,
        max_bytes: int = NO_BUDGET,
        max_per_address: int = 0,
        batched: bool = True,
    ) -> None:
        keep_read_buffers()
        self.poller = poller
        self._outbox = Outbox(batched) if FAST_PATH else None
        if self._outbox:
            poller.after_rounds(self._outbox.flush)
        self.per_address = ConnectionsPerAddress(max_per_address)
        self._delivered_closes = DeliveredCloses(poller)
        self._budget = BufferBudget(max_bytes, poller)
        self._shared = SharedResources(poller, SplicePipe(), {}, self._delivered_closes, self.per_address, self._budget)
        poller.after_rounds(self._shared.splice_pipe.yield_cpu)
        self._connections = self._shared.connections
        self._timeouts = timeouts

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    @property
    def send_mode(self) -> str:
        """How small frames are sent, as text for a user."""
        if not self._outbox:
            return "not compiled"
        return "compiled, sent together" if self._outbox.batched else "compiled, sent one by one"

    @property
    def held_bytes(self) -> int:
        """The number of bytes that sessions hold, that backlogs contain, or that were read ahead."""
        return sum(connection.held_bytes for connection in self._connections.values())

    def add(
        self, client: EndpointSocket, upstream: EndpointSocket, session: Session, counters: ListenerCounters
    ) -> None:
        """Takes over two sockets, and closes them when the connection ends.

        Args:
            client: the client's socket.
            upstream: the broker's socket.
            session: the connection's session.
            counters: counts the connection's bytes and its end.

        Raises:
            OSError: the poller cannot watch a socket. The caller still owns both sockets.
        """
        now = trio.current_time()
        connection = Connection(self._shared, client, upstream, session, counters, now)
        if self._timeouts.authentication:
            connection.authentication_due = now + self._timeouts.authentication
        handler: Connection | FastPath = connection
        if FAST_PATH and self._outbox:
            handler = FAST_PATH(connection, self._outbox)
        self.poller.watch(connection.client.fd, connection.client.interest, handler.client_ready)
        try:
            self.poller.watch(connection.upstream.fd, connection.upstream.interest, handler.upstream_ready)
        except OSError:
            self.poller.forget(connection.client.fd)
            raise
        self._connections[session.origin.number] = connection
        connection.receive_rest()

    def evict_held_request(self, connections: Iterable[int]) -> None:
        """Makes each of these connections give up its incomplete request, or its long requests if it has none.

        Requests of other connections need the space.
        """
        for number in connections:
            if (connection := self._connections.get(number)) is not None:
                connection.evict_held_request(CloseReason.REQUEST_TOO_LONG)

    async def drain(self, seconds: float) -> None:
        """Ends all connections in steps. Returns when no connection is left, or after `seconds`."""
        await drain(self._connections, self._delivered_closes, seconds)

    async def run(self, supervisor: Supervisor | None = None) -> None:
        """Closes connections without traffic until cancelled, then closes all connections."""
        try:
            await (supervisor or Supervisor()).keep_running(Task.CONNECTIONS, self._sweep_forever)
        finally:
            for connection in [*self._connections.values()]:
                connection.finish(connection.close_reason or CloseReason.SHUTDOWN)
            self._delivered_closes.close_all()
            self._shared.splice_pipe.close()

    async def _sweep_forever(self) -> None:
        while True:
            await trio.sleep(SWEEP_SECONDS)
            left = [*self._connections]
            while left:
                self._sweep(left, trio.current_time())
                await trio.lowlevel.checkpoint()

    def _sweep(self, left: list[int], now: float) -> None:
        # This loop is not in `_sweep_forever`, because a local variable there would keep the last connection in memory.
        stalled = self._timeouts.stalled
        for connection in next_of(self._connections, left):
            if connection.close_reason:
                if now > connection.flush_deadline:
                    connection.finish(connection.close_reason)
            elif reason := connection.overdue(now, self._timeouts):
                connection.finish(reason)
            elif now > connection.authentication_due and self._lacks_authentication(connection, now):
                connection.finish(CloseReason.AUTHENTICATION_TIMEOUT)
            else:
                self._keep_to_budget(connection)
                if stalled and connection.is_too_slow(now, stalled):
                    connection.evict_held_request(CloseReason.STALLED)

    def _lacks_authentication(self, connection: Connection, now: float) -> bool:
        """Returns whether the broker requires SASL and has not admitted the client.

        If the result is False, the function also sets the time of the connection's next check.
        """
        if connection.session.is_admitted:
            connection.authentication_due = math.inf
            return False
        if connection.session.dispatcher.requires_sasl:
            return True
        # The sidecar may learn later that the broker requires SASL.
        connection.authentication_due = now + self._timeouts.authentication
        return False

    def _keep_to_budget(self, connection: Connection) -> None:
        """Counts the bytes that a connection holds, and applies the budget. The fast path does neither."""
        if connection.counted_bytes or connection.session.kept_bytes:
            connection.count_held()
            if self._budget.exceeded and connection.counted_bytes > FREE_BYTES:
                connection.keep_to_budget()
