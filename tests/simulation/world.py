"""Puts a run together: the sidecar, its broker, the network, the clients and the checker."""

import math
from collections import defaultdict, deque
from itertools import count
from random import Random

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.headers import RequestHeader
from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.events import LOST_REQUEST_SECONDS
from group_sidecar.proxy.broker.kafka_client import CLIENT_ID
from group_sidecar.proxy.config.model import Config
from tests.coordinator.model_groups import PREPARING, STABLE
from tests.simulation.broker_connection import BrokerConnection
from tests.simulation.checker import Checker, Sent, aspect_of
from tests.simulation.client import SimulatedClient
from tests.simulation.group_replies import groups_of, groups_shown, is_question
from tests.simulation.history import Effect
from tests.simulation.kafka import Kafka
from tests.simulation.members import Member
from tests.simulation.network import Link, Network, Reset, Weather
from tests.simulation.others import Admin, Asker, Committer, Producer, Transactor, Watcher
from tests.simulation.scenario import Scenario
from tests.simulation.sidecar_host import LISTEN, UPSTREAM, SidecarHost
from tests.simulation.timeline import Timeline, Violation
from tests.simulation.virtual_time import WallTime

MEMBER_GROUPS, PLAIN_GROUPS, TRANSACTIONAL_GROUP = ("g", "h"), ("p", "q"), "x"
AWARE_SECONDS = 2.0
"""A sidecar must know that a group is full if the group has been full and stable for this many seconds."""
LOST_SECONDS = LOST_REQUEST_SECONDS + 0.2
"""A join whose connection has ended may count towards the size of a group for this many seconds."""
RARE_APIS = (
    ApiKey.JOIN_GROUP,
    ApiKey.LEAVE_GROUP,
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)
"""APIs of which clients send few requests."""
RARE_RESETS = 4
"""How many times more often a connection breaks at a request of these APIs than at a request of another API."""
MAX_JOINS = 50
"""How many joins of a group are kept to check refusals."""
MAX_TABLE_ENTRIES = 500
"""The maximum number of entries of each table. The few groups and clients of a run need less."""
OWN_REQUEST_SECONDS = 1.3
"""Seconds after which the sidecar must know the changes that one of its own requests has made."""


