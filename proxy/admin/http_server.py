"""The connections of the admin port.

`serve_admin` accepts connections, limits their number, performs the TLS handshake, and isolates failures of
connections. `http_connection` implements HTTP.
"""

import errno
import math
import socket
from functools import partial

import trio
from starlette.types import ASGIApp

from group_sidecar.proxy.admin.http_connection import HttpConnection
from group_sidecar.proxy.runtime.log_throttle import LogThrottle
from group_sidecar.proxy.runtime.logging import log
from group_sidecar.proxy.runtime.supervision import Supervisor, Task
from group_sidecar.proxy.tls.reloading_contexts import ReloadingContext

MAX_CONNECTIONS = 100
"""Maximum number of connections: some Prometheus servers, browsers with six connections each, and command lines."""
HANDSHAKE_SECONDS = 10.0
STALLED_READER_MS = 10_000
"""Milliseconds that a client may take to read the bytes of one send. After that, the sidecar closes the connection.
Otherwise a client could keep a reply in memory, or delay a shutdown."""
EXHAUSTED_SECONDS = 0.2
"""Seconds of pause after accept(2) has failed for lack of file descriptors or memory."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
_BROKEN = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK)
"""Errors of accept(2) after which the listening socket is unusable."""
_CONNECTION_ENDED = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError)


async def serve_admin(
    app: ASGIApp,
    listening: socket.socket,
    tls: ReloadingContext | None = None,
    supervisor: Supervisor | None = None,
    *,
    task_status: "trio.TaskStatus[tuple[str, int]]" = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves `app` on a listening socket until cancelled: over HTTP, or only over HTTPS if `tls` is given.

    The function reports the bound (host, port) through `task_status`. No exception leaves this function. `supervisor`
    counts and logs each exception, and restarts a failed accept loop.
    """
    supervisor = supervisor or Supervisor()
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_READER_MS)  # Accepted sockets inherit it.
    with trio.socket.from_stdlib_socket(listening) as listener:
        task_status.started(listener.getsockname()[:2])
        await supervisor.keep_running(Task.ADMIN, _AdminListener(app, listener, tls, supervisor).run)


class _AdminListener:
    """The connections of one listening socket."""

    def __init__(
        self, app: ASGIApp, listener: trio.socket.SocketType, tls: ReloadingContext | None, supervisor: Supervisor
    ) -> None:
        self._app = app
        self._listener = listener
        self._tls = tls
        self._failed = partial(supervisor.failed, Task.ADMIN)
        self._guard = partial(supervisor.guard, Task.ADMIN)
        self._log_throttle = LogThrottle()
        self._connections: dict[trio.CancelScope, HttpConnection | float] = {}
        """The connections by cancel scope. Until the TLS handshake is complete, the value is the time of accept."""

    async def run(self) -> None:
        """Accepts connections until cancelled. Raises OSError if the listening socket is unusable."""
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    accepted, address = await self._listener.accept()
                except OSError as error:
                    if error.errno in _BROKEN:
                        raise
                    if error.errno in _EXHAUSTED:
                        if times := self._log_throttle.due("exhausted"):
                            log.warning("no admin connection can be accepted", cause=error.strerror, times=times)
                        await trio.sleep(EXHAUSTED_SECONDS)
                    continue  # Other errors mean that the client disconnected before accept.
                try:
                    self._admit(accepted, address[:2], nursery)
                except BaseException:
                    accepted.close()
                    raise

    def _admit(self, accepted: trio.socket.SocketType, client: tuple[str, int], nursery: trio.Nursery) -> None:
        if len(self._connections) >= MAX_CONNECTIONS and not self._make_room():
            accepted.close()
            return
        scope = trio.CancelScope()
        self._connections[scope] = trio.current_time()
        nursery.start_soon(self._serve, accepted, client, scope)

    def _make_room(self) -> bool:
        """Closes the connection that has waited for its client for longest. Returns False if no connection waits."""
        if times := self._log_throttle.due("full"):
            log.warning("too many admin connections", most=MAX_CONNECTIONS, times=times)
        since = {s: each if isinstance(each, float) else each.waiting_since for s, each in self._connections.items()}
        longest = min(since, key=since.__getitem__)
        if since[longest] == math.inf:
            return False
        longest.cancel()
        del self._connections[longest]
        return True

    async def _serve(self, accepted: trio.socket.SocketType, client: tuple[str, int], scope: trio.CancelScope) -> None:
        """Serves one connection until its end."""
        try:
            with self._guard(), scope, accepted:
                await self._serve_http(accepted, client, scope)
        finally:
            self._connections.pop(scope, None)

    async def _serve_http(
        self, accepted: trio.socket.SocketType, client: tuple[str, int], scope: trio.CancelScope
    ) -> None:
        try:
            stream: trio.abc.Stream = trio.SocketStream(accepted)
            server = accepted.getsockname()[:2]
            if self._tls is not None:
                context = self._tls.current()
                secure = trio.SSLStream(trio.SocketStream(accepted), context, server_side=True, https_compatible=True)
                with trio.fail_after(HANDSHAKE_SECONDS):
                    await secure.do_handshake()
                stream = secure
            connection = self._connections[scope] = HttpConnection(
                self._app,
                stream,
                client=client,
                server=server,
                scheme="http" if self._tls is None else "https",
                stalled_seconds=STALLED_READER_MS / 1000,
                failed=self._failed,
            )
            await connection.run()
            if self._tls is not None:
                with trio.move_on_after(1.0):
                    await stream.aclose()
        except _CONNECTION_ENDED:
            return
