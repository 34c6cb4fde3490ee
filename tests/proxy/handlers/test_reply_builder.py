"""Cached answers equal newly built answers, and are used only while they are valid."""

from dataclasses import replace
from typing import Any

import pytest

from group_sidecar.codecs.api_registry import APIS, ApiKey
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
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.answers import group_replies
from group_sidecar.coordinator.answers.encoded_offsets import (
    MIN_CACHED_PARTITIONS,
    MIN_ENCODED_PARTITIONS,
    PARTITION_BYTES,
)
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.outcomes import Origin
from group_sidecar.proxy.dataplane.session import Session
from tests.coordinator.plain_list import list_groups
from tests.proxy.dataplane.playbook import (
    EPOCH,
    SESSION_LIMITS,
    Line,
    complete_state,
    joining,
    new_dispatcher,
    stable_group,
    to_upstream,
)

PARTITIONS = tuple(range(MIN_CACHED_PARTITIONS + 10))
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
    """Member m1 commits these partitions."""
    parts = tuple(
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="m")
        for index in partitions
    )
    topics = (OffsetCommitRequestTopic(name="t", partitions=parts),)
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=1, member_id="m1", topics=topics)
    done = tuple(OffsetCommitResponsePartition(partition_index=index, error_code=0) for index in partitions)
    line.exchange(request, OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="t", partitions=done),)), 7)


def known(**settings: Any) -> tuple[BrokerState, Line]:
    """Returns the state with a Stable group g, and the connection of its only member.

    The group has offsets of enough partitions that the cache keeps encoded parts of answers.
    """
    state = complete_state(**settings)
    (line,) = stable_group(state, "m1")
    commit(line, 1)
    return state, line


def build_uncached(state: BrokerState, line: Line, question: Struct, version: int) -> Struct | None:
    """Returns the expected answer, which is built without the cache."""
    view = state.copy.manager.view("g", EPOCH + line.now)
    if isinstance(question, ListGroupsRequest):
        groups = tuple(replace(group, group_type="") for group in list_groups(question, [view]))
        return ListGroupsResponse(error_code=0, groups=groups)
    if isinstance(question, DescribeGroupsRequest):
        return group_replies.describe_groups(question, version, {"g": view})
    assert isinstance(question, OffsetFetchRequest)
    return group_replies.offset_fetch(question, version, {"g": view}, state.topic_names.by_id)


def cached_answers(traffic: TrafficCounters) -> int:
    return sum(traffic.cached_answers.values())


@pytest.mark.parametrize(("question", "version"), QUESTIONS)
def test_answer_is_cached_until_content_changes(question: Struct, version: int) -> None:
    """A cached answer is reused until its content changes, and always equals a newly built answer."""
    state, line = known()
    asking = Line(state)

    def ask() -> Struct:
        reply = asking.reads_reply(asking.sends(question, version), question, version)
        assert reply == build_uncached(state, line, question, version)
        assert isinstance(reply, Struct)
        return reply

    first = ask()
    assert cached_answers(state.traffic) == 0
    assert ask() == first
    assert cached_answers(state.traffic) == 1
    commit(line, 2, (3,))
    second = ask()
    tells_offsets = question.KEY == ApiKey.OFFSET_FETCH
    assert (second != first) == tells_offsets
    assert cached_answers(state.traffic) == (1 if tells_offsets else 2)
    stable_group(state, "m1", "m2", generation=2)
    assert (ask() != second) == (question.KEY == ApiKey.DESCRIBE_GROUPS)
    assert state.traffic.answers == {question.KEY: 4}


def test_list_is_cached_until_a_group_appears() -> None:
    """A cached list is reused until a new group appears."""
    state, _ = known()
    line = Line(state)
    found = []
    for group in ("g", "g", "h", "i"):
        if group != "g":
            stable_group(state, f"a member of {group}", group=group)
        reply = line.reads_reply(line.sends(LISTING, 4), LISTING, 4)
        found.append({listed.group_id for listed in reply.groups})
    assert found == [{"g"}, {"g"}, {"g", "h"}, {"g", "h", "i"}]
    assert cached_answers(state.traffic) == 1


