"""Asks a broker for the log ends or the log starts of the partitions that it leads.

Both functions raise the exceptions of `KafkaClient.ask`.
"""

from collections.abc import Iterable
from itertools import groupby, islice
from operator import itemgetter

from group_sidecar.codecs.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from group_sidecar.coordinator.model.views import TopicPartition
from group_sidecar.proxy.broker.kafka_client import KafkaClient

START_OF_LOG, END_OF_LOG = -2, -1
"""Timestamps in ListOffsets that mean the start and the end of the log (Kafka class ``ListOffsetsRequest``)."""

PARTITIONS_PER_REQUEST = 500
"""The maximum number of partitions in one ListOffsets request. Decoding the reply delays the data path by some
milliseconds."""


async def log_ends(client: KafkaClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns the end of the log (high watermark) of each of these partitions that this broker leads."""
    return await _list_offsets(client, partitions, END_OF_LOG)


async def log_starts(client: KafkaClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns the start of the log of each of these partitions that this broker leads."""
    return await _list_offsets(client, partitions, START_OF_LOG)


async def _list_offsets(
    client: KafkaClient, partitions: Iterable[TopicPartition], bound: int
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    left = iter(sorted(partitions))
    while some := tuple(islice(left, PARTITIONS_PER_REQUEST)):
        found |= await _list_offsets_once(client, some, bound)
    return found


async def _list_offsets_once(
    client: KafkaClient, partitions: Iterable[TopicPartition], bound: int
) -> dict[TopicPartition, int]:
    topics = tuple(
        ListOffsetsTopic(
            name=topic,
            partitions=tuple(
                ListOffsetsPartition(partition_index=partition, timestamp=bound) for _, partition in group
            ),
        )
        for topic, group in groupby(partitions, key=itemgetter(0))
    )
    reply: ListOffsetsResponse = await client.ask(ListOffsetsRequest(replica_id=-1, topics=topics))
    return {
        (topic.name, partition.partition_index): offset
        for topic in reply.topics
        for partition in topic.partitions
        for offset in (partition.offset, *partition.old_style_offsets)
        if not partition.error_code and offset >= 0
    }
