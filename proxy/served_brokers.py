"""The brokers that the sidecar serves, and the background tasks of each broker.

`sidecar` creates them. In a gateway, `gateway_routes` decides which client connection belongs to which broker.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

import trio

from group_sidecar.coordinator.answer_requirements import fallback_reason
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.views import TopicPartition
from group_sidecar.coordinator.state.bounded_table import TableSize
from group_sidecar.metrics.listener_counters import ListenerCounters
from group_sidecar.proxy.admin.sources import LogStatuses, Unreachable
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.broker.group_queries import Node
from group_sidecar.proxy.broker.probe import ProbeTrigger, probe_forever
from group_sidecar.proxy.broker.reconcile import reconcile_forever
from group_sidecar.proxy.broker.shrink import shrink_forever
from group_sidecar.proxy.broker.verification import Verifier
from group_sidecar.proxy.broker.verification_window import VerificationWindows
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.handlers.api_table import make_reply_builder
from group_sidecar.proxy.handlers.dispatcher import BrokerDispatcher
from group_sidecar.proxy.offsets_log.tail import OffsetsTail
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.runtime.supervision import Supervisor, Task


@dataclass(frozen=True, slots=True)
class ServedBroker:
    """One broker with its parts.

    Attributes:
        state: what is known of the broker.
        dispatchers: the dispatcher of each listener, by the listener's name.
        tail: reads ``__consumer_offsets``, or None if the sidecar does not read it.
        probe_trigger: starts the next probe early.
    """

    state: BrokerState
    dispatchers: Mapping[str, BrokerDispatcher]
    tail: OffsetsTail | None
    probe_trigger: ProbeTrigger

    @classmethod
    def create(cls, state: BrokerState, config: Config, listeners: Iterable[ListenerCounters]) -> "ServedBroker":
        """Creates the parts of a broker that use its state. `start` runs them."""
        reply_builder = make_reply_builder(state)
        log = config.offsets_log
        tail = (
            OffsetsTail(state.copy, state.versions, state.coordinators, state.own_connections, log.load_buffer_size)
            if log.read
            else None
        )
        dispatchers = {each.name: BrokerDispatcher(state, each, reply_builder) for each in listeners}
        return cls(state, dispatchers, tail, ProbeTrigger())

    def apply_lost_requests(self) -> bool:
        """Handles the next slice of the lost requests. Returns whether more of them wait."""
        return next(iter(self.dispatchers.values())).apply_lost_requests()

    @property
    def is_loaded(self) -> bool:
        """Whether the copy is loaded, as far as the broker allows that."""
        return self.state.reachability.was_probed and (self.tail is None or self.tail.is_loaded)

    def start(self, tasks: trio.Nursery, supervisor: Supervisor, alone: trio.Event) -> None:
        """Starts the background tasks. `alone`: set while no predecessor of this sidecar runs."""
        state, copy, connections = self.state, self.state.copy, self.state.own_connections
        tasks.start_soon(probe_forever, state, supervisor, self.probe_trigger)
        tasks.start_soon(reconcile_forever, copy, state.topic_names, state.topic_ids, connections, supervisor)
        if state.config.answers.verify:
            tasks.start_soon(self._verify, supervisor)
        if self.tail:
            tasks.start_soon(self.tail.run, supervisor)
        tasks.start_soon(self._shrink_alone, supervisor, alone)

    async def _shrink_alone(self, supervisor: Supervisor, alone: trio.Event) -> None:
        """Removes members of groups over their limit, as soon as no predecessor runs. Only one process may do so."""
        state = self.state
        await alone.wait()
        await shrink_forever(state.copy, state.active_policies, state.own_connections, supervisor)

    async def _verify(self, supervisor: Supervisor) -> None:
        state, copy, tail = self.state, self.state.copy, self.tail
        reply = make_reply_builder(state).build_uncached
        verifier = Verifier(
            copy,
            VerificationWindows(copy, state.authorizer_state, state.answer_settings, state.samples, reply),
            state.samples,
            state.own_connections,
            state.traffic,
            lambda request, version, at: fallback_reason(request, version, copy.manager, at),
            tail.reload_group if tail else lambda group: copy.forget_group_state(group, trio.current_time()),
        )
        await supervisor.keep_running(Task.VERIFICATION, verifier.run, str(state.own_connections.address))


class ServedBrokers:
    """The known brokers by upstream address. In a gateway, one broker may have two addresses."""

    def __init__(self) -> None:
        self._by_address: dict[Address, ServedBroker] = {}

    def __contains__(self, address: Address) -> bool:
        return address in self._by_address

    def __iter__(self) -> Iterator[ServedBroker]:
        """Yields each broker once."""
        return iter({id(broker): broker for broker in self._by_address.values()}.values())

    def get(self, address: Address) -> ServedBroker | None:
        """Returns the broker at an address, or None if the address is unknown."""
        return self._by_address.get(address)

    def put(self, address: Address, broker: ServedBroker) -> None:
        """Registers a broker under an address."""
        self._by_address[address] = broker

    def copies(self) -> list[CoordinatorCopy]:
        """Returns the copy of each broker."""
        return [broker.state.copy for broker in self]

    def managers(self) -> list[GroupMetadataManager]:
        """Returns the group metadata manager of each broker's copy."""
        return [copy.manager for copy in self.copies()]

    def tables(self) -> list[TableSize]:
        """Returns the sizes of all brokers' tables that grow with what clients send."""
        return [table for broker in self for table in broker.state.tables]

    def coordinator(self, group_id: str) -> Node | None:
        """Returns the broker that coordinates a group, or None if it is not known."""
        nodes = (broker.state.coordinators.coordinator(group_id) for broker in self)
        return next((node for node in nodes if node is not None), None)

    def topic_names(self, topic_ids: set[UUID]) -> Mapping[UUID, str]:
        """Returns the known names of topics by id. The brokers are asked for the others."""
        found: dict[UUID, str] = {}
        for broker in self:
            names = broker.state.topic_names
            names.request(topic_ids)
            found |= {topic_id: names.by_id[topic_id] for topic_id in topic_ids if topic_id in names.by_id}
        return found

    def tails(self) -> list[OffsetsTail]:
        """Returns the tail of each broker whose log is read."""
        return [broker.tail for broker in self if broker.tail]

    async def committed_partitions(self) -> set[TopicPartition]:
        """Returns the partitions for which a group of any broker has committed offsets."""
        return set().union(*[await broker.state.log_bounds.own_partitions() for broker in self])

    def are_loaded(self) -> bool:
        """Whether the copies of all brokers are loaded, as far as the brokers allow that."""
        return all(broker.is_loaded for broker in self)

    def are_ready(self) -> bool:
        """Whether all brokers answer the sidecar."""
        return all(broker.state.reachability.ready()[0] for broker in self)

    def count_refusing(self) -> int:
        """Returns how many reachable brokers refuse the sidecar's own connection, or deny it the right to read the
        log.
        """
        reached = (broker for broker in self if broker.state.reachability.ready()[0])
        return sum(
            broker.state.reachability.refuses_sidecar or bool(broker.tail and broker.tail.denied) for broker in reached
        )

    def is_reachable(self, address: Address) -> bool:
        """Whether the broker at an address answers the sidecar."""
        broker = self._by_address.get(address)
        return broker is not None and broker.state.reachability.ready()[0]

    def was_probed(self, address: Address) -> bool:
        """Whether the first probe of the broker at an address has ended."""
        broker = self._by_address.get(address)
        return broker is not None and broker.state.reachability.was_probed

    def unreachable(self) -> list[Unreachable]:
        """Returns the brokers that do not answer, each with the time of the first failure and the reason."""
        return [
            Unreachable(str(broker.state.own_connections.address), *since_and_why)
            for broker in self
            if (since_and_why := broker.state.reachability.unreachable)
        ]

    def log_statuses(self) -> LogStatuses:
        """Returns, by broker address, how far the broker's log was read."""
        return {str(broker.state.own_connections.address): broker.tail.status() for broker in self if broker.tail}

    def probe_now(self, address: Address) -> None:
        """Starts the next probe of a broker early; see `ProbeTrigger.fire`. Ignores an unknown address."""
        if address in self._by_address:
            self._by_address[address].probe_trigger.fire()
