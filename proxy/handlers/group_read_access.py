"""Asks the broker whether a client may READ a group, before a join of the client counts towards the group's size.

A join that is in flight counts towards the size of its group. The broker authorizes a join only when the join arrives,
so a client without rights could fill a group with joins that the broker refuses. Therefore the sidecar first sends a
Heartbeat without a member id on the client's own connection. Kafka authorizes a Heartbeat exactly as a join (READ on
the group). Kafka answers a Heartbeat without a member id at once, and changes nothing
(`KafkaApis.handleHeartbeatRequest`). A broker that requires SASL closes the connection if the client has not
authenticated.
"""

from collections.abc import Callable
from typing import Any

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.headers import RequestHeader
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest
from group_sidecar.codecs.schema import Struct
from group_sidecar.proxy.broker.authorization_cache import Operation
from group_sidecar.proxy.broker.broker_versions import BrokerVersions
from group_sidecar.proxy.broker.client_access import ClientAccess
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.dataplane.framing import HOLD, FrameAction
from group_sidecar.proxy.dataplane.outcomes import UNCHANGED, Origin, PendingReply, Reply
from group_sidecar.proxy.handlers.injected_requests import ACCESS_CORRELATION, encode_injected
from group_sidecar.proxy.handlers.reply_rewriter import decode_reply

_NO_GENERATION = -1


class PendingAccess(PendingReply):
    """The pending reply to the Heartbeat. `take` is called with the decoded reply."""

    __slots__ = ("_take", "_version")

    def __init__(self, version: int, take: Callable[[Struct], None]) -> None:
        self._version = version
        self._take = take

    @property
    def api_key(self) -> int:
        """See PendingReply."""
        return HeartbeatRequest.KEY

    def classify_reply(self, size: int, now: float) -> FrameAction:
        """See PendingReply."""
        return HOLD

    def reply(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply."""
        self._take(decode_reply(HeartbeatRequest.KEY, self._version, frame).message)
        return UNCHANGED


class GroupReadAccess:
    """Knows which groups the broker lets its clients read, and asks the broker if that is not known.

    Args:
        access: which rights the broker has granted.
        versions: whether the broker has Heartbeat, and in which version.
        copy: converts trio's clock to seconds since the epoch.
    """

    def __init__(self, access: ClientAccess, versions: BrokerVersions, copy: CoordinatorCopy) -> None:
        self._access = access
        self._versions = versions
        self._copy = copy

    def is_granted(self, group_id: str, origin: Origin, now: float) -> bool:
        """Whether the broker is known to let the client on a connection read a group.

        The right is known if the broker has no authorizer and the client has authenticated or need not do so. The right
        is also known if the broker granted the right to the client's principal within `answers.rights_seconds`. A
        broker that lacks Heartbeat cannot be asked, so the right counts as granted.
        """
        if self._versions.lacks_api(HeartbeatRequest.KEY):
            return True
        principal, right = self._access.principals.principal_of(origin, now), (Operation.READ_GROUP, group_id)
        return self._access.may_see(principal, (right,), self._copy.epoch(now))

    def question(
        self, group_id: str, header: RequestHeader, origin: Origin, now: float, denied: Callable[[], None]
    ) -> tuple[bytes, PendingReply]:
        """Returns the Heartbeat that asks the broker, and its pending reply.

        The pending reply calls `denied` if the broker refuses.
        """

        def take(reply: Any) -> None:
            right = Operation.READ_GROUP, group_id
            principal = self._access.principals.principal_of(origin, now)
            if reply.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                denied()
            elif principal is not None:
                self._access.rights.grant(principal, (right,), self._copy.epoch(now))

        return self._heartbeat(group_id, header, take)

    def authentication_question(self, header: RequestHeader) -> tuple[bytes, PendingReply]:
        """Returns a Heartbeat that shows whether a client has authenticated or need not do so, and its pending reply.

        Otherwise the broker closes the connection. The dispatcher learns from any reply that the broker serves the
        client.
        """
        return self._heartbeat("", header, lambda _: None)

    def _heartbeat(
        self, group_id: str, header: RequestHeader, take: Callable[[Any], None]
    ) -> tuple[bytes, PendingReply]:
        request = HeartbeatRequest(group_id=group_id, generation_id=_NO_GENERATION, member_id="")
        version = self._versions.request_version(HeartbeatRequest.KEY, 0)
        return encode_injected(request, version, ACCESS_CORRELATION, header), PendingAccess(version, take)
