"""Runs jobs that the sidecar does at a broker on its own initiative, over its own connection.

The module connects when a job is due, waits after a failure, and applies replies to the copy as if a client had got
them. The jobs themselves are in `reconcile` and `shrink`.
"""

from functools import partial
from typing import Any, Protocol, TypeVar

import trio

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.wire import exchange_events
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.proxy.broker.broker_errors import BrokerError
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.broker.group_queries import DESCRIBE_GROUPS_MAX_VERSION
from group_sidecar.proxy.broker.kafka_client import CLIENT_ID, KafkaClient
from group_sidecar.proxy.broker.own_connections import OwnConnections
from group_sidecar.proxy.runtime.backoff import Backoff
from group_sidecar.proxy.runtime.logging import log
from group_sidecar.proxy.runtime.supervision import Supervisor, Task

Due = TypeVar("Due")


class BackgroundJob(Protocol[Due]):
    """A job that is repeated at a broker."""

    task: Task
    """The name of the job for the supervisor, the log and the metrics."""

    async def due(self) -> Due | None:
        """Returns the work that is due now, or None if nothing is due."""

    async def run(self, client: KafkaClient, due: Due) -> None:
        """Does the work that is due. May raise the exceptions of `KafkaClient.ask`."""


async def run_background_job(
    connections: OwnConnections, job: BackgroundJob[Due], pause: float, supervisor: Supervisor | None = None
) -> None:
    """Checks every `pause` seconds whether work of the job is due, and does the work, until cancelled. Never raises."""
    run = partial(_run_job, connections, job, pause)
    await (supervisor or Supervisor()).keep_running(job.task, run, str(connections.address))


async def _run_job(connections: OwnConnections, job: BackgroundJob[Due], pause: float) -> None:
    attempts = Backoff()
    while True:
        await trio.sleep(pause)
        try:
            if (due := await job.due()) is None:
                continue
            async with connections.connect(additional=True) as client:
                while due is not None:
                    await job.run(client, due)
                    due = await job.due()
            attempts.failures = 0
        except (BrokerError, DecodeError) as error:
            attempts.failures += 1
            if attempts.enters_condition(type(error).__name__):
                log.debug(
                    "background job failed", job=job.task.value, broker=str(connections.address), reason=str(error)
                )
            await trio.sleep(attempts.pause())


async def describe_and_learn(
    copy: CoordinatorCopy, client: KafkaClient, groups: tuple[str, ...]
) -> DescribeGroupsResponse:
    """Asks the broker to describe groups, and applies its reply to the copy. Raises what `KafkaClient.ask` raises."""
    request = DescribeGroupsRequest(groups=groups)
    version = client.version_for(DescribeGroupsRequest, highest=DESCRIBE_GROUPS_MAX_VERSION)
    as_of = {group: copy.manager.changes_of(group) for group in groups}
    reply: DescribeGroupsResponse = await ask_and_learn(copy, client, request, version, as_of=as_of)
    return reply


async def ask_and_learn(copy: CoordinatorCopy, client: KafkaClient, request: Struct, version: int, **note: Any) -> Any:
    """Sends a request, and applies its reply or the lack of one to the copy. Raises what `KafkaClient.ask` raises.

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
        copy.apply(exchange_events.lost_reply_events(exchange), trio.current_time())
        raise
    now = trio.current_time()
    copy.apply(exchange_events.reply_events(exchange, reply, copy.epoch(now)), now)
    return reply
