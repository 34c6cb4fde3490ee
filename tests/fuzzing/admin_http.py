"""Target: the admin port's HTTP server with the real application, over streams in memory.

An input is a size of pieces and the bytes of a client. h11 parses HTTP. The sidecar's own code checks the limits, the
paths and the parameters.

- No exception leaves the connection, and no request fails with status 500.
- The replies are valid HTTP, and at most as many as requests were sent.
- The connection ends.
"""

from collections.abc import Iterator
from functools import cache

import h11
import trio
from starlette.types import ASGIApp
from trio.testing import memory_stream_pair

from group_sidecar.proxy.admin.http_connection import HttpConnection
from group_sidecar.proxy.admin.json_api import ENDPOINTS
from group_sidecar.proxy.config.reload import ReloadOutcome
from group_sidecar.proxy.config.sections import AdminAccess
from tests.fuzzing.input_bytes import pieces
from tests.fuzzing.log_lines import logged_errors
from tests.fuzzing.target import require
from tests.proxy.admin.attacks import ATTACKS
from tests.proxy.admin.served_app import admin
from tests.proxy.dataplane.playbook import EPOCH, complete_state, stable_group

MAX_REPLIES = 400
MAX_SECONDS = 60
"""Maximum time of a connection. The client ends its stream at once, so the connection ends without any timeout."""
SMALLEST_REQUEST = 14
PARAMETERS = sorted({name for endpoint in ENDPOINTS for name in endpoint.query.model_fields} | {"page", "hour"})
PATHS = [endpoint.path for endpoint in ENDPOINTS]
PATHS += ["/", "/group", "/refusals", "/status", "/metrics", "/-/reload", "/healthz", "/livez", "/readyz", "/startupz"]
PATHS += ["/api/v1/openapi.json", "/static/page.css"]


def check(data: bytes) -> object:
    """Serves one connection."""
    with logged_errors() as errors:
        statuses = trio.run(_serve, data[:1], data[1:])
    require(not errors, f"an error is logged: {errors}")
    return statuses


async def _serve(size: bytes, content: bytes) -> object:
    client, server = memory_stream_pair()
    failures: list[Exception] = []
    connection = HttpConnection(
        _app(),
        server,
        client=("127.0.0.1", 50_000),
        server=("127.0.0.1", 9464),
        scheme="http",
        stalled_seconds=10.0,
        failed=failures.append,
    )
    received = bytearray()

    async def run() -> None:
        try:
            await connection.run()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        await server.aclose()

    async def read() -> None:
        async for chunk in client:
            received.extend(chunk)

    with trio.move_on_after(MAX_SECONDS) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            nursery.start_soon(read)
            try:
                for chunk in pieces(content, 64 * size[0] if size else 0):
                    await client.send_all(chunk)
                await client.send_stream.aclose()
            except trio.BrokenResourceError:
                pass
    require(not scope.cancelled_caught, "the connection does not end")
    require(not failures, f"a request fails: {failures!r}")
    statuses = _statuses(bytes(received), content)
    require(500 not in statuses, "an answer of 500")
    require(len(statuses) <= 1 + len(content) // SMALLEST_REQUEST, "more replies than requests")
    return statuses


@cache
def _app() -> ASGIApp:
    """The application, with a group that has members."""
    state = complete_state()
    stable_group(state, "m1", "m2")
    view = state.copy.manager.view("g", EPOCH + 100.0)
    return admin([view], AdminAccess(), metrics=_metrics, reload=_reload)


async def _metrics(accept: str) -> tuple[bytes, str]:
    return accept.encode("utf-8", "replace")[:20], "text/plain"


async def _reload() -> ReloadOutcome:
    return ReloadOutcome(True, [])


def _statuses(received: bytes, sent: bytes) -> list[int]:
    """Returns the status of each reply. Raises if the replies are not valid HTTP."""
    statuses: list[int] = []
    while received and len(statuses) < MAX_REPLIES:
        parser = h11.Connection(h11.CLIENT)
        method = "HEAD" if b"HEAD" in sent and not _has_body(received) else "GET"
        parser.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        parser.send(h11.EndOfMessage())
        parser.receive_data(received)
        while not isinstance(event := parser.next_event(), h11.EndOfMessage):
            require(event is not h11.NEED_DATA, "a reply is cut off")
            if isinstance(event, h11.Response | h11.InformationalResponse):
                statuses.append(event.status_code)
        received = bytes(parser.trailing_data[0])
    return statuses


def _has_body(received: bytes) -> bool:
    """Whether the bytes after the first head are a body, and not the next head or the end."""
    rest = received.partition(b"\r\n\r\n")[2]
    return bool(rest) and not rest.startswith(b"HTTP/")


def words() -> Iterator[bytes]:
    """Methods, paths, parameters and headers."""
    yield from (path.encode() for path in PATHS)
    yield from (f"{name}=".encode() for name in PARAMETERS)
    yield from (
        b"GET ",
        b"HEAD ",
        b"POST ",
        b" HTTP/1.1\r\n",
        b"host: x\r\n",
        b"content-length: 3\r\n",
        b"%00",
        b"%ff",
        b"&",
    )


def seeds() -> Iterator[bytes]:
    """A request for each path, each with each parameter, and the known attacks."""
    for path in PATHS:
        names = [f"{path}?group=g&{name}=1" for name in PARAMETERS if name != "group"]
        for target in (path, f"{path}?group=g", f"{path}?group=%ff%00", *names):
            yield f"\0GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    for attack in ATTACKS.values():
        if len(attack) < 4_000:
            yield b"\0" + attack
            yield b"\1" + attack
