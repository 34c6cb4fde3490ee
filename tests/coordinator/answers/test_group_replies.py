"""The answers to DescribeGroups, OffsetFetch and ListGroups in each version are those of a Kafka 4.3 broker."""

from typing import Any
from uuid import UUID

import pytest

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
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
from group_sidecar.codecs.offsets_topic import encode_value
from group_sidecar.codecs.offsets_topic_values import OffsetCommitValue
from group_sidecar.codecs.schema import Struct, decode, encode
from group_sidecar.coordinator.answers import group_replies
from group_sidecar.coordinator.model.views import CommittedOffset, GroupKind, GroupState, GroupView, MemberView
from group_sidecar.coordinator.state.committed_offsets import CommittedOffsets

MEMBERS = (
    MemberView(
        member_id="m1",
        instance_id="i",
        client_id="c",
        client_host="/1.2.3.4",
        metadata=b"meta",
        assignment=b"part",
    ),
    MemberView(member_id="m2", client_id="c", client_host="/1.2.3.5", metadata=b"meta2"),
)


def group(group_id: str = "g", state: GroupState = GroupState.STABLE, **more: Any) -> GroupView:
    usual: dict[str, Any] = {"protocol_type": "consumer", "protocol": "range", "members": MEMBERS}
    return GroupView(group_id=group_id, state=state, **(usual | more))


def on_the_wire(reply: Struct, version: int) -> Struct:
    """Returns a reply as a client decodes it."""
    return decode(type(reply), version, encode(reply, version))


# DescribeGroups.


def described(version: int, *groups: GroupView) -> Struct:
    request = DescribeGroupsRequest(groups=tuple(view.group_id for view in groups))
    return on_the_wire(
        group_replies.describe_groups(request, version, {view.group_id: view for view in groups}), version
    )


@pytest.mark.parametrize("version", range(7))
def test_stable_group_is_described(version: int) -> None:
    """DescribeGroups reports a stable group with its protocol, members, metadata and assignments, and an instance id
    since v4.
    """
    one, two = (
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id if version >= 4 else None,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata,
            member_assignment=member.assignment,
        )
        for member in MEMBERS
    )
    assert described(version, group()) == DescribeGroupsResponse(
        groups=(
            DescribedGroup(
                error_code=0,
                group_id="g",
                group_state="Stable",
                protocol_type="consumer",
                protocol_data="range",
                members=(one, two),
            ),
        )
    )


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
def test_unstable_members_have_no_metadata(version: int, state: GroupState) -> None:
    """While a group rebalances, DescribeGroups lists the members without a protocol, metadata and assignments."""
    reply = described(version, group(state=state))
    assert isinstance(reply, DescribeGroupsResponse)
    (reported,) = reply.groups
    assert (reported.group_state, reported.protocol_type, reported.protocol_data) == (state, "consumer", "")
    assert [(m.member_id, m.client_host, m.member_metadata, m.member_assignment) for m in reported.members] == [
        ("m1", "/1.2.3.4", b"", b""),
        ("m2", "/1.2.3.5", b"", b""),
    ]


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("protocol_type", ["", "consumer"])
def test_empty_group_keeps_its_type(version: int, protocol_type: str) -> None:
    """DescribeGroups reports an empty group with its protocol type, no protocol and no members."""
    empty = group(state=GroupState.EMPTY, protocol_type=protocol_type, protocol="", members=())
    assert described(version, empty) == DescribeGroupsResponse(
        groups=(
            DescribedGroup(
                error_code=0,
                group_id="g",
                group_state="Empty",
                protocol_type=protocol_type,
                protocol_data="",
                members=(),
            ),
        )
    )


@pytest.mark.parametrize("version", range(7))
def test_unknown_group_is_dead(version: int) -> None:
    """DescribeGroups reports an unknown group as Dead, and since v6 with the error GROUP_ID_NOT_FOUND."""
    missing = version >= 6
    assert described(version, GroupView(group_id="nope")) == DescribeGroupsResponse(
        groups=(
            DescribedGroup(
                error_code=69 if missing else 0,
                error_message="Group nope not found." if missing else None,
                group_id="nope",
                group_state="Dead",
                protocol_type="",
                protocol_data="",
                members=(),
            ),
        )
    )


def test_describe_keeps_order_and_duplicates() -> None:
    """DescribeGroups describes groups in the order of the request and repeats a group that the request repeats."""
    views = {"g": group(), "h": group("h")}
    reply = group_replies.describe_groups(DescribeGroupsRequest(groups=("h", "g", "h")), 5, views)
    assert [reported.group_id for reported in reply.groups] == ["h", "g", "h"]


# OffsetFetch.

