"""Questions about groups whose log has lost its oldest records.

The broker deletes records from the start of `__consumer_offsets` if the topic's cleanup.policy contains `delete`, or if
a client sends DeleteRecords. The broker's coordinator keeps the state of the deleted records in memory.
"""

import pytest

from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from group_sidecar.coordinator.answer_requirements import fallback_reason
from group_sidecar.coordinator.model.events import OffsetsDeleted
from group_sidecar.coordinator.model.views import FallbackReason, GroupState
from tests.coordinator.log.test_consumer_group_records import Log as Records
from tests.coordinator.log.test_follower import T0, Reader, offset, with_member
from tests.coordinator.test_false_answers import described

COLD = FallbackReason.COLD
LATEST, SINGLE = 9, 7
"""Versions of OffsetFetch: a request for several groups, and a request for one group."""


def asked(reader: Reader, *partitions: int, group: str = "g", version: int = LATEST, at: float = 3) -> str | None:
    """Returns why an OffsetFetch for these partitions may not be answered. Without partitions, it asks for all."""
    topics = (OffsetFetchRequestTopic(name="t", partition_indexes=partitions),) if partitions else None
    several = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=topics),))
    one = OffsetFetchRequest(group_id=group, topics=topics)
    return fallback_reason(several if version == LATEST else one, version, reader.manager, at)


@pytest.mark.parametrize("version", [SINGLE, LATEST])
@pytest.mark.parametrize("exclusive", [False, True])
def test_only_logged_offsets_are_answered(exclusive: bool, version: int) -> None:
    """The copy answers for offsets that the log contains. The broker answers for offsets that the log lacks."""
    reader = Reader(start=40, exclusive=exclusive)
    reader.read(offset(0, 5), at=2)
    assert asked(reader, 0, version=version) is None
    assert asked(reader, 0, 1, version=version) is COLD
    assert asked(reader, version=version) is COLD
    assert asked(reader, 0, group="other", version=version) is COLD


def test_offset_after_deleted_record_is_answered() -> None:
    """An offset becomes known with its next commit, and unknown again when its tombstone was read."""
    reader = Reader(start=40)
    reader.stored(2, 2, p0=6)
    assert asked(reader, 0, at=2.5) is None
    reader.read(offset(0, 6), at=3)
    assert asked(reader, 0) is None
    reader.read(offset(0, None), at=4)
    assert asked(reader, 0, at=4) is COLD


def test_deletion_seen_on_wire_is_answered() -> None:
    """After the wire has shown the deletion of an offset, the copy answers that there is no offset."""
    reader = Reader(start=40, exclusive=True)
    reader.read(offset(0, 5), offset(1, 5), at=2)
    reader.manager.apply([OffsetsDeleted(group_id="g", sent_at=2.5, partitions=(T0,))], 2.6)
    assert asked(reader, 0, at=2.7) is None


def test_absent_group_is_left_to_broker() -> None:
    """The broker answers for groups that the log lacks, and lists the groups, even for an exclusive copy."""
    for start, expected in ((0, None), (40, COLD)):
        reader = Reader(start=start, exclusive=True)
        reader.read(offset(0, 5, "other"), at=2)
        reader.manager.apply([described(reader.manager, 2, GroupState.EMPTY, "other")], 2)
        reader.manager.apply([described(reader.manager, 2, GroupState.DEAD)], 2)
        questions = (
            (DescribeGroupsRequest(groups=("g",)), 5),
            (ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False), 0),
            (ListGroupsRequest(), 4),
        )
        reasons = [fallback_reason(request, version, reader.manager, 3) for request, version in questions]
        assert reasons == [expected] * 3


def test_consumer_group_is_left_to_broker() -> None:
    """The log of a consumer group may lack the records of other members, so the broker describes the group."""
    for start, expected in ((0, None), (40, COLD)):
        reader = Reader(start=start)
        reader.read(*Records().group(4, 4).member("x").current("x", 4).records.items(), at=2)
        question = ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False)
        assert fallback_reason(question, 0, reader.manager, 2.5) is expected
        assert reader.manager.view("g", 2.5).fallback_reason is expected


def test_classic_group_with_offsets_may_be_consumer_group() -> None:
    """Offsets do not show the protocol of a group, so the broker answers ConsumerGroupDescribe."""
    for start, expected in ((0, None), (40, COLD)):
        reader = Reader(start=start)
        reader.read(offset(0, 5), at=2)
        question = ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False)
        assert fallback_reason(question, 0, reader.manager, 2.5) is expected


def test_new_group_of_log_may_be_older() -> None:
    """The first record of a group in such a log may not be the first record of the group."""
    for start, is_complete in ((0, True), (40, False)):
        reader = Reader(start=start, exclusive=True)
        reader.read(with_member(1), at=2)
        assert (reader.manager.group_metadata_cache["g"].incomplete_reason is None) is is_complete


def test_later_deletion_counts_after_next_load() -> None:
    """If records are deleted before the copy has read them, the next load begins after them. A whole log ends that."""
    reader = Reader(load=[offset(0, 5)])
    assert asked(reader, 1, at=2) is None
    for epoch, start, expected in ((4, 40, COLD), (5, 0, None)):
        reader.log = reader.follower.begin_load(0, epoch, start, 3)
        reader.catch_up(4, 4)
        assert asked(reader, 1, at=4) is expected
    reader.follower.begin_load(0, 6, 40, 5)
    reader.follower.resign(0, 7, 6)
    assert reader.follower.partitions.trimmed == set()
