"""Defines the largest decoded requests about offsets and deletions, with few large or many small parts."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from benchmarks.largest_group_messages import LONG_NOTE, OWN, SEEN, UNSEEN, WIDE, Case, Sizes, form, forms, member_id
from group_sidecar.codecs.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from group_sidecar.codecs.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from group_sidecar.codecs.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from group_sidecar.codecs.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def judged(most: int) -> Iterator[Case]:
    """Yields commits that a policy checks. In some of them, the metadata of a partition is too long for the policy."""
    for case in commits(lambda _: most):
        if isinstance(case.request, OffsetCommitRequest):
            yield case._replace(name=f"{case.name}, judged")
            first, *others = case.request.topics
            noted = replace(first.partitions[0], committed_metadata=LONG_NOTE)
            topics = (replace(first, partitions=(noted, *first.partitions[1:])), *others)
            reply: Any = case.reply
            entry, *rest = reply.topics
            left = (replace(entry, partitions=entry.partitions[1:]),) if len(entry.partitions) > 1 else ()
            yield case._replace(
                name=f"{case.name}, one taken out",
                request=replace(case.request, topics=topics),
                reply=replace(reply, topics=(*left, *rest)),
            )


def _partitions(
    committed: Callable[..., Any], stored: Callable[..., Any], count: int
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Returns `count` partitions of a topic in a commit, and in the commit's reply without errors."""
    return (
        tuple(
            committed(partition_index=index, committed_offset=index, committed_metadata="") for index in range(count)
        ),
        tuple(stored(partition_index=index, error_code=0) for index in range(count)),
    )


def commits(sizes: Sizes) -> Iterator[Case]:
    """Yields cases of OffsetCommit and TxnOffsetCommit."""
    for topics, each in forms(sizes(OffsetCommitRequest.KEY)):
        names = [f"topic-{number}" for number in range(topics)]
        committed, stored = _partitions(OffsetCommitRequestPartition, OffsetCommitResponsePartition, each)
        yield Case(
            f"OffsetCommit of {form(topics, each)} partitions",
            OffsetCommitRequest(
                group_id=OWN,
                generation_id_or_member_epoch=1,
                member_id=member_id(OWN, 0),
                topics=tuple(OffsetCommitRequestTopic(name=name, partitions=committed) for name in names),
            ),
            8,
            OffsetCommitResponse(
                topics=tuple(OffsetCommitResponseTopic(name=name, partitions=stored) for name in names)
            ),
        )
        pending, taken = _partitions(TxnOffsetCommitRequestPartition, TxnOffsetCommitResponsePartition, each)
        yield Case(
            f"TxnOffsetCommit of {form(topics, each)} partitions",
            TxnOffsetCommitRequest(
                transactional_id="t",
                group_id="transactional",
                producer_id=1,
                producer_epoch=0,
                topics=tuple(TxnOffsetCommitRequestTopic(name=name, partitions=pending) for name in names),
            ),
            4,
            TxnOffsetCommitResponse(
                throttle_time_ms=0,
                topics=tuple(TxnOffsetCommitResponseTopic(name=name, partitions=taken) for name in names),
            ),
        )


def deletions(sizes: Sizes) -> Iterator[Case]:
    """Yields cases of OffsetDelete and DeleteGroups."""
    for topics, each in forms(sizes(OffsetDeleteRequest.KEY)):
        names = [f"topic-{number}" for number in range(topics)]
        asked = tuple(OffsetDeleteRequestPartition(partition_index=index) for index in range(each))
        done = tuple(OffsetDeleteResponsePartition(partition_index=index, error_code=0) for index in range(each))
        yield Case(
            f"OffsetDelete of {form(topics, each)} partitions",
            OffsetDeleteRequest(
                group_id=OWN, topics=tuple(OffsetDeleteRequestTopic(name=name, partitions=asked) for name in names)
            ),
            0,
            OffsetDeleteResponse(
                error_code=0,
                throttle_time_ms=0,
                topics=tuple(OffsetDeleteResponseTopic(name=name, partitions=done) for name in names),
            ),
        )
    most = sizes(DeleteGroupsRequest.KEY)
    for what, prefix in (("that are known", SEEN), ("that are not known", UNSEEN)):
        groups = tuple(f"{prefix}-{number:07}" for number in range(20_000, 20_000 + most))
        results = tuple(DeletableGroupResult(group_id=group, error_code=0) for group in groups)
        yield Case(
            f"DeleteGroups of {most:,} groups {what}",
            DeleteGroupsRequest(groups_names=groups),
            2,
            DeleteGroupsResponse(throttle_time_ms=0, results=results),
        )


def fetched(names: list[str], each: int) -> tuple[OffsetFetchResponseTopic, ...]:
    """Returns offsets as in the broker's OffsetFetch reply."""
    rows = tuple(
        OffsetFetchResponsePartition(partition_index=index, committed_offset=index, metadata="", error_code=0)
        for index in range(each)
    )
    return tuple(OffsetFetchResponseTopic(name=name, partitions=rows) for name in names)


def fetches(sizes: Sizes, groups: int, big: int) -> Iterator[Case]:
    """Yields cases of OffsetFetch, for groups whose log is read and for unknown groups."""
    most, decodable = sizes(WIDE), sizes(OffsetFetchRequest.KEY)
    for what, prefix in (("", SEEN), (" that are not known", UNSEEN)):
        names = [f"{prefix}-{number:07}" for number in range(most)]
        for some in (names[:groups], names):
            yield Case(
                f"OffsetFetch of {len(some):,} groups{what}, all offsets",
                OffsetFetchRequest(groups=tuple(OffsetFetchRequestGroup(group_id=each, topics=None) for each in some)),
                8,
                OffsetFetchResponse(
                    groups=tuple(
                        OffsetFetchResponseGroup(group_id=each, topics=fetched(["topic"], 1))
                        for each in some[: decodable // 3]
                    )
                ),
            )
    for topics, each in (*forms(most), (groups * 3, 1)):
        names = [f"topic-{number}" for number in range(topics)]
        asked = tuple(OffsetFetchRequestTopic(name=name, partition_indexes=tuple(range(each))) for name in names)
        yield Case(
            f"OffsetFetch of {form(topics, each)} partitions",
            OffsetFetchRequest(group_id=f"{SEEN}-0000000", topics=asked),
            7,
            OffsetFetchResponse(topics=fetched(names, each)),
        )
    learnt = fetched(["topic"], decodable - 3)
    yield Case(
        f"OffsetFetch of a group, all of {big:,} offsets",
        OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="big", topics=None),)),
        8,
        OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="big", topics=learnt),)),
    )


def ends(sizes: Sizes) -> Iterator[Case]:
    """Yields cases of ListOffsets."""
    for topics, each in forms(sizes(ListOffsetsRequest.KEY)):
        names = [f"topic-{number}" for number in range(topics)]
        asked = tuple(ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(each))
        found = tuple(ListOffsetsPartitionResponse(partition_index=i, error_code=0, offset=i) for i in range(each))
        yield Case(
            f"ListOffsets of {form(topics, each)} partitions",
            ListOffsetsRequest(
                replica_id=-1, topics=tuple(ListOffsetsTopic(name=name, partitions=asked) for name in names)
            ),
            7,
            ListOffsetsResponse(topics=tuple(ListOffsetsTopicResponse(name=name, partitions=found) for name in names)),
        )
