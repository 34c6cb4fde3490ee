"""What the sidecar knows of one broker, beside its groups.

Owns: `BrokerCopy`: the versions the broker offers, whether it has an authorizer, what that has granted, whether its
listener serves clients that do not authenticate, topic names by id, whether it can be reached; and with these, whether
a request may be answered here. Must not know: frames, connections.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Set
from contextlib import AbstractAsyncContextManager
from uuid import UUID

import trio

from group_sidecar.codecs.messages.api_versions import KAFKA_0_9
from group_sidecar.codecs.registry import ApiKey, api_name
from group_sidecar.coordinator.bounded import ENTRY_BYTES, Table
from group_sidecar.coordinator.events import AnyEvent, LogEndsSeen, LogStartsSeen
from group_sidecar.coordinator.facts import ClientRefused, Fact
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.partitions import partition_for
from group_sidecar.coordinator.views import Lacking, TopicPartition
from group_sidecar.metrics.traffic import Traffic
from group_sidecar.policies.rulebook import Rulebook
from group_sidecar.proxy.additions import NO_VERSIONS, Versions, additions
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.client import KafkaClient
from group_sidecar.proxy.config import Config
from group_sidecar.proxy.credentials import connect_as
from group_sidecar.proxy.losses import Losses
from group_sidecar.proxy.principals import ANONYMOUS, Principal
from group_sidecar.proxy.questions import Node
from group_sidecar.proxy.rewrite import Advertise
from group_sidecar.proxy.rights import Right, Rights
from group_sidecar.proxy.topic_ids import TopicIds
from group_sidecar.proxy.verifying import Samples

MOST_NAMES = 100_000
"""Topic ids remembered; a commit by another id is not followed until it has been asked for."""
MOST_WANTED = 10_000
"""Topic ids that the broker is asked about; those that were wanted first give way."""
MOST_OFFSETS_WANTED = 1000
"""Groups that were forgotten whose offsets are asked for; those of others are learnt from clients' questions."""
OFFSETS_TRIES = 5
LOCAL_APIS = frozenset(
    {ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH, ApiKey.CONSUMER_GROUP_DESCRIBE}
)
"""Questions that are answered here."""
_FETCH_OF_0_10_1 = (0, 3)
_FETCH_ALL = (0, 2)  # OffsetFetch.


