"""Limits how many array elements of a message are decoded, and how large an answer may be.

All other clients wait while a message is decoded. With these limits, decoding takes at most about 5 ms if the modules
are compiled (`docs/worst-cases.md`). A commit that a policy judges may take longer. All limits follow from
`limits.inspected_elements`, the maximum number of elements of a commit. An element of another API may cost as much as
several elements of a commit.
"""

from collections.abc import Iterable

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.views import ConsumerMemberView
from group_sidecar.coordinator.state.committed_offsets import CommittedOffsets
from group_sidecar.coordinator.state.member import Member
from group_sidecar.coordinator.wire.offset_apis import MANY_GROUPS_SINCE

JUDGED_COMMIT_TIMES = 7
"""A commit that a policy judges may have this many times the usual number of elements: 21,000 by default, decoded in
about 20 ms. Kafka accepts about 15,000 partitions in a commit, because `max.message.bytes` limits the batch of their
records."""
JUDGED_TIMES = 2
"""Any other request that a policy judges may have this many times the usual number of elements. If the policy is
enforced, the sidecar closes the connection of a request with more elements."""
COMMITS = frozenset({int(ApiKey.OFFSET_COMMIT), int(ApiKey.TXN_OFFSET_COMMIT)})
_REQUESTS = {
    int(ApiKey.LEAVE_GROUP): 10,
    int(ApiKey.DELETE_GROUPS): 8,
    int(ApiKey.OFFSET_DELETE): 2,
}
_REPLIES = {
    int(ApiKey.JOIN_GROUP): 2,
    int(ApiKey.LEAVE_GROUP): 10,
    int(ApiKey.DELETE_GROUPS): 8,
    int(ApiKey.OFFSET_DELETE): 2,
    int(ApiKey.OFFSET_FETCH): 2,
    int(ApiKey.DESCRIBE_GROUPS): 5,
    int(ApiKey.CONSUMER_GROUP_DESCRIBE): 5,
}
"""By API: how many elements of a commit cost as much as one element of this API's reply. APIs without an entry: 1.
`_REQUESTS` contains these numbers for requests."""
GROUP_COST, TOPIC_COST, WIRE_OFFSET_COST, LOGGED_OFFSETS_PER_MICROSECOND = 50, 8, 3, 2
"""Costs of an answer to OffsetFetch. The first three are microseconds: for a group, a topic, and an offset that only
the wire has shown. The last is the number of offsets from the log that cost one microsecond."""
MANY_LOGGED = 200
"""If the log has more offsets of a group than this, the costs of their topics are added."""
DESCRIBED_COST, MEMBER_COST = 6, 3
"""Costs of a description in microseconds: for a group, and for each member. In a KIP-848 group, each partition that a
member owns or will own costs as much as a member."""
NAMES_PER_MICROSECOND, BYTES_PER_MICROSECOND = 3, 800
"""How many subscribed topic names of a member, and how many bytes or characters of its values, cost one microsecond.
The client chooses the length of these values, for instance of topic names, metadata and the client id."""


