"""A broker stops: which parts of the sidecar notice and report it."""

import json
from typing import Any

import pytest
import trio

from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.coordinator.model.views import GroupState, GroupView
from group_sidecar.metrics.records import timestamp
from group_sidecar.proxy.admin.sources import Unreachable
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.runtime.addresses import Address
from tests.proxy.admin.served_app import NOW, admin, ask
from tests.proxy.fakes import FakeBroker, read_to_end
from tests.proxy.scripted_broker import ScriptedBroker
from tests.proxy.whole_sidecar import get, ready, sidecar

GONE = Unreachable("broker:9092", NOW - 60, "broker:9092 cannot be reached: Connection refused")
SINCE = timestamp(GONE.since)
OF_GROUP = [f"/api/v1/{what}?group=g" for what in ("group", "offsets", "timeline", "why")]


async def until_unready(address: Address | None) -> dict[str, Any]:
    with trio.fail_after(5):  # A third of the pause between two rounds.
        while True:
            status, body = await get(address, "/readyz")
            if status == 503:
                readiness: dict[str, Any] = json.loads(body)
                return readiness
            await trio.sleep(0.01)


def scripted() -> ScriptedBroker:
    return ScriptedBroker({ListGroupsRequest: ListGroupsResponse(error_code=0, groups=())})


async def start(nursery: trio.Nursery, broker: FakeBroker) -> trio.CancelScope:
    """Starts a broker. Returns the scope whose cancellation stops it."""
    life = trio.CancelScope()

    async def run(task_status: Any) -> None:
        with life:
            await broker.run(task_status=task_status)

    await nursery.start(run)
    return life


async def test_stopped_broker_is_noticed_at_once(nursery: trio.Nursery) -> None:
    """Readiness and the JSON API report a stopped broker before the next probe round, until the broker is back."""
    broker = FakeBroker(scripted().serve)
    life = await start(nursery, broker)
    async with sidecar(broker.address) as (at, _):
        assert "unreachable_since" not in await ready(at)
        life.cancel()
        readiness = await until_unready(at.admin)
        assert list(readiness["unreachable_since"]) == [str(broker.address)]
        _, body = await get(at.admin, "/api/v1/groups")
        [gone] = json.loads(body)["unreachable"]
        assert gone["broker"] == str(broker.address)
        await start(nursery, broker)
        assert "unreachable_since" not in await ready(at)
    nursery.cancel_scope.cancel()


async def test_refused_client_triggers_a_probe(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's failed broker connection triggers a probe, although the prober's connection is intact."""
    monkeypatch.setattr("group_sidecar.proxy.broker.probe.MIN_TRIGGER_SECONDS", 0.0)
    probes: list[None] = []
    ping = KafkaClient.ping

    async def counted(client: KafkaClient) -> None:
        probes.append(None)
        await ping(client)

    monkeypatch.setattr(KafkaClient, "ping", counted)
    own, clients = FakeBroker(scripted().serve), FakeBroker()
    await start(nursery, own)
    life = await start(nursery, clients)
    settings = {"own_connection": {"address": str(own.address)}, "offsets_log": {"read": False}}
    async with sidecar(clients.address, **settings) as (at, _):
        await ready(at)
        life.cancel()
        probes.clear()
        async with await trio.open_tcp_stream(*at.listen) as client:
            assert await read_to_end(client) == b""
        with trio.fail_after(5):
            while not probes:  # noqa: ASYNC110
                await trio.sleep(0.01)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("path", OF_GROUP)
async def test_unknown_group_lists_unreachable_brokers(path: str) -> None:
    """A 404 for an unknown group lists the unreachable brokers, because the group may be theirs."""
    reply = await ask(admin(unreachable=lambda: [GONE]), path)
    assert (reply.status, [each["broker"] for each in reply.content["unreachable"]]) == (404, [GONE.broker])


async def test_unknown_group_page_explains_absence() -> None:
    """The page of an unknown group mentions the unreachable broker if there is one, else another coordinator."""
    away, there = "It may be a group of the broker that is unreachable", "another broker is its coordinator"
    for gone, present, absent in (([GONE], away, there), ([], there, away)):
        page = (await ask(admin(unreachable=lambda gone=gone: gone), "/group?group=g")).body.decode()
        assert present in page
        assert absent not in page


async def test_all_views_report_unreachable_since() -> None:
    """Readiness, the JSON API and the pages report which broker is unreachable and since when."""
    app = admin([GroupView(group_id="g", state=GroupState.STABLE)], unreachable=lambda: [GONE])
    assert (await ask(app, "/readyz")).content["unreachable_since"] == {"broker:9092": SINCE}
    for path in ("/api/v1/groups", "/api/v1/status", *OF_GROUP):
        unreachable = (await ask(app, path)).content["unreachable"]
        assert unreachable == [{"broker": GONE.broker, "since": SINCE, "reason": GONE.reason}]
    for path in ("/", "/refusals", "/status"):
        assert "broker:9092 unreachable since" in (await ask(app, path)).body.decode()
        assert "unreachable" not in (await ask(admin(), path)).body.decode()
