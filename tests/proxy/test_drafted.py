"""KIP-40's draft on a listener that takes it: what the broker is asked, what the client is told, when it ends."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.headers import encode_reply, split_reply
from group_sidecar.codecs.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from group_sidecar.codecs.messages.group_metadata import (
    DraftCoordinator,
    DraftGroup,
    DraftGroupMetadata,
    DraftMember,
    DraftMemberMetadata,
    DraftState,
    GroupMetadataRequest,
    GroupMetadataResponse,
)
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.registry import APIS, ApiKey
from group_sidecar.codecs.schema import Struct, decode, decode_start, encode
from group_sidecar.coordinator.partitions import PartitionState
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.commands import Close, Command, ToClient, ToUpstream
from tests.proxy.playbook import (
    Line,
    broker_copy,
    certain_copy,
    framed,
    pieces,
    reply,
    request,
    settled,
    to_client,
    to_upstream,
)

DRAFT: dict[str, Any] = {"group_metadata_request": True}
HERE = FindCoordinatorResponse(error_code=0, node_id=1, host="here", port=9092)
THERE = FindCoordinatorResponse(error_code=0, node_id=2, host="there", port=9093)
NOWHERE = FindCoordinatorResponse(error_code=15, node_id=-1, host="", port=-1)
AT_HERE, AT_THERE = DraftCoordinator(id=1, host="here", port=9092), DraftCoordinator(id=2, host="there", port=9093)
DEAD = DraftGroupMetadata()
INITIALIZING = DraftGroupMetadata(state=DraftState.INITIALIZING)


def drafting(**more: Any) -> BrokerCopy:
    """A broker that had no groups, before which the draft is spoken."""
    return certain_copy(**DRAFT, **more)


def about(*groups: str, members: bool = True, everything: bool = False) -> GroupMetadataRequest:
    """A request of the draft."""
    return GroupMetadataRequest(include_all_groups=int(everything), include_member_metadata=int(members), groups=groups)


def asked(commands: Sequence[Command]) -> list[Struct]:
    """What the broker is asked, in v0 of each; nothing goes to the client meanwhile."""
    assert to_client(commands) == b""
    data, found = to_upstream(commands), list[Struct]()
    while data:
        size = int.from_bytes(data[:4], "big")
        frame, data = data[4 : 4 + size], data[4 + size :]
        body = 10 + int.from_bytes(frame[8:10], "big")
        assert frame[2:4] == b"\0\0"
        found.append(decode_start(APIS[int.from_bytes(frame[:2], "big")].request, 0, frame[body:])[0])
    return found


def answered(commands: Sequence[Command], correlation: int = 1) -> tuple[DraftGroup, ...]:
    """What the client is told; nothing goes to the broker."""
    frame = to_client(commands)
    assert (to_upstream(commands), int.from_bytes(frame[:4], "big")) == (b"", len(frame) - 4)
    assert int.from_bytes(frame[4:8], "big") == correlation
    return decode(GroupMetadataResponse, 1, split_reply(frame[4:], flexible=False)).groups


def broker_answers(line: Line, *replies: Struct) -> list[Command]:
    """The broker answers the sidecar's questions, in their order."""
    return line.upstream(*(encode_reply(each, 0, -88) for each in replies))


def described(group: str = "g", state: str = "Stable", *members: str, error: int = 0) -> DescribedGroup:
    """A group as a broker describes it."""
    stable = state == "Stable"
    return DescribedGroup(
        error_code=error,
        group_id=group,
        group_state=state,
        protocol_type="" if error or state in ("Dead", "") else "consumer",
        protocol_data="range" if stable else "",
        members=tuple(
            DescribedGroupMember(
                member_id=member,
                client_id=member,
                client_host="/127.0.0.1",
                member_metadata=b"subscription" if stable else b"",
                member_assignment=b"for " + member.encode() if stable else b"",
            )
            for member in members
        ),
    )


def telling(*groups: DescribedGroup) -> DescribeGroupsResponse:
    """A reply to DescribeGroups."""
    return DescribeGroupsResponse(groups=groups)


