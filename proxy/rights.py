"""What each principal may see, as the broker last granted it.

Owns: `Rights`, a bounded table of grants that run out; what is needed to be shown an answer (`needed`), and what
a reply says was granted (`shown`). Must not know: who is on a connection (`principals`), what is answered.

Only grants are remembered, never denials, and none follows from another: a rule may deny to describe what may be read,
and an authorizer may be anybody's class. Whoever may describe the cluster is listed groups that they may not describe
(KIP-231), so to be listed a group is a right of its own.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from itertools import count
from uuid import UUID

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
)
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.events import AnyEvent, GroupsListed, OffsetsLearned
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.views import GroupState
from group_sidecar.coordinator.wire_offsets import KAFKA_SINCE, MANY_GROUPS_SINCE
from group_sidecar.metrics.traffic import Traffic
from group_sidecar.proxy.principals import Principal

SETTLING_SECONDS = 5.0
"""For so long after a change of the rules no grant is remembered: a controller answers before each broker has heard."""
TRIMMED_AT_ONCE = 1_000
"""Expired grants that one reply drops, in about 1 ms. Those that are left do not count: `Rights.hold` compares ages."""
RULE_CHANGES = frozenset(
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
"""APIs that may change who may see what."""


class Operation(StrEnum):
    """What may be granted."""

    LIST = "list"
    """ListGroups is answered. The resource is empty."""
    LIST_GROUP = "list group"
    DESCRIBE_GROUP = "describe group"
    READ_GROUP = "read group"
    """To join it."""
    DESCRIBE_TOPIC = "describe topic"
    OTHER = "other"
    """Never granted."""


Right = tuple[Operation, str | UUID]
"""An operation on a resource: by its name, and a topic of which that is not known by its id."""


class Rights:
    """Who was granted what. Times are seconds since the epoch.

    Args:
        seconds: how long a grant is remembered, from when it was asked for; 0 for not at all.
        most: grants that are remembered at a time. The oldest go, of who was granted nothing for longest.
        traffic: is told how many there are.
    """

    def __init__(self, seconds: float, most: int, traffic: Traffic) -> None:
        self._seconds = seconds
        self._most = most
        self._traffic = traffic
        self._granted: OrderedDict[Principal, OrderedDict[Right, float]] = OrderedDict()
        self._size = 0
        self._changes_under_way = 0
        self._not_before = -math.inf

    def grant(self, principal: Principal, rights: Iterable[Right], asked_at: float) -> None:
        """The broker granted these, to a question sent at `asked_at`."""
        if self._changes_under_way or asked_at < self._not_before:
            return
        for right in rights:
            held = self._granted.setdefault(principal, OrderedDict())
            before = held.get(right)
            if before is None:
                self._account(1)
            if before is None or before < asked_at:
                held[right] = asked_at
                held.move_to_end(right)
        if principal in self._granted:
            self._granted.move_to_end(principal)
        self._trim(asked_at)

    def hold(self, principal: Principal, rights: Iterable[Right], now: float) -> bool:
        """Whether all of these were granted lately."""
        held = self._granted.get(principal)
        return held is not None and all(now - held.get(right, -math.inf) < self._seconds for right in rights)

    def rules_change(self) -> None:
        """The rules are about to change: nothing is remembered, until they have."""
        self._changes_under_way += 1
        self.forget()

    def rules_changed(self, now: float) -> None:
        """They have, or may have. To be called once for each `rules_change`."""
        self._changes_under_way -= 1
        self._not_before = max(self._not_before, now + SETTLING_SECONDS)

    def forget(self) -> None:
        """Forgets all."""
        self._granted.clear()
        self._account(-self._size)

    def drop(self, principal: Principal) -> None:
        """Forgets one principal."""
        self._account(-len(self._granted.pop(principal, ())))

    def _trim(self, now: float) -> None:
        for done in count():
            if not self._granted:
                return
            principal, held = next(iter(self._granted.items()))
            right, asked_at = next(iter(held.items()))
            expired = now - asked_at >= self._seconds and done < TRIMMED_AT_ONCE
            if self._size <= self._most and not expired:
                return
            del held[right]
            self._account(-1)
            if not held:
                del self._granted[principal]

    def _account(self, added: int) -> None:
        self._size += added
        self._traffic.remembered_rights += added


def needed(x: Exchange, manager: GroupMetadataManager, now: float) -> Iterator[Right]:
    """What a client must have been granted to be told all that the copy knows of what it asks."""
    request = x.request
    if isinstance(request, ListGroupsRequest):
        yield Operation.LIST, ""
        for group in manager.group_metadata_cache.values():
            if group.state is not GroupState.DEAD:
                yield Operation.LIST_GROUP, group.group_id
    elif isinstance(request, DescribeGroupsRequest):
        yield from ((Operation.DESCRIBE_GROUP, group_id) for group_id in request.groups)
    elif isinstance(request, OffsetFetchRequest):
        many = x.version >= MANY_GROUPS_SINCE
        of_groups = [(g.group_id, g.topics) for g in request.groups] if many else [(request.group_id, request.topics)]
        for group_id, topics in of_groups:
            yield Operation.DESCRIBE_GROUP, group_id
            if topics is not None:
                yield from (_topic(topic, x.names) for topic in topics)
            else:
                offsets = manager.view(group_id, now).offsets
                yield from ((Operation.DESCRIBE_TOPIC, topic) for topic in {topic for topic, _ in offsets})
    else:
        yield Operation.OTHER, ""


def shown(x: Exchange, reply: Struct) -> Iterator[Right]:
    """What was granted, as a reply of the broker's shows."""
    if isinstance(reply, ListGroupsResponse) and reply.error_code == ErrorCode.NONE:
        yield Operation.LIST, ""
        yield from ((Operation.LIST_GROUP, group.group_id) for group in reply.groups)
    elif isinstance(reply, DescribeGroupsResponse):
        for described in reply.groups:
            if described.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                yield Operation.DESCRIBE_GROUP, described.group_id
    elif isinstance(reply, OffsetFetchResponse):
        yield from _offsets_shown(x, reply)


