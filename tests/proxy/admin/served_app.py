"""An admin port with fake sources."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import trio
from starlette.types import ASGIApp

from group_sidecar.coordinator.model.views import GroupView
from group_sidecar.metrics.collector import LastReload
from group_sidecar.metrics.flight_recorder import FlightRecorder
from group_sidecar.metrics.group_snapshot import GroupSnapshot, group_snapshot
from group_sidecar.proxy.admin.app import admin_app
from group_sidecar.proxy.admin.http_server import serve_admin
from group_sidecar.proxy.admin.sources import AdminSources, Readiness, SidecarFigures
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.config.reload import ReloadOutcome
from group_sidecar.proxy.config.sections import AdminAccess
from group_sidecar.proxy.listeners.ports import listen
from group_sidecar.proxy.runtime.shared_snapshot import run_in_slices
from tests.proxy.fakes import ANY_PORT

NOW = 1_795_000_000.0
"""2026-11-18T09:46:40Z."""
LEAST = {"listen": "127.0.0.1:9092", "upstream": "broker:9092", "sidecar_id": "a:1"}
READY: Readiness = {"127.0.0.1:9092": {"listening": True, "upstream": True}}


class Reply(NamedTuple):
    """A reply. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


async def no_metrics(accept: str) -> tuple[bytes, str]:
    raise AssertionError("the test expects no request of metrics")


async def no_reload() -> ReloadOutcome:
    raise AssertionError("the test expects no reload")


def figures() -> SidecarFigures:
    return SidecarFigures(
        sidecar_id="a:1",
        mode="sidecar",
        started_at=NOW - 60,
        connections=3,
        held_bytes=10,
        series_suppressed=0,
        last_reload=LastReload(successful=True, succeeded_at=NOW - 60),
    )


def sources(groups: Iterable[GroupView] = (), recorder: FlightRecorder | None = None, **others: Any) -> AdminSources:
    """Returns sources with these values, and defaults for all others. `log_ends` are taken as seen at NOW."""
    views = {view.group_id: view for view in groups}
    max_members = others.get("max_members", lambda _: None)
    ends = {where: (end, NOW) for where, end in others.pop("log_ends", {}).items()}

    class CoordinatorCopy:
        """The copy of a broker that has these groups."""

        group_metadata_cache = views
        log_ends = ends

        def existing(self, group_id: str, now: float) -> GroupView | None:
            return views.get(group_id)

    async def snapshot() -> GroupSnapshot:
        return await run_in_slices(group_snapshot([CoordinatorCopy()], NOW, max_members))

    given: dict[str, Any] = {
        "metrics": no_metrics,
        "readiness": lambda: READY,
        "log_statuses": dict,
        "reload": no_reload,
        "config": lambda: Config.model_validate(LEAST),
        "epoch": lambda: NOW,
        "group_snapshot": snapshot,
        "find_group": views.get,
        "coordinator": lambda _: None,
        "max_members": max_members,
        "log_ends": lambda: [ends],
        "topic_names": lambda _: {},
        "recorder": recorder or FlightRecorder(1 << 20),
        "figures": figures,
    }
    return AdminSources(**{**given, **others})


async def ask(
    app: ASGIApp,
    target: str,
    method: str = "GET",
    *,
    client: tuple[str, int] | None = ("127.0.0.1", 50_000),
    sent: list[Any] | None = None,
    **headers: str,
) -> Reply:
    """Sends a request to the application without a server, from the address `client`. Returns the reply.

    In `headers`, an underscore stands for a hyphen.

    `sent` receives the application's events, for tests in which the application fails at the end.
    """
    sent = [] if sent is None else sent

    async def send(event: Any) -> None:
        sent.append(event)

    to_come = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        for event in to_come:
            return event
        return await trio.sleep_forever()  # The client keeps its connection open.

    path, _, query = target.partition("?")
    named = {"host": "localhost:9091", **headers}
    scope: Any = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items() if value],
        "client": client,
        "server": ("127.0.0.1", 9091),
        "extensions": {},
    }
    await app(scope, receive, send)
    start, body = sent
    assert (start["type"], body["type"], body.get("more_body", False)) == (
        "http.response.start",
        "http.response.body",
        False,
    )
    answered = {name.decode(): value.decode() for name, value in start["headers"]}
    assert len(answered) == len(start["headers"]), "the reply has a header twice"
    return Reply(start["status"], answered, body["body"])


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[tuple[str, int]]:
    """Serves the application on a free port until the block ends. Yields host and port."""
    async with trio.open_nursery() as nursery:
        yield await nursery.start(serve_admin, app, listen(ANY_PORT)[0])
        nursery.cancel_scope.cancel()


def admin(
    groups: Iterable[GroupView] = (), access: AdminAccess | None = None, host: str = "127.0.0.1", **others: Any
) -> ASGIApp:
    """Returns the application. `groups` and `others` as in `sources`."""
    return admin_app(sources(groups, **others), access or AdminAccess(), host)