def stable(*members: str, leader: str = "m1", host: str = "/10.0.0.1", generation: int = 1) -> DraftGroup:
    """What is told of the stable group g."""
    return DraftGroup(
        error_code=0,
        group_id="g",
        coordinator=AT_HERE,
        group_metadata=DraftGroupMetadata(
            state=DraftState.STABLE, protocol_type="consumer", generation=generation, protocol="range"
        ),
        member_metadata=DraftMemberMetadata(
            leader=leader,
            members=tuple(
                DraftMember(
                    member_id=member,
                    member_host=host,
                    client_id=member,
                    member_metadata=b"subscription",
                    member_assignment=b"for " + member.encode(),
                )
                for member in members
            ),
        ),
    )


def told(group: str, metadata: DraftGroupMetadata, where: DraftCoordinator = AT_HERE) -> DraftGroup:
    """A group without members."""
    return DraftGroup(error_code=0, group_id=group, coordinator=where, group_metadata=metadata)


def refusal(group: str, error: int, where: DraftCoordinator | None = None) -> DraftGroup:
    """A group of which only an error is told."""
    return DraftGroup(error_code=error, group_id=group, coordinator=where or DraftCoordinator())


# What the copy knows.


def test_a_stable_group_is_told_from_the_copy_and_the_broker_asked_only_where_it_is() -> None:
    copy = drafting()
    settled(copy, "m1", "m2")
    line = Line(copy)
    assert asked(line.says(about("g"), 1)) == [FindCoordinatorRequest(key="g")]
    assert answered(broker_answers(line, HERE)) == (stable("m1", "m2"),)


def test_members_and_leader_are_told_on_request_only() -> None:
    copy = drafting()
    settled(copy, "m1")
    line = Line(copy)
    line.says(about("g", members=False), 1)
    [group] = answered(broker_answers(line, HERE))
    assert group == replace(stable("m1"), member_metadata=DraftMemberMetadata())


def test_a_group_that_is_not_there_is_dead_with_a_coordinator() -> None:
    copy = drafting()
    partitions = copy.manager.log.partitions
    partitions.count = 1
    partition = partitions.begin(0, 0, 0)
    partition.state, partition.fresh_at = PartitionState.OWNED, copy.epoch(100)
    line = Line(copy)
    assert asked(line.says(about("nobody's"), 1)) == [FindCoordinatorRequest(key="nobody's")]
    assert answered(broker_answers(line, HERE)) == (told("nobody's", DEAD),)


def test_without_the_log_one_that_is_not_there_may_be_another_brokers() -> None:
    elsewhere = described("nobody's", "", error=16)
    assert asks(Line(drafting()), about("nobody's"), (telling(elsewhere),), (THERE,)) == (
        refusal("nobody's", 16, AT_THERE),
    )


def test_of_all_groups_one_stands_for_their_coordinator() -> None:
    copy = drafting()
    for group in ("g", "h", "i"):
        settled(copy, f"of {group}", group=group)
    line = Line(copy)
    [question] = asked(line.says(about(everything=True, members=False), 1))
    assert isinstance(question, FindCoordinatorRequest)
    groups = answered(broker_answers(line, HERE))
    assert {(group.group_id, group.coordinator, group.group_metadata.state) for group in groups} == {
        (each, AT_HERE, DraftState.STABLE) for each in "ghi"
    }


def test_a_group_is_told_once_however_often_it_is_named() -> None:
    copy = drafting()
    settled(copy, "m1")
    line = Line(copy)
    line.says(about("g", "g", everything=True), 1)
    assert answered(broker_answers(line, HERE)) == (stable("m1"),)


def test_nobody_asked_for_is_answered_at_once() -> None:
    assert answered(Line(drafting()).says(about(), 1)) == ()


def test_a_request_waits_for_its_turn() -> None:
    copy = drafting()
    line = Line(copy)
    before = request(3, 7)
    assert line.client(before, line.frame(about("g"), 1)) == [ToUpstream(before)]
    commands = line.upstream(reply(7))
    assert commands[0] == ToClient(reply(7))
    assert asked(commands[1:]) == [DescribeGroupsRequest(groups=("g",))]


def test_a_request_may_come_in_pieces() -> None:
    line = Line(drafting())
    *first, last = pieces(line.frame(about("g"), 1), 5)
    assert [command for piece in first for command in line.client(piece)] == []
    assert asked(line.client(last)) == [DescribeGroupsRequest(groups=("g",))]


# What the broker is asked.


