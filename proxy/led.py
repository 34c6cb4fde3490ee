"""Which partitions a broker leads, of all that there are.

Owns: when to ask that, and how the broker is told from the others. Must not know: why anybody wants to know.

Metadata may name the broker by the sidecar's address, so that its node id is not known. But a broker tells the ends
only of logs that it leads: which of the leaders it is, one partition of each shows.
"""

import time

import trio

from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataResponse
from group_sidecar.codecs.schema import decode_start
from group_sidecar.coordinator.views import TopicPartition
from group_sidecar.proxy.client import KafkaClient
from group_sidecar.proxy.questions import log_ends

_NOBODY = -1
"""As a leader's node id."""
_WORTH = 1_000
"""It is asked again after so many times what it took to read the answer: 2 us for each partition of the cluster."""


class Led:
    """The partitions that one broker leads, as far as it lately said."""

    def __init__(self) -> None:
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._due_at = float("-inf")

    async def partitions(self, client: KafkaClient) -> frozenset[TopicPartition]:
        """Those of all topics that the sidecar may see, but for Kafka's own. Raises what `KafkaClient.ask` raises."""
        if client.speaks(MetadataRequest) and trio.current_time() >= self._due_at:
            by_leader, seconds = await _led(client)
            self._partitions = await _own(client, by_leader)
            self._due_at = trio.current_time() + _WORTH * seconds
        return self._partitions


async def _led(client: KafkaClient) -> tuple[dict[int, set[TopicPartition]], float]:
    """The partitions by the node id of their leader, and the seconds that it took to read that."""
    version = client.version_for(MetadataRequest)
    request = MetadataRequest(topics=None if version else (), allow_auto_topic_creation=False)
    body = await client.ask_undecoded(request, version)
    # With many topics this takes a while, and must not hold up the data path.
    return await trio.to_thread.run_sync(_read, body, version)


def _read(body: bytes, version: int) -> tuple[dict[int, set[TopicPartition]], float]:
    started_at = time.thread_time()
    reply: MetadataResponse = decode_start(MetadataResponse, version, body)[0]
    by_leader: dict[int, set[TopicPartition]] = {}
    for topic in reply.topics:
        if topic.name is not None and not topic.is_internal:
            for partition in topic.partitions:
                by_leader.setdefault(partition.leader_id, set()).add((topic.name, partition.partition_index))
    by_leader.pop(_NOBODY, None)
    return by_leader, time.thread_time() - started_at


async def _own(client: KafkaClient, by_leader: dict[int, set[TopicPartition]]) -> frozenset[TopicPartition]:
    samples = {leader: min(partitions) for leader, partitions in by_leader.items()}
    answered = await log_ends(client, samples.values())
    own = (by_leader[leader] for leader, sample in samples.items() if sample in answered)
    return frozenset().union(*own)
