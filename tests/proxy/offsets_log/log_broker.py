"""A broker that leads partitions of `__consumer_offsets`, on memory streams.

The broker answers Metadata, ListOffsets and Fetch about these partitions. Tests append records to them.
"""

from dataclasses import dataclass, field

import trio

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from group_sidecar.codecs.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from group_sidecar.codecs.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from group_sidecar.codecs.offsets_topic import KeyType, OffsetCommitKey, encode_key, encode_value
from group_sidecar.codecs.offsets_topic_values import OffsetCommitValue
from group_sidecar.proxy.broker.group_queries import Node
from tests.coordinator.model_log import batch
from tests.proxy.scripted_broker import ScriptedBroker

TOPIC = "__consumer_offsets"
_WHOLE_SINCE = 3  # Fetch (KIP-74).
_EPOCHS_SINCE = {ListOffsetsRequest: 4, FetchRequest: 9, MetadataRequest: 7}
_SLICE = 0.01
_OTHER_BROKER = 1
THIS_NODE = Node(2, "here", 9092)
"""This broker's node in Metadata replies."""


@dataclass
class Partition:
    """A partition of the log. `led`: whether this broker leads it; `error`: the error code of Fetch."""

    led: bool = True
    epoch: int = 1
    start: int = 0
    error: int = 0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    high_watermark: int = 0

    def append(self, data: bytes, count: int = 1) -> None:
        """Appends a batch that was already encoded for the end of the log."""
        self.batches.append((self.high_watermark, self.high_watermark + count, data))
        self.high_watermark += count

    def commit(self, group: str, offset: int, metadata: str = "", times: int = 1) -> None:
        """Commits an offset of partition 0 of topic ``t``, `times` times in one batch."""
        key = encode_key(KeyType.OFFSET_COMMIT, OffsetCommitKey(group_id=group, topic="t", partition=0))
        value = OffsetCommitValue(offset=offset, leader_epoch=-1, metadata=metadata, commit_timestamp=1)
        self.append(batch(self.high_watermark, [(key, encode_value(value, 3))] * times), times)

    def expire(self, group: str) -> None:
        """Appends a tombstone for the group's offset."""
        key = encode_key(KeyType.OFFSET_COMMIT, OffsetCommitKey(group_id=group, topic="t", partition=0))
        self.append(batch(self.high_watermark, [(key, None)]))

    def records(self, offset: int, most: int, *, cut: bool, first: bool) -> bytes:
        """Returns the batches from an offset on, within the byte limit.

        Old brokers cut the last batch off. Later ones do not, and always return the first batch of the reply.
        """
        found = b""
        for _, following, data in self.batches:
            if following <= offset:
                continue
            if len(found) + len(data) > most:
                return (found + data)[:most] if cut else found or (data if first else b"")
            found += data
        return found


