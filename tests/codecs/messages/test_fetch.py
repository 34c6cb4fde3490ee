"""`partitions_with_high_watermark` reads the partitions of a Fetch reply that has arrived only in part."""

from collections.abc import Iterable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
    partitions_with_high_watermark,
)
from group_sidecar.codecs.schema import encode
from tests.codecs.declarations import limited_to
from tests.codecs.strategies import per_message, structs

PartitionRows = list[tuple[str, UUID, int, int, int]]
HIGH_WATERMARK = 0x0102030405060708


def partition_rows(topics: Iterable[FetchableTopicResponse]) -> PartitionRows:
    """Returns the information about each partition, in the order of the reply."""
    return [
        (topic.topic, topic.topic_id, each.partition_index, each.error_code, each.high_watermark)
        for topic in topics
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", FetchResponse.VERSIONS)
@per_message
@given(st.data())
def test_partial_reply_matches_whole_reply(version: int, data: st.DataObject) -> None:
    """Partitions read from a truncated Fetch reply are a prefix of those read from the whole reply."""
    reply = limited_to(data.draw(structs(FetchResponse)), version)
    body, whole = encode(reply, version), partition_rows(reply.responses)
    assert partition_rows(partitions_with_high_watermark(version, body)) == whole
    cut = partition_rows(partitions_with_high_watermark(version, body[: data.draw(st.integers(0, len(body)))]))
    assert cut == whole[: len(cut)]


@pytest.mark.parametrize("version", FetchResponse.VERSIONS)
def test_partition_needs_only_high_watermark(version: int) -> None:
    """A partition is reported as soon as the bytes of its high watermark have arrived."""
    partitions = tuple(
        PartitionData(partition_index=index, error_code=0, high_watermark=HIGH_WATERMARK + index, records=bytes(500))
        for index in (0, 1)
    )
    topic = FetchableTopicResponse(topic="t", topic_id=UUID(int=5), partitions=partitions)
    reply = limited_to(FetchResponse(responses=(topic,)), version)
    body = encode(reply, version)
    for count in (1, 2):
        end = body.index((HIGH_WATERMARK + count - 1).to_bytes(8)) + 8
        assert (
            partition_rows(partitions_with_high_watermark(version, body[: end - 1]))
            == partition_rows(reply.responses)[: count - 1]
        )
        assert (
            partition_rows(partitions_with_high_watermark(version, body[:end]))
            == partition_rows(reply.responses)[:count]
        )


@pytest.mark.parametrize("version", FetchResponse.VERSIONS)
def test_invalid_bytes_have_no_partitions(version: int) -> None:
    """Invalid or empty bytes of a Fetch reply yield no partitions."""
    assert partitions_with_high_watermark(version, b"\xff" * 100) == ()
    assert partitions_with_high_watermark(version, b"") == ()
