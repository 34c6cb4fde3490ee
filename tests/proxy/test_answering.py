"""Questions about groups: which are answered here, when, and with what."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from group_sidecar.codecs.messages.api_versions import KAFKA_0_9
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
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
from group_sidecar.codecs.registry import APIS, ApiKey
from group_sidecar.codecs.schema import Struct, decode, encode
from group_sidecar.coordinator import answers
from group_sidecar.coordinator.views import Lacking
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.commands import ToClient, ToUpstream
from group_sidecar.proxy.replying import Replying
from group_sidecar.proxy.topic_ids import FRESH_SECONDS, ROUND_SECONDS, TopicIds
from tests.codecs.declarations import brought_down, full_sample
from tests.proxy.playbook import (
    EPOCH,
    Line,
    broker_copy,
    certain_copy,
    confirm,
    joining,
    reply,
    request,
    settled,
    to_client,
    to_upstream,
)

LIST, DESCRIBE, FETCH = ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH
TOPIC_ID = UUID(int=77)
DESCRIBING = DescribeGroupsRequest(groups=("g",))
LISTING = ListGroupsRequest()


def fetching(version: int, *, topics: bool = True) -> OffsetFetchRequest:
    """Asks for the offsets of topic t, or for all."""
    asked = (OffsetFetchRequestTopic(name="t" if version < 10 else "", topic_id=TOPIC_ID, partition_indexes=(0, 1)),)
    if version < 8:
        return OffsetFetchRequest(group_id="g", topics=asked if topics else None)
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=asked if topics else None),))


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


def known(**settings: Any) -> tuple[BrokerCopy, Line]:
    """A broker of which all is known: a Stable group g of one member, with an offset of 42 for t-0."""
    copy = certain_copy(**settings)
    confirm(copy, {TOPIC_ID: "t"})
    (line,) = settled(copy, "m1")
    line.exchange(committing(42), COMMITTED, 7)
    return copy, line


def forwarded(line: Line, question: Struct, version: int) -> None:
    """The question goes to the broker at once, as it came."""
    frame = line.frame(question, version)
    assert line.client(frame) == [ToUpstream(frame)]
    assert line.session.wants_client


# What is answered.


@pytest.mark.parametrize(("question", "version"), ANSWERABLE)
def test_a_certain_copy_answers_every_version_without_the_broker(question: Any, version: int) -> None:
    copy, _ = known()
    line = Line(copy, client_id=None)
    answer = line.reads(line.says(question, version), question, version)
    view = {"g": copy.manager.view("g", EPOCH + line.now)}
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
        told = answers.offset_fetch(question, version, view, copy.topic_ids.names)
        assert told is not None
        expected[FETCH] = decode(OffsetFetchResponse, version, encode(told, version))
        assert fetched(answer, version) == {0: 42, 1: -1}
    assert answer == expected[question.KEY]
    assert copy.traffic.answers == {question.KEY: 1}
    assert copy.traffic.fallbacks == {}
    assert sum(copy.traffic.durations[question.KEY].counts) == 1


def fetched(answer: OffsetFetchResponse, version: int) -> dict[int, int]:
    """Offsets by partition of the one topic that was told."""
    (topic,) = answer.topics if version < 8 else answer.groups[0].topics
    return {partition.partition_index: partition.committed_offset for partition in topic.partitions}


@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_of_a_group_are_told_where_no_topics_are_named(version: int) -> None:
    _, line = known()
    question = fetching(version, topics=False)
    assert fetched(line.reads(line.says(question, version), question, version), version) == {0: 42}


@pytest.mark.parametrize(("newest", "told"), [(1, {0: 42}), (2, {})])
def test_to_name_no_topics_meant_all_of_them_before_there_was_another_way(newest: int, told: dict[int, int]) -> None:
    copy, line = known()
    copy.learn_versions({FETCH: (0, newest)})
    question = OffsetFetchRequest(group_id="g", topics=())
    answer = line.reads(line.says(question, 1), question, 1)
    assert {part.partition_index: part.committed_offset for topic in answer.topics for part in topic.partitions} == told


def test_groups_without_members_are_told_of_as_the_broker_would() -> None:
    for broker, state in ((KAFKA_0_9, "Dead"), ({**KAFKA_0_9, 1: (0, 3)}, "Empty")):
        copy = certain_copy()
        copy.learn_versions(broker)
        line = Line(copy)
        line.exchange(replace(committing(42), generation_id_or_member_epoch=-1, member_id=""), COMMITTED, 2)
        [group] = line.reads(line.says(DESCRIBING, 0), DESCRIBING, 0).groups
        assert group.group_state == state
        assert len(line.reads(line.says(LISTING, 0), LISTING, 0).groups) == (state == "Empty")


def test_a_question_by_a_topic_id_that_is_not_known_is_left_to_the_broker() -> None:
    copy, line = known()
    copy.topic_ids = TopicIds()
    forwarded(line, fetching(10), 10)
    assert copy.traffic.fallbacks == {(FETCH, Lacking.VERSION): 1}
    assert copy.traffic.answers == {}


def test_a_question_by_the_id_of_a_deleted_topic_is_left_to_the_broker() -> None:
    """Within a bounded time, although the answer was given before, and the topic was created again meanwhile."""
    copy, line = known()
    line.reads(line.says(fetching(10), 10), fetching(10), 10)
    line.now += ROUND_SECONDS
    confirm(copy, {UUID(int=78): "t"}, at=EPOCH + line.now)
    forwarded(line, fetching(10), 10)


def test_all_offsets_are_told_with_the_ids_of_topics_that_exist() -> None:
    """The same topic was deleted and created again between two questions."""
    copy, line = known()
    new = UUID(int=78)
    for topic_id in (TOPIC_ID, new):
        confirm(copy, {topic_id: "t"}, at=EPOCH + line.now)
        reply = line.reads(line.says(fetching(10, topics=False), 10), fetching(10), 10)
        assert [topic.topic_id for topic in reply.groups[0].topics] == [topic_id]
        line.now += ROUND_SECONDS


def test_a_topic_id_counts_for_a_bounded_time() -> None:
    copy, line = known()
    line.now += FRESH_SECONDS + 0.1
    forwarded(line, fetching(10), 10)
    confirm(copy, {TOPIC_ID: "t"}, at=EPOCH + line.now)
    line = Line(copy)
    line.now += FRESH_SECONDS + 0.1
    line.reads(line.says(fetching(10), 10), fetching(10), 10)


@pytest.mark.parametrize(
    ("question", "version"),
    [(replace(DESCRIBING, include_authorized_operations=True), 3), (fetching(0), 0)],
)
def test_what_the_copy_does_not_hold_is_left_to_the_broker(question: Struct, version: int) -> None:
    copy, line = known()
    forwarded(line, question, version)
    assert copy.traffic.fallbacks == {(question.KEY, Lacking.VERSION): 1}


# What is left to the broker.


@pytest.mark.parametrize(("question", "version"), QUESTIONS)
@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"enabled": False, "exclusive": True, "authorizer": "none"}, Lacking.OFF),
        ({"apis": (), "exclusive": True, "authorizer": "none"}, Lacking.OFF),
        ({"exclusive": True}, Lacking.UNAUTHORIZED),
        ({"authorizer": "none"}, Lacking.COLD),
        ({}, Lacking.UNAUTHORIZED),
    ],
)
def test_where_answers_are_withheld_every_question_passes_undelayed(
    question: Struct, version: int, answers: dict[str, Any], reason: Lacking
) -> None:
    copy, _ = known(answers=answers)
    line = Line(copy)
    parked = line.frame(joining(), 3)
    assert line.client(parked) == [ToUpstream(parked)]
    forwarded(line, question, version)
    if reason is Lacking.COLD and version == 0 and isinstance(question, OffsetFetchRequest):
        reason = Lacking.VERSION  # v0 asks ZooKeeper.
    assert copy.traffic.fallbacks == {(question.KEY, reason): 1}
    assert copy.traffic.answers == {}


def test_a_broker_with_an_authorizer_is_asked_itself() -> None:
    copy, line = known(answers={"exclusive": True})
    copy.learn_authorizer(present=True)
    forwarded(line, DESCRIBING, 5)
    copy.learn_authorizer(present=False)
    assert to_upstream(line.says(DESCRIBING, 5)) == b""
    assert copy.traffic.fallbacks == {(DESCRIBE, Lacking.UNAUTHORIZED): 1}


def test_a_group_in_doubt_is_left_to_the_broker_undelayed() -> None:
    copy, line = known()
    other = Line(copy)
    other.says(joining(), 3)
    forwarded(line, DESCRIBING, 5)
    forwarded(line, LISTING, 4)
    assert copy.traffic.fallbacks == {(DESCRIBE, Lacking.IN_DOUBT): 1, (LIST, Lacking.IN_DOUBT): 1}


def test_the_reply_to_a_question_left_to_the_broker_passes_as_it_came() -> None:
    copy, line = known(answers={})
    for question, version, told in (
        (LISTING, 4, ListGroupsResponse(error_code=0, groups=())),
        (DESCRIBING, 5, DescribeGroupsResponse(groups=())),
        (fetching(8), 8, OffsetFetchResponse()),
    ):
        line.exchange(question, told, version)
    assert copy.traffic.decode_failures == {}


# Its turn.


def test_a_client_that_commits_and_asks_in_one_chunk_reads_its_own_write() -> None:
    _, line = known()
    commit, question = line.frame(committing(43), 7), line.frame(fetching(5), 5)
    assert line.client(commit, question) == [ToUpstream(commit)]
    commands = line.broker_says(COMMITTED, 7, correlation=4)
    assert [type(command) for command in commands] == [ToClient, ToClient]
    assert fetched(line.reads(commands[1:], fetching(5), 5), 5) == {0: 43, 1: -1}


def test_what_comes_to_be_lacking_while_a_question_waits_leaves_it_to_the_broker() -> None:
    copy, line = known()
    question = line.frame(DESCRIBING, 5)
    line.client(request(1, 90), question)
    Line(copy).says(joining(), 3)
    assert line.upstream(reply(90)) == [ToClient(reply(90)), ToUpstream(question)]
    assert copy.traffic.fallbacks == {(DESCRIBE, Lacking.IN_DOUBT): 1}


@pytest.mark.parametrize(("question", "version"), [(LISTING, 5), (DESCRIBING, 5), (fetching(8), 8)])
def test_an_answer_that_cannot_be_made_is_left_to_the_broker(
    question: Struct, version: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> bytes:
        raise ValueError("does not fit its field")

    monkeypatch.setattr(Replying, "_make", fails)
    copy, line = known()
    told = brought_down(full_sample(APIS[question.KEY].response), version)
    line.exchange(question, told, version)
    assert copy.traffic.answers == {}
    assert copy.traffic.decode_failures == {}
    assert "a question was not understood and passed on" in capsys.readouterr().out


# What forwarded questions teach.


def told_offsets(offset: int) -> OffsetFetchResponse:
    partition = OffsetFetchResponsePartition(partition_index=0, committed_offset=offset, metadata="", error_code=0)
    return OffsetFetchResponse(topics=(OffsetFetchResponseTopic(name="t", partitions=(partition,)),))


def test_the_copy_learns_from_the_broker_and_answers_next_time() -> None:
    copy = broker_copy(answers={"exclusive": True, "authorizer": "none"})
    copy.learn_groups_at_start(["g"])
    line, question = Line(copy), fetching(5, topics=False)
    line.exchange(committing(3), COMMITTED, 7)
    line.exchange(question, told_offsets(7), 5)
    assert fetched(line.reads(line.says(question, 5), question, 5), 5) == {0: 7}
    assert copy.traffic.fallbacks == {(FETCH, Lacking.COLD): 1}


def test_a_reply_that_was_overtaken_by_a_commit_teaches_nothing() -> None:
    copy = broker_copy(answers={"exclusive": True, "authorizer": "none"})
    copy.learn_groups_at_start(["g"])
    asking, line, question = Line(copy), Line(copy), fetching(5, topics=False)
    forwarded(asking, question, 5)
    line.exchange(committing(43), COMMITTED, 7)
    asking.broker_says(told_offsets(7), 5)
    view = copy.manager.view("g", EPOCH + line.now)
    assert view.offsets["t", 0].offset == 43
    assert view.offsets_lacking is Lacking.COLD


# A broker that cannot answer at all.


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize(("question", "version"), [case for case in QUESTIONS if case[0].KEY != FETCH])
def test_a_broker_that_lacks_the_api_gets_the_best_that_is_known(
    question: Struct, version: int, exclusive: bool
) -> None:
    copy = broker_copy(answers={"exclusive": exclusive, "authorizer": "none"})
    copy.learn_versions({ApiKey.JOIN_GROUP: (0, 5)})
    settled(copy, "m1")
    line = Line(copy)
    answer = line.reads(line.says(question, version), question, version)
    assert [group.group_id for group in answer.groups] == ["g"]
    assert copy.traffic.answers == {question.KEY: 1}


def test_even_then_a_group_that_never_passed_by_is_dead() -> None:
    copy = broker_copy(answers={"authorizer": "none"})
    copy.learn_groups_at_start(None)
    copy.learn_versions({})
    line = Line(copy)
    (group,) = line.reads(line.says(DESCRIBING, 5), DESCRIBING, 5).groups
    assert (group.group_state, group.error_code, group.members) == ("Dead", 0, ())


def test_where_it_may_have_an_authorizer_nobody_may_see_what_cannot_be_asked_for() -> None:
    copy = broker_copy()
    copy.learn_versions({})
    (line,) = settled(copy, "m1")
    forwarded(line, LISTING, 4)
    assert copy.traffic.fallbacks == {(LIST, Lacking.UNAUTHORIZED): 1}


def test_where_answers_are_off_even_such_a_broker_is_asked() -> None:
    copy = broker_copy(answers={"enabled": False})
    copy.learn_versions({})
    line = Line(copy)
    forwarded(line, LISTING, 4)
    assert to_client(line.says(DESCRIBING, 5)) == b""
    assert copy.traffic.fallbacks == {(LIST, Lacking.OFF): 1, (DESCRIBE, Lacking.OFF): 1}
