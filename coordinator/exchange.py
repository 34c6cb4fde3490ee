"""A request on its way, and what any of them may say.

Owns: `Exchange`, and the events of errors and signs of life that several APIs share. Must not know:
any one API's messages, nor the state of a group.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.instances import maker
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.events import (
    CoordinatorMoved,
    Event,
    MemberSeen,
    MemberUnknown,
    RebalanceSeen,
    member_seen,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request on its way.

    Attributes:
        request: what is asked.
        version: of the request, and so of its reply.
        token: the number of its connection, a colon, and what tells it from the others on that connection.
        client_id: as the request's header has it.
        client_host: as Java's InetAddress prints it, with its leading slash.
        sent_at: when it went to the broker, or earlier, in seconds since the epoch.
        as_of: how often each asked group (and its offsets) had changed when it was sent.
        notings: how often a group with an unseen past had been noted when it was sent.
        names: topic names by id, as far as they are known.
        removing: whether the sidecar sent it itself, to remove a member for a policy.
    """

    request: Struct
    version: int
    token: str
    client_id: str
    client_host: str
    sent_at: float
    as_of: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    notings: int = 0
    names: Mapping[UUID, str] = field(default_factory=dict)
    removing: bool = False

    @property
    def connection(self) -> str:
        """The connection it is on: the broker handles the requests of one connection in their order."""
        return self.token.partition(":")[0]


begin_exchange = maker(Exchange)


def moved(x: Exchange, group: str, error_code: int) -> Iterable[Event]:
    """The group is another broker's, if that is what the error says."""
    if error_code == ErrorCode.NOT_COORDINATOR:
        yield CoordinatorMoved(group_id=group, sent_at=x.sent_at)


def trouble(
    x: Exchange, group: str, member_id: str, generation: int, error_code: int, *, alive: bool = False
) -> Iterable[Event]:
    """The events of an error that any member's request may get. `alive`: whether the request was a heartbeat."""
    if error_code == ErrorCode.REBALANCE_IN_PROGRESS:
        yield RebalanceSeen(group_id=group, sent_at=x.sent_at, member_id=member_id, generation=generation, alive=alive)
    elif error_code == ErrorCode.UNKNOWN_MEMBER_ID:
        yield MemberUnknown(group_id=group, sent_at=x.sent_at, member_id=member_id)
    yield from moved(x, group, error_code)


def seen(x: Exchange, group: str, member: str, instance: str | None, generation: int, steady: bool) -> MemberSeen:
    """The broker took a request as one of this member and generation."""
    return member_seen(
        group_id=group,
        sent_at=x.sent_at,
        member_id=member,
        instance_id=instance,
        generation=generation,
        client_id=x.client_id,
        client_host=x.client_host,
        steady=steady,
    )
