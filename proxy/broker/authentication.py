"""The sidecar's own credentials at a broker: TLS, and SASL with PLAIN, SCRAM or OAUTHBEARER.

`OwnCredentials` opens connections with these credentials. Each exception has one line of text. Credentials of clients
are never handled here.

Passwords, tokens and keys are read whenever they are needed, so that they may change while the sidecar runs. They
appear in no log line and in no error. A worker thread reads files and derives keys, because trio's thread also runs the
data path.
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
from group_sidecar.proxy.broker.credential_files import CredentialUnavailable, UnreadableFile, secret_text, trusting
from group_sidecar.proxy.broker.kafka_client import (
    DEFAULT_TIMEOUT,
    AuthenticationFailed,
    BrokerClosed,
    BrokerError,
    KafkaClient,
    TlsFailed,
    connect,
    error_name,
    tls_reason,
)
from group_sidecar.proxy.broker.token_endpoint import TokenEndpoint
from group_sidecar.proxy.config.own_connection import OAUTHBEARER, OwnConnection, Sasl, Tls
from group_sidecar.proxy.runtime.addresses import Address

_MAY_BE_PLAIN = "the listener may be plain, and own_connection.tls is set"
_FRAMED_SINCE = 1
"""The SaslHandshake version from which tokens travel in SaslAuthenticate requests (KIP-152)."""


class OwnCredentials:
    """The sidecar's own credentials at one broker.

    Args:
        own: the settings.
    """

    def __init__(self, own: OwnConnection) -> None:
        self._own = own
        self._tokens = _bearer_tokens(own.sasl)

    def connect(
        self, address: Address, timeout: float = DEFAULT_TIMEOUT, versions: Versions | None = None
    ) -> AbstractAsyncContextManager[KafkaClient]:
        """Opens a connection to a broker with these credentials.

        `timeout`, `versions` and exceptions are those of `kafka_client.connect`. A token endpoint has as much time to
        answer as the broker.
        """
        own = self._own
        return connect(
            *address,
            timeout=timeout,
            secure=partial(_start_tls, own.tls, timeout) if own.tls else None,
            authenticate=partial(self._authenticate, own.sasl, timeout) if own.sasl else None,
            versions=versions,
        )

    async def _authenticate(self, sasl: Sasl, seconds: float, client: KafkaClient) -> float:
        """Authenticates a session (KIP-43, KIP-152). Returns the session's lifetime in seconds (KIP-368)."""
        try:
            framed = await _sasl_handshake(sasl, client)
            return await self._exchange(sasl, seconds, client, framed=framed)
        except BrokerClosed as error:  # Old brokers close the connection on a wrong password.
            raise AuthenticationFailed(f"{error}: it may not take {_credential_label(sasl)}") from None
        except (ScramException, UnicodeDecodeError) as error:
            raise AuthenticationFailed(
                f"{client.address} cannot prove that it knows {_credential_label(sasl)}: {error}"
            ) from None
        except CredentialUnavailable as error:
            kind = "token" if self._tokens else "password"
            raise AuthenticationFailed(f"{client.address} is not sent a {kind}: {error}") from None
        except RefusedToken as error:
            raise AuthenticationFailed(f"{client.address} does not take {_credential_label(sasl)}: {error}") from None

    async def _exchange(self, sasl: Sasl, seconds: float, client: KafkaClient, *, framed: bool) -> float:
        """Returns the session's lifetime in seconds. A bearer token that failed once is not used again."""
        exchange = await _sasl_exchange(sasl, self._tokens, seconds)
        try:
            return await _exchange_tokens(sasl, client, exchange, framed=framed)
        except (BrokerError, RefusedToken):
            if self._tokens:
                self._tokens.refused()
            raise


# TLS.


async def _start_tls(tls: Tls, seconds: float, stream: trio.abc.Stream, address: Address) -> trio.abc.Stream:
    try:
        context = await trio.to_thread.run_sync(_tls_context, tls)
    except UnreadableFile as error:
        raise TlsFailed(f"{address} is not asked by TLS: {error}") from None
    server_name = tls.server_name or address.host
    secured = trio.SSLStream(stream, context, server_hostname=server_name, https_compatible=True)
    try:
        with trio.fail_after(seconds):
            await secured.do_handshake()
    except trio.TooSlowError:
        raise TlsFailed(f"{address} did not answer to TLS within {seconds:g} s: {_MAY_BE_PLAIN}") from None
    except trio.BrokenResourceError as error:
        reason = tls_reason(error) or f"it closed the connection: {_MAY_BE_PLAIN}"
        raise TlsFailed(f"{address} cannot be asked by TLS: {reason}") from None
    return secured


