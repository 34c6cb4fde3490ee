"""Tests the comparison of two replies: what counts as a difference, and how it is logged."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from group_sidecar.codecs.primitives import ZERO_UUID
from group_sidecar.codecs.schema import Struct, encode
from group_sidecar.proxy.broker.verification_diff import (
    LONGEST_SHOWN,
    MAX_SHOWN_FIELDS,
    Comparison,
    compare,
    format_difference,
)


def member(member_id: str, **instead: Any) -> DescribedGroupMember:
    fields = {"client_id": "c", "client_host": "/10.0.0.1", "member_metadata": b"m", "member_assignment": b"a"}
    return DescribedGroupMember(member_id=member_id, **{**fields, **instead})


def described(group_id: str, *members: DescribedGroupMember, **instead: Any) -> DescribedGroup:
    fields = {"error_code": 0, "group_state": "Stable", "protocol_type": "consumer", "protocol_data": "range"}
    return DescribedGroup(group_id=group_id, members=members, **{**fields, **instead})


def describing(*groups: DescribedGroup, **more: Any) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=groups, **more)


DESCRIBE = DescribeGroupsRequest(groups=("g", "h"))
LIST = ListGroupsRequest()


def listing(*names: str, **more: Any) -> ListGroupsResponse:
    groups = (ListedGroup(group_id=name, protocol_type="consumer", group_state="Stable") for name in names)
    return ListGroupsResponse(**{"error_code": 0, "groups": tuple(groups), **more})


def topic(name: str, *offsets: int, error: int = 0, topic_id: UUID = ZERO_UUID) -> OffsetFetchResponseTopic:
    partitions = (
        OffsetFetchResponsePartition(partition_index=n, committed_offset=offset, metadata="", error_code=error)
        for n, offset in enumerate(offsets)
    )
    return OffsetFetchResponseTopic(name=name, topic_id=topic_id, partitions=tuple(partitions))


def backwards(original: OffsetFetchResponseTopic) -> OffsetFetchResponseTopic:
    return replace(original, partitions=original.partitions[::-1])


ALL_OFFSETS = OffsetFetchRequest(group_id="g", topics=None)
TWO_GROUPS = OffsetFetchRequest(
    groups=(OffsetFetchRequestGroup(group_id="g", topics=None), OffsetFetchRequestGroup(group_id="h", topics=None))
)


def offsets_of(*groups: tuple[str, list[OffsetFetchResponseTopic]]) -> OffsetFetchResponse:
    return OffsetFetchResponse(groups=tuple(OffsetFetchResponseGroup(group_id=g, topics=tuple(t)) for g, t in groups))


def compared(
    request: Struct, version: int, ours: Struct, theirs: Struct, *, sees_all: bool = True, true_hosts: bool = True
) -> Comparison:
    habits = {"sees_all": sees_all, "true_hosts": true_hosts}
    return compare(request, version, encode(ours, version), encode(theirs, version), **habits)


ALIKE: list[tuple[Struct, int, Struct, Struct]] = [
    (DESCRIBE, 5, describing(described("g")), describing(described("g"))),
    (DESCRIBE, 5, describing(described("g"), described("h")), describing(described("h"), described("g"))),
    (DESCRIBE, 5, describing(described("g")), describing(described("g"), throttle_time_ms=7)),
    (
        DESCRIBE,
        5,
        describing(described("g", member("a"), member("b"))),
        describing(described("g", member("b", client_host="/127.0.0.1"), member("a", client_host=""))),
    ),
    (LIST, 4, listing("a", "b"), listing("b", "a", throttle_time_ms=3)),
    (
        ALL_OFFSETS,
        7,
        OffsetFetchResponse(topics=(topic("s", 1), topic("t", 2, 3))),
        OffsetFetchResponse(topics=(backwards(topic("t", 2, 3)), topic("s", 1))),
    ),
    (
        TWO_GROUPS,
        10,
        offsets_of(("g", [topic("", 1, topic_id=UUID(int=1)), topic("", 2, topic_id=UUID(int=2))]), ("h", [])),
        offsets_of(("h", []), ("g", [topic("", 2, topic_id=UUID(int=2)), topic("", 1, topic_id=UUID(int=1))])),
    ),
]


@pytest.mark.parametrize(("request_", "version", "ours", "theirs"), ALIKE)
@pytest.mark.parametrize("sees_all", [True, False])
def test_irrelevant_fields_are_ignored(
    request_: Struct, version: int, ours: Struct, theirs: Struct, sees_all: bool
) -> None:
    """The order of list elements, throttle times and client hosts do not make replies differ."""
    assert compared(request_, version, ours, theirs, sees_all=sees_all) == Comparison()


@pytest.mark.parametrize(
    "theirs",
    [
        described("g", member("a")),
        described("g", member("a"), member("b"), member("c")),
        described("g", member("a"), member("b", client_id="other")),
        described("g", member("a"), member("b", group_instance_id="i")),
        described("g", member("a"), member("b", member_assignment=b"")),
        described("g", member("a"), member("b"), group_state="Empty"),
        described("g", member("a"), member("b"), protocol_type="connect"),
        described("g", member("a"), member("b"), error_code=14),
        described("g", member("a"), member("b"), error_message="no"),
        replace(described("g", member("a"), member("b")), unknown_tags=((9, b"x"),)),
    ],
)
@pytest.mark.parametrize("sees_all", [True, False])
def test_any_other_field_makes_group_differ(theirs: DescribedGroup, sees_all: bool) -> None:
    """Any other difference in a group's fields makes that group differ."""
    ours, other = described("g", member("a"), member("b")), described("h")
    found = compared(DESCRIBE, 6, describing(ours, other), describing(other, theirs), sees_all=sees_all)
    assert found.differences.keys() == {"g"}


