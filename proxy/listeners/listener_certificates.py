"""The certificates of one listener, and which of them a client gets.

Each certificate has a TLS context of its own, as in `broker_certificates`. A context has its own sessions, so a client
never resumes a session that began under another certificate.
"""

import ssl
from collections.abc import Mapping
from functools import partial
from itertools import cycle
from typing import TypeVar

from group_sidecar.metrics.listener_counters import ListenerCounters, TlsSide
from group_sidecar.proxy.config.listener_sections import ListenerTls
from group_sidecar.proxy.tls.certificates import EarliestExpiry
from group_sidecar.proxy.tls.contexts import ReloadingContext, listener_context, listener_files

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
        counters: gets the time at which the first of the certificates expires.

    Raises:
        UnusableFileError: a file of the settings cannot be used.
    """

    def __init__(self, name: str, settings: ListenerTls, counters: ListenerCounters) -> None:
        self._earliest_expiry = EarliestExpiry(counters, TlsSide.CLIENT)
        self._default = self._context(f"{name}: tls", settings)
        self._by_name: dict[str, ReloadingContext] = {}
        contexts = [self._default]
        for index, named in enumerate(settings.certificates):
            context = self._context(f"{name}: tls.certificates.{index}", settings.with_certificate_of(named))
            self._by_name |= dict.fromkeys(named.server_names, context)
            contexts.append(context)
        self._in_turn = cycle(contexts)

    def choose(self, server_name: str | None) -> ssl.SSLContext:
        """Returns the context for a client that asks for a name; None if it asks for none.

        It also looks at the files of one further certificate, so that the reported expiry is right for a certificate
        that was replaced and that no client asks for.
        """
        next(self._in_turn).current()
        return certificate_for(server_name, self._by_name, self._default).current()

    def _context(self, name: str, settings: ListenerTls) -> ReloadingContext:
        return ReloadingContext(name, listener_files(settings), partial(self._make, name, settings))

    def _make(self, name: str, settings: ListenerTls) -> ssl.SSLContext:
        context = listener_context(settings)
        self._earliest_expiry.note(name, settings.certificate_file)
        return context
