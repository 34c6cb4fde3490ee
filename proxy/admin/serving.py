"""The listening socket of the admin port.

Owns: `serve_admin`. Must not know: what is served.
"""

import errno
import logging
import socket
from functools import partial
from ssl import SSLContext
from typing import cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from hypercorn.typing import ASGIFramework
from starlette.types import ASGIApp

from group_sidecar.proxy.admin.tls import ServerTls

STALLED_READER_MS = 10_000
"""A client that takes nothing for so long is cut off, so that it can neither hold a reply's memory nor a shutdown."""

_log = logging.getLogger("group_sidecar.admin.http")


class _Config(Config):
    """Hypercorn's settings, with a TLS context of ours."""

    def __init__(self, tls: ServerTls | None) -> None:
        self._tls = tls

    @property
    def ssl_enabled(self) -> bool:
        return self._tls is not None

    def create_ssl_context(self) -> SSLContext | None:
        return self._tls


async def serve_admin(
    app: ASGIApp,
    host: str,
    port: int,
    tls: ServerTls | None = None,
    *,
    task_status: "trio.TaskStatus[tuple[str, int]]" = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves `app` over HTTP until cancelled, over HTTPS alone with `tls`. Reports the bound (host, port); port 0 picks
    a free one.

    Raises:
        OSError: the address cannot be had; the message names it.
    """
    listener = await _listen(host, port)
    bound = listener.getsockname()[:2]
    config = _Config(tls)
    config.bind = [f"fd://{listener.detach()}"]  # Hypercorn owns it from here.
    config.accesslog = None
    config.errorlog = _quiet_log()
    config.include_server_header = False
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve, cast(ASGIFramework, app), config, mode="asgi"))
        task_status.started(bound)


async def _listen(host: str, port: int) -> socket.socket:
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Accepted sockets inherit it. Hypercorn shields its sends from cancellation.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_READER_MS)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(error.errno or errno.EADDRNOTAVAIL, f"admin port {host}:{port}: {reason}") from error
    return listener


def _quiet_log() -> logging.Logger:
    """Where Hypercorn's warnings and errors go. Its lines about starting up are left out: the proxy has its own."""
    _log.setLevel(logging.WARNING)
    return _log
