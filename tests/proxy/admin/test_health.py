"""The endpoints for orchestrators, with fake sources, and of a whole sidecar in front of a scripted broker."""

import json
import socket
from typing import Any

import pytest
import trio

from group_sidecar.proxy.admin.sources import Readiness, Unreachable
from group_sidecar.proxy.listeners.ports import listen, open_ports, port_of
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.sidecar import Sidecar
from tests.proxy.admin.served_app import READY, admin, ask
from tests.proxy.fakes import ANY_PORT, FakeBroker
from tests.proxy.whole_sidecar import Cluster, configured, get, ready, sidecar


async def test_healthy_even_when_not_ready() -> None:
    """The health path answers 200 while no broker is ready."""
    reply = await ask(admin(readiness=dict), "/healthz")
    assert (reply.status, reply.content) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("brokers", "reasons"),
    [
        ({"a:1": {"reachable": True, "accepting": True}}, []),
        (
            {"a:1": {"reachable": True, "accepting": True}, "b:2": {"reachable": False, "accepting": True}},
            ["the broker b:2 does not answer the sidecar: connection refused"],
        ),
        ({"a:1": {"reachable": False, "accepting": True}}, ["the broker a:1 does not answer the sidecar"]),
        (
            {"a:1": {"reachable": True, "accepting": False}},
            ["the broker a:1 gets no clients, because the sidecar is stopping"],
        ),
        ({}, ["no broker is known"]),
    ],
)
async def test_readiness_lists_state_and_reasons(brokers: Readiness, reasons: list[str]) -> None:
    """Readiness is 200 only if all brokers are ready. Otherwise it lists the reasons."""
    unreachable = [Unreachable("b:2", 0.0, "connection refused")] if "b:2" in brokers else []
    reply = await ask(admin(readiness=lambda: brokers, unreachable=lambda: unreachable), "/readyz")
    assert reply.status == (503 if reasons else 200)
    assert reply.content["ready"] is not bool(reasons)
    assert reply.content["brokers"] == brokers
    assert reply.content.get("reasons", []) == reasons


async def test_readiness_ignores_offsets_log() -> None:
    """Readiness reports the state of the offsets log but stays 200 while that log is not read."""
    log = {"a:1": {"read": False, "trouble": "not read yet"}}
    reply = await ask(admin(log_statuses=lambda: log), "/readyz")
    assert (reply.status, reply.content) == (200, {"ready": True, "brokers": READY, "offsets_log": log})


async def test_started_after_first_probe() -> None:
    """The start is complete when the first probe of the broker has ended."""
    probed = {"a:1": False}
    app = admin(probed=lambda: probed, readiness=dict)
    reply = await ask(app, "/startupz")
    assert (reply.status, reply.content) == (
        503,
        {"started": False, "reasons": ["the broker a:1 was not probed yet"]},
    )
    probed["a:1"] = True
    reply = await ask(app, "/startupz")
    assert (reply.status, reply.content) == (200, {"started": True})


async def test_not_live_without_listener() -> None:
    """The process is not live if one of its ports is closed for good. A broker that is down does not count."""
    reply = await ask(admin(readiness=dict), "/livez")
    assert (reply.status, reply.content) == (200, {"live": True})
    reply = await ask(admin(unusable_listeners=lambda: ["ONE"]), "/livez")
    assert reply.status == 503
    assert reply.content == {"live": False, "reasons": ["the listener ONE accepts no clients any more"]}


async def status(at: Address | None, path: str) -> tuple[int, Any]:
    """Requests a path of a running sidecar. Returns status and JSON."""
    code, body = await get(at, path)
    return code, json.loads(body)


async def test_unreachable_broker_ends_start(nursery: trio.Nursery) -> None:
    """A sidecar whose broker is down has started and is live, but is not ready."""
    [taken] = listen(ANY_PORT)
    upstream = Address("127.0.0.1", port_of([taken]))
    taken.close()
    async with sidecar(upstream) as (at, _):
        with trio.fail_after(10):
            while (await status(at.admin, "/startupz"))[0] != 200:
                await trio.lowlevel.checkpoint()
        assert (await status(at.admin, "/livez"))[0] == 200
        code, body = await status(at.admin, "/readyz")
        assert code == 503
        assert "refused" in body["reasons"][0] or "connect" in body["reasons"][0]
    nursery.cancel_scope.cancel()


async def test_hanging_broker_delays_start(nursery: trio.Nursery) -> None:
    """While the first probe waits for the broker, the start is not complete."""
    was_asked = trio.Event()

    async def never(_: trio.SocketStream) -> None:
        was_asked.set()
        await trio.sleep_forever()

    upstream = await nursery.start(FakeBroker(never).run)
    async with sidecar(upstream) as (at, _):
        await was_asked.wait()
        code, body = await status(at.admin, "/startupz")
        assert (code, body["reasons"]) == (503, [f"the broker {upstream} was not probed yet"])
    nursery.cancel_scope.cancel()


async def test_closed_listener_is_not_live(nursery: trio.Nursery) -> None:
    """The process is not live after the kernel has closed its port."""
    upstream = await Cluster().start(nursery, 1)
    config = configured(upstream=str(upstream), admin="127.0.0.1:0")
    ports = open_ports(config.listen_addresses, config.admin)
    async with trio.open_nursery() as life:
        at = await life.start(Sidecar(config, ports=ports).run, trio.Event())
        await ready(at)
        assert (await status(at.admin, "/livez"))[0] == 200
        ports.listeners["default"][0].shutdown(socket.SHUT_RDWR)
        code, body = await status(at.admin, "/livez")
        assert (code, body["reasons"]) == (503, ["the listener default accepts no clients any more"])
        assert (await status(at.admin, "/healthz"))[0] == 200
        life.cancel_scope.cancel()
    nursery.cancel_scope.cancel()
