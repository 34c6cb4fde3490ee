"""Creates all parts of the sidecar, connects them, starts them, and stops them in the opposite order.

`served_brokers` contains the parts that run once for each broker. `gateway_routes` decides which client connection
belongs to which broker in gateway mode.

In sidecar mode there is one broker and one copy of its coordinator. In gateway mode there is one copy for each broker.
The copy of the bootstrap broker is created as soon as the gateway knows the nodes of the cluster. The copy of another
broker is created when its first client connects.

The file has more than 400 lines because it starts and stops all parts.
"""

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, closing
from functools import partial
from importlib import import_module
from typing import NamedTuple

import trio
from prometheus_client import CollectorRegistry

from group_sidecar.coordinator.model.events import LOST_REQUEST_SECONDS
from group_sidecar.coordinator.model.facts import Fact
from group_sidecar.metrics.collector import ScrapeSources
from group_sidecar.metrics.fact_counters import FactCounters
from group_sidecar.metrics.flight_recorder import FlightRecorder
from group_sidecar.metrics.installed_version import installed_version
from group_sidecar.metrics.listener_counters import ListenerCounters
from group_sidecar.metrics.metric_family import Detail
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.policies.active_policies import ActivePolicies
from group_sidecar.policies.patterns import group_filter
from group_sidecar.proxy.admin.sources import AdminSources, Readiness, Unreachable
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.broker.own_credentials import OwnCredentials
from group_sidecar.proxy.config.limits_section import Limits
from group_sidecar.proxy.config.listener_sections import Listener
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.config.reload import ConfigReloader, ReloadOutcome
from group_sidecar.proxy.dataplane.connection import InactivityTimeouts
from group_sidecar.proxy.dataplane.connections import ConnectionManager
from group_sidecar.proxy.dataplane.event_loop import run_in_task
from group_sidecar.proxy.dataplane.outcomes import Origin
from group_sidecar.proxy.dataplane.poller import Poller
from group_sidecar.proxy.dataplane.session import Session, SessionLimits
from group_sidecar.proxy.gateway_routes import Gateway, GatewayListener
from group_sidecar.proxy.hand_over import HandOver
from group_sidecar.proxy.journal.writer import JournalWriter
from group_sidecar.proxy.listeners.admission import AdmissionLimits, ClientPort
from group_sidecar.proxy.listeners.handshakes import ListenerHandshakes, handshakes_of
from group_sidecar.proxy.listeners.passed_sockets import PassedSocket
from group_sidecar.proxy.listeners.ports import ListenError, OpenPorts, open_ports, sockets_to_pass
from group_sidecar.proxy.listeners.predecessor import Predecessor
from group_sidecar.proxy.listeners.server import Server
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.runtime.compiled_modules import uncompiled_modules
from group_sidecar.proxy.runtime.event_log import EventLog
from group_sidecar.proxy.runtime.logging import log
from group_sidecar.proxy.runtime.scrape import Scraper
from group_sidecar.proxy.runtime.service_manager import ServiceManager
from group_sidecar.proxy.runtime.shared_snapshot import SharedSnapshot
from group_sidecar.proxy.runtime.supervision import Supervisor, Task
from group_sidecar.proxy.runtime.wall_clock import WallClock
from group_sidecar.proxy.served_brokers import ServedBroker, ServedBrokers
from group_sidecar.proxy.tls.certificate_expiry import OwnCertificates
from group_sidecar.proxy.tls.reloading_contexts import UnusableFileError

SWEEP_SECONDS = 3.0
"""Seconds between sweeps, which mark members whose session must have expired as overdue."""
RELIST_SECONDS = 0.5
"""Seconds between updates of the list of groups. A ListGroups request itself applies the changes since the last
update."""
FIRST_REPLY_SECONDS = 1.0
"""Seconds between the last accepted client and the first connection that ends, if a successor has taken over. A client
that has just connected then gets its first reply."""


