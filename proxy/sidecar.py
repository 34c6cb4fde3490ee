"""The whole sidecar, put together and taken down in order.

Owns: `Sidecar`: what runs, in what order it starts and stops, which connection belongs to which broker's copy.
Must not know: how any part works, what runs for each broker (`served_brokers`).

In sidecar mode there is one broker and one copy of its coordinator. A gateway has one for each broker: the
bootstrap's from the start, the others' when their first client comes.

It has more than 400 lines because it starts all parts, and ends them in the opposite order.
"""

import gc
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import NamedTuple

import trio
from prometheus_client import CollectorRegistry

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.coordinator.facts import Fact
from group_sidecar.metrics.collector import Sources
from group_sidecar.metrics.family import Detail
from group_sidecar.metrics.flight_recorder import FlightRecorder
from group_sidecar.metrics.instruments import DISTRIBUTION, Instruments
from group_sidecar.metrics.traffic import Traffic
from group_sidecar.policies.patterns import selection
from group_sidecar.policies.rulebook import Rulebook
from group_sidecar.proxy import garbage
from group_sidecar.proxy.addresses import Address, AddressBook
from group_sidecar.proxy.admin.live import live_sources, start_admin
from group_sidecar.proxy.admin.sources import AdminSources, Readiness
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.client import BrokerError
from group_sidecar.proxy.config import Config
from group_sidecar.proxy.credentials import connect_as
from group_sidecar.proxy.descriptors import allowed_connections
from group_sidecar.proxy.disposals import Origin
from group_sidecar.proxy.hosting import carry, host
from group_sidecar.proxy.link import Silence
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.narrating import Narrator
from group_sidecar.proxy.outlet import Outlet
from group_sidecar.proxy.poller import Poller
from group_sidecar.proxy.pump import Pump
from group_sidecar.proxy.questions import brokers
from group_sidecar.proxy.reloading import Outcome, Reloading
from group_sidecar.proxy.scraping import Scraper
from group_sidecar.proxy.served_brokers import ServedBroker, ServedBrokers
from group_sidecar.proxy.server import ListenError, Server, listen, port_of
from group_sidecar.proxy.session import Session
from group_sidecar.proxy.supervision import Supervisor, Task
from group_sidecar.proxy.surveying import Surveyor
from group_sidecar.proxy.wall_clock import WallClock

DRAIN_SECONDS = 5.0
"""How long connections may take to come to rest when the sidecar stops."""
SWEEP_SECONDS = 3.0
"""How often overdue members are let go."""
RELIST_SECONDS = 0.5
"""What has changed in so long is left to whoever asks for the list of groups."""
SWITCH_SECONDS = 0.0005
"""How long a thread may keep the data path from going on; Python's own 5 ms would be a hundred answers."""
NODES_SECONDS = 5.0
"""How long a gateway waits before it asks again which nodes there are."""


class Addresses(NamedTuple):
    """Where a sidecar can be reached."""

    listen: Address
    admin: Address | None


async def run_sidecar(
    config: Config,
    *,
    read: Callable[[], Config] | None = None,
    stop: trio.Event | None = None,
    task_status: "trio.TaskStatus[Addresses]" = trio.TASK_STATUS_IGNORED,
) -> None:
    """Runs a sidecar until `stop` is set, then ends it gently; until cancelled, then at once.

    Reports where it listens. Ports 0 are allowed.

    Args:
        config: its settings.
        read: reads them again for a reload, and may block; None where there is no file to read.
        stop: ends it.
        task_status: is told where it listens.

    Raises:
        ListenError: an address cannot be listened on.
    """
    with _listen_errors_alone():
        await Sidecar(config, read).run(trio.Event() if stop is None else stop, task_status)


