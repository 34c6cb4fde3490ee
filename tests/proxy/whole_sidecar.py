"""Runs whole sidecars in this process, in front of scripted brokers on real ports."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.sidecar import Addresses
from group_sidecar.proxy.sidecar_process import run_sidecar
from tests.proxy.fakes import FakeBroker, read_to_end
from tests.proxy.scripted_broker import ScriptedBroker


class Cluster:
    """Brokers on real ports that name each other in Metadata."""

    def __init__(self) -> None:
        self.nodes: dict[int, Address] = {}
        self.scripted: dict[int, ScriptedBroker] = {}
        self._running: dict[int, trio.CancelScope] = {}

    async def start(self, nursery: trio.Nursery, node_id: int) -> Address:
        """Starts another broker. Returns its address."""
        answers: dict[Any, Any] = {
            MetadataRequest: lambda request, version: self._metadata(),
            ListGroupsRequest: ListGroupsResponse(error_code=0, groups=()),
            DescribeAclsRequest: DescribeAclsResponse(
                throttle_time_ms=0, error_code=ErrorCode.SECURITY_DISABLED, error_message=None, resources=()
            ),
        }
        self.scripted[node_id] = ScriptedBroker(answers)
        fake, self._running[node_id] = FakeBroker(self.scripted[node_id].serve), trio.CancelScope()

        async def run(*, task_status: "trio.TaskStatus[Address]") -> None:
            with self._running[node_id]:
                await fake.run(task_status=task_status)

        self.nodes[node_id] = await nursery.start(run)
        return self.nodes[node_id]

    async def stop(self, node_id: int) -> None:
        """Stops a broker. Metadata continues to list it."""
        self._running[node_id].cancel()
        await refused(self.nodes[node_id])

    async def balanced(self, nursery: trio.Nursery) -> tuple[Address, ScriptedBroker]:
        """Starts a broker that Metadata does not name, as if it were a load balancer. Returns its address, and it."""
        address = await self.start(nursery, 0)
        del self.nodes[0]
        return address, self.scripted.pop(0)

    def _metadata(self) -> MetadataResponse:
        return MetadataResponse(
            brokers=tuple(
                MetadataResponseBroker(node_id=node_id, host=address.host, port=address.port)
                for node_id, address in self.nodes.items()
            ),
            topics=(),
        )


def configured(**settings: Any) -> Config:
    """Returns settings as in a file, with a free port."""
    return Config.model_validate({"listen": "127.0.0.1:0", **settings})


@asynccontextmanager
async def sidecar(
    upstream: Address, read: Callable[[], Config] | None = None, /, **settings: Any
) -> AsyncIterator[tuple[Addresses, trio.Event]]:
    """Runs a sidecar in front of a broker until the block ends. Yields its addresses, and the event that stops it."""
    config = configured(upstream=str(upstream), admin="127.0.0.1:0", **settings)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        yield await nursery.start(partial(run_sidecar, config, read=read, stop=stop)), stop
        stop.set()


async def get(address: Address | None, path: str, method: str = "GET") -> tuple[int, bytes]:
    """Sends an HTTP request. Returns status and body."""
    assert address is not None
    async with await trio.open_tcp_stream(*address) as stream:
        await stream.send_all(f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        head, _, body = (await read_to_end(stream)).partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def refused(address: Address) -> None:
    """Waits until the address refuses connections."""
    with trio.fail_after(10):
        while True:
            try:
                stream = await trio.open_tcp_stream(*address)
            except OSError:
                return
            await stream.aclose()


async def ready(at: Addresses) -> dict[str, Any]:
    """Waits until the sidecar is ready. Returns the JSON of /readyz."""
    with trio.fail_after(10):
        while True:
            status, body = await get(at.admin, "/readyz")
            if status == 200:
                report: dict[str, Any] = json.loads(body)
                return report
