"""What a connection keeps of requests whose replies are owed: bounded, counted, and freed with the replies."""

from typing import Any

from group_sidecar.codecs.headers import encode_reply
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.join_group import JoinGroupResponse
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.views import Lacking
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.commands import Close
from group_sidecar.proxy.desk import BrokerDesk
from group_sidecar.proxy.holding import SMALL_FRAME
from group_sidecar.proxy.session import KEPT_BESIDE, MOST_EXPECTED, MOST_KEPT
from tests.proxy.playbook import EPOCH, Line, certain_copy, joining, request, to_client, to_upstream

MANY = 4_000
COMMIT = OffsetCommitRequest(group_id="g" * 20_000, topics=())
BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
PARKED_REPLY = JoinGroupResponse(error_code=27, generation_id=-1, protocol_name="", leader="", member_id="", members=())


def pipelined(line: Line, message: Struct, version: int) -> int:
    """A client sends a request over and over while it is read. Returns how often."""
    frame, sent = line.frame(message, version), 0
    while line.session.wants_client and sent < MANY:
        line.client(frame)
        sent += 1
    return sent


def test_a_client_is_not_read_while_much_of_its_requests_is_kept() -> None:
    line = Line(certain_copy())
    sent = pipelined(line, COMMIT, 2)
    assert sent == MOST_KEPT // 20_000
    assert MOST_KEPT <= line.session.held_bytes < MOST_KEPT + 21_000
    assert not line.session.at_ease


def test_small_requests_count_with_what_is_kept_beside_them() -> None:
    line = Line(certain_copy())
    assert MOST_KEPT // (100 + KEPT_BESIDE) < pipelined(line, BEAT, 0) < MOST_KEPT // KEPT_BESIDE


def test_no_more_is_kept_of_many_requests_that_come_in_one_read() -> None:
    line = Line(certain_copy())
    frame = line.frame(BEAT, 0)
    line.client(frame * MANY)
    assert line.session.kept_bytes < MOST_KEPT + len(frame) + KEPT_BESIDE
    assert line.session.held_bytes < MOST_KEPT + len(frame) * (MANY + 1) + KEPT_BESIDE


def test_all_requests_of_one_read_go_on_as_replies_come() -> None:
    line = Line(certain_copy())
    frame, went = line.frame(BEAT, 0), 0
    out = line.client(frame * MANY)
    for _ in range(MANY):
        went += len(to_upstream(out))
        out = line.broker_says(HeartbeatResponse(error_code=0), 0, correlation=1)
    assert went == len(frame) * MANY
    assert line.session.held_bytes == 0
    assert line.session.at_ease


def test_no_more_replies_are_owed_to_requests_that_nobody_looks_into_and_that_come_in_one_read() -> None:
    line = Line(certain_copy())
    line.client(request(ApiKey.METADATA, 1, version=4, body=bytes(5)) * (3 * MOST_EXPECTED))
    assert len(line.session.expected) == MOST_EXPECTED


def test_replies_free_what_was_kept_and_the_client_is_read_again() -> None:
    line = Line(certain_copy())
    sent = pipelined(line, COMMIT, 2)
    line.broker_says(OffsetCommitResponse(topics=()), 2, correlation=1)
    assert line.session.wants_client
    for _ in range(sent - 1):
        line.broker_says(OffsetCommitResponse(topics=()), 2, correlation=1)
    assert line.session.held_bytes == 0
    assert line.session.at_ease


def test_nothing_is_kept_of_requests_that_nobody_looks_into() -> None:
    line = Line(certain_copy())
    line.client(*(request(ApiKey.PRODUCE, 1, version=3, body=b"\xff\xff\0\1" + bytes(2000)) for _ in range(500)))
    assert line.session.wants_client
    assert line.session.held_bytes == 0


def test_a_question_that_waits_for_its_turn_is_counted() -> None:
    line = Line(certain_copy())
    line.says(joining(), 3)
    before = line.session.held_bytes
    line.says(DescribeGroupsRequest(groups=("x" * 30_000,)), 0)
    assert line.session.held_bytes > before + 30_000
    commands = line.broker_says(PARKED_REPLY, 3, correlation=1)
    assert len(to_client(commands)) > 30_000
    assert line.session.held_bytes == 0


def test_a_long_request_counts_towards_the_bound_of_all_until_it_has_its_reply() -> None:
    """Clients could otherwise park a JoinGroup each, and have 16 MiB kept behind it for minutes, in any number."""
    copy = certain_copy(limits={"held_frames": 800_000})
    desk = BrokerDesk(copy)
    lines = [Line(copy, desk=desk) for _ in range(3)]
    for line in lines:
        line.exchange(BEAT, HeartbeatResponse(error_code=25), 0)
        line.says(joining(), 3)
    question = DescribeGroupsRequest(groups=("x" * 30_000,) * 10)
    for line in lines:
        frame = line.frame(question, 0)
        line.client(frame[:1000])
        line.client(frame[1000:])
    assert [line.session.held_bytes > 300_000 for line in lines] == [True, True, True]
    assert desk.crowded_out() == [lines[0].session.origin.number]
    assert lines[0].session.give_way(0, CloseReason.REQUEST_TOO_LONG) == [Close(CloseReason.REQUEST_TOO_LONG)]
    lines[1].broker_says(PARKED_REPLY, 3, correlation=2)
    lines[1].broker_says(DescribeGroupsResponse(groups=()), 0)
    again = Line(copy, desk=desk)
    again.exchange(BEAT, HeartbeatResponse(error_code=25), 0)
    again.client(again.frame(question, 0)[:1000])
    assert desk.crowded_out() == []


