"""Writes records to a topic on the sidecar's own broker.

`TopicWriter` owns the connection, decides when a batch is sent or repeated, and logs why records do not get to the
topic. `idempotent_producer` decides what is sent.

A failure here does not affect clients' connections: records wait in a bounded queue. The writer needs no other broker,
because it writes to a partition that this broker leads.
"""

import math
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager

import trio

from group_sidecar.codecs.compression import Codec
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from group_sidecar.codecs.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from group_sidecar.metrics.array_lines import Line
from group_sidecar.proxy.broker.broker_errors import (
    AuthenticationFailed,
    BrokerError,
    BrokerRefused,
    BrokerUnreachable,
    UnsupportedApi,
    error_name,
)
from group_sidecar.proxy.broker.group_queries import Node
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.broker.own_credentials import setting_hint
from group_sidecar.proxy.broker.topic_log_queries import leaders, log_starts
from group_sidecar.proxy.config.sections import Journal
from group_sidecar.proxy.journal.idempotent_producer import (
    DENIED,
    MAX_BATCH_RECORDS,
    NO_PARTITION,
    IdempotentProducer,
    SendOutcome,
)
from group_sidecar.proxy.runtime.backoff import Backoff
from group_sidecar.proxy.runtime.logging import log

QUEUE_RECORDS = 65_536
"""The maximum number of records held in memory, which take about 30 MB."""
PRODUCE_TIMEOUT_SECONDS = 5.0
"""Seconds that the broker may wait for its followers. The client waits longer for the broker's reply."""
CLOSE_SECONDS = 3.0
"""Seconds that the remaining records may take when the sidecar stops."""
PERMANENT_FAILURE_SECONDS = 60.0
"""Seconds until the next attempt if a right is missing, or if the broker is too old."""

_FORMAT_SINCE, _NAMES_UNTIL = 3, 12  # Produce (KIP-98, KIP-516).
_ALL_IN_SYNC = -1
_CODECS = {"none": Codec.NONE, "gzip": Codec.GZIP}


