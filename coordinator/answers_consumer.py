"""Views of groups of the new protocol, to replies.

Owns: how ConsumerGroupDescribe is answered in each version. Must not know: whether it may be, which the caller decides
by what it has of the groups' partitions. The reference is Kafka's GroupMetadataManager: an answer made here equals the
broker's, field by field. Only in the order of what the broker keeps in hash tables it does not: groups come as they
were asked for, members by their ids, partitions by their numbers.
"""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from group_sidecar.coordinator.answers import host_told
from group_sidecar.coordinator.views import ConsumerGroupView, ConsumerMemberView, Partitions

DEFAULT_ASSIGNOR = "uniform"
"""The first of the broker's ``group.consumer.assignors`` where nobody has set them."""
MEMBER_TYPE_SINCE = 1
"""The ConsumerGroupDescribe version from which it is told which protocol a member speaks (KIP-1099)."""
UNTOLD, CLASSIC_MEMBER, CONSUMER_MEMBER = -1, 0, 1
"""Member types."""


class _Habits(NamedTuple):
    """What brokers do each in their way, whatever the version of the request; and where members are to be."""

    default_assignor: str | None
    explains: bool
    true_hosts: bool
    tells_revoking: bool | None


def consumer_group_describe(
    request: ConsumerGroupDescribeRequest,
    version: int,
    views: Mapping[str, ConsumerGroupView | None],
    names: Mapping[UUID, str],
    default_assignor: str | None = DEFAULT_ASSIGNOR,
    *,
    explains: bool = True,
    true_hosts: bool = True,
    tells_revoking: bool | None = None,
) -> ConsumerGroupDescribeResponse | None:
    """Describes the groups asked for; those of another kind, and those that are not there, are GROUP_ID_NOT_FOUND.

    Args:
        request: what is asked.
        version: 0 or 1.
        views: each group asked for but the one without a name; None where there is no such group. Of a classic group
            the view's kind is enough.
        names: topic names by id.
        default_assignor: told of groups in which no member names one; None where the broker's is not known.
        explains: whether the broker says in words why it does not tell of a group. 3.9 does not, 4.0 does.
        true_hosts: as of `describe_groups`.
        tells_revoking: whether the broker has what a member has yet to give up in its assignment (KAFKA-20431). 4.2.0
            leaves it out, 4.3.1 has it; None where that is not known.

    Returns:
        The reply, or None where it would need something that is not known: a topic's name, which of several assignors
        the broker takes, what it tells of partitions that are being revoked, or what the client is authorized to do.
    """
    if request.include_authorized_operations:
        return None
    habits = _Habits(default_assignor, explains, true_hosts, tells_revoking)
    told = [_group(group_id, version, views.get(group_id), names, habits) for group_id in request.group_ids]
    groups = tuple(group for group in told if group is not None)
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups) if len(groups) == len(told) else None


def _group(
    group_id: str, version: int, view: ConsumerGroupView | None, names: Mapping[UUID, str], habits: _Habits
) -> DescribedGroup | None:
    if not group_id:
        # Here 3.9 fails with UNKNOWN_SERVER_ERROR, which may well be a slip of one release.
        return _refused(group_id, ErrorCode.INVALID_GROUP_ID, None) if habits.explains else None
    if view is None or view.state is None or not view.told:
        reason = "not found" if view is None else "is not a consumer group"
        message = f"Group {group_id} {reason}." if habits.explains else None
        return _refused(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
    assignor = _assignor(view, habits)
    if assignor is None or not _certain(view, names, habits):
        return None
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=view.state,
        group_epoch=view.epoch,
        assignment_epoch=view.assignment_epoch,
        assignor_name=assignor,
        members=tuple(_member(member, version, names, habits) for member in view.members),
    )


def _refused(group_id: str, error: ErrorCode, message: str | None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


def _assignor(view: ConsumerGroupView, habits: _Habits) -> str | None:
    if len(view.assignors) > 1:
        return None
    return view.assignors[0] if view.assignors else habits.default_assignor or None


def _certain(view: ConsumerGroupView, names: Mapping[UUID, str], habits: _Habits) -> bool:
    """Whether the broker's answer is known. It leaves out topics that are gone, which nobody else knows of."""
    if habits.tells_revoking is None and any(member.revoking for member in view.members):
        return False
    return view.topic_ids <= names.keys()


def _member(member: ConsumerMemberView, version: int, names: Mapping[UUID, str], habits: _Habits) -> Member:
    kind = CLASSIC_MEMBER if member.classic else CONSUMER_MEMBER
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=host_told(member, habits.true_hosts),
        subscribed_topic_names=member.subscribed_topic_names,
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(_owned(member, habits), names),
        target_assignment=_assignment(member.target_assignment, names),
        member_type=kind if version >= MEMBER_TYPE_SINCE else UNTOLD,
    )


def _owned(member: ConsumerMemberView, habits: _Habits) -> Partitions:
    if not habits.tells_revoking:
        return member.assignment
    topics = dict.fromkeys((*member.assignment, *member.revoking))
    return {
        topic_id: tuple(sorted(member.assignment.get(topic_id, ()) + member.revoking.get(topic_id, ())))
        for topic_id in topics
    }


def _assignment(owned: Partitions, names: Mapping[UUID, str]) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=partitions)
            for topic_id, partitions in owned.items()
        )
    )
