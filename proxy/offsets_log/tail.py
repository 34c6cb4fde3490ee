"""Keeps a copy of the coordinator up to date from `__consumer_offsets` while the sidecar runs.

`OffsetsTail` owns the connections, reconnects, and logs why `__consumer_offsets` cannot be read. `PartitionReader`
selects the partitions and handles the records.

A failure here does not affect the forwarding of clients. Loads have a connection of their own, so that new records of a
loaded partition do not wait for the load of another partition.
"""

import trio

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.offsets_topic import OFFSETS_TOPIC
from group_sidecar.coordinator.state.log_partitions import PartitionState
from group_sidecar.metrics.log_read_counters import LogReadCounters
from group_sidecar.proxy.broker.broker_errors import AuthenticationFailed, BrokerError, BrokerRefused, BrokerUnreachable
from group_sidecar.proxy.broker.broker_versions import BrokerVersions
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.broker.group_coordinators import GroupCoordinators
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.broker.own_connections import OwnConnections
from group_sidecar.proxy.broker.own_credentials import setting_hint
from group_sidecar.proxy.offsets_log.partition_reader import LARGEST_BATCH, PartitionReader
from group_sidecar.proxy.runtime.backoff import Backoff
from group_sidecar.proxy.runtime.logging import log
from group_sidecar.proxy.runtime.supervision import Supervisor, Task, first_error

WAIT_SECONDS = 0.5
"""Seconds that the broker may hold a Fetch of the tail if there are no new records (`fetch.max.wait.ms`)."""
SHORT_WAIT_SECONDS = 0.02
"""Replaces `WAIT_SECONDS` while a partition loads, so that the partition joins the tail's Fetch soon after its load."""
PAUSE_SECONDS = 0.01
"""Seconds between two Fetches of the tail. Under load, each Fetch then returns more records, and fewer Fetches are
needed."""
IDLE_SECONDS = 0.1
"""Seconds until the next Fetch of a load if the last reply contained no partition."""
DENIED_SECONDS = 60.0
"""Seconds until the sidecar checks again whether it may read `__consumer_offsets`."""

LogStatus = dict[str, object]
"""The status of reading `__consumer_offsets`, for JSON."""


