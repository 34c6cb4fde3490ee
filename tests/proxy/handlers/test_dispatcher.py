"""Tests which messages are decoded and taught to the copy, and that undecodable messages pass unchanged."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.headers import encode_reply
from group_sidecar.codecs.messages.api_versions import KAFKA_0_9
from group_sidecar.codecs.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from group_sidecar.coordinator.model.events import FOREVER
from group_sidecar.coordinator.model.views import FallbackReason, GroupState
from group_sidecar.coordinator.wire import exchange_events
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.broker.answer_settings import LOCAL_APIS
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.commands import Close, ToClient, ToUpstream
from group_sidecar.proxy.handlers.api_table import DEFERRED_APIS
from tests.codecs.declarations import full_sample, limited_to, null_sample
from tests.coordinator.all_groups import all_groups
from tests.proxy.dataplane.playbook import (
    EPOCH,
    Line,
    broker_state,
    complete_state,
    framed,
    joining,
    pieces,
    reply,
    request,
    stable_group,
)

TAKEN = sorted({*exchange_events.GROUP_API_KEYS, *LOCAL_APIS})
SASL = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
TRACKED_WRITES = sorted(exchange_events.GROUP_WRITE_KEYS - {ApiKey.HEARTBEAT, ApiKey.END_TXN})


def cases(keys: Any) -> Iterator[Any]:
    """Yields a test parameter for each of these APIs in each version."""
    for key in keys:
        for version in APIS[key].versions:
            yield pytest.param(key, version, id=f"{APIS[key].name}-{version}")


def asking(key: int, version: int, sample: Any = full_sample, **fields: Any) -> Any:
    """Returns a request with a value in every field."""
    message: Any = limited_to(sample(APIS[key].request), version)
    return replace(message, **{name: value for name, value in fields.items() if hasattr(message, name)})


def telling(key: int, version: int, sample: Any = full_sample) -> Any:
    """Returns a reply with a value in every field."""
    return limited_to(sample(APIS[key].response), version)


def lacking(state: BrokerState, group: str = "g") -> FallbackReason | None:
    """Returns the fallback reason of a group."""
    return state.copy.manager.view(group, EPOCH + 100).fallback_reason


def assert_marked(state: BrokerState, key: int) -> None:
    """Asserts that an unread write has marked its group, or only offsets if the API cannot change members."""
    spares = key in (ApiKey.TXN_OFFSET_COMMIT, ApiKey.DELETE_GROUPS)
    assert lacking(state) is (FallbackReason.UNDECODABLE if key in TRACKED_WRITES and not spares else None)
    assert (state.copy.manager.offsets_fallback_reason("g", EPOCH + 100) is not None) is (key in TRACKED_WRITES)


def restored(state: BrokerState, group: str = "g") -> None:
    """Makes the copy of a group complete again, as a description by the broker would."""
    state.copy.manager.group_metadata_cache[group].mark_complete()
    assert lacking(state, group) is None


# Decodable messages.


@pytest.mark.parametrize("sample", [full_sample, null_sample])
@pytest.mark.parametrize(("key", "version"), [*cases(TAKEN)])
def test_every_version_is_decoded_and_forwarded(key: int, version: int, sample: Any) -> None:
    """Each decoded API is decoded without a failure in every version, and its messages pass unchanged."""
    answers = {"exclusive": True, "enabled": False, "authorizer": "none"}
    state = complete_state(answers=answers, policies={"group_max_size": {"limit": 100}})
    Line(state).exchange(asking(key, version, sample), telling(key, version, sample), version)
    assert state.traffic.decode_failures == {}


@pytest.mark.parametrize(("key", "version"), [*cases(TAKEN)])
def test_trailing_bytes_pass(key: int, version: int) -> None:
    """Bytes after the declared fields of a request or a reply pass, and decoding does not fail."""
    state = broker_state()
    line = Line(state)
    frame = framed(line.frame(asking(key, version), version)[4:] + b"more")
    assert line.client(frame) == [ToUpstream(frame)]
    reply_frame = framed(encode_reply(telling(key, version), version, 1)[4:] + b"more")
    assert line.upstream(reply_frame) == [ToClient(reply_frame)]
    assert state.traffic.decode_failures == {}


@pytest.mark.parametrize("key", sorted(set(range(-2, 110)) - {*TAKEN, *SASL, *exchange_events.GROUP_ONLY_KEYS}))
def test_uninspected_requests_are_not_held(key: int) -> None:
    """Requests of APIs that the sidecar does not read are forwarded without being held."""
    line = Line(broker_state())
    version = 7 if key == ApiKey.PRODUCE else 1
    frame = request(key, 1, version=version, body=b"\xff\xff\0\1" + bytes(100))
    assert line.client(frame[:40]) == [ToUpstream(frame[:40])]
    assert line.client(frame[40:]) == [ToUpstream(frame[40:])]


def test_replies_fill_the_copy() -> None:
    """The replies to joins and syncs put the members with their hosts and client ids into the copy."""
    state = complete_state()
    stable_group(state, "m1", "m2")
    view = state.copy.manager.view("g", EPOCH + 100)
    assert {member.client_host for member in view.members} == {"/10.0.0.1"}
    assert {member.client_id for member in view.members} == {"m1", "m2"}
    assert lacking(state) is None


def test_null_client_id_becomes_empty() -> None:
    """The copy stores a null client id as an empty string."""
    state = complete_state()
    line = Line(state, client_id=None)
    line.sends(joining(), 3)
    (joined,) = state.copy.manager.group_metadata_cache["g"].joins.values()
    assert joined.joining.client_id == ""


def test_heartbeat_counts_from_send_time() -> None:
    """A heartbeat extends the member's session from the time it was sent, not from the time of its reply."""
    state = complete_state()
    (line,) = stable_group(state, "m1")
    line.now += 20
    line.sends(HeartbeatRequest(group_id="g", generation_id=1, member_id="m1"), 3)
    line.now += 20
    line.broker_replies(HeartbeatResponse(error_code=0), 3)
    found = [state.copy.manager.view("g", EPOCH + 120 + seconds).fallback_reason for seconds in (29, 31)]
    assert found == [None, FallbackReason.IN_DOUBT]


