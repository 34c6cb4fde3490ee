"""Tests the requests to old brokers in place of unsupported requests, and the translation of the replies.

The oracle is `coordinator.answers.group_replies`, which the conformance tests compare with newer brokers. The
translated replies of an old broker have to equal those of a newer broker with the same groups.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from group_sidecar.codecs.schema import Struct, decode, encode
from group_sidecar.coordinator.answers import group_replies
from group_sidecar.coordinator.model.views import CommittedOffset, GroupState, GroupView, MemberView
from group_sidecar.proxy.broker.added_versions import added_versions
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.handlers.relay import BrokerRequest, UnreadableReply
from group_sidecar.proxy.handlers.version_translation import GROUPS_PER_DESCRIBE, translate
from tests.proxy.dataplane.playbook import broker_state
from tests.proxy.handlers.old_brokers import RELEASES, OldBroker

FETCH, DESCRIBE, LIST = ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS
OLD = [version for version, offers in RELEASES.items() if added_versions(offers)]
PARTITIONS = [(topic, index) for topic in ("a", "b", "c") for index in range(3)]
CASES = [
    (old, key, v)
    for old in OLD
    for key, (low, high) in added_versions(RELEASES[old]).items()
    for v in range(low, high + 1)
]
EACH = pytest.mark.parametrize(("old", "key", "version"), CASES)

NAMES = st.sampled_from(["g", "h", "i", "not there"])
OFFSETS = st.builds(CommittedOffset, st.integers(0, 2**63 - 1), metadata=st.sampled_from(["", "m", None]))
CLASSIC = (GroupState.EMPTY, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
MEMBERS = st.lists(
    st.builds(MemberView, member_id=st.sampled_from("xyz"), client_host=st.just("/10.0.0.1")), max_size=2
)
GROUPS = st.dictionaries(
    NAMES.filter(lambda name: name != "not there"),
    st.tuples(st.sampled_from(CLASSIC), MEMBERS.map(tuple), st.dictionaries(st.sampled_from(PARTITIONS), OFFSETS)),
).map(
    lambda groups: {
        name: GroupView(group_id=name, state=state, protocol_type="consumer", members=members, offsets=offsets)
        for name, (state, members, offsets) in groups.items()
    }
)
TOPICS = st.none() | st.dictionaries(
    st.sampled_from("abz"), st.sets(st.integers(0, 3), min_size=1).map(sorted).map(tuple)
).map(lambda topics: tuple(OffsetFetchRequestTopic(name=n, partition_indexes=p) for n, p in topics.items()))


def knowing(old: str, **settings: Any) -> BrokerState:
    """Returns the state of a broker of a release. The copy does not know its groups."""
    state = broker_state(**settings)
    state.versions.learn(RELEASES[old])
    return state


def translated_reply(state: BrokerState, broker: OldBroker, request: Struct, version: int) -> Any:
    """Translates a request and lets the broker answer. Returns the reply as the client decodes it."""
    steps = translate(request, version, state.versions, state.authorizer_state)
    try:
        requests = next(steps)
        while True:
            requests = steps.send([broker.answer(each) for each in requests])
    except StopIteration as done:
        return decode(APIS[request.KEY].response, version, encode(done.value, version))


def fetching(version: int, requested_groups: Sequence[tuple[str, Any]], **fields: Any) -> OffsetFetchRequest:
    """Returns a request for offsets of groups, or only of the first group if the version names a single group."""
    if version < 8:
        return OffsetFetchRequest(group_id=requested_groups[0][0], topics=requested_groups[0][1], **fields)
    groups = tuple(OffsetFetchRequestGroup(group_id=group, topics=topics) for group, topics in requested_groups)
    return OffsetFetchRequest(groups=groups, **fields)


# Equality with a newer broker.


@st.composite
def questions(draw: st.DrawFn, key: int, version: int) -> Struct:
    """Draws a request of an API."""
    if key == LIST:
        states = draw(st.lists(st.sampled_from(["Stable", " empty", "nonsense"]), max_size=2)) if version >= 4 else ()
        types = draw(st.lists(st.sampled_from(["Classic", "consumer"]), max_size=1)) if version >= 5 else ()
        return ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))
    if key == DESCRIBE:
        asks = version >= 3 and draw(st.booleans())
        groups = draw(st.lists(NAMES, max_size=4).map(tuple))
        return DescribeGroupsRequest(groups=groups, include_authorized_operations=asks)
    requested_groups = draw(st.lists(st.tuples(NAMES, TOPICS), min_size=1, max_size=3))
    return fetching(version, requested_groups, **({"require_stable": draw(st.booleans())} if version >= 7 else {}))


@pytest.mark.parametrize(("old", "key"), sorted({(old, key) for old, key, _ in CASES}))
@settings(max_examples=40)
@given(data=st.data(), groups=GROUPS)
def test_old_broker_matches_newer_broker(old: str, key: int, data: st.DataObject, groups: dict[str, GroupView]) -> None:
    """The translated reply of an old broker equals the reply of a newer broker with the same groups."""
    lowest, highest = added_versions(RELEASES[old])[key]
    version = data.draw(st.integers(lowest, highest))
    state, broker = knowing(old, answers={"authorizer": "none"}), OldBroker(RELEASES[old], groups)
    request: Any = data.draw(questions(key, version))
    assert comparable(translated_reply(state, broker, request, version)) == comparable(newer(broker, request, version))


def newer(broker: OldBroker, request: Any, version: int) -> Struct:
    """Returns the reply of a newer broker with the same groups, as the client decodes it."""
    if isinstance(request, ListGroupsRequest):
        states = {state.strip().lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        reply: Any = broker.listed()
        listed = (g for g in reply.groups if not states or g.group_state.lower() in states)
        reply = replace(reply, groups=tuple(g for g in listed if not types or g.group_type in types))
    elif isinstance(request, DescribeGroupsRequest):
        reply = broker.described(request, version)
    else:
        views = {g: broker.groups.get(g) or GroupView(group_id=g) for g in group_replies.groups_asked(request, version)}
        reply = group_replies.offset_fetch(request, version, views, {})
    response = APIS[request.KEY].response
    return decode(response, version, encode(reply, version))


def comparable(reply: Any) -> Any:
    """Returns a reply with all lists sorted whose order brokers do not guarantee."""
    if isinstance(reply, OffsetFetchResponse):
        groups = (replace(g, topics=tuple(sorted(g.topics, key=lambda t: t.name))) for g in reply.groups)
        return replace(reply, topics=tuple(sorted(reply.topics, key=lambda t: t.name)), groups=tuple(groups))
    return reply


# Offsets of brokers that support only v1.

OLDEST = "0.10.1.1"
V1 = pytest.mark.parametrize("version", range(2, 10))


def offsets_of(reply: OffsetFetchResponse, version: int) -> tuple[int, dict[tuple[str, int], int]]:
    """Returns the error and the offsets of the only group."""
    [group] = reply.groups if version >= 8 else [reply]
    return group.error_code, {
        (t.name, p.partition_index): p.committed_offset for t in group.topics for p in t.partitions
    }


@V1
@pytest.mark.parametrize("error", [14, 15, 16, 24, 30])
@pytest.mark.parametrize("topics", [None, (), (OffsetFetchRequestTopic(name="a", partition_indexes=(0,)),)])
def test_group_error_is_kept_in_translation(version: int, error: int, topics: Any) -> None:
    """A group's error in an old broker's reply becomes the group's error in the translated reply."""
    broker = OldBroker(RELEASES[OLDEST], {"g": GroupView(group_id="g", error_code=error)})
    reply = translated_reply(knowing(OLDEST), broker, fetching(version, [("g", topics)]), version)
    assert offsets_of(reply, version) == (error, {})


