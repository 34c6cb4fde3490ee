"""The admin port: the reply of each path, and a test with a real server."""

import gzip
import http.client
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest
import trio
from starlette.types import ASGIApp
from structlog.testing import capture_logs

from group_sidecar.proxy.admin import http_server
from group_sidecar.proxy.admin.http_server import serve_admin
from group_sidecar.proxy.admin.sources import Readiness
from group_sidecar.proxy.config.reload import ReloadOutcome
from group_sidecar.proxy.listeners.ports import listen
from group_sidecar.proxy.runtime.addresses import Address
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.proxy.admin import served_app as stage
from tests.proxy.admin.served_app import READY, Reply, admin, no_reload

TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Scrapes:
    """A source of metrics. Each scrape contains the number of scrapes and the Accept header."""

    def __init__(self, padding: int = 0) -> None:
        self.count = 0
        self.padding = "x" * padding

    async def collect(self, accept: str) -> tuple[bytes, str]:
        self.count += 1
        return f"# asked for {accept!r} {self.padding}\nscrapes {self.count}.0\n".encode(), TEXT


def make_app(
    *,
    readiness: Callable[[], Readiness] = lambda: READY,
    padding: int = 0,
    reload: Callable[[], Awaitable[ReloadOutcome]] = no_reload,
) -> ASGIApp:
    return admin(metrics=Scrapes(padding).collect, readiness=readiness, reload=reload)


async def ask(path: str, method: str = "GET", app: ASGIApp | None = None, **headers: Any) -> Reply:
    return await stage.ask(app or make_app(), path, method, **headers)


# The application.


async def test_metrics_follow_accept_header() -> None:
    """The Accept header of a scrape reaches the exposition, whose content type becomes the reply's."""
    accept = "application/openmetrics-text;version=1.0.0"
    reply = await ask("/metrics", accept=accept)
    assert (reply.status, reply.headers["content-type"]) == (200, TEXT)
    assert accept in reply.body.decode()
    assert "asked for ''" in (await ask("/metrics")).body.decode()


@pytest.mark.parametrize("accept_encoding", ["gzip", "deflate, GZIP;q=0.5", "gzip; q=1.0, *;q=0", "br,gzip"])
async def test_metrics_are_gzipped_on_request(accept_encoding: str) -> None:
    """Metrics are compressed if the client accepts gzip."""
    app = make_app(padding=1000)
    reply = await ask("/metrics", app=app, accept_encoding=accept_encoding)
    assert reply.headers["content-encoding"] == "gzip"
    assert int(reply.headers["content-length"]) == len(reply.body) < 500
    assert b"scrapes 1.0" in gzip.decompress(reply.body)


@pytest.mark.parametrize("accept_encoding", ["", "identity", "gzip;q=0", "br, gzip; q=0.0", "xgzip"])
async def test_metrics_uncompressed_without_gzip(accept_encoding: str) -> None:
    """Metrics are not compressed if the client does not accept gzip, and Vary names both headers."""
    reply = await ask("/metrics", accept_encoding=accept_encoding)
    assert "content-encoding" not in reply.headers
    assert reply.headers["vary"] == "accept, accept-encoding"
    assert b"scrapes 1.0" in reply.body


async def test_each_scrape_collects_once() -> None:
    """Each request for metrics collects them once."""
    app = make_app()
    assert b"scrapes 1.0" in (await ask("/metrics", app=app)).body
    assert b"scrapes 2.0" in (await ask("/metrics", app=app)).body


@pytest.mark.parametrize("path", ["/metrics/", "/metric", "/api/v1/groups/orders", "//metrics", "/\xff"])
async def test_unknown_paths(path: str) -> None:
    reply = await ask(path)
    assert (reply.status, reply.content["error"]) == (404, "not found")
    assert "/metrics" in reply.content["paths"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get"])
@pytest.mark.parametrize("path", ["/metrics", "/api/v1/timeline?group=a"])
async def test_other_methods(path: str, method: str) -> None:
    reply = await ask(path, method)
    assert (reply.status, reply.headers["allow"], reply.content) == (405, "GET, HEAD", {"error": "method not allowed"})


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/api/v1/groups", "/nowhere"])
async def test_head_matches_get(path: str) -> None:
    """HEAD returns the status and headers of GET without a body."""
    got, headed = await ask(path), await ask(path, "HEAD")
    assert headed.body == b""
    assert (headed.status, headed.headers) == (got.status, got.headers)
    assert int(got.headers["content-length"]) == len(got.body)


@pytest.mark.parametrize(
    ("outcome", "status", "content"),
    [
        (ReloadOutcome(True, ["policies.a: 1 -> 2"]), 200, {"changed": ["policies.a: 1 -> 2"]}),
        (ReloadOutcome(True, []), 200, {"changed": []}),
        (ReloadOutcome(False, ["x: y", "z: w"]), 400, {"error": "not reloaded", "lines": ["x: y", "z: w"]}),
    ],
)
async def test_reload_reply_reports_outcome(outcome: ReloadOutcome, status: int, content: Any) -> None:
    """A reload replies 200 with the changed keys, or 400 with the lines of the faults."""

    async def reload() -> ReloadOutcome:
        return outcome

    reply = await ask("/-/reload", "POST", app=make_app(reload=reload))
    assert (reply.status, reply.content) == (status, content)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "post"])