class DecodeLimits:
    """The limits that follow from `max_elements`, the maximum number of elements of a commit."""

    def __init__(self, max_elements: int) -> None:
        self._max_elements = max_elements

    def request(self, api_key: int, *, judged: bool = False) -> int:
        """Returns the maximum number of elements of a request. The number is larger if a policy judges the request."""
        times = (JUDGED_COMMIT_TIMES if api_key in COMMITS else JUDGED_TIMES) if judged else 1
        return max(1, times * self._max_elements // _REQUESTS.get(api_key, 1))

    def reply(self, api_key: int) -> int:
        """Returns the maximum number of elements of a reply."""
        return max(1, self._max_elements // _REPLIES.get(api_key, 1))

    def allows_question(self, request: Struct) -> bool:
        """Whether a question names few enough groups for a local answer. Only OffsetFetch is limited."""
        return not isinstance(request, OffsetFetchRequest) or GROUP_COST * len(request.groups) <= self._max_elements

    def allows_answer(self, request: Struct, version: int, manager: GroupMetadataManager, now: float) -> bool:
        """Whether a local answer is cheap enough to be built. A cost of 1 us equals one element of a commit."""
        if isinstance(request, OffsetFetchRequest):
            return _fetch_cost(request, version, manager, now, self._max_elements) <= self._max_elements
        if isinstance(request, DescribeGroupsRequest):
            return _description_cost(request.groups, manager, self._max_elements) <= self._max_elements
        if isinstance(request, ConsumerGroupDescribeRequest):
            return _description_cost(request.group_ids, manager, self._max_elements) <= self._max_elements
        return True


def _description_cost(groups: tuple[str, ...], manager: GroupMetadataManager, max_elements: int) -> int:
    """Returns the cost of a description, or a part of the cost that exceeds `max_elements`."""
    cache, cost = manager.group_metadata_cache, DESCRIBED_COST * len(groups)
    for group_id in groups:
        if (group := cache.get(group_id)) is None:
            continue
        cost += MEMBER_COST * len(group.consumer.members if group.consumer else group.members)
        cost += (len(group.protocol_type) + len(group.protocol)) // BYTES_PER_MICROSECOND
        if cost > max_elements:
            break
        if group.consumer:
            cost += _consumer_members_cost(group.consumer.members, max_elements - cost)
        else:
            cost += sum(_values_cost(member, group.protocol) for member in group.members.values())
    return cost


def _values_cost(member: Member, protocol: str) -> int:
    """Returns the cost of a classic member's values."""
    length = len(member.protocols.get(protocol, b"")) + len(member.assignment)
    length += len(member.member_id) + len(member.instance_id or "") + len(member.client_id)
    return length // BYTES_PER_MICROSECOND


def _consumer_members_cost(members: Iterable[ConsumerMemberView], max_elements: int) -> int:
    """Returns the cost of the partitions and values of KIP-848 members, or a part of it that exceeds `max_elements`."""
    cost = 0
    for member in members:
        partitions = sum(
            sum(map(len, each.values())) for each in (member.assignment, member.revoking, member.target_assignment)
        )
        cost += MEMBER_COST * partitions + len(member.subscribed_topic_names) // NAMES_PER_MICROSECOND
        if cost > max_elements:
            break
        texts = (member.member_id, member.instance_id, member.rack_id, member.client_id, member.subscribed_topic_regex)
        length = sum(map(len, member.subscribed_topic_names)) + sum(len(text or "") for text in texts)
        cost += length // BYTES_PER_MICROSECOND
    return cost


def _fetch_cost(
    request: OffsetFetchRequest, version: int, manager: GroupMetadataManager, now: float, max_elements: int
) -> int:
    if version < MANY_GROUPS_SINCE:
        return GROUP_COST + _topics_cost(request.topics, request.group_id, manager, now)
    cost = GROUP_COST * len(request.groups)
    for asked in request.groups:
        if cost > max_elements:
            break
        cost += _topics_cost(asked.topics, asked.group_id, manager, now)
    return cost


def _topics_cost(
    topics: tuple[OffsetFetchRequestTopic, ...] | None, group_id: str, manager: GroupMetadataManager, now: float
) -> int:
    if topics is not None:
        partitions = sum(len(topic.partition_indexes) for topic in topics)
        return TOPIC_COST * len(topics) + partitions // LOGGED_OFFSETS_PER_MICROSECOND
    offsets = manager.offsets_view(group_id, now).offsets
    if not isinstance(offsets, CommittedOffsets):
        return 0
    logged = offsets.log_values or {}
    cost = len(logged) // LOGGED_OFFSETS_PER_MICROSECOND + WIRE_OFFSET_COST * len(offsets.wire_offsets)
    if len(logged) > MANY_LOGGED:
        cost += TOPIC_COST * len({key[:-4] for key in logged})
    return cost
