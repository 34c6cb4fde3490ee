"""Tests when the sidecar asks the broker in another version, if a question has a version that the broker lacks.

`test_version_translation` tests the contents of these requests and replies.
"""

from typing import Any

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.headers import decode_request_header, encode_reply
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from group_sidecar.codecs.schema import Struct, decode_start
from group_sidecar.coordinator.model.views import CommittedOffset, FallbackReason, GroupState, GroupView
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.broker.added_versions import added_versions
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.commands import Close, Command, ToClient, ToUpstream
from group_sidecar.proxy.handlers.injected_requests import RELAY_CORRELATION
from group_sidecar.proxy.handlers.relay import BrokerRequest
from group_sidecar.proxy.handlers.reply_builder import ReplyBuilder
from tests.kafka.group_members import offsets_to_commit
from tests.proxy.dataplane.playbook import (
    EPOCH,
    Line,
    broker_state,
    complete_state,
    joining,
    reply,
    request,
    stable_group,
    to_client,
    to_upstream,
)
from tests.proxy.handlers.old_brokers import RELEASES, OldBroker

FETCH, DESCRIBE, LIST = ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS
OLD = "0.10.1.1"
GROUPS = {
    "g": GroupView(
        group_id="g",
        state=GroupState.EMPTY,
        protocol_type="consumer",
        offsets={("t", 0): CommittedOffset(42, metadata="m")},
    )
}


def everything(version: int) -> OffsetFetchRequest:
    """Returns a request for all offsets of the group."""
    if version < 8:
        return OffsetFetchRequest(group_id="g", topics=None)
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),))


QUESTIONS: list[tuple[Struct, int]] = [
    *((ListGroupsRequest(), version) for version in range(1, 6)),
    *((DescribeGroupsRequest(groups=("g",)), version) for version in range(1, 7)),
    *((everything(version), version) for version in range(2, 10)),
]
"""All questions in the versions that are added for Kafka 0.10.1."""
EACH = pytest.mark.parametrize(("question", "version"), QUESTIONS)


def old(state: BrokerState, release: str = OLD) -> BrokerState:
    """Sets the broker's versions to those of a release."""
    state.versions.learn(RELEASES[release])
    return state


def asked_in(data: bytes) -> list[tuple[int, BrokerRequest]]:
    """Returns the requests that the broker gets, with their correlation ids."""
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        frame, data = data[4 : 4 + size], data[4 + size :]
        api, version = APIS[int.from_bytes(frame[:2], "big")], int.from_bytes(frame[2:4], "big")
        header, body = decode_request_header(frame, api.flexible(version))
        assert api.request is not None
        message, rest = decode_start(api.request, version, body)
        assert rest == b""
        found.append((header.correlation_id, BrokerRequest(message, version)))
    return found


def served(line: Line, broker: OldBroker, commands: list[Command]) -> list[Command]:
    """Answers all requests to the broker. Returns the last commands. Asserts that the client gets no earlier bytes."""
    while requests := asked_in(to_upstream(commands)):
        assert to_client(commands) == b""
        assert not line.session.should_read_client
        commands = []
        for correlation, each in requests:
            assert correlation == RELAY_CORRELATION
            commands += line.upstream(encode_reply(broker.answer(each), each.version, correlation))
    return commands


# Without a complete copy.


@EACH
def test_question_is_sent_in_brokers_version(question: Any, version: int) -> None:
    """A question in a version that the broker lacks is sent in the broker's version, and the reply is translated."""
    state, broker = old(broker_state()), OldBroker(RELEASES[OLD], GROUPS)
    line = Line(state)
    answer = line.reads_reply(served(line, broker, line.sends(question, version)), question, version)
    if question.KEY == LIST:
        assert [group.group_id for group in answer.groups] == ["g"]
    elif question.KEY == DESCRIBE:
        assert [group.group_state for group in answer.groups] == ["Empty"]
    else:
        [topic] = answer.topics if version < 8 else answer.groups[0].topics
        assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [(0, 42)]
    assert state.traffic.relays == {question.KEY: 1}
    assert state.traffic.fallbacks == {(question.KEY, FallbackReason.UNAUTHORIZED): 1}
    assert state.traffic.answers == {}
    assert sum(state.traffic.durations[question.KEY].counts) == 1
    assert state.traffic.durations.keys() == {question.KEY}
    assert line.session.should_read_client


def test_translated_question_has_clients_id() -> None:
    """The translated question has the client's id, and is sent after the replies to earlier requests."""
    line = Line(old(broker_state()), client_id="somebody")
    first = request(1, 90)
    frame = line.frame(ListGroupsRequest(), 3)
    assert line.client(first, frame) == [ToUpstream(first)]
    passed, asked = line.upstream(reply(90))
    assert passed == ToClient(reply(90))
    assert isinstance(asked, ToUpstream)
    header, _ = decode_request_header(asked.data[4:], flexible=False)
    assert (header.api_key, header.api_version, header.client_id) == (LIST, 0, "somebody")


