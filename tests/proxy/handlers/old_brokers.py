"""Brokers of old releases.

`RELEASES` lists the versions that each release offers for the APIs that the tests need. `OldBroker` answers requests
in the versions of one release.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from group_sidecar.codecs.schema import Struct, decode, encode
from group_sidecar.coordinator.answers import group_replies
from group_sidecar.coordinator.model.views import GroupState, GroupView
from group_sidecar.proxy.broker.added_versions import Versions
from group_sidecar.proxy.handlers.relay import BrokerRequest


def release(fetch: int, describe: int, list_groups: int, **others: int) -> Versions:
    """Returns the versions that a release offers: for each API, from 0 to the given newest version."""
    answers = {"OFFSET_FETCH": fetch, "DESCRIBE_GROUPS": describe, "LIST_GROUPS": list_groups}
    return {int(ApiKey[name]): (0, newest) for name, newest in (answers | others).items()}


RELEASES: Mapping[str, Versions] = {
    "0.9.0.1": release(1, 0, 0, JOIN_GROUP=0, OFFSET_COMMIT=2),
    "0.10.1.1": release(1, 0, 0, JOIN_GROUP=1, OFFSET_COMMIT=2),
    "0.10.2.2": release(2, 0, 0, JOIN_GROUP=1, OFFSET_COMMIT=2),
    "1.1.1": release(3, 1, 1, JOIN_GROUP=2, OFFSET_COMMIT=3, ADD_OFFSETS_TO_TXN=0, TXN_OFFSET_COMMIT=0),
    "2.3.1": release(5, 3, 2, JOIN_GROUP=5, OFFSET_COMMIT=7, ADD_OFFSETS_TO_TXN=1, TXN_OFFSET_COMMIT=2),
    "2.8.2": release(7, 5, 4, JOIN_GROUP=7, OFFSET_COMMIT=8, ADD_OFFSETS_TO_TXN=3, TXN_OFFSET_COMMIT=3),
    "3.6.2": release(8, 5, 4, JOIN_GROUP=9, OFFSET_COMMIT=8, ADD_OFFSETS_TO_TXN=3, TXN_OFFSET_COMMIT=3),
    "3.9.1": release(9, 5, 5, JOIN_GROUP=9, TXN_OFFSET_COMMIT=4, CONSUMER_GROUP_HEARTBEAT=0),
    "4.4.0": release(10, 6, 5, JOIN_GROUP=9, TXN_OFFSET_COMMIT=6, CONSUMER_GROUP_HEARTBEAT=1),
    "4.3.1": release(10, 6, 5, JOIN_GROUP=9, TXN_OFFSET_COMMIT=5, CONSUMER_GROUP_HEARTBEAT=1),
}


@dataclass
class OldBroker:
    """A broker that answers in the versions of one release.

    Attributes:
        offers: the versions that the broker supports. A request in another version fails an assertion.
        groups: the broker's groups by id.
        asked: all requests so far, in order.
    """

    offers: Versions
    groups: Mapping[str, GroupView]
    asked: list[BrokerRequest] = field(default_factory=list)

    def answer(self, question: BrokerRequest) -> Any:
        """Returns the reply to a request. Asserts that request and reply can be encoded in the request's version."""
        request, version = question
        self.asked.append(question)
        lowest, highest = self.offers[request.KEY]
        assert lowest <= version <= highest, question
        assert decode(type(request), version, encode(request, version)) == request
        response = APIS[request.KEY].response
        return decode(response, version, encode(self._answer(request, version), version))

    def _answer(self, request: Struct, version: int) -> Struct:
        if isinstance(request, ListGroupsRequest):
            return self.listed()
        if isinstance(request, DescribeGroupsRequest):
            reply = self.described(request, version)
            groups = [_dated(group, version) for group in reply.groups]
            return replace(reply, groups=tuple({g.group_id: g for g in groups}.values() if version < 2 else groups))
        assert isinstance(request, OffsetFetchRequest)
        if version == 1 and not request.topics:
            request = replace(request, topics=None)  # In version 1, no topics means all topics.
        response = group_replies.offset_fetch(
            request, version, self._views(group_replies.groups_asked(request, version)), {}
        )
        assert response is not None
        return response

    def listed(self) -> ListGroupsResponse:
        """Returns the reply with all groups that are not Dead, with the fields of the newest version."""
        there = [group for group in self.groups.values() if group.state is not GroupState.DEAD]
        entries = (
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.kind,
            )
            for group in there
        )
        return ListGroupsResponse(error_code=0, groups=tuple(entries))

    def described(self, request: DescribeGroupsRequest, version: int) -> DescribeGroupsResponse:
        """Returns the reply of `group_replies.describe_groups` to a client that is authorized for all operations."""
        operations = request.include_authorized_operations
        allowed = group_replies.ALL_OPERATIONS if operations else group_replies.OPERATIONS_UNKNOWN
        return group_replies.describe_groups(request, version, self._views(request.groups), operations=allowed)

    def _views(self, groups: Iterable[str]) -> Mapping[str, GroupView]:
        return {group: self.groups.get(group) or GroupView(group_id=group) for group in groups}


def _dated(group: DescribedGroup, version: int) -> DescribedGroup:
    """Returns the group with the state's name in releases up to 1.0: AwaitingSync instead of CompletingRebalance."""
    old = version == 0 and group.group_state == GroupState.COMPLETING_REBALANCE
    return replace(group, group_state="AwaitingSync") if old else group