def unsure() -> BrokerCopy:
    """A broker of which nothing is certain."""
    return broker_copy(**DRAFT)


def asks(line: Line, message: GroupMetadataRequest, *rounds: tuple[Struct, ...]) -> tuple[DraftGroup, ...]:
    """What the client is told when the broker answers so, round by round."""
    commands = line.says(message, 1)
    for replies in rounds:
        assert len(asked(commands)) == len(replies)
        commands = broker_answers(line, *replies)
    return answered(commands)


def test_of_what_the_copy_may_not_tell_the_broker_is_asked() -> None:
    copy = unsure()
    line = Line(copy)
    assert asked(line.says(about("g", "h"), 1)) == [DescribeGroupsRequest(groups=("g", "h"))]
    next_questions = broker_answers(line, telling(described("h", "Empty"), described("g", "Dead")))
    assert asked(next_questions) == [FindCoordinatorRequest(key="g")]
    assert answered(broker_answers(line, HERE)) == (told("g", DEAD), told("h", DEAD))


def test_leader_generation_and_hosts_come_from_the_copy() -> None:
    copy = unsure()
    settled(copy, "m1", "m2", generation=5)
    found = asks(Line(copy), about("g"), (telling(described("g", "Stable", "m1", "m2")),), (HERE,))
    assert found == (stable("m1", "m2", generation=5),)


def test_of_a_group_that_never_passed_by_they_are_not_told() -> None:
    found = asks(Line(unsure()), about("g"), (telling(described("g", "Stable", "m1")),), (HERE,))
    assert found == (stable("m1", leader="", host="/127.0.0.1", generation=-1),)


def test_of_a_group_with_other_members_than_were_known_they_are_not_told() -> None:
    copy = unsure()
    settled(copy, "m1")
    [group] = asks(Line(copy), about("g"), (telling(described("g", "Stable", "m1", "m2")),), (HERE,))
    assert (group.group_metadata.generation, group.member_metadata.leader) == (-1, "")


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "AwaitingSync"])
def test_in_a_rebalance_the_generation_before_is_told_and_nobody(state: str) -> None:
    copy = unsure()
    settled(copy, "m1", generation=5)
    [group] = asks(Line(copy), about("g"), (telling(described("g", state, "m1")),), (HERE,))
    assert group == told("g", DraftGroupMetadata(state=2, protocol_type="consumer", generation=5, protocol="range"))


def test_what_is_loading_is_initializing() -> None:
    loading = described("g", "", error=14)
    assert asks(Line(unsure()), about("g"), (telling(loading),), (HERE,)) == (told("g", INITIALIZING),)


def test_what_is_loading_has_no_error_even_where_the_coordinator_is_not_known() -> None:
    found = asks(Line(unsure()), about("g"), (telling(described("g", "", error=14)),), (NOWHERE,))
    assert found == (told("g", INITIALIZING, DraftCoordinator()),)


def test_of_another_brokers_group_only_the_coordinator_is_told() -> None:
    elsewhere = described("g", "", error=16)
    assert asks(Line(unsure()), about("g"), (telling(elsewhere),), (THERE,)) == (refusal("g", 16, AT_THERE),)


def test_of_a_group_without_coordinator_that_is_told() -> None:
    elsewhere = described("g", "", error=16)
    assert asks(Line(unsure()), about("g"), (telling(elsewhere),), (NOWHERE,)) == (refusal("g", 15),)


@pytest.mark.parametrize("error", [15, 30])
def test_another_error_is_the_groups(error: int) -> None:
    assert asks(Line(unsure()), about("g"), (telling(described("g", "", error=error)),)) == (refusal("g", error),)


def test_groups_of_a_partition_have_the_same_coordinator() -> None:
    copy = unsure()
    copy.manager.log.partitions.count = 1
    line = Line(copy)
    groups = tuple(f"g{number}" for number in range(20))
    elsewhere = telling(*(described(group, "", error=16) for group in groups))
    assert asks(line, about(*groups), (elsewhere,), (THERE,)) == tuple(refusal(g, 16, AT_THERE) for g in groups)


def test_where_one_may_not_be_found_the_others_are_asked_for() -> None:
    groups = tuple(described(group, "Dead") for group in "abc")
    refused = FindCoordinatorResponse(error_code=30, node_id=-1, host="", port=-1)
    found = asks(Line(unsure()), about("a", "b", "c"), (telling(*groups),), (refused,), (HERE, HERE))
    assert [group.coordinator for group in found] == [DraftCoordinator(), AT_HERE, AT_HERE]


