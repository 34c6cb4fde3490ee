"""Whether a request may go to the broker, and what happens where it may not.

Owns: the moment of the verdict, asking the broker before it, the refusal, and the removal that comes with it. Must not
know: the rules (`policies`), what is known of a group and how (`coordinator`), how the broker is asked for a client's
rights (`group_access`), what a refusal looks like (`refusals`, `withholding`).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from group_sidecar.codecs.headers import RequestHeader, encode_reply
from group_sidecar.codecs.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator import wire
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.coordinator.facts import ClientRefused
from group_sidecar.coordinator.views import GroupView
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.policies.policy import Policy
from group_sidecar.policies.verdicts import Confirm, Refusal, Refuse, RefusePartitions, Verdict
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.disposals import Answer, Disposal, Forward, HangUp, Origin
from group_sidecar.proxy.errands import DESCRIBE_UNTIL
from group_sidecar.proxy.group_access import GroupAccess
from group_sidecar.proxy.injecting import injected
from group_sidecar.proxy.principals import Principals
from group_sidecar.proxy.refusals import Patience, error_reply
from group_sidecar.proxy.withholding import trimmed

REMOVAL_CORRELATION, DESCRIPTION_CORRELATION = -389, -15
"""Correlation ids of requests that the sidecar puts into a client's connection. Clients count up from 0."""
MOST_ASKED = 3
"""How often the broker is asked about a group for one request: what it says may be overtaken."""
NOBODY = GroupView(group_id="")
"""For policies that do not look at the group."""


class _Case(NamedTuple):
    """A request that is judged, and who sent it."""

    exchange: Exchange
    header: RequestHeader
    origin: Origin

    @property
    def group_id(self) -> str:
        group_id: str = self.exchange.request.group_id  # type: ignore[attr-defined]
        return group_id


