"""The admin port: metrics, health, a first look at the groups and the reload, over HTTP.

Owns: what each path answers, and the listening socket. Must not know: Kafka connections, nor how metrics
and views are made. Read-only, but for the reload: it has the operator's own file read again.
"""

import errno
import gzip
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from hypercorn.typing import ASGIFramework, ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from group_sidecar.coordinator.views import GroupView, Snapshot
from group_sidecar.metrics.collector import exposition, merge
from group_sidecar.proxy.reloading import Outcome

Readiness = Mapping[str, Mapping[str, bool]]
"""Broker -> what it takes to be ready -> whether it is so."""
Standings = Mapping[str, Mapping[str, object]]
"""Broker -> how far its log was read; for people, and no part of being ready."""
Timeline = Sequence[Mapping[str, object]]
"""What happened to a group, in the order in which it did."""

STALLED_READER_MS = 10_000
"""A client that takes nothing for so long is cut off, so that it can neither hold a reply's memory nor a shutdown."""

_JSON = "application/json"
_log = logging.getLogger("group_sidecar.admin.http")


class _Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str = _JSON
    headers: tuple[tuple[str, str], ...] = ()


class _Asked(NamedTuple):
    """A request: headers by lower-case name, and the query's values by name."""

    headers: Mapping[str, str]
    query: Mapping[str, list[str]]


_Page = Callable[[_Asked], Awaitable[_Answer]]


class _Route(NamedTuple):
    page: _Page
    methods: tuple[str, ...] = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class _Collected:
    """Families of one moment, which another thread may encode."""

    families: list[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


def admin_app(
    *,
    registry: Collector,
    readiness: Callable[[], Readiness],
    snapshots: Callable[[], Iterable[Snapshot]],
    reload: Callable[[], Awaitable[Outcome]],
    standings: Callable[[], Standings] = dict,
    timeline: Callable[[str], Timeline | None] = lambda _: None,
) -> ASGIFramework:
    """The ASGI application of the admin port.

    Args:
        registry: what ``/metrics`` shows.
        readiness: asked by ``/readyz``; ready when there is a broker and everything is so for each.
        snapshots: the copies of the coordinators, for ``/api/v1/groups``.
        reload: what ``POST /-/reload`` does.
        standings: what ``/readyz`` tells of logs beside that.
        timeline: what is recorded of a group, the newest last, for ``/api/v1/timeline``; None where nothing is.
    """
    pages = _Pages(registry, readiness, snapshots, reload, standings, timeline)
    routes = {
        "/metrics": _Route(pages.metrics),
        "/healthz": _Route(pages.healthz),
        "/readyz": _Route(pages.readyz),
        "/api/v1/groups": _Route(pages.groups),
        "/api/v1/timeline": _Route(pages.group_timeline),
        "/-/reload": _Route(pages.reloaded, ("POST",)),
    }

    async def app(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] == "http":
            await _send(await _respond(routes, scope), send, with_body=scope["method"] != "HEAD")
        elif scope["type"] == "lifespan":
            await _live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000, "reason": None})

    return app


@dataclass(frozen=True, slots=True)
class _Pages:
    """What stands at each path."""

    registry: Collector
    readiness: Callable[[], Readiness]
    snapshots: Callable[[], Iterable[Snapshot]]
    reload: Callable[[], Awaitable[Outcome]]
    standings: Callable[[], Standings]
    timeline: Callable[[str], Timeline | None]

    async def metrics(self, asked: _Asked) -> _Answer:
        # Collected here, where nothing moves meanwhile; encoded elsewhere, so that frames need not wait for it.
        collected = _Collected(list(self.registry.collect()))
        zipped = _accepts_gzip(asked.headers.get("accept-encoding", ""))
        body, content_type = await trio.to_thread.run_sync(_encode, asked.headers.get("accept", ""), collected, zipped)
        encoding = (("content-encoding", "gzip"),) if zipped else ()
        return _Answer(200, body, content_type, (("vary", "accept, accept-encoding"), *encoding))

    async def healthz(self, asked: _Asked) -> _Answer:
        return _json(200, {"status": "ok"})

    async def readyz(self, asked: _Asked) -> _Answer:
        brokers = self.readiness()
        ready = bool(brokers) and all(all(conditions.values()) for conditions in brokers.values())
        told = {"ready": ready, "brokers": brokers}
        if standings := self.standings():
            told["offsets_log"] = standings
        return _json(200 if ready else 503, told)

    async def groups(self, asked: _Asked) -> _Answer:
        return _json(200, {"groups": [_told(group) for group in merge(self.snapshots()).groups]})

    async def group_timeline(self, asked: _Asked) -> _Answer:
        named = asked.query.get("group", [])
        if len(named) != 1:
            return _json(400, {"error": "name one group: ?group=GROUP, percent-encoded"})
        (group_id,) = named
        told = self.timeline(group_id)
        if told is None and not self._knows(group_id):
            return _json(404, {"error": "no such group", "group": group_id})
        return _json(200, {"group": group_id, "timeline": told or []})

    def _knows(self, group_id: str) -> bool:
        return any(group.group_id == group_id for snapshot in self.snapshots() for group in snapshot.groups)

    async def reloaded(self, asked: _Asked) -> _Answer:
        # Prometheus says 500 to a wrong file. Here that is for pages that fail; this one works, and the file does not.
        applied, lines = await self.reload()
        return _json(200, {"changed": lines}) if applied else _json(400, {"error": "not reloaded", "lines": lines})