def test_many_questions_are_put_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("group_sidecar.proxy.drafted.ASKED_AT_ONCE", 2)
    elsewhere = telling(*(described(group, "", error=16) for group in "abc"))
    found = asks(Line(unsure()), about("a", "b", "c"), (elsewhere,), (HERE, THERE), (NOWHERE,))
    assert found == (refusal("a", 16, AT_HERE), refusal("b", 16, AT_THERE), refusal("c", 15))


def test_all_groups_are_those_that_the_broker_lists_and_those_named() -> None:
    listed = ListGroupsResponse(error_code=0, groups=(ListedGroup(group_id="a", protocol_type="consumer"),))
    line = Line(unsure())
    assert asked(line.says(about("b", everything=True), 1)) == [ListGroupsRequest()]
    assert asked(broker_answers(line, listed)) == [DescribeGroupsRequest(groups=("a", "b"))]
    broker_answers(line, telling(described("a", "Dead"), described("b", "", error=16)))
    assert answered(broker_answers(line, HERE, THERE)) == (told("a", DEAD), refusal("b", 16, AT_THERE))


@pytest.mark.parametrize(
    ("error", "stands_for_it"),
    [(14, told("", INITIALIZING, DraftCoordinator())), (15, refusal("", 15))],
)
def test_a_list_that_is_not_to_be_had_is_told_of(error: int, stands_for_it: DraftGroup) -> None:
    listed = ListGroupsResponse(error_code=error, groups=())
    assert asks(Line(unsure()), about(everything=True), (listed,)) == (stands_for_it,)


def test_a_gateway_tells_its_own_addresses() -> None:
    copy = broker_copy(advertise=lambda node, host, port: (f"for {host}", 7000 + node), **DRAFT)
    found = asks(Line(copy), about("g"), (telling(described("g", "Dead")),), (HERE,))
    assert found == (told("g", DEAD, DraftCoordinator(id=1, host="for here", port=7001)),)


@pytest.mark.parametrize("rounds", [0, 1])
def test_a_reply_that_cannot_be_read_leaves_the_group_without_coordinator(rounds: int) -> None:
    line = Line(unsure())
    line.says(about("g"), 1)
    if rounds:
        broker_answers(line, telling(described("g", "", error=16)))
    assert answered(line.upstream(framed((-88).to_bytes(4, "big", signed=True) + b"\xff"))) == (refusal("g", 15),)


def test_where_the_broker_has_no_such_api_the_copy_answers_as_well_as_it_can() -> None:
    copy = drafting(answers={"authorizer": "none"})
    copy.learn_versions({ApiKey.FIND_COORDINATOR: (0, 0)})
    settled(copy, "m1")
    assert asks(Line(copy), about("g"), (HERE,)) == (stable("m1"),)


def test_a_partition_that_is_being_read_is_initializing_where_the_broker_has_no_such_api() -> None:
    copy = drafting(answers={"authorizer": "none"})
    copy.learn_versions({ApiKey.FIND_COORDINATOR: (0, 0)})
    partitions = copy.manager.log.partitions
    partitions.count = 1
    partitions.begin(0, 0, 0)
    assert asks(Line(copy), about("g"), (HERE,)) == (told("g", INITIALIZING),)


def test_of_what_nobody_may_tell_where_the_broker_has_no_such_api_there_is_no_coordinator() -> None:
    copy = unsure()
    copy.learn_versions({ApiKey.FIND_COORDINATOR: (0, 0)})
    assert asks(Line(copy), about("g", everything=True)) == (refusal("", 15), refusal("g", 15))


def test_what_operators_keep_from_being_answered_here_is_asked_of_the_broker() -> None:
    copy = drafting(answers={"exclusive": True, "authorizer": "none", "enabled": False})
    assert asked(Line(copy).says(about("g"), 1)) == [DescribeGroupsRequest(groups=("g",))]


def test_what_a_client_may_not_be_known_to_see_the_broker_is_asked_for() -> None:
    copy = drafting(answers={"exclusive": True, "authorizer": "auto"})
    settled(copy, "m1")
    assert asked(Line(copy).says(about("g"), 1)) == [DescribeGroupsRequest(groups=("g",))]


