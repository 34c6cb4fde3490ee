"""The sections of the configuration that describe listeners: addresses, TLS and the PROXY protocol.

Docstrings of the sections and their fields are published in docs/configuration.md.
"""

import re
import ssl
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from group_sidecar.policies.patterns import RegularExpression
from group_sidecar.proxy.config.own_connection import Tls
from group_sidecar.proxy.config.paths import ConfiguredPath
from group_sidecar.proxy.config.sections import ConfiguredAddress, Section, require_port
from group_sidecar.proxy.runtime.addresses import Address

ListenerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


def _server_name(name: str) -> str:
    """Returns a host name, or `*.` and a host name, in lower case. Raises ValueError if it is neither."""
    if not _SERVER_NAME.fullmatch(name):
        raise ValueError("must be a host name in ASCII, or *. and a host name, for instance *.b.example")
    return name.lower()


def _cipher_list(ciphers: str) -> str:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(ciphers)
    except (ssl.SSLError, ValueError):
        raise ValueError("OpenSSL knows no cipher of this list") from None
    return ciphers


_SERVER_NAME = re.compile(r"(?=.{1,255}$)(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
"""A name that a client may ask for (RFC 6066, 3: ASCII without a dot at its end), or a wildcard for such names."""
ServerName = Annotated[str, AfterValidator(_server_name)]
CipherList = Annotated[str, AfterValidator(_cipher_list)]


class NamedCertificate(Section):
    """A further certificate of a listener, for clients that ask for one of its names (SNI). Clients that ask for no
    name, or for an unknown one, get the listener's own certificate.
    """

    server_names: Annotated[tuple[ServerName, ...], Field(min_length=1)]
    """Host names, in upper or lower case. `*.b.example` stands for all names with one more label, such as
    `a.b.example`. A whole name takes precedence."""
    certificate_file: ConfiguredPath
    """The certificate with its chain. Its names should include `server_names`."""
    key_file: ConfiguredPath | None = None
    """The unencrypted private key of `certificate_file`. Default: the key is in `certificate_file`."""


class ListenerTls(Section):
    """TLS from clients to the sidecar, which terminates it. Without this section, clients connect without TLS. If a
    client and the broker's listener use TLS, the sidecar then forwards the bytes without decrypting them. All files are
    PEM. The sidecar reads them again when they have changed. Open connections stay open.
    """

    certificate_file: ConfiguredPath
    """The listener's certificate with its chain. Its names must include the address that the broker advertises."""
    key_file: ConfiguredPath | None = None
    """The unencrypted private key of `certificate_file`. Default: the key is in `certificate_file`."""
    client_ca_file: ConfiguredPath | None = None
    """Certificates of the authorities that may sign clients' certificates."""
    client_auth: Literal["none", "requested", "required"] = "none"
    """Whether clients must present a certificate, as the broker's `ssl.client.auth`. `requested` and `required` need a
    `client_ca_file`."""
    min_version: Literal["TLSv1.2", "TLSv1.3"] = "TLSv1.2"
    """The oldest version of TLS that clients may use."""
    ciphers: CipherList = "ECDHE+AESGCM:ECDHE+CHACHA20"
    """The ciphers of TLS 1.2 that clients may use, in OpenSSL's notation (`openssl ciphers -v LIST`). For TLS 1.3,
    OpenSSL's default ciphers apply. The default has the ciphers with forward secrecy and authenticated encryption."""
    certificates: tuple[NamedCertificate, ...] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.client_auth != "none") != (self.client_ca_file is not None):
            raise ValueError("client_auth and client_ca_file need each other")
        names = [name for certificate in self.certificates for name in certificate.server_names]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"certificates: the server name {twice} is there twice")
        return self

    def with_certificate_of(self, named: NamedCertificate) -> "ListenerTls":
        """Returns these settings with the files of a further certificate, for clients that ask for one of its names."""
        files = {"certificate_file": named.certificate_file, "key_file": named.key_file}
        return self.model_copy(update={**files, "certificates": ()})


class UpstreamIdentity(Section):
    """Clients for which the sidecar presents a separate certificate to the broker. The first entry that matches a
    client applies. For clients that match no entry, the sidecar uses the certificate of `upstream_tls`.
    """

    subject: RegularExpression
    """A regular expression that must match the whole subject of the client's certificate. The subject has the form of
    the broker's ACLs after `User:`, for instance `CN=alice,OU=billing,O=Example`."""
    certificate_file: ConfiguredPath
    """The certificate with its chain that the sidecar presents to the broker in place of these clients."""
    key_file: ConfiguredPath | None = None
    """The unencrypted private key of `certificate_file`. Default: the key is in `certificate_file`."""

    @field_validator("subject")
    @classmethod
    def _is_a_subject(cls, subject: str) -> str:
        if subject.startswith("User:"):
            raise ValueError("must be the subject alone, without User:")
        return subject


class UpstreamTls(Tls):
    """TLS from the sidecar to the broker, for clients' connections. Without this section, the sidecar connects to the
    broker without TLS. The broker's certificate must be trusted. All files are PEM. They are read again when they have
    changed.
    """

    identities: tuple[UpstreamIdentity, ...] = ()

    def with_certificate_of(self, identity: UpstreamIdentity) -> Tls:
        """Returns these settings with the certificate that the sidecar presents for the clients of an identity."""
        return self.model_copy(update={"certificate_file": identity.certificate_file, "key_file": identity.key_file})


class Listener(Section):
    """One address at which clients connect, with the listener of the broker that it leads to. All listeners lead to the
    same broker.
    """

    name: ListenerName
    """The name of the listener in metrics and logs, for instance the broker's own name for it (`INTERNAL`)."""
    listen: ConfiguredAddress
    """HOST:PORT on which the sidecar accepts clients. With port 0, the system chooses a free port."""
    upstream: ConfiguredAddress
    """HOST:PORT of the broker's listener."""
    tls: ListenerTls | None = None
    upstream_tls: UpstreamTls | None = None
    proxy_protocol: bool = False
    """Whether each connection begins with a PROXY header (HAProxy's protocol, version 1 or 2), which names the client's
    host. Set to true behind a load balancer that sends the header. Connections without the header are closed."""

    @field_validator("upstream")
    @classmethod
    def _has_a_port(cls, upstream: Address) -> Address:
        return require_port(upstream)

    @model_validator(mode="after")
    def _knows_the_clients_with_identities(self) -> Self:
        identities = self.upstream_tls is not None and self.upstream_tls.identities
        if identities and (self.tls is None or self.tls.client_auth == "none"):
            raise ValueError("upstream_tls.identities: needs tls.client_auth, so that clients have certificates")
        return self


def reject_conflicts(listeners: tuple[Listener, ...]) -> None:
    """Raises ValueError if two listeners have the same name or address, or if one leads to another."""
    for name in ("name", "listen"):
        values = [getattr(listener, name) for listener in listeners]
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None and not (isinstance(twice, Address) and twice.port == 0):
            raise ValueError(f"two listeners have the {name} {twice}")
    addresses = {listener.listen: listener.name for listener in listeners}
    for listener in listeners:
        if listener.upstream in addresses:
            raise ValueError(f"{listener.name}: upstream is the address of the listener {addresses[listener.upstream]}")
