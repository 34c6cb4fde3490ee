"""What is looked into, what it teaches, and that whatever is not understood goes on as it came."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

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
from group_sidecar.codecs.registry import APIS, ApiKey
from group_sidecar.coordinator import wire
from group_sidecar.coordinator.events import FOREVER
from group_sidecar.coordinator.views import GroupState, Lacking
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.proxy.broker_copy import LOCAL_APIS, BrokerCopy
from group_sidecar.proxy.commands import Close, ToClient, ToUpstream
from group_sidecar.proxy.desk import BEHIND
from tests.codecs.declarations import brought_down, full_sample, null_sample
from tests.coordinator.all_groups import all_groups
from tests.proxy.playbook import (
    EPOCH,
    Line,
    broker_copy,
    certain_copy,
    framed,
    joining,
    pieces,
    reply,
    request,
    settled,
)

TAKEN = sorted({*wire.READ, *LOCAL_APIS})
SASL = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
CHANGING = sorted(wire.WRITES - {ApiKey.HEARTBEAT, ApiKey.END_TXN})


def cases(keys: Any) -> Iterator[Any]:
    """Each of the APIs in each version."""
    for key in keys:
        for version in APIS[key].versions:
            yield pytest.param(key, version, id=f"{APIS[key].name}-{version}")


def asking(key: int, version: int, sample: Any = full_sample, **fields: Any) -> Any:
    """A request in which every field says something."""
    message: Any = brought_down(sample(APIS[key].request), version)
    return replace(message, **{name: value for name, value in fields.items() if hasattr(message, name)})


def telling(key: int, version: int, sample: Any = full_sample) -> Any:
    """A reply likewise."""
    return brought_down(sample(APIS[key].response), version)


def lacking(copy: BrokerCopy, group: str = "g") -> Lacking | None:
    """What the copy lacks of a group."""
    return copy.manager.view(group, EPOCH + 100).lacking


def assert_marked(copy: BrokerCopy, key: int) -> None:
    """An unread write marks its group. Where its group is not read, and it spares members, only offsets are marked."""
    spares = key in (ApiKey.TXN_OFFSET_COMMIT, ApiKey.DELETE_GROUPS)
    assert lacking(copy) is (Lacking.UNDECODABLE if key in CHANGING and not spares else None)
    assert (copy.manager.offsets_lacking("g", EPOCH + 100) is not None) is (key in CHANGING)


def restored(copy: BrokerCopy, group: str = "g") -> None:
    """Makes the copy of a group certain again, as a description by the broker would."""
    copy.manager.group_metadata_cache[group].be_sure()
    assert lacking(copy, group) is None


# What is understood.


@pytest.mark.parametrize("sample", [full_sample, null_sample])
@pytest.mark.parametrize(("key", "version"), [*cases(TAKEN)])
def test_every_version_is_understood_and_passes_as_it_came(key: int, version: int, sample: Any) -> None:
    answers = {"exclusive": True, "enabled": False, "authorizer": "none"}
    copy = certain_copy(answers=answers, policies={"group_max_size": {"limit": 100}})
    Line(copy).exchange(asking(key, version, sample), telling(key, version, sample), version)
    assert copy.traffic.decode_failures == {}


@pytest.mark.parametrize(("key", "version"), [*cases(TAKEN)])
def test_bytes_behind_what_is_described_pass_too(key: int, version: int) -> None:
    copy = broker_copy()
    line = Line(copy)
    frame = framed(line.frame(asking(key, version), version)[4:] + b"more")
    assert line.client(frame) == [ToUpstream(frame)]
    told = framed(encode_reply(telling(key, version), version, 1)[4:] + b"more")
    assert line.upstream(told) == [ToClient(told)]
    assert copy.traffic.decode_failures == {}


@pytest.mark.parametrize("key", sorted(set(range(-2, 110)) - {*TAKEN, *SASL, *wire.NAMED_ONLY}))
def test_other_requests_are_not_held(key: int) -> None:
    line = Line(broker_copy())
    version = 7 if key == ApiKey.PRODUCE else 1
    frame = request(key, 1, version=version, body=b"\xff\xff\0\1" + bytes(100))
    assert line.client(frame[:40]) == [ToUpstream(frame[:40])]
    assert line.client(frame[40:]) == [ToUpstream(frame[40:])]


def test_a_reply_teaches_before_the_client_gets_it() -> None:
    copy = certain_copy()
    settled(copy, "m1", "m2")
    view = copy.manager.view("g", EPOCH + 100)
    assert {member.client_host for member in view.members} == {"/10.0.0.1"}
    assert {member.client_id for member in view.members} == {"m1", "m2"}
    assert lacking(copy) is None


def test_a_client_without_an_id_has_an_empty_one() -> None:
    copy = certain_copy()
    line = Line(copy, client_id=None)
    line.says(joining(), 3)
    (joined,) = copy.manager.group_metadata_cache["g"].joins.values()
    assert joined.joining.client_id == ""


def test_a_heartbeat_counts_from_when_it_was_sent() -> None:
    copy = certain_copy()
    (line,) = settled(copy, "m1")
    line.now += 20
    line.says(HeartbeatRequest(group_id="g", generation_id=1, member_id="m1"), 3)
    line.now += 20
    line.broker_says(HeartbeatResponse(error_code=0), 3)
    found = [copy.manager.view("g", EPOCH + 120 + seconds).lacking for seconds in (29, 31)]
    assert found == [None, Lacking.IN_DOUBT]


def test_joins_of_one_connection_are_told_apart() -> None:
    copy = certain_copy()
    line = Line(copy)
    line.client(line.frame(joining(), 3), line.frame(joining(), 3))
    assert len(copy.manager.group_metadata_cache["g"].awaiting) == 2


def test_a_commit_by_topic_id_is_followed_where_its_name_is_known() -> None:
    copy = certain_copy()
    commit = asking(ApiKey.OFFSET_COMMIT, 10, group_id="g")
    told = telling(ApiKey.OFFSET_COMMIT, 10)
    answered = tuple(
        replace(topic, partitions=tuple(replace(p, error_code=0) for p in topic.partitions)) for topic in told.topics
    )
    asked = tuple(
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
    copy.learn_names({topic.topic_id: f"t{number}" for number, topic in enumerate(answered)})
    Line(copy).exchange(replace(commit, topics=asked), replace(told, topics=answered), 10)
    assert {topic for topic, _ in copy.manager.view("g", EPOCH + 100).offsets} == {"t0", "t1"}


# What is not understood.


@pytest.mark.parametrize(("key", "version"), [*cases(TAKEN)])
def test_a_request_cut_short_passes_and_is_counted_and_its_group_is_marked(key: int, version: int) -> None:
    copy = certain_copy()
    settled(copy, "m1")
    line = Line(copy)
    frame = framed(line.frame(asking(key, version, group_id="g"), version)[4:-1])
    assert line.client(frame) == [ToUpstream(frame)]
    if key not in BEHIND:
        assert copy.traffic.decode_failures == {key: 1}
        assert_marked(copy, key)
    told = reply(1, b"whatever")
    assert line.upstream(told) == [ToClient(told)]
    assert copy.traffic.decode_failures == {key: 1}
    assert_marked(copy, key)


@pytest.mark.parametrize("key", TAKEN)
def test_a_version_newer_than_described_passes_and_is_counted(key: int) -> None:
    copy = certain_copy()
    settled(copy, "m1")
    newest = APIS[key].versions[-1]
    frame = bytearray(Line(copy).frame(asking(key, newest, group_id="g"), newest))
    frame[6:8] = (newest + 1).to_bytes(2, "big")
    line = Line(copy)
    assert line.client(bytes(frame)) == [ToUpstream(bytes(frame))]
    line.upstream(reply(1))
    assert copy.traffic.decode_failures == {key: 1}
    assert_marked(copy, key)


@pytest.mark.parametrize("version", [-1, -32768, 32767])
@pytest.mark.parametrize("key", TAKEN)
def test_impossible_versions_pass(key: int, version: int) -> None:
    frame = request(key, 1, version=version, body=bytes(20))
    assert Line(broker_copy()).client(frame) == [ToUpstream(frame)]


def test_only_the_group_that_is_named_is_marked_where_one_is() -> None:
    copy = certain_copy()
    settled(copy, "m1", group="g")
    settled(copy, "m2", group="h")
    line = Line(copy)
    line.client(framed(line.frame(asking(ApiKey.OFFSET_COMMIT, 8, group_id="h"), 8)[4:-1]))
    line.upstream(reply(1))
    assert (lacking(copy, "g"), lacking(copy, "h")) == (None, Lacking.UNDECODABLE)
    line.client(framed(bytes((0, ApiKey.OFFSET_COMMIT, 0, 8)) + bytes(4) + b"\xff\xff\0"))
    line.upstream(reply(0))
    assert lacking(copy, "g") is Lacking.UNDECODABLE


def test_a_group_is_marked_again_when_the_request_has_had_its_effect() -> None:
    copy = certain_copy()
    settled(copy, "m1")
    line = Line(copy)
    for how in ("reply", "gone"):
        line.client(framed(line.frame(asking(ApiKey.JOIN_GROUP, 3, group_id="g"), 3)[4:-1]))
        restored(copy)
        if how == "reply":
            line.upstream(reply(1))
        else:
            line.upstream_closed()
        assert lacking(copy) is Lacking.UNDECODABLE
        restored(copy)


@pytest.mark.parametrize(("key", "version"), [*cases(TAKEN)])
def test_a_reply_cut_short_passes_and_is_counted_and_its_group_is_marked(key: int, version: int) -> None:
    copy = certain_copy(answers={"enabled": False, "exclusive": True, "authorizer": "none"})
    settled(copy, "m1")
    settled(copy, "m2", group="h")
    if key == ApiKey.LIST_GROUPS:  # Else nothing would be learnt from it.
        for until in (FOREVER, EPOCH):
            copy.manager.obscure("other", until)
    line = Line(copy)
    question = line.frame(asking(key, version, group_id="g", groups_names=("g",)), version)
    assert line.client(question) == [ToUpstream(question)]
    told = framed(encode_reply(telling(key, version), version, 1)[4:-1])
    assert line.upstream(told) == [ToClient(told)]
    assert copy.traffic.decode_failures == {key: 1}
    marked = Lacking.IN_DOUBT if key == ApiKey.SYNC_GROUP else Lacking.UNDECODABLE
    assert lacking(copy) is (marked if key in CHANGING else None)
    assert lacking(copy, "h") is None


def test_whatever_goes_wrong_in_understanding_the_bytes_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(wire, "replied", fails)
    copy = broker_copy()
    Line(copy).exchange(asking(ApiKey.HEARTBEAT, 4), telling(ApiKey.HEARTBEAT, 4), 4)
    monkeypatch.setattr(wire, "sent", fails)
    line = Line(copy)
    frame = line.frame(asking(ApiKey.JOIN_GROUP, 4), 4)
    assert line.client(frame) == [ToUpstream(frame)]
    assert copy.traffic.decode_failures == {ApiKey.HEARTBEAT: 1, ApiKey.JOIN_GROUP: 1}
    told = capsys.readouterr().out
    assert told.count("a fault of ours") >= 2
    assert "Traceback" in told


def test_what_recurs_does_not_fill_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    line = Line(broker_copy())
    for number in range(20):
        line.client(request(ApiKey.HEARTBEAT, number, version=4, body=b"\xff"))
        line.upstream(reply(number))
    assert capsys.readouterr().out.count("not understood") == 1


# What is too long.


def test_a_request_too_long_to_be_looked_into_streams_and_is_counted() -> None:
    copy = certain_copy(limits={"inspected_frame": 1024})
    settled(copy, "m1")
    line, frame = Line(copy), request(ApiKey.OFFSET_COMMIT, 1, version=8, body=bytes(1100))
    assert [line.client(piece) for piece in pieces(frame, 100)] == [[ToUpstream(piece)] for piece in pieces(frame, 100)]
    assert copy.traffic.decode_failures == {ApiKey.OFFSET_COMMIT: 1}
    assert lacking(copy) is Lacking.UNDECODABLE
    line.upstream(reply(1))
    assert lacking(copy) is Lacking.UNDECODABLE


@pytest.mark.parametrize("how", ["reply", "gone"])
@pytest.mark.parametrize("key", [ApiKey.TXN_OFFSET_COMMIT, ApiKey.JOIN_GROUP, ApiKey.SHARE_GROUP_HEARTBEAT])
def test_no_unread_write_is_thought_to_be_under_way_for_ever(how: str, key: ApiKey) -> None:
    copy = certain_copy(limits={"inspected_frame": 1024})
    settled(copy, "m1")
    unread = copy.manager.unread
    line = Line(copy)
    for body in (bytes(1100), b"\xff\xff\xff", b"\0\x01g", b"\0\0\0"):
        line.client(request(key, 1, version=1, body=body))
        if how == "reply":
            line.upstream(reply(1))
    line.upstream_closed()
    assert unread.unanswered == 0


def test_a_question_too_long_to_be_looked_into_marks_nothing() -> None:
    copy = certain_copy(limits={"inspected_frame": 1024})
    settled(copy, "m1")
    frame = request(ApiKey.OFFSET_FETCH, 1, version=8, body=bytes(1100))
    assert Line(copy).client(frame) == [ToUpstream(frame)]
    assert copy.traffic.decode_failures == {ApiKey.OFFSET_FETCH: 1}
    assert lacking(copy) is None


def test_the_longest_request_is_looked_into() -> None:
    copy = broker_copy(limits={"inspected_frame": 1024})
    frame = request(ApiKey.OFFSET_COMMIT, 1, version=8, body=bytes(1024 - 11))
    assert len(frame) == 1024 + 4
    line = Line(copy)
    assert line.client(frame[:-1]) == []
    assert line.session.held_bytes == len(frame) - 1


def test_a_reply_too_long_to_be_looked_into_streams_and_is_counted() -> None:
    copy = certain_copy(limits={"inspected_frame": 1024})
    settled(copy, "m1")
    line = Line(copy)
    line.says(asking(ApiKey.OFFSET_COMMIT, 8, group_id="g"), 8)
    told = reply(1, bytes(1100))
    assert [line.upstream(piece) for piece in pieces(told, 100)] == [[ToClient(piece)] for piece in pieces(told, 100)]
    assert copy.traffic.decode_failures == {ApiKey.OFFSET_COMMIT: 1}
    assert lacking(copy) is Lacking.UNDECODABLE


def test_the_longest_reply_is_looked_into() -> None:
    copy = broker_copy(limits={"inspected_frame": 1024})
    line = Line(copy)
    line.says(asking(ApiKey.OFFSET_COMMIT, 8), 8)
    told = reply(1, bytes(1020))
    assert line.upstream(told[:-1]) == []
    assert line.upstream(told[-1:]) == [ToClient(told)]


# What is not known to have happened.


@pytest.mark.parametrize("key", sorted(wire.WRITES))
def test_a_write_whose_reply_never_comes_leaves_its_group_in_doubt(key: int) -> None:
    copy = certain_copy()
    (member,) = settled(copy, "m1")
    member.exchange(committing(), committed(), 7)
    settled(copy, "m2", group="h")
    line, version = Line(copy), APIS[key].versions[-1]
    line.says(asking(key, version, group_id="g", groups_names=("g",)), version)
    line.upstream_closed()
    view = copy.manager.view("g", EPOCH + 100)
    assert ({view.lacking, view.offsets_lacking} != {None}) is (key in CHANGING)
    assert lacking(copy, "h") is None


def test_a_join_that_is_given_up_holds_no_place() -> None:
    copy = certain_copy()
    line = Line(copy)
    line.says(joining(), 3)
    assert copy.manager.group_metadata_cache["g"].awaiting
    line.session.close(line.now)
    assert not copy.manager.group_metadata_cache["g"].awaiting


@pytest.mark.parametrize("way", ["reply", "gone"])
def test_the_deletion_of_a_topic_disturbs_offsets_once_it_has_happened(way: str) -> None:
    copy = certain_copy()
    (member,) = settled(copy, "m1")
    member.exchange(committing(), committed(), 7)
    line = Line(copy)
    line.client(request(ApiKey.DELETE_TOPICS, 1, version=6, body=b"whatever"))
    assert copy.manager.view("g", EPOCH + 100).offsets_lacking is None
    if way == "reply":
        assert line.upstream(reply(1, b"any")) == [ToClient(reply(1, b"any"))]
    else:
        line.session.close(line.now)
    assert copy.manager.view("g", EPOCH + 100).offsets_lacking is Lacking.STALE


def committing() -> Any:
    return replace(asking(ApiKey.OFFSET_COMMIT, 7), group_id="g", generation_id_or_member_epoch=1, member_id="m1")


def committed() -> Any:
    told = telling(ApiKey.OFFSET_COMMIT, 7)
    topics = tuple(
        replace(
            template,
            name=topic.name,
            partitions=tuple(
                replace(template.partitions[0], partition_index=p.partition_index, error_code=0)
                for p in topic.partitions
            ),
        )
        for template, topic in zip(told.topics, committing().topics, strict=True)
    )
    return replace(told, topics=topics)


def test_the_end_of_a_connection_with_nothing_owed_changes_nothing() -> None:
    copy = certain_copy()
    (line,) = settled(copy, "m1")
    line.exchange(HeartbeatRequest(group_id="g", generation_id=1, member_id="m1"), HeartbeatResponse(error_code=0), 3)
    line.upstream_closed()
    assert lacking(copy) is None


def test_a_deleted_group_is_gone() -> None:
    copy = certain_copy()
    (line,) = settled(copy, "m1")
    deleted = DeleteGroupsResponse(throttle_time_ms=0, results=(DeletableGroupResult(group_id="g", error_code=0),))
    line.exchange(DeleteGroupsRequest(groups_names=("g",)), deleted, 2)
    assert all_groups(copy.manager, EPOCH + 100) == []


@pytest.mark.parametrize("api_key", sorted(wire.NAMED_ONLY))
def test_of_a_write_that_is_not_described_the_group_is_doubted_until_the_log_has_told(api_key: int) -> None:
    copy = broker_copy(answers={"authorizer": "none"})
    line = Line(copy)
    follower, at = copy.manager.log, EPOCH + line.now
    follower.count_partitions(1, at)
    follower.begin_load(0, 0, 0, at)
    follower.caught_up(0, at, at)
    frame = b"\0\0\0\x16" + api_key.to_bytes(2) + b"\0\1\0\0\0\7\0\1c\0" + b"\x06group" + b"rest of"[:3]
    frame = (len(frame) - 4).to_bytes(4) + frame[4:]
    assert line.client(frame) == [ToUpstream(frame)]
    assert copy.manager.view("group", at).offsets_lacking is not None
    assert copy.manager.view("another", at).offsets_lacking is None
    assert copy.traffic.decode_failures == {}


# What is understood behind.


def test_what_went_on_counts_before_what_came_after_it_whatever_that_is() -> None:
    copy = certain_copy()
    settled(copy, "m1")
    line = Line(copy)
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
    view = copy.manager.view("g", EPOCH + line.now)
    assert {key: each.offset for key, each in view.offsets.items()} == {("t", 0): 7}
    assert view.offsets_lacking is Lacking.STALE


def test_a_fault_in_understanding_reaches_no_other_connection(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    copy = certain_copy()
    (member,) = settled(copy, "m1")
    monkeypatch.setattr(wire, "replied", fails)
    monkeypatch.setattr(wire, "abandoned", fails)
    member.exchange(asking(ApiKey.HEARTBEAT, 4), telling(ApiKey.HEARTBEAT, 4), 4)
    assert "a fault of ours" in capsys.readouterr().out


def test_heartbeats_that_differ_are_told_apart() -> None:
    copy = certain_copy()
    first, second = settled(copy, "m1", "m2")
    for at in (110.0, 128.0):
        for line, member in ((first, "m1"), (first, "m2"), (first, "m1")):
            line.now = at
            beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
            line.exchange(beat, HeartbeatResponse(error_code=0), 4)
    assert {m.member_id for m in copy.manager.view("g", EPOCH + 157.0).members} == {"m1", "m2"}
    assert copy.manager.refresh("g", EPOCH + 157.0) == []
    del second


def test_a_heartbeat_like_the_last_counts_from_when_it_was_sent() -> None:
    copy = certain_copy()
    (line,) = settled(copy, "m1")
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m1")
    for at in (110.0, 128.0, 146.0):
        line.now = at
        line.exchange(beat, HeartbeatResponse(error_code=0), 4)
    assert copy.manager.refresh("g", EPOCH + 175.0) == []
    assert copy.manager.refresh("g", EPOCH + 177.0)


def test_a_heartbeat_like_the_last_may_have_another_reply() -> None:
    copy = certain_copy()
    line, _ = settled(copy, "m1", "m2")
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m1")
    for error in (0, 0, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS):
        line.now += 1
        line.exchange(beat, HeartbeatResponse(error_code=error), 4)
        preparing = copy.manager.view("g", EPOCH + line.now).state is GroupState.PREPARING_REBALANCE
        assert preparing is bool(error)
    line.now += 1
    line.exchange(beat, HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), 4)
    assert {m.member_id for m in copy.manager.view("g", EPOCH + line.now).members} == {"m2"}


@pytest.mark.parametrize("key", [ApiKey.DESCRIBE_GROUPS, ApiKey.HEARTBEAT])
def test_what_kafka_0_9_would_pass_over_ends_the_connection(key: ApiKey) -> None:
    copy = certain_copy()
    copy.learn_versions(KAFKA_0_9)
    assert Line(copy).client(request(key, 1, version=7)) == [Close(CloseReason.MALFORMED_REQUEST)]
    frame = request(ApiKey.HEARTBEAT, 1)
    assert Line(copy).client(frame) == [ToUpstream(frame)]
