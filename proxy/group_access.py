"""Whether the broker lets a client into a group, asked before anything the client sends may count for others.

Owns: `GroupAccess`: the right to READ a group, which every join needs, as the broker has granted it to the client's
principal. Must not know: policies, what becomes of a request.

A join that is in flight counts towards the size of its group. The broker authorizes a join only when the join arrives,
so a client without rights could fill a group with joins that the broker refuses. Therefore the broker is first asked by
a Heartbeat of no member, on the client's own connection: Kafka authorizes it exactly as a join (READ on the group),
answers it at once and changes nothing (`KafkaApis.handleHeartbeatRequest`). A broker that wants SASL first hangs up.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.headers import RequestHeader
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.codecs.schema import Struct
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.disposals import Origin
from group_sidecar.proxy.injecting import injected
from group_sidecar.proxy.principals import Principals
from group_sidecar.proxy.rights import Operation

PROBE_CORRELATION = -12
"""Correlation id of the question. Clients count up from 0."""
_NO_GENERATION = -1


class AccessProbe(NamedTuple):
    """A note for the reply to the question. `take`: is given the reply, decoded."""

    version: int
    take: Callable[[Struct], None]
    api_key: int = ApiKey.HEARTBEAT


class GroupAccess:
    """The rights to join groups that the broker has granted to its clients."""

    def __init__(self, copy: BrokerCopy, principals: Principals) -> None:
        self._copy = copy
        self._principals = principals

    def is_granted(self, group_id: str, origin: Origin, now: float) -> bool:
        """Whether the broker is known to let the client on a connection read a group.

        That is so where the broker has no authorizer and the client has authenticated or need not, and where the
        client's principal was granted the right within `answers.rights_seconds`. A broker that lacks Heartbeat cannot
        be asked, and counts as one that grants all.
        """
        if self._copy.lacks(HeartbeatRequest.KEY):
            return True
        principal, right = self._principals.of(origin, now), (Operation.READ_GROUP, group_id)
        return self._copy.may_see(principal, (right,), self._copy.epoch(now))

    def question(
        self, group_id: str, header: RequestHeader, origin: Origin, now: float, denied: Callable[[], None]
    ) -> tuple[bytes, AccessProbe]:
        """Returns the request that asks the broker, and the note for its reply. A refusal calls `denied`."""
        request = HeartbeatRequest(group_id=group_id, generation_id=_NO_GENERATION, member_id="")
        version = self._copy.version_of(HeartbeatRequest.KEY, 0)

        def take(reply: Any) -> None:
            right = Operation.READ_GROUP, group_id
            principal = self._principals.of(origin, now)
            if reply.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                denied()
            elif principal is not None:
                self._copy.rights.grant(principal, (right,), self._copy.epoch(now))

        return injected(request, version, PROBE_CORRELATION, header), AccessProbe(version, take)
