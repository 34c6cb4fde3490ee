"""Writes records to a topic on the sidecar's own broker.

Owns: `TopicOutlet`: its one connection, when a batch is sent and when again, and what is said where records do not get
there. Must not know: what a batch is made of and which is sent (`producing`), nor what records say.

It never stands in the way: records are queued, within a bound, and whatever fails here, clients are forwarded as
before. No other broker is needed: of the topic's partitions it takes one that this broker leads.
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
from group_sidecar.metrics.records import Record
from group_sidecar.proxy.attempts import Attempts, remedy
from group_sidecar.proxy.client import (
    AuthenticationFailed,
    BrokerError,
    BrokerRefused,
    BrokerUnreachable,
    KafkaClient,
    UnsupportedApi,
    error_name,
)
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.producing import DENIED, NOWHERE, PACKED_AT_ONCE, Outcome, Producer
from group_sidecar.proxy.questions import Node
from group_sidecar.proxy.sections import Journal
from group_sidecar.proxy.tail_questions import leaders, log_starts

QUEUE_RECORDS = 65_536
"""Records held in memory, some 30 MB."""
ANSWER_SECONDS = 5.0
"""How long the broker may wait for its followers; less than the client waits for the broker."""
CLOSE_SECONDS = 3.0
"""How long what is left may take to be written when the sidecar stops."""
HOPELESS_SECONDS = 60.0
"""Seconds until the next attempt where a right is lacking, or the broker is too old."""

_FORMAT_SINCE, _NAMES_UNTIL = 3, 12  # Produce (KIP-98, KIP-516).
_ALL_IN_SYNC = -1
_CODECS = {"none": Codec.NONE, "gzip": Codec.GZIP}


class TopicOutlet:
    """Writes to one topic.

    Attributes:
        last_flush: when the broker last acknowledged records, in seconds since the epoch; 0 before the first time.
        failures: how often records could not be written.
    """

    def __init__(
        self,
        sidecar_id: str,
        topic: str,
        settings: Journal,
        connect: Callable[[], AbstractAsyncContextManager[KafkaClient]],
        queue_records: int = QUEUE_RECORDS,
    ) -> None:
        """Touches no network.

        Args:
            sidecar_id: the key of every record.
            topic: its name.
            settings: those that say how it is written to.
            connect: a connection to the broker, with the sidecar's own credentials.
            queue_records: most records held in memory.
        """
        self.last_flush = 0.0
        self.failures = 0
        self._topic = topic
        self._linger_seconds = settings.topic_linger_seconds
        self._codec = _CODECS[settings.topic_compression]
        self._connect = connect
        self._queue_records = queue_records
        self._producer = Producer(sidecar_id.encode(), queue_records, settings.topic_batch_bytes)
        self._attempts = Attempts()
        self._doubted = 0
        self._flows = True
        self._closing = False
        self._close_by = math.inf
        self._scope = trio.CancelScope(shield=True)
        self._bell, self._progress = trio.Event(), trio.Event()

    @property
    def records_written(self) -> int:
        """Records that the broker acknowledged."""
        return self._producer.records_written

    @property
    def records_dropped(self) -> Mapping[str, int]:
        """By reason; see `Producer`."""
        return self._producer.records_dropped

    def append(self, record: Record) -> None:
        """Queues a record; drops the oldest one when the queue is full. Never waits."""
        self._producer.append(record)
        self._bell.set()

    async def digest(self) -> None:
        """Returns when the queue has room again, or the broker does not take anything. For what can wait."""
        while self._flows and self._producer.held > self._queue_records // 2:
            await self._progress.wait()

    def close(self) -> None:
        """Ends `run`, when what is queued was written, or soon."""
        self._closing = True
        self._close_by = self._scope.deadline = trio.current_time() + CLOSE_SECONDS
        self._bell.set()

    async def run(self, epoch: Callable[[], float]) -> None:
        """Writes until `close`, connecting again with growing pauses; a cancellation alone does not end it.

        `epoch`: seconds since the epoch. Raises what neither the broker nor the network can have caused; may be run
        again then.
        """
        with trio.CancelScope(shield=True, deadline=self._close_by) as self._scope:
            while True:
                try:
                    async with self._connect() as client:
                        await self._write(client, epoch)
                        return
                except (BrokerError, DecodeError) as error:
                    await trio.sleep(self._ended(error))
                except Exception as error:
                    self._fail(type(error).__name__, log.debug, type(error).__name__)
                    raise

    async def _write(self, client: KafkaClient, epoch: Callable[[], float]) -> None:
        """Writes for as long as the connection lasts; returns when it is to end and all is written."""
        producer = self._producer
        producer.connected()
        client.version_for(InitProducerIdRequest)
        version = client.version_for(ProduceRequest, _FORMAT_SINCE, _NAMES_UNTIL)
        while True:
            if not producer.led:
                await self._look(client)
            elif not producer.numbered:
                await self._number(client)
            elif producer.under_way:
                await self._send(client, version, epoch)
            elif await self._gather():
                packing = producer.take()
                producer.hold(await trio.to_thread.run_sync(packing.contents, self._codec))
            else:
                return

    async def _look(self, client: KafkaClient) -> None:
        """Looks which partitions the broker leads; after a pause, where there is none to write to."""
        told = await leaders(client, self._topic)
        starts = await log_starts(client, self._topic, told.epochs) if told.epochs else {}
        codes = {number: code for number, (code, _) in starts.items()}
        for code in codes.values():
            if code in DENIED:
                raise BrokerRefused(f"{client.address} answers ListOffsets of {self._topic}", code)
        led = [number for number, code in codes.items() if not code]
        home = self._producer.home
        if home != NOWHERE and _is_taking_up(home, led, told.nodes):
            await self._nowhere("takes up", f"the broker has yet to take up partition {home}")
            return
        self._producer.lead(led)
        if not told.epochs:
            hint = "create it, with partitions that each broker leads"
            await self._nowhere("no topic", "there is no such topic", hint=hint)
        elif not led:
            reason = f"it leads none of {len(told.epochs)} partitions"
            await self._nowhere("leads none", reason, hint="add partitions to it")

    async def _nowhere(self, condition: str, reason: str, **told: object) -> None:
        """There is no partition to write to: says so, and returns when it is time to look again."""
        self._fail(condition, log.warning, reason, **told)
        await trio.sleep(self._attempts.pause())

    async def _number(self, client: KafkaClient) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=int(ANSWER_SECONDS * 1000))
        reply: InitProducerIdResponse = await client.ask(request)
        if reply.error_code:
            raise BrokerRefused(f"{client.address} answers InitProducerId", reply.error_code)
        self._producer.number(reply.producer_id, reply.producer_epoch)

    async def _gather(self) -> bool:
        """Waits for a record, and a while for more. Whether there is one: none comes any more when it is to end."""
        while not self._producer.held and not self._closing:
            await self._stirs()
        with trio.move_on_after(self._linger_seconds):
            while self._producer.held < PACKED_AT_ONCE and not self._closing:
                await self._stirs()
        return self._producer.held > 0

    async def _stirs(self) -> None:
        self._bell = trio.Event()
        await self._bell.wait()

    async def _send(self, client: KafkaClient, version: int, epoch: Callable[[], float]) -> None:
        sending = self._producer.next()
        if sending is None:
            return
        partition = PartitionProduceData(index=sending.partition, records=sending.data)
        request = ProduceRequest(
            acks=_ALL_IN_SYNC,
            timeout_ms=int(ANSWER_SECONDS * 1000),
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
        if outcome is Outcome.REFUSED:
            self._fail(f"refused {code}", log.warning, error_name(code), hint="the records were dropped")
        self._tell_doubted()
        if outcome in (Outcome.UNSETTLED, Outcome.DENIED):
            raise BrokerRefused(f"{client.address} answers Produce", code)
        await trio.sleep(reply.throttle_time_ms / 1000)

    # What is told.

    def _succeeded(self, now: float) -> None:
        self.last_flush = now
        self._attempts.failures = 0
        self._flows = True
        self._ring()
        if self._attempts.enters("written"):
            log.info("records are written to a topic", topic=self._topic)

    def _tell_doubted(self) -> None:
        doubted, self._doubted = self._producer.records_doubted - self._doubted, self._producer.records_doubted
        if doubted:
            log.warning("records may be in the topic twice", topic=self._topic, records=doubted)

    def _ended(self, error: BrokerError | DecodeError) -> float:
        """The connection is over. Gives the seconds until the next attempt."""
        self._tell_doubted()
        reason, told = str(error) or type(error).__name__, remedy(error)
        if isinstance(error, UnsupportedApi):
            hint = "Kafka 0.11 is the oldest that takes records so that none is doubled"
            self._fail("unsupported", log.warning, reason, hint=hint)
            return HOPELESS_SECONDS
        if isinstance(error, BrokerRefused) and error.code in DENIED:
            hint = "grant WRITE and DESCRIBE on the topic, before Kafka 3.0 also IDEMPOTENT_WRITE on the cluster"
            self._fail("denied", log.warning, reason, hint=hint)
            return HOPELESS_SECONDS
        if isinstance(error, BrokerUnreachable):  # That a broker is not there is for the prober to say.
            self._fail("unreachable", log.debug, reason)
        else:
            self._fail(type(error).__name__, log.warning, reason, **told)
        return HOPELESS_SECONDS if isinstance(error, AuthenticationFailed) else self._attempts.pause()

    def _fail(self, condition: str, tell: Callable[..., object], reason: str, **told: object) -> None:
        """Counts a failure; says it where it is another than before."""
        self.failures += 1
        self._attempts.failures += 1
        self._flows = False
        self._ring()
        if self._attempts.enters(condition):
            tell("records do not get to the topic", topic=self._topic, reason=reason, **told)

    def _ring(self) -> None:
        self._progress.set()
        self._progress = trio.Event()


def _is_taking_up(home: int, led: Collection[int], nodes: Mapping[int, Node]) -> bool:
    """Whether a broker that leads the partitions `led` is said to lead `home` too. `nodes`: leaders, from Metadata.

    A broker that was started takes up one partition after another, and what it says of itself runs ahead of Metadata:
    as long as that does not know who leads `led`, it says nothing of `home` either.
    """
    return home not in led and nodes.get(home) in {nodes.get(number) for number in led}


def _code_of(reply: ProduceResponse, topic: str, partition: int) -> int:
    """The error code of one partition. Raises DecodeError where the reply does not speak of it."""
    for told in reply.responses:
        for each in told.partition_responses:
            if (told.name, each.index) == (topic, partition):
                return each.error_code
    raise DecodeError("ProduceResponse", "responses", f"lacks {topic}-{partition}, which was asked")
