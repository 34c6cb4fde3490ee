"""Encodes every reply of the admin port: JSON, errors as JSON or HTML, compression, and security headers.

The application shares a thread with the data path, so slow encoding runs in another thread. A call into C keeps the GIL
until it returns, even in another thread. So long lists are encoded in pieces.
"""

import gzip
import html
from collections.abc import Iterator, Mapping
from typing import Any

import trio
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

JSON = "application/json"
ITEMS_PER_PIECE = 200
"""Maximum number of a list's items that are encoded in one call."""
MIN_COMPRESSED_BYTES = 500
"""Minimum size of a compressed reply, in bytes."""

_SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_PLAIN_PAGE = """\
<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{status}</title><h1>{status}</h1><p>{error}</p></html>
"""
_COMPRESSIBLE = ("text/", JSON, "application/openmetrics-text", "application/javascript", "image/svg+xml")


async def json_response(answer: BaseModel, status: int = 200) -> Response:
    """Returns a reply that contains the model as JSON."""
    return Response(await trio.to_thread.run_sync(encode, answer), status, media_type=JSON)


def encode(answer: BaseModel) -> bytes:
    """Returns the model as one line of JSON. The call may take long, but other threads run between the pieces."""
    return b"".join(_pieces(answer))


def _pieces(answer: BaseModel) -> Iterator[bytes]:
    opening = b"{"
    for name, value in answer:
        yield opening + to_json(name) + b":"
        opening = b","
        if not isinstance(value, list):
            yield to_json(value)
            continue
        lead = b"["
        for first in range(0, len(value), ITEMS_PER_PIECE):
            yield lead + to_json(value[first : first + ITEMS_PER_PIECE])[1:-1]
            lead = b","
        yield b"]" if value else b"[]"
    yield b"}\n"


def problem(request: HTTPConnection, status: int, error: str, **more: Any) -> Response:
    """Returns an error reply, as a plain page if the client prefers HTML, otherwise as JSON."""
    if prefers_html(request.headers):
        return HTMLResponse(_PLAIN_PAGE.format(status=status, error=html.escape(error)), status)
    return Response(to_json({"error": error, **more}) + b"\n", status, media_type=JSON)


def prefers_html(headers: Headers) -> bool:
    """Whether the Accept header contains text/html. Browsers send text/html, programs send JSON or any type."""
    return any(offer.split(";")[0].strip().lower() == "text/html" for offer in headers.get("accept", "").split(","))


class ReplyMiddleware:
    """Buffers each reply, and sends it with security headers. Compresses a long reply if the client accepts gzip."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request as an ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start: Message = {}
        parts: list[bytes] = []

        async def keep(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
                return
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                await _send(scope, send, start, b"".join(parts))

        # The reply to HEAD is the reply to GET without the body.
        get_scope = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        await self._app(get_scope, receive, keep)


async def _send(scope: Scope, send: Send, start: Message, body: bytes) -> None:
    headers = MutableHeaders(raw=list(start.get("headers", [])))
    if body and start["status"] != 206 and _is_compressible(headers):
        headers.add_vary_header("accept-encoding")
        if len(body) >= MIN_COMPRESSED_BYTES and accepts_gzip(Headers(scope=scope).get("accept-encoding", "")):
            body = await trio.to_thread.run_sync(_compressed, body)
            headers["content-encoding"] = "gzip"
            if "etag" in headers:
                headers["etag"] = "W/" + headers["etag"].removeprefix("W/")
    if start["status"] != 304:
        headers["content-length"] = str(len(body))
    # A reply with an ETag may be cached, and the client must revalidate it.
    headers.setdefault("cache-control", "no-cache" if "etag" in headers else "no-store")
    for name, value in _SECURITY_HEADERS.items():
        headers[name] = value
    await send({"type": "http.response.start", "status": start["status"], "headers": headers.raw})
    with_body = scope["method"] != "HEAD"
    await send({"type": "http.response.body", "body": body if with_body else b"", "more_body": False})


def _is_compressible(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").startswith(_COMPRESSIBLE)


def _compressed(body: bytes) -> bytes:
    return gzip.compress(body, compresslevel=1, mtime=0)


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header allows gzip (RFC 9110, 12.5.3)."""
    for offer in accept_encoding.lower().split(","):
        coding, *parameters = (part.strip() for part in offer.split(";"))
        if coding == "gzip":
            return not any(parameter in ("q=0", "q=0.0", "q=0.00", "q=0.000") for parameter in parameters)
    return False
