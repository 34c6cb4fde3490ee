"""Translates questions in versions that the broker lacks into versions that the broker has.

A translation yields requests to the broker (`relay`), and builds the client's reply from the broker's replies.
`offset_fetch_translation` translates OffsetFetch. `added_versions` selects only versions in which no field of the
client's reply has to be guessed.
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
from group_sidecar.coordinator.answers import group_replies
from group_sidecar.coordinator.answers.list_groups import matches_filters
from group_sidecar.coordinator.model.views import GroupKind, GroupState
from group_sidecar.coordinator.wire.group_apis import STATES
from group_sidecar.proxy.broker.authorizer_state import AuthorizerState
from group_sidecar.proxy.broker.broker_versions import BrokerVersions
from group_sidecar.proxy.broker.group_queries import DESCRIBE_GROUPS_MAX_VERSION
from group_sidecar.proxy.handlers.offset_fetch_translation import offset_fetch_error, translate_offsets
from group_sidecar.proxy.handlers.relay import BrokerRequest, Steps, UnreadableReply

OPERATIONS_SINCE = 3
"""The DescribeGroups version from which replies have the operations that the client may perform (KIP-430)."""
GROUPS_PER_DESCRIBE = 100
"""Maximum number of groups in one DescribeGroups request, because the metadata of members may be large."""


def translate(request: Struct, version: int, versions: BrokerVersions, authorizer_state: AuthorizerState) -> Steps:
    """Returns the steps to answer a question in a version that the sidecar adds (`BrokerVersions.is_added_version`).

    If a reply of the broker cannot be decoded, the client gets COORDINATOR_NOT_AVAILABLE. The client then looks for the
    coordinator and retries.
    """
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    try:
        if isinstance(request, ListGroupsRequest):
            error_reply: Struct = ListGroupsResponse(error_code=error, groups=())
            return (yield from _list(request, version, versions))
        if isinstance(request, DescribeGroupsRequest):
            error_reply = DescribeGroupsResponse(
                groups=tuple(group_replies.error_group(group, error) for group in request.groups)
            )
            return (yield from _describe(request, version, versions, authorizer_state))
        assert isinstance(request, OffsetFetchRequest)
        error_reply = offset_fetch_error(request, version, error)
        return (yield from translate_offsets(request, version, versions))
    except UnreadableReply:
        return error_reply


def operations(request: DescribeGroupsRequest, authorizer_state: AuthorizerState) -> int:
    """Returns a group's authorized operations for a broker that does not report them.

    The result is all operations if the client asks for them and the broker has no authorizer, otherwise
    OPERATIONS_UNKNOWN.
    """
    everything = request.include_authorized_operations and not authorizer_state.may_have_authorizer
    return group_replies.ALL_OPERATIONS if everything else group_replies.OPERATIONS_UNKNOWN


# ListGroups.


def _list(request: ListGroupsRequest, version: int, versions: BrokerVersions) -> Steps:
    """Asks the broker for all groups and filters the reply, because old brokers filter differently or not at all.

    While some groups are loading, old brokers return an error together with the loaded groups, and so does this reply.
    """
    broker_version = versions.request_version(ListGroupsRequest.KEY, version)
    [reply] = yield [BrokerRequest(ListGroupsRequest(), broker_version)]
    assert isinstance(reply, ListGroupsResponse)
    groups: Sequence[ListedGroup] = reply.groups
    if broker_version < STATES_SINCE <= version:
        states = yield from _states([group.group_id for group in groups], versions)
        groups = [replace(group, group_state=states.get(group.group_id, "")) for group in groups]
        groups = [group for group in groups if group.group_state != GroupState.DEAD]  # Removed since it was listed.
    classic = (replace(group, group_type=GroupKind.CLASSIC.value) for group in groups)
    return ListGroupsResponse(error_code=reply.error_code, groups=tuple(filter(matches_filters(request), classic)))


def _states(
    groups: Sequence[str], versions: BrokerVersions
) -> Generator[Sequence[BrokerRequest], Sequence[Struct], Mapping[str, str]]:
    """Returns the states by group id. A group that the client may list but not describe has an empty state."""
    broker_version = versions.request_version(DescribeGroupsRequest.KEY, DESCRIBE_GROUPS_MAX_VERSION)
    states: dict[str, str] = {}
    for start in range(0, len(groups), GROUPS_PER_DESCRIBE):
        some = tuple(groups[start : start + GROUPS_PER_DESCRIBE])
        [reply] = yield [BrokerRequest(DescribeGroupsRequest(groups=some), broker_version)]
        assert isinstance(reply, DescribeGroupsResponse)
        states |= {group.group_id: _state(group) for group in reply.groups}
    return states


# DescribeGroups.


def _describe(
    request: DescribeGroupsRequest, version: int, versions: BrokerVersions, authorizer_state: AuthorizerState
) -> Steps:
    broker_version = versions.request_version(DescribeGroupsRequest.KEY, version)
    has_operations = broker_version >= OPERATIONS_SINCE
    question = replace(request, include_authorized_operations=has_operations and request.include_authorized_operations)
    [reply] = yield [BrokerRequest(question, broker_version)]
    assert isinstance(reply, DescribeGroupsResponse)
    allowed = group_replies.OPERATIONS_UNKNOWN if has_operations else operations(request, authorizer_state)
    described = {
        group.group_id: group_replies.with_authorized_operations(_described(group, version), allowed)
        for group in reply.groups
    }
    # Brokers before 2.0 describe a group once even if it is named twice.
    missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return DescribeGroupsResponse(
        groups=tuple(
            described.get(group_id) or group_replies.error_group(group_id, missing) for group_id in request.groups
        )
    )


def _described(group: DescribedGroup, version: int) -> DescribedGroup:
    if group.error_code:
        return group
    if group.group_state == GroupState.DEAD and version >= group_replies.GROUP_ID_NOT_FOUND_SINCE:
        return group_replies.group_not_found(group.group_id)
    return replace(group, group_state=_state(group))


def _state(group: DescribedGroup) -> str:
    """Returns the state by the name that newer brokers use; empty if the description has an error."""
    return STATES.get(group.group_state, group.group_state)
