"""The JSON under /api/v1/.

Each path has one declaration with its parameters and its reply. `openapi` generates the description from these
declarations.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from group_sidecar.proxy.admin import json_models as m
from group_sidecar.proxy.admin.config_model import Config
from group_sidecar.proxy.admin.group_data import GroupData
from group_sidecar.proxy.admin.http_replies import json_response, problem
from group_sidecar.proxy.admin.timeline_models import Answer

Q = TypeVar("Q", bound=m.Query)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path, its parameters and its reply. `read` returns the reply, or None if the group does not exist."""

    name: str
    query: type[m.Query]
    answer: type[Answer]
    read: Callable[[GroupData, Any], Awaitable[Answer | None]]
    summary: str

    @property
    def path(self) -> str:
        return f"/api/v1/{self.name}"


ENDPOINTS = (
    Endpoint("groups", m.GroupsQuery, m.Groups, lambda data, query: data.groups(query), "Groups, filtered and sorted"),
    Endpoint(
        "group", m.GroupQuery, m.GroupDetail, lambda data, query: data.group(query.group), "A group and its members"
    ),
    Endpoint("offsets", m.GroupQuery, m.Offsets, lambda data, query: data.offsets(query.group), "A group's offsets"),
    Endpoint(
        "timeline", m.GroupQuery, m.Timeline, lambda data, query: data.timeline(query.group), "What happened to a group"
    ),
    Endpoint(
        "why", m.WhyQuery, m.Why, lambda data, query: data.why(query.group, query.seconds), "Why a group rebalanced"
    ),
    Endpoint(
        "refusals", m.RefusalsQuery, m.Refusals, lambda data, query: data.refusals(query.limit), "The last refusals"
    ),
    Endpoint("status", m.Query, m.Status, lambda data, _: data.status(), "The status of the sidecar"),
    Endpoint("config", m.Query, Config, lambda data, _: data.config(), "The settings in force"),
)


class WrongParameter(Exception):
    """A request parameter is invalid. `name`: the parameter."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name


def parameters(query: type[Q], given: QueryParams) -> Q:
    """Returns the parameters of a request.

    Raises:
        WrongParameter: a parameter is missing, unknown, given twice or out of bounds.
    """
    if len(given) != len(given.multi_items()):
        names = [name for name, _ in given.multi_items()]
        raise WrongParameter(next(name for name in names if names.count(name) > 1), "is given twice")
    try:
        return query.model_validate(dict(given))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        reason = {
            "missing": "is missing",
            "extra_forbidden": f"is unknown; the parameters are: {', '.join(query.model_fields) or 'none'}",
        }.get(fault["type"], fault["msg"][:1].lower() + fault["msg"][1:])
        raise WrongParameter(str(fault["loc"][0]), reason) from None


def api_routes(data: GroupData) -> list[BaseRoute]:
    """Returns a route for each of `ENDPOINTS`."""
    return [Route(endpoint.path, _handler(endpoint, data), name=endpoint.name) for endpoint in ENDPOINTS]


def _handler(endpoint: Endpoint, data: GroupData) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            query = parameters(endpoint.query, request.query_params)
        except WrongParameter as wrong:
            return problem(request, 400, str(wrong), parameter=wrong.name)
        found = await endpoint.read(data, query)
        if found is None:
            # The groups of an unreachable broker may be unknown.
            gone = [broker.model_dump() for broker in data.unreachable()]
            return problem(request, 404, "no such group", group=request.query_params["group"], unreachable=gone)
        return await json_response(found)

    return answer
