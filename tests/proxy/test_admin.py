"""The admin port: what each path answers, and that it is really served."""

import gzip
import http.client
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import pytest
import trio
from hypercorn.typing import ASGIFramework
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from group_sidecar.coordinator.views import CommittedOffset, GroupState, GroupView, Lacking, Snapshot
from group_sidecar.proxy import admin
from group_sidecar.proxy.admin import Readiness, admin_app, serve_admin
from group_sidecar.proxy.reloading import Outcome

READY: Readiness = {"127.0.0.1:9092": {"listening": True, "upstream": True}}
GROUPS = (
    GroupView(group_id="orders", state=GroupState.STABLE, generation=3, offsets={("sales", 0): CommittedOffset(1)}),
    GroupView(group_id="cold", state=GroupState.EMPTY, lacking=Lacking.COLD),
)


class Scrapes:
    """A collector with one gauge: how often it was asked."""

    def __init__(self, padding: int = 0) -> None:
        self.count = 0
        self.padding = "x" * padding

    def collect(self) -> Iterable[Metric]:
        self.count += 1
        yield GaugeMetricFamily("scrapes", "How often." + self.padding, value=self.count)


class Reply(NamedTuple):
    """What came back; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


async def no_reload() -> Outcome:
    raise AssertionError("nobody asked for it")


def make_app(
    *,
    readiness: Callable[[], Readiness] = lambda: READY,
    padding: int = 0,
    reload: Callable[[], Awaitable[Outcome]] = no_reload,
) -> ASGIFramework:
    registry = CollectorRegistry()
    registry.register(Scrapes(padding))
    return admin_app(registry=registry, readiness=readiness, snapshots=lambda: [Snapshot(groups=GROUPS)], reload=reload)


async def ask(path: str, method: str = "GET", app: ASGIFramework | None = None, **headers: str) -> Reply:
    """Asks the application without a server."""
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope: Any = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": raw}
    await (app or make_app())(scope, receive, send)
    start, body = sent
    assert (start["type"], body["type"], body["more_body"]) == ("http.response.start", "http.response.body", False)
    answered = {name.decode(): value.decode() for name, value in start["headers"]}
    return Reply(start["status"], answered, body["body"])


# The application.


async def test_metrics_in_the_text_format() -> None:
    reply = await ask("/metrics")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert [family.name for family in parse_text(reply.body.decode())] == ["scrapes"]


async def test_metrics_in_openmetrics() -> None:
    reply = await ask("/metrics", accept="application/openmetrics-text;version=1.0.0")
    assert reply.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    families = parse_openmetrics(reply.body.decode())  # type: ignore[no-untyped-call]
    assert [family.name for family in families] == ["scrapes"]


@pytest.mark.parametrize("accept_encoding", ["gzip", "deflate, GZIP;q=0.5", "gzip; q=1.0, *;q=0", "br,gzip"])
async def test_metrics_compressed(accept_encoding: str) -> None:
    app = make_app(padding=1000)
    reply = await ask("/metrics", app=app, accept_encoding=accept_encoding)
    assert reply.headers["content-encoding"] == "gzip"
    assert int(reply.headers["content-length"]) == len(reply.body) < 500
    assert b"scrapes 1.0" in gzip.decompress(reply.body)


@pytest.mark.parametrize("accept_encoding", ["", "identity", "gzip;q=0", "br, gzip; q=0.0", "xgzip"])
async def test_metrics_not_compressed(accept_encoding: str) -> None:
    reply = await ask("/metrics", accept_encoding=accept_encoding)
    assert "content-encoding" not in reply.headers
    assert reply.headers["vary"] == "accept, accept-encoding"
    assert b"scrapes 1.0" in reply.body


async def test_each_scrape_collects_once() -> None:
    app = make_app()
    assert b"scrapes 1.0" in (await ask("/metrics", app=app)).body
    assert b"scrapes 2.0" in (await ask("/metrics", app=app)).body


async def test_healthy_even_when_not_ready() -> None:
    reply = await ask("/healthz", app=make_app(readiness=dict))
    assert (reply.status, reply.content) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("brokers", "status"),
    [
        ({"a:1": {"listening": True, "upstream": True}}, 200),
        ({"a:1": {"listening": True, "upstream": True}, "b:2": {"listening": True, "upstream": False}}, 503),
        ({}, 503),
    ],
)
async def test_readiness_says_what_is_missing_per_broker(brokers: Readiness, status: int) -> None:
    reply = await ask("/readyz", app=make_app(readiness=lambda: brokers))
    assert (reply.status, reply.content) == (status, {"ready": status == 200, "brokers": brokers})


async def test_readiness_tells_of_the_log_but_does_not_depend_on_it() -> None:
    log = {"a:1": {"read": False, "trouble": "not read yet"}}
    app = admin_app(
        registry=CollectorRegistry(),
        readiness=lambda: READY,
        snapshots=list,
        reload=no_reload,
        standings=lambda: log,
    )
    reply = await ask("/readyz", app=app)
    assert (reply.status, reply.content) == (200, {"ready": True, "brokers": READY, "offsets_log": log})


async def test_groups() -> None:
    cold, orders = (await ask("/api/v1/groups")).content["groups"]
    assert orders == {
        "group": "orders",
        "protocol": "classic",
        "state": "Stable",
        "protocol_type": "",
        "assignor": "",
        "generation": 3,
        "members": 0,
        "members_known": False,
        "committed_partitions": 1,
        "last_rebalance_at": None,
        "lacking": None,
        "offsets_lacking": None,
    }
    assert (cold["group"], cold["lacking"]) == ("cold", "cold")


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metric", "/api/v1/groups/orders", "//metrics", "/\xff"])
async def test_unknown_paths(path: str) -> None:
    reply = await ask(path)
    assert (reply.status, reply.content["error"]) == (404, "not found")
    assert "/metrics" in reply.content["paths"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get"])
async def test_other_methods(method: str) -> None:
    reply = await ask("/metrics", method)
    assert (reply.status, reply.headers["allow"], reply.content) == (405, "GET, HEAD", {"error": "method not allowed"})


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/api/v1/groups", "/nowhere"])
async def test_head_says_what_get_would(path: str) -> None:
    got, headed = await ask(path), await ask(path, "HEAD")
    assert headed.body == b""
    assert (headed.status, headed.headers) == (got.status, got.headers)
    assert int(got.headers["content-length"]) == len(got.body)


@pytest.mark.parametrize(
    ("outcome", "status", "content"),
    [
        (Outcome(True, ["policies.a: 1 -> 2"]), 200, {"changed": ["policies.a: 1 -> 2"]}),
        (Outcome(True, []), 200, {"changed": []}),
        (Outcome(False, ["x: y", "z: w"]), 400, {"error": "not reloaded", "lines": ["x: y", "z: w"]}),
    ],
)
async def test_a_reload_is_answered_with_what_came_of_it(outcome: Outcome, status: int, content: Any) -> None:
    async def reload() -> Outcome:
        return outcome

    reply = await ask("/-/reload", "POST", app=make_app(reload=reload))
    assert (reply.status, reply.content) == (status, content)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "post"])
async def test_only_a_post_reloads(method: str) -> None:
    reply = await ask("/-/reload", method)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")


# The application, served.


def fetch(port: int, *requests: tuple[str, str, dict[str, str]]) -> list[Reply]:
    """Sends requests over one connection, blocking."""
    replies = []
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        for method, path, headers in requests:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            replies.append(Reply(response.status, names, response.read()))
    return replies


async def start(nursery: trio.Nursery, app: ASGIFramework, host: str = "127.0.0.1") -> int:
    bound: tuple[str, int] = await nursery.start(partial(serve_admin, app, host, 0))
    assert bound[0] == host
    assert bound[1] > 0
    return bound[1]


async def test_a_real_scrape(nursery: trio.Nursery) -> None:
    async def reload() -> Outcome:
        return Outcome(True, [])

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
    assert plain.body.endswith(b"# EOF\n")
    assert len(zipped.body) < 1000
    assert b"scrapes 2.0" in gzip.decompress(zipped.body)
    assert (headed.status, headed.body) == (200, b"")
    assert int(headed.headers["content-length"]) > 5000
    assert [reply.status for reply in (ready, lost, posted, reloaded)] == [200, 404, 405, 200]
    assert "server" not in ready.headers
    nursery.cancel_scope.cancel()


async def test_many_scrapes_at_once(nursery: trio.Nursery) -> None:
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


async def test_the_port_is_closed_when_it_ends() -> None:
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


async def test_an_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"admin port 127\.0\.0\.1:{port}: Address already in use"):
            await serve_admin(make_app(), "127.0.0.1", port)


async def test_a_host_without_address_is_named() -> None:
    with pytest.raises(OSError, match=r"admin port 192\.0\.2\.1:0: Cannot assign requested address"):
        await serve_admin(make_app(), "192.0.2.1", 0)


async def test_nothing_is_logged_for_a_request(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO):
        port = await start(nursery, make_app())
        await trio.to_thread.run_sync(fetch, port, ("GET", "/metrics", {}), ("GET", "/nowhere", {}))
        nursery.cancel_scope.cancel()
    assert caplog.record_tuples == []
    assert capfd.readouterr() == ("", "")


async def test_garbage_harms_nobody_else(nursery: trio.Nursery) -> None:
    port = await start(nursery, make_app())
    for garbage in (b"\x00\x00\x00\x10" + bytes(16), b"GET\r\n\r\n", b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: "):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(garbage)
        await stream.aclose()
    (reply,) = await trio.to_thread.run_sync(fetch, port, ("GET", "/healthz", {}))
    assert reply.status == 200
    nursery.cancel_scope.cancel()


async def test_a_failing_source_is_an_error_of_that_request_only(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> Readiness:
        raise RuntimeError("no idea")

    port = await start(nursery, make_app(readiness=fail))
    (failed,) = await trio.to_thread.run_sync(fetch, port, ("GET", "/readyz", {}))
    (reply,) = await trio.to_thread.run_sync(fetch, port, ("GET", "/healthz", {}))
    assert (failed.status, reply.status) == (500, 200)
    assert "no idea" in caplog.text
    nursery.cancel_scope.cancel()


async def test_a_stalled_reader_does_not_hold_the_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "STALLED_READER_MS", 300)
    with trio.socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        async with trio.open_nursery() as nursery:
            port = await start(nursery, make_app(padding=20_000_000))
            await client.connect(("127.0.0.1", port))
            await client.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await client.recv(100) != b""
            nursery.cancel_scope.cancel()
