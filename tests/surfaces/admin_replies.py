"""The surface of the admin port's replies: JSON, errors, access, health, and the statuses for malformed HTTP."""

import json
from typing import Any

import trio
from starlette.types import ASGIApp

from group_sidecar.coordinator.model.views import GroupState, GroupView
from group_sidecar.proxy.admin.sources import Readiness
from group_sidecar.proxy.config.reload import ReloadOutcome
from group_sidecar.proxy.config.sections import AdminAccess
from tests.proxy.admin.api_client import COLD, LOG_ENDS, NEWER, ORDERS, names, recorded
from tests.proxy.admin.served_app import Reply, admin, ask, served
from tests.surfaces.texts import environment

ELSEWHERE = ("10.0.0.9", 40_000)
TOKEN = "secret"
BROWSER = "a browser"
SHOWN = ("content-type", "allow", "www-authenticate", "cache-control", "vary", "location")
STRICT = ("content-security-policy", "referrer-policy", "x-content-type-options", "x-frame-options")


def admin_replies() -> str:
    """Returns the replies to all requests of this module. The version of the distribution is left out."""
    with environment({}):
        return trio.run(_replies)


def admin_statuses() -> str:
    """Returns the status line of the reply to each malformed request."""
    with environment({}):
        return trio.run(_statuses)


async def _replies() -> str:
    parts = [*await _data(), *await _errors(), *await _access(), *await _health()]
    return "\n".join(parts)


async def _shown(app: ASGIApp, target: str, method: str = "GET", *, note: str = "", **given: Any) -> str:
    reply: Reply = await ask(app, target, method, **given)
    lines = [f"== {method} {target}{note and f' ({note})'}", f"status {reply.status}"]
    lines += [f"{name}: {reply.headers[name]}" for name in SHOWN if name in reply.headers]
    if reply.headers.get("content-type") == "application/json":
        content = reply.content
        if isinstance(content, dict) and "version" in content:
            content["version"] = "<version>"
        lines += json.dumps(content, indent=1, ensure_ascii=False).splitlines()
    elif note == BROWSER:
        lines += reply.body.decode().splitlines()
    return "\n".join(lines) + "\n"


def _groups(**others: Any) -> ASGIApp:
    given = {"recorder": recorded(), "log_ends": LOG_ENDS, "topic_names": names, **others}
    return admin((ORDERS, NEWER, COLD), **given)


async def _data() -> list[str]:
    """Requests each path under /api/v1/."""
    targets = ("groups", "group?group=orders", "group?group=newer", "offsets?group=orders", "timeline?group=orders")
    app = _groups()
    parts = [await _shown(app, f"/api/v1/{target}") for target in (*targets, "refusals", "status", "config")]
    return [*parts, await _shown(app, "/api/v1/why?group=orders&seconds=3600")]


async def _errors() -> list[str]:
    """Requests wrong paths, methods and parameters."""
    app = _groups(metrics=_metrics, reload=_reload)
    wrong = (
        *("groups?state=Gone", "groups?type=old", "groups?cause=x", "groups?sort=size", "groups?order=up"),
        *("groups?limit=0", "groups?limit=1001", "groups?limit=many", "groups?offset=-1", "groups?serach=a"),
        *("groups?limit=1&limit=2", "group", "group?group=absent", "group?name=orders", "offsets?group=absent"),
        *("timeline?group=absent", "why?group=absent", "why?group=orders&seconds=0", "why?group=orders&seconds=604801"),
        *("refusals?limit=0", "refusals?limit=501", "status?x=1", "nothing"),
    )
    parts = [await _shown(app, f"/api/v1/{target}") for target in wrong]
    parts += [await _shown(app, target) for target in ("/nowhere", "/metrics/")]
    parts += [await _shown(app, "/nowhere", note=BROWSER, accept="text/html")]
    for target in ("/metrics", "/api/v1/groups", "/-/reload", "/", "/healthz", "/api/v1/openapi.json"):
        parts += [
            await _shown(app, target, method) for method in ("PUT", "POST", "GET") if _is_included(target, method)
        ]
    parts.append(await _shown(app, "/group?group=absent", note="a page"))
    parts.append(await _shown(_groups(reload=_no_reload), "/-/reload", "POST", note="a wrong file"))
    strict = await ask(app, "/healthz")
    parts.append("".join(f"{name}: {strict.headers[name]}\n" for name in STRICT))
    return parts


