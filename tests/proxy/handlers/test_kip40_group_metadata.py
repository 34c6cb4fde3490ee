"""KIP-40's draft on a listener that supports it: the broker's requests, the client's reply, and closed connections."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.api_registry import APIS, ApiKey
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
    GroupMetadataRequest,
    GroupMetadataResponse,
    Kip40Coordinator,
    Kip40Group,
    Kip40GroupMetadata,
    Kip40Member,
    Kip40MemberMetadata,
    Kip40State,
)
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.schema import Struct, decode, decode_start, encode
from group_sidecar.coordinator.state.log_partitions import PartitionState
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.commands import Close, Command, ToClient, ToUpstream
from tests.proxy.dataplane.playbook import (
    Line,
    broker_state,
    complete_state,
    framed,
    pieces,
    reply,
    request,
    stable_group,
    to_client,
    to_upstream,
)

DRAFT: dict[str, Any] = {"group_metadata_request": True}
HERE = FindCoordinatorResponse(error_code=0, node_id=1, host="here", port=9092)
THERE = FindCoordinatorResponse(error_code=0, node_id=2, host="there", port=9093)
NOWHERE = FindCoordinatorResponse(error_code=15, node_id=-1, host="", port=-1)
AT_HERE, AT_THERE = Kip40Coordinator(id=1, host="here", port=9092), Kip40Coordinator(id=2, host="there", port=9093)
DEAD = Kip40GroupMetadata()
INITIALIZING = Kip40GroupMetadata(state=Kip40State.INITIALIZING)


def drafting(**more: Any) -> BrokerState:
    """Returns the state of a broker without initial groups, on a listener that supports the draft."""
    return complete_state(**DRAFT, **more)


def about(*groups: str, members: bool = True, everything: bool = False) -> GroupMetadataRequest:
    """Returns a request of the draft."""
    return GroupMetadataRequest(include_all_groups=int(everything), include_member_metadata=int(members), groups=groups)


def sent_requests(commands: Sequence[Command]) -> list[Struct]:
    """Returns the requests to the broker, which have v0. Asserts that the client gets nothing."""
    assert to_client(commands) == b""
    data, found = to_upstream(commands), list[Struct]()
    while data:
        size = int.from_bytes(data[:4], "big")
        frame, data = data[4 : 4 + size], data[4 + size :]
        body = 10 + int.from_bytes(frame[8:10], "big")
        assert frame[2:4] == b"\0\0"
        found.append(decode_start(APIS[int.from_bytes(frame[:2], "big")].request, 0, frame[body:])[0])
    return found


def answered(commands: Sequence[Command], correlation: int = 1) -> tuple[Kip40Group, ...]:
    """Returns the groups in the client's reply. Asserts that the broker gets nothing."""
    frame = to_client(commands)
    assert (to_upstream(commands), int.from_bytes(frame[:4], "big")) == (b"", len(frame) - 4)
    assert int.from_bytes(frame[4:8], "big") == correlation
    return decode(GroupMetadataResponse, 1, split_reply(frame[4:], flexible=False)).groups


def broker_answers(line: Line, *replies: Struct) -> list[Command]:
    """The broker replies to the sidecar's requests in their order."""
    return line.upstream(*(encode_reply(each, 0, -88) for each in replies))


def described(group: str = "g", state: str = "Stable", *members: str, error: int = 0) -> DescribedGroup:
    """Returns a group as a broker describes it."""
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
    """Returns a reply to DescribeGroups."""
    return DescribeGroupsResponse(groups=groups)


