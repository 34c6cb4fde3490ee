"""The data that a connection keeps of unanswered requests is bounded, counted, and freed with the replies."""

from typing import Any

import pytest

from group_sidecar.codecs.api_registry import ApiKey
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
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.metrics.listener_counters import CloseReason, ReadPause
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.commands import Close
from group_sidecar.proxy.dataplane.framing import FrameAction
from group_sidecar.proxy.dataplane.held_request_budget import SMALL_FRAME
from group_sidecar.proxy.dataplane.session import KEPT_REQUEST_OVERHEAD, SessionLimits
from group_sidecar.proxy.handlers.dispatcher import BrokerDispatcher
from tests.proxy.dataplane.playbook import (
    EPOCH,
    LARGEST_FRAME,
    Line,
    SessionDriver,
    complete_state,
    joining,
    new_dispatcher,
    reply,
    request,
    to_client,
    to_upstream,
)
from tests.proxy.fakes import (
    MAX_IN_FLIGHT,
    MAX_KEPT_BYTES,
    SILENT_API,
    PassthroughDispatcher,
    holds,
    request_frame,
    running_proxy,
)

MANY = 4_000
COMMIT = OffsetCommitRequest(group_id="g" * 20_000, topics=())
BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
PARKED_REPLY = JoinGroupResponse(error_code=27, generation_id=-1, protocol_name="", leader="", member_id="", members=())


def pipelined(line: Line, message: Struct, version: int) -> int:
    """Sends a request repeatedly, as long as the session reads from the client. Returns how often."""
    frame, sent = line.frame(message, version), 0
    while line.session.should_read_client and sent < MANY:
        line.client(frame)
        sent += 1
    return sent


def test_client_pauses_at_kept_bytes_limit() -> None:
    """A client is not read once MAX_KEPT_BYTES of its pending requests are kept."""
    line = Line(complete_state())
    sent = pipelined(line, COMMIT, 2)
    assert sent == MAX_KEPT_BYTES // 20_300 + 1
    assert MAX_KEPT_BYTES <= line.session.held_bytes < MAX_KEPT_BYTES + 21_000
    assert not line.session.can_use_fast_path


def test_small_requests_count_with_overhead() -> None:
    """Small pending requests count with their overhead."""
    line = Line(complete_state())
    assert (
        MAX_KEPT_BYTES // (100 + KEPT_REQUEST_OVERHEAD)
        < pipelined(line, BEAT, 0)
        < MAX_KEPT_BYTES // KEPT_REQUEST_OVERHEAD
    )


def test_one_read_keeps_bounded_bytes() -> None:
    """Many requests in one read do not exceed the limit of kept bytes."""
    line = Line(complete_state())
    frame = line.frame(BEAT, 0)
    line.client(frame * MANY)
    assert line.session.kept_bytes < MAX_KEPT_BYTES + len(frame) + KEPT_REQUEST_OVERHEAD
    assert line.session.held_bytes < MAX_KEPT_BYTES + len(frame) * (MANY + 1) + KEPT_REQUEST_OVERHEAD


def test_requests_of_one_read_follow_replies() -> None:
    """All requests of one read are forwarded as replies arrive, and nothing stays held."""
    line = Line(complete_state())
    frame, went = line.frame(BEAT, 0), 0
    out = line.client(frame * MANY)
    for _ in range(MANY):
        went += len(to_upstream(out))
        out = line.broker_replies(HeartbeatResponse(error_code=0), 0, correlation=1)
        if line.session.paused:
            out = [*out, *line.session.resume(line.now)]
    assert went == len(frame) * MANY
    assert line.session.held_bytes == 0
    assert line.session.should_read_client


def test_one_read_has_bounded_in_flight_requests() -> None:
    """Many uninspected requests in one read lead to at most MAX_IN_FLIGHT pending replies."""
    line = Line(complete_state())
    line.client(request(ApiKey.METADATA, 1, version=4, body=bytes(5)) * (3 * MAX_IN_FLIGHT))
    assert len(line.session.in_flight) == MAX_IN_FLIGHT


def test_replies_free_kept_bytes() -> None:
    """Replies free the kept bytes, and the client is read again."""
    line = Line(complete_state())
    sent = pipelined(line, COMMIT, 2)
    line.broker_replies(OffsetCommitResponse(topics=()), 2, correlation=1)
    assert line.session.should_read_client
    for _ in range(sent - 1):
        line.broker_replies(OffsetCommitResponse(topics=()), 2, correlation=1)
    assert line.session.held_bytes == 0
    assert line.session.can_use_fast_path


