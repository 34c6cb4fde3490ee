"""Sends the requests that read the log of one topic, in a version that the broker has.

The topic is ``__consumer_offsets``, or a journal's topic. The requests find the topic's partitions, the partitions that
this broker leads, their log starts, and their records.

A broker answers ListOffsets, and Fetch up to v10, only for partitions that it leads. So the sidecar need not know the
broker's node id, which Metadata may list under the sidecar's address.

Every function raises the exceptions of `KafkaClient.ask`.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from group_sidecar.codecs.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from group_sidecar.coordinator.state.log_partitions import partition_for
from group_sidecar.proxy.broker.broker_errors import BrokerRefused
from group_sidecar.proxy.broker.group_queries import Node, metadata, nodes_of
from group_sidecar.proxy.broker.kafka_client import CLIENT_ID, KafkaClient
from group_sidecar.proxy.broker.log_bound_queries import START_OF_LOG

_LEADER_ONLY_UNTIL = 10  # Fetch (KIP-392): followers may answer later versions.
_WHOLE_SINCE = 3  # Fetch (KIP-74): max_bytes limits the whole reply, but the first batch is never cut.
_SMALLEST_SHARE = 4096
_NOT_SERVED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """Where to continue in a partition. `next_batch_bytes`: the size of the next batch, or 0 if it is unknown."""

    partition: int
    leader_epoch: int
    offset: int
    next_batch_bytes: int = 0


class Leaders(NamedTuple):
    """By partition of a topic: the leader epoch of each partition, and the leader of each partition that has a leader.

    An epoch is -1 if the broker does not report the epoch.
    """

    epochs: dict[int, int]
    nodes: dict[int, Node]


async def leaders(client: KafkaClient, topic: str) -> Leaders:
    """Returns the leaders of a topic's partitions, or nothing if there is no such topic. Never creates the topic.

    Raises BrokerRefused if the broker replies with another error.
    """
    reply = await metadata(client, (topic,))
    for found in reply.topics:
        if found.name != topic:
            continue
        if found.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
            break
        if found.error_code:
            raise BrokerRefused(f"{client.address} answers Metadata of {topic}", found.error_code)
        nodes, partitions_found = {node.id: node for node in nodes_of(reply)}, found.partitions
        return Leaders(
            {each.partition_index: each.leader_epoch for each in partitions_found},
            {each.partition_index: nodes[each.leader_id] for each in partitions_found if each.leader_id in nodes},
        )
    return Leaders({}, {})


async def log_starts(client: KafkaClient, topic: str, epochs: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Returns the broker's error code and the start of the log by partition. The start is 0 if there is an error.

    `epochs`: the partitions to ask about, each with the epoch that its leader must have, or -1 for any epoch.
    """
    asked = tuple(
        ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=START_OF_LOG)
        for partition, epoch in epochs.items()
    )
    request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=asked),))
    reply: ListOffsetsResponse = await client.ask(request)
    return {
        partition.partition_index: (partition.error_code, max(partition.offset, *partition.old_style_offsets, 0))
        for found in reply.topics
        if found.name == topic
        for partition in found.partitions
    }


async def fetch(
    client: KafkaClient, topic: str, wanted: Iterable[FetchPosition], *, size: int, wait: float
) -> tuple[PartitionData, ...]:
    """Returns records of some partitions, including records of open and aborted transactions.

    The broker serves the first partitions first. A batch larger than `size` is still returned. For that, brokers before
    Fetch v3 need the batch's size in `next_batch_bytes`.

    Args:
        client: the connection.
        topic: the topic to read.
        wanted: the position at which to continue in each partition.
        size: the maximum number of bytes of all partitions together.
        wait: seconds that the broker may wait for new records.
    """
    version = client.version_for(FetchRequest, highest=_LEADER_ONLY_UNTIL)
    places = tuple(wanted)
    share = size if version >= _WHOLE_SINCE else max(size // len(places), _SMALLEST_SHARE)
    partitions = tuple(
        FetchPartition(
            partition=place.partition,
            current_leader_epoch=place.leader_epoch,
            fetch_offset=place.offset,
            partition_max_bytes=max(share, place.next_batch_bytes),
        )
        for place in places
    )
    request = FetchRequest(
        max_wait_ms=int(wait * 1000),
        min_bytes=1,
        max_bytes=size,
        topics=(FetchTopic(topic=topic, partitions=partitions),),
    )
    reply: FetchResponse = await client.ask(request, version)
    if reply.error_code:
        raise BrokerRefused(f"{client.address} answers Fetch", reply.error_code)
    return tuple(partition for found in reply.responses if found.topic == topic for partition in found.partitions)


async def loading_partitions(client: KafkaClient, partitions: Iterable[int], count: int) -> set[int]:
    """Returns those of the given partitions of the offsets topic that the broker's coordinator does not serve yet.

    The broker is asked to describe groups that do not exist. If the broker cannot be asked or does not report a group,
    the group's partition counts as served. `count`: the number of partitions of the topic.
    """
    if not client.speaks(DescribeGroupsRequest):
        return set()
    names = {group_id_for_partition(partition, count): partition for partition in partitions}
    request = DescribeGroupsRequest(groups=tuple(names))
    reply: DescribeGroupsResponse = await client.ask(request)
    return {
        names[group.group_id] for group in reply.groups if group.error_code in _NOT_SERVED and group.group_id in names
    }


@lru_cache(maxsize=1024)
def group_id_for_partition(partition: int, count: int) -> str:
    """Returns a group id that is mapped to this partition of the offsets topic."""
    names = (f"{CLIENT_ID}-{number}" for number in itertools.count())
    return next(name for name in names if partition_for(name, count) == partition)
