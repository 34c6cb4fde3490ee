"""What the sidecar asks its own broker, so as to know what no client's traffic tells.

Owns: which questions, when, and the one line in the log when the broker's condition changes. Must not know: what
the answers are good for; the copy of the broker (`Probed`) does.

It never stands in the way: whatever fails here, clients are forwarded as before.
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
from group_sidecar.coordinator.views import TopicPartition
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.attempts import Attempts, remedy
from group_sidecar.proxy.client import (
    AuthenticationFailed,
    BrokerClosed,
    BrokerError,
    BrokerRefused,
    BrokerSilent,
    BrokerUnreachable,
    KafkaClient,
    TlsFailed,
)
from group_sidecar.proxy.led import Led
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.questions import LISTED_ALL, PARTITIONS_AT_ONCE, acl_error, listed_groups, log_ends, log_starts
from group_sidecar.proxy.supervision import Supervisor, Task

ROUND_SECONDS = 15.0
"""Seconds between rounds of questions where no journal sets them."""
LONGEST_ROUND = 60.0
"""Seconds; brokers close a connection that is idle for ten minutes (`connections.max.idle.ms`)."""
UNLISTED_SECONDS = 1.0
"""Seconds between rounds while the broker cannot list its groups yet."""
STARTS_SECONDS = 60.0
"""Seconds between questions for the starts of logs, which move as retention deletes segments: some in an hour."""
IMPULSE_SECONDS = 1.0
"""Seconds between two rounds at least, whatever the data path meets with."""
SHORT_SECONDS = 1.0
"""A connection that the broker closes sooner than that was of no use."""
FRESH = 1 / 3
"""Of a round: an end of a log that a client was told within it is not asked for. So none gets older than a round and
this much of it, though nobody fetches any more; and who fetches is told more often than that."""

_CONDITIONS: tuple[tuple[type[Exception], str], ...] = (
    (BrokerUnreachable, "broker unreachable"),
    (BrokerClosed, "broker closes the connection"),
    (BrokerSilent, "broker does not answer"),
    (TlsFailed, "broker not reached by TLS"),
    (AuthenticationFailed, "broker does not take the sidecar's credentials"),
    (BrokerError, "broker not understood"),
    (DecodeError, "broker not understood"),
)


class JournalSettings(Protocol):
    """Of the journal's settings, what sets the pace."""

    @property
    def interval_seconds(self) -> float: ...


class ProbeSettings(Protocol):
    """Of all settings, what the prober needs."""

    @property
    def journal(self) -> JournalSettings | None: ...


class Probed(Protocol):
    """The copy of one broker, as the prober sees it."""

    @property
    def address(self) -> Address: ...
    @property
    def config(self) -> ProbeSettings: ...
    def connect(self) -> AbstractAsyncContextManager[KafkaClient]:
        """A connection to the broker, with the sidecar's own credentials. Raises BrokerError and DecodeError."""

    def begin_anew(self) -> None:
        """At each connection, before all else: what was learnt over an earlier one may not be so any more."""

    def learn_versions(self, versions: Mapping[int, tuple[int, int]]) -> None:
        """The broker's own ApiVersions, at each connection."""

    def learn_authorizer(self, present: bool) -> None:
        """Whether the broker has an authorizer, at each connection; not called where it cannot be asked."""

    def learn_groups_at_start(self, groups: list[str] | None) -> None:
        """The groups that the broker lists, once; None where it does not know ListGroups.

        Not called where it may hide some of them.
        """

    @property
    def tells_a_fleet(self) -> bool:
        """Whether the ends of all logs that this broker leads are of interest: groups elsewhere may read them."""

    async def committed_partitions(self) -> set[TopicPartition]:
        """Partitions whose log ends are of interest in any case, and their starts."""

    def log_ends_unseen(self, partitions: Iterable[TopicPartition], since: float) -> set[TopicPartition]:
        """Those of these partitions whose end no reply has told since then, on trio's clock."""

    def learn_log_ends(self, ends: Mapping[TopicPartition, int], asked_at: float) -> None:
        """The ends of those logs that this broker leads, of some partitions, and when it was asked on trio's clock."""

    def learn_log_starts(self, starts: Mapping[TopicPartition, int], asked_at: float) -> None:
        """The starts of those logs that this broker leads, likewise."""

    def probe_failed(self, reason: str) -> None:
        """At each attempt that found no broker, with one line for people."""

    def probe_succeeded(self) -> None:
        """At each round that was answered."""

    def probe_refused(self) -> None:
        """At each attempt that found the broker there, serving its clients but not the sidecar."""


async def probe_forever(copy: Probed, supervisor: Supervisor | None = None, impulse: "Impulse | None" = None) -> None:
    """Asks the broker until cancelled, connecting again with growing pauses. Never raises."""
    prober = _Prober(copy, impulse or Impulse())
    await (supervisor or Supervisor()).keep(Task.PROBE, prober.run, str(copy.address))


