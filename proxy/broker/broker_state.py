"""What the sidecar knows of one broker, apart from the protocol of its groups.

`BrokerState` holds the broker's versions, its authorizer and grants, whether its listener serves clients without
authentication, topic names by id, and whether the broker is reachable. From these it decides whether a request may be
answered here. Every reader reaches the groups, the rights and the principals through `BrokerState`, which applies the
deferred replies first (`deferred_replies`), so no caller has to remember them.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Set
from contextlib import AbstractAsyncContextManager
from uuid import UUID

import trio

from group_sidecar.codecs.api_registry import ApiKey, api_name
from group_sidecar.codecs.messages.api_versions import KAFKA_0_9
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.events import AnyEvent, LogEndsSeen, LogStartsSeen
from group_sidecar.coordinator.model.facts import ClientRefused, Fact
from group_sidecar.coordinator.model.views import FallbackReason, TopicPartition
from group_sidecar.coordinator.state.bounded_table import ENTRY_BYTES, TableSize
from group_sidecar.coordinator.state.log_partitions import partition_for
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.policies.rulebook import ActivePolicies
from group_sidecar.proxy.broker.added_versions import NO_VERSIONS, Versions, added_versions
from group_sidecar.proxy.broker.address_rewrite import Advertise
from group_sidecar.proxy.broker.authentication import connect_with_credentials
from group_sidecar.proxy.broker.authorization_cache import AuthorizationCache, Right
from group_sidecar.proxy.broker.deferred_replies import DeferredReplies
from group_sidecar.proxy.broker.group_queries import Node
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.broker.lost_requests import LostRequests
from group_sidecar.proxy.broker.principals import ANONYMOUS, Principal, Principals
from group_sidecar.proxy.broker.topic_ids import TopicIds
from group_sidecar.proxy.broker.verification import SampleQueue
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.runtime.addresses import Address

MAX_TOPIC_NAMES = 100_000
"""Topic ids whose names are held. A commit by another id is not applied until the broker has been asked for the
name."""
MAX_WANTED_TOPIC_IDS = 10_000
"""Topic ids that the broker is to be asked about. Beyond this limit, the oldest are evicted."""
MAX_OFFSETS_WANTED = 1000
"""Forgotten groups whose offsets the sidecar requests. The offsets of further groups are learnt from clients'
questions."""
OFFSETS_TRIES = 5
LOCAL_APIS = frozenset(
    {ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH, ApiKey.CONSUMER_GROUP_DESCRIBE}
)
"""Questions that the sidecar may answer itself."""
_FETCH_OF_0_10_1 = (0, 3)
_FETCH_ALL = (0, 2)  # OffsetFetch.


class BrokerState:
    """One upstream broker, as far as it is known. Parameters named `now` or `asked_at` are on trio's clock.

    Args:
        address: where the broker is.
        config: all settings.
        traffic: counts what was answered, refused and left to the broker.
        observe: called with each fact.
        advertise: the address book of a gateway; None where no address is rewritten.
        clock_offset: the time at which trio's clock reads zero, in seconds since the epoch; None to measure it.
        log_end_partitions: returns the partitions whose log ends are needed. None stands for those that this broker's
            groups have committed. In a gateway, a group may commit at one broker for a partition that another one
            leads.
        active_policies: the policies in force, which may be replaced; None for those of `config`.
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
        self.address = address
        self.config = config
        self.traffic = traffic
        self.advertise = advertise
        self.deferred = DeferredReplies()
        self._manager = GroupMetadataManager(
            exclusive=config.answers.exclusive,
            true_hosts=self.true_hosts,
            max_groups=config.limits.groups,
            max_offsets=config.limits.offsets,
        )
        self.active_policies = ActivePolicies(config.enabled_policies()) if active_policies is None else active_policies
        self.names: OrderedDict[UUID, str] = OrderedDict()
        self._wanted_topic_ids: OrderedDict[UUID, None] = OrderedDict()
        self.topic_ids = TopicIds()
        self.offsets_wanted: dict[str, int] = {}
        """Forgotten groups whose offsets only the broker has, with the number of attempts that are left."""
        self._principals = Principals()
        self._rights = AuthorizationCache(config.answers.rights_seconds, config.limits.rights, traffic)
        self.samples = SampleQueue(config.answers.verify, traffic)
        self.lost_requests = LostRequests()
        self._observe = observe
        self._log_end_partitions = log_end_partitions or self.own_partitions
        self._clock_offset = time.time() - trio.current_time() if clock_offset is None else clock_offset
        self.offers_revision = 0
        """How often the broker's versions have changed."""
        self._versions: Versions | None = None
        self._added: Versions = {}
        self._keeps_empty_groups = True
        self._authorizer = False if config.answers.authorizer == "none" else None
        self._allows_anonymous = False
        self.wants_sasl = False
        """Whether the listener is known to require SASL: it accepted a handshake."""
        self._coordinators: Mapping[int, Node] = {}
        self._failure_reason: str | None = "not asked yet"
        self._unreachable_since: float | None = None
        self.refuses_sidecar = False
        """Whether the broker is reachable and refuses the sidecar's own connection. It may still serve clients."""

    def connect(self, *, additional: bool = False) -> AbstractAsyncContextManager[KafkaClient]:
        """Opens a connection of the sidecar's own, with its own credentials. Raises what `kafka_client.connect` raises.

        `additional`: whether the sidecar has another connection to the broker. Then Kafka 0.9 is not asked for its
        versions again. That request would make its ``SocketServer`` drop all that it has just read, also from other
        connections.
        """
        own, known = self.config.own_connection, KAFKA_0_9 if additional and self.is_kafka_0_9 else None
        return connect_with_credentials(own.address or self.address, own, versions=known)

    # State that deferred replies may change.

    def _applied(self) -> "BrokerState":
        """Applies the deferred replies. Returns this object."""
        if self.deferred.waiting:
            self.deferred.apply()
        return self

    @property
    def manager(self) -> GroupMetadataManager:
        """The groups."""
        return self._applied()._manager

    @property
    def rights(self) -> AuthorizationCache:
        """What the broker has granted to its clients."""
        return self._applied()._rights

    @property
    def principals(self) -> Principals:
        """Which principal is on each connection."""
        return self._applied()._principals

    @property
    def allows_anonymous(self) -> bool:
        """Whether the listener is known to serve clients that do not authenticate."""
        return self._applied()._allows_anonymous

    # Time and state.

    def epoch(self, now: float) -> float:
        """Converts trio's clock to seconds since the epoch. The result does not jump with the system's clock."""
        return now + self._clock_offset

    def apply(self, events: Iterable[AnyEvent], now: float) -> None:
        """Applies events to the groups and reports the facts."""
        self.report_facts(self.manager.apply(events, self.epoch(now)))

    def refresh(self, group_id: str, now: float) -> None:
        """Sets aside a group's members whose session has expired."""
        self.report_facts(self.manager.refresh(group_id, self.epoch(now)))

    def sweep(self, now: float) -> Iterator[None]:
        """Sets aside all groups' members whose session has expired. Yields between slices, so that other tasks can
        run.
        """
        for facts in self.manager.sweep(self.epoch(now)):
            self.report_facts(facts)
            yield

    def relist(self, now: float) -> Iterator[None]:
        """Brings the list of groups up to date. Yields between slices, so that other tasks can run."""
        return self.manager.update_listing(self.epoch(now))

    def forget_group_state(self, group_id: str, now: float) -> None:
        """Forgets a group whose copy is wrong, so that it is learnt again."""
        self.manager.forget_group_state(group_id, self.epoch(now))
        if not self.may_have_authorizer and len(self.offsets_wanted) < MAX_OFFSETS_WANTED:
            self.offsets_wanted[group_id] = OFFSETS_TRIES

    def report_facts(self, facts: Iterable[Fact]) -> None:
        """Passes each fact to the observer."""
        for fact in facts:
            self._observe(fact)

    def refused(self, fact: ClientRefused) -> None:
        """Counts and reports that a policy refused a client, or would have in audit mode."""
        self._applied()
        if fact.enforced:
            self.traffic.policy_rejected(fact.policy, fact.error_code)
        else:
            self.traffic.policy_audited(fact.policy, fact.error_code)
        self._observe(fact)

    # What may be answered here.

    def lacks_api(self, api_key: int) -> bool:
        """Whether the broker is known not to have an API."""
        return self._versions is not None and api_key not in self._versions

    def added_versions_for(self, offers_revision: Versions) -> Versions:
        """Returns the versions that the sidecar adds to these, for the APIs that it may answer."""
        return {
            key: added for key, added in added_versions(offers_revision).items() if self.disabled_reason(key) is None
        }

    def is_added_version(self, api_key: int, version: int) -> bool:
        """Whether the sidecar adds this version of an API. A request in an added version is never forwarded."""
        lowest, highest = self._added.get(api_key, NO_VERSIONS)
        return lowest <= version <= highest

    def speaks(self, api_key: int, version: int) -> bool:
        """Whether the broker or the sidecar offers this version of an API, as far as is known.

        True also for every version of an API that the broker lacks.
        """
        if self._versions is None or api_key not in self._versions:
            return True
        lowest, highest = self._versions[api_key]
        return lowest <= version <= highest or self.is_added_version(api_key, version)

    def request_version(self, api_key: int, highest: int) -> int:
        """Returns the broker's highest version of an API, at most `highest`; 0 while the broker's versions are not
        known.
        """
        lowest, highest_version = (self._versions or {}).get(api_key, (0, 0))
        return max(lowest, min(highest_version, highest))

    def highest_version(self, api_key: int) -> int | None:
        """Returns the broker's highest version of an API. None where it is not known, or the broker lacks the API."""
        offered = (self._versions or {}).get(api_key)
        return offered[1] if offered else None

    @property
    def is_kafka_0_9(self) -> bool:
        """Whether the broker is known to ignore ApiVersions, as Kafka 0.9 does."""
        return self._versions is KAFKA_0_9

    def includes_empty_groups(self, api_key: int, version: int) -> bool:
        """Whether replies in this version include groups without members. Kafka before 0.10.1 forgets such groups, but
        versions that the sidecar adds include them.
        """
        return self._keeps_empty_groups or self.is_added_version(api_key, version)

    @property
    def empty_topics_fetch_all(self) -> bool:
        """Whether an OffsetFetch with an empty array of topics returns all offsets.

        This holds before Kafka 0.10.2. Later versions return all offsets for null topics instead, from OffsetFetch v2
        (KIP-88).
        """
        return self._versions is not None and self._versions.get(ApiKey.OFFSET_FETCH, _FETCH_ALL)[1] < _FETCH_ALL[1]

    def disabled_reason(self, api_key: int) -> FallbackReason | None:
        """Returns why no request of this API may be answered here, whatever its groups; None where it may."""
        answers = self.config.answers
        if not answers.enabled or api_name(api_key) not in answers.apis:
            return FallbackReason.OFF
        return None

    @property
    def true_hosts(self) -> bool:
        """Whether answers contain the clients' true hosts. Otherwise they contain the hosts that the broker reports."""
        return self.config.answers.client_host == "client"

    def rewrites_client_hosts(self, api_key: int) -> bool:
        """Whether the clients' true hosts replace those in the broker's replies, as they do in local answers."""
        return self.true_hosts and self.disabled_reason(api_key) is None

    @property
    def may_have_authorizer(self) -> bool:
        """Whether the broker has an authorizer, or may have one. An authorizer hides what a client may not see."""
        return self._authorizer is not False

    def may_see(self, principal: Principal | None, rights: Iterable[Right], at: float) -> bool:
        """Whether the broker would show a principal what these rights allow.

        `principal`: None where it is not known. `at`: seconds since the epoch.
        """
        if principal is None or (principal == ANONYMOUS and not self.allows_anonymous):
            return False
        return not self.may_have_authorizer or self.rights.has_all(principal, rights, at)

    # What the prober learns.

    def reset_learned(self) -> None:
        """Forgets what may be wrong after a restart of the broker. Called when the prober has a new connection."""
        self.manager.forget_broker_behaviour()
        self.rights.forget()
        self._allows_anonymous = False
        if self.config.answers.authorizer == "auto":
            self._authorizer = None

    def learn_versions(self, versions: Versions) -> None:
        """Stores the versions that the broker itself offers: (lowest, highest) by API key."""
        if versions is self._versions:
            return  # The same cached object, as after each ApiVersions reply to a client.
        if versions != self._versions:
            self.offers_revision += 1
            self.manager.forget_broker_behaviour()
        self._versions = versions
        self._keeps_empty_groups = versions.get(ApiKey.FETCH, _FETCH_OF_0_10_1)[1] >= _FETCH_OF_0_10_1[1]
        self.manager.keep_empty_groups(self._keeps_empty_groups)
        self._added = self.added_versions_for(versions)

    def learn_authorizer(self, present: bool) -> None:
        """Stores whether the broker has an authorizer. If it has, a client sees only what the broker lately granted."""
        self._learn_from_own_connection()
        if self.config.answers.authorizer == "auto":
            self._authorizer = present

    def learn_initial_groups(self, groups: list[str] | None) -> None:
        """Stores which groups existed before the sidecar read their traffic.

        None: the broker cannot list them. Then `answers.exclusive` states that there were none.
        """
        self._learn_from_own_connection()
        self.manager.set_existing_groups(groups or ())

    def _learn_from_own_connection(self) -> None:
        own = self.config.own_connection
        if own.address is None and own.sasl is None and own.tls is None:
            self.learn_anonymous_access()

    def learn_anonymous_access(self) -> None:
        """Notes that the listener serves clients that did not authenticate."""
        self._allows_anonymous = True

    def learn_coordinators(self, leaders: Mapping[int, Node]) -> None:
        """Stores the leader of each partition of the coordinator's log. The leader coordinates the groups of the
        partition.
        """
        self._coordinators = leaders

    def coordinator(self, group_id: str) -> Node | None:
        """Returns the broker that coordinates a group, at the address that clients use; None where it is not known."""
        count = self.manager.log.partitions.count
        node = self._coordinators.get(partition_for(group_id, count)) if count else None
        if node is None or self.advertise is None:
            return node
        return Node(node.id, *self.advertise(node.id, node.host, node.port))

    def learn_topic_names(self, names: Mapping[UUID, str]) -> None:
        """Stores topic names by id."""
        self._applied()
        for topic_id, name in names.items():
            self.names.pop(topic_id, None)
            self.names[topic_id] = name
            self._wanted_topic_ids.pop(topic_id, None)
        while len(self.names) > MAX_TOPIC_NAMES:
            self.names.popitem(last=False)  # The oldest entry.

    def request_topic_names(self, topic_ids: Iterable[UUID]) -> None:
        """Has the reconciler ask the broker for the names of those topics whose names are not known."""
        for topic_id in topic_ids:
            if topic_id not in self.names:
                self._wanted_topic_ids[topic_id] = None
        while len(self._wanted_topic_ids) > MAX_WANTED_TOPIC_IDS:
            self._wanted_topic_ids.popitem(last=False)

    @property
    def wanted_topic_ids(self) -> Set[UUID]:
        """The topics whose names are to be asked for."""
        return self._wanted_topic_ids.keys()

    @property
    def tables(self) -> Iterator[TableSize]:
        """Yields the size of each table that grows with what clients send."""
        yield from self.manager.tables()
        names = sum(map(len, self.names.values())) + len(self.names) * ENTRY_BYTES
        yield self.lost_requests.table
        yield TableSize("topic_names", len(self.names), names)
        yield TableSize("topic_names_wanted", len(self._wanted_topic_ids), len(self._wanted_topic_ids) * ENTRY_BYTES)

    @property
    def reports_all_log_ends(self) -> bool:
        """Whether the fleet pipeline needs all log ends of this broker, to join them with commits at other sidecars. A
        gateway sees all groups itself.
        """
        return self.config.journal is not None and self.config.mode == "sidecar"

    async def committed_partitions(self) -> set[TopicPartition]:
        """Returns the partitions whose log ends and starts are needed in any case."""
        return await self._log_end_partitions()

    async def own_partitions(self) -> set[TopicPartition]:
        """Returns the partitions for which this broker's groups have committed offsets."""
        found: set[TopicPartition] = set()
        for some in self.manager.committed_partitions():
            found |= some
            await trio.lowlevel.checkpoint()
        return found

    def stale_log_ends(self, partitions: Iterable[TopicPartition], since: float) -> set[TopicPartition]:
        """Returns those of these partitions whose log end no reply has contained since then."""
        return self.manager.log_bounds.ends_unseen(partitions, self.epoch(since))

    def learn_log_ends(self, ends: Mapping[TopicPartition, int], asked_at: float) -> None:
        """Stores log ends. An end that a client's reply contained after `asked_at` is newer, and stays."""
        self.apply([LogEndsSeen(ends=ends)], asked_at)

    def learn_log_starts(self, starts: Mapping[TopicPartition, int], asked_at: float) -> None:
        """Stores log starts."""
        self.apply([LogStartsSeen(starts=starts)], asked_at)

    def probe_failed(self, reason: str) -> None:
        """Notes that the broker did not answer the prober."""
        self._failure_reason, self.refuses_sidecar = reason, False
        if self._unreachable_since is None:
            self._unreachable_since = self.epoch(trio.current_time())
        # When the broker is back, it may have other rules, and require SASL.
        self.rights.forget()
        self._allows_anonymous = self.wants_sasl = False

    def probe_succeeded(self) -> None:
        """Notes that the broker answered the prober."""
        self._failure_reason, self.refuses_sidecar = None, False
        self._unreachable_since = None

    def probe_refused(self) -> None:
        """Notes that the broker is reachable and refuses the prober."""
        self.probe_succeeded()
        self.refuses_sidecar = True

    def ready(self) -> tuple[bool, str]:
        """Returns whether the broker answers, and the reason where it does not."""
        return self._failure_reason is None, self._failure_reason or "reachable"

    @property
    def unreachable(self) -> tuple[float, str] | None:
        """The time since when the broker does not answer the prober, in seconds since the epoch, and the reason; None
        while it answers.
        """
        since = self._unreachable_since
        return None if since is None else (since, self._failure_reason or "")