def test_joins_of_one_connection_are_distinct() -> None:
    """Two joins in flight on one connection count as two awaited joins."""
    state = complete_state()
    line = Line(state)
    line.client(line.frame(joining(), 3), line.frame(joining(), 3))
    assert len(state.copy.manager.group_metadata_cache["g"].parked_ids) == 2


def test_commit_by_topic_id_is_applied() -> None:
    """A commit by topic id is applied under the topic names that the copy knows."""
    state = complete_state()
    commit = asking(ApiKey.OFFSET_COMMIT, 10, group_id="g")
    response = telling(ApiKey.OFFSET_COMMIT, 10)
    answered = tuple(
        replace(topic, partitions=tuple(replace(p, error_code=0) for p in topic.partitions))
        for topic in response.topics
    )
    topics = tuple(
        replace(
            topic,
            topic_id=answer.topic_id,
            partitions=tuple(
                replace(p, partition_index=q.partition_index)
                for p, q in zip(topic.partitions, answer.partitions, strict=True)
            ),
        )
        for topic, answer in zip(commit.topics, answered, strict=True)
    )
    state.topic_names.learn({topic.topic_id: f"t{number}" for number, topic in enumerate(answered)})
    Line(state).exchange(replace(commit, topics=topics), replace(response, topics=answered), 10)
    assert {topic for topic, _ in state.copy.manager.view("g", EPOCH + 100).offsets} == {"t0", "t1"}


# Undecodable messages.


@pytest.mark.parametrize(("key", "version"), [*cases(TAKEN)])
def test_truncated_request_marks_group(key: int, version: int) -> None:
    """A truncated request passes unchanged and counts as a decode failure, and a write marks its group."""
    state = complete_state()
    stable_group(state, "m1")
    line = Line(state)
    frame = framed(line.frame(asking(key, version, group_id="g"), version)[4:-1])
    assert line.client(frame) == [ToUpstream(frame)]
    if key not in DEFERRED_APIS:
        assert state.traffic.decode_failures == {key: 1}
        assert_marked(state, key)
    reply_frame = reply(1, b"whatever")
    assert line.upstream(reply_frame) == [ToClient(reply_frame)]
    assert state.traffic.decode_failures == {key: 1}
    assert_marked(state, key)