def test_client_hosts_compared_if_as_broker() -> None:
    """Client hosts are compared only if the copy reports them as the broker sees them."""
    ours, theirs = describing(described("g", member("a"))), describing(described("g", member("a", client_host="/h")))
    assert compared(DESCRIBE, 6, ours, theirs) == Comparison()
    found = compared(DESCRIBE, 6, ours, theirs, true_hosts=False)
    assert found.differences.keys() == {"g"}
    assert format_difference(found.differences["g"]) == (
        {"members[a].client_host": "/10.0.0.1"},
        {"members[a].client_host": "/h"},
    )


def test_missing_group_is_difference() -> None:
    """A group that only one list contains is a difference."""
    found = compared(LIST, 4, listing("a", "b"), listing("b", "c"))
    assert {group: (ours is None, theirs is None) for group, (ours, theirs) in found.differences.items()} == {
        "a": (False, True),
        "c": (True, False),
    }


def test_missing_group_may_be_hidden() -> None:
    """If the broker may hide groups, a group missing in one list counts as hidden."""
    found = compared(LIST, 4, listing("a", "b"), listing("b", "c"), sees_all=False)
    assert found == Comparison(hidden=frozenset({"a", "c"}))


def test_listed_groups_differ_despite_hiding() -> None:
    """A group in both lists can differ although the broker may hide groups."""
    theirs = ListGroupsResponse(error_code=0, groups=(ListedGroup(group_id="b", protocol_type="connect"),))
    assert compared(LIST, 3, listing("a", "b"), theirs, sees_all=False).differences.keys() == {"b"}


def test_top_level_error_has_no_group() -> None:
    """A top-level error is a difference without a group."""
    found = compared(LIST, 4, listing("a"), listing(error_code=14))
    assert found.differences.keys() == {"a", None}


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
@pytest.mark.parametrize("sees_all", [True, False])
def test_refused_group_is_hidden(code: int, sees_all: bool) -> None:
    """A group that the broker refuses to the sidecar counts as hidden and is not compared."""
    refused = describing(described("g", error_code=code), described("h", group_state="Empty"))
    found = compared(DESCRIBE, 5, describing(described("g"), described("h")), refused, sees_all=sees_all)
    assert found.hidden == {"g"}
    assert found.differences.keys() == {"h"}
    theirs = offsets_of(("g", [topic("t", -1, error=code)]), ("h", []))
    assert compared(TWO_GROUPS, 8, offsets_of(("g", [topic("t", 5)]), ("h", [])), theirs).hidden == {"g"}


