"""Tests commits with refused partitions: the broker's request, the client's reply, and the offsets in the copy."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.headers import RequestHeader, decode_request_header, encode_reply, encode_request
from group_sidecar.codecs.messages.end_txn import EndTxnRequest, EndTxnResponse
from group_sidecar.codecs.schema import decode
from group_sidecar.coordinator.model.facts import ClientRefused, Fact, OffsetsCommitted
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.policies.offset_metadata_max_bytes import utf16_units
from group_sidecar.policies.verdicts import RefusePartitions
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.commands import ToClient, ToUpstream
from group_sidecar.proxy.dataplane.outcomes import Forward
from group_sidecar.proxy.handlers import partial_commit
from group_sidecar.proxy.handlers.api_table import ApiTable, make_reply_builder
from group_sidecar.proxy.handlers.disconnect import Disconnector
from group_sidecar.proxy.handlers.partial_commit import PartialCommit, without_refused_partitions
from group_sidecar.proxy.runtime.addresses import Address
from tests.codecs.declarations import inner_struct
from tests.codecs.declarations import present as fields_of
from tests.proxy.dataplane.playbook import (
    EPOCH,
    Line,
    access_of,
    complete_state,
    framed,
    pieces,
    reply,
    request,
    to_client,
    to_upstream,
)

LIMIT = 4
SHORT, LONG = "note", "notes"
COMMIT, TXN_COMMIT = int(ApiKey.OFFSET_COMMIT), int(ApiKey.TXN_OFFSET_COMMIT)
NAMES = {name: UUID(int=number + 1) for number, name in enumerate("abcz")}
TAGS = ((5000, b"tag"),)
Asked = Sequence[tuple[str, Sequence[tuple[int, str | None]]]]
"""Topics with their partitions and the metadata of each."""
Told = list[tuple[str, list[tuple[int, int]]]]
"""Topics with their partitions and the error of each."""

MIXED: Asked = [
    ("b", [(2, SHORT), (0, LONG), (1, None)]),
    ("a", [(0, LONG)]),
    ("c", [(1, "😀😀"), (0, "😀😀😀")]),
]
REST: Asked = [("b", [(2, SHORT), (1, None)]), ("c", [(1, "😀😀")])]
REFUSED: Told = [("b", [(2, 0), (0, 12), (1, 0)]), ("a", [(0, 12)]), ("c", [(1, 0), (0, 12)])]


both = pytest.mark.parametrize(("key", "version"), [(COMMIT, 8), (COMMIT, 10), (TXN_COMMIT, 3), (TXN_COMMIT, 6)])
EACH = [
    pytest.param(key, version, id=f"{APIS[key].name}-{version}")
    for key in (COMMIT, TXN_COMMIT)
    for version in APIS[key].versions
]


def limited(facts: list[Fact] | None = None, mode: str = "enforce", **settings: Any) -> BrokerState:
    """Returns the state of a broker with a limit on offset metadata."""
    policies = {"offset_metadata_max_bytes": {"limit": LIMIT, "mode": mode}}
    state = complete_state((lambda fact: None) if facts is None else facts.append, policies=policies, **settings)
    state.topic_names.learn({topic_id: name for name, topic_id in NAMES.items()})
    return state


def elements(message: type, field: str, version: int, values: Sequence[dict[str, Any]]) -> tuple[Any, ...]:
    """Returns the structs of an array field, without the fields that the version lacks."""
    element = inner_struct(fields_of(message, version)[field].kind)
    assert element is not None
    known = fields_of(element, version)
    return tuple(element(**{name: value for name, value in each.items() if name in known}) for each in values)


def topics(message: type, version: int, listed: Sequence[tuple[str, Sequence[dict[str, Any]]]]) -> tuple[Any, ...]:
    """Returns the topics of a request or a reply."""
    (topic,) = {inner_struct(fields_of(message, version)["topics"].kind)}
    assert topic is not None
    entries = [
        {"name": name, "topic_id": NAMES[name], "partitions": elements(topic, "partitions", version, partitions)}
        for name, partitions in listed
    ]
    return elements(message, "topics", version, entries)


def commit(key: int, version: int, requested: Asked, **fields: Any) -> Any:
    """Returns a commit. Each offset encodes the position of its partition in the request."""
    kind: Any = APIS[key].request
    listed = [
        (
            name,
            [
                {"partition_index": index, "committed_offset": 10 * at + place, "committed_metadata": note}
                for place, (index, note) in enumerate(partitions)
            ],
        )
        for at, (name, partitions) in enumerate(requested)
    ]
    own = {"transactional_id": "x", "producer_id": 7, "producer_epoch": 0} if key == TXN_COMMIT else {}
    return kind(group_id="g", topics=topics(kind, version, listed), **own, **fields)


def answer(key: int, version: int, results: Told) -> Any:
    """Returns the reply to a commit."""
    kind: Any = APIS[key].response
    listed = [
        (name, [{"partition_index": index, "error_code": code} for index, code in partitions])
        for name, partitions in results
    ]
    throttle = {"throttle_time_ms": 5} if "throttle_time_ms" in fields_of(kind, version) else {}
    return kind(topics=topics(kind, version, listed), **throttle)


def listing(message: Any) -> Told:
    """Returns the error codes of a reply by topic and partition."""
    names = {topic_id: name for name, topic_id in NAMES.items()}
    return [
        (topic.name or names[topic.topic_id], [(p.partition_index, p.error_code) for p in topic.partitions])
        for topic in message.topics
    ]


def fine(requested: Asked, code: int = 0) -> Told:
    """Returns the same error code for all partitions of a commit."""
    return [(name, [(index, code) for index, _ in partitions]) for name, partitions in requested]


def commits(line: Line, key: int, version: int, requested: Asked, results: Told, **fields: Any) -> Told:
    """Sends a commit, to which the broker replies with `results`. Returns the error codes that the client gets."""
    message = commit(key, version, requested, **fields)
    assert to_client(line.sends(message, version)) == b""
    return listing(line.reads_reply(line.broker_replies(answer(key, version, results), version), message, version))


def stored(state: BrokerState, group: str = "g") -> dict[tuple[str, int], int]:
    """Returns the offsets in the copy."""
    return {place: offset.offset for place, offset in state.copy.manager.view(group, EPOCH + 100).offsets.items()}


# Forwarded partitions, and the reply.


@pytest.mark.parametrize(("key", "version"), EACH)
def test_broker_gets_allowed_partitions_only(key: int, version: int) -> None:
    """The broker gets only the allowed partitions, and the client's reply contains all partitions with their errors."""
    facts: list[Fact] = []
    state = limited(facts)
    line, message = Line(state), commit(key, version, MIXED)
    rest = replace(
        message,
        topics=tuple(
            replace(message.topics[at], partitions=tuple(message.topics[at].partitions[index] for index in kept))
            for at, kept in ((0, (0, 2)), (2, (0,)))
        ),
    )
    commands = line.sends(message, version)
    assert commands == [ToUpstream(encode_request(rest, RequestHeader(key, version, 1, "client")))]
    refusal = ClientRefused(
        group_id="g",
        at=EPOCH + line.now,
        policy="offset_metadata_max_bytes",
        error_code=12,
        client_id="client",
        client_host="/10.0.0.1",
        size=6,
        limit=LIMIT,
    )
    assert facts == [refusal]
    assert state.traffic.policy_rejections == {("offset_metadata_max_bytes", 12): 1}
    heard = line.reads_reply(line.broker_replies(answer(key, version, fine(REST)), version), message, version)
    assert heard == answer(key, version, REFUSED)
    assert sum(state.traffic.durations[key].counts) == 1
    assert state.traffic.decode_failures == {}


