"""Questions about groups: which of them the sidecar answers, when, and with which contents."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.api_versions import KAFKA_0_9
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.heartbeat import HeartbeatResponse
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from group_sidecar.codecs.schema import Struct, decode, encode
from group_sidecar.coordinator.answers import group_replies
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.existing_topic_ids import FRESH_SECONDS, ROUND_SECONDS
from group_sidecar.proxy.dataplane.commands import ToClient, ToUpstream
from group_sidecar.proxy.handlers.injected_requests import ACCESS_CORRELATION
from group_sidecar.proxy.handlers.reply_builder import ReplyBuilder
from tests.codecs.declarations import full_sample, limited_to
from tests.proxy.dataplane.playbook import (
    EPOCH,
    Line,
    broker_state,
    complete_state,
    confirm,
    joining,
    reply,
    request,
    stable_group,
    to_client,
    to_upstream,
)

LIST, DESCRIBE, FETCH = ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH
TOPIC_ID = UUID(int=77)
DESCRIBING = DescribeGroupsRequest(groups=("g",))
LISTING = ListGroupsRequest()


def fetching(version: int, *, topics: bool = True) -> OffsetFetchRequest:
    """Returns a request for the offsets of topic t, or for all offsets."""
    requested = (
        OffsetFetchRequestTopic(name="t" if version < 10 else "", topic_id=TOPIC_ID, partition_indexes=(0, 1)),
    )
    if version < 8:
        return OffsetFetchRequest(group_id="g", topics=requested if topics else None)
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=requested if topics else None),))


QUESTIONS: list[tuple[Struct, int]] = [
    *((LISTING, version) for version in ListGroupsRequest.VERSIONS),
    *((DESCRIBING, version) for version in DescribeGroupsRequest.VERSIONS),
    *((fetching(version), version) for version in OffsetFetchRequest.VERSIONS),
]
ANSWERABLE = [(question, version) for question, version in QUESTIONS if (question.KEY, version) != (FETCH, 0)]


def committing(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m")
    topics = (OffsetCommitRequestTopic(name="t", partitions=(partition,)),)
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=1, member_id="m1", topics=topics)


COMMITTED = OffsetCommitResponse(
    topics=(
        OffsetCommitResponseTopic(
            name="t", partitions=(OffsetCommitResponsePartition(partition_index=0, error_code=0),)
        ),
    )
)


def known(**settings: Any) -> tuple[BrokerState, Line]:
    """Returns a complete copy with a Stable group g of one member and offset 42 of t-0, and the member's connection."""
    state = complete_state(**settings)
    confirm(state, {TOPIC_ID: "t"})
    (line,) = stable_group(state, "m1")
    line.exchange(committing(42), COMMITTED, 7)
    return state, line


def forwarded(line: Line, question: Struct, version: int) -> None:
    """Asserts that a question goes to the broker at once and unchanged."""
    frame = line.frame(question, version)
    assert line.client(frame) == [ToUpstream(frame)]
    assert line.session.should_read_client


# Local answers.


@pytest.mark.parametrize(("question", "version"), ANSWERABLE)
def test_certain_copy_answers_without_broker(question: Any, version: int) -> None:
    """A certain copy answers every version of every question without the broker."""
    state, _ = known()
    line = Line(state, client_id=None)
    answer = line.reads_reply(line.sends(question, version), question, version)
    view = {"g": state.copy.manager.view("g", EPOCH + line.now)}
    expected: dict[int, Struct | None] = {
        LIST: ListGroupsResponse(
            error_code=0,
            groups=(
                ListedGroup(
                    group_id="g",
                    protocol_type="consumer",
                    group_state="Stable" if version >= 4 else "",
                    group_type="classic" if version >= 5 else "",
                ),
            ),
        ),
        DESCRIBE: DescribeGroupsResponse(
            groups=(
                DescribedGroup(
                    error_code=0,
                    group_id="g",
                    group_state="Stable",
                    protocol_type="consumer",
                    protocol_data="range",
                    members=(
                        DescribedGroupMember(
                            member_id="m1",
                            client_id="m1",
                            client_host="/10.0.0.1",
                            member_metadata=b"subscription",
                            member_assignment=b"for m1",
                        ),
                    ),
                ),
            )
        ),
    }
    if question.KEY == FETCH:
        response = group_replies.offset_fetch(question, version, view, state.topic_ids.names)
        assert response is not None
        expected[FETCH] = decode(OffsetFetchResponse, version, encode(response, version))
        assert fetched(answer, version) == {0: 42, 1: -1}
    assert answer == expected[question.KEY]
    assert state.traffic.answers == {question.KEY: 1}
    assert state.traffic.fallbacks == {}
    assert sum(state.traffic.durations[question.KEY].counts) == 1


