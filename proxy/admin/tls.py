"""TLS of the admin port.

Clients may present a certificate, and the module remembers whether a client has done so.

ASGI does not pass the client's certificate to an application. The handshake and the connection's requests run in the
same task, so a context variable carries the TLS connection to the application.
"""

import ssl
from contextvars import ContextVar
from functools import partial

from group_sidecar.proxy.config.listener_sections import ListenerTls
from group_sidecar.proxy.config.sections import AdminAccess
from group_sidecar.proxy.tls.reloading_contexts import ReloadingContext, listener_context, listener_files

PROTOCOL = "http/1.1"

_connection: ContextVar[ssl.SSLObject | None] = ContextVar("admin_connection", default=None)


def has_client_certificate() -> bool:
    """Whether the client of this task's connection has presented a trusted certificate."""
    connection = _connection.get()
    return connection is not None and bool(connection.getpeercert())


def admin_context(settings: AdminAccess) -> ReloadingContext:
    """Returns the TLS context of the admin port. Raises UnusableFileError if a file cannot be used."""
    assert settings.certificate_file is not None
    tls = ListenerTls(
        certificate_file=settings.certificate_file,
        key_file=settings.key_file,
        client_ca_file=settings.client_ca_file,
        client_auth="requested" if settings.client_ca_file else "none",
    )
    return ReloadingContext("admin_access", listener_files(tls), partial(_context, tls))


class _Connection(ssl.SSLObject):
    def do_handshake(self) -> None:
        _connection.set(self)
        super().do_handshake()


def _context(tls: ListenerTls) -> ssl.SSLContext:
    context = listener_context(tls)
    context.set_alpn_protocols([PROTOCOL])
    context.sslobject_class = _Connection
    return context