def run_until_signalled(config: Config, read: Callable[[], Config] | None = None) -> None:
    """Runs a sidecar until SIGTERM or SIGINT; a second one ends it at once. At SIGHUP it reads its settings again.

    It has the process to itself: trio runs as the poller's guest. Args and Raises as `run_sidecar`.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    garbage.keep_short()
    poller = Poller()
    host(poller, _obey_signals, Sidecar(config, read, poller, allowed_connections(config.limits)))


async def _obey_signals(sidecar: "Sidecar") -> None:
    stop = trio.Event()
    with (
        _listen_errors_alone(),
        trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals,
    ):
        async with trio.open_nursery() as nursery:

            async def obey() -> None:
                async for number in signals:
                    if number == signal.SIGHUP:
                        nursery.start_soon(sidecar.reload_if_possible)
                        continue
                    if stop.is_set():
                        nursery.cancel_scope.cancel()
                    stop.set()

            nursery.start_soon(obey)
            async with trio.open_nursery() as running:
                await running.start(sidecar.run, stop)
                gc.freeze()  # What was made up to here stays: nobody need look for garbage in it.
            nursery.cancel_scope.cancel()


@contextmanager
def _listen_errors_alone() -> Iterator[None]:
    """Takes a ListenError out of the groups that nurseries put around it."""
    try:
        yield
    except BaseExceptionGroup as group:
        refused, others = group.split(ListenError)
        if refused is None or others is not None:
            raise
        error: BaseException = refused
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


class Sidecar:
    """One sidecar. Runs once. Args as `run_sidecar`; `poller`: what hosts it, if anything does; `connections`: the
    most client connections, where the system allows fewer than the settings.
    """

    def __init__(
        self,
        config: Config,
        read: Callable[[], Config] | None = None,
        poller: Poller | None = None,
        connections: int | None = None,
    ) -> None:
        self._config = config
        self._traffic = Traffic()
        self._brokers = ServedBrokers()
        self._poller, self._hosted = poller or Poller(), poller is not None
        self._supervisor = Supervisor()
        self._poller.failed = partial(self._supervisor.failed, Task.CATCH_UP)
        limits = config.limits
        silence = Silence(limits.idle_seconds, limits.stalled_seconds, limits.reply_seconds)
        self._pump = Pump(self._poller, self._traffic, silence, together=config.io_uring)
        self._most_connections = limits.connections if connections is None else connections
        self._server = Server(
            self._pump, self._traffic, self._most_connections, self._supervisor, self._brokers.look_at_once
        )
        self._instruments = Instruments(CollectorRegistry(), max_groups=config.limits.groups)
        self._recorder = FlightRecorder(config.limits.flight_recorder, began=time.time())
        self._narrator = Narrator()
        own = config.own_connection
        connect = partial(connect_as, own.address or config.upstream, own)
        self._outlet = Outlet(config.sidecar_id, config.journal, connect) if config.journal else None
        self._observers = (self._instruments.observe, self._recorder.observe, self._narrator.observe, self._journal)
        self._book = AddressBook(config.advertised_host, self._open_node)
        self._bootstrap_peer: Address | None = None
        self._accepting = False
        self._clock: WallClock
        self._servers: trio.Nursery
        self._tasks: trio.Nursery
        self._rulebook = Rulebook()
        self._enact(config)
        self._reloading = Reloading(config, read, self._enact)
        self._sources = Sources(
            copies=self._brokers.managers,
            traffic=self._traffic,
            instruments=self._instruments,
            mirror_ready=self._brokers.are_ready,
            refusing_brokers=self._brokers.refusing,
            held_bytes=lambda: self._pump.held_bytes,
            recorded_bytes=lambda: self._recorder.held_bytes,
            tables=lambda: [table for copy in self._brokers.copies() for table in copy.tables],
            logs=lambda: [tail.numbers for tail in self._brokers.tails()],
            log_starts=lambda: [manager.log_bounds.starts for manager in self._brokers.managers()],
            outlets=self._outlet.outlets() if self._outlet else {},
            most_members=self._rulebook.most_members,
            last_reload=lambda: self._reloading.last,
            task_failures=self._supervisor.counts,
            detail=Detail(config.metrics.detail),
            shows=selection(config.metrics.allow, config.metrics.deny),
            max_series=config.metrics.series,
            drift=self._drift,
        )
        self._surveyor = Surveyor(self._brokers.managers, self._epoch, self._rulebook.most_members, self._drift)
        self._scraper = Scraper(self._sources, self._epoch)

    def _enact(self, config: Config) -> None:
        """Puts the policies of these settings into force."""
        self._rulebook.replace(config.rules())
        for policy in self._rulebook:
            self._traffic.expect_policy(policy.name, policy.error_codes)

    async def reload(self) -> Outcome:
        """Reads the settings again and puts them into force, or leaves all as it is; the log says which."""
        return await self._reloading.reload()

    async def reload_if_possible(self) -> None:
        """Reloads as `reload`, and reports a failure to the supervisor. Never raises."""
        with self._supervisor.guard(Task.RELOAD):
            await self.reload()

    async def run(self, stop: trio.Event, task_status: "trio.TaskStatus[Addresses]" = trio.TASK_STATUS_IGNORED) -> None:
        """See `run_sidecar`; what it raises comes in an exception group."""
        self._clock = WallClock()
        listeners = listen(self._config.listen)
        bound = Address(self._config.listen.host, port_of(listeners))
        async with trio.open_nursery() as self._tasks:
            async with trio.open_nursery() as self._servers:
                self._accepting = True
                self._servers.start_soon(
                    self._server.serve, listeners, lambda: self._config.upstream, self._bootstrap_session
                )
                addresses = Addresses(bound, await self._start_admin())
                self._start_tasks()
                log.info("started", **self._told(addresses))
                task_status.started(addresses)
                await stop.wait()
                self._accepting = False
                self._servers.cancel_scope.cancel()
            await self._pump.drain(DRAIN_SECONDS)
            self._tasks.cancel_scope.cancel()
        log.info("stopped", connections=self._traffic.connections_opened)

    async def _start_admin(self) -> Address | None:
        return await start_admin(self._tasks, self._config, self._admin_sources(), self._supervisor)

    def _admin_sources(self) -> AdminSources:
        return live_sources(
            self._config,
            self._sources,
            scraper=self._scraper,
            surveyed=self._surveyor.surveyed,
            copies=self._brokers.copies,
            readiness=self._readiness,
            standings=self._brokers.standings,
            failing=self._supervisor.failing,
            unreachable=self._brokers.unreachable,
            reload=self.reload,
            epoch=self._wall,
            drift=self._drift,
            recorder=self._recorder,
        )

    def _start_tasks(self) -> None:
        if not self._hosted:
            self._tasks.start_soon(carry, self._poller)
        supervisor = self._supervisor
        self._tasks.start_soon(self._pump.run, supervisor)
        self._tasks.start_soon(supervisor.keep, Task.SWEEP, self._sweep)
        self._tasks.start_soon(supervisor.keep, Task.RELIST, self._relist)
        self._broker_at(self._config.upstream)
        if self._config.mode == "gateway":
            self._tasks.start_soon(supervisor.keep, Task.NODES, self._learn_nodes)
        if self._outlet:
            self._tasks.start_soon(self._outlet.run, self._sources, self._epoch, supervisor)

    def _told(self, addresses: Addresses) -> dict[str, str | None]:
        return {
            "listen": str(addresses.listen),
            "upstream": str(self._config.upstream),
            "admin": str(addresses.admin) if addresses.admin else None,
            "mode": self._config.mode,
            "connections": str(self._most_connections),
            "version": version(DISTRIBUTION),
            "small_frames": self._pump.small_frames,
        }

    # Brokers.

    def _broker_at(self, address: Address) -> ServedBroker:
        """The broker at an upstream address; a new one, and its prober, at first sight."""
        broker = self._brokers.get(address)
        if broker is None:
            advertise = self._book.advertise if self._config.mode == "gateway" else None
            copy = BrokerCopy(
                address,
                self._config,
                self._traffic,
                self._observe,
                advertise,
                epoch_of_zero=self._clock.epoch_of_zero,
                interest=self._brokers.committed_partitions,
                rulebook=self._rulebook,
            )
            broker = ServedBroker.of(copy, self._config)
            self._brokers.put(address, broker)
            self._poller.before_others(broker.desk.catch_up)
            self._poller.before_others(broker.desk.follow_losses)
            self._poller.before_others(lambda: self._pump.give_way(broker.desk.crowded_out()))
            broker.start(self._tasks, self._supervisor)
        return broker

    def _bootstrap_session(self, client_host: str, peer: Address) -> Session:
        self._bootstrap_peer = peer
        return self._session(self._broker_at(self._config.upstream), client_host)

    def _node_session(self, node_id: int, client_host: str, peer: Address) -> Session:
        address = self._book.upstream(node_id)
        if address not in self._brokers and peer == self._bootstrap_peer:
            # The bootstrap's broker under another name: one broker has one copy.
            self._brokers.put(address, self._broker_at(self._config.upstream))
        return self._session(self._broker_at(address), client_host)

    def _session(self, broker: ServedBroker, client_host: str) -> Session:
        return Session(broker.desk, self._traffic, Origin(client_host), self._config.limits.largest_frame)

    def _open_node(self, node_id: int) -> int:
        """Opens a gateway's port for a node."""
        first = self._config.gateway.first_port
        wanted = Address(self._config.listen.host, first + node_id if 0 < first <= 0xFFFF - node_id else 0)
        try:
            listeners = listen(wanted)
        except ListenError as error:
            if wanted.port == 0:
                raise
            log.warning("a node gets another port", node=node_id, cause=str(error))
            listeners = listen(wanted._replace(port=0))
        upstream = partial(self._book.upstream, node_id)
        self._servers.start_soon(self._server.serve, listeners, upstream, partial(self._node_session, node_id))
        log.info("node opened", node=node_id, port=port_of(listeners), upstream=str(upstream()))
        return port_of(listeners)

    async def _learn_nodes(self) -> None:
        """Opens the nodes' ports once, so that a client that knows them from before a restart finds them."""
        while True:
            try:
                async with self._broker_at(self._config.upstream).copy.connect() as client:
                    for node in await brokers(client):
                        self._book.advertise(node.id, node.host, node.port)
                return
            except (BrokerError, DecodeError, ListenError):
                await trio.sleep(NODES_SECONDS)

    # State, for the outside.

    def _epoch(self) -> float:
        """Seconds since the epoch on the clock of the copies."""
        return self._clock.steady()

    def _wall(self) -> float:
        """Seconds since the epoch on the system's clock, for people and records."""
        return self._clock.now()

    def _drift(self) -> float:
        return self._clock.drift

    def _readiness(self) -> Readiness:
        """The bootstrap's alone: while clients get in, a gateway before a cluster that lacks a broker is of use."""
        upstream = self._config.upstream
        return {str(upstream): {"reachable": self._brokers.is_reachable(upstream), "accepting": self._accepting}}

    def _observe(self, fact: Fact) -> None:
        fact = self._clock.stamped(fact)
        for observe in self._observers:
            try:
                observe(fact)
            except Exception as error:  # noqa: BLE001  It must not reach the request or reply that led to the fact.
                self._supervisor.failed(Task.FACTS, error)

    def _journal(self, fact: Fact) -> None:
        if self._outlet:
            self._outlet.tell(fact, self._wall())

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(SWEEP_SECONDS)
            self._clock.measure()
            self._surveyor.forget()
            for copy in self._brokers.copies():
                for _ in copy.sweep(trio.current_time()):
                    await trio.lowlevel.checkpoint()

    async def _relist(self) -> None:
        while True:
            await trio.sleep(RELIST_SECONDS)
            for copy in self._brokers.copies():
                for _ in copy.relist(trio.current_time()):
                    await trio.lowlevel.checkpoint()