def followed(events: Iterable[AnyEvent]) -> Iterator[AnyEvent]:
    """What the events of a reply say where the broker may have left out what its client may not see.

    Nothing follows from what a list lacks, neither of groups nor of a group's offsets.
    """
    for event in events:
        if isinstance(event, OffsetsLearned):
            yield replace(event, whole=False)
        elif not isinstance(event, GroupsListed):
            yield event


def _offsets_shown(x: Exchange, reply: OffsetFetchResponse) -> Iterator[Right]:
    if x.version >= MANY_GROUPS_SINCE:
        for group in reply.groups:
            if group.error_code == ErrorCode.NONE:
                yield Operation.DESCRIBE_GROUP, group.group_id
                yield from _topics_shown(group.topics, x.names)
        return
    request = x.request
    assert isinstance(request, OffsetFetchRequest)
    topics = tuple(_topics_shown(reply.topics, x.names))
    if reply.error_code != ErrorCode.NONE or x.version < KAFKA_SINCE:
        return
    if topics or x.version > KAFKA_SINCE:  # v1 has the group's error on each partition, where there are any.
        yield Operation.DESCRIBE_GROUP, request.group_id
        if request.topics or x.version > KAFKA_SINCE:  # In v1, asked for none, brokers tell all, whoever may see it.
            yield from topics


def _topics_shown(topics: Iterable[OffsetFetchResponseTopic], names: Mapping[UUID, str]) -> Iterator[Right]:
    for topic in topics:
        if any(partition.error_code == ErrorCode.NONE for partition in topic.partitions):
            yield _topic(topic, names)


def _topic(topic: OffsetFetchRequestTopic | OffsetFetchResponseTopic, names: Mapping[UUID, str]) -> Right:
    return Operation.DESCRIBE_TOPIC, topic.name or names.get(topic.topic_id, topic.topic_id)
