"""The JSON under /api/v1/: the sidecar's status, parameters, and the agreement with the OpenAPI document."""

import pytest
from openapi_spec_validator import validate as validate_openapi
from pydantic import TypeAdapter

from group_sidecar.coordinator.model.facts import (
    ClientBypassed,
    ClientRefused,
    CoordinatorMoved,
    Departure,
    Fact,
    MemberGone,
    MemberInfo,
    MemberJoined,
    OffsetsCommitted,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
)
from group_sidecar.coordinator.model.views import (
    GroupState,
    GroupView,
)
from group_sidecar.metrics.flight_recorder import FlightRecorder
from group_sidecar.metrics.flight_recorder import timeline_entry as told_of
from group_sidecar.metrics.records import timestamp
from group_sidecar.proxy.admin.http_replies import ITEMS_PER_PIECE, encode
from group_sidecar.proxy.admin.json_api import ENDPOINTS, Endpoint
from group_sidecar.proxy.admin.json_models import Groups
from group_sidecar.proxy.admin.timeline_models import AnyEvent
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.config.sections import AdminAccess
from tests.proxy.admin.api_client import COLD, DOCUMENT, completed, get, get_content, recorded
from tests.proxy.admin.served_app import LEAST, NOW, admin, ask

# The sidecar.


def refused(group_id: str, at: float, *, enforced: bool = True) -> ClientRefused:
    return ClientRefused(
        group_id=group_id,
        at=at,
        policy="group_max_size",
        error_code=81,
        client_id="a",
        client_host="/h",
        size=6,
        limit=5,
        enforced=enforced,
    )


async def test_refusals() -> None:
    recorder = recorded()
    for fact in (refused("b", NOW - 3), refused("a/☂", NOW - 2), refused("b", NOW - 1, enforced=False)):
        recorder.observe(fact)
    content = await get_content("refusals", recorder=recorder)
    assert content["refusals"] == [
        {"group": fact.group_id, **told_of(fact)}
        for fact in (refused("b", NOW - 1, enforced=False), refused("a/☂", NOW - 2), refused("b", NOW - 3))
    ]
    assert [cell["what"] for cell in content["refusals"]] == ["client_audited", "client_refused", "client_refused"]
    assert len((await get_content("refusals?limit=2", recorder=recorder))["refusals"]) == 2


async def test_events_match_timeline_schema() -> None:
    """Every kind of fact that the recorder keeps becomes a timeline event that its schema accepts."""
    who = {"member_id": "m", "client_id": "a", "client_host": "/h"}
    facts = [
        RebalanceStarted(group_id="g", at=NOW, cause=RebalanceCause.LEADER_REJOINED, by=MemberInfo(**who), said="why"),
        RebalanceStarted(group_id="g", at=NOW, cause=RebalanceCause.UNKNOWN),
        completed("g", NOW),
        RebalanceCompleted(
            group_id="g",
            at=NOW,
            cause=RebalanceCause.MEMBER_LEFT,
            generation=1,
            protocol="range",
            members=1,
            duration_seconds=0.5,
            moved_partitions=3,
        ),
        MemberJoined(group_id="g", at=NOW, **who),
        *(MemberGone(group_id="g", at=NOW, how=how, **who) for how in Departure),
        CoordinatorMoved(group_id="g", at=NOW),
        OffsetsCommitted(group_id="g", at=NOW, accepted=1, refused=((22, 3), (9999, 1))),
        refused("g", NOW),
        refused("g", NOW, enforced=False),
    ]
    not_kept = ClientBypassed.__name__  # The log and the status page show clients that bypass the sidecar.
    assert {type(fact).__name__ for fact in facts} == {kind.__name__ for kind in Fact.__subclasses__()} - {not_kept}
    recorder = FlightRecorder(1 << 20)
    for fact in facts:
        recorder.observe(fact)
    cells = (await get_content("timeline?group=g", recorder=recorder))["timeline"]
    assert len(cells) == len(facts)
    for cell in cells:
        TypeAdapter(AnyEvent).validate_python(cell, extra="forbid")


async def test_status() -> None:
    content = await get_content("status", log_statuses=lambda: {"a:1": {"read": True}})
    assert content["version"]
    assert (content["sidecar_id"], content["mode"], content["started_at"]) == ("a:1", "sidecar", timestamp(NOW - 60))
    assert (content["ready"], content["brokers"]) == (True, {"127.0.0.1:9092": {"listening": True, "upstream": True}})
    assert content["offsets_log"] == {"a:1": {"read": True}}
    assert content["groups"] == {"Stable": 1, "Reconciling": 1, "Empty": 1}
    assert (content["connections"], content["held_bytes"], content["series_suppressed"]) == (3, 10, 0)
    assert content["recorded_bytes"] > 0
    assert content["last_reload"] == {"successful": True, "succeeded_at": timestamp(NOW - 60)}