@pytest.mark.parametrize("key", TAKEN)
def test_newer_version_marks_group(key: int) -> None:
    """A request in a version above the codecs' newest passes and counts as a decode failure, and a write marks its
    group.
    """
    state = complete_state()
    stable_group(state, "m1")
    newest = APIS[key].versions[-1]
    frame = bytearray(Line(state).frame(asking(key, newest, group_id="g"), newest))
    frame[6:8] = (newest + 1).to_bytes(2, "big")
    line = Line(state)
    assert line.client(bytes(frame)) == [ToUpstream(bytes(frame))]
    line.upstream(reply(1))
    assert state.traffic.decode_failures == {key: 1}
    assert_marked(state, key)


@pytest.mark.parametrize("version", [-1, -32768, 32767])
@pytest.mark.parametrize("key", TAKEN)
def test_impossible_versions_pass(key: int, version: int) -> None:
    frame = request(key, 1, version=version, body=bytes(20))
    assert Line(broker_state()).client(frame) == [ToUpstream(frame)]


def test_undecodable_write_marks_named_group() -> None:
    """An undecodable write marks only the group that the request names, or all groups if no group is readable."""
    state = complete_state()
    stable_group(state, "m1", group="g")
    stable_group(state, "m2", group="h")
    line = Line(state)
    line.client(framed(line.frame(asking(ApiKey.OFFSET_COMMIT, 8, group_id="h"), 8)[4:-1]))
    line.upstream(reply(1))
    assert (lacking(state, "g"), lacking(state, "h")) == (None, FallbackReason.UNDECODABLE)
    line.client(framed(bytes((0, ApiKey.OFFSET_COMMIT, 0, 8)) + bytes(4) + b"\xff\xff\0"))
    line.upstream(reply(0))
    assert lacking(state, "g") is FallbackReason.UNDECODABLE


def test_group_is_marked_again_after_effect() -> None:
    """An undecodable write marks its group again when its reply arrives or its connection ends."""
    state = complete_state()
    stable_group(state, "m1")
    line = Line(state)
    for how in ("reply", "gone"):
        line.client(framed(line.frame(asking(ApiKey.JOIN_GROUP, 3, group_id="g"), 3)[4:-1]))
        restored(state)
        if how == "reply":
            line.upstream(reply(1))
        else:
            line.upstream_closed()
        assert lacking(state) is FallbackReason.UNDECODABLE
        restored(state)


@pytest.mark.parametrize(("key", "version"), [*cases(TAKEN)])
def test_truncated_reply_marks_group(key: int, version: int) -> None:
    """A truncated reply passes unchanged and counts as a decode failure, and the reply to a write marks the group."""
    state = complete_state(answers={"enabled": False, "exclusive": True, "authorizer": "none"})
    stable_group(state, "m1")
    stable_group(state, "m2", group="h")
    if key == ApiKey.LIST_GROUPS:  # Otherwise the copy would learn nothing from the reply.
        for until in (FOREVER, EPOCH):
            state.copy.manager.note_unread_write("other", until)
    line = Line(state)
    question = line.frame(asking(key, version, group_id="g", groups_names=("g",)), version)
    assert line.client(question) == [ToUpstream(question)]
    reply_frame = framed(encode_reply(telling(key, version), version, 1)[4:-1])
    assert line.upstream(reply_frame) == [ToClient(reply_frame)]
    assert state.traffic.decode_failures == {key: 1}
    marked = FallbackReason.IN_DOUBT if key == ApiKey.SYNC_GROUP else FallbackReason.UNDECODABLE
    assert lacking(state) is (marked if key in TRACKED_WRITES else None)
    assert lacking(state, "h") is None


def test_decoding_fault_does_not_stop_bytes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exception while decoding is logged and counted, and the bytes pass unchanged."""

    def fails(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(exchange_events, "reply_events", fails)
    state = broker_state()
    Line(state).exchange(asking(ApiKey.HEARTBEAT, 4), telling(ApiKey.HEARTBEAT, 4), 4)
    monkeypatch.setattr(exchange_events, "request_events", fails)
    line = Line(state)
    frame = line.frame(asking(ApiKey.JOIN_GROUP, 4), 4)
    assert line.client(frame) == [ToUpstream(frame)]
    assert state.traffic.decode_failures == {ApiKey.HEARTBEAT: 1, ApiKey.JOIN_GROUP: 1}
    output = capsys.readouterr().out
    assert output.count("a fault of ours") >= 2
    assert "Traceback" in output


def test_repeated_decode_failure_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A recurring decode failure is written to the log once."""
    line = Line(broker_state())
    for number in range(20):
        line.client(request(ApiKey.HEARTBEAT, number, version=4, body=b"\xff"))
        line.upstream(reply(number))
    assert capsys.readouterr().out.count("not understood") == 1


