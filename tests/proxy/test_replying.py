"""Answers that are remembered are those that would be made anew, and are given only while they may be."""

from dataclasses import replace
from typing import Any

import pytest

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
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
)
from group_sidecar.codecs.registry import APIS, ApiKey
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator import answers
from group_sidecar.coordinator.encoded_offsets import BYTES_EACH, MANY, SOME
from group_sidecar.coordinator.views import Lacking
from group_sidecar.metrics.traffic import Traffic
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.desk import BrokerDesk
from group_sidecar.proxy.disposals import Origin
from group_sidecar.proxy.session import Session
from tests.coordinator.plain_list import list_groups
from tests.proxy.playbook import EPOCH, LARGEST_FRAME, Line, certain_copy, joining, settled, to_upstream

PARTITIONS = tuple(range(MANY + 10))
DESCRIBING, LISTING = DescribeGroupsRequest(groups=("g",)), ListGroupsRequest()
FETCHING = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),))
NAMED = OffsetFetchRequest(
    groups=(
        OffsetFetchRequestGroup(
            group_id="g", topics=(OffsetFetchRequestTopic(name="t", partition_indexes=PARTITIONS),)
        ),
    )
)
QUESTIONS: list[tuple[Any, int]] = [(DESCRIBING, 5), (LISTING, 4), (FETCHING, 8), (NAMED, 8)]


def commit(line: Line, offset: int, partitions: tuple[int, ...] = PARTITIONS) -> None:
    """Member m1 commits."""
    parts = tuple(
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="m")
        for index in partitions
    )
    topics = (OffsetCommitRequestTopic(name="t", partitions=parts),)
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=1, member_id="m1", topics=topics)
    done = tuple(OffsetCommitResponsePartition(partition_index=index, error_code=0) for index in partitions)
    line.exchange(request, OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="t", partitions=done),)), 7)


def known(**settings: Any) -> tuple[BrokerCopy, Line]:
    """A Stable group g of one member, with offsets of more partitions than parts are kept for."""
    copy = certain_copy(**settings)
    (line,) = settled(copy, "m1")
    commit(line, 1)
    return copy, line


def anew(copy: BrokerCopy, line: Line, question: Struct, version: int) -> Struct | None:
    """What the answer is to be."""
    view = copy.manager.view("g", EPOCH + line.now)
    if isinstance(question, ListGroupsRequest):
        groups = tuple(replace(group, group_type="") for group in list_groups(question, [view]))
        return ListGroupsResponse(error_code=0, groups=groups)
    if isinstance(question, DescribeGroupsRequest):
        return answers.describe_groups(question, version, {"g": view})
    assert isinstance(question, OffsetFetchRequest)
    return answers.offset_fetch(question, version, {"g": view}, copy.names)


def recalls(traffic: Traffic) -> int:
    return sum(traffic.recalls.values())


@pytest.mark.parametrize(("question", "version"), QUESTIONS)
def test_an_answer_is_remembered_until_what_it_tells_changes(question: Struct, version: int) -> None:
    copy, line = known()
    asking = Line(copy)

    def ask() -> Struct:
        told = asking.reads(asking.says(question, version), question, version)
        assert told == anew(copy, line, question, version)
        assert isinstance(told, Struct)
        return told

    first = ask()
    assert recalls(copy.traffic) == 0
    assert ask() == first
    assert recalls(copy.traffic) == 1
    commit(line, 2, (3,))
    second = ask()
    tells_offsets = question.KEY == ApiKey.OFFSET_FETCH
    assert (second != first) == tells_offsets
    assert recalls(copy.traffic) == (1 if tells_offsets else 2)
    settled(copy, "m1", "m2", generation=2)
    assert (ask() != second) == (question.KEY == ApiKey.DESCRIBE_GROUPS)
    assert copy.traffic.answers == {question.KEY: 4}


def test_a_list_is_remembered_until_a_group_comes() -> None:
    copy, _ = known()
    line = Line(copy)
    found = []
    for group in ("g", "g", "h", "i"):
        if group != "g":
            settled(copy, f"a member of {group}", group=group)
        told = line.reads(line.says(LISTING, 4), LISTING, 4)
        found.append({listed.group_id for listed in told.groups})
    assert found == [{"g"}, {"g"}, {"g", "h"}, {"g", "h", "i"}]
    assert recalls(copy.traffic) == 1