def stable(*members: str, leader: str = "m1", host: str = "/10.0.0.1", generation: int = 1) -> Kip40Group:
    """Returns the expected entry of the stable group g."""
    return Kip40Group(
        error_code=0,
        group_id="g",
        coordinator=AT_HERE,
        group_metadata=Kip40GroupMetadata(
            state=Kip40State.STABLE, protocol_type="consumer", generation=generation, protocol="range"
        ),
        member_metadata=Kip40MemberMetadata(
            leader=leader,
            members=tuple(
                Kip40Member(
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


def kip40_group(group: str, metadata: Kip40GroupMetadata, where: Kip40Coordinator = AT_HERE) -> Kip40Group:
    """Returns the expected entry of a group without members."""
    return Kip40Group(error_code=0, group_id=group, coordinator=where, group_metadata=metadata)


def refusal(group: str, error: int, where: Kip40Coordinator | None = None) -> Kip40Group:
    """Returns the expected entry of a group with an error."""
    return Kip40Group(error_code=error, group_id=group, coordinator=where or Kip40Coordinator())


# Answers from the copy.


def test_stable_group_comes_from_copy() -> None:
    """The metadata of a stable group comes from the copy, and the broker is asked only for the coordinator."""
    state = drafting()
    stable_group(state, "m1", "m2")
    line = Line(state)
    assert sent_requests(line.sends(about("g"), 1)) == [FindCoordinatorRequest(key="g")]
    assert answered(broker_answers(line, HERE)) == (stable("m1", "m2"),)


def test_members_are_sent_on_request_only() -> None:
    """The reply contains the members and the leader only if the request asks for them."""
    state = drafting()
    stable_group(state, "m1")
    line = Line(state)
    line.sends(about("g", members=False), 1)
    [group] = answered(broker_answers(line, HERE))
    assert group == replace(stable("m1"), member_metadata=Kip40MemberMetadata())


def test_absent_group_is_dead() -> None:
    """A group that is absent from a fresh log partition is reported as Dead with its coordinator."""
    state = drafting()
    partitions = state.copy.manager.log.partitions
    partitions.count = 1
    partition = partitions.begin(0, 0, 0)
    partition.state, partition.fresh_at = PartitionState.OWNED, state.copy.epoch(100)
    line = Line(state)
    assert sent_requests(line.sends(about("nobody's"), 1)) == [FindCoordinatorRequest(key="nobody's")]
    assert answered(broker_answers(line, HERE)) == (kip40_group("nobody's", DEAD),)


def test_absent_group_may_be_elsewhere() -> None:
    """Without the log, the broker describes a group that the copy does not know, because the group may have another
    coordinator.
    """
    elsewhere = described("nobody's", "", error=16)
    assert reply_groups(Line(drafting()), about("nobody's"), (telling(elsewhere),), (THERE,)) == (
        refusal("nobody's", 16, AT_THERE),
    )


def test_all_groups_need_one_find_coordinator() -> None:
    """For all groups of the copy, the broker is asked for the coordinator of one group only."""
    state = drafting()
    for group in ("g", "h", "i"):
        stable_group(state, f"of {group}", group=group)
    line = Line(state)
    [question] = sent_requests(line.sends(about(everything=True, members=False), 1))
    assert isinstance(question, FindCoordinatorRequest)
    groups = answered(broker_answers(line, HERE))
    assert {(group.group_id, group.coordinator, group.group_metadata.state) for group in groups} == {
        (each, AT_HERE, Kip40State.STABLE) for each in "ghi"
    }


def test_repeated_group_is_answered_once() -> None:
    """A group that the request names several times appears once in the reply."""
    state = drafting()
    stable_group(state, "m1")
    line = Line(state)
    line.sends(about("g", "g", everything=True), 1)
    assert answered(broker_answers(line, HERE)) == (stable("m1"),)


def test_empty_request_is_answered_at_once() -> None:
    """A request without groups gets an empty reply at once."""
    assert answered(Line(drafting()).sends(about(), 1)) == ()


def test_a_request_waits_for_its_turn() -> None:
    state = drafting()
    line = Line(state)
    before = request(3, 7)
    assert line.client(before, line.frame(about("g"), 1)) == [ToUpstream(before)]
    commands = line.upstream(reply(7))
    assert commands[0] == ToClient(reply(7))
    assert sent_requests(commands[1:]) == [DescribeGroupsRequest(groups=("g",))]


def test_a_request_may_come_in_pieces() -> None:
    line = Line(drafting())
    *first, last = pieces(line.frame(about("g"), 1), 5)
    assert [command for piece in first for command in line.client(piece)] == []
    assert sent_requests(line.client(last)) == [DescribeGroupsRequest(groups=("g",))]


# Requests to the broker.


def unsure() -> BrokerState:
    """Returns the state of a broker without a complete copy."""
    return broker_state(**DRAFT)


def reply_groups(line: Line, message: GroupMetadataRequest, *rounds: tuple[Struct, ...]) -> tuple[Kip40Group, ...]:
    """Sends a request, which the broker answers with these replies, round by round. Returns the client's groups."""
    commands = line.sends(message, 1)
    for replies in rounds:
        assert len(sent_requests(commands)) == len(replies)
        commands = broker_answers(line, *replies)
    return answered(commands)


def test_uncertain_groups_are_asked_of_broker() -> None:
    """The broker describes the groups that are uncertain in the copy."""
    state = unsure()
    line = Line(state)
    assert sent_requests(line.sends(about("g", "h"), 1)) == [DescribeGroupsRequest(groups=("g", "h"))]
    next_questions = broker_answers(line, telling(described("h", "Empty"), described("g", "Dead")))
    assert sent_requests(next_questions) == [FindCoordinatorRequest(key="g")]
    assert answered(broker_answers(line, HERE)) == (kip40_group("g", DEAD), kip40_group("h", DEAD))


def test_leader_and_hosts_come_from_copy() -> None:
    """The leader, generation and client hosts of a group that the broker describes come from the copy."""
    state = unsure()
    stable_group(state, "m1", "m2", generation=5)
    found = reply_groups(Line(state), about("g"), (telling(described("g", "Stable", "m1", "m2")),), (HERE,))
    assert found == (stable("m1", "m2", generation=5),)


def test_unseen_group_has_no_leader() -> None:
    """A group that the copy has never seen has no leader, generation -1, and the broker's hosts."""
    found = reply_groups(Line(unsure()), about("g"), (telling(described("g", "Stable", "m1")),), (HERE,))
    assert found == (stable("m1", leader="", host="/127.0.0.1", generation=-1),)


def test_changed_members_hide_leader() -> None:
    """If the broker reports other members than the copy, the reply has no leader and generation -1."""
    state = unsure()
    stable_group(state, "m1")
    [group] = reply_groups(Line(state), about("g"), (telling(described("g", "Stable", "m1", "m2")),), (HERE,))
    assert (group.group_metadata.generation, group.member_metadata.leader) == (-1, "")


@pytest.mark.parametrize("shown", ["PreparingRebalance", "CompletingRebalance", "AwaitingSync"])
def test_rebalance_reports_previous_generation(shown: str) -> None:
    """During a rebalance, the reply contains the previous generation and no members."""
    state = unsure()
    stable_group(state, "m1", generation=5)
    [group] = reply_groups(Line(state), about("g"), (telling(described("g", shown, "m1")),), (HERE,))
    assert group == kip40_group(
        "g", Kip40GroupMetadata(state=2, protocol_type="consumer", generation=5, protocol="range")
    )


def test_loading_group_is_initializing() -> None:
    """A group whose coordinator is loading is reported as Initializing."""
    loading = described("g", "", error=14)
    assert reply_groups(Line(unsure()), about("g"), (telling(loading),), (HERE,)) == (kip40_group("g", INITIALIZING),)


def test_loading_group_without_coordinator() -> None:
    """A loading group is reported as Initializing without an error, even if its coordinator is unknown."""
    found = reply_groups(Line(unsure()), about("g"), (telling(described("g", "", error=14)),), (NOWHERE,))
    assert found == (kip40_group("g", INITIALIZING, Kip40Coordinator()),)


def test_group_of_another_broker() -> None:
    """A group of another broker is reported with error 16 and its coordinator only."""
    elsewhere = described("g", "", error=16)
    assert reply_groups(Line(unsure()), about("g"), (telling(elsewhere),), (THERE,)) == (refusal("g", 16, AT_THERE),)


def test_group_without_coordinator() -> None:
    """A group without a coordinator is reported with error 15."""
    elsewhere = described("g", "", error=16)
    assert reply_groups(Line(unsure()), about("g"), (telling(elsewhere),), (NOWHERE,)) == (refusal("g", 15),)


@pytest.mark.parametrize("error", [15, 30])
def test_other_errors_are_passed_on(error: int) -> None:
    """Any other error of the description becomes the error of the group."""
    assert reply_groups(Line(unsure()), about("g"), (telling(described("g", "", error=error)),)) == (
        refusal("g", error),
    )


def test_groups_of_partition_share_coordinator() -> None:
    """Groups of the same log partition need one coordinator lookup."""
    state = unsure()
    state.copy.manager.log.partitions.count = 1
    line = Line(state)
    groups = tuple(f"g{number}" for number in range(20))
    elsewhere = telling(*(described(group, "", error=16) for group in groups))
    assert reply_groups(line, about(*groups), (elsewhere,), (THERE,)) == tuple(refusal(g, 16, AT_THERE) for g in groups)


def test_failed_lookup_asks_for_remaining_groups() -> None:
    """If the coordinator lookup of one group fails, the sidecar looks up the remaining groups."""
    groups = tuple(described(group, "Dead") for group in "abc")
    refused = FindCoordinatorResponse(error_code=30, node_id=-1, host="", port=-1)
    found = reply_groups(Line(unsure()), about("a", "b", "c"), (telling(*groups),), (refused,), (HERE, HERE))
    assert [group.coordinator for group in found] == [Kip40Coordinator(), AT_HERE, AT_HERE]


def test_lookups_are_sent_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sidecar sends at most REQUESTS_PER_ROUND coordinator lookups at a time."""
    monkeypatch.setattr("group_sidecar.proxy.handlers.kip40_group_metadata.REQUESTS_PER_ROUND", 2)
    elsewhere = telling(*(described(group, "", error=16) for group in "abc"))
    found = reply_groups(Line(unsure()), about("a", "b", "c"), (elsewhere,), (HERE, THERE), (NOWHERE,))
    assert found == (refusal("a", 16, AT_HERE), refusal("b", 16, AT_THERE), refusal("c", 15))


def test_all_groups_are_listed_and_named() -> None:
    """A request for all groups returns the groups that the broker lists and those that the request names."""
    listed = ListGroupsResponse(error_code=0, groups=(ListedGroup(group_id="a", protocol_type="consumer"),))
    line = Line(unsure())
    assert sent_requests(line.sends(about("b", everything=True), 1)) == [ListGroupsRequest()]
    assert sent_requests(broker_answers(line, listed)) == [DescribeGroupsRequest(groups=("a", "b"))]
    broker_answers(line, telling(described("a", "Dead"), described("b", "", error=16)))
    assert answered(broker_answers(line, HERE, THERE)) == (kip40_group("a", DEAD), refusal("b", 16, AT_THERE))


@pytest.mark.parametrize(
    ("error", "stands_for_it"),
    [(14, kip40_group("", INITIALIZING, Kip40Coordinator())), (15, refusal("", 15))],
)
def test_failed_list_is_reported(error: int, stands_for_it: Kip40Group) -> None:
    """If the broker cannot list groups, the reply has one entry without a group id for the failure."""
    listed = ListGroupsResponse(error_code=error, groups=())
    assert reply_groups(Line(unsure()), about(everything=True), (listed,)) == (stands_for_it,)


def test_gateway_reports_its_own_addresses() -> None:
    """A gateway reports coordinators with its own advertised addresses."""
    state = broker_state(advertise=lambda node, host, port: (f"for {host}", 7000 + node), **DRAFT)
    found = reply_groups(Line(state), about("g"), (telling(described("g", "Dead")),), (HERE,))
    assert found == (kip40_group("g", DEAD, Kip40Coordinator(id=1, host="for here", port=7001)),)


@pytest.mark.parametrize("rounds", [0, 1])
def test_unreadable_reply_means_no_coordinator(rounds: int) -> None:
    """After an unreadable reply of the broker, the group has error 15 and no coordinator."""
    line = Line(unsure())
    line.sends(about("g"), 1)
    if rounds:
        broker_answers(line, telling(described("g", "", error=16)))
    assert answered(line.upstream(framed((-88).to_bytes(4, "big", signed=True) + b"\xff"))) == (refusal("g", 15),)


def test_copy_answers_if_broker_lacks_api() -> None:
    """If the broker lacks DescribeGroups, the copy answers."""
    state = drafting(answers={"authorizer": "none"})
    state.versions.learn({ApiKey.FIND_COORDINATOR: (0, 0)})
    stable_group(state, "m1")
    assert reply_groups(Line(state), about("g"), (HERE,)) == (stable("m1"),)


def test_loading_partition_is_initializing() -> None:
    """If the broker lacks DescribeGroups, a group of a loading log partition is reported as Initializing."""
    state = drafting(answers={"authorizer": "none"})
    state.versions.learn({ApiKey.FIND_COORDINATOR: (0, 0)})
    partitions = state.copy.manager.log.partitions
    partitions.count = 1
    partitions.begin(0, 0, 0)
    assert reply_groups(Line(state), about("g"), (HERE,)) == (kip40_group("g", INITIALIZING),)


def test_list_groups_unavailable_without_api() -> None:
    """If the broker lacks the APIs and the copy may not answer, each entry has error 15 and no coordinator."""
    state = unsure()
    state.versions.learn({ApiKey.FIND_COORDINATOR: (0, 0)})
    assert reply_groups(Line(state), about("g", everything=True)) == (refusal("", 15), refusal("g", 15))


def test_disabled_answers_go_to_broker() -> None:
    """With local answers disabled, the broker describes the group."""
    state = drafting(answers={"exclusive": True, "authorizer": "none", "enabled": False})
    assert sent_requests(Line(state).sends(about("g"), 1)) == [DescribeGroupsRequest(groups=("g",))]


def test_unknown_access_goes_to_broker() -> None:
    """If the client's access to the group is unknown, the broker describes the group."""
    state = drafting(answers={"exclusive": True, "authorizer": "auto"})
    stable_group(state, "m1")
    assert sent_requests(Line(state).sends(about("g"), 1)) == [DescribeGroupsRequest(groups=("g",))]


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
def test_malformed_request_closes(body: bytes) -> None:
    """A malformed request closes the connection."""
    line = Line(drafting())
    assert line.client(request(10, 1, version=1, body=body)) == [Close(CloseReason.MALFORMED_REQUEST)]


def test_truncated_header_closes() -> None:
    """A request with a truncated header closes the connection."""
    assert Line(drafting()).client(framed(b"\0\x0a\0\1\0\0\0\1\0\x09c")) == [Close(CloseReason.MALFORMED_REQUEST)]


@given(st.binary(max_size=40), st.binary(max_size=3))
def test_broker_never_gets_kip40_request(body: bytes, cut: bytes) -> None:
    """Whatever bytes a client sends as a KIP-40 request, the broker receives only the sidecar's own requests."""
    line = Line(drafting())
    commands = line.client(request(10, 1, version=1, body=body), cut)
    if commands != [Close(CloseReason.MALFORMED_REQUEST)]:
        sent = to_upstream(commands)  # FindCoordinator v0 and DescribeGroups v0 are the sidecar's own requests.
        assert sent[4:8] in (b"", b"\0\x0a\0\0", b"\0\x0f\0\0")


@pytest.mark.parametrize("size", [0, 9])
def test_overlong_kip40_request_closes(size: int) -> None:
    """A request longer than limits.inspected_frame is neither forwarded nor held, and its connection closes."""
    line = Line(drafting(limits={"inspected_frame": 1024}))
    frame = line.frame(about("x" * 1100), 1)
    first, *_ = pieces(frame[:600], size * 40)
    assert line.client(first) == [Close(CloseReason.REQUEST_TOO_LONG)]


def test_request_without_room_closes() -> None:
    """A request that arrives in pieces is not forwarded if limits.held_frames has no room for it."""
    line = Line(drafting(limits={"held_frames": 1024}))
    frame = line.frame(about("x" * 20_000), 1)
    assert line.client(frame[:1000]) == [Close(CloseReason.REQUEST_TOO_LONG)]


def test_evicted_request_closes() -> None:
    """A request that is evicted before it is complete is not forwarded, and its connection closes."""
    line = Line(drafting())
    frame = line.frame(about("x" * 20_000), 1)
    assert line.client(frame[:1000]) == []
    evicted = line.session.evict_held_request(line.now, CloseReason.REQUEST_TOO_LONG)
    assert evicted == [Close(CloseReason.REQUEST_TOO_LONG)]


@pytest.mark.parametrize("body", [b"", bytes(2000)], ids=["malformed", "too long"])
def test_earlier_requests_are_answered_first(body: bytes) -> None:
    """A bad request closes the connection only after the earlier request has its reply."""
    line = Line(drafting(limits={"inspected_frame": 1024}))
    before = request(3, 7)
    assert line.client(before, request(10, 8, version=1, body=body)) == [ToUpstream(before)]
    assert not line.session.should_read_client
    closed, done = line.upstream(reply(7)), ToClient(reply(7))
    assert closed[0] == done
    assert [type(command) for command in closed[1:]] == [Close]


# Unchanged requests.


@pytest.mark.parametrize("version", [0, 2, 3, 4, 6])
def test_other_versions_are_find_coordinator(version: int) -> None:
    """Other versions of the API key are ordinary FindCoordinator requests and pass unchanged."""
    message = FindCoordinatorRequest(key="g", coordinator_keys=("g",)) if version >= 4 else HERE
    question = FindCoordinatorRequest(key="g") if version < 4 else message
    back = HERE if version < 4 else FindCoordinatorResponse()
    Line(drafting()).exchange(question, back, version)


def test_version_1_is_kafkas_without_setting() -> None:
    """Without the setting, version 1 is Kafka's FindCoordinator and is forwarded unheld."""
    state = complete_state()
    Line(state).exchange(FindCoordinatorRequest(key="g"), HERE, 1)
    frame = request(10, 1, version=1, body=bytes(100))
    assert Line(state).client(frame[:40]) == [ToUpstream(frame[:40])]


def test_gateway_forwards_version_1() -> None:
    """Without the setting, a gateway forwards version 1 of FindCoordinator."""
    state = broker_state(advertise=lambda node, host, port: (host, port))
    frame = request(10, 1, version=1, body=b"\0\0\0\0")
    assert Line(state).client(frame) == [ToUpstream(frame)]


@pytest.mark.parametrize("switched", [True, False])
def test_setting_caps_find_coordinator_versions(switched: bool) -> None:
    """With the setting on, FindCoordinator is offered up to version 0; otherwise the broker's range is unchanged."""
    line = Line(complete_state(group_metadata_request=switched))
    offers = tuple(ApiVersion(api_key=key, min_version=0, max_version=4) for key in (ApiKey.FIND_COORDINATOR, 36))
    line.sends(ApiVersionsRequest(), 0)
    back = line.broker_replies(ApiVersionsResponse(error_code=0, api_keys=offers), 0)
    heard = {v.api_key: v.max_version for v in line.reads_reply(back, ApiVersionsRequest(), 0).api_keys}
    assert heard[ApiKey.FIND_COORDINATOR] == (0 if switched else 4)
