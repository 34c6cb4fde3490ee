"""The sidecar's own credentials at a broker: TLS, and SASL with PLAIN or SCRAM.

`connect_with_credentials` opens a connection with these credentials. `tls_from`, `tls_with` and `login` serve commands
that take their credentials from elsewhere. Each exception has one line of text. Credentials of clients are never
handled here.

Passwords and keys are read whenever they are needed, so that they may change while the sidecar runs. Passwords and keys
appear in no log line and in no error. A worker thread reads files and derives keys, because trio's thread also runs the
data path.
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
from group_sidecar.proxy.broker.added_versions import Versions
from group_sidecar.proxy.broker.kafka_client import (
    DEFAULT_TIMEOUT,
    Authenticate,
    AuthenticationFailed,
    BrokerClosed,
    BrokerError,
    KafkaClient,
    Secure,
    TlsFailed,
    connect,
    error_name,
    tls_reason,
)
from group_sidecar.proxy.config.sections import OwnConnection, Sasl, Tls
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.tls.contexts import UnusableFileError, upstream_context

_TLS, _SASL = "own_connection.tls", "own_connection.sasl"
_FRAMED_SINCE = 1
"""The SaslHandshake version from which tokens travel in SaslAuthenticate requests (KIP-152)."""

_SaslExchange = Generator[bytes, bytes, None]
"""Yields each token to send, and receives the broker's token in return, until the exchange ends."""


def connect_with_credentials(
    address: Address, own: OwnConnection, timeout: float = DEFAULT_TIMEOUT, versions: Versions | None = None
) -> AbstractAsyncContextManager[KafkaClient]:
    """Opens a connection to a broker with the sidecar's own credentials.

    `timeout`, `versions` and exceptions are those of `kafka_client.connect`.
    """
    return connect(
        *address,
        timeout=timeout,
        secure=tls_from(own.tls, _TLS, timeout) if own.tls else None,
        authenticate=login(own.sasl, _SASL) if own.sasl else None,
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
            raise TlsFailed(f"{address} is not asked by TLS: {name}.{error}") from None
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
            raise TlsFailed(f"{address} cannot be asked by TLS: {reason}") from None
        return secured

    return secure


class _UnreadableError(Exception):
    """A file cannot be used. The text is one clause."""

    def __init__(self, key: str, file: Path | None, error: Exception) -> None:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        super().__init__(f"{key}: {file} cannot be used: {why.replace('_', ' ').lower()}")


# SASL.


def login(sasl: Sasl, name: str) -> Authenticate:
    """Returns the function that authenticates a session as the user of the settings. `name`: the name of the settings
    in errors.
    """
    return partial(_authenticate, sasl, name)


async def _authenticate(sasl: Sasl, name: str, client: KafkaClient) -> float:
    """Authenticates a session (KIP-43, KIP-152). Returns the session's lifetime in seconds (KIP-368)."""
    try:
        framed = await _sasl_handshake(sasl, name, client)
        lifetime, exchange = math.inf, await trio.to_thread.run_sync(_sasl_exchange, sasl, name)
        token: bytes | None = next(exchange)
        while token is not None:
            if framed:
                lifetime, answer = await _send_framed_token(sasl, client, token)
            else:
                answer = await client.exchange_token(token)
            token = await trio.to_thread.run_sync(_next_token, exchange, answer)
    except BrokerClosed as error:  # Old brokers close the connection on a wrong password.
        raise AuthenticationFailed(f"{error}: it may not take {_credential_label(sasl)}") from None
    except (ScramException, UnicodeDecodeError) as error:
        raise AuthenticationFailed(
            f"{client.address} cannot prove that it knows {_credential_label(sasl)}: {error}"
        ) from None
    except _UnreadableError as error:
        raise AuthenticationFailed(f"{client.address} is not sent a password: {error}") from None
    return lifetime


async def _sasl_handshake(sasl: Sasl, name: str, client: KafkaClient) -> bool:
    """Negotiates the mechanism. Returns whether tokens travel in SaslAuthenticate requests."""
    version = client.version_for(SaslHandshakeRequest)
    reply: SaslHandshakeResponse = await client.ask(SaslHandshakeRequest(mechanism=sasl.mechanism), version)
    if reply.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed(f"{client.address} does not want SASL, and {name} is set")
    if reply.error_code:
        offered = ", ".join(reply.mechanisms) or "none"
        raise AuthenticationFailed(
            f"{client.address} does not take {sasl.mechanism}: {error_name(reply.error_code)}: it offers {offered}"
        )
    return version >= _FRAMED_SINCE


async def _send_framed_token(sasl: Sasl, client: KafkaClient, token: bytes) -> tuple[float, bytes]:
    """Sends one token. Returns the session's lifetime in seconds, and the broker's token."""
    reply: SaslAuthenticateResponse = await client.ask(SaslAuthenticateRequest(auth_bytes=token))
    if reply.error_code:
        refusal = f"{client.address} does not take {_credential_label(sasl)}: {error_name(reply.error_code)}"
        raise AuthenticationFailed(f"{refusal}: {reply.error_message}" if reply.error_message else refusal)
    return reply.session_lifetime_ms / 1000 or math.inf, reply.auth_bytes


def _credential_label(sasl: Sasl) -> str:
    return f"{sasl.username}'s password by {sasl.mechanism}"


def _next_token(exchange: _SaslExchange, answer: bytes) -> bytes | None:
    try:
        return exchange.send(answer)
    except StopIteration:
        return None


def _sasl_exchange(sasl: Sasl, name: str) -> _SaslExchange:
    password = _password(sasl, name)
    return _plain_exchange(sasl.username, password) if sasl.mechanism == "PLAIN" else _scram_exchange(sasl, password)


def _password(sasl: Sasl, name: str) -> str:
    """Returns the password from the settings or from its file. Raises _UnreadableError."""
    if sasl.password is not None:
        return sasl.password.get_secret_value()
    assert sasl.password_file is not None  # The settings' validator ensures it.
    try:
        return sasl.password_file.read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _UnreadableError(f"{name}.password_file", sasl.password_file, error) from None


def _plain_exchange(username: str, password: str) -> _SaslExchange:
    """Yields the one token of PLAIN (RFC 4616)."""
    yield f"\0{username}\0{password}".encode()


def _scram_exchange(sasl: Sasl, password: str) -> _SaslExchange:
    """Runs SCRAM (RFC 5802, RFC 7677). Raises ScramException if the broker does not prove knowledge of the password."""
    client = ScramClient([sasl.mechanism], sasl.username, password)
    client.set_server_first((yield client.get_client_first().encode()).decode())
    client.set_server_final((yield client.get_client_final().encode()).decode())


_SETTING_HINTS = {"SASL": {"setting": _SASL}, "TLS": {"setting": _TLS}}


def setting_hint(error: Exception) -> dict[str, str]:
    """Returns a log field that names the setting that may solve the error, or no field if there is none."""
    return _SETTING_HINTS.get(error.may_require, {}) if isinstance(error, BrokerError) else {}
