"""TLS of the admin port.

Owns: the server's certificate as it is in its files now, and whether a client has shown one. Must not know: HTTP.

ASGI does not tell an application of its client's certificate. But the handshake is done in the task of the connection,
and its requests are answered in the same task: what a context variable was set to then is theirs too.
"""

import ssl
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from group_sidecar.proxy.logs import Recurring, log
from group_sidecar.proxy.sections import AdminAccess

PROTOCOL = "http/1.1"

_connection: ContextVar[ssl.SSLObject | None] = ContextVar("admin_connection", default=None)


def is_certified() -> bool:
    """Whether the client of the connection that this task belongs to has shown a certificate that is trusted."""
    connection = _connection.get()
    return connection is not None and bool(connection.getpeercert())


class ServerTls(ssl.SSLContext):
    """The context of each connection as the files say when it comes in.

    Where they cannot be used any more, the log says so, and the last good one stays: a certificate and its key are
    seldom replaced at the same moment.

    Raises:
        OSError: the files cannot be used at the start; ssl.SSLError is one.
    """

    _settings: AdminAccess
    _recurring: Recurring
    _current: ssl.SSLContext
    _stamps: list[tuple[int, int, int]]

    def __new__(cls, settings: AdminAccess) -> "ServerTls":
        """As the base class wants it: only there the protocol can be given."""
        self = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        self._settings = settings
        self._recurring = Recurring()
        self._stamps = self._stamped()
        self._current = _context(settings)
        return self

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """See SSLContext."""
        self._read_again()
        return self._current.wrap_bio(*args, **kwargs)

    def _read_again(self) -> None:
        try:
            stamps = self._stamped()
            if stamps != self._stamps:
                self._current, self._stamps = _context(self._settings), stamps
        except OSError as error:
            if times := self._recurring.due("tls"):
                log.warning("admin certificate not read again", cause=reason(error), times=times)

    def _stamped(self) -> list[tuple[int, int, int]]:
        found = [file.stat() for file in _files(self._settings)]
        return [(stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in found]


class _Connection(ssl.SSLObject):
    def do_handshake(self) -> None:
        _connection.set(self)
        super().do_handshake()


def _context(settings: AdminAccess) -> ssl.SSLContext:
    assert settings.certificate_file is not None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=settings.client_ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([PROTOCOL])
    # An empty password: asked for one, OpenSSL would ask the terminal.
    context.load_cert_chain(settings.certificate_file, settings.key_file, password="")
    context.verify_mode = ssl.CERT_OPTIONAL if settings.client_ca_file else ssl.CERT_NONE
    context.sslobject_class = _Connection
    return context


def _files(settings: AdminAccess) -> list[Path]:
    return [f for f in (settings.certificate_file, settings.key_file, settings.client_ca_file) if f is not None]


def reason(error: OSError) -> str:
    """Why files cannot be used, in a few words; OpenSSL's own are in capitals."""
    said: str | None = getattr(error, "reason", None) or error.strerror
    return (said or str(error)).replace("_", " ").lower()
