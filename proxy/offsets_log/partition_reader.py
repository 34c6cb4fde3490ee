"""Finds the partitions of `__consumer_offsets` that the broker leads, reads them, and handles each Fetch reply.

`PartitionReader` loads each partition, then reads the partition's new records, and stops when another broker leads the
partition or an error occurs. `tail` owns the connections, and `LogFollower` turns the records into groups.

The file has more than 400 lines because all these steps change the same table of `PartitionReading` objects.

The work is done in slices of a few milliseconds. Clients' frames are handled between the slices, because this work
shares a thread with the data path.
"""

import gc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import trio

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.messages.fetch import PartitionData
from group_sidecar.codecs.offsets_topic import OFFSETS_TOPIC
from group_sidecar.codecs.record_batches import first_batch_size
from group_sidecar.coordinator.model.facts import OffsetsExpired
from group_sidecar.coordinator.state.log_partitions import MisplacedGroup, PartitionState, StaleEpoch, partition_for
from group_sidecar.coordinator.state.partition_log import PartitionLog
from group_sidecar.metrics.log_read_counters import LogReadCounters
from group_sidecar.proxy.broker.broker_errors import BrokerRefused, LogUnusable, error_name
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.broker.group_coordinators import GroupCoordinators
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.broker.topic_log_queries import FetchPosition, fetch, leaders, loading_partitions, log_starts
from group_sidecar.proxy.runtime.logging import log

DISCOVER_SECONDS = 2.0
"""Seconds between requests for the topic's partitions and their leaders."""
REDISCOVER_SECONDS = 0.2
"""Seconds until the next request for partitions and leaders after a partition was found to have moved."""
ASK_SECONDS = 0.1
"""Seconds between requests that show whether the broker's own coordinator has loaded a partition."""
RETRY_SECONDS, LONGEST_RETRY = 5.0, 300.0
"""Seconds until a partition that could not be read is read again from its start: doubled each time, up to the second
value."""
LARGEST_BATCH = 128 * 1024 * 1024
"""The maximum size of a batch in bytes. A batch cannot be larger than a segment, which by default has at most 100 MiB
(`offsets.topic.segment.bytes`)."""

_LED_ELSEWHERE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
)
_MOVED = (*_LED_ELSEWHERE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)


@dataclass(slots=True, eq=False)
class PartitionReading:
    """A partition that this broker leads, and the progress of reading it.

    Attributes:
        begun_at: when the load of the partition began, on trio's clock.
        loaded: whether the reading has reached the end of the log once.
        next_batch_bytes: the size of the next batch in bytes if the last reply cut off this batch, otherwise 0.
        largest: the size in bytes of the largest batch that a warning was logged for.
        last_served_round: the number of the last call of `PartitionReader.read` that returned records of the partition.
    """

    number: int
    leader_epoch: int
    log: PartitionLog
    begun_at: float
    loaded: bool = False
    next_batch_bytes: int = 0
    largest: int = 0
    last_served_round: int = 0

    @property
    def name(self) -> str:
        return f"{OFFSETS_TOPIC}-{self.number}"


@dataclass(slots=True)
class _Failure:
    """Why a partition could not be read, and when the next attempt is made."""

    reason: str
    pause: float
    retry_at: float


