"""Which partitions of `__consumer_offsets` are read, from where on, and what becomes of each reply.

Owns: `LogReader`: partitions found, loaded, caught up with, moved, failed. Must not know: how long a connection lasts,
what records mean, nor how they become groups; `LogFollower` does.

Between any two steps of a few milliseconds the clients' frames have their turn: all share one thread.
"""

import gc
import math
from collections.abc import Sequence
from dataclasses import dataclass

import trio

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.messages.fetch import PartitionData
from group_sidecar.codecs.records import first_batch_size
from group_sidecar.coordinator.facts import OffsetsExpired
from group_sidecar.coordinator.log import PartitionLog
from group_sidecar.coordinator.partitions import PartitionState, StaleEpoch, partition_for
from group_sidecar.metrics.log_reading import LogReading
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.client import BrokerRefused, KafkaClient, error_name
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.tail_questions import Wanted, fetch, leaders, loading_partitions, log_starts

OFFSETS_TOPIC = "__consumer_offsets"
DISCOVER_SECONDS = 2.0
"""Seconds between looks at who leads what, and whether the topic is there yet."""
LOOK_AGAIN_SECONDS = 0.2
"""The same when a partition was found to have moved."""
ASK_SECONDS = 0.1
"""Seconds until the broker is asked again whether its own coordinator has loaded a partition."""
RETRY_SECONDS, LONGEST_RETRY = 5.0, 300.0
"""Seconds until a partition that could not be read is read again from its start: doubled each time."""
LARGEST_BATCH = 128 * 1024 * 1024
"""Bytes; no segment of the log has more than 100 MiB (`offsets.topic.segment.bytes`), unless it was raised far."""

_MOVED = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)
_LED_ELSEWHERE = _MOVED[:-2]


@dataclass(slots=True, eq=False)
class Reading:
    """A partition that this broker leads.

    Attributes:
        begun_at: when its load began, by the shell's clock.
        loaded: whether the end of its log was reached once.
        needs: bytes that its next batch needs, where it was cut off.
        largest: the largest batch of which a line was written.
        served: the round in which it last had records.
    """

    number: int
    leader_epoch: int
    log: PartitionLog
    begun_at: float
    loaded: bool = False
    needs: int = 0
    largest: int = 0
    served: int = 0

    @property
    def name(self) -> str:
        return f"{OFFSETS_TOPIC}-{self.number}"


@dataclass(slots=True)
class _Failure:
    """A partition that could not be read, and when it is tried again."""

    reason: str
    pause: float
    retry_at: float


