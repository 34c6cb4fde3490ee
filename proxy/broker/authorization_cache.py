"""Caches the rights that the broker recently granted to each principal.

`AuthorizationCache` is a bounded table of grants that expire. `required_rights` lists the rights that an answer needs.
`granted_rights` derives the rights that a reply of the broker proves. `client_principals` finds the principal of a
connection.

Only grants are cached, never denials. No right is derived from another right. For example, a rule may deny Describe on
a group that may be read, and an authorizer may be a custom class. For a user who may describe the cluster, ListGroups
also contains groups that the user may not describe (KIP-231). So the listing of a group is a separate right.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from itertools import count
from uuid import UUID

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
)
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.answers.group_replies import topics_by_group
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.events import AnyEvent, GroupsListed, OffsetsLearned
from group_sidecar.coordinator.model.views import GroupState
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.coordinator.wire.offset_apis import KAFKA_STORAGE_SINCE, MANY_GROUPS_SINCE
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker.client_principals import Principal

RULE_CHANGE_SECONDS = 5.0
"""For this many seconds after a change of ACLs, no grant is cached. The controller replies before every broker has
applied the change."""
MAX_TRIMMED_AT_ONCE = 1_000
"""The maximum number of expired grants that one reply evicts, in about 1 ms. Expired grants that stay do no harm:
`AuthorizationCache.has_all` compares ages."""
RULE_CHANGE_APIS = frozenset(
    {
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    }
)
"""APIs that may change the rights of a principal."""


class Operation(StrEnum):
    """The operations that the cache distinguishes."""

    LIST = "list"
    """The right to get an answer to ListGroups. The resource is empty."""
    LIST_GROUP = "list group"
    DESCRIBE_GROUP = "describe group"
    READ_GROUP = "read group"
    """The right to join the group."""
    DESCRIBE_TOPIC = "describe topic"
    OTHER = "other"
    """A right that is never granted."""


Right = tuple[Operation, str | UUID]
"""An operation on a resource. The resource is a name, or the id of a topic whose name is not known."""


class AuthorizationCache:
    """The rights that the broker granted to each principal. Times are seconds since the epoch.

    Args:
        seconds: how long a grant is valid from the time of the request. 0 means that nothing is cached.
        max_grants: the maximum number of grants that are held. Beyond this limit, grants are evicted: the oldest grants
            of the principal whose last grant is the oldest.
        traffic: counts the grants that are held.
    """

    def __init__(self, seconds: float, max_grants: int, traffic: TrafficCounters) -> None:
        self._seconds = seconds
        self._max_grants = max_grants
        self._traffic = traffic
        self._granted: OrderedDict[Principal, OrderedDict[Right, float]] = OrderedDict()
        self._size = 0
        self._changes_under_way = 0
        self._not_before = -math.inf

    def grant(self, principal: Principal, rights: Iterable[Right], asked_at: float) -> None:
        """Stores rights that the broker granted in reply to a request sent at `asked_at`."""
        if self._changes_under_way or asked_at < self._not_before:
            return
        for right in rights:
            held = self._granted.setdefault(principal, OrderedDict())
            before = held.get(right)
            if before is None:
                self._count_grants(1)
            if before is None or before < asked_at:
                held[right] = asked_at
                held.move_to_end(right)
        if principal in self._granted:
            self._granted.move_to_end(principal)
        self._trim(asked_at)

    def has_all(self, principal: Principal, rights: Iterable[Right], now: float) -> bool:
        """Whether all of these rights have grants that are still valid."""
        held = self._granted.get(principal)
        return held is not None and all(now - held.get(right, -math.inf) < self._seconds for right in rights)

    def begin_rule_change(self) -> None:
        """Clears the cache, because the rules are about to change. See `end_rule_change`."""
        self._changes_under_way += 1
        self.forget()

    def end_rule_change(self, now: float) -> None:
        """Notes that the rules may have changed. Must be called once for each `begin_rule_change`."""
        self._changes_under_way -= 1
        self._not_before = max(self._not_before, now + RULE_CHANGE_SECONDS)

    def forget(self) -> None:
        """Removes all grants."""
        self._granted.clear()
        self._count_grants(-self._size)

    def forget_principal(self, principal: Principal) -> None:
        """Removes the grants of one principal."""
        self._count_grants(-len(self._granted.pop(principal, ())))

    def _trim(self, now: float) -> None:
        for done in count():
            if not self._granted:
                return
            principal, held = next(iter(self._granted.items()))
            right, asked_at = next(iter(held.items()))
            expired = now - asked_at >= self._seconds and done < MAX_TRIMMED_AT_ONCE
            if self._size <= self._max_grants and not expired:
                return
            del held[right]
            self._count_grants(-1)
            if not held:
                del self._granted[principal]

    def _count_grants(self, added: int) -> None:
        self._size += added
        self._traffic.cached_authorizations += added


def required_rights(exchange: Exchange, manager: GroupMetadataManager, now: float) -> Iterator[Right]:
    """Yields the rights that a client needs to get the copy's complete answer to the client's request."""
    request = exchange.request
    if isinstance(request, ListGroupsRequest):
        yield Operation.LIST, ""
        for group in manager.group_metadata_cache.values():
            if group.state is not GroupState.DEAD:
                yield Operation.LIST_GROUP, group.group_id
    elif isinstance(request, DescribeGroupsRequest):
        yield from ((Operation.DESCRIBE_GROUP, group_id) for group_id in request.groups)
    elif isinstance(request, OffsetFetchRequest):
        for group_id, topics in topics_by_group(request, exchange.version):
            yield Operation.DESCRIBE_GROUP, group_id
            if topics is not None:
                yield from (_topic_right(topic, exchange.names) for topic in topics)
            else:
                offsets = manager.view(group_id, now).offsets
                yield from ((Operation.DESCRIBE_TOPIC, topic) for topic in {topic for topic, _ in offsets})
    else:
        yield Operation.OTHER, ""


def granted_rights(exchange: Exchange, reply: Struct) -> Iterator[Right]:
    """Yields the rights that a reply of the broker proves."""
    if isinstance(reply, ListGroupsResponse) and reply.error_code == ErrorCode.NONE:
        yield Operation.LIST, ""
        yield from ((Operation.LIST_GROUP, group.group_id) for group in reply.groups)
    elif isinstance(reply, DescribeGroupsResponse):
        for described in reply.groups:
            if described.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                yield Operation.DESCRIBE_GROUP, described.group_id
    elif isinstance(reply, OffsetFetchResponse):
        yield from _rights_from_offsets(exchange, reply)


def without_omissions(events: Iterable[AnyEvent]) -> Iterator[AnyEvent]:
    """Yields the events of a reply that are true even if the broker left out entries that the client may not see.

    A reply without a group or an offset does not prove that the broker lacks this group or offset.
    """
    for event in events:
        if isinstance(event, OffsetsLearned):
            yield replace(event, complete=False)
        elif not isinstance(event, GroupsListed):
            yield event


def _rights_from_offsets(exchange: Exchange, reply: OffsetFetchResponse) -> Iterator[Right]:
    if exchange.version >= MANY_GROUPS_SINCE:
        for group in reply.groups:
            if group.error_code == ErrorCode.NONE:
                yield Operation.DESCRIBE_GROUP, group.group_id
                yield from _rights_from_topics(group.topics, exchange.names)
        return
    request = exchange.request
    assert isinstance(request, OffsetFetchRequest)
    topics = tuple(_rights_from_topics(reply.topics, exchange.names))
    if reply.error_code != ErrorCode.NONE or exchange.version < KAFKA_STORAGE_SINCE:
        return
    if topics or exchange.version > KAFKA_STORAGE_SINCE:  # v1 reports the group's error on each partition.
        yield Operation.DESCRIBE_GROUP, request.group_id
        # A broker answers a v1 request without topics with all topics, even with topics that the client may not see.
        if request.topics or exchange.version > KAFKA_STORAGE_SINCE:
            yield from topics


def _rights_from_topics(topics: Iterable[OffsetFetchResponseTopic], names: Mapping[UUID, str]) -> Iterator[Right]:
    for topic in topics:
        if any(partition.error_code == ErrorCode.NONE for partition in topic.partitions):
            yield _topic_right(topic, names)


def _topic_right(topic: OffsetFetchRequestTopic | OffsetFetchResponseTopic, names: Mapping[UUID, str]) -> Right:
    return Operation.DESCRIBE_TOPIC, topic.name or names.get(topic.topic_id, topic.topic_id)