@V1
def test_group_without_offsets_has_empty_reply(version: int) -> None:
    """A group without offsets gets a reply without topics and without an error."""
    broker = OldBroker(RELEASES[OLDEST], {})
    assert offsets_of(
        translated_reply(knowing(OLDEST), broker, fetching(version, [("g", None)]), version), version
    ) == (0, {})


class Hiding(OldBroker):
    """A broker that hides a topic in replies to requests for all topics, and refuses a request that names the topic."""

    def answer(self, request: Any) -> Any:
        reply = super().answer(request)
        if not request.request.topics:
            return reply
        hidden = (replace(p, committed_offset=-1, error_code=29) for t in reply.topics for p in t.partitions)
        return replace(
            reply, topics=tuple(t if t.name != "b" else replace(t, partitions=tuple(hidden)) for t in reply.topics)
        )


def test_hidden_topic_is_omitted_or_refused() -> None:
    """A hidden topic is omitted from a reply with all offsets, and has error 29 in a reply to a request that names the
    topic.
    """
    offsets = {("a", 0): CommittedOffset(1), ("b", 0): CommittedOffset(2)}
    broker = Hiding(RELEASES[OLDEST], {"g": GroupView(group_id="g", offsets=offsets)})
    assert offsets_of(translated_reply(knowing(OLDEST), broker, fetching(2, [("g", None)]), 2), 2) == (0, {("a", 0): 1})
    named = tuple(OffsetFetchRequestTopic(name=name, partition_indexes=(0,)) for name in "ab")
    reply = translated_reply(knowing(OLDEST), broker, fetching(2, [("g", named)]), 2)
    assert {t.name: (p.committed_offset, p.error_code) for t in reply.topics for p in t.partitions} == {
        "a": (1, 0),
        "b": (-1, 29),
    }