class LogReader:
    """Reads one broker's partitions into its copy of the coordinator. Two tasks may use it, for different partitions.

    Attributes:
        numbers: what there is to measure.
        look_at: when `discover` is due, by the shell's clock.
    """

    def __init__(self, copy: BrokerCopy, buffer_size: int) -> None:
        self.numbers = LogReading(copy.manager.log)
        self.look_at = -math.inf
        self._copy = copy
        self._broker = str(copy.address)
        self._follower = copy.manager.log
        self._buffer_size = buffer_size
        self._readings: dict[int, Reading] = {}
        self._failures: dict[int, _Failure] = {}
        self._rounds = 0
        self._ask_at: dict[int, float] = {}
        self._resigned: list[int] = []
        self._wrong: set[int] = set()
        self._bell = trio.Event()

    @property
    def loading(self) -> list[Reading]:
        """The partitions whose end was not reached yet."""
        return [reading for reading in self._readings.values() if not reading.loaded]

    @property
    def loaded(self) -> list[Reading]:
        """The others, those first that waited longest for records."""
        loaded = (reading for reading in self._readings.values() if reading.loaded)
        return sorted(loaded, key=lambda reading: reading.served)

    async def stirs(self) -> None:
        """Waits until there is something new to load, to tail or to look at."""
        await self._bell.wait()

    async def lose(self, *, epochs_count: bool) -> None:
        """The connection is gone. Where the leader's epoch is the same afterwards, the reading goes on.

        Args:
            epochs_count: whether an epoch is enough to go on.
        """
        kept = {number: each for number, each in self._readings.items() if epochs_count and each.leader_epoch >= 0}
        self._readings = kept
        self._copy.learn_coordinators({})
        self.numbers.lags.clear()
        with trio.CancelScope(shield=True):  # Half of it would leave groups that pass for certain.
            for _ in self._follower.lose(self._now(), serves=False):
                await trio.lowlevel.checkpoint()

    def give_up(self) -> None:
        """The log may not be read, or is not there."""
        self._readings.clear()
        self._copy.learn_coordinators({})
        self.numbers.lags.clear()
        self._follower.unread(self._now())

    def read_again(self, group_id: str) -> bool:
        """Has the partition of a group loaded anew: what the copy has of the group is wrong.

        Returns whether the partition is read here. That happens with the next `discover`, which is due at once.
        """
        count = self._follower.partitions.count
        number = partition_for(group_id, count) if count else -1
        if number not in self._readings:
            return False
        self._wrong.add(number)
        self._look_soon()
        return True

    def _drop_wrong(self) -> None:
        """Forgets what was read of partitions that are to be loaded again, unless they are loading already."""
        for number in self._wrong:
            if (reading := self._readings.get(number)) is not None and reading.loaded:
                del self._readings[number]
                self.numbers.lags.pop(number, None)
                self._follower.fail(number, "read again", self._now())
                log.info("a partition is loaded anew", broker=self._broker, partition=reading.name)
        self._wrong.clear()

    # Who leads what.

    async def discover(self, client: KafkaClient) -> None:
        """Looks which partitions there are, and which of them are to be loaded or not read any more."""
        self.look_at = trio.current_time() + DISCOVER_SECONDS
        self._drop_wrong()
        epochs, nodes = await leaders(client, OFFSETS_TOPIC)
        self._copy.learn_coordinators(nodes)
        count = self._follower.partitions.count
        if count not in (None, len(epochs)):
            self.give_up()
        if not epochs:
            return
        self._follower.count_partitions(len(epochs), self._now())
        asked = {number: epoch for number, epoch in epochs.items() if self._is_news(number, epoch)}
        starts = await log_starts(client, OFFSETS_TOPIC, asked) if asked else {}
        for number, (code, start) in starts.items():
            self._settle(number, epochs[number], code, start)
            await trio.lowlevel.checkpoint()
        self._follower.partitions.watch(epochs)
        self._tell_resigned()

    def _is_news(self, number: int, leader_epoch: int) -> bool:
        failure = self._failures.get(number)
        if failure is not None and trio.current_time() < failure.retry_at:
            return False
        reading = self._readings.get(number)
        return reading is None or reading.leader_epoch != leader_epoch

    def _settle(self, number: int, leader_epoch: int, code: int, start: int) -> None:
        """The broker has said whether it leads a partition."""
        self._check_right(code)
        try:
            if code in _LED_ELSEWHERE:
                self._resign(number, leader_epoch)
            elif not code:
                partition_log = self._follower.begin_load(number, leader_epoch, start, self._now(), serves=False)
                self._readings[number] = Reading(number, leader_epoch, partition_log, trio.current_time())
                self._ring()
        except StaleEpoch as stale:  # The broker heard of the new leader, and tells the topic's old state.
            log.debug("an old leader epoch is ignored", broker=self._broker, reason=str(stale))

    def _resign(self, number: int, leader_epoch: int) -> None:
        self._readings.pop(number, None)
        self.numbers.lags.pop(number, None)
        if number in self._follower.partitions.led:
            self._follower.resign(number, leader_epoch, self._now())
            self._resigned.append(number)

    # What it says.

    async def read(self, client: KafkaClient, readings: Sequence[Reading], wait: float) -> bool:
        """Asks once for records of these partitions, and takes in what comes. Whether the broker said anything.

        The first partitions are served first. Where there is nothing new the broker waits so many seconds.
        Raises BrokerRefused where they may not be read, and what `KafkaClient.ask` does.
        """
        self._rounds += 1
        asked = {reading.number: reading for reading in readings}
        wanted = (Wanted(each.number, each.leader_epoch, each.log.next_offset, each.needs) for each in readings)
        asked_at = self._now()
        found = await fetch(client, OFFSETS_TOPIC, wanted, size=self._buffer_size, wait=wait)
        bare = not any(data.records for data in found)
        for data in found:
            reading = asked.get(data.partition_index)
            if reading is not None and self._is_current(reading):
                await self._take(reading, data, asked_at, bare)
        self._tell_resigned()
        await self._ask_who_serves(client)
        return bool(found)

    async def _ask_who_serves(self, client: KafkaClient) -> None:
        """Whether the broker's coordinator has loaded what was read here: until then it answers that it is loading."""
        table, now = self._follower.partitions, trio.current_time()
        due = {number: at for number, at in self._ask_at.items() if number in table.unserved}
        unserved = {number: table.led[number] for number in table.unserved if due.get(number, now) <= now}
        self._ask_at = due | dict.fromkeys(unserved, now + ASK_SECONDS)
        if not unserved:
            return
        loading = await loading_partitions(client, unserved, table.count or 0)
        for number, partition in unserved.items():
            if number not in loading and table.led.get(number) is partition:
                self._follower.serves(number, self._now())

    async def _take(self, reading: Reading, data: PartitionData, asked_at: float, bare: bool) -> None:
        self._check_right(data.error_code)
        if data.error_code:
            self._refused(reading, data.error_code)
            return
        try:
            await self._replay(reading, data.records or b"")
            loads = self._is_current(reading) and not reading.loaded
            if loads and (reason := self._follower.overflowed(reading.number)):
                self._fail(reading, reason)  # Before all of it was read.
            # Where nothing came for any partition, what is missing up to the end was compacted away.
            ended = data.high_watermark >= 0 and (bare or reading.log.next_offset >= data.high_watermark)
            if self._is_current(reading) and (reading.loaded or ended):  # While it loads, most of it is overwritten.
                await self._follow(reading, asked_at)
        except DecodeError as error:
            self._fail(reading, str(error))
        except Exception as error:  # noqa: BLE001 - the other partitions must go on
            log.exception("a partition of the log cannot be followed", broker=self._broker, partition=reading.name)
            self._fail(reading, f"{type(error).__name__}: {error}")
        if self._is_current(reading):
            self.numbers.lags[reading.number] = max(data.high_watermark - reading.log.next_offset, 0)
            if ended:
                self._caught_up(reading, asked_at)

    async def _replay(self, reading: Reading, records: bytes) -> None:
        if not records:
            return
        self._size_up(reading, records)
        before, offset = reading.log.records, reading.log.next_offset
        try:
            for _ in reading.log.replay(records):
                await self._breathe(reading)
        finally:
            self.numbers.records += reading.log.records - before
            self.numbers.skip(reading.log.skipped)
            reading.log.skipped.clear()
        if reading.log.next_offset > offset:  # Else a batch was cut off.
            reading.served = self._rounds

    def _size_up(self, reading: Reading, records: bytes) -> None:
        needed = first_batch_size(records)
        if needed > LARGEST_BATCH:
            raise DecodeError("record batch", "length", f"{needed} bytes, more than a segment can have")
        reading.needs = needed if needed > len(records) else 0
        if needed > max(self._buffer_size, reading.largest):
            reading.largest = needed
            log.warning(
                f"loading offsets and group metadata from {reading.name} with buffer larger ({needed} bytes) than "
                f"configured offsets_log.load_buffer_size ({self._buffer_size} bytes)",
                broker=self._broker,
                partition=reading.name,
            )

    async def _follow(self, reading: Reading, asked_at: float) -> None:
        with trio.CancelScope(shield=True):  # What has been replayed has to be merged, or it would be missing later.
            for facts in self._follower.follow(reading.number, asked_at, self._now()):
                self._copy.tell(facts)
                await self._breathe(reading)

    async def _breathe(self, reading: Reading) -> None:
        """Lets others have their turn."""
        if not reading.loaded:
            gc.freeze()  # What is loaded stays, and has no cycles: to search it for some takes a tenth of a second.
        await trio.lowlevel.checkpoint()

    def _caught_up(self, reading: Reading, asked_at: float) -> None:
        expired = self._follower.caught_up(reading.number, asked_at, self._now())
        partition = self._follower.partitions.led[reading.number]
        if partition.state is PartitionState.FAILED:
            self._fail(reading, partition.reason)
            return
        if not reading.loaded:
            reading.loaded = True
            self._failures.pop(reading.number, None)
            seconds = trio.current_time() - reading.begun_at
            self.numbers.loads.observe(seconds)
            log.debug(
                f"Finished loading offsets and group metadata from {reading.name} in {seconds * 1000:.0f} milliseconds",
                broker=self._broker,
                records=reading.log.records,
            )
            self._ring()
        if expired is not None:
            self._tell_expired(expired)

    def _tell_expired(self, expired: OffsetsExpired) -> None:
        milliseconds = expired.seconds * 1000
        log.info(
            f"Removed {expired.count} expired offsets in {milliseconds:.0f} milliseconds.",
            broker=self._broker,
            offsets=expired.count,
        )

    def _tell_resigned(self) -> None:
        resigned, self._resigned = sorted(self._resigned), []
        if resigned:
            log.info(
                f"the broker resigned from partitions of {OFFSETS_TOPIC}", broker=self._broker, partitions=resigned
            )

    # What goes wrong.

    def _check_right(self, code: int) -> None:
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise BrokerRefused(f"{self._broker} keeps {OFFSETS_TOPIC} to itself", code)

    def _refused(self, reading: Reading, code: int) -> None:
        self.numbers.lags.pop(reading.number, None)
        if code in _MOVED:
            self._resign(reading.number, reading.leader_epoch)
            self._look_soon()
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            del self._readings[reading.number]
            self._follower.fail(reading.number, error_name(code), self._now())
            log.info("a partition was cut off: it is loaded anew", broker=self._broker, partition=reading.name)
            self._look_soon()
        else:
            self._fail(reading, error_name(code))

    def _fail(self, reading: Reading, reason: str) -> None:
        """The partition is left alone for a while, and then loaded anew."""
        number, before = reading.number, self._failures.get(reading.number)
        self._readings.pop(number, None)
        self.numbers.lags.pop(number, None)
        self._follower.fail(number, reason, self._now())
        pause = min(before.pause * 2, LONGEST_RETRY) if before else RETRY_SECONDS
        self._failures[number] = _Failure(reason, pause, trio.current_time() + pause)
        if before is None or before.reason != reason:
            log.warning(
                f"failed to load offsets and group metadata from {reading.name}",
                broker=self._broker,
                partition=reading.name,
                reason=reason,
            )

    def _look_soon(self) -> None:
        self.look_at = min(self.look_at, trio.current_time() + LOOK_AGAIN_SECONDS)
        self._ring()

    def _ring(self) -> None:
        rung, self._bell = self._bell, trio.Event()
        rung.set()

    def _is_current(self, reading: Reading) -> bool:
        """Whether it was not replaced or dropped meanwhile."""
        return self._readings.get(reading.number) is reading

    def _now(self) -> float:
        return self._copy.epoch(trio.current_time())
