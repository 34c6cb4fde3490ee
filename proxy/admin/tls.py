"""TLS of the admin port.

The module loads the server's certificate from its files, and remembers whether a client has presented a certificate.

ASGI does not pass the client's certificate to an application. The handshake and the connection's requests run in the
same task, so a context variable carries the TLS connection to the application.
"""

import ssl
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from group_sidecar.proxy.config.sections import AdminAccess
from group_sidecar.proxy.runtime.logging import LogThrottle, log
from group_sidecar.proxy.tls.contexts import file_fault

PROTOCOL = "http/1.1"

_connection: ContextVar[ssl.SSLObject | None] = ContextVar("admin_connection", default=None)


def has_client_certificate() -> bool:
    """Whether the client of this task's connection has presented a trusted certificate."""
    connection = _connection.get()
    return connection is not None and bool(connection.getpeercert())


class ServerTls(ssl.SSLContext):
    """A TLS context that checks for each connection whether the certificate files have changed, and reloads them.

    If the files are unusable, the context logs a warning and keeps the last good certificate. This happens even in a
    regular replacement, because a certificate and its key are seldom replaced at the same moment.

    Raises:
        OSError: the files cannot be used at the start. ssl.SSLError is a subclass.
    """

    _settings: AdminAccess
    _log_throttle: LogThrottle
    _current: ssl.SSLContext
    _stamps: list[tuple[int, int, int]]

    def __new__(cls, settings: AdminAccess) -> "ServerTls":
        """Creates the context. The base class takes the protocol only in `__new__`."""
        self = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        self._settings = settings
        self._log_throttle = LogThrottle()
        self._stamps = self._file_stamps()
        self._current = _context(settings)
        return self

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """See SSLContext."""
        self._reload_if_changed()
        return self._current.wrap_bio(*args, **kwargs)

    def _reload_if_changed(self) -> None:
        try:
            stamps = self._file_stamps()
            if stamps != self._stamps:
                self._current, self._stamps = _context(self._settings), stamps
        except OSError as error:
            if times := self._log_throttle.due("tls"):
                log.warning("admin certificate not read again", cause=file_fault(error), times=times)

    def _file_stamps(self) -> list[tuple[int, int, int]]:
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
    # Without a password, OpenSSL would ask for one at the terminal.
    context.load_cert_chain(settings.certificate_file, settings.key_file, password="")
    context.verify_mode = ssl.CERT_OPTIONAL if settings.client_ca_file else ssl.CERT_NONE
    context.sslobject_class = _Connection
    return context


def _files(settings: AdminAccess) -> list[Path]:
    return [f for f in (settings.certificate_file, settings.key_file, settings.client_ca_file) if f is not None]
