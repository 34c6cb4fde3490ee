"""The description of the JSON under /api/v1/ as OpenAPI 3.1.

The document is generated from the declarations in `json_api` and from the models.
"""

from collections.abc import Iterator
from typing import Any

from pydantic.json_schema import JsonSchemaMode, models_json_schema

from group_sidecar.metrics.installed_version import DISTRIBUTION, installed_version
from group_sidecar.proxy.admin.json_api import ENDPOINTS, Endpoint
from group_sidecar.proxy.admin.json_models import GroupQuery, Problem

PATH = "/api/v1/openapi.json"
_TEMPLATE = "#/components/schemas/{model}"
_SECURITY_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer"},
    "password": {"type": "http", "scheme": "basic", "description": "The token as password, with any user."},
    "certificate": {"type": "mutualTLS"},
}
_DESCRIPTION = """\
Read-only data about the consumer groups of a Kafka broker, as its sidecar knows them. A group id may be any text, so it
is a percent-encoded query parameter. Within this version, fields may be added, but no field is removed or gets another
meaning.
"""

Json = dict[str, Any]


def description() -> Json:
    """Returns the OpenAPI document."""
    wanted: list[tuple[type, JsonSchemaMode]] = [(Problem, "serialization")]
    for endpoint in ENDPOINTS:
        wanted += [(endpoint.query, "validation"), (endpoint.answer, "serialization")]
    _, definitions = models_json_schema(list(dict.fromkeys(wanted)), ref_template=_TEMPLATE)
    schemas: Json = definitions["$defs"]
    paths = {endpoint.path: {"get": _operation(endpoint, schemas)} for endpoint in ENDPOINTS}
    for name in {endpoint.query.__name__ for endpoint in ENDPOINTS}:
        schemas.pop(name)
    return {
        "openapi": "3.1.0",
        "info": {"title": DISTRIBUTION, "version": installed_version(), "description": _DESCRIPTION},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": _SECURITY_SCHEMES},
        "security": [{}, *({name: []} for name in _SECURITY_SCHEMES)],
    }


def _operation(endpoint: Endpoint, schemas: Json) -> Json:
    problems = {
        "400": "A parameter is invalid; `parameter` names it",
        "401": "The request needs a token",
        "403": "The client may not read this path",
        "429": "The client has sent too many wrong tokens",
    }
    if issubclass(endpoint.query, GroupQuery):
        problems["404"] = "There is no such group"
    return {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": list(_parameters(schemas[endpoint.query.__name__])),
        "responses": {
            "200": _response("The requested data", endpoint.answer),
            **{status: _response(why, Problem) for status, why in problems.items()},
        },
    }


def _response(why: str, model: type) -> Json:
    schema = {"$ref": _TEMPLATE.format(model=model.__name__)}
    return {"description": why, "content": {"application/json": {"schema": schema}}}


def _parameters(query: Json) -> Iterator[Json]:
    for name, declared in query.get("properties", {}).items():
        schema = {key: value for key, value in declared.items() if key not in ("title", "description")}
        if "anyOf" in schema:  # None stands for a missing parameter. A client cannot send null.
            (schema,) = (one for one in schema["anyOf"] if one.get("type") != "null")
        yield {
            "name": name,
            "in": "query",
            "required": name in query.get("required", ()),
            "description": declared["description"],
            "schema": schema,
        }
