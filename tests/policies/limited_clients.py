"""Clients behind a limit, and what Kafka itself would have done with them.

Owns: the sidecar's part as `proxy.handlers.enforcement` plays it (a join's turn, the question before a refusal, the
removal), and the proof that a refusal is one that a broker with this limit might have given. Must not know: what
clients do next.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.events import DESCRIPTION_VALID_SECONDS, FOREVER, LOST_REQUEST_SECONDS, NEVER
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.policies.group_max_size import GroupMaxSize, GroupMaxSizeSettings
from group_sidecar.policies.verdicts import Confirm, Refuse, Verdict
from tests.coordinator.model import Broker
from tests.coordinator.model_groups import ModelGroup
from tests.coordinator.world import REBALANCE_MS, SESSION_MS, Client, Connection, World

LIMIT = 2
MOST_ASKED = 3
MOST_ORDERS = 1000
"""Orders of requests under way that are tried before a refusal is called wrong."""
INITIAL_DELAY = 3.0
"""Kafka's default of group.initial.rebalance.delay.ms, in seconds."""

Ways = dict[str, tuple[Exchange, ...]]
"""Requests that the broker has not handled, in order, by the connection."""


class CopyableBroker(Broker):
    """A broker of which a copy can be made, to see what would become of it."""

    def copy(self) -> "CopyableBroker":
        """The same, whose replies nobody gets and whose new members have other ids.

        It delays a first rebalance, as brokers do by default: the sidecar cannot know of one that does not.
        """
        copied_broker = CopyableBroker(initial_delay=INITIAL_DELAY)
        copied_broker.groups = {group_id: _copied(group) for group_id, group in self.groups.items()}
        copied_broker._now, copied_broker._ids = self._now, count(1_000_000)
        return copied_broker

    def expecting(self, lost: list[Exchange]) -> "CopyableBroker":
        """A copy to which these are still to come: with their member ids not used yet."""
        copied_broker = self.copy()
        for request in (exchange.request for exchange in lost):
            if isinstance(request, JoinGroupRequest) and request.member_id and request.group_id in copied_broker.groups:
                group = copied_broker.groups[request.group_id]
                if request.member_id not in group.members:
                    group.pending[request.member_id] = FOREVER
        return copied_broker

    def refuses(self, request: JoinGroupRequest) -> bool:
        """Whether a limit of its own would keep a join out now."""
        group = self.groups.get(request.group_id)
        return group is not None and not group.accepts(request.member_id, LIMIT)

    def might_refuse(self, request: JoinGroupRequest, ways: Ways, budget: Iterator[int]) -> bool:
        """Whether it would once it has handled some of these requests, in one order or another."""
        if self.refuses(request):
            return True
        for way, (exchange, *rest) in sorted(ways.items(), key=_joins_first):
            if next(budget) > MOST_ORDERS:
                return False
            copied_broker = self.copy()
            copied_broker.handle(
                exchange.request, exchange.version, exchange.client_id, exchange.client_host, self._now, _nobody
            )
            left = {**ways, way: tuple(rest)} if rest else {w: each for w, each in ways.items() if w != way}
            if copied_broker.might_refuse(request, left, budget):
                return True
        return False


def _joins_first(way: tuple[str, tuple[Exchange, ...]]) -> bool:
    return not isinstance(way[1][0].request, JoinGroupRequest)


def _nobody(_: Any) -> None:
    pass


def _copied(group: ModelGroup) -> ModelGroup:
    members = {
        member_id: replace(member, join=member.join and _nobody, sync=member.sync and _nobody)
        for member_id, member in group.members.items()
    }
    return replace(
        group, members=members, pending=dict(group.pending), unsynced=set(group.unsynced), offsets=dict(group.offsets)
    )


class Handled(NamedTuple):
    """A request that the broker has handled, and the broker before it did."""

    exchange: Exchange
    before: CopyableBroker


