"""Asks the broker about groups in doubt, about missing groups and topic ids, and about names of topics.

The module decides which requests are sent, when, and when they are repeated. The copy gets each reply as if a client
had asked (`coordinator.wire.exchange_events`).

`__consumer_offsets` does not contain a part of each group's state, such as a rebalance in progress. After the sidecar's
start, one reply of the broker supplies this part, and later traffic keeps the state up to date.
"""

import sys
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import trio

from group_sidecar.codecs.messages.describe_acls import DescribeAclsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from group_sidecar.proxy.broker.background_jobs import ask_and_learn, describe_and_learn, run_background_job
from group_sidecar.proxy.broker.broker_errors import UnsupportedApi
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.broker.existing_topic_ids import TopicIds
from group_sidecar.proxy.broker.group_queries import UNFILTERED_LISTING_CODES, describe_acls_error
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.broker.own_connections import OwnConnections
from group_sidecar.proxy.broker.topic_names import TopicNames
from group_sidecar.proxy.runtime.backoff import RetrySchedule
from group_sidecar.proxy.runtime.supervision import Supervisor, Task

ROUND_SECONDS = 0.25
"""Seconds between checks whether a request is due."""
GROUPS_AT_ONCE = 100
NAMES_AT_ONCE = 1000
OFFSETS_AT_ONCE = 10
RETRY_SECONDS, LONGEST_RETRY = 0.5, 30.0
"""Seconds until a request is sent again while its subject stays in doubt: doubled each time, up to the second value."""
_ALL = "all groups"
_ALL_OFFSETS = (2, 7)  # OffsetFetch: null topics request all (KIP-88); before v8 a request is about one group.
_BY_ID_SINCE = 12  # Metadata (KIP-516).

SHARDS = 32
"""The number of retry schedules among which groups in doubt are divided. A single schedule of 100,000 groups would
block the data path at each pass."""


class _Due(NamedTuple):
    """The requests that are due.

    Attributes:
        groups: groups to describe.
        lists: whether to list all groups.
        offsets: groups whose offsets the copy has forgotten.
        names: topic ids whose names are not known.
        ids: topic ids whose existence is to be confirmed.
    """

    groups: list[str]
    lists: bool
    offsets: list[str]
    names: list[UUID]
    ids: list[UUID]


async def reconcile_forever(
    copy: CoordinatorCopy,
    topic_names: TopicNames,
    topic_ids: TopicIds,
    connections: OwnConnections,
    supervisor: Supervisor | None = None,
) -> None:
    """Sends requests whenever one is due, until cancelled. Never raises."""
    await run_background_job(connections, _Reconciler(copy, topic_names, topic_ids), ROUND_SECONDS, supervisor)


class _Reconciler:
    """Asks one broker about its groups, the list of its groups, and topics by their ids."""

    task = Task.RECONCILE

    def __init__(self, copy: CoordinatorCopy, topic_names: TopicNames, topic_ids: TopicIds) -> None:
        self._copy = copy
        self._topic_names = topic_names
        self._topic_ids = topic_ids
        self._group_schedules = [RetrySchedule[str](sys.maxsize, RETRY_SECONDS, LONGEST_RETRY) for _ in range(SHARDS)]
        self._doubtful: deque[str] = deque()
        self._list_schedule: RetrySchedule[str] = RetrySchedule(1, RETRY_SECONDS, LONGEST_RETRY)
        self._offset_schedule: RetrySchedule[str] = RetrySchedule(OFFSETS_AT_ONCE, RETRY_SECONDS, LONGEST_RETRY)
        self._name_schedule: RetrySchedule[UUID] = RetrySchedule(NAMES_AT_ONCE, RETRY_SECONDS, LONGEST_RETRY)

    async def due(self) -> _Due | None:
        """See `BackgroundJob`. Does not return while topic ids are in use and nothing is due, so that the rounds for
        these ids share one connection.
        """
        while True:
            due = await self._due_now()
            if any(due):
                return due
            if not self._topic_ids.names:
                return None
            await trio.sleep(ROUND_SECONDS)

    async def _due_now(self) -> _Due:
        if not self._doubtful:
            self._doubtful.extend(await self._doubtful_now())
        return _Due(
            groups=[self._doubtful.popleft() for _ in range(min(GROUPS_AT_ONCE, len(self._doubtful)))],
            lists=bool(self._list_schedule.due([_ALL] if self._copy.manager.needs_listing() else [])),
            offsets=self._offset_schedule.due(self._copy.offsets_wanted),
            names=self._name_schedule.due(self._topic_names.wanted),
            ids=self._topic_ids.due(self._copy.epoch(trio.current_time())),
        )

    async def _doubtful_now(self) -> list[str]:
        """Returns the groups that are in doubt and whose next attempt is due."""
        shards: list[list[str]] = [[] for _ in self._group_schedules]
        for some in self._copy.manager.groups_to_describe():
            for group_id in some:
                shards[hash(group_id) % SHARDS].append(group_id)
            await trio.lowlevel.checkpoint()
        due: list[str] = []
        for pace, shard in zip(self._group_schedules, shards, strict=True):
            due += pace.due(shard)
        return due

    async def run(self, client: KafkaClient, due: _Due) -> None:
        """See `BackgroundJob`."""
        groups, lists, offsets, names, ids = due
        for group_id in groups:
            self._group_schedules[hash(group_id) % SHARDS].record_attempt((group_id,))
        self._name_schedule.record_attempt(names)
        if lists:
            self._list_schedule.record_attempt([_ALL])
            await self._list(client)
        if groups:
            await describe_and_learn(self._copy, client, tuple(groups))
        for group in offsets:
            await self._learn_offsets(client, group)
        if names:
            self._topic_names.learn(await _names_of(client, names))
        if ids:
            existing = await _names_of(client, ids)
            self._topic_names.learn(existing)
            self._topic_ids.learn(ids, existing)

    async def _learn_offsets(self, client: KafkaClient, group_id: str) -> None:
        """Requests all offsets of a group that the copy has forgotten.

        The reply cannot be used if the group is unknown, or if the group commits before the reply. So there are several
        attempts.
        """
        self._offset_schedule.record_attempt([group_id])
        self._copy.count_offsets_attempt(group_id)
        try:
            version = client.version_for(OffsetFetchRequest, *_ALL_OFFSETS)
        except UnsupportedApi:
            return  # The copy learns the offsets from clients' requests.
        as_of = {group_id: self._copy.manager.changes_of(group_id)}
        await ask_and_learn(
            self._copy, client, OffsetFetchRequest(group_id=group_id, topics=None), version, as_of=as_of
        )

    async def _list(self, client: KafkaClient) -> None:
        """Requests the list of groups, if the broker shows all groups to the sidecar's own user."""
        if not client.speaks(ListGroupsRequest):
            return  # The broker is too old to list its groups.
        if client.speaks(DescribeAclsRequest) and await describe_acls_error(client) not in UNFILTERED_LISTING_CODES:
            return
        note_count = self._copy.manager.note_count
        await ask_and_learn(
            self._copy, client, ListGroupsRequest(), client.version_for(ListGroupsRequest), note_count=note_count
        )


async def _names_of(client: KafkaClient, topic_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Returns topic names by id, without topics that the broker lacks or does not show to the sidecar's user."""
    topics = tuple(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids)
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    version = client.version_for(MetadataRequest, lowest=_BY_ID_SINCE)
    reply: MetadataResponse = await client.ask(request, version)
    return {topic.topic_id: topic.name for topic in reply.topics if topic.name and topic.topic_id.int}
