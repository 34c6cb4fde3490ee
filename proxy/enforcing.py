"""Whether a join may go to the broker, and what the client is told where it may not.

Owns: the moment of the verdict, the refusal, and the removal that comes with it. Must not know: the
rule (`policies`), what is known of a group and how (`coordinator`).
"""

from typing import Any

from group_sidecar.codecs.headers import RequestHeader, encode_reply, encode_request
from group_sidecar.codecs.messages.join_group import JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.coordinator import wire
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.coordinator.facts import ClientRefused
from group_sidecar.policies.group_max_size import GroupMaxSize
from group_sidecar.policies.verdicts import Refuse
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.session import Answer, Forward

REMOVAL_CORRELATION = -389
"""Correlation id of requests that the sidecar puts into a client's connection. Clients count up from 0."""
NULL_PROTOCOL_SINCE = 7
"""The JoinGroup version from which an error reply has no protocol name; before, it is empty (KIP-559)."""


class Enforcing:
    """Applies the policies of one broker to joins."""

    def __init__(self, copy: BrokerCopy) -> None:
        self._copy = copy

    def consider(self, exchange: Exchange, header: RequestHeader, now: float) -> Forward | Answer:
        """What is to become of a join.

        One that may pass goes on at once. One that may not is judged again when its turn comes: what the same
        connection sent before may make room.
        """
        policy = self._copy.group_max_size
        if policy is None:
            return self._forward(exchange, now)
        self._copy.traffic.policy_evaluated(policy.name)
        if self._refusal(policy, exchange, now) is None:
            return self._forward(exchange, now)
        return Answer(lambda at: self._refuse_or_forward(policy, exchange, header, at))

    def _forward(self, exchange: Exchange, now: float) -> Forward:
        self._copy.apply(wire.sent(exchange), now)
        return Forward(exchange)

    def _refusal(self, policy: GroupMaxSize, exchange: Exchange, now: float) -> Refuse | None:
        request = exchange.request
        assert isinstance(request, JoinGroupRequest)
        self._copy.refresh(request.group_id, now)
        verdict = policy.judge(request, self._copy.manager.view(request.group_id, self._copy.epoch(now)))
        return verdict if isinstance(verdict, Refuse) else None

    def _refuse_or_forward(
        self, policy: GroupMaxSize, exchange: Exchange, header: RequestHeader, now: float
    ) -> bytes | Forward | Answer:
        refusal = self._refusal(policy, exchange, now)
        if refusal is None:
            return self._forward(exchange, now)
        self._tell(policy, refusal, exchange, now)
        name = None if exchange.version >= NULL_PROTOCOL_SINCE else ""
        reply = JoinGroupResponse(error_code=refusal.error_code, protocol_name=name, leader="", member_id="")
        frame = encode_reply(reply, exchange.version, header.correlation_id)
        if not refusal.remove:
            return frame
        return Answer(lambda _: frame, (_removal(refusal.remove, exchange, header),))

    def _tell(self, policy: GroupMaxSize, refusal: Refuse, exchange: Exchange, now: float) -> None:
        assert isinstance(exchange.request, JoinGroupRequest)
        self._copy.traffic.policy_rejected(policy.name, refusal.error_code)
        self._copy.tell(
            ClientRefused(
                group_id=exchange.request.group_id,
                at=self._copy.epoch(now),
                policy=policy.name,
                error_code=refusal.error_code,
                client_id=exchange.client_id,
                client_host=exchange.client_host,
                size=refusal.size,
                limit=refusal.limit,
            )
        )


def _removal(member_id: str, exchange: Exchange, header: RequestHeader) -> tuple[bytes, Any]:
    """What takes a refused member out of the group at the broker: its own leave, on its own connection."""
    assert isinstance(exchange.request, JoinGroupRequest)
    leave = LeaveGroupRequest(group_id=exchange.request.group_id, member_id=member_id)
    note = Exchange(
        request=leave,
        version=0,
        token=exchange.token + ":leave",
        client_id=exchange.client_id,
        client_host=exchange.client_host,
        sent_at=exchange.sent_at,
        removing=True,
    )
    return encode_request(leave, RequestHeader(ApiKey.LEAVE_GROUP, 0, REMOVAL_CORRELATION, header.client_id)), note