class Impulse:
    """Has the prober ask at once. For the data path, which may notice first that a broker went or came back."""

    def __init__(self) -> None:
        self._pause: trio.CancelScope | None = None
        self._paused_at = 0.0

    def give(self) -> None:
        """Ends the prober's pause, where it has asked a second ago or earlier."""
        if self._pause and trio.current_time() - self._paused_at >= IMPULSE_SECONDS:
            self._pause.cancel()

    @contextmanager
    def pause(self, seconds: float) -> Iterator[None]:
        """Ends its block after so many seconds, or at an impulse."""
        self._paused_at = trio.current_time()
        try:
            with trio.move_on_after(seconds) as self._pause:
                yield
        finally:
            self._pause = None


class _Prober:
    """Asks one broker, and remembers its condition from one attempt to the next."""

    def __init__(self, copy: Probed, impulse: Impulse) -> None:
        self._copy = copy
        self._impulse = impulse
        self.attempts = Attempts()
        self._listed = False
        self._is_listed_all = True
        self._starts_due_at = float("-inf")
        self._starts_of: set[TopicPartition] = set()  # Asked about since then.
        self._led = Led()

    async def run(self) -> None:
        """Asks until cancelled."""
        while True:
            await self._attempt()
            with self._impulse.pause(self.attempts.pause()):
                await trio.sleep_forever()

    async def _attempt(self) -> None:
        """Connects and asks, for as long as that lasts."""
        shut_out, resting, connected_at = False, False, trio.current_time()
        try:
            async with self._copy.connect() as client:
                self._copy.begin_anew()
                self._copy.learn_versions(client.versions)
                shut_out = True
                await self._ask_for_authorizer(client)
                while True:
                    await self._round(client)
                    shut_out, resting = False, True
                    with self._impulse.pause(self._round_seconds()):
                        await client.until_closed()
                    resting = False
        except (BrokerError, DecodeError) as error:
            if resting and trio.current_time() - connected_at >= SHORT_SECONDS:
                return  # The next attempt shows whether the broker is gone or only closes idle connections.
            self._fail(error, shut_out)
        except Exception:
            if shut_out:  # The prober has reached the broker before it failed itself.
                self._copy.probe_succeeded()
            raise

    async def _ask_for_authorizer(self, client: KafkaClient) -> None:
        if client.speaks(DescribeAclsRequest):
            error = await acl_error(client)
            self._copy.learn_authorizer(error != ErrorCode.SECURITY_DISABLED)
            self._is_listed_all = error in LISTED_ALL

    async def _round(self, client: KafkaClient) -> None:
        if not self._listed:
            await self._list_groups(client)
        if not await self._ask_for_log_bounds(client):
            await client.ping()
        self.attempts.failures = 0
        self._copy.probe_succeeded()
        if self.attempts.enters("broker reachable"):
            log.info("broker reachable", broker=str(self._copy.address))

    async def _ask_for_log_bounds(self, client: KafkaClient) -> bool:
        """Asks for the ends of logs that do not pass by anyway, and for starts: of new partitions at once, of all now
        and then. Returns whether it asked.
        """
        committed = await self._copy.committed_partitions()
        led = await self._led.partitions(client) if self._copy.tells_a_fleet else frozenset()
        partitions = iter(committed | led)
        now = trio.current_time()
        since, asked = now - FRESH * self._round_seconds(), False
        if now >= self._starts_due_at:
            self._starts_of = set()
        while client.speaks(ListOffsetsRequest) and (some := tuple(islice(partitions, PARTITIONS_AT_ONCE))):
            if unseen := self._copy.log_ends_unseen(some, since):
                asked, asked_at = True, trio.current_time()
                self._copy.learn_log_ends(await log_ends(client, unseen), asked_at)
            if own := committed.intersection(some) - self._starts_of:
                asked, asked_at = True, trio.current_time()
                self._copy.learn_log_starts(await log_starts(client, own), asked_at)
            await trio.lowlevel.checkpoint()
        if not self._starts_of:
            self._starts_due_at = now + STARTS_SECONDS
        self._starts_of = committed
        return asked

    async def _list_groups(self, client: KafkaClient) -> None:
        try:
            groups = await listed_groups(client) if client.speaks(ListGroupsRequest) else None
        except BrokerRefused:
            return  # Still loading: the next round asks again.
        self._listed = True
        if groups is not None and not self._is_listed_all:
            return
        self._copy.learn_groups_at_start(None if groups is None else [group.group_id for group in groups])

    def _round_seconds(self) -> float:
        journal = self._copy.config.journal
        seconds = min(journal.interval_seconds if journal else ROUND_SECONDS, LONGEST_ROUND)
        return seconds if self._listed else min(seconds, UNLISTED_SECONDS)

    def _fail(self, error: Exception, shut_out: bool) -> None:
        """Notes what went wrong. A broker that only has nothing to tell the sidecar is there for its clients."""
        self.attempts.failures += 1
        reason = str(error) or type(error).__name__
        if shut_out or isinstance(error, TlsFailed | AuthenticationFailed):
            self._copy.probe_refused()
        else:
            self._copy.probe_failed(reason)
        condition = next(said for kind, said in _CONDITIONS if isinstance(error, kind))
        if self.attempts.enters(condition):
            log.warning(condition, broker=str(self._copy.address), reason=reason, **remedy(error))