def fetched(answer: OffsetFetchResponse, version: int) -> dict[int, int]:
    """Returns the offsets by partition of the only topic in an answer."""
    (topic,) = answer.topics if version < 8 else answer.groups[0].topics
    return {partition.partition_index: partition.committed_offset for partition in topic.partitions}


@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_without_named_topics(version: int) -> None:
    """An OffsetFetch with null topics gets all offsets of the group."""
    _, line = known()
    question = fetching(version, topics=False)
    assert fetched(line.reads_reply(line.sends(question, version), question, version), version) == {0: 42}


@pytest.mark.parametrize(("newest", "expected"), [(1, {0: 42}), (2, {})])
def test_empty_topics_before_offset_fetch_v2(newest: int, expected: dict[int, int]) -> None:
    """An empty topic list gets all offsets if the broker knows only OffsetFetch v1, and none otherwise."""
    state, line = known()
    state.versions.learn({FETCH: (0, newest)})
    question = OffsetFetchRequest(group_id="g", topics=())
    answer = line.reads_reply(line.sends(question, 1), question, 1)
    assert {
        part.partition_index: part.committed_offset for topic in answer.topics for part in topic.partitions
    } == expected


def test_empty_group_state_depends_on_release() -> None:
    """A group without members has the state of the broker's release: Dead and unlisted, or Empty and listed."""
    for broker, shown in ((KAFKA_0_9, "Dead"), ({**KAFKA_0_9, 1: (0, 3)}, "Empty")):
        state = complete_state()
        state.versions.learn(broker)
        line = Line(state)
        line.exchange(replace(committing(42), generation_id_or_member_epoch=-1, member_id=""), COMMITTED, 2)
        [group] = line.reads_reply(line.sends(DESCRIBING, 0), DESCRIBING, 0).groups
        assert group.group_state == shown
        assert len(line.reads_reply(line.sends(LISTING, 0), LISTING, 0).groups) == (shown == "Empty")


def test_unknown_topic_id_goes_to_broker() -> None:
    """A question with an unknown topic id goes to the broker."""
    state, line = known()
    state.topic_ids.learn([TOPIC_ID], {})
    forwarded(line, fetching(10), 10)
    assert state.traffic.fallbacks == {(FETCH, FallbackReason.VERSION): 1}
    assert state.traffic.answers == {}


def test_deleted_topic_id_goes_to_broker() -> None:
    """After a topic is confirmed under a new id, a question with its old id goes to the broker, although the sidecar
    answered it before.
    """
    state, line = known()
    line.reads_reply(line.sends(fetching(10), 10), fetching(10), 10)
    line.now += ROUND_SECONDS
    confirm(state, {UUID(int=78): "t"}, at=EPOCH + line.now)
    forwarded(line, fetching(10), 10)


def test_all_offsets_have_current_topic_ids() -> None:
    """A reply with all offsets contains the current id of a topic that was deleted and created again."""
    state, line = known()
    new = UUID(int=78)
    for topic_id in (TOPIC_ID, new):
        confirm(state, {topic_id: "t"}, at=EPOCH + line.now)
        reply = line.reads_reply(line.sends(fetching(10, topics=False), 10), fetching(10), 10)
        assert [topic.topic_id for topic in reply.groups[0].topics] == [topic_id]
        line.now += ROUND_SECONDS


def test_topic_id_expires() -> None:
    """A topic id counts for FRESH_SECONDS after its confirmation, and afterwards the question goes to the broker."""
    state, line = known()
    line.now += FRESH_SECONDS + 0.1
    forwarded(line, fetching(10), 10)
    confirm(state, {TOPIC_ID: "t"}, at=EPOCH + line.now)
    line = Line(state)
    line.now += FRESH_SECONDS + 0.1
    line.reads_reply(line.sends(fetching(10), 10), fetching(10), 10)


@pytest.mark.parametrize(
    ("question", "version"),
    [(replace(DESCRIBING, include_authorized_operations=True), 3), (fetching(0), 0)],
)
def test_unsupported_question_goes_to_broker(question: Struct, version: int) -> None:
    """A question about data that the copy does not hold goes to the broker."""
    state, line = known()
    forwarded(line, question, version)
    assert state.traffic.fallbacks == {(question.KEY, FallbackReason.VERSION): 1}


# Forwarded questions.


