"""The sidecar's own credentials at a broker: TLS, and SASL with PLAIN, SCRAM or OAUTHBEARER.

`OwnCredentials` opens connections with these credentials. `tls_from`, `tls_with` and `Login` serve commands that take
their credentials from elsewhere. Each exception has one line of text. This module never handles credentials of clients.

Passwords, tokens and keys are read whenever they are needed, so that they may change while the sidecar runs. No log
line and no error contains a password, a token or a key. A worker thread reads files and derives keys, because trio's
thread also runs the data path.
"""

import math
import ssl
from contextlib import AbstractAsyncContextManager
from functools import partial

import trio
from scramp import ScramClient, ScramException

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.proxy.broker.added_versions import Versions
from group_sidecar.proxy.broker.bearer_tokens import (
    DUMMY_RESPONSE,
    BearerTokens,
    RefusedToken,
    SaslExchange,
    TokenFile,
    bearer_exchange,
)
from group_sidecar.proxy.broker.broker_errors import (
    AuthenticationFailed,
    BrokerClosed,
    BrokerError,
    TlsFailed,
    error_name,
    tls_reason,
)
from group_sidecar.proxy.broker.credential_files import CredentialUnavailable, secret_text
from group_sidecar.proxy.broker.kafka_client import DEFAULT_TIMEOUT, KafkaClient, Secure, connect
from group_sidecar.proxy.broker.token_endpoint import TokenEndpoint
from group_sidecar.proxy.config.own_connection import OAUTHBEARER, OwnConnection, Sasl, Tls
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.tls.reloading_contexts import UnusableFileError, upstream_context

_TLS, _SASL = "own_connection.tls", "own_connection.sasl"
_FRAMED_SINCE = 1
"""The SaslHandshake version from which tokens travel in SaslAuthenticate requests (KIP-152)."""


class OwnCredentials:
    """The sidecar's own credentials at one broker.

    Args:
        own: the settings.
    """

    def __init__(self, own: OwnConnection) -> None:
        self._tls = own.tls
        self._login = Login(own.sasl, _SASL) if own.sasl else None

    def connect(
        self, address: Address, timeout: float = DEFAULT_TIMEOUT, versions: Versions | None = None
    ) -> AbstractAsyncContextManager[KafkaClient]:
        """Opens a connection to a broker with these credentials.

        `timeout`, `versions` and exceptions are those of `kafka_client.connect`. A token endpoint has as much time to
        answer as the broker.
        """
        return connect(
            *address,
            timeout=timeout,
            secure=tls_from(self._tls, _TLS, timeout) if self._tls else None,
            authenticate=partial(self._login.authenticate, seconds=timeout) if self._login else None,
            versions=versions,
        )


# TLS.


def tls_from(settings: Tls, name: str, seconds: float) -> Secure:
    """Returns the function that puts TLS on a stream. The function reads the files of the settings at each call.

    Args:
        settings: the settings.
        name: the name of the settings in errors.
        seconds: how long the handshake may take.
    """

    async def secure(stream: trio.abc.Stream, address: Address) -> trio.abc.Stream:
        try:
            context = await trio.to_thread.run_sync(upstream_context, settings)
        except UnusableFileError as error:
            raise TlsFailed(f"{address} cannot be reached by TLS: {name}.{error}") from None
        return await tls_with(context, name, seconds, settings.server_name)(stream, address)

    return secure


def tls_with(context: ssl.SSLContext, name: str, seconds: float, server_name: str | None = None) -> Secure:
    """Returns the function that puts TLS on a stream.

    Args:
        context: the TLS context.
        name: the name of the settings in errors.
        seconds: how long the handshake may take.
        server_name: the name that the broker's certificate must contain, or None for the host of the address.
    """
    may_be_plain = f"the listener may be plain, and {name} is set"

    async def secure(stream: trio.abc.Stream, address: Address) -> trio.abc.Stream:
        secured = trio.SSLStream(stream, context, server_hostname=server_name or address.host, https_compatible=True)
        try:
            with trio.fail_after(seconds):
                await secured.do_handshake()
        except trio.TooSlowError:
            raise TlsFailed(f"{address} did not answer to TLS within {seconds:g} s: {may_be_plain}") from None
        except trio.BrokenResourceError as error:
            reason = tls_reason(error) or f"it closed the connection: {may_be_plain}"
            raise TlsFailed(f"{address} cannot be reached by TLS: {reason}") from None
        return secured

    return secure


# SASL.


class Login:
    """A user who authenticates at brokers by SASL.

    Args:
        sasl: the settings.
        name: the name of the settings in errors.
    """

    def __init__(self, sasl: Sasl, name: str) -> None:
        self._sasl = sasl
        self._name = name
        self._tokens = _bearer_tokens(sasl, name)

    async def authenticate(self, client: KafkaClient, seconds: float = DEFAULT_TIMEOUT) -> float:
        """Authenticates a session (KIP-43, KIP-152). Returns the session's lifetime in seconds (KIP-368), or infinity
        if the broker sets no lifetime.

        Args:
            client: the connection.
            seconds: how long a token endpoint may take.

        Raises:
            AuthenticationFailed, and the exceptions of `KafkaClient.ask`.
        """
        credential = _credential_label(self._sasl)
        try:
            framed = await _sasl_handshake(self._sasl, self._name, client)
            return await self._exchange(client, seconds, framed=framed)
        except BrokerClosed as error:  # Old brokers close the connection on a wrong password.
            raise AuthenticationFailed(f"{error}: it may have refused {credential}") from None
        except (ScramException, UnicodeDecodeError) as error:
            raise AuthenticationFailed(f"{client.address} cannot prove that it knows {credential}: {error}") from None
        except CredentialUnavailable as error:
            kind = "token" if self._tokens else "password"
            raise AuthenticationFailed(f"{client.address} is not sent a {kind}: {error}") from None
        except RefusedToken as error:
            raise AuthenticationFailed(f"{client.address} refuses {credential}: {error}") from None

    async def _exchange(self, client: KafkaClient, seconds: float, *, framed: bool) -> float:
        """Sends the credentials, and returns the session's lifetime in seconds. A bearer token that failed is not used
        again.
        """
        exchange = await self._credential_exchange(seconds)
        try:
            return await _exchange_tokens(self._sasl, client, exchange, framed=framed)
        except (BrokerError, RefusedToken):
            if self._tokens:
                self._tokens.refused()
            raise

    async def _credential_exchange(self, seconds: float) -> SaslExchange:
        """Returns the exchange of the mechanism with the current credentials. Raises CredentialUnavailable."""
        if self._tokens:
            return bearer_exchange(await self._tokens.token(seconds))
        return await trio.to_thread.run_sync(_password_exchange, self._sasl, self._name)