class LogBroker(ScriptedBroker):
    """A broker whose partitions may be changed at any time.

    Attributes:
        partitions: the partitions of the offsets topic; empty if the topic does not exist.
        topic_error: the topic's error code in Metadata.
        granted: whether the sidecar is authorized to read the records.
    """

    def __init__(self, partitions: int = 2, versions: dict[type, tuple[int, int]] | None = None) -> None:
        answers = {
            MetadataRequest: self._metadata,
            ListOffsetsRequest: self._list_offsets,
            FetchRequest: self._fetch,
        }
        super().__init__(answers, versions)  # type: ignore[arg-type]
        self.partitions = {number: Partition() for number in range(partitions)}
        self.topic_error = 0
        self.granted = True
        self._wait = 0.0

    def fetched(self, partition: int) -> list[int]:
        """Returns the offsets at which this partition was fetched, in order."""
        partitions = (each for request in self.requests(FetchRequest) for each in request.topics[0].partitions)
        return [each.fetch_offset for each in partitions if each.partition == partition]

    async def drop(self) -> None:
        """Closes all connections."""
        for stream in self.streams:
            await trio.aclose_forcefully(stream)

    async def _reply(self, frame: bytes) -> bytes:
        """Answers a request. Like a broker, delays the reply to a Fetch without records until records arrive.

        The reply is sent at the latest when the request's wait time has passed.
        """
        reply, wait = await self._now(frame)
        ends, until = self._ends(), trio.current_time() + wait
        while wait and trio.current_time() < until:
            await trio.sleep(_SLICE)
            if self._ends() != ends:
                ends = self._ends()
                del self.asked[-1:]
                reply, wait = await self._now(frame)
        return reply

    async def _now(self, frame: bytes) -> tuple[bytes, float]:
        """Returns the current reply, and the seconds that the broker may wait for records."""
        self._wait = 0.0
        return await super()._reply(frame), self._wait

    def _ends(self) -> list[tuple[bool, int, int]]:
        return [(partition.led, partition.epoch, partition.high_watermark) for partition in self.partitions.values()]

    def _metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        assert not request.topics or not request.allow_auto_topic_creation
        missing = 0 if self.partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = tuple(
            MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=THIS_NODE.id if partition.led else _OTHER_BROKER,
                leader_epoch=partition.epoch,
                replica_nodes=(),
                isr_nodes=(),
            )
            for number, partition in self.partitions.items()
        )
        topic = MetadataResponseTopic(error_code=self.topic_error or missing, name=TOPIC, partitions=partitions)
        here = MetadataResponseBroker(node_id=THIS_NODE.id, host=THIS_NODE.host, port=THIS_NODE.port)
        return MetadataResponse(brokers=(here,), topics=(topic,))

    def _wrong(self, number: int, epoch: int, since: bool) -> int:
        partition = self.partitions.get(number)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not partition.led:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if since and 0 <= epoch < partition.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH if since and epoch > partition.epoch else 0

    def _list_offsets(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        def answer(partition: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
            number = partition.partition_index
            assert partition.timestamp == -2
            wrong = self._wrong(number, partition.current_leader_epoch, version >= _EPOCHS_SINCE[ListOffsetsRequest])
            start = -1 if wrong else self.partitions[number].start
            old = () if wrong else (start,)
            return ListOffsetsPartitionResponse(
                partition_index=number, error_code=wrong, offset=start, old_style_offsets=old
            )

        [topic] = request.topics
        found = tuple(map(answer, topic.partitions))
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name=topic.name, partitions=found),))

    def _fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        assert (request.replica_id, request.isolation_level) == (-1, 0)
        assert (request.session_id, request.session_epoch) == (0, -1)
        left = request.max_bytes if version >= _WHOLE_SINCE else 0x7FFFFFFF
        served = False

        def answer(requested: FetchPartition) -> PartitionData:
            nonlocal left, served
            number = requested.partition
            wrong = self._wrong(number, requested.current_leader_epoch, version >= _EPOCHS_SINCE[FetchRequest])
            if not self.granted:
                wrong = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            partition = self.partitions.get(number, Partition())
            if not wrong and not partition.start <= requested.fetch_offset <= partition.high_watermark:
                wrong = ErrorCode.OFFSET_OUT_OF_RANGE
            wrong = wrong or partition.error
            if wrong:
                return PartitionData(partition_index=number, error_code=wrong, high_watermark=-1, records=b"")
            most = min(requested.partition_max_bytes, left)
            records = partition.records(requested.fetch_offset, most, cut=version < _WHOLE_SINCE, first=not served)
            served, left = served or bool(records), max(left - len(records), 0)
            end = partition.high_watermark
            return PartitionData(partition_index=number, error_code=0, high_watermark=end, records=records)

        [topic] = request.topics
        found = tuple(map(answer, topic.partitions))
        if not any(each.records or each.error_code for each in found):
            self._wait = request.max_wait_ms / 1000
        return FetchResponse(responses=(FetchableTopicResponse(topic=topic.topic, partitions=found),))
