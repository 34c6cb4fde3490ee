"""The certificates under which one listener connects to the broker, and the choice between them.

The TLS of a client ends at the sidecar, so the broker never sees the client's certificate. `upstream_tls.identities`
maps the certificate's subject to a certificate that the broker knows. Each of these certificates has a TLS context of
its own. A TLS session belongs to a context, so a connection never resumes the session of another certificate. Otherwise
the broker could take a client for another user.
"""

import socket
import ssl
from functools import partial
from typing import NamedTuple

from group_sidecar.policies.patterns import matcher
from group_sidecar.proxy.config.listener_sections import UpstreamTls
from group_sidecar.proxy.config.own_connection import Tls
from group_sidecar.proxy.dataplane.tls_endpoint import TlsState
from group_sidecar.proxy.tls.handshake import handshake
from group_sidecar.proxy.tls.reloading_contexts import (
    ReloadingContext,
    earliest_expiry,
    upstream_context,
    upstream_files,
)


class BrokerTls(NamedTuple):
    """TLS of one connection to a broker.

    Attributes:
        state: the state after the handshake.
        certificate: the number of the sidecar's certificate. A certificate that was read again has another number.
    """

    state: TlsState
    certificate: int


class BrokerCertificate:
    """One certificate of the sidecar, or none, with the TLS sessions that began under the certificate.

    Args:
        name: names the certificate in log lines.
        settings: the settings of TLS to the broker.

    Attributes:
        context: the TLS context.

    Raises:
        UnusableFileError: a file of the settings cannot be used.
    """

    def __init__(self, name: str, settings: Tls) -> None:
        make = partial(upstream_context, settings)
        self.context = ReloadingContext(name, upstream_files(settings), make, settings.certificate_file)
        self._server_name = settings.server_name
        self._last_upstreams: dict[str, ssl.SSLObject] = {}
        """The last connection to each broker, whose session may be resumed."""

    async def handshake(self, upstream: socket.socket, host: str, client_host: str) -> BrokerTls:
        """Does a TLS handshake with the certificate that the files contain now.

        Args:
            upstream: a connected non-blocking socket. The caller keeps the socket.
            host: the broker's host. If the settings have no `server_name`, the broker's certificate must contain this
                host.
            client_host: the host of the client for which the sidecar connects.

        Raises:
            HandshakeError: the handshake failed.
        """
        context, name, load_number = self.context.current(), self._server_name or host, self.context.load_number
        last = self._last_upstreams.get(name)
        session = last.session if last is not None and last.context is context else None  # Only of this context.
        state = await handshake(upstream, context, client_host, server_name=name, session=session)
        self._last_upstreams[name] = state.tls
        return BrokerTls(state, load_number)


class BrokerCertificates:
    """The certificates of one listener, and which of them is used for which client.

    Args:
        name: the name of the listener.
        settings: the settings of TLS to the broker.

    Raises:
        UnusableFileError: a file of the settings cannot be used.
    """

    def __init__(self, name: str, settings: UpstreamTls) -> None:
        self._own = BrokerCertificate(f"{name}: upstream_tls", settings)
        self._identities = [
            (
                matcher(identity.subject),
                BrokerCertificate(f"{name}: upstream_tls.identities.{index}", settings.with_certificate_of(identity)),
            )
            for index, identity in enumerate(settings.identities)
        ]

    def choose(self, subject: str | None) -> BrokerCertificate:
        """Returns the sidecar's certificate for a client.

        `subject`: the subject of the client's certificate, or None.
        """
        if subject is not None:
            for matches, certificate in self._identities:
                if matches(subject):
                    return certificate
        return self._own

    def expire_at(self) -> float | None:
        """Returns when the first certificate expires, in seconds since the epoch; None if no expiry is known."""
        return earliest_expiry([self._own.context, *(certificate.context for _, certificate in self._identities)])
