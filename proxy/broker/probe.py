"""Asks the broker periodically for information that no client's traffic shows.

The module decides which requests are sent and when, and logs when the broker's condition changes. The state of the
broker (`ProbedBroker`) gets the replies. A failure here does not affect the forwarding of clients.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from itertools import islice
from typing import Protocol

import trio

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.messages.describe_acls import DescribeAclsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.list_offsets import ListOffsetsRequest
from group_sidecar.coordinator.model.views import TopicPartition
from group_sidecar.proxy.broker.broker_errors import (
    AuthenticationFailed,
    BrokerClosed,
    BrokerError,
    BrokerRefused,
    BrokerTimeout,
    BrokerUnreachable,
    TlsFailed,
)
from group_sidecar.proxy.broker.group_queries import (
    UNFILTERED_LISTING_CODES,
    brokers,
    describe_acls_error,
    listed_groups,
)
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.broker.leaders import LeaderPartitions
from group_sidecar.proxy.broker.log_bound_queries import PARTITIONS_PER_REQUEST, log_ends, log_starts
from group_sidecar.proxy.broker.own_credentials import setting_hint
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.runtime.backoff import Backoff
from group_sidecar.proxy.runtime.logging import log
from group_sidecar.proxy.runtime.supervision import Supervisor, Task

ROUND_SECONDS = 15.0
"""Seconds between rounds of requests if no journal sets the interval."""
LONGEST_ROUND = 60.0
"""The maximum number of seconds between rounds. Brokers close a connection that is idle for ten minutes
(`connections.max.idle.ms`)."""
UNLISTED_SECONDS = 1.0
"""Seconds between rounds while the broker cannot list its groups yet."""
STARTS_SECONDS = 60.0
"""Seconds between requests for all log starts. A log start moves when retention deletes a segment, a few times an
hour."""
MIN_TRIGGER_SECONDS = 1.0
"""The minimum number of seconds between two rounds, however often the data path triggers a round."""
SHORT_CONNECTION_SECONDS = 1.0
"""A connection that the broker closes after fewer seconds counts as a failure."""
FRESH_SHARE_OF_ROUND = 1 / 3
"""A fraction of the time between rounds. A round does not request a log end that a client's reply contained within this
time before the round. So no log end gets older than four thirds of a round."""

_CONDITIONS: tuple[tuple[type[Exception], str], ...] = (
    (BrokerUnreachable, "broker unreachable"),
    (BrokerClosed, "broker closes the connection"),
    (BrokerTimeout, "broker does not answer"),
    (TlsFailed, "broker not reached by TLS"),
    (AuthenticationFailed, "broker refuses the sidecar's credentials"),
    (BrokerError, "broker not understood"),
    (DecodeError, "broker not understood"),
)


class JournalSettings(Protocol):
    """The part of the journal's settings that sets the interval."""

    @property
    def interval_seconds(self) -> float: ...


class ProbeSettings(Protocol):
    """The part of the settings that the prober needs."""

    @property
    def journal(self) -> JournalSettings | None: ...


class Connections(Protocol):
    """Connects to the broker (`OwnConnections`)."""

    @property
    def address(self) -> Address: ...
    def connect(self) -> AbstractAsyncContextManager[KafkaClient]:
        """Opens a connection with the sidecar's own credentials. Raises BrokerError and DecodeError."""


class ProbedVersions(Protocol):
    """Learns the broker's versions (`BrokerVersions`)."""

    def learn(self, versions: Mapping[int, tuple[int, int]]) -> None:
        """Stores the versions that the broker offers. The prober calls this method at each connection."""


class ProbedLogBounds(Protocol):
    """The log starts and log ends that are needed (`NeededLogBounds`). Times are on trio's clock."""

    @property
    def reports_all_log_ends(self) -> bool:
        """Whether the ends of all logs that this broker leads are needed.

        Groups at other brokers may read these logs.
        """

    async def committed_partitions(self) -> set[TopicPartition]:
        """Returns the partitions whose log ends and log starts are needed, whatever the settings are."""

    def partitions_with_stale_log_end(self, partitions: Iterable[TopicPartition], since: float) -> set[TopicPartition]:
        """Returns which of these partitions have a log end that no reply has contained since the time `since`."""

    def learn_log_ends(self, ends: Mapping[TopicPartition, int], asked_at: float) -> None:
        """Stores log ends of partitions that this broker leads. `asked_at`: the time of the request."""

    def learn_log_starts(self, starts: Mapping[TopicPartition, int], asked_at: float) -> None:
        """Stores log starts of partitions that this broker leads. `asked_at`: the time of the request."""