# Messages that are too long.


def test_overlong_request_marks_group() -> None:
    """A write longer than limits.inspected_frame streams through, counts as a decode failure, and marks its group."""
    state = complete_state(limits={"inspected_frame": 1024})
    stable_group(state, "m1")
    line, frame = Line(state), request(ApiKey.OFFSET_COMMIT, 1, version=8, body=bytes(1100))
    assert [line.client(piece) for piece in pieces(frame, 100)] == [[ToUpstream(piece)] for piece in pieces(frame, 100)]
    assert state.traffic.decode_failures == {ApiKey.OFFSET_COMMIT: 1}
    assert lacking(state) is FallbackReason.UNDECODABLE
    line.upstream(reply(1))
    assert lacking(state) is FallbackReason.UNDECODABLE


@pytest.mark.parametrize("how", ["reply", "gone"])
@pytest.mark.parametrize(
    "key", [ApiKey.TXN_OFFSET_COMMIT, ApiKey.JOIN_GROUP, ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.ALTER_SHARE_GROUP_OFFSETS]
)
def test_unread_writes_do_not_stay_unanswered(how: str, key: ApiKey) -> None:
    """Unread writes stop counting as unanswered once their replies arrive or their connection ends."""
    state = complete_state(limits={"inspected_frame": 1024})
    stable_group(state, "m1")
    unread = state.copy.manager.unread_writes
    line = Line(state)
    for body in (bytes(1100), b"\xff\xff\xff", b"\0\x01g", b"\0\0\0"):
        line.client(request(key, 1, version=1, body=body))
        if how == "reply":
            line.upstream(reply(1))
    line.upstream_closed()
    assert unread.unanswered == 0


def test_overlong_question_marks_nothing() -> None:
    """A question longer than limits.inspected_frame passes, counts as a decode failure, and marks no group."""
    state = complete_state(limits={"inspected_frame": 1024})
    stable_group(state, "m1")
    frame = request(ApiKey.OFFSET_FETCH, 1, version=8, body=bytes(1100))
    assert Line(state).client(frame) == [ToUpstream(frame)]
    assert state.traffic.decode_failures == {ApiKey.OFFSET_FETCH: 1}
    assert lacking(state) is None


def test_longest_inspected_request_is_held() -> None:
    """A request of exactly limits.inspected_frame bytes is held for decoding."""
    state = broker_state(limits={"inspected_frame": 1024})
    frame = request(ApiKey.OFFSET_COMMIT, 1, version=8, body=bytes(1024 - 11))
    assert len(frame) == 1024 + 4
    line = Line(state)
    assert line.client(frame[:-1]) == []
    assert line.session.held_bytes == len(frame) - 1


def test_overlong_reply_marks_group() -> None:
    """A commit's reply longer than limits.inspected_frame streams through, counts as a decode failure, and marks the
    group.
    """
    state = complete_state(limits={"inspected_frame": 1024})
    stable_group(state, "m1")
    line = Line(state)
    line.sends(asking(ApiKey.OFFSET_COMMIT, 8, group_id="g"), 8)
    reply_frame = reply(1, bytes(1100))
    assert [line.upstream(piece) for piece in pieces(reply_frame, 100)] == [
        [ToClient(piece)] for piece in pieces(reply_frame, 100)
    ]
    assert state.traffic.decode_failures == {ApiKey.OFFSET_COMMIT: 1}
    assert lacking(state) is FallbackReason.UNDECODABLE


def test_longest_inspected_reply_is_held() -> None:
    """A reply of exactly limits.inspected_frame bytes is held for decoding."""
    state = broker_state(limits={"inspected_frame": 1024})
    line = Line(state)
    line.sends(asking(ApiKey.OFFSET_COMMIT, 8), 8)
    reply_frame = reply(1, bytes(1020))
    assert line.upstream(reply_frame[:-1]) == []
    assert line.upstream(reply_frame[-1:]) == [ToClient(reply_frame)]


