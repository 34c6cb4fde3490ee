"""Defines `Exchange`, and builds the events that several APIs share: those of errors and of accepted requests."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.fast_instances import fast_constructor
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.events import (
    Event,
    MemberSeen,
    MemberUnknown,
    NotCoordinatorReplied,
    RebalanceSeen,
    member_seen,
)
from group_sidecar.coordinator.model.views import GroupKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request, and what the sidecar knew when it sent the request to the broker. Callers pass the reply separately.

    Attributes:
        request: the decoded request.
        version: the version of the request and of its reply.
        token: the number of the connection, a colon, and a suffix that identifies the request on that connection.
        client_id: the client id from the request's header.
        client_host: the client's address as Java's InetAddress prints it, with a leading slash.
        principal: the client's user as Kafka writes it, for instance `User:CN=alice`; empty if it is not known.
        sent_at: when the request was sent to the broker, or an earlier time, in seconds since the epoch.
        as_of: for each group that the request names, the numbers of the last changes of the group and of its offsets at
            `sent_at`.
        note_count: how many notes of groups with unseen history the copy had made by `sent_at`. The reply to a
            ListGroups does not show the state of groups that were noted later.
        names: the known topic names, by topic id.
        removing: whether the sidecar itself sent the request, to remove a member for a policy.
    """

    request: Struct
    version: int
    token: str
    client_id: str
    client_host: str
    sent_at: float
    as_of: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    note_count: int = 0
    names: Mapping[UUID, str] = field(default_factory=dict)
    removing: bool = False
    principal: str = ""

    @property
    def connection(self) -> str:
        """The number of the connection. The broker handles the requests of one connection in order."""
        return self.token.partition(":")[0]


new_exchange = fast_constructor(Exchange)


def not_coordinator_events(exchange: Exchange, group: str, error_code: int) -> Iterable[Event]:
    """Yields a `NotCoordinatorReplied` event if the error is NOT_COORDINATOR."""
    if error_code == ErrorCode.NOT_COORDINATOR:
        yield NotCoordinatorReplied(group_id=group, sent_at=exchange.sent_at)


def error_events(
    exchange: Exchange,
    group: str,
    member_id: str,
    instance_id: str | None,
    generation: int,
    error_code: int,
    *,
    protocol: GroupKind | None = GroupKind.CLASSIC,
    is_heartbeat: bool = False,
) -> Iterable[Event]:
    """Yields the events of an error that any member's request may get.

    `protocol` is the kind of group whose members send such requests; None for members of all kinds. `is_heartbeat` is
    whether the request was a Heartbeat.
    """
    if error_code == ErrorCode.REBALANCE_IN_PROGRESS:
        yield RebalanceSeen(
            group_id=group,
            sent_at=exchange.sent_at,
            member_id=member_id,
            generation=generation,
            is_heartbeat=is_heartbeat,
        )
    elif error_code == ErrorCode.UNKNOWN_MEMBER_ID:
        yield MemberUnknown(
            group_id=group, sent_at=exchange.sent_at, member_id=member_id, instance_id=instance_id, protocol=protocol
        )
    yield from not_coordinator_events(exchange, group, error_code)


def member_seen_event(
    exchange: Exchange, group: str, member: str, instance: str | None, generation: int, no_rebalance: bool
) -> MemberSeen:
    """Returns the event of a request that the broker accepted from this member in this generation.

    `no_rebalance` is whether the reply shows that the group does not rebalance.
    """
    return member_seen(
        group_id=group,
        sent_at=exchange.sent_at,
        member_id=member,
        instance_id=instance,
        generation=generation,
        client_id=exchange.client_id,
        client_host=exchange.client_host,
        principal=exchange.principal,
        no_rebalance=no_rebalance,
    )
