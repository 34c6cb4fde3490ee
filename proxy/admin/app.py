"""The ASGI application of the admin port: routes, metrics, the reload, and unknown paths and methods.

`health` contains the routes for orchestrators. `json_api` and `pages` contain the routes for groups.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from group_sidecar.proxy.admin import openapi
from group_sidecar.proxy.admin.access import AccessGuard
from group_sidecar.proxy.admin.group_data import GroupData
from group_sidecar.proxy.admin.health import Health
from group_sidecar.proxy.admin.http_replies import ReplyMiddleware, problem
from group_sidecar.proxy.admin.json_api import api_routes
from group_sidecar.proxy.admin.pages import page_routes
from group_sidecar.proxy.admin.sources import AdminSources
from group_sidecar.proxy.admin.tls import has_client_certificate
from group_sidecar.proxy.config.sections import AdminAccess


def admin_app(sources: AdminSources, access: AdminAccess, host: str) -> ASGIApp:
    """Returns the ASGI application of the admin port.

    Args:
        sources: the data sources.
        access: the access rules.
        host: the configured host of the port.
    """
    data = GroupData(sources)
    routes: list[BaseRoute] = [
        *Operations(sources).routes(),
        *Health(sources).routes(),
        *api_routes(data),
        Route(openapi.PATH, _described(openapi.description())),
        *page_routes(data, sources.epoch),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refused(routes), Exception: _failed})
    app.router.redirect_slashes = False
    return ReplyMiddleware(AccessGuard(app, access, host, has_client_certificate, sources.counters))


class Operations:
    """The endpoints for Prometheus and operators."""

    def __init__(self, sources: AdminSources) -> None:
        self._sources = sources

    def routes(self) -> list[BaseRoute]:
        """Returns a route for each endpoint."""
        return [
            Route("/metrics", self.metrics),
            Route("/-/reload", self.reload, methods=["POST"]),
        ]

    async def metrics(self, request: Request) -> Response:
        body, content_type = await self._sources.metrics(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type, "vary": "accept"})

    async def reload(self, request: Request) -> Response:
        # For an invalid file Prometheus replies 500. Here 500 only means that the endpoint itself failed.
        applied, lines = await self._sources.reload()
        return JSONResponse({"changed": lines}) if applied else problem(request, 400, "not reloaded", lines=lines)


def _described(description: dict[str, Any]) -> Callable[[Request], Awaitable[Response]]:
    async def described(_: Request) -> Response:
        return JSONResponse(description)

    return described


def _refused(routes: Iterable[BaseRoute]) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Returns the handler of Starlette's errors about paths and methods, which replies in the form of `problem`."""
    paths = [route.path for route in routes if isinstance(route, Route)]

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            return problem(request, 404, "not found", paths=paths)
        reply = problem(request, error.status_code, error.detail.lower())
        if allowed := Headers(error.headers).get("allow"):
            reply.headers["allow"] = ", ".join(sorted(allowed.split(", ")))
        return reply

    return refused


async def _failed(request: Request, _: Exception) -> Response:
    return problem(request, 500, "this failed; the log says how")