def test_next_request_waits_for_translated_reply() -> None:
    """A request after a translated question waits until the client has the reply to the question."""
    line, broker = Line(old(broker_state())), OldBroker(RELEASES[OLD], GROUPS)
    behind = request(1, 91)
    commands = line.client(line.frame(DescribeGroupsRequest(groups=("g",)), 6), behind)
    [(correlation, requests)] = asked_in(to_upstream(commands))
    answer, last = line.upstream(encode_reply(broker.answer(requests), requests.version, correlation))
    assert isinstance(answer, ToClient)
    assert last == ToUpstream(behind)


def test_translated_reply_teaches_the_copy() -> None:
    """The copy learns from a translated reply and answers the next question without the broker."""
    state = old(broker_state(answers={"exclusive": True, "authorizer": "none"}), "0.10.2.2")
    state.learn_initial_groups(["g"])
    committed = OffsetCommitResponsePartition(partition_index=0, error_code=0)
    line, broker = Line(state), OldBroker(RELEASES["0.10.2.2"], GROUPS)
    line.exchange(
        OffsetCommitRequest(group_id="g", topics=offsets_to_commit("t", {0: 41}, "m")),
        OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="t", partitions=(committed,)),)),
        2,
    )
    answer = line.reads_reply(served(line, broker, line.sends(everything(4), 4)), everything(4), 4)
    assert line.reads_reply(line.sends(everything(4), 4), everything(4), 4) == answer
    assert (state.traffic.answers, state.traffic.relays) == ({FETCH: 1}, {FETCH: 1})


@EACH
def test_unreadable_relayed_reply_gets_error_15(question: Any, version: int) -> None:
    """After an unreadable reply to a translated question, the client gets error 15 and its connection continues."""
    state = old(broker_state())
    line = Line(state)
    commands = line.sends(question, version)
    assert len(asked_in(to_upstream(commands))) == 1
    garbage = RELAY_CORRELATION.to_bytes(4, "big", signed=True) + b"\x7f"
    answer = line.reads_reply(line.upstream(len(garbage).to_bytes(4, "big") + garbage), question, version)
    results = answer.groups if question.KEY == DESCRIBE or version >= 8 else [answer]
    assert [each.error_code for each in results] == [15]
    assert sum(state.traffic.decode_failures.values()) == 1
    assert line.session.should_read_client