def _bearer_tokens(sasl: Sasl, name: str) -> BearerTokens | None:
    """Returns the source of tokens that the settings name, or None if their mechanism needs no tokens."""
    if sasl.mechanism != OAUTHBEARER:
        return None
    return TokenEndpoint(sasl, name) if sasl.token_file is None else TokenFile(sasl.token_file, name)


async def _sasl_handshake(sasl: Sasl, name: str, client: KafkaClient) -> bool:
    """Negotiates the mechanism. Returns whether tokens travel in SaslAuthenticate requests."""
    version = client.version_for(SaslHandshakeRequest)
    reply: SaslHandshakeResponse = await client.ask(SaslHandshakeRequest(mechanism=sasl.mechanism), version)
    if reply.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed(f"{client.address} does not support SASL, and {name} is set")
    if reply.error_code:
        offered = ", ".join(reply.mechanisms) or "none"
        raise AuthenticationFailed(
            f"{client.address} does not support {sasl.mechanism}: {error_name(reply.error_code)}: it offers {offered}"
        )
    return version >= _FRAMED_SINCE


async def _exchange_tokens(sasl: Sasl, client: KafkaClient, exchange: SaslExchange, *, framed: bool) -> float:
    """Sends all tokens of an exchange. Returns the session's lifetime in seconds."""
    lifetime = math.inf
    token: bytes | None = next(exchange)
    try:
        while token is not None:
            lifetime, answer = await _send_token(sasl, client, token, framed=framed)
            token = await trio.to_thread.run_sync(_next_token, exchange, answer)
    except RefusedToken:
        await _end_refused_exchange(sasl, client, framed=framed)
        raise
    return lifetime


async def _end_refused_exchange(sasl: Sasl, client: KafkaClient, *, framed: bool) -> None:
    """Sends the reply to an error challenge. The broker then refuses the client, or closes the connection."""
    try:
        await _send_token(sasl, client, DUMMY_RESPONSE, framed=framed)
    except (BrokerError, DecodeError):
        pass  # The challenge contains the reason.


async def _send_token(sasl: Sasl, client: KafkaClient, token: bytes, *, framed: bool) -> tuple[float, bytes]:
    """Sends one token. Returns the session's lifetime in seconds, and the broker's token.

    Raw tokens (`framed` is False) report no lifetime.
    """
    if not framed:
        return math.inf, await client.exchange_token(token)
    reply: SaslAuthenticateResponse = await client.ask(SaslAuthenticateRequest(auth_bytes=token))
    if reply.error_code:
        refusal = f"{client.address} refuses {_credential_label(sasl)}: {error_name(reply.error_code)}"
        raise AuthenticationFailed(f"{refusal}: {reply.error_message}" if reply.error_message else refusal)
    return reply.session_lifetime_ms / 1000 or math.inf, reply.auth_bytes


def _credential_label(sasl: Sasl) -> str:
    if sasl.mechanism == OAUTHBEARER:
        owner = f"the token in {sasl.token_file}" if sasl.token_file else f"the token of client {sasl.client_id}"
        return f"{owner} by {OAUTHBEARER}"
    return f"{sasl.username}'s password by {sasl.mechanism}"


def _next_token(exchange: SaslExchange, answer: bytes) -> bytes | None:
    try:
        return exchange.send(answer)
    except StopIteration:
        return None


def _password_exchange(sasl: Sasl, name: str) -> SaslExchange:
    username = sasl.username or ""  # The settings' validator ensures a name.
    password = secret_text(f"{name}.password_file", sasl.password, sasl.password_file)
    if sasl.mechanism == "PLAIN":
        return _plain_exchange(username, password)
    return _scram_exchange(sasl.mechanism, username, password)


def _plain_exchange(username: str, password: str) -> SaslExchange:
    """Yields the one token of PLAIN (RFC 4616)."""
    yield f"\0{username}\0{password}".encode()


def _scram_exchange(mechanism: str, username: str, password: str) -> SaslExchange:
    """Runs SCRAM (RFC 5802, RFC 7677). Raises ScramException if the broker does not prove knowledge of the password."""
    client = ScramClient([mechanism], username, password)
    client.set_server_first((yield client.get_client_first().encode()).decode())
    client.set_server_final((yield client.get_client_final().encode()).decode())


_SETTING_HINTS = {"SASL": {"setting": _SASL}, "TLS": {"setting": _TLS}}


def setting_hint(error: Exception) -> dict[str, str]:
    """Returns a log field that names the setting that may solve the error, or no field if there is none."""
    return _SETTING_HINTS.get(error.may_require, {}) if isinstance(error, BrokerError) else {}
