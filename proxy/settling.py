"""Asks the broker about what only it can say: groups in doubt, and names of topics.

Owns: what is asked when, and how often again. Must not know: what put a group in doubt, and what a reply does to it
(`coordinator.wire` reads it like a reply to any client).

The log does not tell what a group was doing when the sidecar began to read it. Asked once, the wire tells the rest.
"""

from uuid import UUID

from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from group_sidecar.proxy.attempts import Pace
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.client import KafkaClient
from group_sidecar.proxy.errands import describe, run_errand

ROUND_SECONDS = 0.25
"""Between looks whether there is something to ask."""
GROUPS_AT_ONCE = 100
NAMES_AT_ONCE = 1000
AGAIN_SECONDS, LONGEST_AGAIN = 0.5, 30.0
"""Until the same is asked again: doubled each time, while it stays in doubt."""
_BY_ID_SINCE = 12  # Metadata (KIP-516).

_Due = tuple[list[str], list[UUID]]


async def settle_forever(copy: BrokerCopy) -> None:
    """Asks, whenever there is something to ask, until cancelled. Never raises."""
    await run_errand(copy, _Settler(copy), ROUND_SECONDS)


class _Settler:
    """What is asked of one broker: about groups, and about topics by their ids."""

    name = "ask about groups in doubt"

    def __init__(self, copy: BrokerCopy) -> None:
        self._copy = copy
        self._groups: Pace[str] = Pace(GROUPS_AT_ONCE, AGAIN_SECONDS, LONGEST_AGAIN)
        self._names: Pace[UUID] = Pace(NAMES_AT_ONCE, AGAIN_SECONDS, LONGEST_AGAIN)

    async def due(self) -> _Due | None:
        """See Errand."""
        groups = self._groups.due(self._copy.manager.unsettled())
        names = self._names.due(self._copy.names_wanted)
        return (groups, names) if groups or names else None

    async def run(self, client: KafkaClient, due: _Due) -> None:
        """See Errand."""
        groups, names = due
        self._groups.begin(groups)
        self._names.begin(names)
        if groups:
            await describe(self._copy, client, tuple(groups))
        if names:
            topics = tuple(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in names)
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            version = client.version_for(MetadataRequest, lowest=_BY_ID_SINCE)
            reply: MetadataResponse = await client.ask(request, version)
            self._copy.learn_names({t.topic_id: t.name for t in reply.topics if t.name and t.topic_id.int})