class PartitionReader:
    """Reads one broker's partitions into its copy of the coordinator.

    Two tasks may use a reader at a time, for different partitions.

    Args:
        copy: the copy into which the records are merged.
        coordinators: learns the leaders of the partitions.
        broker: the name of the broker in log lines.
        buffer_size: bytes that are read at a time.

    Attributes:
        read_counters: the counters for the metrics.
        discover_at: when `discover` is due, on trio's clock.
        unusable_reason: why the reader has given up the log for ever; None if it has not.
    """

    def __init__(self, copy: CoordinatorCopy, coordinators: GroupCoordinators, broker: str, buffer_size: int) -> None:
        self.read_counters = LogReadCounters(copy.manager.log)
        self.discover_at = -math.inf
        self.unusable_reason: str | None = None
        self._copy = copy
        self._coordinators = coordinators
        self._broker = broker
        self._follower = copy.manager.log
        self._buffer_size = buffer_size
        self._readings: dict[int, PartitionReading] = {}
        self._failures: dict[int, _Failure] = {}
        self._partition_count: int | None = None
        self._rounds = 0
        self._ask_at: dict[int, float] = {}
        self._resigned: list[int] = []
        self._trimmed: set[int] = set()
        self._partitions_to_reload: set[int] = set()
        self._wakeup = trio.Event()

    @property
    def loading(self) -> list[PartitionReading]:
        """The partitions whose end has not been reached yet."""
        return [reading for reading in self._readings.values() if not reading.loaded]

    @property
    def loaded(self) -> list[PartitionReading]:
        """The loaded partitions. The partitions without records for the longest time come first."""
        loaded = (reading for reading in self._readings.values() if reading.loaded)
        return sorted(loaded, key=lambda reading: reading.last_served_round)

    async def wait_for_change(self) -> None:
        """Waits until there is a partition to load or to tail, or `discover_at` has changed."""
        await self._wakeup.wait()

    async def lose(self, *, epochs_suffice: bool) -> None:
        """Notes that the connection is gone.

        Reading a partition continues on the next connection if the leader epoch is still the same.

        Args:
            epochs_suffice: whether an equal epoch is enough to continue. Otherwise all partitions are loaded again.
        """
        kept = {number: each for number, each in self._readings.items() if epochs_suffice and each.leader_epoch >= 0}
        self._readings = kept
        self._coordinators.learn({})
        self.read_counters.lags.clear()
        with trio.CancelScope(shield=True):  # If the loop stopped halfway, some groups would wrongly count as certain.
            for _ in self._follower.connection_lost(self._now(), coordinator_loaded=False):
                await trio.lowlevel.checkpoint()

    def stop_reading(self) -> None:
        """Forgets all that was read. Called if the broker denies access to the topic, if the topic was deleted, or if
        the log cannot be used.
        """
        self._readings.clear()
        self._coordinators.learn({})
        self.read_counters.lags.clear()
        self._follower.stop_reading(self._now())

    def reload_group(self, group_id: str) -> bool:
        """Makes the partition of a group load again, because the copy of the group is wrong.

        Returns False if the reader does not read the partition. The load begins with the next `discover`, which is due
        soon.
        """
        count = self._follower.partitions.count
        number = partition_for(group_id, count) if count else -1
        if number not in self._readings:
            return False
        self._partitions_to_reload.add(number)
        self._discover_soon()
        return True

    def _drop_partitions_to_reload(self) -> None:
        """Forgets what was read of partitions that are to be loaded again, unless they are already loading."""
        for number in self._partitions_to_reload:
            if (reading := self._readings.get(number)) is not None and reading.loaded:
                del self._readings[number]
                self.read_counters.lags.pop(number, None)
                self._follower.fail(number, "read again", self._now())
                log.info("a partition is loaded again", broker=self._broker, partition=reading.name)
        self._partitions_to_reload.clear()

    # Leadership.

    async def discover(self, client: KafkaClient) -> None:
        """Finds the partitions that must be loaded, and the partitions that must not be read any more.

        Raises BrokerRefused, LogUnusable, and the exceptions of `KafkaClient.ask`.
        """
        if self.unusable_reason is not None:
            raise LogUnusable(self.unusable_reason)
        self.discover_at = trio.current_time() + DISCOVER_SECONDS
        self._drop_partitions_to_reload()
        epochs, nodes = await leaders(client, OFFSETS_TOPIC)
        if not epochs:
            self.stop_reading()
            return
        self._check_count(len(epochs))
        self._coordinators.learn(nodes)
        self._follower.count_partitions(len(epochs), self._now())
        asked = {number: epoch for number, epoch in epochs.items() if self._needs_leader_check(number, epoch)}
        starts = await log_starts(client, OFFSETS_TOPIC, asked) if asked else {}
        for number, (code, start) in starts.items():
            await self._apply_leadership(number, epochs[number], code, start)
            await trio.lowlevel.checkpoint()
        self._follower.partitions.watch(epochs)
        self._log_resigned()
        self._log_trimmed()

    def _check_count(self, count: int) -> None:
        """Checks that the topic has as many partitions as when it was first found.

        A broker's coordinator reads the number of partitions only when the broker starts.
        """
        if self._partition_count is None:
            self._partition_count = count
        elif count != self._partition_count:
            self._give_up(f"{OFFSETS_TOPIC} has {count} partitions, and had {self._partition_count} before")

    def _give_up(self, reason: str) -> NoReturn:
        """Forgets all that was read, because it is not known which partition stores which group. Raises LogUnusable.

        No answer may use the copy any more, so nothing may be awaited before the copy has forgotten the log. The reason
        is kept, because an error of the other task may hide the exception.
        """
        self.unusable_reason = reason
        self.stop_reading()
        raise LogUnusable(reason)

    def _needs_leader_check(self, number: int, leader_epoch: int) -> bool:
        failure = self._failures.get(number)
        if failure is not None and trio.current_time() < failure.retry_at:
            return False
        reading = self._readings.get(number)
        return reading is None or reading.leader_epoch != leader_epoch

    async def _apply_leadership(self, number: int, leader_epoch: int, code: int, start: int) -> None:
        """Begins to load a partition, or stops reading it, as the broker's reply requires."""
        self._check_authorized(code)
        try:
            if code in _LED_ELSEWHERE:
                await self._resign(number, leader_epoch)
            elif not code:
                self._follower.partitions.check_epoch(number, leader_epoch)
                self._readings.pop(number, None)
                await self._forget_in_steps(number, leader_epoch, moved=False)
                partition_log = self._follower.begin_load(
                    number, leader_epoch, start, self._now(), coordinator_loaded=False
                )
                self._readings[number] = PartitionReading(number, leader_epoch, partition_log, trio.current_time())
                self._wake()
        except StaleEpoch as stale:  # The Metadata reply is older than a leader change that the broker knows.
            log.debug("an old leader epoch is ignored", broker=self._broker, reason=str(stale))

    async def _resign(self, number: int, leader_epoch: int) -> None:
        self._readings.pop(number, None)
        self.read_counters.lags.pop(number, None)
        await self._forget_in_steps(number, leader_epoch, moved=True)
        if number in self._follower.partitions.leader_partitions and number not in self._readings:
            self._follower.resign(number, leader_epoch, self._now())
            self._resigned.append(number)

    async def _forget_in_steps(self, number: int, leader_epoch: int, *, moved: bool) -> None:
        """Forgets the groups of a partition that was read, and lets other tasks run meanwhile."""
        with trio.CancelScope(shield=True):  # A partition that is half forgotten would never be read again.
            for _ in self._follower.forget_in_steps(number, leader_epoch, self._now(), moved=moved):
                await trio.lowlevel.checkpoint()

    # Records.

    async def read(self, client: KafkaClient, readings: Sequence[PartitionReading], wait: float) -> bool:
        """Sends one Fetch for these partitions, and applies the records.

        Returns whether the reply contained any partition.

        The broker serves the first partitions first. If there are no new records, the broker waits up to `wait`
        seconds. Raises BrokerRefused if the partitions may not be read, LogUnusable, and the exceptions of
        `KafkaClient.ask`.
        """
        self._rounds += 1
        asked = {reading.number: reading for reading in readings}
        wanted = (
            FetchPosition(each.number, each.leader_epoch, each.log.next_offset, each.next_batch_bytes)
            for each in readings
        )
        asked_at = self._now()
        found = await fetch(client, OFFSETS_TOPIC, wanted, size=self._buffer_size, wait=wait)
        nothing_fetched = not any(data.records for data in found)
        for data in found:
            reading = asked.get(data.partition_index)
            if reading is not None and self._is_current(reading):
                try:
                    await self._apply_fetched(reading, data, asked_at, nothing_fetched)
                except MisplacedGroup as misplaced:
                    group = f"the group {misplaced.group_id!r}, which another partition stores"
                    self._give_up(f"{reading.name} has records of {group}")
        self._log_resigned()
        await self._check_serving(client)
        return bool(found)

    async def _check_serving(self, client: KafkaClient) -> None:
        """Asks whether the broker's coordinator serves the partitions that the sidecar reads.

        Until the coordinator serves a partition, the broker replies to its clients that the coordinator is loading.
        """
        table, now = self._follower.partitions, trio.current_time()
        due = {number: at for number, at in self._ask_at.items() if number in table.unserved}
        unserved = {number: table.leader_partitions[number] for number in table.unserved if due.get(number, now) <= now}
        self._ask_at = due | dict.fromkeys(unserved, now + ASK_SECONDS)
        if not unserved:
            return
        loading = await loading_partitions(client, unserved, table.count or 0)
        for number, partition in unserved.items():
            if number not in loading and table.leader_partitions.get(number) is partition:
                self._follower.coordinator_loaded(number, self._now())

    async def _apply_fetched(
        self, reading: PartitionReading, data: PartitionData, asked_at: float, nothing_fetched: bool
    ) -> None:
        self._check_authorized(data.error_code)
        if data.error_code:
            await self._partition_error(reading, data.error_code)
            return
        try:
            await self._replay(reading, data.records or b"")
            loads = self._is_current(reading) and not reading.loaded
            if loads and (reason := self._follower.overflowed(reading.number)):
                self._fail(reading, reason)  # `limits.offsets` was exceeded during the load.
            # If the whole reply has no records, compaction has removed all records up to the partition's end.
            ended = data.high_watermark >= 0 and (nothing_fetched or reading.log.next_offset >= data.high_watermark)
            # During a load, records are merged only at the end, because later records overwrite most of the earlier
            # records.
            if self._is_current(reading) and (reading.loaded or ended):
                await self._apply_replayed(reading)
        except MisplacedGroup:
            raise
        except DecodeError as error:
            self._fail(reading, str(error))
        except Exception as error:  # noqa: BLE001 - the other partitions must still be read
            log.exception("a partition of the log cannot be followed", broker=self._broker, partition=reading.name)
            self._fail(reading, f"{type(error).__name__}: {error}")
        if self._is_current(reading):
            self.read_counters.lags[reading.number] = max(data.high_watermark - reading.log.next_offset, 0)
            if ended:
                await self._caught_up(reading, asked_at)

    async def _replay(self, reading: PartitionReading, records: bytes) -> None:
        if not records:
            return
        self._check_batch_size(reading, records)
        before, offset = reading.log.records, reading.log.next_offset
        try:
            for _ in reading.log.replay(records):
                await self._yield_to_others(reading)
        finally:
            self.read_counters.records += reading.log.records - before
            self.read_counters.count_skipped(reading.log.skipped)
            reading.log.skipped.clear()
        if reading.log.next_offset > offset:  # If the offset is the same, a batch was cut off.
            reading.last_served_round = self._rounds

    def _check_batch_size(self, reading: PartitionReading, records: bytes) -> None:
        needed = first_batch_size(records)
        if needed > LARGEST_BATCH:
            raise DecodeError("record batch", "length", f"{needed} bytes, more than a segment can have")
        reading.next_batch_bytes = needed if needed > len(records) else 0
        if needed > max(self._buffer_size, reading.largest):
            reading.largest = needed
            log.warning(
                f"loading offsets and group metadata from {reading.name} with buffer larger ({needed} bytes) than "
                f"configured offsets_log.load_buffer_size ({self._buffer_size} bytes)",
                broker=self._broker,
                partition=reading.name,
            )

    async def _apply_replayed(self, reading: PartitionReading) -> None:
        with trio.CancelScope(shield=True):  # Replayed records that are not merged now would be missing later.
            for facts in self._follower.merge(reading.number, self._now()):
                self._copy.report_facts(facts)
                await self._yield_to_others(reading)

    async def _yield_to_others(self, reading: PartitionReading) -> None:
        """Lets other tasks run."""
        if not reading.loaded:
            gc.freeze()  # Loaded objects form no cycles, and the collector would take 0.1 s to scan them.
        await trio.lowlevel.checkpoint()

    async def _caught_up(self, reading: PartitionReading, asked_at: float) -> None:
        """Makes the partition fresh. If this is cancelled, the partition stays as fresh as it was."""
        for expired in self._follower.end_reached(reading.number, asked_at, self._now()):
            if expired is not None:
                self._log_expired(expired)
            await self._yield_to_others(reading)
        if not self._is_current(reading):
            return
        partition = self._follower.partitions.leader_partitions[reading.number]
        if partition.state is PartitionState.FAILED:
            self._fail(reading, partition.reason)
            return
        if not reading.loaded:
            reading.loaded = True
            self._failures.pop(reading.number, None)
            seconds = trio.current_time() - reading.begun_at
            self.read_counters.loads.observe(seconds)
            log.debug(
                f"Finished loading offsets and group metadata from {reading.name} in {seconds * 1000:.0f} milliseconds",
                broker=self._broker,
                records=reading.log.records,
            )
            self._wake()

    def _log_expired(self, expired: OffsetsExpired) -> None:
        milliseconds = expired.seconds * 1000
        log.info(
            f"Removed {expired.count} expired offsets in {milliseconds:.0f} milliseconds.",
            broker=self._broker,
            offsets=expired.count,
        )

    def _log_resigned(self) -> None:
        resigned, self._resigned = sorted(self._resigned), []
        if resigned:
            log.info(
                f"the broker resigned from partitions of {OFFSETS_TOPIC}", broker=self._broker, partitions=resigned
            )

    def _log_trimmed(self) -> None:
        before, self._trimmed = self._trimmed, set(self._follower.partitions.trimmed)
        if found := sorted(self._trimmed - before):
            log.warning(
                f"the broker has deleted records from the start of partitions of {OFFSETS_TOPIC}",
                broker=self._broker,
                partitions=found,
                hint="set the topic's cleanup.policy to compact",
            )

    # Failures.

    def _check_authorized(self, code: int) -> None:
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise BrokerRefused(f"{self._broker} denies access to {OFFSETS_TOPIC}", code)

    async def _partition_error(self, reading: PartitionReading, code: int) -> None:
        self.read_counters.lags.pop(reading.number, None)
        if code in _MOVED:
            await self._resign(reading.number, reading.leader_epoch)
            self._discover_soon()
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            del self._readings[reading.number]
            self._follower.fail(reading.number, error_name(code), self._now())
            log.info("offset out of range: a partition is loaded again", broker=self._broker, partition=reading.name)
            self._discover_soon()
        else:
            self._fail(reading, error_name(code))

    def _fail(self, reading: PartitionReading, reason: str) -> None:
        """Stops reading a partition because of an error. The partition is loaded again after a pause."""
        number, previous = reading.number, self._failures.get(reading.number)
        self._readings.pop(number, None)
        self.read_counters.lags.pop(number, None)
        self._follower.fail(number, reason, self._now())
        pause = min(previous.pause * 2, LONGEST_RETRY) if previous else RETRY_SECONDS
        self._failures[number] = _Failure(reason, pause, trio.current_time() + pause)
        if previous is None or previous.reason != reason:
            log.warning(
                f"failed to load offsets and group metadata from {reading.name}",
                broker=self._broker,
                partition=reading.name,
                reason=reason,
            )

    def _discover_soon(self) -> None:
        self.discover_at = min(self.discover_at, trio.current_time() + REDISCOVER_SECONDS)
        self._wake()

    def _wake(self) -> None:
        woken, self._wakeup = self._wakeup, trio.Event()
        woken.set()

    def _is_current(self, reading: PartitionReading) -> bool:
        """Whether the reading is still in use, which means that it was neither replaced nor dropped."""
        return self._readings.get(reading.number) is reading

    def _now(self) -> float:
        return self._copy.epoch(trio.current_time())