OFFSETS = {
    ("t", 1): CommittedOffset(7, 3, "x"),
    ("u", 0): CommittedOffset(8),
    ("t", 0): CommittedOffset(9, -1, None),
}
T, U = UUID(int=1), UUID(int=2)
WITH_OFFSETS, WITHOUT = group(offsets=OFFSETS), group("h")
ASKED = (("t", (1, 2)), ("nope", (0,)))


def partition(version: int, index: int, offset: int, epoch: int, metadata: str | None) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=epoch if version >= 5 else -1,
        metadata=metadata,
        error_code=0,
    )


def topics_asked(version: int, *topics: tuple[str, tuple[int, ...]]) -> tuple[OffsetFetchRequestTopic, ...]:
    return tuple(OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics)


def some(version: int) -> tuple[OffsetFetchResponseTopic, ...]:
    """Returns the reply's topics for a request of ASKED."""
    partitions = (partition(version, 1, 7, 3, "x"), partition(version, 2, -1, -1, ""))
    return (
        OffsetFetchResponseTopic(name="t", partitions=partitions),
        OffsetFetchResponseTopic(name="nope", partitions=(partition(version, 0, -1, -1, ""),)),
    )


def every(version: int) -> tuple[OffsetFetchResponseTopic, ...]:
    """Returns the reply's topics for a request of all OFFSETS."""
    partitions = (partition(version, 0, 9, -1, None), partition(version, 1, 7, 3, "x"))
    return (
        OffsetFetchResponseTopic(name="t", partitions=partitions),
        OffsetFetchResponseTopic(name="u", partitions=(partition(version, 0, 8, -1, ""),)),
    )


def fetched(version: int, group_id: str, topics: Any) -> Any:
    request = OffsetFetchRequest(group_id=group_id, topics=topics)
    views = {"g": WITH_OFFSETS, "h": WITHOUT, "nope": GroupView(group_id="nope")}
    reply = group_replies.offset_fetch(request, version, views, {})
    assert reply is not None
    return on_the_wire(reply, version)


@pytest.mark.parametrize("version", range(1, 8))
def test_fetch_named_partitions(version: int) -> None:
    """OffsetFetch of one group reports the named partitions, with offset -1 for partitions without a commit."""
    assert fetched(version, "g", topics_asked(version, *ASKED)) == OffsetFetchResponse(topics=some(version))


@pytest.mark.parametrize("version", range(2, 8))
def test_fetch_null_topics_reports_all_offsets(version: int) -> None:
    """OffsetFetch with null topics reports all offsets of the group."""
    assert fetched(version, "g", None) == OffsetFetchResponse(topics=every(version))


def test_fetch_all_is_not_answered_if_name_is_not_utf8() -> None:
    """OffsetFetch with null topics yields no reply if the log has a topic name that is not UTF-8, because the decoded
    offsets lack this name.
    """
    offsets, value = CommittedOffsets(), OffsetCommitValue(offset=5, metadata="", commit_timestamp=1)
    offsets.log_values = {b"\0\1\xff\0\0\0\0": encode_value(value, 3)}
    request = OffsetFetchRequest(group_id="g", topics=None)
    assert group_replies.offset_fetch(request, 7, {"g": group(offsets=offsets)}, {}) is None


@pytest.mark.parametrize("version", range(1, 8))
def test_fetch_empty_topics_reports_none(version: int) -> None:
    """OffsetFetch with an empty topic list reports no offsets."""
    assert fetched(version, "g", ()) == OffsetFetchResponse()


@pytest.mark.parametrize("version", range(2, 8))
@pytest.mark.parametrize("group_id", ["h", "nope"])
def test_fetch_group_without_offsets(version: int, group_id: str) -> None:
    """OffsetFetch for an unknown group or a group without offsets reports no topics, or offset -1 for a named
    partition.
    """
    assert fetched(version, group_id, None) == OffsetFetchResponse()
    (topic,) = fetched(version, group_id, topics_asked(version, ("t", (1,)))).topics
    assert topic.partitions == (partition(version, 1, -1, -1, ""),)


@pytest.mark.parametrize("version", [8, 9])
def test_fetch_many_groups_keeps_order(version: int) -> None:
    """OffsetFetch since v8 reports each group in the order of the request, also when the request repeats a group."""
    groups = (
        OffsetFetchRequestGroup(group_id="h", topics=None),
        OffsetFetchRequestGroup(group_id="g", topics=topics_asked(version, *ASKED)),
        OffsetFetchRequestGroup(group_id="g", topics=None),
        OffsetFetchRequestGroup(group_id="g", topics=()),
    )
    reply = group_replies.offset_fetch(
        OffsetFetchRequest(groups=groups), version, {"g": WITH_OFFSETS, "h": WITHOUT}, {}
    )
    assert reply is not None
    assert on_the_wire(reply, version) == OffsetFetchResponse(
        groups=(
            OffsetFetchResponseGroup(group_id="h", topics=()),
            OffsetFetchResponseGroup(group_id="g", topics=some(version)),
            OffsetFetchResponseGroup(group_id="g", topics=every(version)),
            OffsetFetchResponseGroup(group_id="g", topics=()),
        )
    )