@pytest.mark.parametrize(("question", "version"), QUESTIONS)
@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"enabled": False, "exclusive": True, "authorizer": "none"}, FallbackReason.OFF),
        ({"apis": (), "exclusive": True, "authorizer": "none"}, FallbackReason.OFF),
        ({"exclusive": True}, FallbackReason.UNAUTHORIZED),
        ({"authorizer": "none"}, FallbackReason.NOT_EXCLUSIVE),
        ({}, FallbackReason.UNAUTHORIZED),
    ],
)
def test_withheld_answers_forward_questions(
    question: Struct, version: int, answers: dict[str, Any], reason: FallbackReason
) -> None:
    """If the sidecar may not answer, every question goes to the broker at once, and its fallback reason is counted."""
    state, _ = known(answers=answers)
    line = Line(state)
    parked = line.frame(joining(), 3)
    assert line.client(parked) == [ToUpstream(parked)]
    forwarded(line, question, version)
    if reason is FallbackReason.NOT_EXCLUSIVE and version == 0 and isinstance(question, OffsetFetchRequest):
        reason = FallbackReason.VERSION  # v0 reads from ZooKeeper.
    assert state.traffic.fallbacks == {(question.KEY, reason): 1}
    assert state.traffic.answers == {}


def test_broker_with_authorizer_is_asked() -> None:
    """A question goes to the broker while the broker has an authorizer, and is answered locally otherwise."""
    state, line = known(answers={"exclusive": True})
    state.learn_authorizer(present=True)
    forwarded(line, DESCRIBING, 5)
    state.learn_authorizer(present=False)
    assert to_upstream(line.sends(DESCRIBING, 5)) == b""
    assert state.traffic.fallbacks == {(DESCRIBE, FallbackReason.UNAUTHORIZED): 1}


def test_group_in_doubt_goes_to_broker() -> None:
    """Questions about a group in doubt go to the broker at once."""
    state, line = known()
    other = Line(state)
    other.sends(joining(), 3)
    forwarded(line, DESCRIBING, 5)
    forwarded(line, LISTING, 4)
    assert state.traffic.fallbacks == {(DESCRIBE, FallbackReason.IN_DOUBT): 1, (LIST, FallbackReason.IN_DOUBT): 1}


def test_forwarded_reply_is_unchanged() -> None:
    """The reply to a forwarded question passes unchanged and causes no decode failure."""
    state, line = known(answers={})
    for question, version, response in (
        (LISTING, 4, ListGroupsResponse(error_code=0, groups=())),
        (DESCRIBING, 5, DescribeGroupsResponse(groups=())),
        (fetching(8), 8, OffsetFetchResponse()),
    ):
        line.exchange(question, response, version)
    assert state.traffic.decode_failures == {}


# The turn of an answer.


def test_client_reads_its_own_commit() -> None:
    """A client that sends a commit and a question in one chunk gets the committed offset."""
    _, line = known()
    commit, question = line.frame(committing(43), 7), line.frame(fetching(5), 5)
    assert line.client(commit, question) == [ToUpstream(commit)]
    commands = line.broker_replies(COMMITTED, 7, correlation=4)
    assert [type(command) for command in commands] == [ToClient, ToClient]
    assert fetched(line.reads_reply(commands[1:], fetching(5), 5), 5) == {0: 43, 1: -1}


def test_waiting_question_may_fall_back() -> None:
    """A question goes to the broker if its group falls into doubt while the question waits."""
    state, line = known()
    question = line.frame(DESCRIBING, 5)
    line.client(request(1, 90), question)
    Line(state).sends(joining(), 3)
    assert line.upstream(reply(90)) == [ToClient(reply(90)), ToUpstream(question)]
    assert state.traffic.fallbacks == {(DESCRIBE, FallbackReason.IN_DOUBT): 1}


