"""The certificates of one listener, and which of them a client gets.

Each certificate has a TLS context of its own, as in `broker_certificates`. A context has its own sessions, so a client
never resumes a session that began under another certificate. `tls.reloading_contexts` reads changed files again.
"""

import ssl
from collections.abc import Mapping
from functools import partial
from typing import TypeVar

from group_sidecar.proxy.config.listener_sections import ListenerTls
from group_sidecar.proxy.tls.reloading_contexts import (
    ReloadingContext,
    earliest_expiry,
    listener_context,
    listener_files,
)

_Certificate = TypeVar("_Certificate")


def certificate_for(
    server_name: str | None, by_name: Mapping[str, _Certificate], default: _Certificate
) -> _Certificate:
    """Returns the certificate for a client that asks for a name.

    Args:
        server_name: the name in lower case; None if the client asks for none.
        by_name: the certificates by their names in lower case, among them wildcards such as `*.b.example`.
        default: the certificate for all other names.
    """
    if server_name is None:
        return default
    wildcard = f"*.{server_name.partition('.')[2]}"
    return by_name.get(server_name) or by_name.get(wildcard) or default


class ListenerCertificates:
    """The certificates of one listener.

    Args:
        name: the name of the listener.
        settings: the settings of TLS with clients.

    Raises:
        UnusableFileError: a file of the settings cannot be used.
    """

    def __init__(self, name: str, settings: ListenerTls) -> None:
        self._default = _context(f"{name}: tls", settings)
        self._by_name: dict[str, ReloadingContext] = {}
        self._contexts = [self._default]
        for index, named in enumerate(settings.certificates):
            context = _context(f"{name}: tls.certificates.{index}", settings.with_certificate_of(named))
            self._by_name |= dict.fromkeys(named.server_names, context)
            self._contexts.append(context)

    def choose(self, server_name: str | None) -> ssl.SSLContext:
        """Returns the context for a client.

        `server_name` is the name in the client's SNI, or None. Without a name, the result is the default context.
        """
        return certificate_for(server_name, self._by_name, self._default).current()

    def expire_at(self) -> float | None:
        """Returns when the first certificate expires, in seconds since the epoch; None if no expiry is known."""
        return earliest_expiry(self._contexts)


def _context(name: str, settings: ListenerTls) -> ReloadingContext:
    make = partial(listener_context, settings)
    return ReloadingContext(name, listener_files(settings), make, settings.certificate_file)