def test_uninspected_requests_are_not_kept() -> None:
    """Requests that the sidecar does not inspect are not kept."""
    line = Line(complete_state())
    line.client(*(request(ApiKey.PRODUCE, 1, version=3, body=b"\xff\xff\0\1" + bytes(2000)) for _ in range(500)))
    assert line.session.should_read_client
    assert line.session.held_bytes == 0


def test_waiting_question_counts_as_held() -> None:
    """A question that waits for its turn counts towards the held bytes until its reply is sent."""
    line = Line(complete_state())
    line.sends(joining(), 3)
    before = line.session.held_bytes
    line.sends(DescribeGroupsRequest(groups=("x" * 30_000,)), 0)
    assert line.session.held_bytes > before + 30_000
    commands = line.broker_replies(PARKED_REPLY, 3, correlation=1)
    assert len(to_client(commands)) > 30_000
    assert line.session.held_bytes == 0


def test_long_pending_request_counts_as_held() -> None:
    """A long request counts towards limits.held_frames until its reply arrives. The oldest such request is evicted
    first.
    """
    state = complete_state(limits={"held_frames": 800_000})
    dispatcher = new_dispatcher(state)
    lines = [Line(state, dispatcher=dispatcher) for _ in range(3)]
    for line in lines:
        line.exchange(BEAT, HeartbeatResponse(error_code=25), 0)
        line.sends(joining(), 3)
    question = DescribeGroupsRequest(groups=("x" * 30_000,) * 10)
    for line in lines:
        frame = line.frame(question, 0)
        line.client(frame[:1000])
        line.client(frame[1000:])
    assert [line.session.held_bytes > 300_000 for line in lines] == [True, True, True]
    assert state.held_request_budget.take_evicted() == [lines[0].session.origin.number]
    assert lines[0].session.evict_held_request(0, CloseReason.REQUEST_TOO_LONG) == [Close(CloseReason.REQUEST_TOO_LONG)]
    lines[1].broker_replies(PARKED_REPLY, 3, correlation=2)
    lines[1].broker_replies(DescribeGroupsResponse(groups=()), 0)
    again = Line(state, dispatcher=dispatcher)
    again.exchange(BEAT, HeartbeatResponse(error_code=25), 0)
    again.client(again.frame(question, 0)[:1000])
    assert state.held_request_budget.take_evicted() == []


def committing(offset: int, metadata: str) -> OffsetCommitRequest:
    """Returns a commit to group g."""
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


def parked_commits(**settings: Any) -> tuple[BrokerState, BrokerDispatcher, list[Line]]:
    """Returns two clients, each with a pending join and a pending long commit. There is room for one such commit."""
    state = complete_state(limits={"held_frames": 50_000}, **settings)
    dispatcher = new_dispatcher(state)
    lines = [Line(state, dispatcher=dispatcher) for _ in range(2)]
    for line in lines:
        line.exchange(committing(1, ""), STORED, 2)
        line.sends(joining(), 3)
    assert state.copy.manager.view("g", EPOCH + lines[1].now).offsets_fallback_reason is None
    for line in lines:
        frame = line.frame(LONG_COMMIT, 2)
        line.client(frame[:1000])
        assert to_upstream(line.client(frame[1000:])) == frame
    return state, dispatcher, lines


def test_evicted_commit_still_gets_its_reply() -> None:
    """An evicted pending commit is dropped from memory, its client gets the reply, and the group's offsets become
    incomplete.
    """
    state, _, (first, _) = parked_commits()
    assert state.held_request_budget.take_evicted() == [first.session.origin.number]
    assert first.session.evict_held_request(first.now, CloseReason.REQUEST_TOO_LONG) == []
    assert first.session.held_bytes < SMALL_FRAME
    assert state.copy.manager.view("g", EPOCH + first.now).offsets_fallback_reason is FallbackReason.UNDECODABLE
    assert len(to_client(first.broker_replies(PARKED_REPLY, 3, correlation=2))) > 0
    assert len(to_client(first.broker_replies(STORED, 2))) > 0
    assert first.session.held_bytes == 0
    assert first.session.should_read_client
    view = state.copy.manager.view("g", EPOCH + first.now)
    assert view.offsets_fallback_reason is FallbackReason.UNDECODABLE, (
        "the copy does not know what the evicted request committed"
    )
    assert state.traffic.decode_failures == {ApiKey.OFFSET_COMMIT: 1}


