"""How many array elements of a message are decoded, and how large an answer is made.

Owns: what an element of each API costs beside one of a commit. Must not know: what is done with a message that has
more.

All other clients wait while a message is understood. So the bounds are such that the longest takes about 5 ms, where
the modules are compiled (`docs/worst-cases.md`). `limits.inspected_elements` sets all of them together.
"""

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.views import ConsumerGroupView
from group_sidecar.coordinator.state.committed_offsets import CommittedOffsets
from group_sidecar.coordinator.wire.offset_apis import MANY_GROUPS_SINCE

JUDGED_COMMIT_TIMES = 7
"""A commit that a policy judges may have so many times as many: by default 21,000, in about 20 ms. Kafka takes some
15,000 partitions at once, as `max.message.bytes` bounds the batch of their records."""
JUDGED_TIMES = 2
"""Of any other request that a policy judges. More of them would end the connection."""
COMMITS = frozenset({int(ApiKey.OFFSET_COMMIT), int(ApiKey.TXN_OFFSET_COMMIT)})
_REQUESTS = {
    int(ApiKey.LEAVE_GROUP): 10,
    int(ApiKey.DELETE_GROUPS): 5,
    int(ApiKey.OFFSET_DELETE): 2,
}
_REPLIES = {
    int(ApiKey.JOIN_GROUP): 2,
    int(ApiKey.LEAVE_GROUP): 10,
    int(ApiKey.DELETE_GROUPS): 5,
    int(ApiKey.OFFSET_DELETE): 2,
    int(ApiKey.OFFSET_FETCH): 2,
    int(ApiKey.DESCRIBE_GROUPS): 5,
    int(ApiKey.CONSUMER_GROUP_DESCRIBE): 5,
}
"""By API, as many elements of a commit cost as much as one of these; 1 where there is no entry."""
GROUP_COST, TOPIC_COST, WIRE_OFFSET_COST, LOGGED_OFFSETS_PER_MICROSECOND = 50, 8, 3, 2
"""Of an answer to OffsetFetch, in microseconds: for a group, for a topic, for an offset that only the wire has told. So
many offsets of the log take one."""
MANY_LOGGED = 200
"""Offsets of a group in the log from which on its topics are counted."""
DESCRIBED_COST, MEMBER_COST = 6, 3
"""Of a description likewise, for a group and for a member."""


class DecodeLimits:
    """The bounds that follow from `most`, the elements of a commit."""

    def __init__(self, most: int) -> None:
        self._most = most

    def request(self, api_key: int, *, judged: bool = False) -> int:
        """Elements of a request. `judged`: by a policy, past which nothing goes unread."""
        times = (JUDGED_COMMIT_TIMES if api_key in COMMITS else JUDGED_TIMES) if judged else 1
        return max(1, times * self._most // _REQUESTS.get(api_key, 1))

    def reply(self, api_key: int) -> int:
        """Elements of a reply."""
        return max(1, self._most // _REPLIES.get(api_key, 1))

    def allows_question(self, request: Struct) -> bool:
        """Whether a question is looked at any further, by how many groups it names."""
        return not isinstance(request, OffsetFetchRequest) or GROUP_COST * len(request.groups) <= self._most

    def allows_answer(self, request: Struct, version: int, manager: GroupMetadataManager, now: float) -> bool:
        """Whether an answer is made here, by what it would tell. An element of a commit takes 1 us."""
        if isinstance(request, OffsetFetchRequest):
            return _fetch_cost(request, version, manager, now, self._most) <= self._most
        if isinstance(request, DescribeGroupsRequest):
            return _description_cost(request.groups, manager) <= self._most
        if isinstance(request, ConsumerGroupDescribeRequest):
            return _description_cost(request.group_ids, manager) <= self._most
        return True


def _description_cost(groups: tuple[str, ...], manager: GroupMetadataManager) -> int:
    cache, cost = manager.group_metadata_cache, DESCRIBED_COST * len(groups)
    for group_id in groups:
        if (group := cache.get(group_id)) is not None:
            cost += MEMBER_COST * (_parts(group.consumer) if group.consumer else len(group.members))
    return cost


def _parts(view: ConsumerGroupView) -> int:
    """Members, and partitions that they have or are to have."""
    return sum(
        1 + sum(map(len, member.assignment.values())) + sum(map(len, member.target_assignment.values()))
        for member in view.members
    )


def _fetch_cost(request: OffsetFetchRequest, version: int, manager: GroupMetadataManager, now: float, most: int) -> int:
    if version < MANY_GROUPS_SINCE:
        return GROUP_COST + _topics_cost(request.topics, request.group_id, manager, now)
    cost = GROUP_COST * len(request.groups)
    for asked in request.groups:
        if cost > most:
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
