"""Asks the broker about groups in doubt, about the existence of groups and topic ids, and about names of topics.

Owns: what is asked when, and how often again. Must not know: what put a group in doubt, and what a reply does to it
(`coordinator.wire` reads it like a reply to any client).

The log does not tell what a group was doing when the sidecar began to read it. Asked once, the wire tells the rest.
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
from group_sidecar.proxy.attempts import Pace
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.client import KafkaClient, UnsupportedApi
from group_sidecar.proxy.errands import carry_out, describe, run_errand
from group_sidecar.proxy.questions import LISTED_ALL, acl_error
from group_sidecar.proxy.supervision import Supervisor, Task

ROUND_SECONDS = 0.25
"""Between looks whether there is something to ask."""
GROUPS_AT_ONCE = 100
NAMES_AT_ONCE = 1000
OFFSETS_AT_ONCE = 10
AGAIN_SECONDS, LONGEST_AGAIN = 0.5, 30.0
"""Until the same is asked again: doubled each time, while it stays in doubt."""
_ALL = "all groups"
_ALL_OFFSETS = (2, 7)  # OffsetFetch: null topics ask for all (KIP-88); before v8 of one group.
_BY_ID_SINCE = 12  # Metadata (KIP-516).

SHARDS = 32
"""Groups in doubt are kept in so many parts, lest one look at 100,000 of them hold up the data path."""


class _Due(NamedTuple):
    """Groups to describe, whether to list all groups, groups whose offsets are wanted; topics to name,
    by their ids, and topic ids to confirm.
    """

    groups: list[str]
    lists: bool
    offsets: list[str]
    names: list[UUID]
    ids: list[UUID]


async def settle_forever(copy: BrokerCopy, supervisor: Supervisor | None = None) -> None:
    """Asks, whenever there is something to ask, until cancelled. Never raises."""
    await run_errand(copy, _Settler(copy), ROUND_SECONDS, supervisor)


class _Settler:
    """Asks one broker about its groups, the list of them, and topics by their ids."""

    task = Task.SETTLING

    def __init__(self, copy: BrokerCopy) -> None:
        self._copy = copy
        self._paces = [Pace[str](sys.maxsize, AGAIN_SECONDS, LONGEST_AGAIN) for _ in range(SHARDS)]
        self._doubtful: deque[str] = deque()
        self._lists: Pace[str] = Pace(1, AGAIN_SECONDS, LONGEST_AGAIN)
        self._offsets: Pace[str] = Pace(OFFSETS_AT_ONCE, AGAIN_SECONDS, LONGEST_AGAIN)
        self._names: Pace[UUID] = Pace(NAMES_AT_ONCE, AGAIN_SECONDS, LONGEST_AGAIN)

    async def due(self) -> _Due | None:
        """See Errand. Waits while topic ids are in use, so that their rounds share one connection."""
        while True:
            due = await self._due_now()
            if any(due):
                return due
            if not self._copy.topic_ids.names:
                return None
            await trio.sleep(ROUND_SECONDS)

    async def _due_now(self) -> _Due:
        if not self._doubtful:
            self._doubtful.extend(await self._doubtful_now())
        return _Due(
            groups=[self._doubtful.popleft() for _ in range(min(GROUPS_AT_ONCE, len(self._doubtful)))],
            lists=bool(self._lists.due([_ALL] if self._copy.manager.wants_list() else [])),
            offsets=self._offsets.due(self._copy.offsets_wanted),
            names=self._names.due(self._copy.names_wanted),
            ids=self._copy.topic_ids.due(self._copy.epoch(trio.current_time())),
        )

    async def _doubtful_now(self) -> list[str]:
        """Groups that are in doubt and were not asked about lately."""
        shards: list[list[str]] = [[] for _ in self._paces]
        for some in self._copy.manager.unsettled():
            for group_id in some:
                shards[hash(group_id) % SHARDS].append(group_id)
            await trio.lowlevel.checkpoint()
        due: list[str] = []
        for pace, shard in zip(self._paces, shards, strict=True):
            due += pace.due(shard)
        return due

    async def run(self, client: KafkaClient, due: _Due) -> None:
        """See Errand."""
        groups, lists, offsets, names, ids = due
        for group_id in groups:
            self._paces[hash(group_id) % SHARDS].begin((group_id,))
        self._names.begin(names)
        if lists:
            self._lists.begin([_ALL])
            await self._list(client)
        if groups:
            await describe(self._copy, client, tuple(groups))
        for group in offsets:
            await self._learn_offsets(client, group)
        if names:
            self._copy.learn_names(await _names_of(client, names))
        if ids:
            existing = await _names_of(client, ids)
            self._copy.learn_names(existing)
            self._copy.topic_ids.learn(ids, existing)

    async def _learn_offsets(self, client: KafkaClient, group_id: str) -> None:
        """Has the broker tell all offsets of a group that was forgotten.

        The reply is of no use where the group is not known yet, or commits meanwhile: so it is asked a few times.
        """
        self._offsets.begin([group_id])
        left = self._copy.offsets_wanted[group_id] = self._copy.offsets_wanted[group_id] - 1
        if left <= 0:
            del self._copy.offsets_wanted[group_id]
        try:
            version = client.version_for(OffsetFetchRequest, *_ALL_OFFSETS)
        except UnsupportedApi:
            return  # Clients ask for what they need.
        as_of = {group_id: self._copy.manager.changes_of(group_id)}
        await carry_out(self._copy, client, OffsetFetchRequest(group_id=group_id, topics=None), version, as_of=as_of)

    async def _list(self, client: KafkaClient) -> None:
        """Has the broker list its groups, where it lists them all to the sidecar's own user."""
        if not client.speaks(ListGroupsRequest):
            return  # No broker of that age can list its groups.
        if client.speaks(DescribeAclsRequest) and await acl_error(client) not in LISTED_ALL:
            return
        notings = self._copy.manager.notings
        await carry_out(self._copy, client, ListGroupsRequest(), client.version_for(ListGroupsRequest), notings=notings)


async def _names_of(client: KafkaClient, topic_ids: Sequence[UUID]) -> dict[UUID, str]:
    """The names of those of these topics that the broker has, and shows to the sidecar's user, by id."""
    topics = tuple(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids)
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    version = client.version_for(MetadataRequest, lowest=_BY_ID_SINCE)
    reply: MetadataResponse = await client.ask(request, version)
    return {topic.topic_id: topic.name for topic in reply.topics if topic.name and topic.topic_id.int}
