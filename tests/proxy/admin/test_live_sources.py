"""The admin port of a whole sidecar in front of a scripted broker reports the traffic."""

import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trio
import trustme

from group_sidecar.codecs.messages.join_group import JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from group_sidecar.proxy.broker.kafka_client import KafkaClient, connect
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.sidecar import Addresses
from group_sidecar.proxy.sidecar_process import run_sidecar
from tests.proxy.test_sidecar import JOIN
from tests.proxy.whole_sidecar import Cluster, configured, get, ready, sidecar

GROUP = "größe/1"
LURED = "host: evil.example"
"""The Host header of a browser whose page had its name resolve to the loopback address. It must get no access."""


async def get_content(at: Addresses, target: str) -> Any:
    status, body = await get(at.admin, f"/api/v1/{target}")
    assert status == 200, body
    return json.loads(body)


def of_group(path: str) -> str:
    return f"{path}?group={quote(GROUP, safe='')}"


async def commit(client: KafkaClient, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="here")
    topics = (OffsetCommitRequestTopic(name="sales", partitions=(partition,)),)
    await client.ask(OffsetCommitRequest(group_id=GROUP, topics=topics), 2)


async def ask_for_the_end(client: KafkaClient) -> None:
    topics = (ListOffsetsTopic(name="sales", partitions=(ListOffsetsPartition(partition_index=0, timestamp=-1),)),)
    await client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 1)


def answers() -> dict[Any, Any]:
    committed = OffsetCommitResponsePartition(partition_index=0, error_code=0)
    end = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=50)
    return {
        OffsetCommitRequest: OffsetCommitResponse(
            topics=(OffsetCommitResponseTopic(name="sales", partitions=(committed,)),)
        ),
        ListOffsetsRequest: ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="sales", partitions=(end,)),)),
        JoinGroupRequest: JoinGroupResponse(
            error_code=0, protocol_name="range", leader="m-1", member_id="m-1", generation_id=4
        ),
    }


async def test_seen_group_appears_in_json_api(nursery: trio.Nursery) -> None:
    """A group whose requests pass through the sidecar appears in all endpoints of the JSON API."""
    cluster = Cluster()
    upstream = await cluster.start(nursery, 1)
    cluster.scripted[1].answers |= answers()
    async with sidecar(upstream, sidecar_id="here") as (at, _), connect(*at.listen) as client:
        await ready(at)
        await commit(client, 42)
        await ask_for_the_end(client)
        await client.ask(JOIN, 3)
        content = await get_content(at, of_group("group"))
        assert (content["group"], content["lag"], content["committed_partitions"]) == (GROUP, 8, 1)
        (offset,) = (await get_content(at, of_group("offsets")))["offsets"]
        assert (offset["topic"], offset["current_offset"], offset["log_end_offset"], offset["lag"]) == (
            "sales",
            42,
            50,
            8,
        )
        assert offset["metadata"] == "here"
        assert {group["group"] for group in (await get_content(at, "groups"))["groups"]} >= {GROUP}
        assert (await get_content(at, of_group("timeline")))["group"] == GROUP
        assert (await get_content(at, of_group("why")))["rebalances"] == 0
        assert (await get_content(at, "refusals")) == {"refusals": []}
        status = await get_content(at, "status")
        assert (status["sidecar_id"], status["mode"], status["ready"]) == ("here", "sidecar", True)
        assert (status["connections"], sum(status["groups"].values())) == (1, (await get_content(at, "groups"))["all"])
        assert list(status["brokers"]) == list(status["offsets_log"]) == [str(upstream)]
    nursery.cancel_scope.cancel()


async def test_group_limit_uses_overrides(nursery: trio.Nursery) -> None:
    """The JSON of a group contains the limit of its override instead of the general limit."""
    cluster = Cluster()
    upstream = await cluster.start(nursery, 1)
    cluster.scripted[1].answers |= answers()
    policies = {"group_max_size": {"limit": 7, "overrides": [{"group": GROUP, "limit": 5}]}}
    async with sidecar(upstream, policies=policies) as (at, _), connect(*at.listen) as client:
        await commit(client, 1)
        assert (await get_content(at, of_group("group")))["limit"] == 5
        (listed,) = (await get_content(at, "groups"))["groups"]
        assert listed["limit"] == 5
    nursery.cancel_scope.cancel()


