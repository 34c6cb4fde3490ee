"""`describe` and `offsets` with brokers: the requests to each broker, and the output."""

from collections.abc import Iterator

import pytest

from group_sidecar.codecs.messages import consumer_group_describe as new
from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorRequest
from group_sidecar.codecs.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tests.proxy.commandline.groups_shell import (
    ASSIGNMENT,
    NEW_MEMBER,
    NOT_NEW,
    Answers,
    StartShell,
    assigned,
    classic_group,
    classic_member,
    failed,
    new_group,
    shells,
)
from tests.proxy.scripted_broker import HangUp


@pytest.fixture
def shell() -> Iterator[StartShell]:
    with shells() as start:
        yield start


def test_describe_classic_group(shell: StartShell) -> None:
    """A classic group is described by its coordinator, after ConsumerGroupDescribe has failed."""
    two = shell({}, {**NOT_NEW, **classic_group(classic_member(group_instance_id="i-1"))})
    result = two.run("describe", "g")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "GROUP                g",
        "TYPE                 classic",
        "PROTOCOL-TYPE        consumer",
        f"COORDINATOR (ID)     {two.addresses[1]} (1)",
        "ASSIGNMENT-STRATEGY  range",
        "STATE                Stable",
        "#MEMBERS             1",
        "",
        "CONSUMER-ID  GROUP-INSTANCE-ID  HOST       CLIENT-ID  #PARTITIONS  ASSIGNMENT",
        "m-1          i-1                /10.0.0.7  app        2            t:0,1",
    ]
    requests = [request.NAME for request, _ in two.brokers[1].asked]
    assert requests == ["ConsumerGroupDescribeRequest", "DescribeGroupsRequest"]


def test_describe_classic_group_as_json(shell: StartShell) -> None:
    """The JSON description of a classic group has all keys, with null for those that only sidecars know."""
    one = shell(classic_group(classic_member()))
    assert one.json("describe", "g") == {
        "group": "g",
        "protocol": "classic",
        "state": "Stable",
        "coordinator": {"id": 0, "host": one.addresses[0].host, "port": one.addresses[0].port},
        "protocol_type": "consumer",
        "assignor": "range",
        "generation": None,
        "leader": None,
        "assignment_epoch": None,
        "members": 1,
        "members_known": True,
        "limit": None,
        "lag": None,
        "lag_unknown_partitions": None,
        "committed_partitions": None,
        "last_rebalance_at": None,
        "last_cause": None,
        "last_reason": None,
        "rebalances": None,
        "lacking": None,
        "offsets_lacking": None,
        "sidecar": None,
        "problems": [],
        "member_list": [
            {
                "member_id": "m-1",
                "instance_id": None,
                "client_id": "app",
                "client_host": "/10.0.0.7",
                "principal": None,
                "since": None,
                "subscribed_topics": ["t", "u"],
                "assignment": {"t": [1, 0]},
                "assignment_bytes": None,
                "epoch": None,
                "target_assignment": None,
            }
        ],
    }


def test_describe_consumer_protocol_group(shell: StartShell) -> None:
    """A consumer-protocol group is described with epochs and target assignments."""
    stable_group = new.Member(
        member_id="m-2",
        member_epoch=5,
        client_id="app",
        client_host="/10.0.0.8",
        subscribed_topic_names=(),
        assignment=assigned(2),
        target_assignment=assigned(2),
    )
    one = shell(new_group(NEW_MEMBER, stable_group))
    assert one.run("describe", "g").stdout.splitlines() == [
        "GROUP                    g",
        "TYPE                     consumer",
        "PROTOCOL-TYPE            consumer",
        f"COORDINATOR (ID)         {one.addresses[0]} (0)",
        "ASSIGNMENT-STRATEGY      uniform",
        "STATE                    Reconciling",
        "GROUP-EPOCH              5",
        "TARGET-ASSIGNMENT-EPOCH  4",
        "#MEMBERS                 2",
        "",
        "CONSUMER-ID  GROUP-INSTANCE-ID  HOST       CLIENT-ID  #PARTITIONS  ASSIGNMENT  EPOCH  TARGET-ASSIGNMENT",
        "m-1          i-1                /10.0.0.7  app        1            t:0         4      t:0,1",
        "m-2          -                  /10.0.0.8  app        1            t:2         5      -",
    ]
    output = one.json("describe", "g")
    assert (output["protocol"], output["generation"], output["assignment_epoch"]) == ("consumer", 5, 4)
    assert output["member_list"][0]["target_assignment"] == {"t": [0, 1]}


