"""As whom the sidecar itself speaks to a broker: TLS, and SASL with PLAIN or SCRAM.

Owns: `connect_as`; the TLS context, the order of a SASL exchange, and one line for each way in which they fail. Must
not know: what is asked over the connection. Clients' credentials never come this way.

Passwords and keys are read when they are needed, so that they may be changed while the sidecar runs, and are in no
line and no error. What reads files or derives keys does so in a thread: the data path shares this one.
"""

import math
import ssl
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import trio
from scramp import ScramClient, ScramException

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.proxy.additions import Versions
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.client import (
    DEFAULT_TIMEOUT,
    AuthenticationFailed,
    BrokerClosed,
    KafkaClient,
    TlsFailed,
    connect,
    error_name,
    tls_reason,
)
from group_sidecar.proxy.sections import OwnConnection, Sasl, Tls

_MAY_BE_PLAIN = "the listener may be plain, and own_connection.tls is set"
_FRAMED_SINCE = 1
"""SaslHandshake version from which on tokens travel in SaslAuthenticate requests (KIP-152)."""

_Exchange = Generator[bytes, bytes, None]
"""Yields a token to send, is sent the broker's, until it ends."""


def connect_as(
    address: Address, own: OwnConnection, timeout: float = DEFAULT_TIMEOUT, versions: Versions | None = None
) -> AbstractAsyncContextManager[KafkaClient]:
    """A connection to a broker with the sidecar's own credentials. `timeout`, `versions`, errors: `client.connect`."""
    return connect(
        *address,
        timeout=timeout,
        secure=partial(_secure, own.tls, timeout) if own.tls else None,
        authenticate=partial(_authenticate, own.sasl) if own.sasl else None,
        versions=versions,
    )


# TLS.


async def _secure(tls: Tls, seconds: float, stream: trio.abc.Stream, address: Address) -> trio.abc.Stream:
    try:
        context = await trio.to_thread.run_sync(_context, tls)
    except _UnreadableError as error:
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


def _context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except OSError as error:
        raise _UnreadableError("own_connection.tls.ca_file", tls.ca_file, error) from None
    if tls.certificate_file:
        try:
            # An empty password: asked for one, OpenSSL would ask the terminal.
            context.load_cert_chain(tls.certificate_file, tls.key_file, password="")
        except OSError as error:
            file = tls.key_file or tls.certificate_file
            raise _UnreadableError("own_connection.tls.certificate_file", file, error) from None
    return context


class _UnreadableError(Exception):
    """A file that cannot be used, in one clause."""

    def __init__(self, key: str, file: Path | None, error: Exception) -> None:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        super().__init__(f"{key}: {file} cannot be used: {why.replace('_', ' ').lower()}")


# SASL.


async def _authenticate(sasl: Sasl, client: KafkaClient) -> float:
    """Authenticates a session (KIP-43, KIP-152). Gives the seconds that it lasts (KIP-368)."""
    try:
        framed = await _shake_hands(sasl, client)
        lifetime, exchange = math.inf, await trio.to_thread.run_sync(_exchange, sasl)
        token: bytes | None = next(exchange)
        while token is not None:
            if framed:
                lifetime, answer = await _framed(sasl, client, token)
            else:
                answer = await client.exchange_token(token)
            token = await trio.to_thread.run_sync(_token_after, exchange, answer)
    except BrokerClosed as error:  # What old brokers say to a wrong password.
        raise AuthenticationFailed(f"{error}: it may not take {_as_whom(sasl)}") from None
    except (ScramException, UnicodeDecodeError) as error:
        raise AuthenticationFailed(f"{client.address} cannot prove that it knows {_as_whom(sasl)}: {error}") from None
    except _UnreadableError as error:
        raise AuthenticationFailed(f"{client.address} is not sent a password: {error}") from None
    return lifetime


async def _shake_hands(sasl: Sasl, client: KafkaClient) -> bool:
    """Whether tokens are to travel in SaslAuthenticate requests."""
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


async def _framed(sasl: Sasl, client: KafkaClient, token: bytes) -> tuple[float, bytes]:
    """Sends one token. Gives the session's lifetime in seconds, and the broker's token."""
    reply: SaslAuthenticateResponse = await client.ask(SaslAuthenticateRequest(auth_bytes=token))
    if reply.error_code:
        refusal = f"{client.address} does not take {_as_whom(sasl)}: {error_name(reply.error_code)}"
        raise AuthenticationFailed(f"{refusal}: {reply.error_message}" if reply.error_message else refusal)
    return reply.session_lifetime_ms / 1000 or math.inf, reply.auth_bytes


def _as_whom(sasl: Sasl) -> str:
    return f"{sasl.username}'s password by {sasl.mechanism}"


def _token_after(exchange: _Exchange, answer: bytes) -> bytes | None:
    try:
        return exchange.send(answer)
    except StopIteration:
        return None


def _exchange(sasl: Sasl) -> _Exchange:
    password = _password(sasl)
    return _plain(sasl.username, password) if sasl.mechanism == "PLAIN" else _scram(sasl, password)


def _password(sasl: Sasl) -> str:
    """Raises _UnreadableError."""
    if sasl.password is not None:
        return sasl.password.get_secret_value()
    assert sasl.password_file is not None  # The settings see to it.
    try:
        return sasl.password_file.read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _UnreadableError("own_connection.sasl.password_file", sasl.password_file, error) from None


def _plain(username: str, password: str) -> _Exchange:
    """RFC 4616."""
    yield f"\0{username}\0{password}".encode()


def _scram(sasl: Sasl, password: str) -> _Exchange:
    """RFC 5802, RFC 7677. Raises ScramException where the broker does not know the password either."""
    client = ScramClient([sasl.mechanism], sasl.username, password)
    client.set_server_first((yield client.get_client_first().encode()).decode())
    client.set_server_final((yield client.get_client_final().encode()).decode())