# Bad input.


MALFORMED = {
    "nothing": b"",
    "a list that is cut off": encode(about("g"), 1)[:-1],
    "bytes behind it": encode(about("g"), 1) + b"\0",
    "a list of absurd length": b"\0\0\x7f\xff\xff\xff",
    "a negative list": b"\0\0\xff\xff\xff\xff",
    "Kafka's own v1": encode(FindCoordinatorRequest(key="group"), 1),
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_what_is_malformed_ends_the_connection(body: bytes) -> None:
    line = Line(drafting())
    assert line.client(request(10, 1, version=1, body=body)) == [Close(CloseReason.MALFORMED_REQUEST)]


def test_a_header_cut_off_ends_it_too() -> None:
    assert Line(drafting()).client(framed(b"\0\x0a\0\1\0\0\0\1\0\x09c")) == [Close(CloseReason.MALFORMED_REQUEST)]


@given(st.binary(max_size=40), st.binary(max_size=3))
def test_whatever_it_is_the_broker_never_gets_it(body: bytes, cut: bytes) -> None:
    line = Line(drafting())
    commands = line.client(request(10, 1, version=1, body=body), cut)
    if commands != [Close(CloseReason.MALFORMED_REQUEST)]:
        sent = to_upstream(commands)  # FindCoordinator v0 and DescribeGroups v0 are the sidecar's own questions.
        assert sent[4:8] in (b"", b"\0\x0a\0\0", b"\0\x0f\0\0")


@pytest.mark.parametrize("size", [0, 9])
def test_one_that_is_too_long_is_neither_forwarded_nor_kept(size: int) -> None:
    line = Line(drafting(limits={"inspected_frame": 1024}))
    frame = line.frame(about("x" * 1100), 1)
    first, *_ = pieces(frame[:600], size * 40)
    assert line.client(first) == [Close(CloseReason.REQUEST_TOO_LONG)]


@pytest.mark.parametrize("body", [b"", bytes(2000)], ids=["malformed", "too long"])
def test_what_was_sent_before_is_answered_first(body: bytes) -> None:
    line = Line(drafting(limits={"inspected_frame": 1024}))
    before = request(3, 7)
    assert line.client(before, request(10, 8, version=1, body=body)) == [ToUpstream(before)]
    assert not line.session.wants_client
    closed, done = line.upstream(reply(7)), ToClient(reply(7))
    assert closed[0] == done
    assert [type(command) for command in closed[1:]] == [Close]


# What stays as it is.


@pytest.mark.parametrize("version", [0, 2, 3, 4, 6])
def test_other_versions_are_finders_of_coordinators(version: int) -> None:
    message = FindCoordinatorRequest(key="g", coordinator_keys=("g",)) if version >= 4 else HERE
    question = FindCoordinatorRequest(key="g") if version < 4 else message
    back = HERE if version < 4 else FindCoordinatorResponse()
    Line(drafting()).exchange(question, back, version)


def test_without_the_setting_version_1_is_kafkas() -> None:
    copy = certain_copy()
    Line(copy).exchange(FindCoordinatorRequest(key="g"), HERE, 1)
    frame = request(10, 1, version=1, body=bytes(100))
    assert Line(copy).client(frame[:40]) == [ToUpstream(frame[:40])]


def test_without_the_setting_a_gateway_passes_version_1_on() -> None:
    copy = broker_copy(advertise=lambda node, host, port: (host, port))
    frame = request(10, 1, version=1, body=b"\0\0\0\0")
    assert Line(copy).client(frame) == [ToUpstream(frame)]


@pytest.mark.parametrize("switched", [True, False])
def test_what_is_offered(switched: bool) -> None:
    line = Line(certain_copy(group_metadata_request=switched))
    offers = tuple(ApiVersion(api_key=key, min_version=0, max_version=4) for key in (ApiKey.FIND_COORDINATOR, 36))
    line.says(ApiVersionsRequest(), 0)
    back = line.broker_says(ApiVersionsResponse(error_code=0, api_keys=offers), 0)
    heard = {v.api_key: v.max_version for v in line.reads(back, ApiVersionsRequest(), 0).api_keys}
    assert heard[ApiKey.FIND_COORDINATOR] == (0 if switched else 4)
