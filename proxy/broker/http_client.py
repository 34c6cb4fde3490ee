"""Sends one HTTP request and reads a bounded answer. Token endpoints are asked in this way.

h11 builds and parses the messages. httpx would take 8 MB of memory. Under trio, a caller of httpx cannot stop reading a
response before its end.
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import SplitResult, urlencode, urlsplit

import h11
import trio

from group_sidecar.proxy.broker.broker_errors import connect_failure, tls_reason

_CHUNK = 65_536
_PORTS = {"https": 443, "http": 80}


class HttpFailed(Exception):
    """There is no complete answer. The text is a predicate about the server, such as "closed the connection"."""


class Answer(NamedTuple):
    """The status and the body of an answer."""

    status: int
    body: bytes


async def post_form(
    url: str, form: Mapping[str, str], headers: Mapping[str, str], context: ssl.SSLContext | None, largest: int
) -> Answer:
    """Sends a form by POST, and returns the answer. Redirects are not followed. The caller must limit the time.

    Args:
        url: an http or https URL.
        form: the fields of the form.
        headers: headers in addition to the headers of the form.
        context: the TLS context for an https URL.
        largest: the maximum number of bytes of the answer's body.

    Raises:
        HttpFailed: the server cannot be reached, or its answer is too long or is not HTTP.
    """
    where, body = urlsplit(url), urlencode(form).encode()
    message = {
        "host": where.netloc,
        "content-type": "application/x-www-form-urlencoded",
        "content-length": str(len(body)),
        "connection": "close",
        **headers,
    }
    target = f"{where.path or '/'}{f'?{where.query}' if where.query else ''}"
    exchange = h11.Connection(h11.CLIENT)
    try:
        parts = (h11.Request(method="POST", target=target, headers=[*message.items()]), h11.Data(body))
        sent = b"".join(exchange.send(part) or b"" for part in (*parts, h11.EndOfMessage()))
        async with _connection(where, context) as stream:
            await stream.send_all(sent)
            return await _answer(exchange, stream, largest)
    except trio.BrokenResourceError as error:
        raise HttpFailed(f"closed the connection{f': {reason}' if (reason := tls_reason(error)) else ''}") from None


@asynccontextmanager
async def _connection(where: SplitResult, context: ssl.SSLContext | None) -> AsyncIterator[trio.abc.Stream]:
    """Opens a connection, with TLS if the URL is https. Closes the connection at the end of the block."""
    host = where.hostname or ""
    try:
        stream: trio.abc.Stream = await trio.open_tcp_stream(host, where.port or _PORTS[where.scheme])
    except (OSError, ValueError) as error:  # ValueError: the name is invalid.
        raise HttpFailed(f"cannot be reached: {connect_failure(error)}") from None
    try:
        if where.scheme == "https":
            stream = await _secured(stream, context, host)
        yield stream
    finally:
        await trio.aclose_forcefully(stream)


async def _secured(stream: trio.abc.Stream, context: ssl.SSLContext | None, host: str) -> trio.abc.Stream:
    assert context is not None
    secured = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
    try:
        await secured.do_handshake()
    except trio.BrokenResourceError as error:
        raise HttpFailed(f"cannot be reached by TLS: {tls_reason(error) or 'it closed the connection'}") from None
    return secured


async def _answer(exchange: h11.Connection, stream: trio.abc.Stream, largest: int) -> Answer:
    """Reads the answer. Raises HttpFailed if the answer is too long, is incomplete or is not HTTP."""
    status, body, ended = 0, bytearray(), False
    try:
        while not isinstance(event := exchange.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                chunk = bytes(await stream.receive_some(_CHUNK))
                ended = not chunk
                exchange.receive_data(chunk)
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > largest:
                    raise HttpFailed(f"answers with more than {largest} bytes")
            elif isinstance(event, h11.ConnectionClosed):
                raise HttpFailed("closed the connection")
    except h11.RemoteProtocolError:
        raise HttpFailed("closed the connection" if ended else "does not answer by HTTP") from None
    return Answer(status, bytes(body))