class Addresses(NamedTuple):
    """The addresses that the sidecar listens on.

    Attributes:
        listeners: the address of each listener, by its name.
        admin: the address of the admin port, or None if no admin port is configured.
    """

    listeners: Mapping[str, Address]
    admin: Address | None

    @property
    def listen(self) -> Address:
        """The address of the first listener."""
        return next(iter(self.listeners.values()))


class Sidecar:
    """One sidecar. `run` may be called once.

    Args:
        config: the settings.
        read: reads the settings again for a reload, and may block. None if there is no file to read.
        poller: the event loop that hosts trio, or None if trio runs by itself.
        connections: the maximum number of client connections, or None for the number in the settings.
        ports: the listening sockets, or None to open them.
        service_manager: gets reports about the state of the sidecar. Default: no reports.
        predecessor: the process whose ports this sidecar takes over, or None.

    Attributes:
        hand_over: the state of a hot restart, in which one process takes over from another.
    """

    def __init__(
        self,
        config: Config,
        read: Callable[[], Config] | None = None,
        poller: Poller | None = None,
        connections: int | None = None,
        ports: OpenPorts | None = None,
        service_manager: ServiceManager | None = None,
        predecessor: Predecessor | None = None,
    ) -> None:
        self._config = config
        self._ports = ports
        self._service_manager = service_manager or ServiceManager({})
        self._supervisor = Supervisor()
        self.hand_over = HandOver(
            predecessor,
            self._sockets_to_pass,
            self._begin_sharing,
            self._end_sharing,
            self._service_manager,
            self._supervisor,
        )
        self._poller, self._hosted = poller or Poller(), poller is not None
        self._poller.deferred_call_failed = partial(self._supervisor.failed, Task.DEFERRED)
        self._poller.callback_failed = partial(self._supervisor.failed, Task.CONNECTIONS)
        self._traffic = TrafficCounters()
        self._brokers = ServedBrokers()
        self._own_certificates = OwnCertificates(config)
        self._admin_scope = trio.CancelScope()
        self._clock: WallClock
        self._stop: trio.Event
        self._servers: trio.Nursery
        self._tasks: trio.Nursery
        self._max_connections = config.limits.connections if connections is None else connections
        self._create_listeners()
        self._create_observers()
        self._active_policies = ActivePolicies()
        self._apply_policies(config)
        self._reloader = ConfigReloader(config, read, self._apply_policies)
        self._sources = self._scrape_sources()
        self._scraper = Scraper(self._sources, self._epoch)
        self._shared_snapshot = SharedSnapshot(
            self._brokers.managers, self._epoch, self._active_policies.max_members, self._drift
        )

    def _create_listeners(self) -> None:
        """Creates the parts that carry clients' connections. Raises ListenError if a file cannot be used."""
        config, limits = self._config, self._config.limits
        self._listeners = {each: self._traffic.add_listener(each.name) for each in config.client_listeners}
        self._handshakes = {
            each.name: _handshakes(each, counters, limits) for each, counters in self._listeners.items()
        }
        self._connection_manager = _connection_manager(config, self._poller)
        self._session_limits = SessionLimits(limits.largest_frame, limits.in_flight_requests, limits.kept_bytes)
        self._server = Server(
            self._connection_manager,
            self._traffic,
            AdmissionLimits(self._max_connections, limits.accept_rate),
            self._supervisor,
            self._reachability_changed,
        )
        self._gateway = self._create_gateway() if config.mode == "gateway" else None

    def _create_gateway(self) -> Gateway:
        """Creates the part that knows the ports of a cluster's brokers. A gateway has only one listener."""
        [counters] = self._listeners.values()

        def port() -> int:
            assert self._ports is not None
            return self._ports.port(counters.name)

        def serve(listeners: list[socket.socket], node_port: ClientPort) -> None:
            self._servers.start_soon(self._serve, listeners, node_port)

        listener = GatewayListener(counters, self._handshakes[counters.name], port, serve)
        passed = self._ports.nodes if self._ports else {}
        return Gateway(self._config, listener, self._brokers, self._broker_at, self._session, passed)

    def _create_observers(self) -> None:
        """Creates the parts that get the facts about groups."""
        limits = self._config.limits
        self._fact_counters = FactCounters(CollectorRegistry(), max_groups=limits.groups)
        self._recorder = FlightRecorder(limits.flight_recorder, began=time.time())
        self._event_log = EventLog()
        self._journal_writer = _journal_writer(self._config, self._gateway)
        self._local_observers = (self._fact_counters.observe, self._recorder.observe)
        """The observers that only change state of this process. They also get facts which another process publishes."""
        self._observers = (*self._local_observers, self._event_log.observe, self._write_to_journal)

    def _scrape_sources(self) -> ScrapeSources:
        """Returns what a scrape reads: the counters, and functions that return the current state."""
        metrics = self._config.metrics
        return ScrapeSources(
            managers=self._brokers.managers,
            traffic=self._traffic,
            fact_counters=self._fact_counters,
            copies_ready=self._are_ready,
            refusing_brokers=self._brokers.count_refusing,
            held_bytes=lambda: self._connection_manager.held_bytes,
            recorded_bytes=lambda: self._recorder.held_bytes,
            tables=self._brokers.tables,
            logs=lambda: [tail.read_counters for tail in self._brokers.tails()],
            log_starts=lambda: [manager.log_bounds.starts for manager in self._brokers.managers()],
            outlets=self._journal_writer.outlets() if self._journal_writer else {},
            max_members=self._active_policies.max_members,
            last_reload=lambda: self._reloader.last,
            task_failures=self._supervisor.counts,
            detail=Detail(metrics.detail),
            is_shown=group_filter(metrics.allow, metrics.deny),
            max_series=metrics.series,
            drift=self._drift,
            certificates_expire_at=self._certificates_expire_at,
        )

    def _certificates_expire_at(self) -> dict[tuple[str, str], float]:
        """Returns when certificates expire, in seconds since the epoch, by the listener and the side that sees them."""
        found: dict[tuple[str, str], float] = {
            ("", side): at for side, at in self._own_certificates.expire_at().items()
        }
        for name, handshakes in self._handshakes.items():
            if handshakes is not None:
                found |= {(name, side): at for side, at in handshakes.certificates_expire_at().items()}
        return found

    def _apply_policies(self, config: Config) -> None:
        """Replaces the active policies by those of these settings."""
        self._active_policies.replace(config.enabled_policies())
        for policy in self._active_policies:
            self._traffic.expect_policy(policy.name, policy.error_codes)

    async def reload(self) -> ReloadOutcome:
        """Reads the settings again and applies them, or keeps the old settings. The log reports which."""
        self._service_manager.reloading()
        try:
            return await self._reloader.reload()
        finally:
            self._service_manager.ready(self._status)

    @property
    def _status(self) -> str:
        """The state as a line for the service manager."""
        listen = ", ".join(map(str, self._config.listen_addresses.values()))
        return f"serving clients at {listen} for the broker at {self._config.broker_address}"

    async def reload_if_possible(self) -> None:
        """Reloads as `reload` does, and reports an unexpected exception to the supervisor. Never raises."""
        with self._supervisor.guard(Task.RELOAD):
            await self.reload()

    def _sockets_to_pass(self) -> list[PassedSocket]:
        assert self._ports is not None
        nodes = self._gateway.opened if self._gateway else {}
        return sockets_to_pass(self._ports, self._config.listen_addresses, self._config.admin, nodes)

    async def run(self, stop: trio.Event, task_status: "trio.TaskStatus[Addresses]" = trio.TASK_STATUS_IGNORED) -> None:
        """See `sidecar_process.run_sidecar`. Exceptions are raised in an exception group."""
        self._clock, self._stop = WallClock(), stop
        ports = self._ports = self._ports or open_ports(self._config.listen_addresses, self._config.admin)
        for unused in ports.closed:
            log.warning("a passed socket is not used", socket=unused)
        bound = {each.name: Address(each.listen.host, ports.port(each.name)) for each in self._listeners}
        with closing(ports):
            async with trio.open_nursery() as self._tasks:
                async with trio.open_nursery() as self._servers:
                    for each in self._listeners:
                        self._servers.start_soon(self._serve, ports.listeners[each.name], self._client_port(each))
                    self._start_tasks()
                    await self.hand_over.wait_for_copies(self._is_loaded)
                    addresses = Addresses(bound, await self._start_admin(ports))
                    log.info("started", **self._started_fields(addresses))
                    if as_python := uncompiled_modules():
                        log.warning("modules are not compiled", modules=", ".join(as_python))
                    task_status.started(addresses)
                    self.hand_over.report_ready()
                    self._service_manager.ready(self._status)
                    self._tasks.start_soon(self._service_manager.feed_watchdog)
                    await stop.wait()
                    await self._stop_accepting()
                await self._connection_manager.drain(self._config.limits.drain_seconds)
                self._tasks.cancel_scope.cancel()
        log.info("stopped", connections=self._traffic.connections_opened)

    async def _serve(self, listeners: list[socket.socket], port: ClientPort) -> None:
        """Accepts clients at a port as soon as this sidecar may accept clients."""
        await self.hand_over.may_accept.wait()
        if self._gateway:
            await self._gateway.was_asked.wait()
        await self._server.serve(listeners, port)

    def _is_loaded(self) -> bool:
        return self._brokers.are_loaded() and (self._gateway is None or self._gateway.is_loaded)

    def _begin_sharing(self) -> None:
        """Notes that another process of this sidecar may forward requests of the brokers' clients too."""
        for manager in self._brokers.managers():
            manager.begin_sharing()

    def _end_sharing(self) -> None:
        """Notes that no other process of this sidecar forwards requests of the brokers' clients any more."""
        for manager in self._brokers.managers():
            manager.end_sharing(self._epoch() + LOST_REQUEST_SECONDS)

    async def _stop_accepting(self) -> None:
        connections = self._connection_manager.connections
        if successor := self.hand_over.successor:
            log.info("the successor serves clients", pid=successor.pid, connections=connections)
            self._admin_scope.cancel()
            self._server.stop_accepting()
            await trio.sleep(FIRST_REPLY_SECONDS)
        else:
            self._service_manager.stopping(f"stopping: closing {connections} connections")
        self._servers.cancel_scope.cancel()

    async def _start_admin(self, ports: OpenPorts) -> Address | None:
        """Serves the admin port, if one is configured.

        A thread imports the port's many modules, while the event loop already serves clients.
        """
        if ports.admin is None:
            return None
        await trio.to_thread.run_sync(import_module, "group_sidecar.proxy.admin.live_sources")
        address: Address = await self._tasks.start(self._serve_admin, ports.admin)
        return address

    async def _serve_admin(self, listener: socket.socket, *, task_status: "trio.TaskStatus[Address]") -> None:
        from group_sidecar.proxy.admin.live_sources import live_sources, start_admin

        sources = self._admin_sources(live_sources)
        with self._admin_scope:
            async with trio.open_nursery() as nursery:
                task_status.started(await start_admin(nursery, self._config, sources, listener, self._supervisor))

    def _admin_sources(self, live_sources: Callable[..., AdminSources]) -> AdminSources:
        return live_sources(
            self._config,
            self._sources,
            scraper=self._scraper,
            group_snapshot=self._shared_snapshot.group_snapshot,
            managers=self._brokers.managers,
            coordinator=self._brokers.coordinator,
            topic_names=self._brokers.topic_names,
            readiness=self._readiness,
            probed=self._probed,
            unusable_listeners=self._unusable_listeners,
            log_statuses=self._brokers.log_statuses,
            failing_tasks=self._supervisor.failing_tasks,
            unreachable=self._unreachable,
            reload=self.reload,
            current_config=lambda: self._reloader.config,
            epoch=self._wall_time,
            drift=self._drift,
            recorder=self._recorder,
        )

    def _start_tasks(self) -> None:
        if not self._hosted:
            self._tasks.start_soon(run_in_task, self._poller)
        supervisor = self._supervisor
        self._tasks.start_soon(self._connection_manager.run, supervisor)
        self._tasks.start_soon(supervisor.keep_running, Task.SWEEP, self._sweep)
        self._tasks.start_soon(supervisor.keep_running, Task.RELIST, self._relist)
        if self._gateway:
            self._tasks.start_soon(supervisor.keep_running, Task.NODES, self._gateway.watch)
        else:
            self._broker_at(self._config.broker_address)
        self._tasks.start_soon(self.hand_over.watch_predecessor)
        if self._journal_writer:
            self._tasks.start_soon(self._run_journal, self._journal_writer)

    async def _run_journal(self, writer: JournalWriter) -> None:
        await self.hand_over.predecessor_gone.wait()
        if self._gateway:
            await self._gateway.was_asked.wait()
        await writer.run(self._sources, self._epoch, self._supervisor)

    def _started_fields(self, addresses: Addresses) -> dict[str, str | None]:
        return {
            "listen": ", ".join(map(str, addresses.listeners.values())),
            "upstream": ", ".join(str(each.upstream) for each in self._listeners),
            "admin": str(addresses.admin) if addresses.admin else None,
            "mode": self._config.mode,
            "connections": str(self._max_connections),
            "version": installed_version(),
            "small_frames": self._connection_manager.send_mode,
        }

    # Brokers.

    def _broker_at(self, address: Address) -> ServedBroker:
        """Returns the broker at an upstream address. Creates it and starts its background tasks at the first call."""
        broker = self._brokers.get(address)
        if broker is None:
            advertise = self._gateway.advertise if self._gateway else None
            state = BrokerState(
                address,
                self._config,
                self._traffic,
                self._observe,
                advertise,
                clock_offset=self._clock.clock_offset,
                log_end_partitions=self._brokers.committed_partitions,
                active_policies=self._active_policies,
            )
            broker = ServedBroker.create(state, self._config, self._listeners.values())
            self._brokers.put(address, broker)
            self._poller.add_deferred_call(state.deferred.apply)
            self._poller.add_deferred_call(broker.apply_lost_requests)
            self._poller.add_deferred_call(
                lambda: self._connection_manager.evict_held_request(state.held_request_budget.take_evicted())
            )
            broker.start(self._tasks, self._supervisor, self.hand_over.predecessor_gone)
            if self.hand_over.is_shared:
                state.copy.manager.begin_sharing()
        return broker

    def _client_port(self, listener: Listener) -> ClientPort:
        """Returns the port of a listener. All listeners lead to the same broker."""
        if self._gateway:
            return self._gateway.bootstrap_port()
        counters = self._listeners[listener]

        def new_session(origin: Origin, _address: Address, _peer: Address) -> Session:
            return self._session(self._broker_at(self._config.broker_address), counters.name, origin)

        return ClientPort(counters, lambda: listener.upstream, new_session, self._handshakes[listener.name])

    def _session(self, broker: ServedBroker, listener: str, origin: Origin) -> Session:
        dispatcher = broker.dispatchers[listener]
        return Session(dispatcher, self._traffic, origin, self._session_limits)

    # State that other parts read.

    def _epoch(self) -> float:
        """Returns seconds since the epoch on the clock of the copies."""
        return self._clock.steady()

    def _wall_time(self) -> float:
        """Returns seconds since the epoch on the system's clock, for people and records."""
        return self._clock.now()

    def _drift(self) -> float:
        return self._clock.drift

    @property
    def _is_accepting(self) -> bool:
        """Whether this process accepts clients. False while the predecessor still serves them, and after a stop."""
        return self.hand_over.may_accept.is_set() and not self._stop.is_set()

    def _readiness(self) -> Readiness:
        """Returns the readiness of the bootstrap broker, and of the brokers whose ports cannot be opened.

        A gateway stays ready while another broker is down, because clients can still connect and reach the rest of the
        cluster.
        """
        accepting = {"accepting": self._is_accepting}
        if self._gateway is None:
            upstream = self._config.broker_address
            return {str(upstream): {"reachable": self._brokers.is_reachable(upstream), **accepting}}
        bootstrap = {self._gateway.bootstrap_address: {"reachable": self._gateway.is_reachable, **accepting}}
        return bootstrap | {f"node-{node_id}": {"listening": False} for node_id in self._gateway.failed}

    def _probed(self) -> Mapping[str, bool]:
        if self._gateway:
            return {self._gateway.bootstrap_address: self._gateway.was_probed}
        upstream = self._config.broker_address
        return {str(upstream): self._brokers.was_probed(upstream)}

    def _are_ready(self) -> bool:
        return self._brokers.are_ready() and (self._gateway is None or self._gateway.is_reachable)

    def _unreachable(self) -> list[Unreachable]:
        """Returns the brokers that do not answer the sidecar."""
        asked = [self._gateway.unreachable] if self._gateway and self._gateway.unreachable else []
        return [*self._brokers.unreachable(), *asked]

    def _reachability_changed(self, address: Address, is_reachable: bool) -> None:
        self._brokers.probe_now(address)
        if self._gateway:
            self._gateway.reachability_changed(address, is_reachable)

    def _unusable_listeners(self) -> list[str]:
        return self._ports.unusable() if self._ports and self._is_accepting else []

    def _observe(self, fact: Fact) -> None:
        fact = self._clock.with_wall_time(fact)
        for observe in self._observers if self.hand_over.publishes(fact) else self._local_observers:
            try:
                observe(fact)
            except Exception as error:  # noqa: BLE001  The request or reply that led to the fact must not fail.
                self._supervisor.failed(Task.FACTS, error)

    def _write_to_journal(self, fact: Fact) -> None:
        if self._journal_writer:
            self._journal_writer.write_fact(fact, self._wall_time())

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(SWEEP_SECONDS)
            self._clock.measure()
            self._shared_snapshot.forget()
            for copy in self._brokers.copies():
                for _ in copy.sweep(trio.current_time()):
                    await trio.lowlevel.checkpoint()

    async def _relist(self) -> None:
        while True:
            await trio.sleep(RELIST_SECONDS)
            for copy in self._brokers.copies():
                for _ in copy.relist(trio.current_time()):
                    await trio.lowlevel.checkpoint()