def test_describe_with_oldest_versions(shell: StartShell) -> None:
    """A broker with only the oldest versions can describe a group."""
    versions = {ApiVersionsRequest: (0, 0), DescribeGroupsRequest: (0, 0), FindCoordinatorRequest: (0, 0)}
    one = shell(classic_group(), versions=versions)
    assert one.json("describe", "g")["state"] == "Stable"


@pytest.mark.parametrize(
    ("protocol_type", "assignment", "shown"),
    [
        ("consumer", b"", "0            -"),
        ("consumer", b"\0\0\7", "-            (3 bytes)"),
        ("connect", ASSIGNMENT, f"-            ({len(ASSIGNMENT)} bytes)"),
        ("connect", b"", "0            -"),
    ],
)
def test_describe_undecodable_assignments(shell: StartShell, protocol_type: str, assignment: bytes, shown: str) -> None:
    """An assignment that cannot be decoded is shown as its number of bytes, and an empty one as no partitions."""
    one = shell(classic_group(classic_member(assignment, member_metadata=b"junk"), protocol_type=protocol_type))
    assert (
        one.run("describe", "g").stdout.splitlines()[-1]
        == f"m-1          -                  /10.0.0.7  app        {shown}"
    )
    member = one.json("describe", "g")["member_list"][0]
    assert member["subscribed_topics"] == []
    if "bytes" in shown:
        assert (member["assignment"], member["assignment_bytes"]) == (None, len(assignment))
    else:
        assert (member["assignment"], member["assignment_bytes"]) == ({}, None)


def test_describe_a_group_without_members(shell: StartShell) -> None:
    """A group without members is described without a member table."""
    one = shell(classic_group(group_state="Empty", protocol_type="", protocol_data=""))
    assert one.run("describe", "g").stdout.splitlines() == [
        "GROUP                g",
        "TYPE                 classic",
        "PROTOCOL-TYPE        -",
        f"COORDINATOR (ID)     {one.addresses[0]} (0)",
        "ASSIGNMENT-STRATEGY  -",
        "STATE                Empty",
        "#MEMBERS             0",
    ]


@pytest.mark.parametrize("command", ["describe", "offsets"])
@pytest.mark.parametrize(
    ("answers", "line"),
    [
        (classic_group(group_state="Dead"), "Group g not found."),
        (
            {
                **NOT_NEW,
                **classic_group(group_state="Dead", error_code=69, error_message="Group g is not a classic group."),
            },
            "Group g is not a classic group.",
        ),
    ],
)
def test_missing_group_is_not_found(shell: StartShell, command: str, answers: Answers, line: str) -> None:
    """A missing group fails with status 1 and one line."""
    failed(shell(answers).run(command, "g"), 1, line)


@pytest.mark.parametrize(
    ("answers", "api"),
    [
        (classic_group(group_state="", error_code=30, error_message="No."), "DescribeGroups"),
        (new_group(error_code=30, error_message="No."), "ConsumerGroupDescribe"),
    ],
)
def test_denied_group_fails(shell: StartShell, answers: Answers, api: str) -> None:
    """A group that the user may not see fails with the broker's error."""
    one = shell(answers)
    failed(one.run("describe", "g"), 1, f"{one.addresses[0]} answers {api}: GROUP_AUTHORIZATION_FAILED (30): No.")


def test_moved_coordinator_is_looked_up_again(shell: StartShell) -> None:
    """A coordinator that has moved is looked up again."""
    moved = [classic_group(error_code=16, group_state=""), classic_group(error_code=15, group_state="")]
    answer = classic_group()[DescribeGroupsRequest]
    one = shell({DescribeGroupsRequest: lambda *_: moved.pop()[DescribeGroupsRequest] if moved else answer})
    assert one.json("describe", "g")["state"] == "Stable"
    assert len(one.brokers[0].requests(FindCoordinatorRequest)) == 3