async def test_reload_requires_post(method: str) -> None:
    """The reload path answers 405 to every method except POST."""
    reply = await ask("/-/reload", method)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")


STRICT = {
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
PATHS = ["/", "/group?group=a", "/status", "/static/page.css", "/api/v1/groups", "/metrics", "/healthz", "/nowhere"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
async def test_replies_have_security_headers(path: str, method: str) -> None:
    """Every reply carries the security headers and a Cache-Control that fits its ETag."""
    reply = await ask(path, method)
    assert {name: reply.headers.get(name) for name in STRICT} == STRICT
    assert reply.headers["cache-control"] == ("no-cache" if "etag" in reply.headers else "no-store")


async def test_static_files_use_etag() -> None:
    """A request for a static file with its ETag gets 304 without a body."""
    first = await ask("/static/page.css")
    assert (first.status, first.headers["cache-control"]) == (200, "no-cache")
    for accept_encoding in ("", "gzip"):
        got = await ask("/static/page.css", accept_encoding=accept_encoding)
        again = await ask("/static/page.css", if_none_match=got.headers["etag"])
        assert (again.status, again.body) == (304, b"")
    headed = await ask("/static/page.css", "HEAD")
    assert (headed.headers, headed.body) == (first.headers, b"")


async def test_range_reply_is_not_compressed() -> None:
    """A reply to a range request is not compressed."""
    whole = await ask("/static/page.css")
    part = await ask("/static/page.css", range="bytes=0-999", accept_encoding="gzip")
    assert (part.status, part.body, "content-encoding" in part.headers) == (206, whole.body[:1000], False)


@pytest.mark.parametrize("path", ["/", "/api/v1/openapi.json", "/static/page.css"])
async def test_pages_and_json_are_gzipped(path: str) -> None:
    """Pages, JSON and static files are compressed if the client accepts gzip."""
    plain, zipped = await ask(path), await ask(path, accept_encoding="gzip")
    assert "accept-encoding" in plain.headers["vary"]
    assert "accept-encoding" in zipped.headers["vary"]
    assert (zipped.headers["content-encoding"], gzip.decompress(zipped.body)) == ("gzip", plain.body)
    assert int(zipped.headers["content-length"]) == len(zipped.body) < len(plain.body)


async def test_internal_error_hides_details() -> None:
    """An internal error returns 500 without the text of the exception, and reaches the server's log."""

    def fail() -> Readiness:
        raise RuntimeError("secret")

    sent: list[Any] = []
    with pytest.raises(RuntimeError):  # The server logs the error.
        await stage.ask(make_app(readiness=fail), "/readyz", sent=sent)
    start, body = sent
    assert (start["status"], json.loads(body["body"])) == (500, {"error": "this failed; the log says how"})
    assert STRICT.items() <= {name.decode(): value.decode() for name, value in start["headers"]}.items()


async def test_websocket_is_closed() -> None:
    """A WebSocket connection is closed at once."""
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    scope: Any = {"type": "websocket", "path": "/", "headers": [], "query_string": b"", "client": ("10.0.0.9", 1)}
    await make_app()(scope, receive, send)
    assert [event["type"] for event in sent] == ["websocket.close"]


# The application, served.


def fetch(port: int, *requests: tuple[str, str, dict[str, str]]) -> list[Reply]:
    """Sends requests over one connection and blocks. Returns the replies."""
    replies = []
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=GIVE_UP_SECONDS)) as connection:
        for method, path, headers in requests:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            replies.append(Reply(response.status, names, response.read()))
    return replies


async def start(nursery: trio.Nursery, app: ASGIApp, host: str = "127.0.0.1") -> int:
    bound: tuple[str, int] = await nursery.start(serve_admin, app, listen(Address(host, 0))[0])
    assert bound[0] == host
    assert bound[1] > 0
    return bound[1]


