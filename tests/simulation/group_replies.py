"""Builds the model broker's replies to questions about groups, and its errors for groups of another coordinator."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.join_group import JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_commit import OffsetCommitRequest
from group_sidecar.codecs.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from group_sidecar.codecs.messages.txn_offset_commit import TxnOffsetCommitRequest
from group_sidecar.codecs.schema import Struct
from tests.coordinator.model import Broker
from tests.coordinator.model_groups import ModelGroup, committed
from tests.simulation.history import Offsets

ErrorOf = Callable[[str], int]
"""Returns the coordinator's error for a group, or 0."""
_MANY_GROUPS_SINCE = 8  # The first version of OffsetFetch with several groups.


def is_question(request: Struct) -> bool:
    """Whether a request changes nothing."""
    return isinstance(request, DescribeGroupsRequest | ListGroupsRequest | OffsetFetchRequest)


def groups_of(request: Struct, version: int) -> tuple[str, ...]:
    """Returns the groups that a question names; empty for a question about all groups."""
    if isinstance(request, DescribeGroupsRequest):
        return request.groups
    if isinstance(request, OffsetFetchRequest):
        many = version >= _MANY_GROUPS_SINCE
        return tuple(each.group_id for each in request.groups) if many else (request.group_id,)
    return ()


def groups_shown(request: Struct, version: int) -> tuple[str, ...]:
    """Returns those groups of `groups_of` whose members, or whose offsets of all partitions, the reply contains.

    An OffsetFetch for some partitions lacks the other offsets, so its group is left out.
    """
    if not isinstance(request, OffsetFetchRequest):
        return groups_of(request, version)
    asked = request.groups if version >= _MANY_GROUPS_SINCE else (request,)
    return tuple(each.group_id for each in asked if each.topics is None)


def refusal(request: Struct, version: int, error_of: ErrorOf) -> Struct | None:
    """Returns the reply to a change of a group that this broker does not coordinate; None if the broker does."""
    if isinstance(request, DeleteGroupsRequest):
        results = tuple(DeletableGroupResult(group_id=each, error_code=error_of(each)) for each in request.groups_names)
        # The first result decides, because the clients of the simulation delete one group at a time.
        return DeleteGroupsResponse(throttle_time_ms=0, results=results) if results[0].error_code else None
    if is_question(request) or isinstance(request, TxnOffsetCommitRequest):
        return None
    error = error_of(getattr(request, "group_id", ""))
    if not error:
        return None
    match request:
        case JoinGroupRequest():
            return replace(join_refused(error), member_id=request.member_id)
        case SyncGroupRequest():
            return sync_refused(error)
        case HeartbeatRequest():
            return HeartbeatResponse(error_code=error)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=error)
        case OffsetCommitRequest():
            return committed(request, ErrorCode(error))
        case OffsetDeleteRequest():
            return OffsetDeleteResponse(error_code=error, throttle_time_ms=0, topics=())
    raise AssertionError(request)


def join_refused(error: int) -> JoinGroupResponse:
    """Returns the reply to a join if the broker does not coordinate the group."""
    return JoinGroupResponse(error_code=error, protocol_name="", leader="", member_id="")


def sync_refused(error: int) -> SyncGroupResponse:
    """Returns the reply to a sync if the broker does not coordinate the group."""
    return SyncGroupResponse(error_code=error, assignment=b"")


def reply(
    request: Struct,
    version: int,
    model: Broker,
    error_of: ErrorOf,
    pending_of: Callable[[str], frozenset[tuple[str, int]]],
) -> Struct:
    """Returns the reply to a question."""
    match request:
        case DescribeGroupsRequest():
            return DescribeGroupsResponse(groups=tuple(_describe(each, model, error_of) for each in request.groups))
        case ListGroupsRequest():
            return _list(request, model, error_of)
        case OffsetFetchRequest():
            return offsets_reply(request, version, lambda group_id: _offsets(group_id, model), error_of, pending_of)
    raise AssertionError(request)


def _describe(group_id: str, model: Broker, error_of: ErrorOf) -> DescribedGroup:
    if error := error_of(group_id):
        return refused_group(group_id, error)
    return model.describe(group_id)


def refused_group(group_id: str, error: int) -> DescribedGroup:
    """Returns the description of a group with an error."""
    return DescribedGroup(
        error_code=error, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=()
    )


def _list(request: ListGroupsRequest, model: Broker, error_of: ErrorOf) -> ListGroupsResponse:
    if any(error_of(each) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for each in model.groups):
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=())
    states = [each.lower() for each in request.states_filter]
    groups = (each for each in model.groups.values() if not states or each.state.lower() in states)
    return ListGroupsResponse(error_code=0, groups=tuple(map(listed, groups)))


def listed(group: ModelGroup | DescribedGroup) -> ListedGroup:
    """Returns a group's entry in a ListGroups v5 reply."""
    state = group.state if isinstance(group, ModelGroup) else group.group_state
    return ListedGroup(
        group_id=group.group_id, protocol_type=group.protocol_type, group_state=state, group_type="classic"
    )


def _offsets(group_id: str, model: Broker) -> Offsets:
    group = model.groups.get(group_id)
    return group.offsets if group else {}


def offsets_reply(
    request: OffsetFetchRequest,
    version: int,
    offsets_of: Callable[[str], Offsets],
    error_of: ErrorOf,
    pending_of: Callable[[str], frozenset[tuple[str, int]]],
) -> OffsetFetchResponse:
    """Returns the reply to OffsetFetch."""

    def topics_of(
        group_id: str, asked: Iterable[OffsetFetchRequestTopic] | None
    ) -> tuple[OffsetFetchResponseTopic, ...]:
        unstable = pending_of(group_id) if request.require_stable else frozenset()
        return () if error_of(group_id) else _topics(asked, offsets_of(group_id), unstable)

    if version >= _MANY_GROUPS_SINCE:
        groups = tuple(
            OffsetFetchResponseGroup(
                group_id=each.group_id,
                topics=topics_of(each.group_id, each.topics),
                error_code=error_of(each.group_id),
            )
            for each in request.groups
        )
        return OffsetFetchResponse(groups=groups)
    found = topics_of(request.group_id, request.topics)
    return OffsetFetchResponse(topics=found, error_code=error_of(request.group_id))


def _topics(
    asked: Iterable[OffsetFetchRequestTopic] | None, offsets: Offsets, unstable: frozenset[tuple[str, int]]
) -> tuple[OffsetFetchResponseTopic, ...]:
    wanted: dict[str, list[int]] = {}
    if asked is None:
        for topic, partition in offsets:
            wanted.setdefault(topic, []).append(partition)
    else:
        wanted = {each.name: [*each.partition_indexes] for each in asked}
    return tuple(
        OffsetFetchResponseTopic(
            name=topic,
            partitions=tuple(
                _partition(each, offsets.get((topic, each)), is_unstable=(topic, each) in unstable)
                for each in partitions
            ),
        )
        for topic, partitions in wanted.items()
    )


def _partition(index: int, stored: tuple[int, int, str] | None, *, is_unstable: bool) -> OffsetFetchResponsePartition:
    offset, epoch, metadata = (-1, -1, "") if is_unstable else stored or (-1, -1, "")
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        metadata=metadata,
        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else 0,
    )