@pytest.mark.parametrize("version", [7, 8])
def test_hidden_topics_are_not_compared(version: int) -> None:
    """If the broker may hide topics, a topic missing in its reply is no difference, while a differing offset is one."""

    def offsets_reply(*topics: OffsetFetchResponseTopic) -> OffsetFetchResponse:
        return OffsetFetchResponse(topics=topics) if version == 7 else offsets_of(("g", [*topics]))

    request = ALL_OFFSETS if version == 7 else TWO_GROUPS
    ours = offsets_reply(topic("hidden", 1), topic("t", 2))
    assert compared(request, version, ours, offsets_reply(topic("t", 2)), sees_all=False).differences == {}
    assert compared(request, version, ours, offsets_reply(topic("t", 2))).differences.keys() == {"g"}
    assert compared(request, version, ours, offsets_reply(topic("t", 3)), sees_all=False).differences.keys() == {"g"}


def test_single_group_error_belongs_to_group() -> None:
    """In OffsetFetch versions before 8, a top-level error is the difference of the requested group."""
    ours, theirs = OffsetFetchResponse(topics=(topic("t", 1),)), OffsetFetchResponse(error_code=16)
    assert compared(ALL_OFFSETS, 7, ours, theirs).differences.keys() == {"g"}


def test_undecodable_reply_raises() -> None:
    """A reply that cannot be decoded raises DecodeError."""
    with pytest.raises(DecodeError):
        compare(LIST, 4, encode(listing("a"), 4), b"junk", sees_all=True, true_hosts=True)


# Text for the log.


def test_difference_lists_fields_by_path() -> None:
    """The text of a difference lists only the differing fields, by their paths."""
    ours = describing(described("g", member("a"), member("b", member_metadata=b"\x01\x02"), group_state="Stable"))
    theirs = describing(described("g", member("c"), member("b", member_metadata=b"\x03"), group_state="Empty"))
    mine, other = format_difference(compared(DESCRIBE, 5, ours, theirs).differences["g"])
    assert mine["group_state"] == "Stable"
    assert other["group_state"] == "Empty"
    assert mine["members[b].member_metadata"] == "0102"
    assert other["members[b].member_metadata"] == "03"
    assert "member_id='a'" in mine["members[a]"]
    assert other["members[a]"] == "none"
    assert mine["members[c]"] == "none"
    assert mine.keys() == other.keys() == {
        "group_state", "members[a]", "members[b].member_metadata", "members[c]"
    }  # fmt: skip


def test_offset_difference_names_partition() -> None:
    """The text of an offset difference names the topic or its id, and the partition."""
    ours, theirs = (OffsetFetchResponse(topics=(topic("t", 1, offset),)) for offset in (2, 3))
    name = "topics[t].partitions[1].committed_offset"
    assert format_difference(compared(ALL_OFFSETS, 7, ours, theirs).differences["g"]) == ({name: "2"}, {name: "3"})
    topic_id = UUID(int=7)
    ours, theirs = (offsets_of(("g", [topic("", offset, topic_id=topic_id)]), ("h", [])) for offset in (2, 3))
    name = f"topics[{topic_id}].partitions[0].committed_offset"
    assert format_difference(compared(TWO_GROUPS, 10, ours, theirs).differences["g"]) == ({name: "2"}, {name: "3"})


def test_missing_group_is_shown_whole() -> None:
    """The text of a missing group shows none on one side and the whole group on the other."""
    mine, other = format_difference(compared(LIST, 4, listing(), listing("a")).differences["a"])
    assert mine == {"group": "none"}
    assert "group_id='a'" in other["group"]


def test_difference_text_is_bounded() -> None:
    """The text of a difference has a bounded number of fields of bounded length."""
    ours, theirs = (
        describing(described("g", *(member(f"m{n}", member_metadata=filler * 5000) for n in range(100))))
        for filler in (b"x", b"y")
    )
    for side in format_difference(compared(DESCRIBE, 5, ours, theirs).differences["g"]):
        assert len(side) == MAX_SHOWN_FIELDS
        assert all(text.endswith("... (10000 characters)") for text in side.values())
        assert all(len(text) < LONGEST_SHOWN + 30 for text in side.values())
