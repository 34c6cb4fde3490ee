"""A request on its way, and what any of them may say.

Owns: `Exchange`, and the events of errors and signs of life that several APIs share. Must not know:
any one API's messages, nor the state of a group.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.events import (
    CoordinatorMoved,
    Event,
    MemberSeen,
    MemberUnknown,
    RebalanceSeen,
)

LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_MEMBER_EPOCH)
"""Errors that say that the broker has no such member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request on its way.

    Attributes:
        token: tells it from all others.
        as_of: how often each asked group (and its offsets) had changed when it was sent.
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
    names: Mapping[UUID, str] = field(default_factory=dict)
    removing: bool = False


def moved(group: str, error_code: int) -> Iterable[Event]:
    """The group is another broker's, if that is what the error says."""
    if error_code == ErrorCode.NOT_COORDINATOR:
        yield CoordinatorMoved(group_id=group)


def trouble(x: Exchange, group: str, member_id: str, error_code: int) -> Iterable[Event]:
    """The events of an error that any member's request may get."""
    if error_code == ErrorCode.REBALANCE_IN_PROGRESS:
        yield RebalanceSeen(group_id=group, member_id=member_id, seen_at=x.sent_at)
    elif error_code in LOST:
        fenced = error_code == ErrorCode.FENCED_INSTANCE_ID
        yield MemberUnknown(group_id=group, member_id=member_id, fenced=fenced)
    yield from moved(group, error_code)


def seen(x: Exchange, group: str, member: str, instance: str | None, generation: int, steady: bool) -> MemberSeen:
    """The broker took a request as one of this member and generation."""
    return MemberSeen(
        group_id=group,
        member_id=member,
        instance_id=instance,
        generation=generation,
        client_id=x.client_id,
        client_host=x.client_host,
        seen_at=x.sent_at,
        steady=steady,
    )
