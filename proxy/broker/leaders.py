"""Finds the partitions of all topics that a broker leads.

Metadata may list the broker under the sidecar's address, so the sidecar may not know the broker's node id. But a broker
returns log ends only for partitions that it leads. So one partition of each leader is enough to find the broker's node
id.
"""

import time

import trio

from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataResponse
from group_sidecar.codecs.schema import decode_start
from group_sidecar.coordinator.model.views import TopicPartition
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.broker.log_bound_queries import log_ends

_NO_LEADER = -1
"""The leader id that Metadata contains for a partition without a leader."""
_PAUSE_PER_READ_TIME = 1_000
"""The pause until the next request, in multiples of the time that decoding the reply took. Decoding takes 2 us for each
partition of the cluster."""


class LeaderPartitions:
    """The partitions that one broker leads, as of the last reply."""

    def __init__(self) -> None:
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._due_at = float("-inf")

    async def partitions(self, client: KafkaClient) -> frozenset[TopicPartition]:
        """Returns the partitions that the broker leads, of all visible topics except internal topics. Raises the
        exceptions of `KafkaClient.ask`.
        """
        if client.speaks(MetadataRequest) and trio.current_time() >= self._due_at:
            by_leader, seconds = await _partitions_by_leader(client)
            self._partitions = await _led_by_broker(client, by_leader)
            self._due_at = trio.current_time() + _PAUSE_PER_READ_TIME * seconds
        return self._partitions


async def _partitions_by_leader(client: KafkaClient) -> tuple[dict[int, set[TopicPartition]], float]:
    """Returns the partitions by the node id of their leader, and the CPU seconds that decoding the reply took."""
    version = client.version_for(MetadataRequest)
    request = MetadataRequest(topics=None if version else (), allow_auto_topic_creation=False)
    body = await client.ask_undecoded(request, version)
    # Decoding takes long if there are many topics, and must not block the data path.
    return await trio.to_thread.run_sync(_read, body, version)


def _read(body: bytes, version: int) -> tuple[dict[int, set[TopicPartition]], float]:
    started_at = time.thread_time()
    reply: MetadataResponse = decode_start(MetadataResponse, version, body)[0]
    by_leader: dict[int, set[TopicPartition]] = {}
    for topic in reply.topics:
        if topic.name is not None and not topic.is_internal:
            for partition in topic.partitions:
                by_leader.setdefault(partition.leader_id, set()).add((topic.name, partition.partition_index))
    by_leader.pop(_NO_LEADER, None)
    return by_leader, time.thread_time() - started_at


async def _led_by_broker(client: KafkaClient, by_leader: dict[int, set[TopicPartition]]) -> frozenset[TopicPartition]:
    samples = {leader: min(partitions) for leader, partitions in by_leader.items()}
    answered = await log_ends(client, samples.values())
    own = (by_leader[leader] for leader, sample in samples.items() if sample in answered)
    return frozenset().union(*own)