async def _respond(routes: Mapping[str, _Route], scope: HTTPScope) -> _Answer:
    route = routes.get(scope["path"])
    if route is None:
        return _json(404, {"error": "not found", "paths": list(routes)})
    if scope["method"] not in route.methods:
        return _json(405, {"error": "method not allowed"})._replace(headers=(("allow", ", ".join(route.methods)),))
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    query = parse_qs(scope["query_string"].decode("utf-8", "replace"), keep_blank_values=True)
    return await route.page(_Asked(headers, query))


async def serve_admin(
    app: ASGIFramework,
    host: str,
    port: int,
    *,
    task_status: "trio.TaskStatus[tuple[str, int]]" = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves `app` over HTTP until cancelled. Reports the bound (host, port); port 0 picks a free one.

    Raises:
        OSError: the address cannot be had; the message names it.
    """
    listener = await _listen(host, port)
    bound = listener.getsockname()[:2]
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]  # Hypercorn owns it from here.
    config.accesslog = None
    config.errorlog = _quiet_log()
    config.include_server_header = False
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve, app, config, mode="asgi"))
        task_status.started(bound)


async def _listen(host: str, port: int) -> socket.socket:
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Accepted sockets inherit it. Hypercorn shields its sends from cancellation.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_READER_MS)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(error.errno or errno.EADDRNOTAVAIL, f"admin port {host}:{port}: {reason}") from error
    return listener


def _quiet_log() -> logging.Logger:
    """Where Hypercorn's warnings and errors go. Its lines about starting up are left out: the proxy has its own."""
    _log.setLevel(logging.WARNING)
    return _log


async def _live(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    while (await receive())["type"] == "lifespan.startup":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})


async def _send(answer: _Answer, send: ASGISendCallable, *, with_body: bool) -> None:
    headers = [
        ("content-type", answer.content_type),
        ("content-length", str(len(answer.body))),
        ("cache-control", "no-store"),
        *answer.headers,
    ]
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    await send({"type": "http.response.body", "body": answer.body if with_body else b"", "more_body": False})


def _json(status: int, content: Mapping[str, Any]) -> _Answer:
    return _Answer(status, json.dumps(content).encode() + b"\n")


def _encode(accept: str, collected: Collector, zipped: bool) -> tuple[bytes, str]:
    body, content_type = exposition(accept, collected)
    return (gzip.compress(body, compresslevel=1, mtime=0) if zipped else body), content_type


def _accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header allows gzip (RFC 9110, 12.5.3)."""
    for offer in accept_encoding.lower().split(","):
        coding, *parameters = (part.strip() for part in offer.split(";"))
        if coding == "gzip":
            return not any(parameter in ("q=0", "q=0.0", "q=0.00", "q=0.000") for parameter in parameters)
    return False


def _told(group: GroupView) -> dict[str, object]:
    return {
        "group": group.group_id,
        "protocol": group.kind,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.protocol,
        "generation": group.generation,
        "members": len(group.members),
        "members_known": group.roster_known,
        "committed_partitions": len(group.offsets),
        "last_rebalance_at": group.last_rebalance_at,
        "lacking": group.lacking,
        "offsets_lacking": group.offsets_lacking,
    }
