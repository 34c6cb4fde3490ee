"""Asks the broker about what only it can say: groups in doubt, and names of topics.

Owns: what is asked when, and how often again. Must not know: what put a group in doubt, and what a reply does to it
(`coordinator.wire` reads it like a reply to any client).

The log does not tell what a group was doing when the sidecar began to read it. Asked once, the wire tells the rest.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar
from uuid import UUID

import trio

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from group_sidecar.coordinator import wire
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.proxy.attempts import Attempts
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.client import CLIENT_ID, BrokerError, KafkaClient
from group_sidecar.proxy.logs import log

T = TypeVar("T")

ROUND_SECONDS = 0.25
"""Between looks whether there is something to ask."""
GROUPS_AT_ONCE = 100
NAMES_AT_ONCE = 1000
AGAIN_SECONDS, LONGEST_AGAIN = 0.5, 30.0
"""Until the same is asked again: doubled each time, while it stays in doubt."""
_DESCRIBE_UNTIL = 5  # v6 has another form for what is not there, and nothing more.
_BY_ID_SINCE = 12  # Metadata (KIP-516).


async def settle_forever(copy: BrokerCopy) -> None:
    """Asks, whenever there is something to ask, until cancelled. Never raises."""
    settler, attempts = _Settler(copy), Attempts()
    while True:
        await trio.sleep(ROUND_SECONDS)
        if settler.due() is None:
            continue
        try:
            async with copy.connect() as client:
                while due := settler.due():
                    await settler.ask(client, *due)
            attempts.failures = 0
        except (BrokerError, DecodeError) as error:
            attempts.failures += 1
            if attempts.enters(type(error).__name__):
                log.debug("groups in doubt could not be asked about", broker=str(copy.address), reason=str(error))
            await trio.sleep(attempts.pause())
        except Exception:  # noqa: BLE001 - whatever it is, clients must be forwarded
            log.exception("asking about groups in doubt failed", broker=str(copy.address))
            attempts.failures += 1
            await trio.sleep(attempts.pause())


class _Pace(Generic[T]):
    """What was asked about, and when that may be asked again."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._again: dict[T, tuple[float, float]] = {}

    def due(self, wanted: Iterable[T]) -> list[T]:
        """What may be asked now of what is wanted. What is not wanted any more is forgotten."""
        now, wanted = trio.current_time(), set(wanted)
        self._again = {what: when for what, when in self._again.items() if what in wanted}
        return [what for what in wanted if what not in self._again or self._again[what][1] <= now][: self._at_once]

    def asked(self, these: Iterable[T]) -> None:
        """These are being asked about."""
        now = trio.current_time()
        for what in these:
            pause = min(2 * self._again[what][0], LONGEST_AGAIN) if what in self._again else AGAIN_SECONDS
            self._again[what] = pause, now + pause


class _Settler:
    """What is asked of one broker."""

    def __init__(self, copy: BrokerCopy) -> None:
        self._copy = copy
        self._groups: _Pace[str] = _Pace(GROUPS_AT_ONCE)
        self._names: _Pace[UUID] = _Pace(NAMES_AT_ONCE)

    def due(self) -> tuple[list[str], list[UUID]] | None:
        """The groups and the topics to ask about now; None where there are none."""
        groups = self._groups.due(self._copy.manager.unsettled())
        names = self._names.due(self._copy.names_wanted)
        return (groups, names) if groups or names else None

    async def ask(self, client: KafkaClient, groups: list[str], names: list[UUID]) -> None:
        """Asks about these."""
        self._groups.asked(groups)
        self._names.asked(names)
        if groups:
            await self._describe(client, tuple(groups))
        if names:
            topics = tuple(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in names)
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            version = client.version_for(MetadataRequest, lowest=_BY_ID_SINCE)
            reply: MetadataResponse = await client.ask(request, version)
            self._copy.learn_names({t.topic_id: t.name for t in reply.topics if t.name and t.topic_id.int})

    async def _describe(self, client: KafkaClient, groups: tuple[str, ...]) -> None:
        copy, request = self._copy, DescribeGroupsRequest(groups=groups)
        version = client.version_for(DescribeGroupsRequest, highest=_DESCRIBE_UNTIL)
        exchange = Exchange(
            request=request,
            version=version,
            token=f"{CLIENT_ID}:",
            client_id=CLIENT_ID,
            client_host="",
            sent_at=copy.epoch(trio.current_time()),
            as_of={group: copy.manager.changes_of(group) for group in groups},
        )
        reply = await client.ask(request, version)
        now = trio.current_time()
        copy.apply(wire.replied(exchange, reply, copy.epoch(now)), now)