class ProbedReachability(Protocol):
    """Learns whether the broker answers (`Reachability`)."""

    def probe_succeeded(self) -> None:
        """Notes that the broker answered a round of requests."""

    def probe_refused(self) -> None:
        """Notes that the broker was reachable but refused the sidecar."""


class ProbedBroker(Protocol):
    """The state of one broker (`BrokerState`), as the prober uses it."""

    @property
    def config(self) -> ProbeSettings: ...
    @property
    def own_connections(self) -> Connections: ...
    @property
    def versions(self) -> ProbedVersions: ...
    @property
    def log_bounds(self) -> ProbedLogBounds: ...
    @property
    def reachability(self) -> ProbedReachability: ...
    @property
    def needs_broker_count(self) -> bool:
        """Whether `learn_broker_count` is needed."""

    def reset_learned(self) -> None:
        """Forgets information that may be outdated. The prober calls this method first at each connection."""

    def learn_authorizer(self, present: bool) -> None:
        """Stores whether the broker has an authorizer. Called at each connection, unless the broker cannot be asked."""

    def learn_broker_count(self, count: int) -> None:
        """Stores how many brokers the cluster has. The prober calls this method before `learn_initial_groups`."""

    def learn_initial_groups(self, groups: list[str] | None) -> None:
        """Stores the groups that the broker lists, or None if the broker lacks ListGroups. Called once.

        Not called if the broker may hide some groups.
        """

    def probe_failed(self, reason: str) -> None:
        """Notes that an attempt did not reach the broker. `reason`: a line of text."""


async def probe_forever(
    state: ProbedBroker, supervisor: Supervisor | None = None, probe_trigger: "ProbeTrigger | None" = None
) -> None:
    """Probes the broker until cancelled, and reconnects with growing pauses. Never raises."""
    prober = _Prober(state, probe_trigger or ProbeTrigger())
    await (supervisor or Supervisor()).keep_running(Task.PROBE, prober.run, str(state.own_connections.address))


class ProbeTrigger:
    """Starts a round of the prober at once.

    The data path uses the trigger, because it may notice first that a broker is down or reachable again.
    """

    def __init__(self) -> None:
        self._pause: trio.CancelScope | None = None
        self._paused_at = 0.0

    def fire(self) -> None:
        """Ends the prober's pause if the pause began at least `MIN_TRIGGER_SECONDS` ago."""
        if self._pause and trio.current_time() - self._paused_at >= MIN_TRIGGER_SECONDS:
            self._pause.cancel()

    @contextmanager
    def pause(self, seconds: float) -> Iterator[None]:
        """Bounds the time of its block; `fire` ends the block earlier."""
        self._paused_at = trio.current_time()
        try:
            with trio.move_on_after(seconds) as self._pause:
                yield
        finally:
            self._pause = None