class Forgetting(OldBroker):
    """A broker that loses a group's offsets after it has returned them."""

    def answer(self, request: Any) -> Any:
        reply = super().answer(request)
        self.groups = {}
        return reply


def test_offsets_lost_meanwhile_are_omitted() -> None:
    """Offsets that disappear between the two requests to an old broker are omitted."""
    broker = Forgetting(RELEASES[OLDEST], {"g": GroupView(group_id="g", offsets={("a", 0): CommittedOffset(1)})})
    assert offsets_of(translated_reply(knowing(OLDEST), broker, fetching(2, [("g", None)]), 2), 2) == (0, {})
    assert len(broker.asked) == 2


def of(request: Struct, kind: Any) -> Any:
    """Returns a request, after asserting its type."""
    assert isinstance(request, kind)
    return request


def test_member_id_is_dropped_for_old_broker() -> None:
    """A broker whose version has no member fields still gets require_stable and returns the offsets."""
    broker = OldBroker(RELEASES["3.6.2"], {"g": GroupView(group_id="g", offsets={("a", 0): CommittedOffset(1)})})
    group = OffsetFetchRequestGroup(group_id="g", topics=None, member_id="m", member_epoch=3)
    reply = translated_reply(knowing("3.6.2"), broker, OffsetFetchRequest(groups=(group,), require_stable=True), 9)
    assert offsets_of(reply, 9) == (0, {("a", 0): 1})
    assert [of(request.request, OffsetFetchRequest).require_stable for request in broker.asked] == [True]


@pytest.mark.parametrize(("old", "version", "told_on"), [("2.8.2", 8, True), ("0.10.2.2", 7, False)])
def test_require_stable_needs_transactions(old: str, version: int, told_on: bool) -> None:
    """require_stable is forwarded only to brokers whose OffsetFetch has this field."""
    broker = OldBroker(RELEASES[old], {})
    translated_reply(knowing(old), broker, fetching(version, [("g", None)], require_stable=True), version)
    assert [of(request.request, OffsetFetchRequest).require_stable for request in broker.asked] == [told_on]


# Lists and descriptions.


class LocalAnswers(OldBroker):
    """A broker that returns prescribed errors and states for groups."""

    sends: ClassVar[dict[str, tuple[int, str]]] = {
        "forbidden": (30, ""),
        "gone": (0, "Dead"),
        "old": (0, "AwaitingSync"),
    }

    def answer(self, request: Any) -> Any:
        self.asked.append(request)
        if isinstance(request.request, ListGroupsRequest):
            names = [*self.sends, "missing"]
            groups = tuple(ListedGroup(group_id=name, protocol_type="consumer") for name in names)
            return ListGroupsResponse(error_code=14, groups=groups)
        answers = {name: self.sends[name] for name in request.request.groups if name in self.sends}
        return DescribeGroupsResponse(
            groups=tuple(
                group_replies.error_group(name, error, state=state) for name, (error, state) in answers.items()
            )
        )


@pytest.mark.parametrize("version", [4, 5])
def test_list_has_visible_states_and_error(version: int) -> None:
    """A translated list has the states that the client may see, omits Dead groups, and keeps the broker's error."""
    reply = translated_reply(knowing(OLDEST), LocalAnswers(RELEASES[OLDEST], {}), ListGroupsRequest(), version)
    assert reply.error_code == 14
    expected = {"forbidden": "", "old": "CompletingRebalance", "missing": ""}
    assert {group.group_id: group.group_state for group in reply.groups} == expected
    assert {group.group_type for group in reply.groups} == ({"classic"} if version == 5 else {""})