async def test_served_app_answers_real_requests(nursery: trio.Nursery) -> None:
    """The served application answers several requests over one real connection."""

    async def reload() -> ReloadOutcome:
        return ReloadOutcome(True, [])

    port = await start(nursery, make_app(padding=5000, reload=reload))
    plain, zipped, headed, ready, lost, posted, reloaded = await trio.to_thread.run_sync(
        fetch,
        port,
        ("GET", "/metrics", {"Accept": "application/openmetrics-text;version=1.0.0"}),
        ("GET", "/metrics", {"Accept-Encoding": "gzip"}),
        ("HEAD", "/metrics", {}),
        ("GET", "/readyz?verbose", {}),
        ("GET", "/nowhere", {}),
        ("POST", "/metrics", {}),
        ("POST", "/-/reload", {}),
    )
    assert plain.body.endswith(b"scrapes 1.0\n")
    assert len(zipped.body) < 1000
    assert b"scrapes 2.0" in gzip.decompress(zipped.body)
    assert (headed.status, headed.body) == (200, b"")
    assert int(headed.headers["content-length"]) > 5000
    assert [reply.status for reply in (ready, lost, posted, reloaded)] == [200, 404, 405, 200]
    assert "server" not in ready.headers
    nursery.cancel_scope.cancel()


async def test_concurrent_scrapes_are_separate(nursery: trio.Nursery) -> None:
    """Ten concurrent scrapes each get metrics of their own."""
    port = await start(nursery, make_app())
    bodies = []

    async def scrape() -> None:
        (reply,) = await trio.to_thread.run_sync(fetch, port, ("GET", "/metrics", {}))
        bodies.append(reply.body)

    async with trio.open_nursery() as scrapers:
        for _ in range(10):
            scrapers.start_soon(scrape)
    assert len(set(bodies)) == 10
    nursery.cancel_scope.cancel()


async def test_port_closes_on_cancellation() -> None:
    """The admin port refuses connections after the server is cancelled."""
    async with trio.open_nursery() as nursery:
        port = await start(nursery, make_app())
        nursery.cancel_scope.cancel()
    with pytest.raises(ConnectionRefusedError):
        await trio.to_thread.run_sync(fetch, port, ("GET", "/healthz", {}))


async def test_ipv6(nursery: trio.Nursery) -> None:
    if not socket.has_ipv6:
        return
    port = await start(nursery, make_app(), "::1")
    stream = await trio.open_tcp_stream("::1", port)
    async with stream:
        await stream.send_all(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert await stream.receive_some() != b""
    nursery.cancel_scope.cancel()


async def test_requests_are_not_logged(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Requests to the admin port write no log lines."""
    with caplog.at_level(logging.INFO):
        port = await start(nursery, make_app())
        await trio.to_thread.run_sync(fetch, port, ("GET", "/metrics", {}), ("GET", "/nowhere", {}))
        nursery.cancel_scope.cancel()
    assert caplog.record_tuples == []
    assert capfd.readouterr() == ("", "")


async def test_garbage_leaves_other_clients_alone(nursery: trio.Nursery) -> None:
    """After garbage on other connections, the server answers the next client."""
    port = await start(nursery, make_app())
    for garbage in (b"\x00\x00\x00\x10" + bytes(16), b"GET\r\n\r\n", b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: "):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(garbage)
        await stream.aclose()
    (reply,) = await trio.to_thread.run_sync(fetch, port, ("GET", "/healthz", {}))
    assert reply.status == 200
    nursery.cancel_scope.cancel()


async def test_failing_source_fails_one_request(nursery: trio.Nursery) -> None:
    """A failing source returns 500 for its own request and logs one line. The next request succeeds."""

    def fail() -> Readiness:
        raise RuntimeError("no idea")

    port = await start(nursery, make_app(readiness=fail))
    with capture_logs() as lines:
        (failed,) = await trio.to_thread.run_sync(fetch, port, ("GET", "/readyz", {}))
        (reply,) = await trio.to_thread.run_sync(fetch, port, ("GET", "/healthz", {}))
    assert (failed.status, reply.status) == (500, 200)
    assert [(line["task"], str(line["exc_info"])) for line in lines] == [("admin", "no idea")]
    nursery.cancel_scope.cancel()


async def test_stalled_reader_does_not_delay_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that stops reading does not block the shutdown."""
    monkeypatch.setattr(http_server, "STALLED_READER_MS", 300)
    with trio.socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        async with trio.open_nursery() as nursery:
            port = await start(nursery, make_app(padding=20_000_000))
            await client.connect(("127.0.0.1", port))
            await client.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await client.recv(100) != b""
            nursery.cancel_scope.cancel()