def _connection_manager(config: Config, poller: Poller) -> ConnectionManager:
    """Returns the connection manager with the limits of the settings."""
    limits = config.limits
    timeouts = InactivityTimeouts(
        limits.idle_seconds, limits.stalled_seconds, limits.reply_seconds, limits.authentication_seconds
    )
    return ConnectionManager(
        poller,
        timeouts,
        max_bytes=limits.buffered_bytes,
        max_per_address=limits.connections_per_address,
        batched=config.io_uring,
    )


def _journal_writer(config: Config, gateway: Gateway | None) -> JournalWriter | None:
    """Returns the writer of the journal, or None if no journal is configured."""
    if config.journal is None:
        return None
    own = config.own_connection_in_force
    credentials = OwnCredentials(own)

    def connect() -> AbstractAsyncContextManager[KafkaClient]:
        return credentials.connect(gateway.bootstrap if gateway else own.address or config.broker_address)

    return JournalWriter(config.sidecar_id, config.journal, connect)


def _handshakes(listener: Listener, counters: ListenerCounters, limits: Limits) -> ListenerHandshakes | None:
    """Returns the handshakes of a listener. Raises ListenError if a file of its settings cannot be used."""
    try:
        return handshakes_of(listener, counters, limits.handshake_seconds)
    except UnusableFileError as error:
        raise ListenError(f"listener {listener.name}: {error}") from None
