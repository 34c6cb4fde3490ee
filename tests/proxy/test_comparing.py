"""Two replies to one question: what makes them differ, what does not, and how a difference reads."""

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
from group_sidecar.proxy.comparing import LONGEST_SHOWN, MOST_SHOWN, Comparison, compare, shown


def member(member_id: str, **instead: Any) -> DescribedGroupMember:
    told = {"client_id": "c", "client_host": "/10.0.0.1", "member_metadata": b"m", "member_assignment": b"a"}
    return DescribedGroupMember(member_id=member_id, **{**told, **instead})


def described(group_id: str, *members: DescribedGroupMember, **instead: Any) -> DescribedGroup:
    told = {"error_code": 0, "group_state": "Stable", "protocol_type": "consumer", "protocol_data": "range"}
    return DescribedGroup(group_id=group_id, members=members, **{**told, **instead})


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


def backwards(told: OffsetFetchResponseTopic) -> OffsetFetchResponseTopic:
    return replace(told, partitions=told.partitions[::-1])


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
def test_what_stands_in_no_promised_order_is_alike(
    request_: Struct, version: int, ours: Struct, theirs: Struct, sees_all: bool
) -> None:
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
def test_any_other_field_makes_a_group_differ(theirs: DescribedGroup, sees_all: bool) -> None:
    ours, other = described("g", member("a"), member("b")), described("h")
    found = compared(DESCRIBE, 6, describing(ours, other), describing(other, theirs), sees_all=sees_all)
    assert found.differences.keys() == {"g"}


def test_where_the_brokers_hosts_are_told_they_must_be_the_same() -> None:
    ours, theirs = describing(described("g", member("a"))), describing(described("g", member("a", client_host="/h")))
    assert compared(DESCRIBE, 6, ours, theirs) == Comparison()
    found = compared(DESCRIBE, 6, ours, theirs, true_hosts=False)
    assert found.differences.keys() == {"g"}
    assert shown(found.differences["g"]) == (
        {"members[a].client_host": "/10.0.0.1"},
        {"members[a].client_host": "/h"},
    )


def test_groups_are_missing_on_either_side() -> None:
    found = compared(LIST, 4, listing("a", "b"), listing("b", "c"))
    assert {group: (ours is None, theirs is None) for group, (ours, theirs) in found.differences.items()} == {
        "a": (False, True),
        "c": (True, False),
    }


def test_a_broker_that_hides_groups_says_nothing_of_them() -> None:
    found = compared(LIST, 4, listing("a", "b"), listing("b", "c"), sees_all=False)
    assert found == Comparison(hidden=frozenset({"a", "c"}))


def test_what_is_listed_by_both_may_differ_all_the_same() -> None:
    theirs = ListGroupsResponse(error_code=0, groups=(ListedGroup(group_id="b", protocol_type="connect"),))
    assert compared(LIST, 3, listing("a", "b"), theirs, sees_all=False).differences.keys() == {"b"}


def test_an_error_of_the_whole_is_nobodys() -> None:
    found = compared(LIST, 4, listing("a"), listing(error_code=14))
    assert found.differences.keys() == {"a", None}


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
@pytest.mark.parametrize("sees_all", [True, False])
def test_what_the_broker_refuses_the_sidecar_is_not_compared(code: int, sees_all: bool) -> None:
    refused = describing(described("g", error_code=code), described("h", group_state="Empty"))
    found = compared(DESCRIBE, 5, describing(described("g"), described("h")), refused, sees_all=sees_all)
    assert found.hidden == {"g"}
    assert found.differences.keys() == {"h"}
    theirs = offsets_of(("g", [topic("t", -1, error=code)]), ("h", []))
    assert compared(TWO_GROUPS, 8, offsets_of(("g", [topic("t", 5)]), ("h", [])), theirs).hidden == {"g"}


@pytest.mark.parametrize("version", [7, 8])
def test_topics_that_a_broker_may_hide_are_not_compared(version: int) -> None:
    def told(*topics: OffsetFetchResponseTopic) -> OffsetFetchResponse:
        return OffsetFetchResponse(topics=topics) if version == 7 else offsets_of(("g", [*topics]))

    request = ALL_OFFSETS if version == 7 else TWO_GROUPS
    ours = told(topic("hidden", 1), topic("t", 2))
    assert compared(request, version, ours, told(topic("t", 2)), sees_all=False).differences == {}
    assert compared(request, version, ours, told(topic("t", 2))).differences.keys() == {"g"}
    assert compared(request, version, ours, told(topic("t", 3)), sees_all=False).differences.keys() == {"g"}


def test_offsets_before_many_groups_are_the_one_groups() -> None:
    ours, theirs = OffsetFetchResponse(topics=(topic("t", 1),)), OffsetFetchResponse(error_code=16)
    assert compared(ALL_OFFSETS, 7, ours, theirs).differences.keys() == {"g"}


def test_bytes_that_are_no_reply() -> None:
    with pytest.raises(DecodeError):
        compare(LIST, 4, encode(listing("a"), 4), b"junk", sees_all=True, true_hosts=True)


# For people.


def test_only_what_differs_is_shown_by_its_path() -> None:
    ours = describing(described("g", member("a"), member("b", member_metadata=b"\x01\x02"), group_state="Stable"))
    theirs = describing(described("g", member("c"), member("b", member_metadata=b"\x03"), group_state="Empty"))
    mine, other = shown(compared(DESCRIBE, 5, ours, theirs).differences["g"])
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


def test_offsets_are_shown_by_topic_and_partition() -> None:
    ours, theirs = (OffsetFetchResponse(topics=(topic("t", 1, offset),)) for offset in (2, 3))
    name = "topics[t].partitions[1].committed_offset"
    assert shown(compared(ALL_OFFSETS, 7, ours, theirs).differences["g"]) == ({name: "2"}, {name: "3"})
    topic_id = UUID(int=7)
    ours, theirs = (offsets_of(("g", [topic("", offset, topic_id=topic_id)]), ("h", [])) for offset in (2, 3))
    name = f"topics[{topic_id}].partitions[0].committed_offset"
    assert shown(compared(TWO_GROUPS, 10, ours, theirs).differences["g"]) == ({name: "2"}, {name: "3"})


def test_a_missing_group_is_shown_whole() -> None:
    mine, other = shown(compared(LIST, 4, listing(), listing("a")).differences["a"])
    assert mine == {"group": "none"}
    assert "group_id='a'" in other["group"]


def test_what_is_shown_is_bounded() -> None:
    ours, theirs = (
        describing(described("g", *(member(f"m{n}", member_metadata=filler * 5000) for n in range(100))))
        for filler in (b"x", b"y")
    )
    for side in shown(compared(DESCRIBE, 5, ours, theirs).differences["g"]):
        assert len(side) == MOST_SHOWN
        assert all(text.endswith("... (10000 characters)") for text in side.values())
        assert all(len(text) < LONGEST_SHOWN + 30 for text in side.values())