async def test_status_counts_suppressed_series(nursery: trio.Nursery) -> None:
    """The status counts the series that the last scrape suppressed."""
    cluster = Cluster()
    upstream = await cluster.start(nursery, 1)
    cluster.scripted[1].answers |= answers()
    async with sidecar(upstream, metrics={"detail": "partition", "series": 1}) as (at, _):
        async with connect(*at.listen) as client:
            await commit(client, 1)
        await get(at.admin, "/metrics")
        assert (await get_content(at, "status"))["series_suppressed"] > 0
    nursery.cancel_scope.cancel()


@asynccontextmanager
async def listening(upstream: Address, **settings: Any) -> AsyncIterator[Address]:
    """Runs a sidecar with these settings until the block ends. Yields the address of its admin port."""
    stop = trio.Event()
    async with trio.open_nursery() as running:
        config = configured(upstream=str(upstream), **settings)
        at: Addresses = await running.start(partial(run_sidecar, config, stop=stop))
        assert at.admin is not None
        yield at.admin
        stop.set()


async def status(admin: Address, path: str, *headers: str, tls: ssl.SSLContext | None = None) -> int:
    """Requests a page. Returns the status. A Host header is sent only if `headers` contain one."""
    stream: trio.abc.Stream = await trio.open_tcp_stream("127.0.0.1", admin.port)
    if tls is not None:
        stream = trio.SSLStream(stream, tls, https_compatible=True)
    async with stream:
        await stream.send_all("\r\n".join([f"GET {path} HTTP/1.1", "connection: close", *headers, "", ""]).encode())
        return int((await stream.receive_some(100)).split()[1])


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
async def test_access_settings_guard_admin_port(nursery: trio.Nursery, host: str) -> None:
    """The access settings decide which requests to a running sidecar's admin port need the token."""
    upstream = await Cluster().start(nursery, 1)
    access = {"token": "secret", "metrics": "guarded"}
    async with listening(upstream, admin=f"{host}:0", admin_access=access) as admin:
        assert await status(admin, "/api/v1/status", "host: localhost") == 200
        assert await status(admin, "/api/v1/status", LURED) == 401
        assert await status(admin, "/metrics", LURED) == 401
        assert await status(admin, "/healthz", LURED) == 200
        assert await status(admin, "/metrics", LURED, "authorization: Bearer secret") == 200
    nursery.cancel_scope.cancel()


async def test_configured_admin_host_is_accepted(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Host header with the configured admin host gets access, and a foreign one is refused."""

    def resolve(_: str, port: int, *args: Any, **kwargs: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    upstream = await Cluster().start(nursery, 1)
    async with listening(upstream, admin="admin.example:0") as admin:
        assert await status(admin, "/api/v1/status", "host: admin.example") == 200
        assert await status(admin, "/api/v1/status", LURED) == 403
    nursery.cancel_scope.cancel()


async def test_client_certificate_grants_access(nursery: trio.Nursery, tmp_path: Path) -> None:
    """A client certificate grants access to the admin port of a running sidecar."""
    upstream = await Cluster().start(nursery, 1)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    without, with_one = (ssl.create_default_context() for _ in range(2))
    for context in (without, with_one):
        context.check_hostname = False
        authority.configure_trust(context)
    authority.issue_cert("dashboard@example.org").configure_cert(with_one)
    access = {"certificate_file": str(tmp_path / "server.pem"), "client_ca_file": str(tmp_path / "ca.pem")}
    async with listening(upstream, admin="127.0.0.1:0", admin_access=access) as admin:
        assert await status(admin, "/api/v1/status", LURED, tls=without) == 403
        assert await status(admin, "/api/v1/status", LURED, tls=with_one) == 200
    nursery.cancel_scope.cancel()