@pytest.mark.parametrize(("question", "version"), [(LISTING, 5), (DESCRIBING, 5), (fetching(8), 8)])
def test_failed_answer_goes_to_broker(
    question: Struct, version: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If building an answer fails, the error is logged and the question goes to the broker."""

    def fails(*_: object) -> bytes:
        raise ValueError("does not fit its field")

    monkeypatch.setattr(ReplyBuilder, "_make", fails)
    state, line = known()
    response = limited_to(full_sample(APIS[question.KEY].response), version)
    line.exchange(question, response, version)
    assert state.traffic.answers == {}
    assert state.traffic.decode_failures == {}
    assert "a question was not understood, and was passed on" in capsys.readouterr().out


# Learning from forwarded questions.


def told_offsets(offset: int) -> OffsetFetchResponse:
    partition = OffsetFetchResponsePartition(partition_index=0, committed_offset=offset, metadata="", error_code=0)
    return OffsetFetchResponse(topics=(OffsetFetchResponseTopic(name="t", partitions=(partition,)),))


def test_forwarded_reply_teaches_the_copy() -> None:
    """The copy learns offsets from a forwarded reply and answers the next question."""
    state = broker_state(answers={"exclusive": True, "authorizer": "none"})
    state.learn_initial_groups(["g"])
    line, question = Line(state), fetching(5, topics=False)
    line.exchange(committing(3), COMMITTED, 7)
    line.exchange(question, told_offsets(7), 5)
    assert fetched(line.reads_reply(line.sends(question, 5), question, 5), 5) == {0: 7}
    assert state.traffic.fallbacks == {(FETCH, FallbackReason.COLD): 1}


def test_reply_older_than_commit_teaches_nothing() -> None:
    """A reply to a question sent before a commit does not overwrite the committed offset."""
    state = broker_state(answers={"exclusive": True, "authorizer": "none"})
    state.learn_initial_groups(["g"])
    asking, line, question = Line(state), Line(state), fetching(5, topics=False)
    forwarded(asking, question, 5)
    line.exchange(committing(43), COMMITTED, 7)
    asking.broker_replies(told_offsets(7), 5)
    view = state.copy.manager.view("g", EPOCH + line.now)
    assert view.offsets["t", 0].offset == 43
    assert view.offsets_fallback_reason is FallbackReason.COLD


# A broker that cannot answer at all.


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize(("question", "version"), [case for case in QUESTIONS if case[0].KEY != FETCH])
def test_missing_api_gets_best_known_answer(question: Struct, version: int, exclusive: bool) -> None:
    """If the broker lacks the API, the sidecar answers with the groups that the copy knows."""
    state = broker_state(answers={"exclusive": exclusive, "authorizer": "none"})
    state.versions.learn({ApiKey.JOIN_GROUP: (0, 5)})
    stable_group(state, "m1")
    line = Line(state)
    answer = line.reads_reply(line.sends(question, version), question, version)
    assert [group.group_id for group in answer.groups] == ["g"]
    assert state.traffic.answers == {question.KEY: 1}


def test_missing_api_unseen_group_is_dead() -> None:
    """If the broker lacks the API, a group that the copy has never seen is reported as Dead."""
    state = broker_state(answers={"authorizer": "none"})
    state.learn_initial_groups(None)
    state.versions.learn({})
    line = Line(state)
    (group,) = line.reads_reply(line.sends(DESCRIBING, 5), DESCRIBING, 5).groups
    assert (group.group_state, group.error_code, group.members) == ("Dead", 0, ())


@pytest.mark.parametrize(("question", "groups"), [(LISTING, []), (DESCRIBING, ["g"])])
def test_missing_api_waits_until_client_is_served(question: Struct, groups: list[str]) -> None:
    """If the broker lacks the API and has not served the client yet, the sidecar sends a Heartbeat before it answers.

    The broker would close the connection for the question itself.
    """
    state = broker_state(answers={"authorizer": "none"})
    state.versions.learn({ApiKey.HEARTBEAT: (0, 4)})
    line = Line(state)
    commands = line.sends(question, 4)
    assert to_client(commands) == b""
    assert to_upstream(commands)[4:6] == ApiKey.HEARTBEAT.to_bytes(2, "big")
    served = HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    response = line.broker_replies(served, 0, correlation=ACCESS_CORRELATION)
    assert [group.group_id for group in line.reads_reply(response, question, 4).groups] == groups
    assert state.traffic.answers == {question.KEY: 1}
    assert not state.traffic.fallbacks


def test_missing_api_with_possible_authorizer() -> None:
    """If the broker lacks the API but may have an authorizer, the question goes to the broker."""
    state = broker_state()
    state.versions.learn({})
    (line,) = stable_group(state, "m1")
    forwarded(line, LISTING, 4)
    assert state.traffic.fallbacks == {(LIST, FallbackReason.UNAUTHORIZED): 1}


def test_missing_api_with_answers_disabled() -> None:
    """With answers disabled, questions go to the broker even if the broker lacks the API."""
    state = broker_state(answers={"enabled": False})
    state.versions.learn({})
    line = Line(state)
    forwarded(line, LISTING, 4)
    assert to_client(line.sends(DESCRIBING, 5)) == b""
    assert state.traffic.fallbacks == {(LIST, FallbackReason.OFF): 1, (DESCRIBE, FallbackReason.OFF): 1}
