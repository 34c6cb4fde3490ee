"""Messages that are encoded by hand equal those of the declarations, byte by byte."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.messages import list_groups as lists
from group_sidecar.codecs.messages import offset_fetch as fetches
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseTopic
from group_sidecar.codecs.primitives import MAX_STRING_BYTES
from group_sidecar.codecs.schema import encode
from tests.codecs.declarations import limited_to
from tests.codecs.strategies import per_message, structs

LONG = "x" * (MAX_STRING_BYTES + 1)


@pytest.mark.parametrize("version", ListGroupsResponse.VERSIONS)
@per_message
@given(st.lists(structs(ListedGroup, tagged=False), max_size=3).map(tuple))
def test_encoded_group_list_matches_schema(version: int, groups: tuple[ListedGroup, ...]) -> None:
    """The hand-written ListGroups encoder produces the same bytes as the schema's encoder."""
    message = ListGroupsResponse(error_code=0, groups=groups)
    encoded = [lists.encode_group(each, version) for each in groups]
    assert lists.encode_list(len(groups), encoded, version) == encode(message, version)


@pytest.mark.parametrize("count", [126, 127, 128, 16_383])
def test_long_group_list_matches_schema(count: int) -> None:
    """The hand-written ListGroups encoder matches the schema's encoder where the length needs more bytes."""
    groups = tuple(ListedGroup(group_id=str(number), protocol_type="consumer") for number in range(count))
    message = ListGroupsResponse(error_code=0, groups=groups)
    assert lists.encode_list(len(groups), [lists.encode_group(each, 3) for each in groups], 3) == encode(message, 3)


@pytest.mark.parametrize("version", ListGroupsResponse.VERSIONS)
def test_group_form_matches_version(version: int) -> None:
    """A listed group's bytes equal those of the first version with the same form."""
    group = ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type="classic")
    assert lists.encode_group(group, version) == lists.encode_group(group, lists.form(version))


def topics_by_hand(topics: tuple[OffsetFetchResponseTopic, ...], version: int) -> list[bytes]:
    """Returns the encoded topics, laid out as in `EncodedOffsets`."""
    parts = [fetches.start_topics(version, len(topics))]
    for topic in topics:
        parts.append(fetches.start_topic(version, topic.name, topic.topic_id, len(topic.partitions)))
        for each in topic.partitions:
            place, epoch = each.committed_offset, each.committed_leader_epoch
            parts.append(fetches.encode_partition(version, each.partition_index, place, epoch, each.metadata))
        parts.append(fetches.end_topic(version))
    return parts


@pytest.mark.parametrize("version", OffsetFetchResponse.VERSIONS)
@per_message
@given(structs(OffsetFetchResponse, {"error_code": st.just(0), "throttle_time_ms": st.just(0)}, tagged=False))
def test_encoded_offsets_match_schema(version: int, drawn: OffsetFetchResponse) -> None:
    """The hand-written OffsetFetch encoder produces the same bytes as the schema's encoder."""
    message = limited_to(drawn, version)
    asked = [(each.group_id, each.topics) for each in message.groups] if version >= 8 else [("g", message.topics)]
    by_hand = fetches.encode_reply(version, [(group, topics_by_hand(topics, version)) for group, topics in asked])
    assert by_hand == encode(message, version)


@pytest.mark.parametrize("version", [0, 6])
def test_oversized_values_are_refused(version: int) -> None:
    """The hand-written encoders raise an error for strings and numbers that do not fit their fields."""
    for group in (ListedGroup(group_id=LONG, protocol_type=""), ListedGroup(group_id="", protocol_type=LONG)):
        with pytest.raises(ValueError, match="32768 bytes"):
            lists.encode_group(group, 0 if version == 0 else 3)
    with pytest.raises(ValueError, match="32768 bytes"):
        fetches.encode_partition(version, 0, 0, -1, LONG)
    with pytest.raises(struct.error):
        fetches.encode_partition(version, 1 << 31, 0, -1, "")