class _Prober:
    """Probes one broker, and keeps its condition from one attempt to the next."""

    def __init__(self, state: ProbedBroker, probe_trigger: ProbeTrigger) -> None:
        self._state = state
        self._versions = state.versions
        self._log_bounds = state.log_bounds
        self._reachability = state.reachability
        self._connections = state.own_connections
        self._probe_trigger = probe_trigger
        self.attempts = Backoff()
        self._groups_listed = False
        self._lists_all_groups = True
        self._starts_due_at = float("-inf")
        self._starts_asked: set[TopicPartition] = set()  # Partitions whose starts were requested in this period.
        self._leader_partitions = LeaderPartitions()

    async def run(self) -> None:
        """Probes until cancelled."""
        while True:
            await self._attempt()
            with self._probe_trigger.pause(self.attempts.pause()):
                await trio.sleep_forever()

    async def _attempt(self) -> None:
        """Connects, and sends rounds of requests until the connection ends."""
        connected, idle, connected_at = False, False, trio.current_time()
        try:
            async with self._connections.connect() as client:
                self._state.reset_learned()
                self._versions.learn(client.versions)
                connected = True
                await self._ask_for_authorizer(client)
                while True:
                    await self._round(client)
                    connected, idle = False, True
                    with self._probe_trigger.pause(self._round_seconds()):
                        await client.wait_closed()
                    idle = False
        except (BrokerError, DecodeError) as error:
            if idle and trio.current_time() - connected_at >= SHORT_CONNECTION_SECONDS:
                return  # The next attempt shows whether the broker is gone or only closes idle connections.
            self._fail(error, connected)
        except Exception:
            if connected:  # The failure is the prober's own: the broker is reachable.
                self._reachability.probe_succeeded()
            raise

    async def _ask_for_authorizer(self, client: KafkaClient) -> None:
        if client.speaks(DescribeAclsRequest):
            error = await describe_acls_error(client)
            self._state.learn_authorizer(error != ErrorCode.SECURITY_DISABLED)
            self._lists_all_groups = error in UNFILTERED_LISTING_CODES

    async def _round(self, client: KafkaClient) -> None:
        if self._state.needs_broker_count:
            self._state.learn_broker_count(len(await brokers(client)))
        if not self._groups_listed:
            await self._list_groups(client)
        if not await self._ask_for_log_bounds(client):
            await client.ping()
        self.attempts.failures = 0
        self._reachability.probe_succeeded()
        if self.attempts.enters_condition("broker reachable"):
            log.info("broker reachable", broker=str(self._connections.address))

    async def _ask_for_log_bounds(self, client: KafkaClient) -> bool:
        """Requests log ends that clients' traffic has not shown lately, and log starts.

        Returns whether a request was sent.

        The starts of new partitions are requested at once, and the starts of all partitions every `STARTS_SECONDS`.
        """
        committed = await self._log_bounds.committed_partitions()
        leader_partitions = (
            await self._leader_partitions.partitions(client) if self._log_bounds.reports_all_log_ends else frozenset()
        )
        partitions = iter(committed | leader_partitions)
        now = trio.current_time()
        since, asked = now - FRESH_SHARE_OF_ROUND * self._round_seconds(), False
        if now >= self._starts_due_at:
            self._starts_asked = set()
        while client.speaks(ListOffsetsRequest) and (some := tuple(islice(partitions, PARTITIONS_PER_REQUEST))):
            if unseen := self._log_bounds.partitions_with_stale_log_end(some, since):
                asked, asked_at = True, trio.current_time()
                self._log_bounds.learn_log_ends(await log_ends(client, unseen), asked_at)
            if own := committed.intersection(some) - self._starts_asked:
                asked, asked_at = True, trio.current_time()
                self._log_bounds.learn_log_starts(await log_starts(client, own), asked_at)
            await trio.lowlevel.checkpoint()
        if not self._starts_asked:
            self._starts_due_at = now + STARTS_SECONDS
        self._starts_asked = committed
        return asked

    async def _list_groups(self, client: KafkaClient) -> None:
        try:
            groups = await listed_groups(client) if client.speaks(ListGroupsRequest) else None
        except BrokerRefused:
            return  # The broker is still loading its groups. The next round asks again.
        self._groups_listed = True
        if groups is not None and not self._lists_all_groups:
            return
        self._state.learn_initial_groups(None if groups is None else [group.group_id for group in groups])

    def _round_seconds(self) -> float:
        journal = self._state.config.journal
        seconds = min(journal.interval_seconds if journal else ROUND_SECONDS, LONGEST_ROUND)
        return seconds if self._groups_listed else min(seconds, UNLISTED_SECONDS)

    def _fail(self, error: Exception, connected: bool) -> None:
        """Notes a failure. A broker that refuses only the sidecar still serves its clients."""
        self.attempts.failures += 1
        reason = str(error) or type(error).__name__
        if connected or isinstance(error, TlsFailed | AuthenticationFailed):
            self._reachability.probe_refused()
        else:
            self._state.probe_failed(reason)
        condition = next(said for kind, said in _CONDITIONS if isinstance(error, kind))
        if self.attempts.enters_condition(condition):
            log.warning(condition, broker=str(self._connections.address), reason=reason, **setting_hint(error))