def test_foreign_reply_fails(shell: StartShell) -> None:
    """A reply about another group fails with one line."""
    one = shell(classic_group(group_id="other"))
    failed(one.run("describe", "g"), 1, "DescribeGroupsResponse: groups: lacks the group asked for")


def test_foreign_text_is_escaped(shell: StartShell) -> None:
    """Control characters in names of members are escaped."""
    one = shell(classic_group(classic_member(client_id="\x1b[2Jmad\n[bold]", member_id="é")))
    last = one.run("describe", "g").stdout.splitlines()[-1]
    assert last == r"é            -                  /10.0.0.7  \x1b[2Jmad\n[bold]  2            t:0,1"


def offsets(*rows: tuple[int, int, str, int], error: int = 0) -> Answers:
    partitions = tuple(
        OffsetFetchResponsePartition(partition_index=index, committed_offset=offset, metadata=metadata, error_code=code)
        for index, offset, metadata, code in rows
    )
    topic = OffsetFetchResponseTopic(name="t", partitions=partitions)
    return {
        OffsetFetchRequest: OffsetFetchResponse(
            groups=(OffsetFetchResponseGroup(group_id="g", topics=(topic,), error_code=error),)
        )
    }


def end_at(offset: int) -> Answers:
    def answer(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        ListOffsetsPartitionResponse(
                            partition_index=one.partition_index, error_code=0, offset=offset + one.partition_index
                        )
                        for one in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    return {ListOffsetsRequest: answer}


def test_offsets_show_lag(shell: StartShell) -> None:
    """Offsets are shown with log ends, lag and members. Unknown values are shown as dashes."""
    group = {**NOT_NEW, **classic_group(classic_member()), **offsets((2, 7, "note", 0), (0, 90, "", 0))}
    two = shell(end_at(100), {**group, **end_at(200)})
    result = two.run("offsets", "g")
    assert (result.exit_code, result.stderr) == (0, "")
    # Partition 1 is assigned and has no offset; partition 2 has no leader.
    assert result.stdout.splitlines() == [
        "GROUP  TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST       CLIENT-ID  METADATA",
        "g      t      0          90              100             10   m-1          /10.0.0.7  app        -",
        "g      t      1          -               201             -    m-1          /10.0.0.7  app        -",
        "g      t      2          7               -               -    -            -          -          note",
    ]
    assert [len(broker.requests(ListOffsetsRequest)) for broker in two.brokers] == [1, 1]


def test_offsets_as_json(shell: StartShell) -> None:
    one = shell({**classic_group(), **offsets((0, 0, "", 0)), **end_at(3)})
    assert one.json("offsets", "g") == {
        "group": "g",
        "state": "Stable",
        "sidecar": None,
        "offsets": [
            {
                "topic": "t",
                "partition": 0,
                "current_offset": 0,
                "log_end_offset": 3,
                "log_end_at": None,
                "lag": 3,
                "metadata": "",
                "committed_at": None,
                "member_id": None,
                "client_id": None,
                "client_host": None,
                "principal": None,
            }
        ],
        "problems": [],
    }


def test_unknown_offsets_are_reported(shell: StartShell) -> None:
    """Offsets and log ends that the broker does not return are dashes, with one line for each problem and status 2."""
    one = shell({**classic_group(), **offsets((0, 5, "", 0), (1, -1, "", 29)), ListOffsetsRequest: HangUp()})
    result = one.run("offsets", "g")
    assert result.exit_code == 2
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["g", "t", "0", "5", *"------"],
        ["g", "t", "1", *"-------"],
    ]
    assert result.stderr.splitlines() == [
        f"group-sidecar: {one.addresses[0]} closed the connection at ListOffsets: it may require SASL",
        "group-sidecar: no offset of t:1: TOPIC_AUTHORIZATION_FAILED (29)",
    ]


def test_group_without_offsets_has_no_rows(shell: StartShell) -> None:
    """A group without offsets prints the table headings only."""
    result = shell({**classic_group(), **offsets()}).run("offsets", "g")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1)


def test_refused_offsets_fail(shell: StartShell) -> None:
    """Refused offsets fail with the broker's error."""
    one = shell({**classic_group(), **offsets(error=30)})
    failed(one.run("offsets", "g"), 1, f"{one.addresses[0]} answers OffsetFetch: GROUP_AUTHORIZATION_FAILED (30)")