# Requests with an unknown effect.


@pytest.mark.parametrize("key", sorted(exchange_events.GROUP_WRITE_KEYS))
def test_lost_write_leaves_group_in_doubt(key: int) -> None:
    """A tracked write whose reply never comes leaves its group or the group's offsets in doubt, and no other group."""
    state = complete_state()
    (member,) = stable_group(state, "m1")
    member.exchange(committing(), committed(), 7)
    stable_group(state, "m2", group="h")
    line, version = Line(state), APIS[key].versions[-1]
    line.sends(asking(key, version, group_id="g", groups_names=("g",)), version)
    line.upstream_closed()
    view = state.copy.manager.view("g", EPOCH + 100)
    assert ({view.fallback_reason, view.offsets_fallback_reason} != {None}) is (key in TRACKED_WRITES)
    assert lacking(state, "h") is None


def test_abandoned_join_is_not_awaited() -> None:
    """A join whose connection closes no longer counts as awaited."""
    state = complete_state()
    line = Line(state)
    line.sends(joining(), 3)
    assert state.copy.manager.group_metadata_cache["g"].parked_ids
    line.session.close(line.now)
    assert not state.copy.manager.group_metadata_cache["g"].parked_ids


@pytest.mark.parametrize("way", ["reply", "gone"])
def test_topic_deletion_makes_offsets_stale(way: str) -> None:
    """A topic deletion makes offsets stale when its reply arrives or its connection closes, and not before."""
    state = complete_state()
    (member,) = stable_group(state, "m1")
    member.exchange(committing(), committed(), 7)
    line = Line(state)
    line.client(request(ApiKey.DELETE_TOPICS, 1, version=6, body=b"whatever"))
    assert state.copy.manager.view("g", EPOCH + 100).offsets_fallback_reason is None
    if way == "reply":
        assert line.upstream(reply(1, b"any")) == [ToClient(reply(1, b"any"))]
    else:
        line.session.close(line.now)
    assert state.copy.manager.view("g", EPOCH + 100).offsets_fallback_reason is FallbackReason.STALE


def committing() -> Any:
    return replace(asking(ApiKey.OFFSET_COMMIT, 7), group_id="g", generation_id_or_member_epoch=1, member_id="m1")


def committed() -> Any:
    response = telling(ApiKey.OFFSET_COMMIT, 7)
    topics = tuple(
        replace(
            template,
            name=topic.name,
            partitions=tuple(
                replace(template.partitions[0], partition_index=p.partition_index, error_code=0)
                for p in topic.partitions
            ),
        )
        for template, topic in zip(response.topics, committing().topics, strict=True)
    )
    return replace(response, topics=topics)


def test_connection_end_without_pending_replies() -> None:
    """A connection that ends without a pending reply leaves the copy certain."""
    state = complete_state()
    (line,) = stable_group(state, "m1")
    line.exchange(HeartbeatRequest(group_id="g", generation_id=1, member_id="m1"), HeartbeatResponse(error_code=0), 3)
    line.upstream_closed()
    assert lacking(state) is None


def test_a_deleted_group_is_gone() -> None:
    state = complete_state()
    (line,) = stable_group(state, "m1")
    deleted = DeleteGroupsResponse(throttle_time_ms=0, results=(DeletableGroupResult(group_id="g", error_code=0),))
    line.exchange(DeleteGroupsRequest(groups_names=("g",)), deleted, 2)
    assert all_groups(state.copy.manager, EPOCH + 100) == []


@pytest.mark.parametrize("api_key", sorted(exchange_events.GROUP_ONLY_KEYS))
def test_named_write_marks_offsets_of_its_group(api_key: int) -> None:
    """If only the group id of a write is decoded, the write makes that group's offsets incomplete, and no other's."""
    state = broker_state(answers={"authorizer": "none"})
    line = Line(state)
    follower, at = state.copy.manager.log, EPOCH + line.now
    follower.count_partitions(1, at)
    follower.begin_load(0, 0, 0, at)
    list(follower.end_reached(0, at, at))
    frame = b"\0\0\0\x16" + api_key.to_bytes(2) + b"\0\1\0\0\0\7\0\1c\0" + b"\x06group" + b"rest of"[:3]
    frame = (len(frame) - 4).to_bytes(4) + frame[4:]
    assert line.client(frame) == [ToUpstream(frame)]
    assert state.copy.manager.view("group", at).offsets_fallback_reason is not None
    assert state.copy.manager.view("another", at).offsets_fallback_reason is None
    assert state.traffic.decode_failures == {}


