"""A gateway with a port for each broker, and its bootstrap broker."""

import json
import socket
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from group_sidecar.codecs.messages.describe_acls import DescribeAclsRequest
from group_sidecar.codecs.messages.init_producer_id import InitProducerIdRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataResponse
from group_sidecar.codecs.messages.produce import ProduceRequest
from group_sidecar.proxy import gateway_routes
from group_sidecar.proxy.admin.sources import Unreachable
from group_sidecar.proxy.broker.broker_errors import BrokerClosed, BrokerError
from group_sidecar.proxy.broker.group_queries import brokers
from group_sidecar.proxy.broker.kafka_client import connect
from group_sidecar.proxy.broker.own_credentials import OwnCredentials
from group_sidecar.proxy.dataplane.outcomes import Origin
from group_sidecar.proxy.listeners.admission import NotServed
from group_sidecar.proxy.listeners.ports import ListenError, listen
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.served_brokers import ServedBrokers
from group_sidecar.proxy.sidecar import Sidecar
from tests.kafka.processes import free_addresses, reserve
from tests.proxy.fakes import FakeBroker
from tests.proxy.scripted_broker import HangUp, NoReply, ScriptedBroker
from tests.proxy.whole_sidecar import Cluster, configured, get, ready, sidecar


async def test_gateway_proxies_all_brokers(nursery: trio.Nursery) -> None:
    """A gateway advertises a port of its own for each broker and keeps it when the broker's address changes."""
    cluster = Cluster()
    upstream = await cluster.start(nursery, 1)
    await cluster.start(nursery, 2)
    async with sidecar(upstream, mode="gateway") as (at, _):
        async with connect(*at.listen) as client:
            nodes = {node.id: node.address for node in await brokers(client)}
        assert set(nodes) == {1, 2}
        assert {address.host for address in nodes.values()} == {"127.0.0.1"}
        assert not {*nodes.values()} & {*cluster.nodes.values(), at.listen}
        for address in nodes.values():
            async with connect(*address) as client:
                assert {node.id: node.address for node in await brokers(client)} == nodes
        cluster.nodes[2] = await Cluster().start(nursery, 2)
        async with connect(*at.listen) as client:
            assert {node.id: node.address for node in await brokers(client)} == nodes
        assert (await ready(at))["brokers"].keys() == {str(upstream)}
    nursery.cancel_scope.cancel()