@pytest.mark.parametrize(("key", "version"), EACH)
def test_copy_learns_allowed_partitions_only(key: int, version: int) -> None:
    """The copy learns the offsets of the allowed partitions only."""
    facts: list[Fact] = []
    state = limited(facts)
    line = Line(state)
    commits(line, key, version, MIXED, fine(REST))
    if key == TXN_COMMIT:
        ending = EndTxnRequest(transactional_id="x", producer_id=7, producer_epoch=0, committed=True)
        line.exchange(ending, EndTxnResponse(throttle_time_ms=0, error_code=0), 0)
    elif version:
        assert [(fact.accepted, fact.refused) for fact in facts if isinstance(fact, OffsetsCommitted)] == [(3, ())]
    # OffsetCommit v0 stores offsets in ZooKeeper.
    assert stored(state) == ({("b", 2): 0, ("b", 1): 2, ("c", 1): 20} if key == TXN_COMMIT or version else {})


@pytest.mark.parametrize(("key", "version"), EACH)
def test_ordered_reply_needs_no_lookup(key: int, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply in the order of the request is merged without a lookup for each partition."""
    looked_up: list[Any] = []

    class LookedUp(partial_commit._BrokerReply):
        def __init__(self, reply: Any) -> None:
            looked_up.append(reply)
            super().__init__(reply)

    monkeypatch.setattr(partial_commit, "_BrokerReply", LookedUp)
    assert commits(Line(limited()), key, version, MIXED, fine(REST)) == REFUSED
    assert looked_up == []
    swapped = [REST[1], REST[0]]
    assert commits(Line(limited()), key, version, MIXED, fine(swapped)) == REFUSED
    assert len(looked_up) == 1


def test_long_partial_reply_teaches_nothing() -> None:
    """A reply with too many partitions is merged for the client, but the copy does not learn its offsets."""
    for partitions, learnt in ((99, True), (100, False)):
        state = limited(limits={"inspected_elements": 100})
        sent = [(index, "") for index in range(partitions)]
        results = commits(Line(state), COMMIT, 8, [("b", [*sent, (partitions, LONG)])], fine([("b", sent)]))
        assert results == [("b", [*((index, 0) for index, _ in sent), (partitions, 12)])]
        assert bool(stored(state)) is learnt
        assert (state.copy.manager.view("g", EPOCH + 100).offsets_fallback_reason is None) is learnt


@pytest.mark.parametrize(("key", "version"), EACH)
def test_commit_within_limit_is_unchanged(key: int, version: int) -> None:
    """A commit without overlong metadata and its reply pass unchanged."""
    state = limited()
    requested: Asked = [("b", [(2, SHORT), (0, None), (0, "")]), ("a", []), ("b", [(1, "😀😀")])]
    line = Line(state)
    frame = framed(line.frame(commit(key, version, requested), version)[4:] + b"more")
    assert line.client(frame) == [ToUpstream(frame)]
    reply_frame = framed(encode_reply(answer(key, version, [("a", [(9, 3)])]), version, 1)[4:] + b"more")
    assert line.upstream(reply_frame) == [ToClient(reply_frame)]
    assert state.traffic.policy_evaluations == {"offset_metadata_max_bytes": 1}
    assert state.traffic.policy_rejections == {}


@pytest.mark.parametrize(("key", "version"), EACH)
def test_fully_refused_commit_is_local(key: int, version: int) -> None:
    """A commit with no allowed partition is answered locally, after the replies to earlier requests."""
    state = limited()
    requested: Asked = [("b", [(2, LONG), (0, LONG)]), ("c", []), ("b", [(2, LONG)])]
    line, message = Line(state), commit(key, version, requested)
    before = request(1, 90)
    assert line.client(before, line.frame(message, version)) == [ToUpstream(before)]
    commands = line.upstream(reply(90))
    assert commands[0] == ToClient(reply(90))
    heard = line.reads_reply(commands[1:], message, version)
    assert listing(heard) == [("b", [(2, 12), (0, 12)]), ("c", []), ("b", [(2, 12)])]
    assert getattr(heard, "throttle_time_ms", 0) == 0
    assert stored(state) == {}
    assert state.traffic.policy_rejections == {("offset_metadata_max_bytes", 12): 1}


@pytest.mark.parametrize(("key", "version"), [(COMMIT, 8), (COMMIT, 10), (TXN_COMMIT, 5)])
@pytest.mark.parametrize("client_id", [None, "", "é"])
def test_reduced_commit_keeps_other_fields(key: int, version: int, client_id: str | None) -> None:
    """The reduced commit keeps all other fields, tags and the header of the client's request."""
    message = commit(key, version, [("a", [(0, LONG), (1, SHORT)])], group_instance_id="i", member_id="m")
    message = replace(
        message,
        unknown_tags=TAGS,
        topics=tuple(
            replace(topic, unknown_tags=TAGS, partitions=tuple(replace(p, unknown_tags=TAGS) for p in topic.partitions))
            for topic in message.topics
        ),
    )
    line, header = Line(limited()), RequestHeader(key, version, -5, client_id, TAGS)
    frame = to_upstream(line.client(encode_request(message, header)))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    got, body = decode_request_header(frame[4:], flexible=True)
    assert got == header
    (topic,) = message.topics
    rest = replace(message, topics=(replace(topic, partitions=topic.partitions[1:]),))
    assert decode(type(message), version, body) == rest


@both
def test_merged_reply_keeps_broker_fields(key: int, version: int) -> None:
    """The merged reply keeps the broker's other fields, its tags and its trailing bytes."""
    line, message = Line(limited()), commit(key, version, [("a", [(0, LONG), (1, SHORT)])])
    line.sends(message, version)
    response = answer(key, version, [("a", [(1, 0)])])
    response = replace(
        response,
        unknown_tags=TAGS,
        topics=tuple(
            replace(topic, unknown_tags=TAGS, partitions=tuple(replace(p, unknown_tags=TAGS) for p in topic.partitions))
            for topic in response.topics
        ),
    )
    frame = encode_reply(response, version, 1)
    assert frame[8] == 0  # Its header has no tags.
    frame = framed(frame[4:8] + b"\1\2\3abc" + frame[9:] + b"more")
    (command,) = line.upstream(frame)
    assert isinstance(command, ToClient)
    assert command.data[4:14] == frame[4:14]
    assert command.data.endswith(b"more")
    heard = decode(type(response), version, command.data[14:-4])
    assert listing(heard) == [("a", [(0, 12), (1, 0)])]
    assert (heard.throttle_time_ms, heard.unknown_tags, heard.topics[0].unknown_tags) == (5, TAGS, TAGS)
    assert [partition.unknown_tags for partition in heard.topics[0].partitions] == [(), TAGS]


def test_gateway_reduces_commits_too() -> None:
    """A gateway withholds partitions with overlong metadata too."""
    line = Line(limited(advertise=lambda node: Address("gateway", node)))
    assert commits(line, COMMIT, 7, MIXED, fine(REST)) == REFUSED


def test_audit_mode_forwards_whole_commit() -> None:
    """In audit mode, the whole commit passes, and the refusal is recorded as not enforced."""
    facts: list[Fact] = []
    state = limited(facts, mode="audit")
    line = Line(state)
    line.exchange(commit(COMMIT, 7, MIXED), answer(COMMIT, 7, fine(MIXED)), 7)
    assert [fact.enforced for fact in facts if isinstance(fact, ClientRefused)] == [False]
    assert len(stored(state)) == 6


# Other errors.


@both
@pytest.mark.parametrize("code", [14, 15, 16, 22, 25, 27, 28, 30, 47, 48, 69, 82, 110, 113, 120, -1])
def test_error_of_whole_commit_applies_to_all(key: int, version: int, code: int) -> None:
    """An error of the whole commit appears on all partitions, withheld ones included."""
    assert commits(Line(limited()), key, version, MIXED, fine(REST, code)) == fine(MIXED, code)


@both
def test_broker_metadata_error_stays_on_partition(key: int, version: int) -> None:
    """The broker's own metadata error is not copied to the withheld partitions."""
    whole = commit(key, version, [("a", [(0, LONG), (1, SHORT), (1, "")])])
    exchange = Exchange(request=whole, version=version, token="1:1", client_id="", client_host="", sent_at=0)
    refusal = RefusePartitions(error_code=42, sizes={(0, 0): 5}, limit=LIMIT)
    state = limited()
    replies = ApiTable(state, access_of(state), make_reply_builder(state), Disconnector()).replies
    way = without_refused_partitions(exchange, RequestHeader(key, version, 1), refusal, replies)
    assert isinstance(way, Forward)
    assert isinstance(way.pending, PartialCommit)
    results = way.pending.merge_reply(answer(key, version, [("a", [(1, 12), (1, 0)])]))
    assert listing(results) == [("a", [(0, 42), (1, 12), (1, 0)])]


@pytest.mark.parametrize(
    ("requested", "broker", "client"),
    [
        pytest.param(
            [("a", [(0, LONG), (1, SHORT)]), ("z", [(0, SHORT), (1, LONG)]), ("b", [(0, SHORT)])],
            [("z", [(0, 3)]), ("a", [(1, 0)]), ("b", [(0, 0)])],
            [("z", [(0, 3), (1, 3)]), ("a", [(0, 12), (1, 0)]), ("b", [(0, 0)])],
            id="a topic that is not there",
        ),
        pytest.param(
            [("b", [(0, LONG)]), ("a", [(0, LONG), (7, SHORT), (9, SHORT), (6, LONG), (8, LONG), (1, SHORT)])],
            [("a", [(7, 3), (9, 3), (1, 0)])],
            [("a", [(7, 3), (9, 3), (8, 3), (0, 12), (6, 12), (1, 0)]), ("b", [(0, 12)])],
            id="partitions that are not there",
        ),
        pytest.param(
            [("b", [(0, SHORT)]), ("a", [(0, LONG), (9, SHORT)]), ("b", [(1, LONG)])],
            [("a", [(9, 3)]), ("b", [(0, 0)])],
            [("a", [(9, 3), (0, 12)]), ("b", [(0, 0), (1, 12)])],
            id="and a topic twice",
        ),
        pytest.param(
            [("a", [(0, LONG), (1, SHORT)]), ("z", [(0, LONG), (1, SHORT)])],
            [("z", [(1, 29)]), ("a", [(1, 0)])],
            [("z", [(0, 29), (1, 29)]), ("a", [(0, 12), (1, 0)])],
            id="a topic that may not be read",
        ),
        pytest.param(
            [("a", [(0, LONG), (1, SHORT)]), ("z", [(0, LONG), (1, SHORT)])],
            [("z", [(1, 100)]), ("a", [(1, 25)])],
            [("z", [(0, 100), (1, 100)]), ("a", [(0, 25), (1, 25)])],
            id="a topic id that nobody has, and a member too",
        ),
        pytest.param(
            [("z", [(1, SHORT)]), ("a", [(0, LONG)])],
            [("z", [(1, 3)])],
            [("z", [(1, 3)]), ("a", [(0, 12)])],
            id="nothing left that is there",
        ),
    ],
)
@both
def test_missing_partition_error_comes_first(
    key: int, version: int, requested: Asked, broker: Told, client: Told
) -> None:
    """Withheld partitions of topics or partitions that the broker rejects get the broker's error, in the broker's
    order.
    """
    assert commits(Line(limited()), key, version, requested, broker) == client


@both
def test_repeated_partitions_are_answered_each(key: int, version: int) -> None:
    """A partition that a commit names several times gets one result for each occurrence."""
    state = limited()
    requested: Asked = [
        ("a", [(0, SHORT), (0, LONG), (0, "last")]),
        ("b", [(0, LONG)]),
        ("a", [(0, LONG), (1, SHORT)]),
    ]
    rest = [("a", [(0, 0), (0, 0)]), ("a", [(1, 0)])]
    whole = [("a", [(0, 0), (0, 12), (0, 0)]), ("b", [(0, 12)]), ("a", [(0, 12), (1, 0)])]
    assert commits(Line(state), key, version, requested, rest) == whole
    if key == COMMIT:
        assert stored(state) == {("a", 0): 2, ("a", 1): 21}


@both
def test_broker_merges_repeated_partitions(key: int, version: int) -> None:
    """The merged reply is complete if the broker answers a repeated partition once and reorders topics, as before Kafka
    3.5.
    """
    requested: Asked = [("b", [(1, SHORT)]), ("a", [(0, SHORT), (1, LONG), (0, SHORT)])]
    results = commits(Line(limited()), key, version, requested, [("a", [(0, 0)]), ("b", [(1, 0)])])
    assert results == [("b", [(1, 0)]), ("a", [(0, 0), (1, 12), (0, 0)])]


def test_partition_missing_in_reply_is_left_out() -> None:
    """A partition that is missing in the broker's reply is missing in the merged reply."""
    results = commits(Line(limited()), COMMIT, 7, [("a", [(0, SHORT), (1, LONG), (2, SHORT)])], [("a", [(2, 0)])])
    assert results == [("a", [(1, 12), (2, 0)])]


def test_pipelined_commits_are_answered_in_order() -> None:
    """Commits sent in one chunk are answered in order, whether whole, reduced or answered locally."""
    state = limited()
    line = Line(state)
    plans: list[Asked] = [
        MIXED,
        [("a", [(0, SHORT)])],
        MIXED,
        [("a", [(0, LONG)])],
        [("b", [(5, SHORT), (6, LONG)])],
    ]
    frames = [line.frame(commit(COMMIT, 8, plan), 8) for plan in plans]
    without_refused_partitions = line.client(*frames)
    assert [type(command) for command in without_refused_partitions] == [ToUpstream] * 3
    assert without_refused_partitions[1] == ToUpstream(frames[1])
    replies = [encode_reply(answer(COMMIT, 8, fine(rest)), 8, n) for n, rest in ((1, REST), (2, plans[1]), (3, REST))]
    commands = [command for piece in pieces(b"".join(replies), 7) for command in line.upstream(piece)]
    heard = [command.data for command in commands if isinstance(command, ToClient)]
    assert heard == [
        encode_reply(answer(COMMIT, 8, REFUSED), 8, 1),
        replies[1],
        encode_reply(answer(COMMIT, 8, REFUSED), 8, 3),
        encode_reply(replace(answer(COMMIT, 8, [("a", [(0, 12)])]), throttle_time_ms=0), 8, 4),
    ]
    assert to_upstream(commands) == encode_request(
        commit(COMMIT, 8, [("b", [(5, SHORT)])]), RequestHeader(COMMIT, 8, 5, "client")
    )
    assert stored(state) == {("b", 2): 0, ("b", 1): 2, ("c", 1): 20, ("a", 0): 0}


# Failures.


@both
def test_unreadable_reply_asks_client_to_retry(key: int, version: int, capsys: pytest.CaptureFixture[str]) -> None:
    """After an unreadable reply, all partitions get error 15, and the group's offsets become incomplete."""
    state = limited()
    line, message = Line(state), commit(key, version, MIXED)
    line.sends(message, version)
    commands = line.upstream(reply(1, b"\0\xff\xff"))
    assert listing(line.reads_reply(commands, message, version)) == fine(MIXED, 15)
    assert state.traffic.decode_failures == {key: 1}
    assert state.copy.manager.view("g", EPOCH + 100).offsets_fallback_reason is not None
    assert "not understood" in capsys.readouterr().out


def test_lost_reply_doubts_forwarded_partitions() -> None:
    """A lost reply leaves only the forwarded partitions in doubt, until a new commit of these partitions."""
    state = limited()
    line = Line(state)
    line.exchange(commit(COMMIT, 7, fine_notes(MIXED)), answer(COMMIT, 7, fine(MIXED)), 7)
    line.sends(commit(COMMIT, 7, MIXED), 7)
    line.upstream_closed()
    assert state.copy.manager.view("g", EPOCH + 100).offsets_fallback_reason is FallbackReason.IN_DOUBT
    line = Line(state)
    line.now += 100
    line.exchange(commit(COMMIT, 7, REST), answer(COMMIT, 7, fine(REST)), 7)
    assert state.copy.manager.view("g", EPOCH + 150).offsets_fallback_reason is None


def fine_notes(requested: Asked) -> Asked:
    """Returns a commit's partitions with short metadata."""
    return [(name, [(index, SHORT) for index, _ in partitions]) for name, partitions in requested]


def test_failed_reduction_forwards_whole_commit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If reducing a commit fails, the error is logged and the whole commit passes unchanged."""

    def fails(*_: object) -> bytes:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(partial_commit, "encode_request", fails)
    line = Line(limited())
    line.exchange(commit(COMMIT, 7, MIXED), answer(COMMIT, 7, fine(MIXED)), 7)
    assert "a fault of ours" in capsys.readouterr().out


# Random commits.


def kafka(key: int, version: int, message: Any, limit: int | None, there: Mapping[str, int], code: int) -> Told:
    """Returns the reply of Kafka 4 to a commit, as KafkaApis, the coordinator and OffsetCommitResponse.Builder make it.

    `limit` is the coordinator's limit on metadata. `there` is the number of partitions of each topic, or -1 if the
    client may not read the topic. `code` is the error of the whole commit.
    """
    names = {topic_id: name for name, topic_id in NAMES.items()}
    built: Told = []
    coordinators: Told = []
    for topic in message.topics:
        name = topic.name or names[topic.topic_id]
        absent = 29 if there[name] < 0 else 100 if version > 9 and not there[name] else 3
        fit: list[tuple[int, int]] = []
        for p in topic.partitions:
            if p.partition_index >= there[name]:
                merge(built, name, (p.partition_index, absent))
            elif limit is not None and not code and utf16_units(p.committed_metadata or "") > limit:
                fit.append((p.partition_index, 12))
            else:
                fit.append((p.partition_index, code))
        if fit:
            coordinators.append((name, fit))
    if not built:
        return coordinators
    for name, fit in coordinators:
        for results in fit:
            merge(built, name, results)
    return built


def merge(built: Told, name: str, results: tuple[int, int]) -> None:
    entry = next((partitions for topic, partitions in built if topic == name), None)
    if entry is None:
        built.append((name, [results]))
    else:
        entry.append(results)


notes = st.sampled_from([None, "", SHORT, LONG, "😀😀", "😀😀😀"])
partitions = st.lists(st.tuples(st.integers(0, 3), notes), max_size=4)
anything = st.lists(st.tuples(st.sampled_from("abc"), partitions), max_size=4)


def certainly_known(requested: Asked, there: Mapping[str, int], code: int) -> bool:
    """Whether the broker's reply about the other partitions determines its errors for the withheld ones."""
    rest = [(name, i) for name, partitions in requested for i, note in partitions if utf16_units(note or "") <= LIMIT]
    withheld = [
        (name, i) for name, partitions in requested for i, note in partitions if utf16_units(note or "") > LIMIT
    ]
    if code and withheld and not any(i < there[name] for name, i in rest):
        return False
    return all(
        i < there[name] or any(topic == name and (there[name] < 0 or there[name] <= j <= i) for topic, j in rest)
        for name, i in withheld
    )


@pytest.mark.parametrize(("key", "version"), [(COMMIT, 7), (COMMIT, 10), (TXN_COMMIT, 5)])
@given(
    requested=anything,
    there=st.fixed_dictionaries(dict.fromkeys("abc", st.sampled_from([4, 4, 2, 0, -1]))),
    code=st.sampled_from([0, 0, 25]),
)
def test_any_commit_matches_broker_with_limit(
    key: int, version: int, requested: Asked, there: Mapping[str, int], code: int
) -> None:
    """For any commit, the broker gets no overlong metadata, and the reply matches that of a Kafka broker with the
    limit.
    """
    line, message = Line(limited()), commit(key, version, requested)
    commands = line.sends(message, version)
    if frame := to_upstream(commands):
        _, body = decode_request_header(frame[4:], APIS[key].flexible(version))
        got = decode(type(message), version, body)
        assert all(utf16_units(p.committed_metadata or "") <= LIMIT for t in got.topics for p in t.partitions)
        commands = line.broker_replies(answer(key, version, kafka(key, version, got, None, there, code)), version)
    heard = listing(line.reads_reply(commands, message, version))
    places = sorted((name, index) for name, partitions in requested for index, _ in partitions)
    assert sorted((name, index) for name, partitions in heard for index, _ in partitions) == places
    if certainly_known(requested, there, code):
        expected = kafka(key, version, message, LIMIT, there, code)
        assert [each for each in heard if each[1]] == expected