def test_failed_local_answer_is_translated(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """If building a local answer fails, the error is logged and the translated question goes to the broker."""

    def fails(*_: object) -> bytes:
        raise ValueError("does not fit its field")

    monkeypatch.setattr(ReplyBuilder, "_make", fails)
    line, broker = Line(old(complete_state())), OldBroker(RELEASES[OLD], GROUPS)
    question = DescribeGroupsRequest(groups=("g",))
    [group] = line.reads_reply(served(line, broker, line.sends(question, 6)), question, 6).groups
    assert group.group_state == "Empty"
    assert "a question was not understood, and was passed on" in capsys.readouterr().out


# With a complete copy.


@EACH
def test_certain_copy_answers_added_versions(question: Any, version: int) -> None:
    """A certain copy answers added versions without the broker."""
    state = old(complete_state())
    stable_group(state, "m1")
    line = Line(state)
    answer = line.reads_reply(line.sends(question, version), question, version)
    if question.KEY != FETCH:
        assert [group.group_id for group in answer.groups] == ["g"]
    assert state.traffic.answers == {question.KEY: 1}
    assert state.traffic.relays == {}
    assert state.traffic.fallbacks == {}


@pytest.mark.parametrize(("release", "version"), [(OLD, version) for version in range(3, 7)] + [("2.8.2", 6)])
def test_authorized_operations_without_authorizer(release: str, version: int) -> None:
    """Without an authorizer, a local description contains all authorized operations if the client asks for them."""
    state = old(complete_state(), release)
    stable_group(state, "m1")
    line = Line(state)
    question = DescribeGroupsRequest(groups=("g", "g"), include_authorized_operations=True)
    groups = line.reads_reply(line.sends(question, version), question, version).groups
    assert [group.authorized_operations for group in groups] == [328, 328]
    modest = DescribeGroupsRequest(groups=("g",))
    [group] = line.reads_reply(line.sends(modest, version), modest, version).groups
    assert group.authorized_operations == -2147483648


@pytest.mark.parametrize("odd", ["stable", " STABLE "])
def test_state_filter_ignores_case_and_spaces(odd: str) -> None:
    """A state filter in an added version ignores case and surrounding spaces."""
    state = old(complete_state())
    stable_group(state, "m1")
    line, question = Line(state), ListGroupsRequest(states_filter=(odd,))
    assert [group.group_id for group in line.reads_reply(line.sends(question, 4), question, 4).groups] == ["g"]


def test_authorizer_change_invalidates_answer() -> None:
    """A change of the broker's authorizer invalidates cached answers with authorized operations."""
    state = old(complete_state(answers={"exclusive": True}))
    state.learn_authorizer(present=False)
    stable_group(state, "m1")
    line = Line(state)
    broker = OldBroker(RELEASES[OLD], {"g": state.copy.manager.view("g", EPOCH + line.now)})
    question = DescribeGroupsRequest(groups=("g",), include_authorized_operations=True)
    for present, operations in ((False, 328), (True, -2147483648), (False, 328), (True, -2147483648)):
        state.learn_authorizer(present=present)
        [group] = line.reads_reply(served(line, broker, line.sends(question, 4)), question, 4).groups
        assert group.authorized_operations == operations
    assert (state.traffic.answers, state.traffic.relays) == ({DESCRIBE: 3}, {DESCRIBE: 1})


# Questions that never go to the broker.


@EACH
def test_malformed_added_version_closes(question: Struct, version: int) -> None:
    """A malformed question in an added version closes the connection and counts as a decode failure."""
    state = old(broker_state())
    line = Line(state)
    garbage = request(question.KEY, 1, version=version, body=b"\xff\xff\xff\xff\x7f")
    if isinstance(question, ListGroupsRequest) and version < 4:
        garbage = request(question.KEY, 1, version=version)[:-1]  # Without fields, only the header can be wrong.
        garbage = (len(garbage) - 4).to_bytes(4, "big") + garbage[4:]
    with structlog.testing.capture_logs() as lines:
        assert line.client(garbage) == [Close(CloseReason.MALFORMED_REQUEST)]
    assert [each["event"] for each in lines] == ["a connection is closed"]  # No other line.
    assert state.traffic.decode_failures == {question.KEY: 1}


@pytest.mark.parametrize("limits", [{"inspected_frame": 1024}, {"inspected_elements": 999}])
def test_overlong_added_version_closes(limits: dict[str, int]) -> None:
    """A question in an added version that exceeds the inspection limits closes the connection."""
    state = old(broker_state(limits=limits))
    question = DescribeGroupsRequest(groups=tuple(f"group {number}" for number in range(1000)))
    assert Line(state).sends(question, 6) == [Close(CloseReason.REQUEST_TOO_LONG)]


@pytest.mark.parametrize("settings", [{"enabled": False}, {"apis": ["ListGroups"]}])
def test_disabled_answers_add_no_versions(settings: dict[str, Any]) -> None:
    """With local answers off for the API, a question in a version that the broker lacks passes unchanged."""
    state = old(broker_state(answers=settings))
    line = Line(state)
    frame = line.frame(everything(2), 2)
    assert line.client(frame) == [ToUpstream(frame)]


@pytest.mark.parametrize("version", [7, 8])
def test_unadvertised_version_goes_to_broker(version: int) -> None:
    """A question in a version that is neither the broker's nor added goes to the broker."""
    state = old(complete_state(), "1.1.1")
    line = Line(state)
    frame = line.frame(everything(version), version)
    assert line.client(frame) == [ToUpstream(frame)]
    assert state.traffic.fallbacks == {(FETCH, FallbackReason.VERSION): 1}


@settings(max_examples=60)
@given(
    release=st.sampled_from(sorted(RELEASES)),
    asked=st.sampled_from([(q, v) for q, v in QUESTIONS]),
    certain=st.booleans(),
    authorizer=st.sampled_from([None, False, True]),
    parked=st.booleans(),
)
def test_broker_never_gets_added_versions(
    release: str, asked: tuple[Struct, int], certain: bool, authorizer: bool | None, parked: bool
) -> None:
    """The broker never receives a question in an added version, for any release, state of the copy and authorizer."""
    question, version = asked
    state = old((complete_state if certain else broker_state)(), release)
    if authorizer is not None:
        state.learn_authorizer(authorizer)
    if parked:
        Line(state).sends(joining(), 3)
    line, broker = Line(state), OldBroker(RELEASES[release], GROUPS)
    lowest, highest = added_versions(RELEASES[release]).get(question.KEY, (0, -1))
    commands = line.sends(question, version)
    if lowest <= version <= highest:
        line.reads_reply(served(line, broker, commands), question, version)  # The model checks the fields.
    else:
        assert state.traffic.relays == {}
