"""Keeps a copy of the coordinator up with its log, `__consumer_offsets`, for as long as the sidecar runs.

Owns: `OffsetsTail`: its connections, when to try again, and what is said where the log cannot be read. Must not know:
which partitions are read, and what becomes of records (`LogReader`).

It never stands in the way: whatever fails here, clients are forwarded as before. Loading has a connection of its own,
so that the tail of one partition does not wait for the load of another.
"""

import trio

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.coordinator.partitions import PartitionState
from group_sidecar.metrics.log_reading import LogReading
from group_sidecar.proxy.attempts import Attempts, remedy
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.client import AuthenticationFailed, BrokerError, BrokerRefused, BrokerUnreachable, KafkaClient
from group_sidecar.proxy.log_reader import LARGEST_BATCH, OFFSETS_TOPIC, LogReader
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.supervision import Supervisor, Task

WAIT_SECONDS = 0.5
"""For so long the broker may keep a Fetch of the tail when there is nothing new; its `fetch.max.wait.ms`."""
SHORT_WAIT_SECONDS = 0.02
"""The same while a partition loads: it must not wait for long, once loaded, to be among those that are tailed."""
PAUSE_SECONDS = 0.01
"""Between two Fetches of the tail: under load each then brings more, and costs less."""
IDLE_SECONDS = 0.1
"""Between two Fetches of a load that the broker does not answer to the point."""
DENIED_SECONDS = 60.0
"""Seconds until the right to read is tried again."""

Standing = dict[str, object]
"""For JSON."""


class OffsetsTail:
    """Reads one broker's part of the log.

    Attributes:
        denied: whether the broker denies the sidecar the right to read the log, or refuses its credentials.
    """

    def __init__(self, copy: BrokerCopy) -> None:
        settings = copy.config.offsets_log
        self._copy = copy
        self._reader = LogReader(copy, settings.load_buffer_size)
        self._largest_reply = settings.load_buffer_size + LARGEST_BATCH
        self._table = copy.manager.log.partitions
        self._attempts = Attempts()
        self._trouble = "not read yet"
        self.denied = False
        self._table.expected = True

    @property
    def numbers(self) -> LogReading:
        """What there is to measure."""
        return self._reader.numbers

    def standing(self) -> Standing:
        """Whether the log is read, and if not, why; how many partitions there are, and those that the broker leads."""
        led = {state: sorted(n for n, its in self._table.states.items() if its is state) for state in PartitionState}
        told: Standing = {"read": not self._trouble, "partitions": self._table.count}
        if self._trouble:
            told["trouble"] = self._trouble
        for state, partitions in led.items():
            told[state] = {"count": len(partitions), "partitions": partitions}
        if failed := led[PartitionState.FAILED]:
            told["reasons"] = {str(number): self._table.led[number].reason for number in failed}
        return told

    def read_again(self, group_id: str) -> None:
        """Has a group that the copy has wrong read again from the log, or learnt again where the log is not read."""
        if not self._reader.read_again(group_id):
            self._copy.relearn(group_id, trio.current_time())

    async def run(self, supervisor: Supervisor | None = None) -> None:
        """Reads until cancelled, connecting again with growing pauses. Never raises."""
        await (supervisor or Supervisor()).keep(Task.TAIL, self._read, str(self._copy.address))

    async def _read(self) -> None:
        while True:
            try:
                async with self._copy.connect() as client, trio.open_nursery() as nursery:
                    client.allow(self._largest_reply)
                    self._copy.learn_versions(client.versions)  # Another broker than before, perhaps.
                    nursery.start_soon(self._load)
                    await self._tail(client)
            except Exception as error:  # noqa: BLE001 - what is not expected is raised again, from its group
                await trio.sleep(await self._ended(_first(error)))

    async def _tail(self, client: KafkaClient) -> None:
        """Looks for partitions, and tails those that are loaded, for as long as the connection lasts."""
        reader = self._reader
        await reader.discover(client)
        while True:
            if trio.current_time() >= reader.look_at:
                await reader.discover(client)
            if loaded := reader.loaded:
                await reader.read(client, loaded, SHORT_WAIT_SECONDS if reader.loading else WAIT_SECONDS)
                self._succeeded()
                await trio.sleep(PAUSE_SECONDS)
                continue
            if not reader.loading:
                self._succeeded()  # There is nothing to be read here, or not yet.
            with trio.move_on_at(reader.look_at):
                await reader.stirs()

    async def _load(self) -> None:
        """Loads partitions as they are found, over a connection that lasts as long as there are any."""
        reader = self._reader
        while True:
            while not reader.loading:
                await reader.stirs()
            begun_at, loads, records = trio.current_time(), sum(self.numbers.loads.counts), self.numbers.records
            async with self._copy.connect(again=True) as client:
                client.allow(self._largest_reply)
                while loading := reader.loading:
                    if not await reader.read(client, loading, 0.0):
                        await trio.sleep(IDLE_SECONDS)
                    self._succeeded()
            if loaded := sum(self.numbers.loads.counts) - loads:
                milliseconds = (trio.current_time() - begun_at) * 1000
                log.info(
                    f"Finished loading offsets and group metadata from {loaded} partitions of {OFFSETS_TOPIC} "
                    f"in {milliseconds:.0f} milliseconds",
                    broker=str(self._copy.address),
                    records=self.numbers.records - records,
                )

    def _succeeded(self) -> None:
        self._table.expected = True
        self._attempts.failures = 0
        self._trouble, self.denied = "", False
        if self._attempts.enters("read"):
            log.info(f"reading {OFFSETS_TOPIC}", broker=str(self._copy.address))

    async def _ended(self, error: Exception) -> float:
        """The connection is over, or the log may not be read. Gives the seconds until the next attempt.

        Raises the error itself where neither the broker nor the network can be its cause.
        """
        self._attempts.failures += 1
        self._trouble = str(error) or type(error).__name__
        expected = isinstance(error, BrokerError | DecodeError)
        self.denied = denied = _denied(error)
        if denied:
            self._table.expected = False
            self._reader.give_up()
        else:
            await self._reader.lose(epochs_count=expected)
        news = self._attempts.enters("denied" if denied else type(error).__name__)
        if not expected:
            raise error
        if news:
            told = {"broker": str(self._copy.address), "reason": self._trouble, **remedy(error)}
            if denied:
                self._tell_denied(error, told)
            else:  # That a broker is not there is for the prober to say.
                tell = log.debug if isinstance(error, BrokerUnreachable) else log.warning
                tell(f"{OFFSETS_TOPIC} is not read", **told)
        return DENIED_SECONDS if denied else self._attempts.pause()

    def _tell_denied(self, error: Exception, told: dict[str, str]) -> None:
        user = self._copy.config.own_connection.sasl
        hint = "grant READ and DESCRIBE on the topic to the sidecar's user" + ("" if user else ", see own_connection")
        if isinstance(error, AuthenticationFailed):
            hint = "mend own_connection.sasl"
        log.warning(
            f"the sidecar may not read {OFFSETS_TOPIC}: it works from the wire and by asking", hint=hint, **told
        )


def _denied(error: Exception) -> bool:
    if isinstance(error, BrokerRefused):
        return error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return isinstance(error, AuthenticationFailed)


def _first(error: Exception) -> Exception:
    """The first of those that a nursery has put together; the others came of it."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
