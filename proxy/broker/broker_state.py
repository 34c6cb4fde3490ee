"""Connects the parts that hold what the sidecar knows of one broker. Each part owns its own state.

Only the modules that put the sidecar together receive a `BrokerState`: `sidecar`, `served_brokers`, the dispatcher
with its `api_table`, and the prober. Every other part receives the objects that it uses. The methods here are the steps
that concern several parts.
"""

from collections.abc import Awaitable, Callable, Iterator

import trio

from group_sidecar.coordinator.model.facts import Fact
from group_sidecar.coordinator.model.views import TopicPartition
from group_sidecar.coordinator.state.bounded_table import TableSize
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.policies.active_policies import ActivePolicies
from group_sidecar.proxy.broker.address_rewrite import Advertise
from group_sidecar.proxy.broker.answer_settings import AnswerSettings
from group_sidecar.proxy.broker.authorizer_state import AuthorizerState
from group_sidecar.proxy.broker.broker_versions import BrokerVersions
from group_sidecar.proxy.broker.client_access import ClientAccess
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.broker.deferred_replies import DeferredReplies
from group_sidecar.proxy.broker.existing_topic_ids import TopicIds
from group_sidecar.proxy.broker.group_coordinators import GroupCoordinators
from group_sidecar.proxy.broker.lost_requests import LostRequests
from group_sidecar.proxy.broker.needed_log_bounds import NeededLogBounds
from group_sidecar.proxy.broker.own_connections import OwnConnections
from group_sidecar.proxy.broker.reachability import Reachability
from group_sidecar.proxy.broker.topic_names import TopicNames
from group_sidecar.proxy.broker.verification import SampleQueue
from group_sidecar.proxy.config.listener_sections import Listener
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.dataplane.held_request_budget import HeldRequestBudget
from group_sidecar.proxy.runtime.addresses import Address


class BrokerState:
    """One upstream broker, as far as it is known.

    Args:
        address: the broker's address for clients' requests.
        config: all settings.
        traffic: counts what was answered, refused and left to the broker.
        observe: called with each fact.
        advertise: returns the address that replaces a broker's; None if no address is rewritten.
        clock_offset: the time at which trio's clock reads zero, in seconds since the epoch; None to measure it.
        log_end_partitions: see `NeededLogBounds`.
        active_policies: the policies in force, which may be replaced; None for the policies of `config`.

    Attributes:
        accesses: the access of clients by the name of their listener.
    """

    def __init__(
        self,
        address: Address,
        config: Config,
        traffic: TrafficCounters,
        observe: Callable[[Fact], None],
        advertise: Advertise | None = None,
        clock_offset: float | None = None,
        log_end_partitions: Callable[[], Awaitable[set[TopicPartition]]] | None = None,
        active_policies: ActivePolicies | None = None,
    ) -> None:
        self.config = config
        self.traffic = traffic
        self.advertise = advertise
        self.active_policies = ActivePolicies(config.enabled_policies()) if active_policies is None else active_policies
        self.answer_settings = AnswerSettings(config.answers)
        self.deferred = DeferredReplies()
        self.authorizer_state = AuthorizerState(config, traffic, self.deferred)
        self.accesses = {listener.name: self._client_access(listener) for listener in config.client_listeners}
        self.copy = CoordinatorCopy(
            self.answer_settings, config.limits, self.deferred, self.authorizer_state, traffic, observe, clock_offset
        )
        self.versions = BrokerVersions(self.answer_settings, self.copy)
        self.own_connections = OwnConnections(address, config.own_connection_in_force, self.versions)
        self.topic_names = TopicNames(self.deferred)
        self.topic_ids = TopicIds()
        self.coordinators = GroupCoordinators(self.copy, advertise)
        self.log_bounds = NeededLogBounds(self.copy, config, log_end_partitions)
        self.reachability = Reachability()
        self.samples = SampleQueue(config.answers.verify, traffic)
        self.lost_requests = LostRequests()
        self.held_request_budget = HeldRequestBudget(config.limits.held_frames)

    def _client_access(self, listener: Listener) -> ClientAccess:
        return ClientAccess(
            self.authorizer_state,
            self.deferred,
            listener.name,
            has_identities=listener.upstream_tls is not None and bool(listener.upstream_tls.identities),
            shared_with_sidecar=self.config.sidecar_connects_like_clients_of(listener),
            max_per_principal=self.config.limits.connections_per_principal,
        )

    def reset_learned(self) -> None:
        """Forgets what may be wrong after a restart of the broker. Called when the prober has a new connection."""
        self.copy.manager.forget_broker_behaviour()
        self.authorizer_state.reset_learned()
        for access in self.accesses.values():
            access.reset_learned()

    def learn_authorizer(self, present: bool) -> None:
        """Stores whether the broker has an authorizer, as a reply on the sidecar's own connection shows."""
        self._own_connection_served()
        self.authorizer_state.learn_authorizer(present)

    @property
    def needs_broker_count(self) -> bool:
        """Whether the copy needs the number of the cluster's brokers to answer."""
        return self.copy.manager.needs_broker_count

    def learn_broker_count(self, count: int) -> None:
        """Stores how many brokers the cluster has."""
        self.copy.manager.set_broker_count(count, self.copy.epoch(trio.current_time()))

    def learn_initial_groups(self, groups: list[str] | None) -> None:
        """Stores which groups existed before the sidecar read their traffic.

        `groups` is None if the broker cannot list its groups. The sidecar then relies on `answers.exclusive`, which
        also states that such a broker had no groups at the start.
        """
        self._own_connection_served()
        self.copy.manager.set_existing_groups(groups or ())

    def _own_connection_served(self) -> None:
        for access in self.accesses.values():
            access.learn_from_own_connection()

    def probe_failed(self, reason: str) -> None:
        """Notes that the broker did not answer the prober, and forgets the rights that it granted."""
        self.reachability.probe_failed(reason, self.copy.epoch(trio.current_time()))
        self.authorizer_state.broker_lost()
        for access in self.accesses.values():
            access.broker_lost()

    @property
    def tables(self) -> Iterator[TableSize]:
        """Yields the size of each table that grows with what clients send."""
        yield from self.copy.manager.tables()
        yield self.lost_requests.table
        yield from self.topic_names.tables