def test_state_filter_keeps_matching_group() -> None:
    """A state filter on a translated list returns the group that has this state."""
    request = ListGroupsRequest(states_filter=("completingrebalance", ""))
    reply = translated_reply(knowing(OLDEST), LocalAnswers(RELEASES[OLDEST], {}), request, 4)
    assert "old" in {group.group_id for group in reply.groups}


def test_states_are_requested_in_batches() -> None:
    """The states for a list are requested with at most GROUPS_PER_DESCRIBE groups per request."""
    names = [f"g{number}" for number in range(2 * GROUPS_PER_DESCRIBE + 1)]
    groups = {name: GroupView(group_id=name, state=GroupState.EMPTY) for name in names}
    broker = OldBroker(RELEASES[OLDEST], groups)
    reply = translated_reply(knowing(OLDEST), broker, ListGroupsRequest(), 4)
    assert [group.group_state for group in reply.groups] == ["Empty"] * len(names)
    sizes = [len(of(request.request, DescribeGroupsRequest).groups) for request in broker.asked[1:]]
    assert sizes == [GROUPS_PER_DESCRIBE, GROUPS_PER_DESCRIBE, 1]


@pytest.mark.parametrize("version", range(1, 4))
def test_list_without_states_needs_one_request(version: int) -> None:
    """A list in a version without states needs one request to the broker."""
    broker = LocalAnswers(RELEASES[OLDEST], {})
    assert len(translated_reply(knowing(OLDEST), broker, ListGroupsRequest(), version).groups) == 4
    assert len(broker.asked) == 1


@pytest.mark.parametrize("version", range(1, 7))
def test_description_keeps_errors_and_new_names(version: int) -> None:
    """A translated description keeps the broker's errors and uses the newer names of states."""
    request = DescribeGroupsRequest(groups=("old", "forbidden", "gone", "missing", "old"))
    reply = translated_reply(knowing(OLDEST), LocalAnswers(RELEASES[OLDEST], {}), request, version)
    assert [(group.group_id, group.error_code, group.group_state) for group in reply.groups] == [
        ("old", 0, "CompletingRebalance"),
        ("forbidden", 30, ""),
        ("gone", 69 if version == 6 else 0, "Dead"),
        ("missing", 15, ""),
        ("old", 0, "CompletingRebalance"),
    ]


@pytest.mark.parametrize(("authorizer", "operations"), [(False, 328), (True, -2147483648), (None, -2147483648)])
def test_authorized_operations_need_no_authorizer(authorizer: bool | None, operations: int) -> None:
    """A translated description contains authorized operations only if the broker is known to have no authorizer."""
    state = knowing(OLDEST)
    if authorizer is not None:
        state.learn_authorizer(authorizer)
    request = DescribeGroupsRequest(groups=("old", "forbidden"), include_authorized_operations=True)
    reply = translated_reply(state, LocalAnswers(RELEASES[OLDEST], {}), request, 3)
    assert [group.authorized_operations for group in reply.groups] == [operations, -2147483648]


def test_broker_reports_authorized_operations() -> None:
    """The sidecar requests authorized operations from a broker that can report them."""
    request = DescribeGroupsRequest(groups=("g",), include_authorized_operations=True)
    broker = OldBroker(RELEASES["2.8.2"], {"g": GroupView(group_id="g", state=GroupState.EMPTY)})
    [group] = translated_reply(knowing("2.8.2"), broker, request, 6).groups
    assert group.authorized_operations == group_replies.ALL_OPERATIONS
    assert broker.asked == [BrokerRequest(request, 5)]


# Unusable replies of the broker.


@EACH
def test_unreadable_reply_gets_error_15(old: str, key: int, version: int) -> None:
    """After an unreadable reply of the broker, the client gets error 15 for the reply or for each group."""
    requests = {
        LIST: ListGroupsRequest(),
        DESCRIBE: DescribeGroupsRequest(groups=("g", "h")),
        FETCH: fetching(version, [("g", None), ("h", None)]),
    }
    state = knowing(old)
    steps = translate(requests[ApiKey(key)], version, state.versions, state.authorizer_state)
    next(steps)
    with pytest.raises(StopIteration) as done:
        steps.throw(UnreadableReply())
    reply: Any = decode(APIS[key].response, version, encode(done.value.value, version))
    whole = key == LIST or (key == FETCH and version < 8)
    assert [each.error_code for each in ([reply] if whole else reply.groups)] == [15] * (1 if whole else 2)
