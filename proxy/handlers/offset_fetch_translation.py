"""OffsetFetch in versions that the broker lacks, put to it in a version that it has.

Owns: what the broker is asked instead, and what the client is told of its replies. Must not know: as
`version_translation`.

In v1 a group's error stands on its partitions, where there are any. Asked for none, brokers without v2 tell all
(``GroupMetadataManager.getOffsets`` up to 0.10.1), even what the client may not see. So they are then asked by
name: they refuse what the client may not see, and it is left out as in v2 (KIP-88).
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
from group_sidecar.coordinator.answers.group_replies import TOP_LEVEL_ERROR_SINCE
from group_sidecar.coordinator.wire.offset_apis import MANY_GROUPS_SINCE
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.handlers.relay import BrokerRequest, Steps

STABLE_SINCE = 7
"""The OffsetFetch version from which a client may ask for stable offsets (KIP-447). A broker that lacks it has no
transactions, and all of its offsets are."""
PARTITION_ERRORS = frozenset({NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""What v1 says of a partition; all else there it says of the group (Kafka's ``OffsetFetchResponse``)."""
PLACEHOLDER_PARTITION = (OffsetFetchRequestTopic(name=OFFSETS_TOPIC, partition_indexes=(0,)),)
"""What is there wherever a group has a coordinator: asked for where nothing else is, for the sake of the error."""

Topics = tuple[OffsetFetchRequestTopic, ...]
_GroupSteps = Generator[Sequence[BrokerRequest], Sequence[Struct], OffsetFetchResponseGroup]


def translate_offsets(request: OffsetFetchRequest, version: int, copy: BrokerState) -> Steps:
    """See `translations.translate`."""
    broker_version = copy.request_version(OffsetFetchRequest.KEY, version)
    if broker_version >= MANY_GROUPS_SINCE:  # v9 adds who asks, which is of interest to consumer groups (KIP-848).
        groups = tuple(replace(group, member_id=None, member_epoch=-1) for group in request.groups)
        [reply] = yield [BrokerRequest(replace(request, groups=groups), broker_version)]
        return reply
    answered = []
    for group_id, topics in _groups(request, version):
        if broker_version >= TOP_LEVEL_ERROR_SINCE:
            stable = request.require_stable and broker_version >= STABLE_SINCE
            answered.append((yield from _ask(group_id, topics, broker_version, stable)))
        elif topics is not None:
            answered.append((yield from _ask_v1(group_id, topics)))
        else:
            answered.append((yield from _ask_v1_for_all(group_id)))
    return _reply(answered, version)


def offset_fetch_error(request: OffsetFetchRequest, version: int, error: int) -> OffsetFetchResponse:
    """A reply that tells nothing but an error of each group."""
    groups = [group_id for group_id, _ in _groups(request, version)]
    return _reply([_refused(group_id, error) for group_id in groups], version)


def _groups(request: OffsetFetchRequest, version: int) -> Sequence[tuple[str, Topics | None]]:
    if version >= MANY_GROUPS_SINCE:
        return [(group.group_id, group.topics) for group in request.groups]
    return [(request.group_id, request.topics)]


def _reply(groups: Sequence[OffsetFetchResponseGroup], version: int) -> OffsetFetchResponse:
    if version >= MANY_GROUPS_SINCE:
        return OffsetFetchResponse(groups=tuple(groups))
    [group] = groups
    return OffsetFetchResponse(topics=group.topics, error_code=group.error_code)


def _refused(group_id: str, error: int) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group_id, topics=(), error_code=error)


def _ask(group_id: str, topics: Topics | None, broker_version: int, stable: bool) -> _GroupSteps:
    """Of a broker that has places for all that there is to tell of one group."""
    question = OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=stable)
    [reply] = yield [BrokerRequest(question, broker_version)]
    assert isinstance(reply, OffsetFetchResponse)
    return OffsetFetchResponseGroup(group_id=group_id, topics=reply.topics, error_code=reply.error_code)


def _ask_v1(group_id: str, topics: Topics) -> _GroupSteps:
    """In v1. What the group's error stands on is not told beside it."""
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
    """In v1, for all offsets of a group: those that it has, and then once more by name."""
    [reply] = yield [BrokerRequest(OffsetFetchRequest(group_id=group_id, topics=()), 1)]
    assert isinstance(reply, OffsetFetchResponse)
    named = (
        OffsetFetchRequestTopic(name=topic.name, partition_indexes=tuple(p.partition_index for p in topic.partitions))
        for topic in reply.topics
    )
    answered = yield from _ask_v1(group_id, tuple(named))
    return replace(answered, topics=tuple(_committed(answered.topics)))


def _committed(topics: Sequence[OffsetFetchResponseTopic]) -> Iterator[OffsetFetchResponseTopic]:
    """Without what the client may not see, or what has gone meanwhile: both have the offset -1 and no metadata."""
    for topic in topics:
        if partitions := tuple(p for p in topic.partitions if p.committed_offset != -1 or p.metadata):
            yield replace(topic, partitions=partitions)