class TopicWriter:
    """Writes to one topic.

    Attributes:
        last_flush: when the broker last acknowledged records, in seconds since the epoch. 0 before the first time.
        failures: how many attempts to write records have failed.
    """

    def __init__(
        self,
        sidecar_id: str,
        topic: str,
        settings: Journal,
        connect: Callable[[], AbstractAsyncContextManager[KafkaClient]],
        queue_records: int = QUEUE_RECORDS,
    ) -> None:
        """Creates the writer. Opens no connection.

        Args:
            sidecar_id: the key of every record.
            topic: the name of the topic.
            settings: the batch size, the linger time and the compression.
            connect: opens a connection to the broker with the sidecar's own credentials.
            queue_records: the maximum number of records held in memory.
        """
        self.last_flush = 0.0
        self.failures = 0
        self._topic = topic
        self._linger_seconds = settings.topic_linger_seconds
        self._codec = _CODECS[settings.topic_compression]
        self._connect = connect
        self._queue_records = queue_records
        self._producer = IdempotentProducer(sidecar_id.encode(), queue_records, settings.topic_batch_bytes)
        self._attempts = Backoff()
        self._maybe_doubled = 0
        self._is_accepting = True
        self._closing = False
        self._close_by = math.inf
        self._scope = trio.CancelScope(shield=True)
        self._wakeup, self._has_room = trio.Event(), trio.Event()

    @property
    def records_written(self) -> int:
        """The number of records that the broker acknowledged."""
        return self._producer.records_written

    @property
    def records_dropped(self) -> Mapping[str, int]:
        """The number of dropped records by reason. See `IdempotentProducer`."""
        return self._producer.records_dropped

    def append(self, line: Line) -> None:
        """Queues a line. Drops the oldest lines while the queue is full. Never waits."""
        self._producer.append(line)
        self._wakeup.set()

    async def wait_for_room(self) -> None:
        """Waits until the queue is at most half full. Returns at once while the broker accepts no records.

        Used for snapshots, which may be delayed.
        """
        while self._is_accepting and self._producer.unsettled_count > self._queue_records // 2:
            await self._has_room.wait()

    def close(self) -> None:
        """Makes `run` end when the queued records are written, or after `CLOSE_SECONDS`."""
        self._closing = True
        self._close_by = self._scope.deadline = trio.current_time() + CLOSE_SECONDS
        self._wakeup.set()

    async def run(self, epoch: Callable[[], float]) -> None:
        """Writes until `close`, and reconnects with growing pauses. A cancellation without `close` does not end `run`.

        `epoch`: returns seconds since the epoch.

        Raises:
            Exception: any error that neither the broker nor the network can cause. `run` may then be called again.
        """
        with trio.CancelScope(shield=True, deadline=self._close_by) as self._scope:
            while True:
                try:
                    async with self._connect() as client:
                        await self._write(client, epoch)
                        return
                except (BrokerError, DecodeError) as error:
                    await trio.sleep(self._connection_failed(error))
                except Exception as error:
                    self._fail(type(error).__name__, log.debug, type(error).__name__)
                    raise

    async def _write(self, client: KafkaClient, epoch: Callable[[], float]) -> None:
        """Writes until the connection fails. Returns when the writer is closed and all records are written."""
        producer = self._producer
        producer.connected()
        client.version_for(InitProducerIdRequest)
        version = client.version_for(ProduceRequest, _FORMAT_SINCE, _NAMES_UNTIL)
        while True:
            if not producer.leader_partitions:
                await self._find_leader_partitions(client)
            elif not producer.has_producer_id:
                await self._init_producer_id(client)
            elif producer.has_batch:
                await self._send(client, version, epoch)
            elif await self._wait_for_records():
                packer = producer.take()
                producer.hold(await trio.to_thread.run_sync(packer.encoded_records, self._codec))
            else:
                return

    async def _find_leader_partitions(self, client: KafkaClient) -> None:
        """Finds the topic's partitions that the broker leads. Pauses if the broker leads none of them."""
        found = await leaders(client, self._topic)
        starts = await log_starts(client, self._topic, found.epochs) if found.epochs else {}
        codes = {number: code for number, (code, _) in starts.items()}
        for code in codes.values():
            if code in DENIED:
                raise BrokerRefused(f"{client.address} answers ListOffsets of {self._topic}", code)
        leader_partitions = [number for number, code in codes.items() if not code]
        current_partition = self._producer.current_partition
        if current_partition != NO_PARTITION and _is_leadership_pending(
            current_partition, leader_partitions, found.nodes
        ):
            await self._wait_for_partition("takes up", f"the broker has yet to take up partition {current_partition}")
            return
        self._producer.set_leader_partitions(leader_partitions)
        if not found.epochs:
            hint = "create it, with partitions that each broker leads"
            await self._wait_for_partition("no topic", "there is no such topic", hint=hint)
        elif not leader_partitions:
            reason = f"the broker leads none of the topic's {len(found.epochs)} partitions"
            await self._wait_for_partition("leads none", reason, hint="add partitions to the topic")

    async def _wait_for_partition(self, condition: str, reason: str, **fields: object) -> None:
        """Logs why there is no partition to write to, and waits until the next attempt."""
        self._fail(condition, log.warning, reason, **fields)
        await trio.sleep(self._attempts.pause())

    async def _init_producer_id(self, client: KafkaClient) -> None:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=int(PRODUCE_TIMEOUT_SECONDS * 1000)
        )
        reply: InitProducerIdResponse = await client.ask(request)
        if reply.error_code:
            raise BrokerRefused(f"{client.address} answers InitProducerId", reply.error_code)
        self._producer.set_producer_id(reply.producer_id, reply.producer_epoch)

    async def _wait_for_records(self) -> bool:
        """Waits for a record, and then at most the linger time for more records.

        Returns False when the writer is closed and the queue is empty.
        """
        while not self._producer.unsettled_count and not self._closing:
            await self._wait_for_wakeup()
        with trio.move_on_after(self._linger_seconds):
            while self._producer.unsettled_count < MAX_BATCH_RECORDS and not self._closing:
                await self._wait_for_wakeup()
        return self._producer.unsettled_count > 0

    async def _wait_for_wakeup(self) -> None:
        self._wakeup = trio.Event()
        await self._wakeup.wait()

    async def _send(self, client: KafkaClient, version: int, epoch: Callable[[], float]) -> None:
        sending = self._producer.next()
        if sending is None:
            return
        partition = PartitionProduceData(index=sending.partition, records=sending.data)
        request = ProduceRequest(
            acks=_ALL_IN_SYNC,
            timeout_ms=int(PRODUCE_TIMEOUT_SECONDS * 1000),
            topic_data=(TopicProduceData(name=self._topic, partition_data=(partition,)),),
        )
        try:
            reply: ProduceResponse = await client.ask(request, version)
            code = _code_of(reply, self._topic, sending.partition)
        except BaseException:
            self._producer.lost()
            raise
        written = self.records_written
        outcome = self._producer.answered(code)
        if self.records_written > written:
            self._succeeded(epoch())
        if outcome is SendOutcome.REFUSED:
            self._fail(f"refused {code}", log.warning, error_name(code), hint="the records were dropped")
        self._log_maybe_doubled()
        if outcome in (SendOutcome.RETRY, SendOutcome.DENIED):
            raise BrokerRefused(f"{client.address} answers Produce", code)
        await trio.sleep(reply.throttle_time_ms / 1000)

    # Reporting.

    def _succeeded(self, now: float) -> None:
        self.last_flush = now
        self._attempts.failures = 0
        self._is_accepting = True
        self._wake()
        if self._attempts.enters_condition("written"):
            log.info("records are written to a topic", topic=self._topic)

    def _log_maybe_doubled(self) -> None:
        newly_doubled, self._maybe_doubled = (
            self._producer.records_maybe_doubled - self._maybe_doubled,
            self._producer.records_maybe_doubled,
        )
        if newly_doubled:
            log.warning("records may be in the topic twice", topic=self._topic, records=newly_doubled)

    def _connection_failed(self, error: BrokerError | DecodeError) -> float:
        """Notes that the connection failed. Returns the seconds until the next attempt."""
        self._log_maybe_doubled()
        reason, hint_fields = str(error) or type(error).__name__, setting_hint(error)
        if isinstance(error, UnsupportedApi):
            hint = "the topic needs Kafka 0.11 or later, because older brokers cannot prevent duplicates"
            self._fail("unsupported", log.warning, reason, hint=hint)
            return PERMANENT_FAILURE_SECONDS
        if isinstance(error, BrokerRefused) and error.code in DENIED:
            hint = "grant WRITE and DESCRIBE on the topic, before Kafka 3.0 also IDEMPOTENT_WRITE on the cluster"
            self._fail("denied", log.warning, reason, hint=hint)
            return PERMANENT_FAILURE_SECONDS
        if isinstance(error, BrokerUnreachable):  # The prober warns that the broker is unreachable.
            self._fail("unreachable", log.debug, reason)
        else:
            self._fail(type(error).__name__, log.warning, reason, **hint_fields)
        return PERMANENT_FAILURE_SECONDS if isinstance(error, AuthenticationFailed) else self._attempts.pause()

    def _fail(self, condition: str, log_method: Callable[..., object], reason: str, **fields: object) -> None:
        """Counts a failure. Logs the failure if its condition is different from the last one."""
        self.failures += 1
        self._attempts.failures += 1
        self._is_accepting = False
        self._wake()
        if self._attempts.enters_condition(condition):
            log_method("records do not get to the topic", topic=self._topic, reason=reason, **fields)

    def _wake(self) -> None:
        self._has_room.set()
        self._has_room = trio.Event()


def _is_leadership_pending(
    current_partition: int, leader_partitions: Collection[int], nodes: Mapping[int, Node]
) -> bool:
    """Whether the broker that leads `leader_partitions` is about to lead `current_partition` too.

    `nodes`: the leaders by partition, from Metadata.

    A broker that has just started takes over its partitions one after another. The ListOffsets replies of such a broker
    are ahead of Metadata. So the result is True while Metadata reports the same leader for `current_partition` as for
    one of `leader_partitions`, or no leader for both.
    """
    return current_partition not in leader_partitions and nodes.get(current_partition) in {
        nodes.get(number) for number in leader_partitions
    }


def _code_of(reply: ProduceResponse, topic: str, partition: int) -> int:
    """Returns the error code of one partition. Raises DecodeError if the reply does not contain the partition."""
    for topic_reply in reply.responses:
        for each in topic_reply.partition_responses:
            if (topic_reply.name, each.index) == (topic, partition):
                return each.error_code
    raise DecodeError("ProduceResponse", "responses", f"lacks {topic}-{partition}, which was asked")