async def test_gateway_recognizes_bootstrap_alias(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway keeps one copy for a bootstrap broker that advertises another host name.

    The broker refuses the gateway's own request for the nodes, and its replies to clients name them.
    """
    refuses = AsyncMock(side_effect=BrokerClosed("no"))
    monkeypatch.setattr(gateway_routes, "brokers", refuses)
    cluster = Cluster()
    upstream = await cluster.start(nursery, 1)
    cluster.nodes[1] = Address("localhost", upstream.port)
    broker = cluster.scripted[1]
    async with sidecar(upstream, mode="gateway") as (at, _):
        await ready(at)
        async with connect(*at.listen) as client:
            [node] = await brokers(client)
        await ready(at)
        async with connect(*node.address) as client:
            await brokers(client)
        async with connect(*at.listen) as client:
            await brokers(client)
        await wait_all_tasks_blocked(0.1)
        # A second copy would have a second prober.
        assert len(broker.requests(DescribeAclsRequest)) == 1
    assert refuses.called
    nursery.cancel_scope.cancel()


def topics_asked(broker: ScriptedBroker) -> set[str | None]:
    """Returns the names of the topics that were asked for in Metadata requests."""
    return {topic.name for request in broker.requests(MetadataRequest) for topic in request.topics or ()}


async def test_gateway_connects_clients_to_named_brokers(nursery: trio.Nursery) -> None:
    """The bootstrap address may lead to any broker. The gateway asks there for the brokers only, and has no copy."""
    cluster = Cluster()
    for node_id in (1, 2):
        await cluster.start(nursery, node_id)
    upstream, balancer = await cluster.balanced(nursery)
    for each in (*cluster.scripted.values(), balancer):
        each.answers |= {InitProducerIdRequest: HangUp(), ProduceRequest: HangUp()}  # The journal needs these APIs.
    async with sidecar(upstream, mode="gateway", journal={"topic": "records"}) as (at, _):
        assert (await ready(at))["brokers"].keys() == {str(cluster.nodes[1])}
        before = len(cluster.scripted[1].requests(MetadataRequest))
        async with connect(*at.listen) as client:
            assert {node.id for node in await brokers(client)} == {1, 2}
        assert len(cluster.scripted[1].requests(MetadataRequest)) > before
        with trio.fail_after(10):
            while "records" not in topics_asked(cluster.scripted[1]):  # The journal asks for its topic.
                await ready(at)
        assert [type(request) for request, _ in balancer.asked] == [MetadataRequest]
    nursery.cancel_scope.cancel()


async def test_gateway_leaves_lost_broker(nursery: trio.Nursery) -> None:
    """If the bootstrap broker is lost, the next broker replaces it, even if no client has tried to connect."""
    cluster = Cluster()
    upstream = await cluster.start(nursery, 1)
    other = await cluster.start(nursery, 2)
    async with sidecar(upstream, mode="gateway") as (at, _):
        await ready(at)
        await cluster.stop(1)
        with trio.fail_after(10):
            while str(other) not in (await ready(at))["brokers"]:
                pass
        async with connect(*at.listen) as client:
            assert {node.id for node in await brokers(client)} == {1, 2}
    nursery.cancel_scope.cancel()


async def test_client_moves_gateway_from_lost_broker(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose broker connection fails makes the gateway choose the next broker at once."""
    monkeypatch.setattr(gateway_routes, "NODES_SECONDS", 1000.0)
    cluster = Cluster()
    upstream = await cluster.start(nursery, 1)
    await cluster.start(nursery, 2)
    async with sidecar(upstream, mode="gateway") as (at, _):
        async with connect(*at.listen) as client:
            await brokers(client)
        await cluster.stop(1)
        with pytest.raises(BrokerError):
            async with connect(*at.listen):
                pass
        async with connect(*at.listen) as client:
            assert {node.id for node in await brokers(client)} == {1, 2}
    nursery.cancel_scope.cancel()


async def test_gateway_finds_cluster_at_further_address(nursery: trio.Nursery) -> None:
    """If `upstream` cannot be reached, the gateway learns the brokers at another of the bootstrap servers."""
    cluster = Cluster()
    other = await cluster.start(nursery, 2)
    [(host, gone)] = free_addresses(1)
    settings = {"mode": "gateway", "gateway": {"bootstrap_servers": [str(other)]}}
    async with sidecar(Address(host, gone), **settings) as (at, _), connect(*at.listen) as client:
        assert {node.id for node in await brokers(client)} == {2}
    nursery.cancel_scope.cancel()


async def silent(stream: trio.abc.Stream) -> None:
    """Never answers."""
    await trio.sleep_forever()


async def closing(stream: trio.abc.Stream) -> None:
    """Closes each connection at once, as a load balancer does that reaches no broker."""
    await stream.aclose()


async def empty(stream: trio.abc.Stream) -> None:
    """Names no brokers."""
    await ScriptedBroker({MetadataRequest: MetadataResponse(brokers=(), topics=())}).serve(stream)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the gateway wait for a reply for a moment only."""
    connect_patiently = OwnCredentials.connect

    def connect_hastily(own: OwnCredentials, address: Address, **more: Any) -> Any:
        return connect_patiently(own, address, timeout=0.5, **more)

    monkeypatch.setattr(OwnCredentials, "connect", connect_hastily)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("serve", [silent, closing, empty])
async def test_address_without_brokers_is_unreachable(serve: Callable[[trio.abc.Stream], Any]) -> None:
    """At an address that accepts connections and leads to no broker, no client is served, and /readyz says so."""
    async with trio.open_nursery() as nursery:
        upstream = await nursery.start(FakeBroker(serve).run)
        async with sidecar(upstream, mode="gateway") as (at, _):
            with pytest.raises(BrokerError):
                async with connect(*at.listen) as client:
                    await brokers(client)
            status, body = await get(at.admin, "/readyz")
            readiness = json.loads(body)
            assert (status, readiness["brokers"][str(upstream)]["reachable"]) == (503, False)
            assert "offsets_log" not in readiness  # There is no copy of a broker that nobody knows.
        nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("serve", [silent, closing, empty])
async def test_address_without_brokers_is_left(serve: Callable[[trio.abc.Stream], Any]) -> None:
    """If `upstream` leads to no broker, the gateway learns the brokers at the next address."""
    cluster = Cluster()
    async with trio.open_nursery() as nursery:
        upstream = await nursery.start(FakeBroker(serve).run)
        other = await cluster.start(nursery, 2)
        settings = {"mode": "gateway", "gateway": {"bootstrap_servers": [str(other)]}}
        async with sidecar(upstream, **settings) as (at, _):
            assert (await ready(at))["brokers"].keys() == {str(other)}
            async with connect(*at.listen) as client:
                assert {node.id for node in await brokers(client)} == {2}
        nursery.cancel_scope.cancel()


async def test_refused_gateway_asks_next_address(nursery: trio.Nursery) -> None:
    """If the broker at `upstream` refuses the gateway, the gateway still learns the brokers at the next address."""
    cluster = Cluster()
    other = await cluster.start(nursery, 2)
    refusing = ScriptedBroker({MetadataRequest: HangUp()})
    upstream = await nursery.start(FakeBroker(refusing.serve).run)
    settings = {"mode": "gateway", "gateway": {"bootstrap_servers": [str(other)]}}
    async with sidecar(upstream, **settings) as (at, _), connect(*at.listen) as client:
        assert {node.id for node in await brokers(client)} == {2}
    nursery.cancel_scope.cancel()


async def test_gateway_asks_again_after_all_brokers_moved(nursery: trio.Nursery) -> None:
    """If all brokers get other addresses at once, the gateway finds them again at `upstream`."""
    cluster = Cluster()
    for node_id in (1, 2):
        await cluster.start(nursery, node_id)
    upstream, _ = await cluster.balanced(nursery)
    async with sidecar(upstream, mode="gateway") as (at, _):
        await ready(at)
        for node_id in (1, 2):
            await cluster.stop(node_id)
            await cluster.start(nursery, node_id)
        with trio.fail_after(20):
            while str(cluster.nodes[1]) not in (await ready(at))["brokers"]:
                pass
        async with connect(*at.listen) as client:
            assert {node.id for node in await brokers(client)} == {1, 2}
    nursery.cancel_scope.cancel()


async def test_gateway_is_ready_while_its_broker_is(nursery: trio.Nursery) -> None:
    """Until the gateway has asked again at a broker that serves its clients, a lost address does not count."""
    cluster = Cluster()
    await cluster.start(nursery, 1)
    upstream, _ = await cluster.balanced(nursery)
    running = Sidecar(configured(upstream=str(upstream), mode="gateway"))
    await nursery.start(running.run, trio.Event())
    is_ready = {str(cluster.nodes[1]): {"reachable": True, "accepting": True}}
    with trio.fail_after(10):
        while running._readiness() != is_ready:
            await wait_all_tasks_blocked(0.01)
    assert running._gateway is not None
    running._gateway.unreachable = Unreachable(str(upstream), 0.0, "lost")
    assert running._readiness() == is_ready
    nursery.cancel_scope.cancel()


async def test_successor_waits_for_copy(nursery: trio.Nursery) -> None:
    """As soon as a gateway knows the brokers, the copy of the broker for new clients exists, and is not loaded yet."""
    cluster = Cluster()
    upstream = await cluster.start(nursery, 1)
    cluster.scripted[1].answers[ListGroupsRequest] = NoReply()
    running = Sidecar(configured(upstream=str(upstream), mode="gateway"))
    nursery.start_soon(running.run, trio.Event())
    await wait_all_tasks_blocked()
    assert running._gateway is not None
    with trio.fail_after(10):
        await running._gateway.was_asked.wait()
    assert running._gateway.is_loaded
    assert not running._is_loaded()
    nursery.cancel_scope.cancel()


async def test_client_from_before_the_nodes_were_known(nursery: trio.Nursery) -> None:
    """A client whose connection to a bootstrap address took until the nodes were known must try again."""
    cluster = Cluster()
    await cluster.start(nursery, 1)
    upstream, _ = await cluster.balanced(nursery)
    running = Sidecar(configured(upstream=str(upstream), mode="gateway"))
    await nursery.start(running.run, trio.Event())
    port = running._client_port(next(iter(running._listeners)))
    with trio.fail_after(10):
        while port.upstream() == upstream:
            await wait_all_tasks_blocked(0.01)
    with pytest.raises(NotServed):
        port.new_session(Origin("10.0.0.1"), upstream, upstream)
    nursery.cancel_scope.cancel()


async def test_cluster_that_comes_later_is_asked_first(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage, clients are served when the gateway knows the brokers, and not at the address of a balancer."""
    monkeypatch.setattr(gateway_routes, "NODES_SECONDS", 0.2)
    cluster = Cluster()
    await cluster.start(nursery, 1)
    [place] = free_addresses(1)
    upstream = Address(*place)
    async with sidecar(upstream, mode="gateway") as (at, _):
        with trio.fail_after(10):
            while b"refused" not in (await get(at.admin, "/readyz"))[1]:
                pass
        await nursery.start(FakeBroker(cluster.scripted[1].serve, address=upstream).run)
        with pytest.raises(BrokerError):
            async with connect(*at.listen) as client:
                await brokers(client)
        assert (await ready(at))["brokers"].keys() == {str(cluster.nodes[1])}
        async with connect(*at.listen) as client:
            assert {node.id for node in await brokers(client)} == {1}
    nursery.cancel_scope.cancel()


def test_client_of_balancer_is_turned_away_when_nodes_are_known() -> None:
    """The gateway learns the brokers while a client is being connected to a balancer. So that client is not served."""
    served = Mock()
    config = configured(upstream="balancer:9092", mode="gateway")
    whole = gateway_routes.Gateway(config, Mock(), ServedBrokers(), served, Mock(), {})
    port, origin, peer = whole.bootstrap_port(), Origin("192.0.2.1"), Address("192.0.2.2", 9092)
    accepted_at = port.upstream()
    whole.advertise(1, "broker-1", 9092)
    try:
        with pytest.raises(NotServed):
            port.new_session(origin, accepted_at, peer)
        served.assert_not_called()
        port.new_session(origin, port.upstream(), peer)
        served.assert_called_once_with(Address("broker-1", 9092))
    finally:
        for each in whole.opened[1]:
            each.close()


def two_ports() -> tuple[socket.socket, int]:
    """Returns a listener whose next port is free, and the port before its own.

    Both ports are reserved, and the system chooses neither of them for an outgoing connection.
    """
    while True:
        [(_, port)] = free_addresses(1)
        [taken] = listen(Address("127.0.0.1", port))
        if reserve(port + 1):
            try:
                [free] = listen(Address("127.0.0.1", port + 1))
            except ListenError:
                pass
            else:
                free.close()
                return taken, port - 1
        taken.close()


async def test_gateway_ports_follow_node_ids(nursery: trio.Nursery) -> None:
    """A node's port is first_port plus its node id, or any other port if that one is taken."""
    cluster = Cluster()
    first, base = two_ports()
    upstream = await cluster.start(nursery, 1)
    cluster.nodes[2] = upstream
    settings = {"mode": "gateway", "gateway": {"advertise": "127.0.0.1", "first_port": base}}
    with first:
        async with sidecar(upstream, **settings) as (at, _), connect(*at.listen) as client:
            taken, free = await brokers(client)
    assert taken.port not in (0, base + 1)  # The port is in use. Any other port is better than none.
    assert free.port == base + 2
    nursery.cancel_scope.cancel()


async def test_strict_port_that_is_taken_is_a_fault(nursery: trio.Nursery) -> None:
    """If a strict port is taken, replies with the broker's address close, and the sidecar is not ready until then."""
    cluster = Cluster()
    first, base = two_ports()
    upstream = await cluster.start(nursery, 1)
    cluster.nodes[2] = upstream
    settings = {"mode": "gateway", "gateway": {"advertise": "127.0.0.1", "first_port": base, "strict_ports": True}}
    async with sidecar(upstream, **settings) as (at, _):
        with first:
            async with connect(*at.listen) as client:
                with pytest.raises(BrokerError):
                    await brokers(client)
            status, body = await get(at.admin, "/readyz")
            assert status == 503
            assert b"node-1" in body
        async with connect(*at.listen) as client:
            assert {node.id: node.port for node in await brokers(client)} == {1: base + 1, 2: base + 2}
        assert b"node-1" not in (await get(at.admin, "/readyz"))[1]
    nursery.cancel_scope.cancel()