def _tls_context(tls: Tls) -> ssl.SSLContext:
    context = trusting("own_connection.tls.ca_file", tls.ca_file)
    if tls.certificate_file:
        try:
            # Without a password OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(tls.certificate_file, tls.key_file, password="")
        except OSError as error:
            file = tls.key_file or tls.certificate_file
            raise UnreadableFile("own_connection.tls.certificate_file", file, error) from None
    return context


# SASL.


async def _sasl_handshake(sasl: Sasl, client: KafkaClient) -> bool:
    """Negotiates the mechanism. Returns whether tokens travel in SaslAuthenticate requests."""
    version = client.version_for(SaslHandshakeRequest)
    reply: SaslHandshakeResponse = await client.ask(SaslHandshakeRequest(mechanism=sasl.mechanism), version)
    if reply.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed(f"{client.address} does not want SASL, and own_connection.sasl is set")
    if reply.error_code:
        offered = ", ".join(reply.mechanisms) or "none"
        raise AuthenticationFailed(
            f"{client.address} does not take {sasl.mechanism}: {error_name(reply.error_code)}: it offers {offered}"
        )
    return version >= _FRAMED_SINCE


async def _exchange_tokens(sasl: Sasl, client: KafkaClient, exchange: SaslExchange, *, framed: bool) -> float:
    """Sends all tokens of an exchange. Returns the session's lifetime in seconds."""
    lifetime = math.inf
    token: bytes | None = next(exchange)
    try:
        while token is not None:
            if framed:
                lifetime, answer = await _send_framed_token(sasl, client, token)
            else:
                answer = await client.exchange_token(token)
            token = await trio.to_thread.run_sync(_next_token, exchange, answer)
    except RefusedToken:
        await _end_refused_exchange(sasl, client, framed=framed)
        raise
    return lifetime


async def _end_refused_exchange(sasl: Sasl, client: KafkaClient, *, framed: bool) -> None:
    """Sends the reply to an error challenge. The broker then refuses the client, or closes the connection."""
    try:
        if framed:
            await _send_framed_token(sasl, client, DUMMY_RESPONSE)
        else:
            await client.exchange_token(DUMMY_RESPONSE)
    except (BrokerError, DecodeError):
        pass  # The challenge contains the reason.


async def _send_framed_token(sasl: Sasl, client: KafkaClient, token: bytes) -> tuple[float, bytes]:
    """Sends one token. Returns the session's lifetime in seconds, and the broker's token."""
    reply: SaslAuthenticateResponse = await client.ask(SaslAuthenticateRequest(auth_bytes=token))
    if reply.error_code:
        refusal = f"{client.address} does not take {_credential_label(sasl)}: {error_name(reply.error_code)}"
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


def _bearer_tokens(sasl: Sasl | None) -> BearerTokens | None:
    """Returns the source of tokens that the settings name, or None if their mechanism needs no tokens."""
    if sasl is None or sasl.mechanism != OAUTHBEARER:
        return None
    return TokenEndpoint(sasl) if sasl.token_file is None else TokenFile(sasl.token_file)


async def _sasl_exchange(sasl: Sasl, tokens: BearerTokens | None, seconds: float) -> SaslExchange:
    """Returns the exchange of the mechanism with the current credentials. Raises CredentialUnavailable."""
    if tokens:
        return bearer_exchange(await tokens.token(seconds))
    return await trio.to_thread.run_sync(_password_exchange, sasl)


def _password_exchange(sasl: Sasl) -> SaslExchange:
    username = sasl.username or ""  # The settings' validator ensures a name.
    password = secret_text("own_connection.sasl.password", sasl.password, sasl.password_file)
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


_SETTING_HINTS = {"SASL": {"setting": "own_connection.sasl"}, "TLS": {"setting": "own_connection.tls"}}


def setting_hint(error: Exception) -> dict[str, str]:
    """Returns a log field that names the setting that may solve the error, or no field if there is none."""
    return _SETTING_HINTS.get(error.may_require, {}) if isinstance(error, BrokerError) else {}