def committing(offset: int, metadata: str) -> OffsetCommitRequest:
    """A commit to group g."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=metadata)
    return OffsetCommitRequest(group_id="g", topics=(OffsetCommitRequestTopic(name="t", partitions=(partition,)),))


LONG_COMMIT = committing(5, "m" * 30_000)
STORED = OffsetCommitResponse(
    topics=(
        OffsetCommitResponseTopic(
            name="t", partitions=(OffsetCommitResponsePartition(partition_index=0, error_code=0),)
        ),
    )
)


def parked_commits(**settings: Any) -> tuple[BrokerCopy, BrokerDesk, list[Line]]:
    """Two clients that each wait for a join and for a long commit behind it. There is room for one such commit."""
    copy = certain_copy(limits={"held_frames": 50_000}, **settings)
    desk = BrokerDesk(copy)
    lines = [Line(copy, desk=desk) for _ in range(2)]
    for line in lines:
        line.exchange(committing(1, ""), STORED, 2)
        line.says(joining(), 3)
    assert copy.manager.view("g", EPOCH + lines[1].now).offsets_lacking is None
    for line in lines:
        frame = line.frame(LONG_COMMIT, 2)
        line.client(frame[:1000])
        assert to_upstream(line.client(frame[1000:])) == frame
    return copy, desk, lines


def test_a_commit_that_gives_way_to_another_is_forgotten_and_its_client_gets_the_reply() -> None:
    copy, desk, (first, _) = parked_commits()
    assert desk.crowded_out() == [first.session.origin.number]
    assert first.session.give_way(first.now, CloseReason.REQUEST_TOO_LONG) == []
    assert first.session.held_bytes < SMALL_FRAME
    assert copy.manager.view("g", EPOCH + first.now).offsets_lacking is Lacking.UNDECODABLE
    assert len(to_client(first.broker_says(PARKED_REPLY, 3, correlation=2))) > 0
    assert len(to_client(first.broker_says(STORED, 2))) > 0
    assert first.session.held_bytes == 0
    assert first.session.at_ease
    view = copy.manager.view("g", EPOCH + first.now)
    assert view.offsets_lacking is Lacking.UNDECODABLE, "what was committed is for the log or the broker to say"
    assert copy.traffic.decode_failures == {ApiKey.OFFSET_COMMIT: 1}


def test_a_client_that_was_not_read_for_its_long_commits_is_read_again_once_they_are_forgotten() -> None:
    line = Line(certain_copy())
    sent = pipelined(line, LONG_COMMIT, 2)
    line.client(beat := line.frame(BEAT, 0))
    wanted = [line.session.wants_client]
    assert to_upstream(line.session.give_way(line.now, CloseReason.REQUEST_TOO_LONG)) == beat
    wanted.append(line.session.wants_client)
    assert wanted == [False, True]
    for _ in range(sent):
        assert len(to_client(line.broker_says(STORED, 2, correlation=1))) > 0


def test_a_commit_that_a_policy_judges_is_not_forgotten() -> None:
    _, _, (first, _) = parked_commits(policies={"offset_metadata_max_bytes": {"limit": 40_000}})
    commands = first.session.give_way(first.now, CloseReason.REQUEST_TOO_LONG)
    assert commands == [Close(CloseReason.REQUEST_TOO_LONG)]


def test_a_leave_is_not_forgotten() -> None:
    """It counts from when it was sent."""
    line = Line(certain_copy())
    line.says(LeaveGroupRequest(group_id="g", member_id="m" * 20_000), 0)
    commands = line.session.give_way(line.now, CloseReason.REQUEST_TOO_LONG)
    assert commands == [Close(CloseReason.REQUEST_TOO_LONG)]


def test_a_request_whose_reply_has_half_come_is_not_forgotten() -> None:
    """The desk was to be shown that reply together with the request."""
    line = Line(certain_copy())
    line.says(HeartbeatRequest(group_id="g" * 20_000, generation_id=1, member_id="m"), 0)
    line.upstream(encode_reply(HeartbeatResponse(error_code=0), 0, 1)[:-1])
    commands = line.session.give_way(line.now, CloseReason.REQUEST_TOO_LONG)
    assert commands == [Close(CloseReason.REQUEST_TOO_LONG)]


def test_a_question_that_waits_for_its_turn_is_not_forgotten() -> None:
    line = Line(certain_copy())
    line.says(joining(), 3)
    line.says(DescribeGroupsRequest(groups=("x" * 30_000,)), 0)
    commands = line.session.give_way(line.now, CloseReason.REQUEST_TOO_LONG)
    assert commands == [Close(CloseReason.REQUEST_TOO_LONG)]


def test_a_connection_that_ends_frees_what_was_kept() -> None:
    line = Line(certain_copy())
    pipelined(line, COMMIT, 2)
    line.session.close(line.now)
    assert line.session.held_bytes == 0