class OffsetsTail:
    """Reads the partitions of `__consumer_offsets` that one broker leads.

    Args:
        copy: the copy into which the records are merged.
        versions: learns which versions the broker offers, at each connection.
        coordinators: learns which broker coordinates a group.
        connections: connects to the broker.
        buffer_size: bytes that are read at a time.

    Attributes:
        denied: whether the broker denies the sidecar the right to read the log, or refuses its credentials.
    """

    def __init__(
        self,
        copy: CoordinatorCopy,
        versions: BrokerVersions,
        coordinators: GroupCoordinators,
        connections: OwnConnections,
        buffer_size: int,
    ) -> None:
        self._copy = copy
        self._versions = versions
        self._connections = connections
        self._broker = str(connections.address)
        self._reader = PartitionReader(copy, coordinators, self._broker, buffer_size)
        self._largest_reply = buffer_size + LARGEST_BATCH
        self._table = copy.manager.log.partitions
        self._attempts = Backoff()
        self._failure_reason = "not read yet"
        self.denied = False
        self._table.expected = True

    @property
    def read_counters(self) -> LogReadCounters:
        """The counters for the metrics."""
        return self._reader.read_counters

    @property
    def unusable(self) -> bool:
        """Whether the log is not read any more, because it is not known which partition stores which group.

        Only a new process reads the log again.
        """
        return self._reader.unusable_reason is not None

    @property
    def is_loaded(self) -> bool:
        """Whether all partitions that the broker leads are loaded.

        Also True if the sidecar may not read the log, or cannot use it.
        """
        loads = PartitionState.LOADING in self._table.states.values()
        return self.denied or self.unusable or not (self._failure_reason or loads)

    def status(self) -> LogStatus:
        """Returns whether the log is read, or else the reason, and the count and the states of the partitions.

        If commits or members bypassed the sidecar, the status contains how many, and whether answers may rely on
        `answers.exclusive`. If the broker has deleted records from the start of partitions, the status names these
        partitions. If partitions have failed, the status contains the reasons.
        """
        partitions_by_state = {
            state: sorted(number for number, found in self._table.states.items() if found is state)
            for state in PartitionState
        }
        fields: LogStatus = {"read": not self._failure_reason, "partitions": self._table.count}
        if self._failure_reason:
            fields["trouble"] = self._failure_reason
        for state, partitions in partitions_by_state.items():
            fields[state] = {"count": len(partitions), "partitions": partitions}
        exclusivity = self._copy.manager.exclusivity
        if exclusivity.commits or exclusivity.members:
            fields["bypassed"] = {
                "commits": exclusivity.commits,
                "members": exclusivity.members,
                "exclusive": exclusivity.holds(self._copy.epoch(trio.current_time())),
            }
        if trimmed := sorted(self._table.trimmed):
            fields["records_deleted"] = {"count": len(trimmed), "partitions": trimmed}
        if failed := partitions_by_state[PartitionState.FAILED]:
            fields["reasons"] = {str(number): self._table.leader_partitions[number].reason for number in failed}
        return fields

    def reload_group(self, group_id: str) -> None:
        """Reads a group again from the log, because the copy of the group is wrong.

        If the group's partition is not read, the copy forgets the group, and the broker is asked about it.
        """
        if not self._reader.reload_group(group_id):
            self._copy.forget_group_state(group_id, trio.current_time())

    async def run(self, supervisor: Supervisor | None = None) -> None:
        """Reads until cancelled, and reconnects with growing pauses. Never raises."""
        await (supervisor or Supervisor()).keep_running(Task.TAIL, self._read, self._broker)

    async def _read(self) -> None:
        while not self.unusable:
            try:
                async with self._connections.connect() as client, trio.open_nursery() as nursery:
                    client.raise_reply_limit(self._largest_reply)
                    self._versions.learn(client.versions)  # The broker may have been upgraded.
                    nursery.start_soon(self._load)
                    try:
                        await self._tail(client)
                    finally:
                        # If the nursery cancelled `_load` itself, a cycle would remain: `Cancelled` refers to the frame
                        # of the nursery, whose variables refer to `Cancelled`. The collector frees no cycles
                        # (proxy/runtime/garbage_collection.py), so all records that were read would stay in memory.
                        nursery.cancel_scope.cancel()
            except Exception as error:  # noqa: BLE001 - unexpected exceptions are raised again
                await trio.sleep(await self._connection_failed(first_error(error)))

        await trio.sleep_forever()

    async def _tail(self, client: KafkaClient) -> None:
        """Finds the partitions that the broker leads, and reads new records of loaded partitions, until the connection
        ends.
        """
        reader = self._reader
        await reader.discover(client)
        while True:
            if trio.current_time() >= reader.discover_at:
                await reader.discover(client)
            if loaded := reader.loaded:
                await reader.read(client, loaded, SHORT_WAIT_SECONDS if reader.loading else WAIT_SECONDS)
                self._succeeded()
                await trio.sleep(PAUSE_SECONDS)
                continue
            if not reader.loading:
                self._succeeded()  # The broker leads no partition, or the topic does not exist yet.
            with trio.move_on_at(reader.discover_at):
                await reader.wait_for_change()

    async def _load(self) -> None:
        """Loads partitions as they are found. A connection is open only while there are partitions to load."""
        reader = self._reader
        while True:
            while not reader.loading:
                await reader.wait_for_change()
            begun_at, loads, records = (
                trio.current_time(),
                sum(self.read_counters.loads.counts),
                self.read_counters.records,
            )
            async with self._connections.connect(additional=True) as client:
                client.raise_reply_limit(self._largest_reply)
                while loading := reader.loading:
                    if not await reader.read(client, loading, 0.0):
                        await trio.sleep(IDLE_SECONDS)
                    self._succeeded()
            if loaded := sum(self.read_counters.loads.counts) - loads:
                milliseconds = (trio.current_time() - begun_at) * 1000
                log.info(
                    f"Finished loading offsets and group metadata from {loaded} partitions of {OFFSETS_TOPIC} "
                    f"in {milliseconds:.0f} milliseconds",
                    broker=self._broker,
                    records=self.read_counters.records - records,
                )

    def _succeeded(self) -> None:
        self._table.expected = True
        self._attempts.failures = 0
        self._failure_reason, self.denied = "", False
        if self._attempts.enters_condition("read"):
            log.info(f"reading {OFFSETS_TOPIC}", broker=self._broker)

    async def _connection_failed(self, error: Exception) -> float:
        """Handles the error that ended the connection, for example a missing right to read the log.

        If the reader has given up the log, there is no further attempt. `error` may then be an error of the other task.

        Returns the seconds until the next attempt.

        Raises the error again if neither the broker nor the network can be its cause.
        """
        expected = isinstance(error, BrokerError | DecodeError)
        if (reason := self._reader.unusable_reason) is not None:
            self._log_unusable(reason)
            if not expected:
                raise error
            return 0.0
        self._attempts.failures += 1
        self._failure_reason = str(error) or type(error).__name__
        self.denied = denied = _denied(error)
        if denied:
            self._table.expected = False
            self._reader.stop_reading()
        else:
            await self._reader.lose(epochs_suffice=expected)
        is_new = self._attempts.enters_condition("denied" if denied else type(error).__name__)
        if not expected:
            raise error
        if is_new:
            fields = {"broker": self._broker, "reason": self._failure_reason, **setting_hint(error)}
            if denied:
                self._log_denied(error, fields)
            else:  # The prober logs that a broker is unreachable.
                log_method = log.debug if isinstance(error, BrokerUnreachable) else log.warning
                log_method(f"{OFFSETS_TOPIC} is not read", **fields)
        return DENIED_SECONDS if denied else self._attempts.pause()

    def _log_unusable(self, reason: str) -> None:
        """Logs that the sidecar leaves all answers that need the log to the broker."""
        self._reader.stop_reading()  # Before the other task ended, it may have begun to load a partition.
        self._failure_reason = reason
        self._table.expected = True  # Offsets may be lost when the broker restarts, and the wire does not show that.
        log.warning(
            f"{OFFSETS_TOPIC} is not read any more: the number of its partitions has changed",
            broker=self._broker,
            reason=reason,
            hint="restart the brokers, then the sidecar; if this line comes again, see docs/limits.md",
        )

    def _log_denied(self, error: Exception, fields: dict[str, str]) -> None:
        hint = "grant READ and DESCRIBE on the topic to the sidecar's user" + (
            "" if self._connections.has_user else ", see own_connection"
        )
        if isinstance(error, AuthenticationFailed):
            hint = "correct own_connection.sasl"
        log.warning(
            f"the sidecar is not allowed to read {OFFSETS_TOPIC}: its copy follows the wire and the broker's answers",
            hint=hint,
            **fields,
        )


def _denied(error: Exception) -> bool:
    if isinstance(error, BrokerRefused):
        return error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return isinstance(error, AuthenticationFailed)
