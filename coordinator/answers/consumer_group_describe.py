"""Builds the replies to ConsumerGroupDescribe from views of consumer groups (KIP-848).

The caller decides beforehand whether a request may be answered. The reference is Kafka's GroupMetadataManager: a reply
made here equals the broker's reply in every field, except that it may contain the true hosts of members. The order may
also differ where the broker iterates over a hash table. Here groups are in the order of the request, members in the
order of the view, and partitions in the order of their numbers.
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
from group_sidecar.coordinator.answers.group_replies import reported_host
from group_sidecar.coordinator.model.views import ConsumerGroupView, ConsumerMemberView, Partitions

DEFAULT_ASSIGNOR = "uniform"
"""The first entry in the default value of the broker's ``group.consumer.assignors``."""
MEMBER_TYPE_SINCE = 1
"""The ConsumerGroupDescribe version from which a reply contains each member's protocol (KIP-1099)."""
UNKNOWN_MEMBER_TYPE, CLASSIC_MEMBER, CONSUMER_MEMBER = -1, 0, 1
"""Member types in a reply: not reported, classic protocol, consumer protocol."""


class _BrokerBehaviour(NamedTuple):
    """Properties of a reply that differ between brokers, even for the same version of the request."""

    default_assignor: str | None
    sends_error_messages: bool
    true_hosts: bool
    reports_revoking: bool | None


def consumer_group_describe(
    request: ConsumerGroupDescribeRequest,
    version: int,
    views: Mapping[str, ConsumerGroupView | None],
    names: Mapping[UUID, str],
    default_assignor: str | None = DEFAULT_ASSIGNOR,
    *,
    sends_error_messages: bool = True,
    true_hosts: bool = True,
    reports_revoking: bool | None = None,
) -> ConsumerGroupDescribeResponse | None:
    """Describes the requested groups.

    A group of another kind, or one that does not exist, has the error GROUP_ID_NOT_FOUND.

    Args:
        request: the request.
        version: the version of the request, 0 or 1.
        views: the view of each requested group whose name is not empty; None if the group does not exist. For a classic
            group, only the view's kind is used.
        names: topic names by id.
        default_assignor: the assignor that is reported for a group in which no member names one; None if the broker's
            default is not known.
        sends_error_messages: whether the broker adds a message to the error of a group. Kafka 4.0 does; 3.9 does not.
        true_hosts: whether a member's host is the address from which its requests arrive. Otherwise the member has the
            host that the broker reports.
        reports_revoking: whether a member's assignment includes the partitions that the member must still revoke
            (KAFKA-20431). Kafka 4.3.1 includes them; 4.2.0 does not. None if the broker's behaviour is not known.

    Returns:
        The reply, or None if a needed value is not known. Such a value is the name of a topic, the assignor, whether
        the broker reports partitions that are being revoked, the client's authorized operations, or the error for an
        empty group id.
    """
    if request.include_authorized_operations:
        return None
    behaviour = _BrokerBehaviour(default_assignor, sends_error_messages, true_hosts, reports_revoking)
    described = [_group(group_id, version, views.get(group_id), names, behaviour) for group_id in request.group_ids]
    groups = tuple(group for group in described if group is not None)
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups) if len(groups) == len(described) else None


def _group(
    group_id: str, version: int, view: ConsumerGroupView | None, names: Mapping[UUID, str], behaviour: _BrokerBehaviour
) -> DescribedGroup | None:
    if not group_id:
        # Kafka 3.9 fails here with UNKNOWN_SERVER_ERROR, which may be a bug of that release only.
        return _error_group(group_id, ErrorCode.INVALID_GROUP_ID, None) if behaviour.sends_error_messages else None
    if view is None or view.state is None or not view.is_describable:
        reason = "not found" if view is None else "is not a consumer group"
        message = f"Group {group_id} {reason}." if behaviour.sends_error_messages else None
        return _error_group(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
    assignor = _assignor(view, behaviour)
    if assignor is None or not _certain(view, names, behaviour):
        return None
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=view.state,
        group_epoch=view.epoch,
        assignment_epoch=view.assignment_epoch,
        assignor_name=assignor,
        members=tuple(_member(member, version, names, behaviour) for member in view.members),
    )


def _error_group(group_id: str, error: ErrorCode, message: str | None) -> DescribedGroup:
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


def _assignor(view: ConsumerGroupView, behaviour: _BrokerBehaviour) -> str | None:
    if len(view.assignors) > 1:
        return None
    return view.assignors[0] if view.assignors else behaviour.default_assignor or None


def _certain(view: ConsumerGroupView, names: Mapping[UUID, str], behaviour: _BrokerBehaviour) -> bool:
    """Whether the broker's reply is known. Only the broker knows which topics it omits because they were deleted."""
    if behaviour.reports_revoking is None and any(member.revoking for member in view.members):
        return False
    return view.topic_ids <= names.keys()


def _member(member: ConsumerMemberView, version: int, names: Mapping[UUID, str], behaviour: _BrokerBehaviour) -> Member:
    kind = CLASSIC_MEMBER if member.classic else CONSUMER_MEMBER
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=reported_host(member, behaviour.true_hosts),
        subscribed_topic_names=member.subscribed_topic_names,
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(_owned(member, behaviour), names),
        target_assignment=_assignment(member.target_assignment, names),
        member_type=kind if version >= MEMBER_TYPE_SINCE else UNKNOWN_MEMBER_TYPE,
    )


def _owned(member: ConsumerMemberView, behaviour: _BrokerBehaviour) -> Partitions:
    if not behaviour.reports_revoking:
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
