"""Groups for tests of the JSON under /api/v1/, and a client that validates each reply against the OpenAPI document."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from group_sidecar.coordinator.model.facts import (
    MemberInfo,
    RebalanceCause,
    RebalanceCompleted,
    SlowestMember,
)
from group_sidecar.coordinator.model.views import (
    CommittedOffset,
    ConsumerGroupView,
    ConsumerMemberView,
    FallbackReason,
    GroupKind,
    GroupState,
    GroupView,
    MemberView,
)
from group_sidecar.metrics.flight_recorder import FlightRecorder
from group_sidecar.proxy.admin.json_api import ENDPOINTS
from group_sidecar.proxy.admin.openapi import description
from tests.metrics.metrics_world import assignment
from tests.proxy.admin.served_app import NOW, Reply, admin, ask

SALES = UUID(int=7)
DOCUMENT = description()

ORDERS = GroupView(
    group_id="orders",
    state=GroupState.STABLE,
    protocol_type="consumer",
    protocol="range",
    leader="m-1",
    generation=3,
    members=(
        MemberView(
            member_id="m-2", client_id="b", client_host="/10.0.0.2", since=NOW - 5, assignment=assignment("sales", 2, 1)
        ),
        MemberView(
            member_id="m-1",
            client_id="a",
            client_host="/10.0.0.1",
            principal="User:CN=alice",
            instance_id="i",
            assignment=assignment("sales", 0),
        ),
        MemberView(member_id="m-3", client_id="c", client_host="/10.0.0.3", assignment=b"\0\1\2"),
        MemberView(member_id="m-4", client_id="d", client_host="/10.0.0.4"),
    ),
    roster_known=True,
    offsets={
        ("sales", 1): CommittedOffset(40, metadata="<b>", at=NOW - 2.5),
        ("sales", 0): CommittedOffset(100, metadata=None, at=NOW),
        ("old", 0): CommittedOffset(7, at=0.0),
    },
    last_rebalance_at=NOW - 60,
)
NEWER = GroupView(
    group_id="newer",
    kind=GroupKind.CONSUMER,
    state=GroupState.RECONCILING,
    generation=-1,
    members=(),
    consumer=ConsumerGroupView(
        group_id="newer",
        kind=GroupKind.CONSUMER,
        state=GroupState.RECONCILING,
        epoch=9,
        assignors=("uniform",),
        members=(
            ConsumerMemberView(
                member_id="x", client_id="a", client_host="/h", principal="User:a", assignment={SALES: (0, 1)}
            ),
            ConsumerMemberView(member_id="y", client_id="b", client_host="/h", assignment={UUID(int=8): (0,)}),
        ),
    ),
)
COLD = GroupView(
    group_id="cold",
    state=GroupState.EMPTY,
    fallback_reason=FallbackReason.COLD,
    offsets_fallback_reason=FallbackReason.STALE,
)
LOG_ENDS = {("sales", 0): 90, ("sales", 1): 50, ("sales", 2): 5}


def names(topic_ids: set[UUID]) -> Mapping[UUID, str]:
    return {topic_id: "sales" for topic_id in topic_ids if topic_id == SALES}


def completed(group_id: str, at: float, cause: RebalanceCause = RebalanceCause.NEW_MEMBER) -> RebalanceCompleted:
    who = {"member_id": "m-1", "client_id": "a", "client_host": "/10.0.0.1"}
    return RebalanceCompleted(
        group_id=group_id,
        at=at,
        cause=cause,
        by=MemberInfo(**who),
        generation=3,
        protocol="range",
        members=2,
        duration_seconds=0.5,
        slowest=SlowestMember(**who, seconds=0.25),
    )


def recorded() -> FlightRecorder:
    recorder = FlightRecorder(1 << 20)
    recorder.observe(completed("orders", NOW - 4000))
    recorder.observe(completed("orders", NOW - 3000))
    recorder.observe(completed("orders", NOW - 60, RebalanceCause.SESSION_EXPIRED))
    recorder.observe(completed("newer", NOW - 50))
    return recorder


async def get(target: str, *groups: GroupView, **others: Any) -> Reply:
    """Requests a path below /api/v1/. Asserts that the reply conforms to the OpenAPI document."""
    given = {"recorder": recorded(), "log_ends": LOG_ENDS, "topic_names": names, **others}
    reply = await ask(admin(groups or (ORDERS, NEWER, COLD), **given), f"/api/v1/{target}")
    name = target.partition("?")[0]
    responses = DOCUMENT["paths"][f"/api/v1/{name}"]["get"]["responses"]
    schema = responses[str(reply.status)]["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(reply.content)
    if reply.status == 200:
        (endpoint,) = (each for each in ENDPOINTS if each.name == name)
        endpoint.answer.model_validate(reply.content, extra="forbid")
    return reply


async def get_content(target: str, *groups: GroupView, **others: Any) -> Any:
    reply = await get(target, *groups, **others)
    assert reply.status == 200, reply.content
    return reply.content
