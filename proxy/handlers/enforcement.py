"""Asks the policies about a request, and forwards or refuses the request.

If a verdict depends on the group, the sidecar may first ask the broker for the client's rights (`group_read_access`)
and for a description of the group. `error_replies` and `partial_commit` build the replies to refused clients. A
refusal may also remove a member from its group.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from group_sidecar.codecs.headers import RequestHeader, encode_reply
from group_sidecar.codecs.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.facts import ClientRefused
from group_sidecar.coordinator.model.views import GroupView
from group_sidecar.coordinator.wire import exchange_events
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.policies.active_policies import ActivePolicies
from group_sidecar.policies.policy import Policy
from group_sidecar.policies.verdicts import Confirm, Refusal, Refuse, RefusePartitions, Verdict
from group_sidecar.proxy.broker.broker_versions import BrokerVersions
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.broker.group_queries import DESCRIBE_GROUPS_MAX_VERSION
from group_sidecar.proxy.dataplane.outcomes import AnswerInOrder, Forward, HangUp, Origin, PendingReply, RequestOutcome
from group_sidecar.proxy.handlers.error_replies import ThrottleBackoff, error_reply
from group_sidecar.proxy.handlers.group_read_access import GroupReadAccess
from group_sidecar.proxy.handlers.injected_requests import (
    DESCRIPTION_CORRELATION,
    REMOVAL_CORRELATION,
    encode_injected,
)
from group_sidecar.proxy.handlers.partial_commit import without_refused_partitions
from group_sidecar.proxy.handlers.pending_exchange import ExchangeReplies

MAX_CONFIRMATIONS = 3
"""Maximum number of times that the broker describes a group for one request. The group may change after a
description, and then has to be described again. After this number, the last description counts."""
NOBODY = GroupView(group_id="")
"""The view for policies that do not look at the group."""


class _Case(NamedTuple):
    """A request that is judged, with its header and its client."""

    exchange: Exchange
    header: RequestHeader
    origin: Origin

    @property
    def group_id(self) -> str:
        group_id: str = self.exchange.request.group_id  # type: ignore[attr-defined]
        return group_id


class Enforcement:
    """Applies the policies in force to the requests of one broker's clients.

    Args:
        policies: the policies in force.
        copy: the copy of the broker's group coordinator.
        versions: the versions that the broker offers.
        read_access: whether the broker lets a client read a group, which a join requires.
        replies: handles the replies to requests that are forwarded.
        traffic: counts the verdicts.
    """

    def __init__(
        self,
        policies: ActivePolicies,
        copy: CoordinatorCopy,
        versions: BrokerVersions,
        read_access: GroupReadAccess,
        replies: ExchangeReplies,
        traffic: TrafficCounters,
    ) -> None:
        self._policies = policies
        self._copy = copy
        self._versions = versions
        self._read_access = read_access
        self._replies = replies
        self._traffic = traffic
        self._throttle_backoff = ThrottleBackoff()

    def decide(self, exchange: Exchange, header: RequestHeader, origin: Origin, now: float) -> RequestOutcome:
        """Returns what happens to a request.

        If the verdict depends on the group, the policies judge when all earlier requests of the connection have their
        replies. An earlier request may make room in the group, and the broker handles one request of a connection at a
        time.
        """
        policies = self._policies.policies_for(exchange.request.KEY)
        if not policies:
            return self._forward(exchange, now)
        case = _Case(exchange, header, origin)
        if any(policy.depends_on_group for policy in policies):
            return AnswerInOrder(lambda at: self._check_access_and_judge(case, at))
        return self._apply_verdicts(
            [(policy, policy.judge(exchange.request, NOBODY, exchange.principal)) for policy in policies], case, now
        )

    def gone(self, origin: Origin) -> None:
        """Forgets how long the client of a connection that has ended was asked to wait."""
        self._throttle_backoff.gone(origin.number)

    def _forward(self, exchange: Exchange, now: float) -> Forward:
        if events := exchange_events.request_events(exchange):
            self._copy.apply(events, now)
        return Forward(self._replies.pending(exchange))

    def _check_access_and_judge(self, case: _Case, now: float) -> RequestOutcome:
        """Judges a request. Before a join is judged, the sidecar finds out whether the client may read the group.

        Otherwise a join of a client without rights would keep other clients out while the join is in flight. A join
        without rights is forwarded without counting towards the group's size, and the broker refuses it.
        """
        if not _joins(case.exchange.request) or self._read_access.is_granted(case.group_id, case.origin, now):
            return self._judge(case, now)
        denials: list[bool] = []
        question = self._read_access.question(
            case.group_id, case.header, case.origin, now, lambda: denials.append(True)
        )
        return AnswerInOrder(
            lambda at: Forward(self._replies.pending(case.exchange)) if denials else self._judge(case, at), (question,)
        )

    def _judge(self, case: _Case, now: float, asked: int = 0) -> RequestOutcome:
        self._copy.refresh(case.group_id, now)
        asked_often = asked >= MAX_CONFIRMATIONS
        group = self._copy.manager.view_with_occupancy(case.group_id, self._copy.epoch(now), asked_often=asked_often)
        if self._versions.lacks_api(DescribeGroupsRequest.KEY):
            # A broker without DescribeGroups cannot confirm the group's size, so the copy alone decides.
            group = replace(group, occupancy=replace(group.occupancy, certain=True))
        exchange = case.exchange
        policies = self._policies.policies_for(exchange.request.KEY)
        judged = [(policy, policy.judge(exchange.request, group, exchange.principal)) for policy in policies]
        unconfirmed = [policy.name for policy, verdict in judged if isinstance(verdict, Confirm)]
        if unconfirmed and not asked_often:
            for name in unconfirmed:
                self._traffic.policy_confirmed(name)
            return AnswerInOrder(lambda at: self._judge(case, at, asked + 1), (self._description(case, now),))
        return self._apply_verdicts(judged, case, now)

    def _apply_verdicts(self, judged: Iterable[tuple[Policy, Verdict]], case: _Case, now: float) -> RequestOutcome:
        for policy, verdict in judged:
            self._traffic.policy_evaluated(policy.name)
            if not isinstance(verdict, Refuse | RefusePartitions):
                continue
            how = self._refuse_or_end(verdict, case, now) if policy.enforced else None
            self._report_refusal(policy, verdict, case, now)
            if how is not None:
                return how
        self._throttle_backoff.reset(case.origin.number, case.group_id)
        return self._forward(case.exchange, now)

    def _refuse_or_end(self, refusal: Refusal, case: _Case, now: float) -> RequestOutcome:
        """Returns the outcome of a refused request.

        If a policy refuses some partitions of a commit, the sidecar encodes the commit again without these partitions.
        A client id that is not UTF-8 may become too long. The connection is then closed, because a refused request must
        not pass.
        """
        try:
            return self._refuse(refusal, case, now)
        except ValueError:
            return HangUp(CloseReason.MALFORMED_REQUEST)

    def _refuse(self, refusal: Refusal, case: _Case, now: float) -> RequestOutcome:
        exchange, header = case.exchange, case.header
        if isinstance(refusal, RefusePartitions):
            return without_refused_partitions(exchange, header, refusal, self._replies)
        wait = self._throttle_backoff.refused(case.origin.number, case.group_id, now)
        reply = error_reply(exchange.request, exchange.version, refusal.error_code, refusal.message, wait)
        frame = encode_reply(reply, exchange.version, header.correlation_id)
        return AnswerInOrder(lambda _: frame, (self._removal(refusal.remove, case),) if refusal.remove else ())

    def _report_refusal(self, policy: Policy, refusal: Refusal, case: _Case, now: float) -> None:
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
                principal=case.exchange.principal,
            )
        )

    # Requests that the sidecar sends on the client's connection, before the client's request or in its place.

    def _description(self, case: _Case, now: float) -> tuple[bytes, PendingReply]:
        """Returns the request to describe the group, and its pending reply. The broker checks the client's rights."""
        request = DescribeGroupsRequest(groups=(case.group_id,))
        exchange = replace(
            case.exchange,
            request=request,
            version=self._versions.request_version(DescribeGroupsRequest.KEY, DESCRIBE_GROUPS_MAX_VERSION),
            token=case.exchange.token + ":describe",
            sent_at=self._copy.epoch(now),
            as_of={case.group_id: self._copy.manager.changes_of(case.group_id)},
        )
        frame = encode_injected(request, exchange.version, DESCRIPTION_CORRELATION, case.header)
        return frame, self._replies.pending(exchange)

    def _removal(self, member_id: str, case: _Case) -> tuple[bytes, PendingReply]:
        """Returns the LeaveGroup that removes a refused member, on the member's connection, and its pending reply."""
        leave = LeaveGroupRequest(group_id=case.group_id, member_id=member_id)
        exchange = replace(case.exchange, request=leave, version=0, token=case.exchange.token + ":leave", removing=True)
        frame = encode_injected(leave, exchange.version, REMOVAL_CORRELATION, case.header)
        return frame, self._replies.pending(exchange)


def _joins(request: Struct) -> bool:
    """Whether a request asks to join its group."""
    if isinstance(request, ConsumerGroupHeartbeatRequest):
        return request.member_epoch == 0
    return isinstance(request, JoinGroupRequest)
