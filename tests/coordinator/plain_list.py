"""Builds a list of groups from all groups at once. Tests compare the list that the copy maintains with it."""

from collections.abc import Iterable

from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest
from group_sidecar.coordinator.model.views import GroupView


def list_groups(request: ListGroupsRequest, groups: Iterable[GroupView]) -> tuple[ListedGroup, ...]:
    """Lists groups as Kafka does.

    Both filters ignore case. The states filter also ignores surrounding blanks (KIP-518).
    """
    states = {state.strip().lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return tuple(
        entry(group)
        for group in groups
        if (not states or group.state.lower() in states) and (not types or group.kind in types)
    )


def entry(group: GroupView) -> ListedGroup:
    """Returns the entry of one group in a list."""
    return ListedGroup(
        group_id=group.group_id, protocol_type=group.protocol_type, group_state=group.state, group_type=group.kind
    )
