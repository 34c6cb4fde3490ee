"""Clients of a sidecar with a group size limit, and a check of each refusal against the model of Kafka's coordinator.

`LimitedClient` plays the part of `proxy.handlers.enforcement`: it holds joins, asks the broker before a refusal, and
removes members. `LimitedWorld` checks that a broker with this limit could have refused the same join.
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
"""Number of requests that the check of one refusal simulates before it calls the refusal wrong."""
INITIAL_DELAY = 3.0
"""Kafka's default of group.initial.rebalance.delay.ms, in seconds."""

Ways = dict[str, tuple[Exchange, ...]]
"""By connection number, the requests that the broker has not handled, in order."""


class CopyableBroker(Broker):
    """A broker that can be copied, so that a test can simulate the effect of further requests."""

    def copy(self) -> "CopyableBroker":
        """A copy of the broker. It discards its replies, and gives new members ids from another range.

        The copy delays a first rebalance, as brokers do by default. The sidecar cannot know whether a broker does not.
        """
        copied_broker = CopyableBroker(initial_delay=INITIAL_DELAY)
        copied_broker.groups = {group_id: _copied(group) for group_id, group in self.groups.items()}
        copied_broker._now, copied_broker._ids = self._now, count(1_000_000)
        return copied_broker

    def expecting(self, lost: list[Exchange]) -> "CopyableBroker":
        """A copy to which the lost requests may still come. Member ids in lost joins are pending in the copy."""
        copied_broker = self.copy()
        for request in (exchange.request for exchange in lost):
            if isinstance(request, JoinGroupRequest) and request.member_id and request.group_id in copied_broker.groups:
                group = copied_broker.groups[request.group_id]
                if request.member_id not in group.members:
                    group.pending[request.member_id] = FOREVER
        return copied_broker

    def refuses(self, request: JoinGroupRequest) -> bool:
        """Whether this broker would refuse a join now if its group.max.size were `LIMIT`."""
        group = self.groups.get(request.group_id)
        return group is not None and not group.accepts(request.member_id, LIMIT)

    def might_refuse(self, request: JoinGroupRequest, ways: Ways, budget: Iterator[int]) -> bool:
        """Whether the broker would refuse a join after some of the requests in `ways`, in any order.

        Args:
            request: the join.
            ways: requests that the broker may handle first.
            budget: counts the simulated requests; the search stops above `MOST_ORDERS`.
        """
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
    """A request that the broker has handled, and a copy of the broker from before the request."""

    exchange: Exchange
    before: CopyableBroker


class LimitedWorld(World):
    """A world that keeps the broker's past states that a client cannot distinguish from its present state.

    Attributes:
        bypassing_clients: for each client that bypasses the sidecar, the replies to its last join.
        fair: whether each refusal must be one that a broker with the limit could have made.
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
        """See World. Keeps the unanswered requests, because the broker may or may not have handled them."""
        self._lost += [(self._now + LOST_REQUEST_SECONDS, exchange) for exchange in connection.exchanges()]
        super().lose(connection)

    def possible_arrivals(self) -> list[int]:
        """The indexes in `limbo` of the requests that may reach the broker next: the first of each lost connection."""
        ways = [_way(exchange) for _, exchange in self.limbo]
        return [at for at, (until, _) in enumerate(self.limbo) if until > self._now and ways.index(ways[at]) == at]

    def right_to_refuse(self, request: JoinGroupRequest, since: float) -> bool:
        """Whether a broker with this limit could have refused a join that arrived at `since` or later.

        The broker may have handled requests that were unanswered at `since` before or after the join. It may never
        handle requests of lost connections. Any refusal is right for DESCRIPTION_VALID_SECONDS after a request that
        bypassed the sidecar, and for LOST_REQUEST_SECONDS after the loss of a join.
        """
        if self._now < self._unseen_at + DESCRIPTION_VALID_SECONDS:
            return True
        if any(self._now < until and isinstance(lost.request, JoinGroupRequest) for until, lost in self._lost):
            return True
        if any(isinstance(reply, JoinGroupResponse) for c in self.connections for _, reply in c.down):
            return True  # The copy counts this join as parked until its reply is delivered.
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
                continue  # A description changes nothing, and would only add orders to try.
            ways[_way(exchange)] = (*ways.get(_way(exchange), ()), exchange)
        if start.might_refuse(request, ways, count(1)) or self.broker.refuses(request):
            return True
        # A broker that delays first rebalances is slower. It may not have handled these requests yet, although this
        # broker has replied and the replies are not delivered.
        return self._hasty and any(handled.exchange.token not in self._delivered for handled in self._history)

    def _still_lost(self) -> list[Exchange]:
        """The requests of lost connections that may still have an effect.

        Joins never expire here. A description does not show whether a member's join is parked in this generation, or
        was parked in an earlier one and the member has not joined again.
        """
        return [
            exchange
            for until, exchange in self._lost
            if self._now < until or isinstance(exchange.request, JoinGroupRequest)
        ]

    # Clients that bypass the sidecar.

    def join_bypassing_sidecar(self, *, again: bool) -> None:
        """A client that bypasses the sidecar joins. With `again`, the last such client joins again, if there is one."""
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
        """The last client that bypassed the sidecar leaves, if it has received its member id."""
        if self.bypassing_clients[-1]:
            self._unseen(LeaveGroupRequest(group_id="g", member_id=self.bypassing_clients[-1][0].member_id))

    def _unseen(self, request: Struct) -> list[Any]:
        self._history.clear()
        replies = self.bypass(request, 2, "intruder")
        self._unseen_at = self._now
        return replies


def _way(exchange: Exchange) -> str:
    return exchange.token.partition(":")[0]


@dataclass
class LimitedClient(Client):
    """A client to which the sidecar applies the limit.

    Attributes:
        refused: the number of refusals of its joins.
        waiting: requests that it has sent and that the sidecar holds, each with its version.
    """

    world: LimitedWorld
    refused: int = 0
    waiting: deque[tuple[Struct, int]] = field(default_factory=deque)
    _asked: int = 0
    _since: float | None = None
    _removing: bool = False

    def send(self, request: Struct, version: int) -> None:
        """Sends a request. The sidecar handles requests of the client in order."""
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
        asked_often = asked >= MOST_ASKED
        verdict = self._verdict(request, asked_often)
        if isinstance(verdict, Confirm) and not asked_often:
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
        assert right, f"{self.name} is refused, but Kafka would accept the join"
        if verdict.remove:
            leave = LeaveGroupRequest(group_id=self.group_id, member_id=verdict.remove)
            self.world.send(self.connection, leave, 0, self.name, removing=True)
            self._removing = True
        else:
            self._learn_of_refusal()

    def _verdict(self, request: JoinGroupRequest, asked_often: bool) -> Verdict:
        now = self.world.now()
        self.world.facts += self.world.manager.refresh(self.group_id, now)
        policy = GroupMaxSize(GroupMaxSizeSettings(limit=LIMIT))
        group = self.world.manager.view_with_occupancy(self.group_id, now, asked_often=asked_often)
        return policy.judge(request, group, "")

    def _learn_of_refusal(self) -> None:
        self.refused += 1
        self.forget()

    def take(self, reply: Struct) -> None:
        """Handles a reply. Replies to the sidecar's own requests do not reach the client."""
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
        """See Client. Requests that the sidecar holds are lost."""
        self.waiting.clear()
        self._asked, self._removing = 0, False
        super().reconnect()