# The settings.


async def test_config_is_redacted() -> None:
    """The settings in force are nested as in the file, with their defaults, and without secrets."""
    settings = {**LEAST, "admin": "0.0.0.0:9464", "admin_access": {"token": "of-the-admin"}}
    content = await get_content("config", config=lambda: Config.model_validate(settings))
    assert (content["listen"], content["admin"], content["journal"]) == ("127.0.0.1:9092", "0.0.0.0:9464", None)
    assert content["limits"]["connections"] == 10_000
    assert (content["admin_access"]["token"], content["admin_access"]["token_file"]) == ("***", None)
    assert "of-the-admin" not in str(content)


async def test_config_is_guarded_and_read_only() -> None:
    """The settings are shown to those who may see the groups, and cannot be changed."""
    port = admin(access=AdminAccess.model_validate({"token": "of-the-admin"}))
    elsewhere = ("10.0.0.9", 40_000)
    assert (await ask(port, "/api/v1/config", client=elsewhere)).status == 401
    assert (await ask(port, "/api/v1/config", client=elsewhere, authorization="Bearer of-the-admin")).status == 200
    for method in ("POST", "PUT", "DELETE"):
        assert (await ask(port, "/api/v1/config", method)).status == 405


# Parameters.


@pytest.mark.parametrize(
    ("target", "parameter"),
    [
        ("groups?serach=x", "serach"),
        ("groups?limit=0", "limit"),
        ("groups?limit=1001", "limit"),
        ("groups?limit=ten", "limit"),
        ("groups?offset=-1", "offset"),
        ("groups?sort=size", "sort"),
        ("groups?order=up", "order"),
        ("groups?state=stable", "state"),
        ("groups?type=new", "type"),
        ("groups?cause=none", "cause"),
        ("groups?limit=1&limit=2", "limit"),
        ("group", "group"),
        ("group?groups=a", "group"),
        ("group?group=a&group=b", "group"),
        ("offsets?", "group"),
        ("timeline?group=a&x=", "x"),
        ("why?group=a&seconds=0", "seconds"),
        ("why?group=a&seconds=1.5", "seconds"),
        ("refusals?limit=501", "limit"),
        ("status?verbose", "verbose"),
    ],
)
async def test_wrong_parameter_is_named(target: str, parameter: str) -> None:
    """A wrong query parameter gets status 400 and an error that names the parameter."""
    reply = await get(target)
    assert reply.status == 400
    assert reply.content["parameter"] == parameter
    assert reply.content["error"].startswith(f"{parameter}: ")


async def test_wrong_parameter_is_escaped_in_html() -> None:
    """The HTML error page escapes the name of an unknown parameter."""
    reply = await ask(admin(), "/api/v1/groups?%3Cb%3E=1", accept="text/html")
    assert (reply.status, reply.headers["content-type"]) == (400, "text/html; charset=utf-8")
    assert b"&lt;b&gt;: is unknown" in reply.body
    assert b"<b>" not in reply.body


# The description.


async def test_openapi_document_is_valid() -> None:
    """The served OpenAPI document is the generated one and is valid OpenAPI 3.1."""
    reply = await ask(admin(), "/api/v1/openapi.json")
    assert reply.content == DOCUMENT
    assert reply.content["openapi"] == "3.1.0"
    validate_openapi(reply.content)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_openapi_describes_every_parameter(endpoint: Endpoint) -> None:
    """The OpenAPI document describes every query parameter of each endpoint."""
    operation = DOCUMENT["paths"][endpoint.path]["get"]
    assert [parameter["name"] for parameter in operation["parameters"]] == list(endpoint.query.model_fields)
    for parameter in operation["parameters"]:
        assert parameter["description"]
        assert "anyOf" not in parameter["schema"]


def test_openapi_allows_new_fields() -> None:
    """No schema except Problem restricts additional properties, so that a later version can add fields."""
    schemas = DOCUMENT["components"]["schemas"]
    assert [name for name, schema in schemas.items() if "additionalProperties" in schema] == ["Problem"]


# Encoding.


@pytest.mark.parametrize(
    "count",
    [0, 1, ITEMS_PER_PIECE - 1, ITEMS_PER_PIECE, ITEMS_PER_PIECE + 1, 2 * ITEMS_PER_PIECE, 2 * ITEMS_PER_PIECE + 1],
)
async def test_list_encoding_is_lossless(count: int) -> None:
    """A list of groups around the size of an encoding piece decodes to the same list."""
    groups = [GroupView(group_id=f"größe\n{n:04}", state=GroupState.EMPTY) for n in range(count)]
    content = await get_content("groups?limit=1000", *groups or [COLD])
    model = Groups.model_validate({**content, "groups": content["groups"][:count]})
    assert Groups.model_validate_json(encode(model)) == model
    assert encode(model).endswith(b"}\n")