class Enforcing:
    """Applies the policies in force to the requests of one broker's clients."""

    def __init__(self, copy: BrokerCopy, principals: Principals) -> None:
        self._copy = copy
        self._access = GroupAccess(copy, principals)
        self._patience = Patience()

    def consider(self, exchange: Exchange, header: RequestHeader, origin: Origin, now: float) -> Disposal:
        """What is to become of a request.

        Where the verdict depends on the group it is given when the request's turn comes: what the same connection
        sent before may make room, and the broker handles one request of a connection at a time.
        """
        policies = self._copy.rulebook.judging(exchange.request.KEY)
        if not policies:
            return self._forward(exchange, now)
        case = _Case(exchange, header, origin)
        if any(policy.asks_about for policy in policies):
            return Answer(lambda at: self._let_near(case, at))
        return self._carry_out([(policy, policy.judge(exchange.request, NOBODY)) for policy in policies], case, now)

    def gone(self, origin: Origin) -> None:
        """A client's connection is over."""
        self._patience.gone(origin.number)

    def _forward(self, exchange: Exchange, now: float) -> Forward:
        if events := wire.sent(exchange):
            self._copy.apply(events, now)
        return Forward(exchange)

    def _let_near(self, case: _Case, now: float) -> Disposal:
        """Judges a request; a join only once the broker is known to let its sender into the group.

        Otherwise a join of a client without rights would keep others out for as long as it is in flight. Such a join
        goes to the broker, which refuses it, and counts for nobody.
        """
        if not _joins(case.exchange.request) or self._access.is_granted(case.group_id, case.origin, now):
            return self._judge(case, now)
        denials: list[bool] = []
        question = self._access.question(case.group_id, case.header, case.origin, now, lambda: denials.append(True))
        return Answer(lambda at: Forward(case.exchange) if denials else self._judge(case, at), (question,))

    def _judge(self, case: _Case, now: float, asked: int = 0) -> Disposal:
        self._copy.refresh(case.group_id, now)
        group = self._copy.manager.seated(case.group_id, self._copy.epoch(now))
        if self._copy.lacks(DescribeGroupsRequest.KEY):
            # Such a broker would close the client's connection over it: the best that is known will do.
            group = replace(group, seats=replace(group.seats, certain=True))
        policies = self._copy.rulebook.judging(case.exchange.request.KEY)
        judged = [(policy, policy.judge(case.exchange.request, group)) for policy in policies]
        unsure = [policy.name for policy, verdict in judged if isinstance(verdict, Confirm)]
        if unsure and asked < MOST_ASKED:
            for name in unsure:
                self._copy.traffic.policy_confirmed(name)
            return Answer(lambda at: self._judge(case, at, asked + 1), (self._description(case, now),))
        return self._carry_out(judged, case, now)

    def _carry_out(self, judged: Iterable[tuple[Policy, Verdict]], case: _Case, now: float) -> Disposal:
        for policy, verdict in judged:
            self._copy.traffic.policy_evaluated(policy.name)
            if not isinstance(verdict, Refuse | RefusePartitions):
                continue
            how = self._refuse_or_end(verdict, case, now) if policy.enforced else None
            self._tell(policy, verdict, case, now)
            if how is not None:
                return how
        self._patience.let_in(case.origin.number, case.group_id)
        return self._forward(case.exchange, now)

    def _refuse_or_end(self, refusal: Refusal, case: _Case, now: float) -> Disposal:
        """How a request is refused. A client id that was not UTF-8 may be too long to be written again before what is
        left of a commit: then the connection ends, because a request that is refused must not pass.
        """
        try:
            return self._refuse(refusal, case, now)
        except ValueError:
            return HangUp(CloseReason.MALFORMED_REQUEST)

    def _refuse(self, refusal: Refusal, case: _Case, now: float) -> Disposal:
        exchange, header = case.exchange, case.header
        if isinstance(refusal, RefusePartitions):
            return trimmed(exchange, header, refusal)
        wait = self._patience.refused(case.origin.number, case.group_id, now)
        reply = error_reply(exchange.request, exchange.version, refusal.error_code, refusal.message, wait)
        frame = encode_reply(reply, exchange.version, header.correlation_id)
        return Answer(lambda _: frame, (_removal(refusal.remove, case),) if refusal.remove else ())

    def _tell(self, policy: Policy, refusal: Refusal, case: _Case, now: float) -> None:
        self._copy.refused(
            ClientRefused(
                group_id=case.group_id,
                at=self._copy.epoch(now),
                policy=policy.name,
                error_code=refusal.error_code,
                client_id=case.exchange.client_id,
                client_host=case.exchange.client_host,
                size=refusal.size,
                limit=refusal.limit,
                enforced=policy.enforced,
            )
        )

    # What the sidecar puts into the client's connection, before its request or in its place.

    def _description(self, case: _Case, now: float) -> tuple[bytes, Any]:
        """Has the broker tell who is in the group, in the name of who would join it: that takes the same right."""
        request = DescribeGroupsRequest(groups=(case.group_id,))
        note = replace(
            case.exchange,
            request=request,
            version=self._copy.version_of(DescribeGroupsRequest.KEY, DESCRIBE_UNTIL),
            token=case.exchange.token + ":describe",
            sent_at=self._copy.epoch(now),
            as_of={case.group_id: self._copy.manager.changes_of(case.group_id)},
        )
        return injected(request, note.version, DESCRIPTION_CORRELATION, case.header), note


def _joins(request: Struct) -> bool:
    """Whether a request asks for a place in its group."""
    if isinstance(request, ConsumerGroupHeartbeatRequest):
        return request.member_epoch == 0
    return isinstance(request, JoinGroupRequest)


def _removal(member_id: str, case: _Case) -> tuple[bytes, Any]:
    """What takes a refused member out of the group at the broker: its own leave, on its own connection."""
    leave = LeaveGroupRequest(group_id=case.group_id, member_id=member_id)
    note = replace(case.exchange, request=leave, version=0, token=case.exchange.token + ":leave", removing=True)
    return injected(leave, note.version, REMOVAL_CORRELATION, case.header), note
