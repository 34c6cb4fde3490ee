"""Requests of the clients of the simulation, with random content."""

from collections.abc import Mapping, Sequence
from random import Random

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from group_sidecar.codecs.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from group_sidecar.codecs.schema import Struct
from tests.simulation.topic_replies import TOPIC

Question = tuple[Struct, int]
"""A request and its version."""
STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance")


def commit_of(
    group_id: str,
    offsets: Mapping[int, int],
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> OffsetCommitRequest:
    """Returns a commit of offsets by partition. With the default values it comes from no member."""
    partitions = tuple(
        OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=3,
            committed_metadata=f"at {offset}" if offset % 3 == 0 else None,
        )
        for partition, offset in offsets.items()
    )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=partitions),),
    )


def transactional_commit_of(group_id: str, offsets: Mapping[int, int], producer_id: int) -> TxnOffsetCommitRequest:
    """Returns a commit of offsets by partition in a transaction."""
    partitions = tuple(
        TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=3, committed_metadata=None
        )
        for partition, offset in offsets.items()
    )
    return TxnOffsetCommitRequest(
        transactional_id=f"transactional-{producer_id}",
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=0,
        topics=(TxnOffsetCommitRequestTopic(name=TOPIC, partitions=partitions),),
    )


def offset_fetch(rng: Random, groups: Sequence[str]) -> Question:
    """Returns an OffsetFetch about some of these groups, with all partitions or some of them."""
    version = rng.choice((2, 3, 5, 6, 7, 8, 9, 9))
    topics = None
    if rng.random() < 0.5:
        indexes = tuple(sorted(rng.sample(range(3), rng.randrange(1, 4))))
        topics = (OffsetFetchRequestTopic(name=TOPIC, partition_indexes=indexes),)
    is_stable = version >= 7 and rng.random() < 0.5
    if version < 8:
        return OffsetFetchRequest(group_id=rng.choice(groups), topics=topics, require_stable=is_stable), version
    chosen = rng.sample(groups, min(len(groups), rng.choice((1, 1, 2))))
    asked = tuple(OffsetFetchRequestGroup(group_id=each, topics=topics) for each in chosen)
    return OffsetFetchRequest(groups=asked, require_stable=is_stable), version


def describe(rng: Random, groups: Sequence[str]) -> Question:
    """Returns a DescribeGroups about some of these groups."""
    chosen = tuple(rng.sample(groups, min(len(groups), rng.choice((1, 1, 1, 2)))))
    return DescribeGroupsRequest(groups=chosen), rng.randrange(6)


def list_groups(rng: Random) -> Question:
    """Returns a ListGroups, perhaps with states."""
    version = rng.randrange(6)
    states = tuple(rng.sample(STATES, rng.randrange(3))) if version >= 4 else ()
    return ListGroupsRequest(states_filter=states), version


def any_question(rng: Random, groups: Sequence[str]) -> Question:
    """Returns a question about groups."""
    which = rng.random()
    if which < 0.45:
        return offset_fetch(rng, groups)
    return describe(rng, groups) if which < 0.8 else list_groups(rng)
