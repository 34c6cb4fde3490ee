"""The section `own_connection`: the sidecar's own credentials at the broker.

Docstrings of the sections and their fields are published in docs/configuration.md.
"""

import ipaddress
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from group_sidecar.proxy.config.paths import ConfiguredPath
from group_sidecar.proxy.config.sections import ConfiguredAddress, Section, require_port
from group_sidecar.proxy.runtime.addresses import Address

OAUTHBEARER = "OAUTHBEARER"

_PASSWORD_FIELDS = ("username", "password", "password_file")
_ENDPOINT_FIELDS = ("client_id", "client_secret", "client_secret_file", "scope", "ca_file")
_TOKEN_FIELDS = ("token_file", "token_endpoint_url", *_ENDPOINT_FIELDS)

_Text = Annotated[str, Field(min_length=1)]


class Sasl(Section):
    """The user as which the sidecar authenticates at the broker. The names of mechanisms are Kafka's. Without this
    section, the sidecar does not authenticate.
    """

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    """The SASL mechanism. The broker's listener must have enabled it. PLAIN and SCRAM need a `username` and a password.
    OAUTHBEARER needs a `token_file`, or a `token_endpoint_url` with a `client_id` and a client secret."""
    username: _Text | None = None
    """The user's name, for PLAIN and SCRAM."""
    password: SecretStr | None = None
    """The user's password, for PLAIN and SCRAM. It is never logged. Exactly one of `password` and `password_file` is
    required."""
    password_file: ConfiguredPath | None = None
    """In place of `password`: a file that contains the password. The file is read at each authentication, so the
    password may change while the sidecar runs."""
    token_file: ConfiguredPath | None = None
    """For OAUTHBEARER: a file that contains a bearer token, which another program keeps fresh. The file is read at each
    authentication."""
    token_endpoint_url: str | None = None
    """For OAUTHBEARER, in place of `token_file`: the URL of the token endpoint that issues tokens for client
    credentials (Kafka's `sasl.oauthbearer.token.endpoint.url`, KIP-768). It begins with `https://`. `http://` is
    allowed for a loopback address only. A token is used again until 80 % of its lifetime (`expires_in`) has passed. If
    the endpoint fails then, the token is used until it expires. The proxies of the environment are not used."""
    client_id: _Text | None = None
    """The client id for the token endpoint (Kafka's `sasl.oauthbearer.client.credentials.client.id`)."""
    client_secret: SecretStr | None = None
    """The client secret for the token endpoint (Kafka's `sasl.oauthbearer.client.credentials.client.secret`). It is
    never logged. Id and secret are sent by HTTP Basic without URL encoding, which is the default of Kafka's clients.
    Exactly one of `client_secret` and `client_secret_file` is required."""
    client_secret_file: ConfiguredPath | None = None
    """In place of `client_secret`: a file that contains the client secret. The file is read for each request to the
    token endpoint."""
    scope: _Text | None = None
    """The scope that the token endpoint is asked for (Kafka's `sasl.oauthbearer.scope`)."""
    ca_file: ConfiguredPath | None = None
    """Certificates of the authorities that are trusted for the token endpoint, in PEM. Default: those of the system."""

    @field_validator("token_endpoint_url")
    @classmethod
    def _is_confidential(cls, url: str | None) -> str | None:
        if url is not None:
            _require_endpoint(url)
        return url

    @model_validator(mode="after")
    def _fits_its_mechanism(self) -> Self:
        if self.mechanism == OAUTHBEARER:
            self._refuse(_PASSWORD_FIELDS, "is for PLAIN and SCRAM, and the mechanism is OAUTHBEARER")
            self._require_token_source()
            return self
        self._refuse(_TOKEN_FIELDS, f"is for OAUTHBEARER, and the mechanism is {self.mechanism}")
        if self.username is None:
            raise ValueError(f"username: is required for {self.mechanism}")
        self._require_one_of("password", "password_file")
        return self

    def _require_token_source(self) -> None:
        self._require_one_of("token_file", "token_endpoint_url")
        if self.token_endpoint_url is None:
            self._refuse(_ENDPOINT_FIELDS, "needs a token_endpoint_url")
            return
        if self.client_id is None:
            raise ValueError("client_id: is required with token_endpoint_url")
        self._require_one_of("client_secret", "client_secret_file")

    def _require_one_of(self, one: str, other: str) -> None:
        if (getattr(self, one) is None) == (getattr(self, other) is None):
            raise ValueError(f"needs either {one} or {other}")

    def _refuse(self, names: tuple[str, ...], reason: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: {reason}")


def _require_endpoint(text: str) -> None:
    """Raises ValueError unless the text is an https URL, or an http URL of a loopback address."""
    try:
        url = urlsplit(text)
        is_url = text.isascii() and text.isprintable() and " " not in text
        is_url = is_url and url.scheme in ("https", "http") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise ValueError("must be a URL, for instance https://issuer.example/oauth2/token")
    if url.scheme == "http" and not _is_loopback(url.hostname or ""):
        raise ValueError("must begin with https://, because the client secret would cross the network unencrypted")
    if "@" in url.netloc or url.fragment:
        raise ValueError("must have no user, password or fragment")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Tls(Section):
    """TLS from the sidecar to the broker's listener, which must present a trusted certificate. Without this section,
    the connection is not encrypted. All files are PEM. They are read at each connection, so they may change while the
    sidecar runs.
    """

    ca_file: ConfiguredPath | None = None
    """Certificates of the trusted authorities. Default: those of the system."""
    certificate_file: ConfiguredPath | None = None
    """The sidecar's own certificate with its chain, for listeners that request one (`ssl.client.auth`)."""
    key_file: ConfiguredPath | None = None
    """The unencrypted private key of `certificate_file`. Default: the key is in `certificate_file`."""
    server_name: str | None = Field(default=None, min_length=1)
    """The name that the broker's certificate must contain. Default: the host that the sidecar connects to."""
    verify_hostname: bool = True
    """Whether the broker's certificate must contain `server_name`. Set to false only if the certificates have no names.
    Then any certificate of a trusted authority is accepted."""

    @model_validator(mode="after")
    def _has_no_key_alone(self) -> Self:
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("key_file: needs a certificate_file")
        return self


class OwnConnection(Section):
    """The connections on which the sidecar itself sends requests to the broker. They do not affect clients'
    connections.
    """

    address: ConfiguredAddress | None = None
    """HOST:PORT of another listener of the same broker, for instance the listener between brokers. Default: `upstream`.
    Not allowed in a gateway, which has many brokers and knows them by the listener that clients use."""
    sasl: Sasl | None = None
    tls: Tls | None = None

    @field_validator("address")
    @classmethod
    def _has_a_port(cls, address: Address | None) -> Address | None:
        return None if address is None else require_port(address)