class LimitedWorld(World):
    """A world that remembers what of the broker's past a client could not tell from its present.

    Attributes:
        bypassing_clients: replies to joins around the sidecar.
        fair: whether each refusal must be right.
    """

    broker: CopyableBroker

    def __init__(self, *, initial_delay: float = 0.0, exclusive: bool = True, fair: bool = True) -> None:
        super().__init__(CopyableBroker(initial_delay=initial_delay), exclusive=exclusive)
        self.fair = fair
        self.bypassing_clients: list[list[Any]] = []
        self._history: list[Handled] = []
        self._lost: list[tuple[float, Exchange]] = []
        self._unseen_at = NEVER
        self._hasty = initial_delay < INITIAL_DELAY
        self._delivered: dict[str, float] = {}

    def _handle(self, exchange: Exchange, respond: Any) -> None:
        self._history.append(Handled(exchange, self.broker.copy()))
        super()._handle(exchange, respond)

    def deliver(self, connection: Connection) -> Struct | None:
        """See World."""
        if connection.down:
            self._delivered[connection.down[0][0].token] = self._now
        return super().deliver(connection)

    def pass_time(self, seconds: float) -> None:
        """See World."""
        super().pass_time(seconds)
        self._history = [handled for handled in self._history if handled.exchange.token not in self._delivered]
        if self.bypassing_clients:
            self._unseen_at = self._now

    def lose(self, connection: Connection) -> None:
        """See World. Whether the broker has had what was not answered, nobody else can tell."""
        self._lost += [(self._now + LOST_REQUEST_SECONDS, exchange) for exchange in connection.exchanges()]
        super().lose(connection)

    def possible_arrivals(self) -> list[int]:
        """Which requests of broken connections may reach the broker next."""
        ways = [_way(exchange) for _, exchange in self.limbo]
        return [at for at, (until, _) in enumerate(self.limbo) if until > self._now and ways.index(ways[at]) == at]

    def right_to_refuse(self, request: JoinGroupRequest, since: float) -> bool:
        """Whether a broker with this limit might have refused a join that came to it at `since` or after.

        What was not answered by then it may have handled before or after, or never where its connection has gone. Of
        what happened around the sidecar, the last word is good for a second; and for a second after it was lost a
        join keeps its place in any case.
        """
        if self._now < self._unseen_at + DESCRIPTION_VALID_SECONDS:
            return True
        if any(self._now < until and isinstance(lost.request, JoinGroupRequest) for until, lost in self._lost):
            return True
        if any(isinstance(reply, JoinGroupResponse) for c in self.connections for _, reply in c.down):
            return True  # Whoever has been answered waits no more, but that is not known before it has passed by.
        undone: list[Exchange] = []
        start = self.broker
        for exchange, before in reversed(self._history):
            if self._delivered.get(exchange.token, since) < since:
                break
            start = before
            undone.insert(0, exchange)
            if start.refuses(request):
                return True
        start = start.expecting(lost := self._still_lost())
        ways: Ways = {}
        for exchange in (*undone, *(each for c in self.connections for each in c.up), *lost):
            if isinstance(exchange.request, DescribeGroupsRequest):
                continue  # It changes nothing, and would only make for more orders.
            ways[_way(exchange)] = (*ways.get(_way(exchange), ()), exchange)
        if start.might_refuse(request, ways, count(1)) or self.broker.refuses(request):
            return True
        # A broker that delays first rebalances may be behind this one, where that has not answered yet.
        return self._hasty and any(handled.exchange.token not in self._delivered for handled in self._history)

    def _still_lost(self) -> list[Exchange]:
        """What may be under way yet.

        Of a join a description does not tell whether it waits, or has waited in a generation before and not come again.
        """
        return [
            exchange
            for until, exchange in self._lost
            if self._now < until or isinstance(exchange.request, JoinGroupRequest)
        ]

    # Who does not come through the sidecar.

    def join_bypassing_sidecar(self, *, again: bool) -> None:
        """Somebody joins around the sidecar, or joins again."""
        old = self.bypassing_clients.pop() if again and self.bypassing_clients else None
        member_id = old[0].member_id if old else ""
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=(JoinGroupProtocol(name="range", metadata=b"!"),),
        )
        self.bypassing_clients.append(self._unseen(request))

    def bypassing_client_leaves(self) -> None:
        """The one that joined last leaves, if it has learnt who it is."""
        if self.bypassing_clients[-1]:
            self._unseen(LeaveGroupRequest(group_id="g", member_id=self.bypassing_clients[-1][0].member_id))

    def _unseen(self, request: Struct) -> list[Any]:
        self._history.clear()
        replies = self.around(request, 2, "intruder")
        self._unseen_at = self._now
        return replies


def _way(exchange: Exchange) -> str:
    return exchange.token.partition(":")[0]


@dataclass
class LimitedClient(Client):
    """A client behind the policy. `refused`: how often it was; `waiting`: what it has sent and may not pass yet."""

    world: LimitedWorld
    refused: int = 0
    waiting: deque[tuple[Struct, int]] = field(default_factory=deque)
    _asked: int = 0
    _since: float | None = None
    _removing: bool = False

    def send(self, request: Struct, version: int) -> None:
        """Sends a request, which passes when its turn comes."""
        self.waiting.append((request, version))
        self._pass()

    def _pass(self) -> None:
        while self.waiting and not self._asked and not self._removing:
            request, version = self.waiting[0]
            if not isinstance(request, JoinGroupRequest):
                super().send(request, version)
                self.waiting.popleft()
            elif any(True for _ in self.connection.exchanges()):
                return
            else:
                self._since = self.world.now()
                self._judge(0)

    def _judge(self, asked: int) -> None:
        request, version = self.waiting[0]
        assert isinstance(request, JoinGroupRequest)
        verdict = self._verdict(request)
        if isinstance(verdict, Confirm) and asked < MOST_ASKED:
            self._asked = asked + 1
            as_of = {self.group_id: self.world.manager.changes_of(self.group_id)}
            question = DescribeGroupsRequest(groups=(self.group_id,))
            self.world.send(self.connection, question, 5, self.name, as_of=as_of)
            return
        self.waiting.popleft()
        if not isinstance(verdict, Refuse):
            super().send(request, version)
            return
        assert self._since is not None
        right = not self.world.fair or self.world.right_to_refuse(request, self._since)
        assert right, f"{self.name} is refused, and Kafka would not"
        if verdict.remove:
            leave = LeaveGroupRequest(group_id=self.group_id, member_id=verdict.remove)
            self.world.send(self.connection, leave, 0, self.name, removing=True)
            self._removing = True
        else:
            self._learn_of_refusal()

    def _verdict(self, request: JoinGroupRequest) -> Verdict:
        now = self.world.now()
        self.world.facts += self.world.manager.refresh(self.group_id, now)
        policy = GroupMaxSize(GroupMaxSizeSettings(limit=LIMIT))
        return policy.judge(request, self.world.manager.view_with_occupancy(self.group_id, now))

    def _learn_of_refusal(self) -> None:
        self.refused += 1
        self.forget()

    def take(self, reply: Struct) -> None:
        """Learns from a reply, where it was the client who had asked."""
        if self._asked:
            asked, self._asked = self._asked, 0
            self._judge(asked)
        elif self._removing:
            self._removing = False
            self._learn_of_refusal()
        else:
            super().take(reply)
        self._pass()

    def go_on(self) -> None:
        """See Client."""
        if not self.waiting:
            super().go_on()

    def reconnect(self) -> None:
        """See Client. What has not passed yet is gone."""
        self.waiting.clear()
        self._asked, self._removing = 0, False
        super().reconnect()