def _is_included(target: str, method: str) -> bool:
    """Whether the surface contains the reply.

    The contents of some paths are left out. The other methods show the status of these paths.
    """
    return not (method == "GET" and target in ("/", "/api/v1/groups", "/api/v1/openapi.json"))


async def _access() -> list[str]:
    """Sends requests with and without the required access."""
    groups = [GroupView(group_id="orders", state=GroupState.STABLE)]
    open_port = admin(groups, AdminAccess(), metrics=_metrics)
    token_port = admin(groups, AdminAccess(token=TOKEN), metrics=_metrics)  # type: ignore[arg-type]
    guarded = admin(groups, AdminAccess(token=TOKEN, metrics="guarded"), metrics=_metrics)  # type: ignore[arg-type]
    certificate = admin(groups, AdminAccess.model_validate({"certificate_file": "a", "client_ca_file": "b"}))
    target = "/api/v1/groups"
    return [
        await _shown(open_port, target, note="from elsewhere", client=ELSEWHERE),
        await _shown(open_port, "/metrics", note="from elsewhere", client=ELSEWHERE),
        await _shown(open_port, target, note="through a proxy", x_forwarded_for="10.0.0.9"),
        await _shown(open_port, target, note="by another name", host="evil.example"),
        await _shown(open_port, "/-/reload", "POST", note="of another origin", origin="http://evil.example"),
        await _shown(token_port, target, note="without the token", client=ELSEWHERE),
        await _shown(token_port, target, note="with another token", client=ELSEWHERE, authorization="Bearer x"),
        await _shown(token_port, target, note="with the token", client=ELSEWHERE, authorization=f"Bearer {TOKEN}"),
        await _shown(token_port, target, note=BROWSER, client=ELSEWHERE, accept="text/html"),
        await _shown(guarded, "/metrics", note="guarded", client=ELSEWHERE),
        await _shown(guarded, "/healthz", note="guarded", client=ELSEWHERE),
        await _shown(certificate, target, note="without a certificate", client=ELSEWHERE),
    ]


async def _health() -> list[str]:
    """Requests /healthz, /livez, /startupz and /readyz in several states."""
    half: Readiness = {"a:1": {"listening": True, "upstream": True}, "b:2": {"listening": True, "upstream": False}}
    log = {"a:1": {"read": False, "trouble": "not read yet"}}
    return [
        await _shown(admin(), "/healthz"),
        await _shown(admin(), "/livez"),
        await _shown(admin(unusable_listeners=lambda: ["ONE"]), "/livez", note="a port is closed"),
        await _shown(admin(probed=lambda: {"a:1": True}), "/startupz"),
        await _shown(admin(probed=lambda: {"a:1": False}), "/startupz", note="not probed"),
        await _shown(admin(), "/readyz"),
        await _shown(admin(readiness=lambda: half), "/readyz", note="half"),
        await _shown(admin(readiness=dict), "/readyz", note="no broker"),
        await _shown(admin(log_statuses=lambda: log), "/readyz", note="the log is not read"),
    ]


async def _metrics(accept: str) -> tuple[bytes, str]:
    return b"up 1\n", "text/plain"


async def _reload() -> ReloadOutcome:
    return ReloadOutcome(True, ["policies.group_max_size.limit: 1 -> 2"])


async def _no_reload() -> ReloadOutcome:
    return ReloadOutcome(False, ["limits.groups: must be at least 1"])


_HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
_MALFORMED = {
    "good": _HEAD + b"\r\n",
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "zeros": bytes(16),
    "no version": b"GET /healthz\r\n\r\n",
    "version 2.0": b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "version 0.9": b"GET /healthz HTTP/0.9\r\nHost: localhost\r\n\r\n",
    "long head": _HEAD + b"X: " + b"x" * 20_000 + b"\r\n\r\n",
    "long body": b"POST /-/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70_000,
    "chunks": b"POST /-/reload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": _HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "upgrade": _HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
}


async def _statuses() -> str:
    lines = []
    async with served(admin()) as (host, port):
        for name, sent in _MALFORMED.items():
            async with await trio.open_tcp_stream(host, port) as stream:
                await stream.send_all(sent)
                await stream.send_eof()
                answer = b"".join([data async for data in stream])
            status, *headers = answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")
            closes = "connection: close" in map(str.lower, headers)
            lines.append(f"{name}: {status}{', closed' if closes else ''}")
    return "\n".join(lines) + "\n"
