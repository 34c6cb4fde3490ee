"""One HTTP connection of the admin port: parses HTTP with h11, and calls an ASGI application.

`HttpConnection` reads requests within limits of size and time, calls the application and sends its replies.

The connection supports only HTTP/1.1 and HTTP/1.0. A request to upgrade the connection (HTTP/2, WebSocket) is answered
as if it had no Upgrade header (RFC 9110, 7.8). The connection is then closed, because the bytes that follow may belong
to the other protocol. All code runs in the caller's task, so exceptions propagate only to the caller.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import h11
import trio
from starlette.types import ASGIApp, Message

RECEIVED_AT_ONCE = 8_192
LARGEST_HEAD = 8_192
"""Maximum size of a request's line and headers, in bytes. The last read may add up to RECEIVED_AT_ONCE bytes."""
LARGEST_BODY = 65_536
"""Maximum size of a request's body, in bytes. No path of the admin port reads a body."""
REQUEST_SECONDS = 10.0
"""Maximum time from the first byte of a request to the end of its headers, and from there to the end of its body."""
IDLE_SECONDS = 75.0
"""Maximum time between two requests, longer than Prometheus' default scrape interval of one minute."""
ANSWER_SECONDS = 120.0
"""Maximum time for the application to reply. A page over 100,000 groups takes some seconds."""
SLICE_BYTES = 65_536
LARGEST_DRAIN = 1 << 20
"""Maximum number of bytes that are read and dropped before a connection is closed."""
DRAIN_SECONDS = 1.0

_VERSIONS = (b"1.1", b"1.0")

Address = tuple[str, int]


