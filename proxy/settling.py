"""Asks the broker about what only it can say: groups in doubt, names of topics, and which topic ids still exist.

Owns: what is asked when, and how often again. Must not know: what put a group in doubt, and what a reply does to it
(`coordinator.wire` reads it like a reply to any client).

The log does not tell what a group was doing when the sidecar began to read it. Asked once, the wire tells the rest.
"""

from collections.abc import Sequence
from uuid import UUID

import trio

from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from group_sidecar.codecs.schema import decode_start
from group_sidecar.proxy.attempts import Pace
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.client import KafkaClient
from group_sidecar.proxy.errands import describe, run_errand
from group_sidecar.proxy.supervision import Supervisor, Task

ROUND_SECONDS = 0.25
"""Between looks whether there is something to ask."""
GROUPS_AT_ONCE = 100
NAMES_AT_ONCE = 1000
AGAIN_SECONDS, LONGEST_AGAIN = 0.5, 30.0
"""Until the same is asked again: doubled each time, while it stays in doubt."""
_BY_ID_SINCE = 12  # Metadata (KIP-516).

LARGEST_AT_ONCE = 16_384
"""Bytes of a Metadata reply beyond which it is decoded in a thread: the data path shares this one."""

_Due = tuple[list[str], list[UUID], list[UUID]]
"""Groups to describe, topic ids whose names are wanted, and topic ids to confirm."""


async def settle_forever(copy: BrokerCopy, supervisor: Supervisor | None = None) -> None:
    """Asks, whenever there is something to ask, until cancelled. Never raises."""
    await run_errand(copy, _Settler(copy), ROUND_SECONDS, supervisor)


class _Settler:
    """What is asked of one broker: about groups, and about topics by their ids."""

    task = Task.SETTLING

    def __init__(self, copy: BrokerCopy) -> None:
        self._copy = copy
        self._groups: Pace[str] = Pace(GROUPS_AT_ONCE, AGAIN_SECONDS, LONGEST_AGAIN)
        self._names: Pace[UUID] = Pace(NAMES_AT_ONCE, AGAIN_SECONDS, LONGEST_AGAIN)

    async def due(self) -> _Due | None:
        """See Errand. Waits while topic ids are in use, so that their rounds share one connection."""
        while True:
            due = self._due_now()
            if due is not None or not self._copy.topic_ids.names:
                return due
            await trio.sleep(ROUND_SECONDS)

    def _due_now(self) -> _Due | None:
        groups = self._groups.due(self._copy.manager.unsettled())
        names = self._names.due(self._copy.names_wanted)
        ids = self._copy.topic_ids.due(self._copy.epoch(trio.current_time()))
        return (groups, names, ids) if groups or names or ids else None

    async def run(self, client: KafkaClient, due: _Due) -> None:
        """See Errand."""
        groups, names, ids = due
        self._groups.begin(groups)
        self._names.begin(names)
        if groups:
            await describe(self._copy, client, tuple(groups))
        if names:
            self._copy.learn_names(await _names_of(client, names))
        if ids:
            existing = await _names_of(client, ids)
            self._copy.learn_names(existing)
            self._copy.topic_ids.learn(ids, existing)


async def _names_of(client: KafkaClient, topic_ids: Sequence[UUID]) -> dict[UUID, str]:
    """The names of those of these topics that the broker has, and shows to the sidecar's user, by id."""
    topics = tuple(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids)
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    version = client.version_for(MetadataRequest, lowest=_BY_ID_SINCE)
    body = await client.ask_undecoded(request, version)
    if len(body) <= LARGEST_AT_ONCE:
        return _read_names(version, body)
    return await trio.to_thread.run_sync(_read_names, version, body)


def _read_names(version: int, body: bytes) -> dict[UUID, str]:
    reply, _ = decode_start(MetadataResponse, version, body)
    return {topic.topic_id: topic.name for topic in reply.topics if topic.name and topic.topic_id.int}