class BrokerCopy:
    """One upstream broker, as far as it is known.

    Args:
        address: where the broker is.
        config: all settings.
        traffic: is told what was answered, refused and left to the broker.
        observe: is told each fact.
        advertise: the address book of a gateway; None where nothing is rewritten.
        epoch_of_zero: what trio's clock reads as zero, in seconds since the epoch; measured where it is not given.
        interest: partitions whose log ends are of interest; those that this broker's own groups have committed
            where it is not given. A gateway's groups commit at one broker what another one leads.
        rulebook: the policies in force, which may be replaced; those of `config` where it is not given.
    """

    def __init__(
        self,
        address: Address,
        config: Config,
        traffic: Traffic,
        observe: Callable[[Fact], None],
        advertise: Advertise | None = None,
        epoch_of_zero: float | None = None,
        interest: Callable[[], Awaitable[set[TopicPartition]]] | None = None,
        rulebook: Rulebook | None = None,
    ) -> None:
        self.address = address
        self.config = config
        self.traffic = traffic
        self.advertise = advertise
        self.manager = GroupMetadataManager(
            exclusive=config.answers.exclusive,
            true_hosts=self.true_hosts,
            most_groups=config.limits.groups,
            most_offsets=config.limits.offsets,
        )
        self.rulebook = Rulebook(config.rules()) if rulebook is None else rulebook
        self.names: OrderedDict[UUID, str] = OrderedDict()
        self._names_wanted: OrderedDict[UUID, None] = OrderedDict()
        self.topic_ids = TopicIds()
        self.offsets_wanted: dict[str, int] = {}
        """Groups that were forgotten and whose offsets only the broker has, and how often it is to be asked yet."""
        self.rights = Rights(config.answers.rights_seconds, config.limits.rights, traffic)
        self.samples = Samples(config.answers.verify, traffic)
        self.losses = Losses()
        self._observe = observe
        self._interest = interest or self.own_partitions
        self._epoch_of_zero = time.time() - trio.current_time() if epoch_of_zero is None else epoch_of_zero
        self.offers = 0
        """How often the broker has begun to offer something else than before."""
        self._versions: Versions | None = None
        self._added: Versions = {}
        self._keeps_empty = True
        self._authorizer = False if config.answers.authorizer == "none" else None
        self.open = False
        """Whether the listener is known to serve clients that do not authenticate."""
        self.wants_sasl = False
        """Whether the listener is known to want SASL: it accepted a handshake."""
        self._coordinators: Mapping[int, Node] = {}
        self._trouble: str | None = "not asked yet"
        self._unreachable_since: float | None = None
        self.refuses = False
        """Whether the broker is reached and refuses the sidecar's own connection. Its clients are served."""

    def connect(self, *, again: bool = False) -> AbstractAsyncContextManager[KafkaClient]:
        """A connection of the sidecar's own to the broker, with its own credentials. Raises as `client.connect`.

        `again`: beside a connection that there is. Then Kafka 0.9 is not asked anew what it speaks: over that question
        it may lose what others have just sent (its ``SocketServer`` drops all that it has read).
        """
        own, known = self.config.own_connection, KAFKA_0_9 if again and self.is_kafka_0_9 else None
        return connect_as(own.address or self.address, own, versions=known)

    # Time and state.

    def epoch(self, now: float) -> float:
        """The shell's clock, in seconds since the epoch. It does not jump with the system's."""
        return now + self._epoch_of_zero

    def apply(self, events: Iterable[AnyEvent], now: float) -> None:
        """Applies events to the groups and tells the facts. `now`: the shell's clock."""
        self.tell(self.manager.apply(events, self.epoch(now)))

    def refresh(self, group_id: str, now: float) -> None:
        """Lets a group's overdue members go."""
        self.tell(self.manager.refresh(group_id, self.epoch(now)))

    def sweep(self, now: float) -> Iterator[None]:
        """Lets all groups' overdue members go, some at a time: between two steps others may have their turn."""
        for facts in self.manager.sweep(self.epoch(now)):
            self.tell(facts)
            yield

    def relist(self, now: float) -> Iterator[None]:
        """Brings the list of groups up to date, some at a time."""
        return self.manager.relist(self.epoch(now))

    def relearn(self, group_id: str, now: float) -> None:
        """Forgets what is known of a group, because it is wrong. `now`: the shell's clock."""
        self.manager.relearn(group_id, self.epoch(now))
        if not self.hides and len(self.offsets_wanted) < MOST_OFFSETS_WANTED:
            self.offsets_wanted[group_id] = OFFSETS_TRIES

    def tell(self, facts: Iterable[Fact]) -> None:
        """Tells what has happened."""
        for fact in facts:
            self._observe(fact)

    def refused(self, fact: ClientRefused) -> None:
        """Tells that a policy refused a client, or would have."""
        if fact.enforced:
            self.traffic.policy_rejected(fact.policy, fact.error_code)
        else:
            self.traffic.policy_audited(fact.policy, fact.error_code)
        self._observe(fact)

    # What may be answered here.

    def lacks(self, api_key: int) -> bool:
        """Whether the broker is known not to have an API."""
        return self._versions is not None and api_key not in self._versions

    def added_to(self, offers: Versions) -> Versions:
        """What the sidecar adds to such offers, of the APIs that it may answer."""
        return {key: added for key, added in additions(offers).items() if self.withheld(key) is None}

    def adds(self, api_key: int, version: int) -> bool:
        """Whether the broker has this API but not this version, and the sidecar has it. It is never forwarded then."""
        lowest, highest = self._added.get(api_key, NO_VERSIONS)
        return lowest <= version <= highest

    def speaks(self, api_key: int, version: int) -> bool:
        """Whether this version of an API is offered, as far as is known: by the broker, or added. So is all of an API
        that the broker lacks.
        """
        if self._versions is None or api_key not in self._versions:
            return True
        lowest, highest = self._versions[api_key]
        return lowest <= version <= highest or self.adds(api_key, version)

    def version_of(self, api_key: int, highest: int) -> int:
        """The version in which to ask the broker: the highest that it has, up to `highest`; 0 while it is not known."""
        lowest, newest = (self._versions or {}).get(api_key, (0, 0))
        return max(lowest, min(newest, highest))

    def newest(self, api_key: int) -> int | None:
        """The highest version of an API that the broker has. None where that is not known, or the API is not there."""
        offered = (self._versions or {}).get(api_key)
        return offered[1] if offered else None

    @property
    def is_kafka_0_9(self) -> bool:
        """Whether the broker is known to pass ApiVersions over."""
        return self._versions is KAFKA_0_9

    def tells_empty(self, api_key: int, version: int) -> bool:
        """Whether replies in this version tell of groups without members: where the sidecar adds it they do."""
        return self._keeps_empty or self.adds(api_key, version)

    @property
    def gives_all_for_none(self) -> bool:
        """Whether OffsetFetch without topics gives all offsets, as before 0.10.2, which has v2 for that (KIP-88)."""
        return self._versions is not None and self._versions.get(ApiKey.OFFSET_FETCH, _FETCH_ALL)[1] < _FETCH_ALL[1]

    def withheld(self, api_key: int) -> Lacking | None:
        """Why no request of this API may be answered here, whatever the groups; None where it may."""
        answers = self.config.answers
        if not answers.enabled or api_name(api_key) not in answers.apis:
            return Lacking.OFF
        return None

    @property
    def true_hosts(self) -> bool:
        """Whether clients are told where members are; else they are told what the broker says of that."""
        return self.config.answers.client_host == "client"

    def relocates(self, api_key: int) -> bool:
        """Whether the broker's replies are to tell where members are, as those that are made here do."""
        return self.true_hosts and self.withheld(api_key) is None

    @property
    def hides(self) -> bool:
        """Whether the broker has an authorizer, or may have one, and so hides what a client may not see."""
        return self._authorizer is not False

    def may_see(self, principal: Principal | None, rights: Iterable[Right], at: float) -> bool:
        """Whether the broker would show a client what needs these rights. None: nobody that is known.

        `at`: seconds since the epoch.
        """
        if principal is None or (principal == ANONYMOUS and not self.open):
            return False
        return not self.hides or self.rights.hold(principal, rights, at)

    # What the prober learns.

    def begin_anew(self) -> None:
        """The prober has a new connection: the broker may have been started again, with other settings and rules."""
        self.manager.forget_habits()
        self.rights.forget()
        self.open = False
        if self.config.answers.authorizer == "auto":
            self._authorizer = None

    def learn_versions(self, versions: Versions) -> None:
        """The broker's own ApiVersions: (lowest, highest) by API key."""
        if versions is self._versions:
            return  # As each client that connects is told.
        if versions != self._versions:
            self.offers += 1
            self.manager.forget_habits()
        self._versions = versions
        self._keeps_empty = versions.get(ApiKey.FETCH, _FETCH_OF_0_10_1)[1] >= _FETCH_OF_0_10_1[1]
        self.manager.keep_empty_groups(self._keeps_empty)
        self._added = self.added_to(versions)

    def learn_authorizer(self, present: bool) -> None:
        """Whether the broker has an authorizer; then clients are shown what it has lately shown them."""
        self._learn_from_own_connection()
        if self.config.answers.authorizer == "auto":
            self._authorizer = present

    def learn_groups_at_start(self, groups: list[str] | None) -> None:
        """The groups that have a past. None: the broker cannot list them, and the operator's word counts."""
        self._learn_from_own_connection()
        self.manager.inherit(groups or ())

    def _learn_from_own_connection(self) -> None:
        own = self.config.own_connection
        if own.address is None and own.sasl is None and own.tls is None:
            self.learn_open()

    def learn_open(self) -> None:
        """The listener serves clients that did not authenticate."""
        self.open = True

    def learn_coordinators(self, leaders: Mapping[int, Node]) -> None:
        """Who leads each partition of the coordinator's log, and so coordinates its groups."""
        self._coordinators = leaders

    def coordinator(self, group_id: str) -> Node | None:
        """The broker that coordinates a group, as clients are told of it; None where that is not known."""
        count = self.manager.log.partitions.count
        node = self._coordinators.get(partition_for(group_id, count)) if count else None
        if node is None or self.advertise is None:
            return node
        return Node(node.id, *self.advertise(node.id, node.host, node.port))

    def learn_names(self, names: Mapping[UUID, str]) -> None:
        """Topic names by id."""
        for topic_id, name in names.items():
            self.names.pop(topic_id, None)
            self.names[topic_id] = name
            self._names_wanted.pop(topic_id, None)
        while len(self.names) > MOST_NAMES:
            self.names.popitem(last=False)  # The name that was learnt longest ago.

    def want_names(self, topic_ids: Iterable[UUID]) -> None:
        """Topics that have been asked about, and whose names nobody has told."""
        for topic_id in topic_ids:
            if topic_id not in self.names:
                self._names_wanted[topic_id] = None
        while len(self._names_wanted) > MOST_WANTED:
            self._names_wanted.popitem(last=False)

    @property
    def names_wanted(self) -> Set[UUID]:
        """Topics that have been asked about, and whose names nobody has told."""
        return self._names_wanted.keys()

    @property
    def tables(self) -> Iterator[Table]:
        """How large each table is that grows with what clients send."""
        yield from self.manager.tables()
        names = sum(map(len, self.names.values())) + len(self.names) * ENTRY_BYTES
        yield self.losses.table
        yield Table("topic_names", len(self.names), names)
        yield Table("topic_names_wanted", len(self._names_wanted), len(self._names_wanted) * ENTRY_BYTES)

    @property
    def tells_a_fleet(self) -> bool:
        """Whether its log ends are joined with other sidecars' commits. A gateway sees all groups itself."""
        return self.config.journal is not None and self.config.mode == "sidecar"

    async def committed_partitions(self) -> set[TopicPartition]:
        """Partitions whose log ends are of interest in any case."""
        return await self._interest()

    async def own_partitions(self) -> set[TopicPartition]:
        """Partitions of which this broker's groups have committed offsets."""
        found: set[TopicPartition] = set()
        for some in self.manager.committed_partitions():
            found |= some
            await trio.lowlevel.checkpoint()
        return found

    def log_ends_unseen(self, partitions: Iterable[TopicPartition], since: float) -> set[TopicPartition]:
        """Those of these partitions whose end no reply has told since then, on the shell's clock."""
        return self.manager.log_bounds.ends_unseen(partitions, self.epoch(since))

    def learn_log_ends(self, ends: Mapping[TopicPartition, int], asked_at: float) -> None:
        """Ends of logs. What clients were told since the broker was asked for them is as new, and stands."""
        self.apply([LogEndsSeen(ends=ends)], asked_at)

    def learn_log_starts(self, starts: Mapping[TopicPartition, int], asked_at: float) -> None:
        """Starts of logs."""
        self.apply([LogStartsSeen(starts=starts)], asked_at)

    def probe_failed(self, reason: str) -> None:
        """The broker did not answer the prober."""
        self._trouble, self.refuses = reason, False
        if self._unreachable_since is None:
            self._unreachable_since = self.epoch(trio.current_time())
        # The one that comes back may have other rules, and want SASL.
        self.rights.forget()
        self.open = self.wants_sasl = False

    def probe_succeeded(self) -> None:
        """The broker answered the prober."""
        self._trouble, self.refuses = None, False
        self._unreachable_since = None

    def probe_refused(self) -> None:
        """The broker is there, and refuses the prober."""
        self.probe_succeeded()
        self.refuses = True

    def ready(self) -> tuple[bool, str]:
        """Whether the broker answers, and what is wrong where it does not."""
        return self._trouble is None, self._trouble or "reachable"

    @property
    def unreachable(self) -> tuple[float, str] | None:
        """Since when the broker does not answer the prober, in seconds since the epoch, and why; None where it does."""
        since = self._unreachable_since
        return None if since is None else (since, self._trouble or "")
