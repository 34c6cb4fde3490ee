"""The whole sidecar in front of a scripted broker."""

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.describe_acls import DescribeAclsRequest
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.metadata import MetadataRequest
from group_sidecar.coordinator.model.facts import ClientRefused, CoordinatorMoved
from group_sidecar.proxy import hand_over
from group_sidecar.proxy import sidecar as whole
from group_sidecar.proxy.broker.broker_errors import BrokerClosed
from group_sidecar.proxy.broker.group_queries import brokers
from group_sidecar.proxy.broker.kafka_client import KafkaClient, connect
from group_sidecar.proxy.config.loading import ConfigError
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.dataplane.connections import ConnectionManager
from group_sidecar.proxy.dataplane.poller import Poller
from group_sidecar.proxy.listeners.ports import ListenError, listen, port_of
from group_sidecar.proxy.listeners.predecessor import Predecessor
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.sidecar import Addresses, Sidecar
from group_sidecar.proxy.sidecar_process import run_sidecar
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.proxy.fakes import ANY_PORT, FakeBroker, read_frame, read_to_end, reply_frame, request_frame
from tests.proxy.scripted_broker import HangUp, ScriptedBroker
from tests.proxy.whole_sidecar import Cluster, configured, get, ready, refused, sidecar


async def test_one_of_two_sidecars_logs_a_fact(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """A successor logs only its own refusals until it has reported to its predecessor that it serves clients."""
    ours, theirs = socket.socketpair()
    serving, goes_on = trio.Event(), trio.Event()

    async def start_admin(*_: object) -> None:
        serving.set()
        await goes_on.wait()

    monkeypatch.setattr(Sidecar, "_start_admin", start_admin)
    upstream = await Cluster().start(nursery, 1)
    successor = Sidecar(configured(upstream=str(upstream)), predecessor=Predecessor(ours))
    refusal = ClientRefused(
        group_id="g", at=1.0, policy="p", error_code=81, client_id="c", client_host="/h", size=3, limit=3
    )
    with capture_logs() as lines, trio.socket.from_stdlib_socket(theirs) as channel:
        async with trio.open_nursery() as running:
            running.start_soon(successor.run, trio.Event())
            await serving.wait()
            del lines[:]
            for fact in (CoordinatorMoved(group_id="g", at=1.0), refusal):
                successor._observe(fact)
            assert [line["group"] for line in lines] == ["g"]
            goes_on.set()
            assert await channel.recv(1)
            successor._observe(CoordinatorMoved(group_id="moved", at=1.0))
            running.cancel_scope.cancel()
    assert any(line.get("group") == "moved" for line in lines)
    nursery.cancel_scope.cancel()


async def test_clients_reach_broker_through_sidecar(nursery: trio.Nursery) -> None:
    """Clients reach the broker, and the admin port reports the broker, its log and the connection."""
    cluster = Cluster()
    upstream = await cluster.start(nursery, 1)
    async with sidecar(upstream) as (at, _):
        async with connect(*at.listen) as client:
            [node] = await brokers(client)
        assert node.address == upstream  # A sidecar in sidecar mode rewrites nothing.
        readiness = await ready(at)
        assert readiness["ready"] is True
        assert readiness["brokers"] == {str(upstream): {"reachable": True, "accepting": True}}
        assert readiness["offsets_log"][str(upstream)].keys() >= {"read", "partitions", "loading", "owned", "failed"}
        _, metrics = await get(at.admin, "/metrics")
        assert b'group_sidecar_client_connections_opened_total{listener="default"} 1.0' in metrics
    nursery.cancel_scope.cancel()


async def test_listeners_share_one_copy(nursery: trio.Nursery) -> None:
    """Each listener leads to its own upstream address. The broker is one, and the connections are counted apart."""
    cluster = Cluster()
    upstreams = {name: await cluster.start(nursery, node) for node, name in enumerate(("ONE", "TWO"))}
    listeners = [{"name": name, "listen": "127.0.0.1:0", "upstream": str(at)} for name, at in upstreams.items()]
    config = Config.model_validate({"listeners": listeners, "admin": "127.0.0.1:0"})
    at = await nursery.start(run_sidecar, config)
    for name, clients in (("ONE", 1), ("TWO", 2)):
        for _ in range(clients):
            async with connect(*at.listeners[name]) as client:
                await client.ask(ListGroupsRequest())
    assert len(cluster.scripted[1].requests(ListGroupsRequest)) == 2  # The sidecar asks the first address only.
    assert list((await ready(at))["brokers"]) == [str(upstreams["ONE"])]
    _, metrics = await get(at.admin, "/metrics")
    for name, count in (("ONE", 1), ("TWO", 2)):
        assert f'group_sidecar_client_connections_opened_total{{listener="{name}"}} {count}.0\n'.encode() in metrics
    nursery.cancel_scope.cancel()


async def test_disabled_log_reading_skips_log(nursery: trio.Nursery) -> None:
    """With offsets_log.read off, the sidecar requests no metadata and readiness omits the log."""
    cluster = Cluster()
    upstream = await cluster.start(nursery, 1)
    async with sidecar(upstream, offsets_log={"read": False}) as (at, _):
        assert "offsets_log" not in await ready(at)
        assert cluster.scripted[1].requests(MetadataRequest) == []
    nursery.cancel_scope.cancel()


async def test_refusing_broker_is_counted(nursery: trio.Nursery) -> None:
    """A broker that refuses the sidecar is counted in the metrics, while mirror_ready stays 1."""
    cluster = Cluster()
    upstream = await cluster.start(nursery, 1)
    answers = cluster.scripted[1].answers
    answer = answers.pop(DescribeAclsRequest)
    answers[DescribeAclsRequest] = HangUp()

    async def wait_for_metric(at: Addresses, line: bytes) -> None:
        with trio.fail_after(GIVE_UP_SECONDS):
            while True:
                _, metrics = await get(at.admin, "/metrics")
                if line in metrics:
                    assert b"group_sidecar_mirror_ready 1.0\n" in metrics
                    return

    async with sidecar(upstream) as (at, _):
        await wait_for_metric(at, b"group_sidecar_refusing_brokers 1.0\n")
        answers[DescribeAclsRequest] = answer
        await wait_for_metric(at, b"group_sidecar_refusing_brokers 0.0\n")
    nursery.cancel_scope.cancel()


async def test_unreachable_broker_recovers(nursery: trio.Nursery) -> None:
    """Readiness is 503 and clients are disconnected until the broker listens. Then both recover."""
    [taken] = listen(ANY_PORT)
    upstream = Address("127.0.0.1", port_of([taken]))
    taken.close()
    async with sidecar(upstream) as (at, _):
        status, body = await get(at.admin, "/readyz")
        assert (status, json.loads(body)["ready"]) == (503, False)
        with pytest.raises(BrokerClosed):
            async with connect(*at.listen):
                pass
        scripted = ScriptedBroker({ListGroupsRequest: ListGroupsResponse(error_code=0, groups=())})
        await nursery.start(FakeBroker(scripted.serve, address=upstream).run)
        await ready(at)
        async with connect(*at.listen) as client:
            assert client.versions
    nursery.cancel_scope.cancel()


async def test_graceful_stop_closes_idle_connections(nursery: trio.Nursery) -> None:
    """A graceful stop closes the listener and the idle connections."""
    upstream = await Cluster().start(nursery, 1)
    async with sidecar(upstream) as (at, stop):
        async with await trio.open_tcp_stream(*at.listen) as client:
            await client.send_all(request_frame(1, b"\0\0", api_key=ApiKey.API_VERSIONS))
            assert await read_frame(client)
            stop.set()
            assert await read_to_end(client) == b""
        await refused(at.listen)
    nursery.cancel_scope.cancel()


async def test_graceful_stop_waits_for_replies(nursery: trio.Nursery) -> None:
    """A graceful stop delivers the reply of an in-flight request before it closes the connection."""
    was_asked, answer = trio.Event(), trio.Event()

    async def behaviour(stream: trio.SocketStream) -> None:
        with suppress(EOFError):  # A client that only checks whether the port is open.
            if await read_frame(stream) == request_frame(1):  # The other requests are the sidecar's own.
                was_asked.set()
            await answer.wait()
            await stream.send_all(reply_frame(1))
            await read_to_end(stream)

    broker = FakeBroker(behaviour)
    upstream = await nursery.start(broker.run)
    async with sidecar(upstream) as (at, stop), await trio.open_tcp_stream(*at.listen) as client:
        await client.send_all(request_frame(1))
        await was_asked.wait()
        stop.set()
        await refused(at.listen)
        answer.set()
        assert await read_to_end(client) == reply_frame(1)
    nursery.cancel_scope.cancel()


async def test_cancellation_closes_connections(nursery: trio.Nursery) -> None:
    """A cancelled sidecar closes its client connections."""
    upstream = await Cluster().start(nursery, 1)
    async with trio.open_nursery() as life:
        at = await life.start(run_sidecar, configured(upstream=str(upstream)))
        assert at.admin is None
        client = await trio.open_tcp_stream(*at.listen)
        life.cancel_scope.cancel()
    async with client:
        assert await read_to_end(client) == b""
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", ["listen", "admin"])
async def test_address_in_use_raises_listen_error(name: str) -> None:
    """A listen or admin address in use raises ListenError with the system's reason."""
    [taken] = listen(ANY_PORT)
    with taken:
        addresses = {"upstream": "127.0.0.1:1", name: f"127.0.0.1:{port_of([taken])}"}
        with pytest.raises(ListenError, match=r"(?i)address already in use"):
            await run_sidecar(configured(**addresses))


@pytest.mark.parametrize("wanted", [True, False])
async def test_start_line_reports_send_mode(wanted: bool, nursery: trio.Nursery) -> None:
    """The start line of the log reports the send mode of small frames that is in use."""
    with capture_logs() as lines:
        await nursery.start(run_sidecar, configured(upstream="127.0.0.1:1", io_uring=wanted))
    [started] = [line for line in lines if line["event"] == "started"]
    possible = ConnectionManager(Poller(), batched=wanted).send_mode
    assert started["small_frames"] == possible
    assert wanted or not possible.endswith("together")
    nursery.cancel_scope.cancel()


def full(group: str, members: int) -> DescribeGroupsResponse:
    """Returns the broker's description of a stable group."""
    who = tuple(
        DescribedGroupMember(
            member_id=f"m{number}", client_id="c", client_host="/h", member_metadata=b"", member_assignment=b""
        )
        for number in range(members)
    )
    described = DescribedGroup(
        error_code=0, group_id=group, group_state="Stable", protocol_type="consumer", protocol_data="range", members=who
    )
    return DescribeGroupsResponse(groups=(described,))


JOIN = JoinGroupRequest(
    group_id="orders",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    member_id="",
    protocol_type="consumer",
    protocols=(JoinGroupProtocol(name="range", metadata=b""),),
)
LET_IN = JoinGroupResponse(
    error_code=ErrorCode.REBALANCE_IN_PROGRESS, protocol_name="", leader="", member_id="", generation_id=-1
)
"""The broker's own reply. Its contents do not matter."""


async def joined(client: KafkaClient) -> int:
    """Joins a group. Returns the error code of the reply."""
    code: int = (await client.ask(JOIN, 3)).error_code
    return code


async def limit_shown(at: Addresses) -> list[str]:
    """Returns the metrics of the limit and of the last reload."""
    _, body = await get(at.admin, "/metrics")
    shown = ("group_sidecar_group_max_size ", "group_sidecar_config_last_reload_successful ")
    return [line.rpartition(" ")[2] for line in body.decode().splitlines() if line.startswith(shown)]


async def limit_in_config(at: Addresses) -> object:
    """Returns the limit that the admin port shows among the settings in force, or None."""
    status, body = await get(at.admin, "/api/v1/config")
    assert status == 200
    policy = json.loads(body)["policies"]["group_max_size"]
    return policy and policy["limit"]


async def test_reload_applies_to_open_connections(nursery: trio.Nursery) -> None:
    """A reload applies new limits to open connections at once. A failed reload keeps the old limits."""
    cluster = Cluster()
    upstream = await cluster.start(nursery, 1)
    cluster.scripted[1].answers |= {JoinGroupRequest: LET_IN, DescribeGroupsRequest: full("orders", 3)}

    def limited(limit: int, **further: Any) -> dict[str, Any]:
        return {"policies": {"group_max_size": {"limit": limit}}, **further}

    file = limited(3)

    def read() -> Config:
        if "faults" in file:
            raise ConfigError(file["faults"])
        return configured(upstream=str(upstream), admin="127.0.0.1:0", **file)

    async with sidecar(upstream, read, **limited(5)) as (at, _), connect(*at.listen) as client:
        assert await joined(client) == ErrorCode.REBALANCE_IN_PROGRESS
        assert await limit_shown(at) == ["5.0", "1.0"]
        assert await limit_in_config(at) == 5
        status, body = await get(at.admin, "/-/reload", "POST")
        assert (status, json.loads(body)) == (200, {"changed": ["policies.group_max_size.limit: 5 -> 3"]})
        assert await joined(client) == 77
        assert await limit_shown(at) == ["3.0", "1.0"]
        file = {"faults": ["sidecar.yaml: listen: is required"]}
        status, body = await get(at.admin, "/-/reload", "POST")
        assert (status, json.loads(body)["lines"]) == (400, ["sidecar.yaml: listen: is required"])
        assert await joined(client) == 77
        assert await limit_shown(at) == ["3.0", "0.0"]
        assert await limit_in_config(at) == 3
        file = limited(9, limits={"groups": 5})
        status, body = await get(at.admin, "/-/reload", "POST")
        assert (status, json.loads(body)["lines"]) == (
            400,
            ["limits.groups: cannot change in a running sidecar; restart it, or send it SIGUSR2"],
        )
        assert await joined(client) == 77
        file = {}
        status, body = await get(at.admin, "/-/reload", "POST")
        assert (status, json.loads(body)) == (200, {"changed": ["policies.group_max_size.limit: 3 -> unset"]})
        assert await joined(client) == ErrorCode.REBALANCE_IN_PROGRESS
        assert await limit_shown(at) == ["1.0"]
        assert await limit_in_config(at) is None
    nursery.cancel_scope.cancel()


async def test_reload_without_file_is_refused(nursery: trio.Nursery) -> None:
    """Without --config, a reload request gets status 400 and a line that names the missing file."""
    upstream = await Cluster().start(nursery, 1)
    async with sidecar(upstream) as (at, _):
        status, body = await get(at.admin, "/-/reload", "POST")
        assert status == 400
        assert "without --config" in json.loads(body)["lines"][0]
        assert (await get(at.admin, "/-/reload"))[0] == 405
    nursery.cancel_scope.cancel()


async def test_stopped_sidecar_journal_is_complete(nursery: trio.Nursery, tmp_path: Path) -> None:
    """After the sidecar stops, its journal folder has one segment whose first record is a complete heartbeat."""
    upstream = await Cluster().start(nursery, 1)
    settings = {"folder": tmp_path / "records", "interval_seconds": 60}
    async with sidecar(upstream, journal=settings, sidecar_id="here") as (at, _):
        await ready(at)
    [segment] = (tmp_path / "records").glob("segment-*.jsonl")
    first, *_ = map(json.loads, segment.read_text().splitlines())
    assert (first["kind"], first["sidecar"]) == ("heartbeat", "here")
    assert first["sample"]["group_sidecar_client_connections_opened_total"] == 0
    assert all(isinstance(value, float) for value in first["sample"].values())
    nursery.cancel_scope.cancel()


async def test_incomplete_request_yields_to_newer() -> None:
    """At the limit of held frames, an older incomplete request is closed when a newer one arrives."""
    begun = (90_000).to_bytes(4, "big") + request_frame(1, bytes(100), api_key=ApiKey.JOIN_GROUP)[4:]
    settings = {"policies": {"group_max_size": {"limit": 5}}, "limits": {"held_frames": 100_000}}
    async with trio.open_nursery() as nursery:
        upstream = await Cluster().start(nursery, 1)
        async with (
            sidecar(upstream, **settings) as (at, _),
            await trio.open_tcp_stream(*at.listen) as first,
            await trio.open_tcp_stream(*at.listen) as second,
        ):
            async with connect(*at.listen) as client:
                await brokers(client)  # The broker serves clients without SASL.
                await first.send_all(begun)
                await brokers(client)  # The bytes of the first client were read before.
            with trio.fail_after(10):
                await second.send_all(begun)
                gone = [await read_to_end(first)]
            with trio.move_on_after(0.2):
                gone.append(await second.receive_some())
            assert gone == [b""], "only the older request must be evicted"
        nursery.cancel_scope.cancel()


async def test_predecessor_is_not_exclusive(monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery) -> None:
    """While a successor may serve clients, `answers.exclusive` is not in force. It is again if the successor fails."""
    config = configured(upstream=str(await Cluster().start(nursery, 1)), answers={"exclusive": True})
    running = whole.Sidecar(config)

    def is_exclusive() -> bool:
        [manager] = running._brokers.managers()
        return manager.exclusivity.holds(running._epoch())

    during: list[bool] = []

    async def fail(*_: Any) -> None:
        during.append(is_exclusive())

    monkeypatch.setattr(hand_over, "start_successor", fail)
    await nursery.start(running.run, trio.Event())
    assert is_exclusive()
    await running.hand_over.start_successor(trio.Event())
    assert during == [False]
    assert is_exclusive()
    nursery.cancel_scope.cancel()