@pytest.mark.parametrize(("question", "version"), [(DESCRIBING, 5), (LISTING, 4)])
def test_a_remembered_answer_is_not_given_once_something_is_lacking(question: Struct, version: int) -> None:
    copy, _ = known()
    line = Line(copy)
    for _ in range(2):
        line.reads(line.says(question, version), question, version)
    Line(copy).says(joining(), 3)
    frame = line.frame(question, version)
    assert to_upstream(line.client(frame)) == frame
    assert copy.traffic.fallbacks == {(question.KEY, Lacking.IN_DOUBT): 1}


@pytest.mark.parametrize(("question", "version"), [(DESCRIBING, 5), (LISTING, 4)])
def test_nor_once_time_has_put_it_in_doubt(question: Struct, version: int) -> None:
    copy, _ = known()
    line = Line(copy)
    line.now += 29.0
    line.reads(line.says(question, version), question, version)
    line.now += 2.0  # The session of m1, of whom nothing was heard, is over.
    frame = line.frame(question, version)
    assert to_upstream(line.client(frame)) == frame
    assert copy.traffic.fallbacks == {(question.KEY, Lacking.IN_DOUBT): 1}


@pytest.mark.parametrize(("question", "version"), QUESTIONS)
def test_with_no_room_every_answer_is_made_anew(question: Struct, version: int) -> None:
    copy, line = known(limits={"remembered_answers": 0})
    asking = Line(copy)
    for offset in (1, 1, 2):
        commit(line, offset)
        told = asking.reads(asking.says(question, version), question, version)
        assert told == anew(copy, line, question, version)
    assert recalls(copy.traffic) == 0
    assert copy.traffic.remembered_bytes == 0


@pytest.mark.parametrize("count", [SOME - 1, SOME, MANY - 1, MANY])
def test_the_parts_of_an_answer_are_kept_where_it_tells_of_many(count: int) -> None:
    copy, line = known()
    topics = (OffsetFetchRequestTopic(name="t", partition_indexes=PARTITIONS[:count]),)
    question = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=topics),))
    for offset in (1, 2):
        commit(line, offset)
        told = line.reads(line.says(question, 8), question, 8)
        assert told == anew(copy, line, question, 8)
    assert (copy.traffic.remembered_bytes > BYTES_EACH * count) == (count >= MANY)


def test_clients_that_ask_alike_are_told_alike() -> None:
    copy, _ = known()
    desk = BrokerDesk(copy)
    for client_id in ("one", "two", None):
        line = Line(copy, client_id)
        line.session = Session(desk, copy.traffic, Origin("10.9.9.9"), LARGEST_FRAME)
        line.reads(line.says(DESCRIBING, 5), DESCRIBING, 5)
    assert recalls(copy.traffic) == 2


@pytest.mark.parametrize(("question", "version"), QUESTIONS)
def test_while_the_broker_lacks_the_api_nothing_is_remembered(question: Struct, version: int) -> None:
    """The best that is known may be another with time."""
    copy, line = known()
    copy.learn_versions({})
    asking = Line(copy)
    for _ in range(2):
        told = asking.reads(asking.says(question, version), question, version)
        assert told == anew(copy, line, question, version)
    assert recalls(copy.traffic) == 0


def test_what_was_told_before_an_upgrade_of_the_broker_is_forgotten() -> None:
    """Before 0.10.2 OffsetFetch v1 that names no topics gives all offsets, and none since."""
    copy, _ = known()
    asking, question, told = Line(copy), OffsetFetchRequest(group_id="g", topics=()), []
    for highest in (1, 1, 8):
        copy.learn_versions({key: (0, highest if key == ApiKey.OFFSET_FETCH else 20) for key in APIS})
        reply = asking.reads(asking.says(question, 1), question, 1)
        told.append(sum(len(topic.partitions) for topic in reply.topics))
    assert told == [len(PARTITIONS), len(PARTITIONS), 0]
    assert recalls(copy.traffic) == 1
