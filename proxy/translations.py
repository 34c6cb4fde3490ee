"""Questions in versions that the broker lacks, put to it in versions that it has.

Owns: what the broker is asked instead, and what the client is told of its replies; for OffsetFetch that is in
`translated_offsets`. Must not know: when the broker is asked rather than the copy (`answering`), how questions get to
it (`relaying`), which versions are translated (`additions`, which promises that nothing has to be guessed here).
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.list_groups import (
    STATES_SINCE,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator import answers
from group_sidecar.coordinator.listing import asked_for
from group_sidecar.coordinator.views import GroupKind, GroupState
from group_sidecar.coordinator.wire_groups import STATES
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.errands import DESCRIBE_UNTIL
from group_sidecar.proxy.relaying import Asked, Steps, Unanswered
from group_sidecar.proxy.translated_offsets import offsets_not_told, translate_offsets

OPERATIONS_SINCE = 3
"""The DescribeGroups version from which it is told what the client may do with a group (KIP-430)."""
DESCRIBED_AT_ONCE = 100
"""Groups in one question: members may have sent much."""


def translate(request: Struct, version: int, copy: BrokerCopy) -> Steps:
    """The steps to answer a question in a version that the sidecar adds (`BrokerCopy.adds`).

    Where a reply of the broker's cannot be read, the client is told to look for the coordinator, and so to ask again.
    """
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    try:
        if isinstance(request, ListGroupsRequest):
            otherwise: Struct = ListGroupsResponse(error_code=error, groups=())
            return (yield from _list(request, version, copy))
        if isinstance(request, DescribeGroupsRequest):
            otherwise = DescribeGroupsResponse(groups=tuple(answers.unfit(group, error) for group in request.groups))
            return (yield from _describe(request, version, copy))
        assert isinstance(request, OffsetFetchRequest)
        otherwise = offsets_not_told(request, version, error)
        return (yield from translate_offsets(request, version, copy))
    except Unanswered:
        return otherwise


def operations(request: DescribeGroupsRequest, copy: BrokerCopy) -> int:
    """What the client may do with a group where the broker cannot say: all, if nobody is there to forbid it."""
    everything = request.include_authorized_operations and not copy.hides
    return answers.ALL_OPERATIONS if everything else answers.OPERATIONS_UNTOLD


# ListGroups.


def _list(request: ListGroupsRequest, version: int, copy: BrokerCopy) -> Steps:
    """Has the broker list all, since old ones filter otherwise or not at all; they too list what is loaded already
    beside the error that some is not.
    """
    asked = copy.version_of(ListGroupsRequest.KEY, version)
    [reply] = yield [Asked(ListGroupsRequest(), asked)]
    assert isinstance(reply, ListGroupsResponse)
    groups: Sequence[ListedGroup] = reply.groups
    if asked < STATES_SINCE <= version:
        states = yield from _states([group.group_id for group in groups], copy)
        groups = [replace(group, group_state=states.get(group.group_id, "")) for group in groups]
        groups = [group for group in groups if group.group_state != GroupState.DEAD]  # It has gone meanwhile.
    classic = (replace(group, group_type=GroupKind.CLASSIC.value) for group in groups)
    return ListGroupsResponse(error_code=reply.error_code, groups=tuple(filter(asked_for(request), classic)))


def _states(groups: Sequence[str], copy: BrokerCopy) -> Generator[Sequence[Asked], Sequence[Struct], Mapping[str, str]]:
    """The states of groups, but for those that the client may only list."""
    asked = copy.version_of(DescribeGroupsRequest.KEY, DESCRIBE_UNTIL)
    states: dict[str, str] = {}
    for start in range(0, len(groups), DESCRIBED_AT_ONCE):
        some = tuple(groups[start : start + DESCRIBED_AT_ONCE])
        [reply] = yield [Asked(DescribeGroupsRequest(groups=some), asked)]
        assert isinstance(reply, DescribeGroupsResponse)
        states |= {group.group_id: _state(group) for group in reply.groups}
    return states


# DescribeGroups.


def _describe(request: DescribeGroupsRequest, version: int, copy: BrokerCopy) -> Steps:
    asked = copy.version_of(DescribeGroupsRequest.KEY, version)
    says = asked >= OPERATIONS_SINCE
    question = replace(request, include_authorized_operations=says and request.include_authorized_operations)
    [reply] = yield [Asked(question, asked)]
    assert isinstance(reply, DescribeGroupsResponse)
    allowed = answers.OPERATIONS_UNTOLD if says else operations(request, copy)
    told = {group.group_id: answers.permitted(_described(group, version), allowed) for group in reply.groups}
    # Brokers before 2 tell once of a group that is named twice.
    missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return DescribeGroupsResponse(
        groups=tuple(told.get(group_id) or answers.unfit(group_id, missing) for group_id in request.groups)
    )


def _described(group: DescribedGroup, version: int) -> DescribedGroup:
    if group.error_code:
        return group
    if group.group_state == GroupState.DEAD and version >= answers.NAMES_THE_MISSING_SINCE:
        return answers.not_found(group.group_id)
    return replace(group, group_state=_state(group))


def _state(group: DescribedGroup) -> str:
    """By the name that newer brokers have for it; empty where the group is not told."""
    return STATES.get(group.group_state, group.group_state)