# Deferred replies.


def test_deferred_commit_precedes_topic_deletion() -> None:
    """A deferred commit is applied before a later topic deletion makes the offsets stale."""
    state = complete_state()
    stable_group(state, "m1")
    line = Line(state)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    commit = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=1,
        member_id="m1",
        topics=(OffsetCommitRequestTopic(name="t", partitions=(partition,)),),
    )
    taken = OffsetCommitResponsePartition(partition_index=0, error_code=0)
    stored = OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="t", partitions=(taken,)),))
    line.client(line.frame(commit, 7), request(ApiKey.DELETE_TOPICS, 2, version=1, body=bytes(8)))
    line.upstream(encode_reply(stored, 7, 1), reply(2))
    view = state.copy.manager.view("g", EPOCH + line.now)
    assert {key: each.offset for key, each in view.offsets.items()} == {("t", 0): 7}
    assert view.offsets_fallback_reason is FallbackReason.STALE


def test_deferred_fault_is_only_logged(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An exception in deferred decoding is logged, and the client's exchange still completes."""

    def fails(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    state = complete_state()
    (member,) = stable_group(state, "m1")
    monkeypatch.setattr(exchange_events, "reply_events", fails)
    monkeypatch.setattr(exchange_events, "lost_reply_events", fails)
    member.exchange(asking(ApiKey.HEARTBEAT, 4), telling(ApiKey.HEARTBEAT, 4), 4)
    assert "a fault of ours" in capsys.readouterr().out


def test_different_heartbeats_are_distinct() -> None:
    """Heartbeats of two members on one connection extend both sessions."""
    state = complete_state()
    first, second = stable_group(state, "m1", "m2")
    for at in (110.0, 128.0):
        for line, member in ((first, "m1"), (first, "m2"), (first, "m1")):
            line.now = at
            beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
            line.exchange(beat, HeartbeatResponse(error_code=0), 4)
    assert {m.member_id for m in state.copy.manager.view("g", EPOCH + 157.0).members} == {"m1", "m2"}
    assert state.copy.manager.refresh("g", EPOCH + 157.0) == []
    del second


def test_repeated_heartbeat_extends_session() -> None:
    """Each of several equal heartbeats extends the session from the time it was sent."""
    state = complete_state()
    (line,) = stable_group(state, "m1")
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m1")
    for at in (110.0, 128.0, 146.0):
        line.now = at
        line.exchange(beat, HeartbeatResponse(error_code=0), 4)
    assert state.copy.manager.refresh("g", EPOCH + 175.0) == []
    assert state.copy.manager.refresh("g", EPOCH + 177.0)


def test_repeated_heartbeat_with_other_reply() -> None:
    """The error code of a heartbeat's reply is applied even if the heartbeat equals the previous one."""
    state = complete_state()
    line, _ = stable_group(state, "m1", "m2")
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m1")
    for error in (0, 0, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS):
        line.now += 1
        line.exchange(beat, HeartbeatResponse(error_code=error), 4)
        preparing = state.copy.manager.view("g", EPOCH + line.now).state is GroupState.PREPARING_REBALANCE
        assert preparing is bool(error)
    line.now += 1
    line.exchange(beat, HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), 4)
    assert {m.member_id for m in state.copy.manager.view("g", EPOCH + line.now).members} == {"m2"}


@pytest.mark.parametrize("key", [ApiKey.DESCRIBE_GROUPS, ApiKey.HEARTBEAT])
def test_kafka_0_9_unknown_version_closes(key: ApiKey) -> None:
    """The sidecar closes the connection on a request in a version that Kafka 0.9 would ignore."""
    state = complete_state()
    state.versions.learn(KAFKA_0_9)
    assert Line(state).client(request(key, 1, version=7)) == [Close(CloseReason.MALFORMED_REQUEST)]
    frame = request(ApiKey.HEARTBEAT, 1)
    assert Line(state).client(frame) == [ToUpstream(frame)]