class HttpConnection:
    """Serves one connection.

    Attributes:
        waiting_since: the time since which the connection has waited for the client to send or read bytes, in seconds
            on trio's clock. Infinite while the application computes a reply.
    """

    def __init__(
        self,
        app: ASGIApp,
        stream: trio.abc.Stream,
        *,
        client: Address | None,
        server: Address | None,
        scheme: str,
        stalled_seconds: float,
        failed: Callable[[Exception], None],
    ) -> None:
        """Stores its arguments. `run` reads the first request.

        Args:
            app: the ASGI application, which is called with scopes of type "http" only.
            stream: the connection, after the TLS handshake if there is one.
            client: the address of the client.
            server: the local address.
            scheme: "http" or "https".
            stalled_seconds: how many seconds the client may take to read the bytes of one send.
            failed: called with each exception of the application.
        """
        self.waiting_since = trio.current_time()
        self._app = app
        self._stream = stream
        self._stalled_seconds = stalled_seconds
        self._failed = failed
        self._scope = {"client": client, "server": server, "scheme": scheme}
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=LARGEST_HEAD)
        self._started = False
        self._closes_after_reply = False
        self._unsent = b""

    async def run(self) -> None:
        """Answers requests until either side ends the connection. The caller closes the stream.

        Raises:
            OSError, trio.BrokenResourceError, trio.ClosedResourceError: the connection broke.
        """
        try:
            while await self._answer_one():
                self._http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            await self._send_error(error.error_status_hint)
        except trio.TooSlowError:
            await self._send_error(HTTPStatus.REQUEST_TIMEOUT)
        if self._http.their_state is not h11.CLOSED:
            await self._drain()

    async def _answer_one(self) -> bool:
        """Reads a request and answers it. Returns whether another request may follow."""
        request = await self._next_event(IDLE_SECONDS, REQUEST_SECONDS)
        if not isinstance(request, h11.Request):
            return False
        if request.http_version not in _VERSIONS:
            await self._send_error(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
            return False
        names = {name for name, _ in request.headers}
        if b"transfer-encoding" in names:  # Parsing thousands of one-byte chunks would take too long.
            await self._send_error(HTTPStatus.LENGTH_REQUIRED)
            return False
        self._closes_after_reply = b"upgrade" in names
        body = bytearray()
        with trio.fail_after(REQUEST_SECONDS):
            if self._http.they_are_waiting_for_100_continue:
                self._unsent = self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b""
                await self._flush()
            while isinstance(event := await self._next_event(), h11.Data):
                body += event.data
                if len(body) > LARGEST_BODY:
                    await self._send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                    return False
        await self._answer(request, bytes(body))
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _next_event(self, seconds: float = math.inf, then: float = math.inf) -> Any:
        """Returns the next event of h11, or ConnectionClosed if no byte has arrived in time.

        Args:
            seconds: maximum time until the first byte.
            then: maximum time from the first byte to the complete event.

        Raises:
            trio.TooSlowError: the event is incomplete when the time is over.
        """
        if self._http.trailing_data[0]:
            seconds = then
        with trio.CancelScope(deadline=trio.current_time() + seconds) as scope:
            self.waiting_since = trio.current_time()
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data = await self._stream.receive_some(RECEIVED_AT_ONCE)
                if then < math.inf:
                    scope.deadline, then = trio.current_time() + then, math.inf
                self._http.receive_data(bytes(data))
            self.waiting_since = math.inf
            return event
        if self._http.trailing_data[0]:
            raise trio.TooSlowError
        return h11.ConnectionClosed()

    async def _answer(self, request: h11.Request, body: bytes) -> None:
        """Calls the application, and sends an error reply if the application fails."""
        self._started = False
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Message:
            for message in messages:
                return message
            return await trio.sleep_forever()  # Only the next send finds that the client has disconnected.

        with trio.move_on_after(ANSWER_SECONDS) as timeout_scope:
            try:
                await self._app(self._scope_of(request), receive, self._send_message)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                raise
            except Exception as error:  # noqa: BLE001  An error of the application only fails this request.
                self._failed(error)
        if not self._started:
            slow = timeout_scope.cancelled_caught
            await self._send_error(HTTPStatus.SERVICE_UNAVAILABLE if slow else HTTPStatus.INTERNAL_SERVER_ERROR)

    def _scope_of(self, request: h11.Request) -> dict[str, Any]:
        path, _, query = request.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.1"},
            "http_version": request.http_version.decode(),
            "method": request.method.decode("ascii").upper(),
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": list(request.headers),
            "extensions": {},
            **self._scope,
        }

    async def _send_message(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            headers = [(b"date", formatdate(usegmt=True).encode()), *message.get("headers", [])]
            if self._closes_after_reply:
                headers.append((b"connection", b"close"))
            self._unsent = self._http.send(h11.Response(status_code=message["status"], headers=headers)) or b""
        elif message["type"] == "http.response.body":
            body, last = message.get("body", b""), not message.get("more_body", False)
            for first in range(0, len(body), SLICE_BYTES):
                self._unsent += self._http.send(h11.Data(data=body[first : first + SLICE_BYTES])) or b""
                if first + SLICE_BYTES < len(body):
                    await self._flush()
            if last:
                self._unsent += self._http.send(h11.EndOfMessage()) or b""
            await self._flush()

    async def _flush(self) -> None:
        """Sends the buffered bytes. A reply's head is buffered until the first bytes of its body."""
        data, self._unsent = self._unsent, b""
        if data:
            self.waiting_since = trio.current_time()
            with trio.move_on_after(self._stalled_seconds) as timeout_scope:
                await self._stream.send_all(data)
            self.waiting_since = math.inf
            if timeout_scope.cancelled_caught:
                raise trio.BrokenResourceError("the client does not read")

    async def _send_error(self, status: int) -> None:
        """Sends a reply without a body, unless a reply has already begun."""
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        self._started = True
        reason = HTTPStatus(status).phrase.encode()
        headers = [(b"content-length", b"0"), (b"connection", b"close")]
        self._unsent = self._http.send(h11.Response(status_code=status, reason=reason, headers=headers)) or b""
        self._http.send(h11.EndOfMessage())
        await self._flush()

    async def _drain(self) -> None:
        """Reads and drops the client's last bytes.

        If a socket is closed with unread bytes, the kernel resets the connection and the client may lose the reply.
        """
        self.waiting_since = trio.current_time()
        if isinstance(self._stream, trio.SocketStream):
            await self._stream.send_eof()
        drained = 0
        with trio.move_on_after(DRAIN_SECONDS), suppress(trio.BrokenResourceError):
            while drained < LARGEST_DRAIN and (data := await self._stream.receive_some(SLICE_BYTES)):
                drained += len(data)
