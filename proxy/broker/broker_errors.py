"""The errors of connections to brokers, and their texts.

Each way in which a connection or a request fails has its own exception. The text of an exception is one line.
"""

import os
import ssl

from group_sidecar.codecs.errors import ErrorCode


class BrokerError(Exception):
    """A broker did not answer as expected. The text is one line, which usually names the broker.

    Attributes:
        may_require: "SASL" or "TLS" if the listener may require it and the client did not use it; empty otherwise.
    """

    def __init__(self, text: str, may_require: str = "") -> None:
        super().__init__(text)
        self.may_require = may_require


class BrokerUnreachable(BrokerError):
    """No connection could be opened."""


class BrokerClosed(BrokerError):
    """The connection was closed before the reply was complete, or an earlier request on the connection failed."""


class BrokerTimeout(BrokerError):
    """No reply arrived in time."""


class UnsupportedApi(BrokerError):
    """The broker has no suitable version of an API."""


class NotABroker(BrokerError):
    """The port speaks Kafka but does not know Metadata, as the listener of a KRaft controller."""


class BrokerRefused(BrokerError):
    """The broker answered with an error. `code`: Kafka's error code."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        super().__init__(f"{what}: {error_name(code)}{f': {message}' if message else ''}")
        self.code = code


class LogUnusable(BrokerError):
    """The sidecar can read `__consumer_offsets`, but does not know which partition stores a group."""


class TlsFailed(BrokerError):
    """The broker is reachable, but the TLS handshake failed or TLS broke off."""


class AuthenticationFailed(BrokerError):
    """The broker rejects the sidecar's credentials, or the credentials could not be sent."""


def tls_reason(error: BaseException) -> str:
    """Returns why TLS broke the stream, or an empty string if TLS was not the cause."""
    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
        return (cause.reason or str(cause)).replace("_", " ").lower()
    return ""


def error_name(code: int) -> str:
    """Returns Kafka's name of an error with its code, or only the code if `ErrorCode` does not contain it."""
    try:
        return f"{ErrorCode(code).name} ({code})"
    except ValueError:
        return f"error {code}"


def connect_failure(error: Exception) -> str:
    """Returns why no connection could be opened.

    If all addresses of a name fail, trio raises one error around the others.
    """
    inner = error.__cause__
    if isinstance(inner, ExceptionGroup):
        inner = inner.exceptions[0]
    cause = inner if isinstance(inner, OSError) else error
    if not isinstance(cause, OSError):
        return str(cause)
    # Errors of name resolution have negative numbers and good texts. Texts from trio repeat the address.
    return os.strerror(cause.errno) if cause.errno and cause.errno > 0 else cause.strerror or str(cause)