class World:
    """One run.

    Attributes:
        requests: the requests of all clients by correlation id.
        joins: the last joins of each group.
        left_to_broker: questions of `askers` that the sidecar forwarded and the broker answered.
        limit: the group.max.size that is in force.
    """

    def __init__(self, scenario: Scenario, wall_time: WallTime, timeline: Timeline) -> None:
        self.scenario, self.wall_time = scenario, wall_time
        seed = scenario.seed
        self.timeline = timeline
        timeline.settle = self.settle
        self.weather = Weather(Random(f"{seed}:weather"), scenario.small_buffers, scenario.distance, scenario.resets)
        self.network = Network(self.timeline, self.weather)
        self.kafka = Kafka(
            self.timeline,
            Random(f"{seed}:kafka"),
            partitions=scenario.partitions,
            initial_delay=scenario.initial_delay,
            eager=scenario.eager,
            may_move=scenario.reads_log,  # Without the log, a sidecar answers only for a cluster of one broker.
        )
        self.kafka.history.ignores_errors = not scenario.reads_log
        self.limit = scenario.limit
        self._limits = [(-math.inf, scenario.limit or 0)]
        """The limits that were in force, each with the time at which it came into force."""
        self.checker = Checker(self.kafka.history, scenario.limit)
        self.requests: dict[int, Sent] = {}
        self.joins: dict[str, deque[Sent]] = defaultdict(lambda: deque(maxlen=MAX_JOINS))
        self.left_to_broker: list[Struct] = []
        self._correlations = count(1)
        self.host = SidecarHost(self.network, self.kafka, Random(f"{seed}:sockets"), self.read_config)
        self.kafka.on_handled = self._handled
        self.kafka.on_replied = self._broker_replied
        self.kafka.on_completed = self._completed
        self.kafka.on_changed = self.notice
        self.kafka.reset = self._reset
        self._sidecar_changed_at = 0.0
        self._unsure: set[str] = set()
        """Groups whose parked joins the sidecar cannot all know: they were rebalancing when a sidecar started or ended,
        or an earlier sidecar forwarded a join."""
        self.host.on_change = self._sidecar_changed
        self.groups = (*MEMBER_GROUPS, *PLAIN_GROUPS, *[TRANSACTIONAL_GROUP] * bool(scenario.transactors))
        for group_id in self.groups:
            self.kafka.know(group_id)
        self.clients = self._make_clients()

    def _make_clients(self) -> list[SimulatedClient]:
        scenario, clients = self.scenario, list[SimulatedClient]()

        def rng(name: str) -> Random:
            return Random(f"{scenario.seed}:{name}")

        for number in range(scenario.members):
            name = f"member-{number}"
            chance = rng(f"{name}:kind")
            group_id = MEMBER_GROUPS[chance.random() < 0.25]
            instance = f"instance-{number}" if chance.random() < scenario.statics else None
            clients.append(Member(self, name, f"10.1.0.{number}", rng(name), group_id, instance))
        for number in range(scenario.committers):
            name = f"committer-{number}"
            group_id = PLAIN_GROUPS[rng(f"{name}:kind").random() < 0.3]
            clients.append(Committer(self, name, f"10.1.1.{number}", rng(name), group_id))
        for number in range(scenario.transactors):
            name = f"transactor-{number}"
            transactor = Transactor(self, name, f"10.1.4.{number}", rng(name), TRANSACTIONAL_GROUP, 100 + number)
            clients.append(transactor)
        for number in range(scenario.askers):
            name = f"asker-{number}"
            clients.append(Asker(self, name, f"10.1.2.{number}", rng(name), self.groups))
        for number in range(scenario.producers):
            name = f"producer-{number}"
            clients.append(Producer(self, name, f"10.1.3.{number}", rng(name)))
        for number in range(scenario.admins):
            name = f"admin-{number}"
            clients.append(Admin(self, name, f"10.1.5.{number}", rng(name), (*MEMBER_GROUPS, PLAIN_GROUPS[0])))
        for number in range(scenario.watchers):
            name = f"watcher-{number}"
            clients.append(Watcher(self, name, f"10.1.6.{number}", rng(name)))
        return clients

    def read_config(self) -> Config:
        """Returns the sidecar's settings."""
        scenario = self.scenario
        return Config.model_validate(
            {
                "listen": LISTEN,
                "upstream": UPSTREAM,
                "sidecar_id": "simulated",
                "io_uring": False,
                "answers": {"exclusive": scenario.exclusive, "verify": scenario.verify},
                "offsets_log": {"read": scenario.reads_log},
                "policies": {"group_max_size": {"limit": self.limit, "mode": "enforce"}} if self.limit else {},
            }
        )

    # Called by clients.

    def next_correlation(self) -> int:
        """Returns a correlation id that no other request has."""
        return next(self._correlations)

    def connect(self, client: SimulatedClient) -> Link | None:
        """Connects a client to the sidecar. Returns None if no sidecar listens."""
        if self.host.listener is None or not self.host.listener.is_open:
            return None
        link, end = self.network.pair(is_instant=client.is_instant)
        self.host.listener.add(end, client.address)
        return link

    def replied(self, sent: Sent, frame: bytes, reply: Struct) -> None:
        """Checks a reply that the sidecar has sent to a client."""
        now = sent.ended_at = self.timeline.now
        is_local = self.checker.check(sent, frame, reply, now)
        if sent.effect is not None:
            sent.effect.show(now)
        for group_id, number in sent.seen.items():
            self.kafka.history.seen(group_id, aspect_of(sent.request), number, now)
        if not is_local and isinstance(sent.client, Asker):
            self.left_to_broker.append(sent.request)
        if is_local and isinstance(sent.request, JoinGroupRequest):
            self._check_refused(sent, sent.request)
        if not is_question(sent.request):
            self.notice_request(sent.request)
        made_by = "sidecar" if is_local else "broker"
        self.timeline.note(f"{sent.client.name} gets {type(reply).__name__} {sent.correlation} of the {made_by}")

    def _check_refused(self, sent: Sent, request: JoinGroupRequest) -> None:
        """Checks that the group of a refused join was full, and that no rebalance waits for the refused member."""
        now, since = self.timeline.now, sent.arrived_at
        assert since is not None
        limit = min(self._limits_since(since))
        states = self.kafka.history.since(request.group_id, since - AWARE_SECONDS)
        if since - self._sidecar_changed_at < AWARE_SECONDS or any(state.error for state in states):
            return
        is_joining = all(state.described.group_state == PREPARING for state in states)
        joins = [each for each in self.joins[request.group_id] if each is not sent]
        others = sum(each.ended_at > now - LOST_SECONDS for each in joins)
        members = max(len(state.described.members) for state in states)
        if is_joining:  # Only joins count that are parked or may become parked. A lost join may be parked for long.
            members = self.kafka.most_parked(request.group_id, since - AWARE_SECONDS)
            # A description does not show whether the lost join of a known member is parked.
            known = {each.member_id for state in states for each in state.described.members}
            others = sum(
                (each.ended_at > now - LOST_SECONDS and not each.is_parked)
                or (each.is_lost and (each.effect is not None or getattr(each.request, "member_id", "") in known))
                for each in joins
            )
        if members + others < limit:
            raise Violation(
                f"{sent.client.name} is refused by {request.group_id}, which has {members} members and {others} joins"
            )
        if is_joining and self.kafka.knows_member(request.group_id, request.member_id):
            raise Violation(f"the rebalance of {request.group_id} waits for {request.member_id}, which was refused")

    def no_reply(self, sent: Sent) -> None:
        """Raises Violation because a client has waited too long for a reply.

        If the broker handled a lost join of the same client after this join, the broker replies only to the lost join.
        If a member is removed while its sync is parked, Kafka never replies to the sync
        (`GroupMetadataManager.removeMemberAndUpdateClassicGroup`). In both cases, this method disconnects the client
        instead of raising.
        """
        request = sent.request
        others = self.joins[request.group_id] if isinstance(request, JoinGroupRequest) else ()
        is_replaced = any(
            each.client is sent.client and each.is_lost and each.handled_at > sent.handled_at for each in others
        )
        is_removed = isinstance(request, SyncGroupRequest) and not self.kafka.knows_member(
            request.group_id, request.member_id
        )
        if is_replaced or is_removed:
            sent.client.disconnect()
            return
        name = type(sent.request).__name__
        raise Violation(f"{sent.client.name} gets no reply to {name} {sent.correlation} of {sent.sent_at:.6f}")

    def ended(self, sent: Sent) -> None:
        """Called when the connection of a request has ended before the reply."""
        sent.ended_at, sent.is_lost = self.timeline.now, True
        if not is_question(sent.request):
            self.notice_request(sent.request)

    def notice_request(self, request: Struct) -> None:
        """Makes the watchers ask about the group that a request may change."""
        group_id = getattr(request, "group_id", None)
        if group_id is not None:
            self.notice(group_id)

    def notice(self, group_id: str) -> None:
        """Makes the watchers ask about a group, because something happens to it."""
        for watcher in self.watchers:
            watcher.notice(group_id)

    def learn_member(self, client: SimulatedClient, member_id: str) -> None:
        """Notes the member id that a client got."""
        self.checker.hosts.setdefault(member_id, set()).add(client.host)

    # Called by the broker.

    def _handled(self, header: RequestHeader, frame: bytes, effect: Effect, connection: BrokerConnection) -> None:
        sent = self.requests.get(header.correlation_id)
        if header.client_id == CLIENT_ID or sent is None or sent.client.name != header.client_id:
            self.timeline.after(OWN_REQUEST_SECONDS, lambda: effect.show(self.timeline.now))
            return
        if sent.effect is not None:
            raise Violation(f"the broker gets request {sent.correlation} of {header.client_id} twice")
        if frame != sent.frame:
            raise Violation(f"the broker gets another request than {header.client_id} sent: {sent.request}")
        if connection.owner not in (None, header.client_id):
            raise Violation(f"a request of {header.client_id} is on the connection of {connection.owner}")
        connection.owner = header.client_id
        sent.effect, sent.connection, sent.handled_at = effect, connection, self.timeline.now
        if isinstance(sent.request, JoinGroupRequest) and self.limit is not None:
            if sent.arrived_at is None or sent.arrived_at <= self._sidecar_changed_at:
                self._unsure.add(sent.request.group_id)  # An earlier sidecar forwarded the join.
            self._check_admitted(sent, sent.request)

    def set_limit(self, limit: int) -> None:
        """Changes the limit in the settings. The caller then makes the sidecar read the settings."""
        self.limit = limit
        self._limits.append((self.timeline.now, limit))

    def _limits_since(self, since: float) -> list[int]:
        """Returns the limits that were in force at a time and afterwards."""
        later = [limit for time, limit in self._limits if time > since]
        return [[limit for time, limit in self._limits if time <= since][-1], *later]

    def _check_admitted(self, sent: Sent, request: JoinGroupRequest) -> None:
        """Checks that the sidecar forwards no join of a new member to a group that is full and stable."""
        since = sent.arrived_at
        if since is None:
            return
        limit = max(self._limits_since(since))
        for state in self.kafka.history.since(request.group_id, since - AWARE_SECONDS):
            members = {each.member_id for each in state.described.members}
            if state.error or state.described.group_state != STABLE or len(members) < limit:
                return
            if request.member_id in members or request.group_instance_id:
                return
        if request.member_id and not self.kafka.knows_member(request.group_id, request.member_id):
            return  # The broker has refused the join, because the client has been removed from the group.
        raise Violation(f"{sent.client.name} joins {request.group_id}, which has {limit} members or more")

    def _broker_replied(self, header: RequestHeader, reply: bytes) -> None:
        sent = self.requests.get(header.correlation_id)
        if sent is not None and sent.client.name == header.client_id:
            sent.broker_reply = reply
            if is_question(sent.request):
                numbers, groups = self.kafka.history.numbers(), groups_of(sent.request, sent.version)
                # A ListGroups reply shows nothing about groups that it lacks. The sidecar learns of a new coordinator
                # from the log, not from the broker's errors.
                shown = groups_shown(sent.request, sent.version) if groups else self.kafka.groups()
                led = [each for each in shown if each in numbers and not self.kafka.error_of(each)]
                sent.seen = {group_id: numbers[group_id] for group_id in led}

    def _reset(self, connection: BrokerConnection, api_key: int) -> Reset | None:
        if not isinstance(connection.link, Link):
            return None
        return self.weather.reset(RARE_RESETS if api_key in RARE_APIS else 1)

    def _completed(self, group_id: str, generation: int, size: int) -> None:
        self.timeline.note(f"broker completes generation {generation} of {group_id} with {size} members")
        is_sure = group_id not in self._unsure
        self._unsure.discard(group_id)
        if self.limit is not None and is_sure:
            limit = max(self._limits_since(self.kafka.history.state_since(group_id, PREPARING) - LOST_SECONDS))
            if size > limit:
                raise Violation(f"generation {generation} of {group_id} has {size} members, above {limit}")

    def _sidecar_changed(self) -> None:
        """Called when a sidecar has started or ended. A new sidecar cannot know the joins that are parked already."""
        self._sidecar_changed_at = self.timeline.now

        self._unsure |= self.kafka.rebalancing()

    # The run.

    def too_large(self) -> list[str]:
        """Returns the stable groups above the limit. The sidecar must shrink them."""
        limit = self.limit
        return [] if limit is None else [each for each, size in self.kafka.sizes().items() if size > limit]

    def check_always(self) -> None:
        """Checks what must hold at any time."""
        if self.host.errors:
            raise Violation(f"the sidecar has logged an error: {self.host.errors[0]}")

    def settle(self) -> None:
        """Runs the sidecar's event loop until nothing is ready, and checks what must hold at any time."""
        self.host.settle()
        self.check_always()

    def check_tables(self) -> None:
        """Checks that every table of the sidecar is within its bound."""
        if (sidecar := self.host.sidecar) is not None:
            for table in sidecar._brokers.tables():
                if table.entries > MAX_TABLE_ENTRIES:
                    raise Violation(f"a table is larger than its bound: {table}")

    @property
    def members(self) -> list[Member]:
        """The clients that are members of groups."""
        return [each for each in self.clients if isinstance(each, Member)]

    @property
    def watchers(self) -> list[Watcher]:
        """The clients that ask about a group when it changes."""
        return [each for each in self.clients if isinstance(each, Watcher)]

    @property
    def askers(self) -> list[Asker]:
        """The clients that ask about groups."""
        return [each for each in self.clients if isinstance(each, Asker)]