def by_id(topics: tuple[OffsetFetchRequestTopic, ...] | None, names: dict[UUID, str]) -> OffsetFetchResponse | None:
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=topics),))
    return group_replies.offset_fetch(request, 10, {"g": WITH_OFFSETS}, names)


def test_topic_ids_in_v10() -> None:
    """OffsetFetch v10 asks for topics by id and reports topics by id."""
    names = {T: "t", U: "u"}
    topics = by_id((OffsetFetchRequestTopic(topic_id=T, partition_indexes=(1,)),), names)
    whole = by_id(None, names)
    assert topics is not None
    assert whole is not None
    partitions = {topic.topic_id: topic.partitions for topic in topics.groups[0].topics}
    assert partitions == {T: (partition(10, 1, 7, 3, "x"),)}
    assert {topic.topic_id: len(topic.partitions) for topic in whole.groups[0].topics} == {T: 2, U: 1}
    on_the_wire(whole, 10)


def test_unknown_topic_yields_no_reply() -> None:
    """OffsetFetch v10 returns no reply if a topic in it has no known name or id."""
    assert by_id((OffsetFetchRequestTopic(topic_id=U, partition_indexes=(1,)),), {T: "t"}) is None
    assert by_id(None, {T: "t"}) is None
    assert by_id((OffsetFetchRequestTopic(topic_id=T, partition_indexes=(1,)),), {T: "t"}) is not None


@pytest.mark.parametrize(("version", "answered"), [(2, True), (4, True), (5, False), (7, False)])
def test_unknown_leader_epoch_yields_no_reply(version: int, answered: bool) -> None:
    """OffsetFetch since v5 yields no reply if a requested offset has an unknown leader epoch, and older versions do."""
    view = group(offsets={("t", 0): CommittedOffset(7, epoch_known=False), ("t", 1): CommittedOffset(8)})
    for topics, possible in ((None, answered), (topics_asked(version, ("t", (1,))), True)):
        request = OffsetFetchRequest(group_id="g", topics=topics)
        assert (group_replies.offset_fetch(request, version, {"g": view}, {}) is not None) is possible


@pytest.mark.parametrize("version", [7, 8])
def test_groups_asked_by_version(version: int) -> None:
    """groups_asked reads the single group id before v8 and the group list since v8."""
    groups = tuple(OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("a", "b"))
    result = group_replies.groups_asked(OffsetFetchRequest(group_id="g", groups=groups), version)
    assert result == (("g",) if version < 8 else ("a", "b"))


# Answers in place of a broker that cannot answer.

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("version", range(7))
def test_describe_groups_reports_group_error(version: int) -> None:
    """DescribeGroups reports the error code of a group that the broker cannot answer for, with empty other fields."""
    refused = DescribedGroup(
        error_code=LOADING, group_id="g", group_state="", protocol_type="", protocol_data="", members=()
    )
    assert described(version, group(error_code=LOADING)) == DescribeGroupsResponse(groups=(refused,))


@pytest.mark.parametrize("version", range(7))
def test_describe_groups_rejects_consumer_group(version: int) -> None:
    """DescribeGroups reports a consumer group as Dead, and since v6 as not a classic group."""
    (reported,) = described(version, group(kind=GroupKind.CONSUMER)).groups  # type: ignore[attr-defined]
    assert (reported.group_state, reported.members, reported.protocol_type) == ("Dead", (), "")
    missing = (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")
    assert (reported.error_code, reported.error_message) == (missing if version >= 6 else (ErrorCode.NONE, None))


@pytest.mark.parametrize("version", range(1, 10))
def test_offset_fetch_error_place_by_version(version: int) -> None:
    """OffsetFetch puts a group's error on each partition in v1, on the reply in v2 to v7, and on the group since v8."""
    topics = topics_asked(version, ("t", (0, 1)))
    request = OffsetFetchRequest(
        group_id="g", topics=topics, groups=(OffsetFetchRequestGroup(group_id="g", topics=topics),)
    )
    reply = group_replies.offset_fetch(request, version, {"g": group(error_code=LOADING)}, {})
    assert reply is not None
    reported = on_the_wire(reply, version)
    assert isinstance(reported, OffsetFetchResponse)
    partitions = [p.error_code for topic in reported.topics for p in topic.partitions]
    groups = [(each.error_code, each.topics) for each in reported.groups]
    expected: Any = ([], 0, [(LOADING, ())])
    if version < 8:
        expected = ([LOADING, LOADING], 0, []) if version == 1 else ([], LOADING, [])
    assert (partitions, reported.error_code, groups) == expected
