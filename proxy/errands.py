"""What the sidecar does at a broker of its own accord, over its own connection.

Owns: when it connects, how it goes on after a failure, and that the copy learns from the replies as from those to any
client. Must not know: what is to be done, and when.
"""

from functools import partial
from typing import Any, Protocol, TypeVar

import trio

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator import wire
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.proxy.attempts import Attempts
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.client import CLIENT_ID, BrokerError, KafkaClient
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.supervision import Supervisor, Task

Due = TypeVar("Due")

DESCRIBE_UNTIL = 5
"""The DescribeGroups version to ask in: v4 has instance ids; v6 has another form for what is not there, and no more."""


class Errand(Protocol[Due]):
    """Something to do at a broker time and again."""

    task: Task
    """Which background part it is."""

    async def due(self) -> Due | None:
        """What is to be done now; None where there is nothing."""

    async def run(self, client: KafkaClient, due: Due) -> None:
        """Does it. May raise what a question to the broker does."""


async def run_errand(copy: BrokerCopy, errand: Errand[Due], pause: float, supervisor: Supervisor | None = None) -> None:
    """Looks every `pause` seconds whether there is something to do, and does it, until cancelled. Never raises."""
    run = partial(_carry_on, copy, errand, pause)
    await (supervisor or Supervisor()).keep(errand.task, run, str(copy.address))


async def _carry_on(copy: BrokerCopy, errand: Errand[Due], pause: float) -> None:
    attempts = Attempts()
    while True:
        await trio.sleep(pause)
        try:
            if (due := await errand.due()) is None:
                continue
            async with copy.connect(again=True) as client:
                while due is not None:
                    await errand.run(client, due)
                    due = await errand.due()
            attempts.failures = 0
        except (BrokerError, DecodeError) as error:
            attempts.failures += 1
            if attempts.enters(type(error).__name__):
                log.debug("errand failed", errand=errand.task.value, broker=str(copy.address), reason=str(error))
            await trio.sleep(attempts.pause())


async def describe(copy: BrokerCopy, client: KafkaClient, groups: tuple[str, ...]) -> DescribeGroupsResponse:
    """Has the broker say how these groups are, and the copy learn it. Raises as `KafkaClient.ask`."""
    request = DescribeGroupsRequest(groups=groups)
    version = client.version_for(DescribeGroupsRequest, highest=DESCRIBE_UNTIL)
    as_of = {group: copy.manager.changes_of(group) for group in groups}
    reply: DescribeGroupsResponse = await carry_out(copy, client, request, version, as_of=as_of)
    return reply


async def carry_out(copy: BrokerCopy, client: KafkaClient, request: Struct, version: int, **note: Any) -> Any:
    """Asks something that the copy learns from, if only that there is no reply. Raises as `KafkaClient.ask`.

    `note`: further fields of the Exchange.
    """
    exchange = Exchange(
        request=request,
        version=version,
        token=f"{CLIENT_ID}:",
        client_id=CLIENT_ID,
        client_host="",
        sent_at=copy.epoch(trio.current_time()),
        **note,
    )
    try:
        reply = await client.ask(request, version)
    except BaseException:
        copy.apply(wire.abandoned(exchange), trio.current_time())
        raise
    now = trio.current_time()
    copy.apply(wire.replied(exchange, reply, copy.epoch(now)), now)
    return reply