@pytest.mark.parametrize(("question", "version"), [(DESCRIBING, 5), (LISTING, 4)])
def test_doubt_disables_cached_answer(question: Struct, version: int) -> None:
    """A cached answer is not used once its group is in doubt."""
    state, _ = known()
    line = Line(state)
    for _ in range(2):
        line.reads_reply(line.sends(question, version), question, version)
    Line(state).sends(joining(), 3)
    frame = line.frame(question, version)
    assert to_upstream(line.client(frame)) == frame
    assert state.traffic.fallbacks == {(question.KEY, FallbackReason.IN_DOUBT): 1}


@pytest.mark.parametrize(("question", "version"), [(DESCRIBING, 5), (LISTING, 4)])
def test_expired_session_disables_cached_answer(question: Struct, version: int) -> None:
    """A cached answer is not used once a member's session has expired."""
    state, _ = known()
    line = Line(state)
    line.now += 29.0
    line.reads_reply(line.sends(question, version), question, version)
    line.now += 2.0  # The session of m1, which has sent nothing, has expired.
    frame = line.frame(question, version)
    assert to_upstream(line.client(frame)) == frame
    assert state.traffic.fallbacks == {(question.KEY, FallbackReason.IN_DOUBT): 1}


@pytest.mark.parametrize(("question", "version"), QUESTIONS)
def test_no_cache_room_builds_each_answer(question: Struct, version: int) -> None:
    """With limits.remembered_answers set to 0, every answer is newly built."""
    state, line = known(limits={"remembered_answers": 0})
    asking = Line(state)
    for offset in (1, 1, 2):
        commit(line, offset)
        reply = asking.reads_reply(asking.sends(question, version), question, version)
        assert reply == build_uncached(state, line, question, version)
    assert cached_answers(state.traffic) == 0
    assert state.traffic.reply_cache_bytes == 0


@pytest.mark.parametrize(
    "count", [MIN_ENCODED_PARTITIONS - 1, MIN_ENCODED_PARTITIONS, MIN_CACHED_PARTITIONS - 1, MIN_CACHED_PARTITIONS]
)
def test_large_answer_parts_are_cached(count: int) -> None:
    """The cache keeps parts of an answer from MIN_CACHED_PARTITIONS partitions on, and the answers stay correct."""
    state, line = known()
    topics = (OffsetFetchRequestTopic(name="t", partition_indexes=PARTITIONS[:count]),)
    question = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=topics),))
    for offset in (1, 2):
        commit(line, offset)
        reply = line.reads_reply(line.sends(question, 8), question, 8)
        assert reply == build_uncached(state, line, question, 8)
    assert (state.traffic.reply_cache_bytes > PARTITION_BYTES * count) == (count >= MIN_CACHED_PARTITIONS)


def test_clients_share_cached_answers() -> None:
    """Clients with different ids and hosts get the same cached answer."""
    state, _ = known()
    dispatcher = new_dispatcher(state)
    for client_id in ("one", "two", None):
        line = Line(state, client_id)
        line.session = Session(dispatcher, state.traffic, Origin("10.9.9.9"), SESSION_LIMITS)
        line.reads_reply(line.sends(DESCRIBING, 5), DESCRIBING, 5)
    assert cached_answers(state.traffic) == 2


@pytest.mark.parametrize(("question", "version"), QUESTIONS)
def test_missing_api_disables_cache(question: Struct, version: int) -> None:
    """While the broker lacks the API, no answer is cached, because the best known answer may change."""
    state, line = known()
    state.versions.learn({})
    asking = Line(state)
    for _ in range(2):
        reply = asking.reads_reply(asking.sends(question, version), question, version)
        assert reply == build_uncached(state, line, question, version)
    assert cached_answers(state.traffic) == 0


def test_broker_upgrade_invalidates_cache() -> None:
    """A cached answer is discarded when an upgrade of the broker changes its meaning."""
    state, _ = known()
    asking, question, replies = Line(state), OffsetFetchRequest(group_id="g", topics=()), []
    for highest in (1, 1, 8):
        state.versions.learn({key: (0, highest if key == ApiKey.OFFSET_FETCH else 20) for key in APIS})
        reply = asking.reads_reply(asking.sends(question, 1), question, 1)
        replies.append(sum(len(topic.partitions) for topic in reply.topics))
    assert replies == [len(PARTITIONS), len(PARTITIONS), 0]
    assert cached_answers(state.traffic) == 1
