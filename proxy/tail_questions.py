"""What is asked of a broker to read one of its own logs, put in whatever version it has.

Owns: which partitions there are, which of them this broker leads and where they start, and their records. Must not
know: what the records mean, which partitions are of interest, when to ask again.

A broker answers ListOffsets, and Fetch up to v10, only for partitions that it leads. So what it answers for, it leads:
its own node id, which it may tell under the sidecar's address, need not be known.

Every function raises what `KafkaClient.ask` raises.
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
from group_sidecar.coordinator.partitions import partition_for
from group_sidecar.proxy.client import CLIENT_ID, BrokerRefused, KafkaClient
from group_sidecar.proxy.questions import START_OF_LOG, Node, metadata, nodes_of

_LEADER_ONLY_UNTIL = 10  # Fetch (KIP-392): later ones may be answered by followers.
_WHOLE_SINCE = 3  # Fetch (KIP-74): a first batch comes whole, whatever the limits, and there is one for the reply.
_SMALLEST_SHARE = 4096
_NOT_SERVED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where to read on in a partition. `at_least`: bytes that its next batch is known to need; 0: not known."""

    partition: int
    leader_epoch: int
    offset: int
    at_least: int = 0


class Leaders(NamedTuple):
    """Who leads each partition of a topic, as far as there is a leader; and since which epoch, by partition.

    An epoch is -1 where the broker does not tell it.
    """

    epochs: dict[int, int]
    nodes: dict[int, Node]


async def leaders(client: KafkaClient, topic: str) -> Leaders:
    """The leaders of a topic's partitions.

    The topic is not created; where there is none, so there are no partitions. Raises BrokerRefused where the broker
    does not tell.
    """
    reply = await metadata(client, (topic,))
    for found in reply.topics:
        if found.name != topic:
            continue
        if found.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
            break
        if found.error_code:
            raise BrokerRefused(f"{client.address} answers Metadata of {topic}", found.error_code)
        nodes, led = {node.id: node for node in nodes_of(reply)}, found.partitions
        return Leaders(
            {each.partition_index: each.leader_epoch for each in led},
            {each.partition_index: nodes[each.leader_id] for each in led if each.leader_id in nodes},
        )
    return Leaders({}, {})


async def log_starts(client: KafkaClient, topic: str, epochs: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """By partition the broker's error code, and the start of the log where it leads the partition.

    Asked for are the partitions of `epochs`, which says what epoch their leader must have; -1 is any.
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
    client: KafkaClient, topic: str, wanted: Iterable[Wanted], *, size: int, wait: float
) -> tuple[PartitionData, ...]:
    """Records of some partitions, those of open and aborted transactions included.

    The first partitions are served first. All together may have `size` bytes; a batch that is larger comes all the
    same, from old brokers only where `at_least` says so. The broker waits so many seconds until there is anything.
    """
    version = client.version_for(FetchRequest, highest=_LEADER_ONLY_UNTIL)
    places = tuple(wanted)
    share = size if version >= _WHOLE_SINCE else max(size // len(places), _SMALLEST_SHARE)
    partitions = tuple(
        FetchPartition(
            partition=place.partition,
            current_leader_epoch=place.leader_epoch,
            fetch_offset=place.offset,
            partition_max_bytes=max(share, place.at_least),
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
    """Of these partitions of the offsets topic, which has `count`, those that the broker's coordinator does not serve.

    It is asked about groups that nobody has. Where it cannot be asked, or does not say, it is taken to serve them.
    """
    if not client.speaks(DescribeGroupsRequest):
        return set()
    names = {name_in(partition, count): partition for partition in partitions}
    request = DescribeGroupsRequest(groups=tuple(names))
    reply: DescribeGroupsResponse = await client.ask(request)
    return {
        names[group.group_id] for group in reply.groups if group.error_code in _NOT_SERVED and group.group_id in names
    }


@lru_cache(maxsize=1024)
def name_in(partition: int, count: int) -> str:
    """A group that falls on a partition of the offsets topic."""
    names = (f"{CLIENT_ID}-{number}" for number in itertools.count())
    return next(name for name in names if partition_for(name, count) == partition)