def test_evicted_commits_resume_reading() -> None:
    """A client that was paused for its long commits is read again after their eviction."""
    line = Line(complete_state())
    sent = pipelined(line, LONG_COMMIT, 2)
    line.client(beat := line.frame(BEAT, 0))
    wanted = [line.session.should_read_client]
    assert to_upstream(line.session.evict_held_request(line.now, CloseReason.REQUEST_TOO_LONG)) == beat
    wanted.append(line.session.should_read_client)
    assert wanted == [False, True]
    for _ in range(sent):
        assert len(to_client(line.broker_replies(STORED, 2, correlation=1))) > 0


def test_judged_commit_is_not_dropped() -> None:
    """The eviction of a pending commit that a policy judges closes its connection."""
    _, _, (first, _) = parked_commits(policies={"offset_metadata_max_bytes": {"limit": 40_000}})
    commands = first.session.evict_held_request(first.now, CloseReason.REQUEST_TOO_LONG)
    assert commands == [Close(CloseReason.REQUEST_TOO_LONG)]


def test_leave_is_not_dropped() -> None:
    """The eviction of a pending leave closes its connection, because the leave counts from the time it was sent."""
    line = Line(complete_state())
    line.sends(LeaveGroupRequest(group_id="g", member_id="m" * 20_000), 0)
    commands = line.session.evict_held_request(line.now, CloseReason.REQUEST_TOO_LONG)
    assert commands == [Close(CloseReason.REQUEST_TOO_LONG)]


def test_partly_answered_request_is_not_dropped() -> None:
    """The eviction of a request whose reply has partly arrived closes its connection."""
    line = Line(complete_state())
    line.sends(HeartbeatRequest(group_id="g" * 20_000, generation_id=1, member_id="m"), 0)
    line.upstream(encode_reply(HeartbeatResponse(error_code=0), 0, 1)[:-1])
    commands = line.session.evict_held_request(line.now, CloseReason.REQUEST_TOO_LONG)
    assert commands == [Close(CloseReason.REQUEST_TOO_LONG)]


def test_waiting_question_is_not_dropped() -> None:
    """The eviction of a question that waits for its turn closes its connection."""
    line = Line(complete_state())
    line.sends(joining(), 3)
    line.sends(DescribeGroupsRequest(groups=("x" * 30_000,)), 0)
    commands = line.session.evict_held_request(line.now, CloseReason.REQUEST_TOO_LONG)
    assert commands == [Close(CloseReason.REQUEST_TOO_LONG)]


def test_connection_end_frees_kept_bytes() -> None:
    """The end of a connection frees its kept bytes."""
    line = Line(complete_state())
    pipelined(line, COMMIT, 2)
    line.session.close(line.now)
    assert line.session.held_bytes == 0


class CopyingDispatcher(PassthroughDispatcher):
    """Has all requests kept until their replies."""

    def classify(self, api_key: int, api_version: int, size: int) -> Any:
        return FrameAction.DEFER


@pytest.mark.parametrize(
    ("limits", "frames"),
    [(SessionLimits(LARGEST_FRAME, 5, 262_144), 5), (SessionLimits(LARGEST_FRAME, 4_096, 16_384), 4)],
)
def test_limits_are_configurable(limits: SessionLimits, frames: int) -> None:
    """A client is not read at `limits.in_flight_requests` requests, or at `limits.kept_bytes` bytes of them."""
    driver, sent = SessionDriver(CopyingDispatcher(), limits=limits), 0
    while driver.session.should_read_client:
        driver.client(request(BEAT.KEY, sent, body=bytes(4_000)))
        sent += 1
    assert sent == frames
    driver.upstream(reply(0))
    assert driver.session.should_read_client


async def test_pause_is_counted_by_its_limit() -> None:
    """Each time that a client is not read any longer, the limit is counted that was reached."""
    limits = SessionLimits(LARGEST_FRAME, 5, MAX_KEPT_BYTES)
    async with running_proxy(session_limits=limits) as shell, await shell.connect() as client:
        await client.send_all(b"".join(request_frame(n, api_key=SILENT_API) for n in range(6)))
        await holds(lambda: shell.counters.read_pauses[ReadPause.IN_FLIGHT_REQUESTS] == 1)
        assert sum(shell.counters.read_pauses.values()) == 1
