"""Translates OffsetFetch requests in versions that the broker lacks into a version that the broker has.

In v1 each partition of a reply carries the group's error, so a reply without partitions carries no error. A broker
without v2 answers a v1 request without partitions with all offsets (``GroupMetadataManager.getOffsets`` up to 0.10.1).
Some of these offsets may belong to topics that the client may not see. So the sidecar then asks for the returned
partitions by name. The broker refuses the partitions that the client may not see, and the answer leaves them out, as in
v2 (KIP-88).
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

from group_sidecar.codecs.errors import NONE, ErrorCode
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
)
from group_sidecar.codecs.offsets_topic import OFFSETS_TOPIC
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.answers.group_replies import TOP_LEVEL_ERROR_SINCE, groups_asked, topics_by_group
from group_sidecar.coordinator.wire.offset_apis import MANY_GROUPS_SINCE
from group_sidecar.proxy.broker.broker_versions import BrokerVersions
from group_sidecar.proxy.handlers.relay import BrokerRequest, Steps

STABLE_SINCE = 7
"""The OffsetFetch version from which a client may ask for stable offsets (KIP-447). A broker that is asked in an
older version has no transactions, so all of its offsets are stable."""
PARTITION_ERRORS = frozenset({NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""The errors of single partitions in v1. Any other error there is the group's (Kafka's ``OffsetFetchResponse``)."""
PLACEHOLDER_PARTITION = (OffsetFetchRequestTopic(name=OFFSETS_TOPIC, partition_indexes=(0,)),)
"""A partition that exists on every cluster with groups. If the client names no partition, the sidecar asks for this
partition, because the reply then carries the group's error."""

Topics = tuple[OffsetFetchRequestTopic, ...]
_GroupSteps = Generator[Sequence[BrokerRequest], Sequence[Struct], OffsetFetchResponseGroup]


def translate_offsets(request: OffsetFetchRequest, version: int, versions: BrokerVersions) -> Steps:
    """See `version_translation.translate`."""
    broker_version = versions.request_version(OffsetFetchRequest.KEY, version)
    if broker_version >= MANY_GROUPS_SINCE:  # v9 adds the member, which matters to consumer groups only (KIP-848).
        groups = tuple(replace(group, member_id=None, member_epoch=-1) for group in request.groups)
        [reply] = yield [BrokerRequest(replace(request, groups=groups), broker_version)]
        return reply
    answered = []
    for group_id, topics in topics_by_group(request, version):
        if broker_version >= TOP_LEVEL_ERROR_SINCE:
            stable = request.require_stable and broker_version >= STABLE_SINCE
            answered.append((yield from _ask(group_id, topics, broker_version, stable)))
        elif topics is not None:
            answered.append((yield from _ask_v1(group_id, topics)))
        else:
            answered.append((yield from _ask_v1_for_all(group_id)))
    return _reply(answered, version)


def offset_fetch_error(request: OffsetFetchRequest, version: int, error: int) -> OffsetFetchResponse:
    """Returns a reply that contains only this error for each group."""
    return _reply([_refused(group_id, error) for group_id in groups_asked(request, version)], version)


def _reply(groups: Sequence[OffsetFetchResponseGroup], version: int) -> OffsetFetchResponse:
    if version >= MANY_GROUPS_SINCE:
        return OffsetFetchResponse(groups=tuple(groups))
    [group] = groups
    return OffsetFetchResponse(topics=group.topics, error_code=group.error_code)


def _refused(group_id: str, error: int) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group_id, topics=(), error_code=error)


def _ask(group_id: str, topics: Topics | None, broker_version: int, stable: bool) -> _GroupSteps:
    """Asks for the offsets of one group in a version that has a field for the group's error."""
    question = OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=stable)
    [reply] = yield [BrokerRequest(question, broker_version)]
    assert isinstance(reply, OffsetFetchResponse)
    return OffsetFetchResponseGroup(group_id=group_id, topics=reply.topics, error_code=reply.error_code)


def _ask_v1(group_id: str, topics: Topics) -> _GroupSteps:
    """Asks for offsets of one group in v1. If the group has an error, the partitions are left out."""
    nothing = not any(topic.partition_indexes for topic in topics)
    [reply] = yield [
        BrokerRequest(OffsetFetchRequest(group_id=group_id, topics=PLACEHOLDER_PARTITION if nothing else topics), 1)
    ]
    assert isinstance(reply, OffsetFetchResponse)
    codes = {partition.error_code for topic in reply.topics for partition in topic.partitions}
    if errors := codes - PARTITION_ERRORS:
        return _refused(group_id, min(errors))
    return OffsetFetchResponseGroup(group_id=group_id, topics=() if nothing else reply.topics)


def _ask_v1_for_all(group_id: str) -> _GroupSteps:
    """Asks for all offsets of a group in v1, and then for the returned partitions by name."""
    [reply] = yield [BrokerRequest(OffsetFetchRequest(group_id=group_id, topics=()), 1)]
    assert isinstance(reply, OffsetFetchResponse)
    named = (
        OffsetFetchRequestTopic(name=topic.name, partition_indexes=tuple(p.partition_index for p in topic.partitions))
        for topic in reply.topics
    )
    answered = yield from _ask_v1(group_id, tuple(named))
    return replace(answered, topics=tuple(_committed(answered.topics)))


def _committed(topics: Sequence[OffsetFetchResponseTopic]) -> Iterator[OffsetFetchResponseTopic]:
    """Yields the topics. Leaves out partitions that the client may not see or whose offset was deleted meanwhile.

    Both kinds of partitions have the offset -1 and no metadata. A topic without other partitions is left out too.
    """
    for topic in topics:
        if partitions := tuple(p for p in topic.partitions if p.committed_offset != -1 or p.metadata):
            yield replace(topic, partitions=partitions)
