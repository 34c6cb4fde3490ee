"""Replies that the dispatcher reads for their contents: handshakes, versions, names and addresses."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.headers import encode_reply
from group_sidecar.codecs.messages.api_versions import (
    KAFKA_0_9,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from group_sidecar.codecs.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataResponse
from group_sidecar.codecs.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.codecs.schema import decode
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.broker import address_rewrite
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.commands import Close, ToClient, ToUpstream
from group_sidecar.proxy.dataplane.held_request_budget import UNAUTHENTICATED_FRAME
from group_sidecar.proxy.handlers.reply_rewriter import ADDRESS_APIS, LARGEST_METADATA
from tests.codecs.declarations import full_sample, limited_to
from tests.proxy.dataplane.playbook import Line, broker_state, framed, reply, request, to_client, to_upstream

TOPIC_ID = UUID(int=5)


def telling(key: int, version: int) -> Any:
    """Returns a reply with a value in every field."""
    return limited_to(full_sample(APIS[key].response), version)


# SaslHandshake.


def handshake(mechanism: str, error_code: int = 0, version: int = 0) -> Line:
    """Returns a connection whose handshake was answered."""
    line = Line(broker_state())
    message = SaslHandshakeRequest(mechanism=mechanism)
    line.exchange(message, SaslHandshakeResponse(error_code=error_code, mechanisms=("PLAIN", mechanism)), version)
    return line


@pytest.mark.parametrize(("mechanism", "rounds"), [("PLAIN", 1), ("SCRAM-SHA-256", 2), ("SCRAM-SHA-512", 2)])
def test_raw_tokens_are_counted_by_mechanism(mechanism: str, rounds: int) -> None:
    line = handshake(mechanism)
    for _ in range(rounds):
        assert line.client(framed(b"t")) == [ToUpstream(framed(b"t"))]
        assert line.upstream(framed(b"")) == [ToClient(framed(b""))]
    assert isinstance(line.client(framed(b"t"))[-1], Close)


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER", "plain", ""])
def test_other_mechanisms_make_connection_opaque(mechanism: str) -> None:
    """After a handshake with a mechanism of unknown token count, the client's bytes pass unparsed."""
    line = handshake(mechanism)
    for number in range(5):
        assert line.client(b"\0" * number + b"x") == [ToUpstream(b"\0" * number + b"x")]


@pytest.mark.parametrize(("mode", "closed"), [("enforce", True), ("audit", False)])
def test_enforced_policy_closes_opaque_mechanism(mode: str, closed: bool) -> None:
    """A policy in enforce mode closes a connection that its mechanism would make opaque, and in audit mode keeps it."""
    line = Line(broker_state(policies={"group_max_size": {"limit": 1, "mode": mode}}))
    line.sends(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 0)
    reply_frame = encode_reply(SaslHandshakeResponse(error_code=0, mechanisms=()), 0, 1)
    assert (line.upstream(reply_frame) == [Close(CloseReason.UNREADABLE)]) is closed


@pytest.mark.parametrize("key", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
def test_sasl_reply_length_limit(key: int) -> None:
    """A SASL reply is held up to the length of an unauthenticated frame, and a longer reply closes the connection."""
    for size, closed in ((UNAUTHENTICATED_FRAME, False), (UNAUTHENTICATED_FRAME + 1, True)):
        line = Line(broker_state())
        line.client(request(key, 1, version=1, body=b"\0\0\0\0"))
        commands = line.upstream(framed(reply(1)[4:].ljust(size, b"\0"))[:2000])
        assert (commands == [Close(CloseReason.UNREADABLE)]) is closed
        assert (line.session.held_bytes == 0) is closed


@pytest.mark.parametrize(("error_code", "version"), [(33, 0), (0, 1), (33, 1)])
def test_no_raw_tokens_after_refusal_or_v1(error_code: int, version: int) -> None:
    """After a refused handshake or a handshake of version 1, the client's bytes are parsed as frames."""
    line = handshake("PLAIN", error_code, version)
    assert line.client(framed(b"")) == [Close(CloseReason.BAD_FRAME_LENGTH)]


@pytest.mark.parametrize(("body", "reply_body"), [(b"\0\x63PLAIN", b"\0\0\0\0\0\0"), (b"\0\5PLAIN", b"\0")])
def test_unreadable_handshake_makes_opaque(body: bytes, reply_body: bytes) -> None:
    """A handshake with an unreadable request or reply counts as a decode failure and makes the connection opaque."""
    state = broker_state()
    line, frame = Line(state), request(ApiKey.SASL_HANDSHAKE, 1, body=body)
    assert line.client(frame) == [ToUpstream(frame)]
    assert line.upstream(reply(1, reply_body)) == [ToClient(reply(1, reply_body))]
    assert line.client(b"anything") == [ToUpstream(b"anything")]
    assert state.traffic.decode_failures == {ApiKey.SASL_HANDSHAKE: 1}


def test_overlong_handshake_makes_opaque() -> None:
    """After a handshake longer than limits.inspected_frame, the client's bytes pass unparsed."""
    state = broker_state(limits={"inspected_frame": 1024})
    line, frame = Line(state), request(ApiKey.SASL_HANDSHAKE, 1, body=bytes(1100))
    assert to_upstream(line.client(frame)) == frame
    assert to_client(line.upstream(reply(1, bytes(6)))) == reply(1, bytes(6))
    assert line.client(b"anything") == [ToUpstream(b"anything")]


# Metadata without rewriting.


def names(version: int, topics: int = 1) -> MetadataResponse:
    response = telling(ApiKey.METADATA, version)
    named = replace(response.topics[0], topic_id=TOPIC_ID, name="t")
    return limited_to(replace(response, topics=(named,) * topics), version)  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", MetadataResponse.VERSIONS)
def test_metadata_passes_and_teaches_topic_names(version: int) -> None:
    """A Metadata reply passes unchanged and teaches the copy the names of topic ids."""
    state = broker_state()
    Line(state).exchange(MetadataRequest(topics=()), names(version), version)
    assert state.topic_names.by_id == ({TOPIC_ID: "t"} if version >= 10 else {})
    assert state.traffic.decode_failures == {}


def test_long_metadata_streams() -> None:
    state = broker_state()
    line, reply_frame = Line(state), encode_reply(names(12, topics=2000), 12, 1)
    line.sends(MetadataRequest(topics=()), 12)
    assert len(reply_frame) > LARGEST_METADATA
    assert line.upstream(reply_frame[:1000]) == [ToClient(reply_frame[:1000])]
    assert line.upstream(reply_frame[1000:]) == [ToClient(reply_frame[1000:])]
    assert state.traffic.decode_failures == {}
    assert state.topic_names.by_id == {}


@pytest.mark.parametrize("key", [ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER, ApiKey.PRODUCE])
def test_addresses_are_not_read_without_gateway(key: int) -> None:
    """Without a gateway, replies with addresses pass without being held."""
    line, version = Line(broker_state()), APIS[key].versions[-1]
    assert line.client(request(key, 1, version=version, body=b"\0\0\xff\xff"))
    reply_frame = encode_reply(telling(key, version), version, 1)
    assert line.upstream(reply_frame[:20]) == [ToClient(reply_frame[:20])]


# Rewriting of a gateway.


def gateway(**settings: Any) -> BrokerState:
    """Returns the state of a broker behind a gateway, which maps node N to port 20000 + N."""
    return broker_state(advertise=lambda node, host, port: ("gateway", 20_000 + abs(node)), **settings)


def send_request(line: Line, key: int, version: int) -> None:
    """Sends a request of this API. A Produce request has acks=-1."""
    assert line.client(request(key, 1, version=version, body=b"\0\0\xff\xff" if version >= 9 else b"\xff\xff" * 2))


@pytest.mark.parametrize(
    ("key", "version"), [(key, version) for key in sorted(ADDRESS_APIS) for version in APIS[key].versions]
)
def test_gateway_rewrites_only_addresses(key: int, version: int) -> None:
    """A gateway rewrites the addresses in every version of each reply and leaves all other bytes unchanged."""
    state = gateway()
    line, response = Line(state), telling(key, version)
    send_request(line, key, version)
    tags = b"\1\7\2hi" if version >= APIS[key].response.HEADER_FLEXIBLE else b""
    header = (1).to_bytes(4, "big") + tags
    sent = to_client(line.upstream(framed(header + encode_reply(response, version, 1)[8 + bool(tags) :] + b"rest")))
    assert int.from_bytes(sent[:4], "big") == len(sent) - 4
    assert sent[4 : 4 + len(header)] == header
    assert sent.endswith(b"rest")
    rewritten = decode(APIS[key].response, version, sent[4 + len(header) : -4])
    assert state.advertise is not None
    assert rewritten == address_rewrite.rewrite_addresses(response, state.advertise)
    assert (rewritten == response) is (key == ApiKey.PRODUCE and version < 10)
    assert state.traffic.decode_failures == {}


@pytest.mark.parametrize("key", sorted(ADDRESS_APIS))
def test_unreadable_gateway_reply_closes(key: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A gateway closes the connection if a reply is unreadable, so that no unrewritten address reaches a client."""
    version = APIS[key].versions[-1]
    for reply_frame in (framed(encode_reply(telling(key, version), version, 1)[4:-1]), reply(1)):
        state = gateway()
        line = Line(state)
        send_request(line, key, version)
        assert line.upstream(reply_frame) == [Close(CloseReason.UNREADABLE)]
        assert state.traffic.decode_failures == {key: 1}
        output = capsys.readouterr().out
        assert "a reply was not understood, and its connection is closed" in output
        assert "passed on" not in output


@pytest.mark.parametrize(("keys", "closed"), [(700, False), (701, True)])
def test_gateway_closes_reply_of_many_addresses(keys: int, closed: bool) -> None:
    """A gateway closes the connection instead of decoding a FindCoordinator reply with too many addresses."""
    state = gateway(limits={"inspected_elements": 100})
    line = Line(state)
    send_request(line, ApiKey.FIND_COORDINATOR, 4)
    found = tuple(
        Coordinator(key=f"g{n}", node_id=1, host="kafka-1", port=9092, error_code=0, error_message="")
        for n in range(keys)
    )
    commands = line.upstream(encode_reply(FindCoordinatorResponse(coordinators=found), 4, 1))
    assert (commands == [Close(CloseReason.UNREADABLE)]) is closed
    assert b"kafka-1" not in to_client(commands)


@pytest.mark.parametrize(("partitions", "closed"), [(699, False), (700, True)])
def test_gateway_closes_large_produce_reply(partitions: int, closed: bool) -> None:
    """A gateway closes the connection instead of decoding a Produce reply with too many partitions."""
    line = Line(gateway(limits={"inspected_elements": 100}))
    send_request(line, ApiKey.PRODUCE, 12)
    led = LeaderIdAndEpoch(leader_id=1, leader_epoch=2)
    response = ProduceResponse(
        responses=(
            TopicProduceResponse(
                name="t",
                partition_responses=tuple(
                    PartitionProduceResponse(index=index, error_code=6, base_offset=-1, current_leader=led)
                    for index in range(partitions)
                ),
            ),
        ),
        node_endpoints=(NodeEndpoint(node_id=1, host="kafka-1", port=9092),),
    )
    commands = line.upstream(encode_reply(response, 12, 1))
    assert (commands == [Close(CloseReason.UNREADABLE)]) is closed
    assert b"kafka-1" not in to_client(commands)


@pytest.mark.parametrize("version", range(ProduceResponse.FLEXIBLE))
def test_old_produce_reply_streams_at_gateway(version: int) -> None:
    """A Produce reply in a version without addresses passes a gateway without being held."""
    line = Line(gateway())
    send_request(line, ApiKey.PRODUCE, version)
    reply_frame = reply(1, bytes(100))
    assert line.upstream(reply_frame[:20]) == [ToClient(reply_frame[:20])]


def test_failed_port_closes_gateway_connection(capsys: pytest.CaptureFixture[str]) -> None:
    """A gateway that cannot open a port logs the error and closes the connection."""

    def fails(node: int, host: str, port: int) -> tuple[str, int]:
        raise OSError("too many open files")

    line, reply_frame = Line(broker_state(advertise=fails)), encode_reply(telling(ApiKey.METADATA, 12), 12, 1)
    send_request(line, ApiKey.METADATA, 12)
    assert line.upstream(reply_frame) == [Close(CloseReason.UNREADABLE)]
    assert "too many open files" in capsys.readouterr().out


def test_gateway_rewrites_long_metadata() -> None:
    """A gateway rewrites Metadata replies up to limits.largest_frame, and a longer reply closes the connection."""
    reply_frame = encode_reply(names(12, topics=2000), 12, 1)
    inspected = {"inspected_frame": 1024}
    for settings, closed in (
        ({}, False),
        (inspected, False),
        ({**inspected, "largest_frame": len(reply_frame) - 5}, True),
    ):
        state = gateway(limits=settings)
        line = Line(state)
        send_request(line, ApiKey.METADATA, 12)
        commands = line.upstream(reply_frame)
        assert (commands == [Close(CloseReason.UNREADABLE)]) is closed
        assert to_client(commands) != reply_frame
        assert state.traffic.decode_failures == {}


# ApiVersions.


KAFKA_4 = {ApiKey.FETCH: (4, 18), ApiKey.LIST_GROUPS: (0, 5), ApiKey.DESCRIBE_GROUPS: (0, 6), ApiKey.JOIN_GROUP: (0, 9)}
MOCK = {ApiKey.FETCH: (0, 11), ApiKey.JOIN_GROUP: (0, 9)}
FUTURE = KAFKA_4 | {ApiKey.JOIN_GROUP: (0, 10), ApiKey.LEAVE_GROUP: (3, 6), ApiKey.PRODUCE: (3, 14), 99: (0, 3)}


def versions(ranges: dict[Any, tuple[int, int]], version: int) -> ApiVersionsResponse:
    keys = tuple(ApiVersion(api_key=int(key), min_version=low, max_version=high) for key, (low, high) in ranges.items())
    response = replace(full_sample(ApiVersionsResponse), error_code=0, api_keys=keys, unknown_tags=((50, b"new"),))
    return limited_to(response, version)  # type: ignore[no-any-return]


def offered(state: BrokerState, response: ApiVersionsResponse, version: int) -> tuple[ApiVersionsResponse, bool]:
    """Returns the versions that the client is offered, and whether the reply is unchanged."""
    line, message = Line(state), ApiVersionsRequest()
    line.sends(message, version)
    commands = line.broker_replies(response, version)
    answer: ApiVersionsResponse = line.reads_reply(commands, message, version)
    return answer, commands == [ToClient(encode_reply(response, version, 1))]


def ranges(answer: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {v.api_key: (v.min_version, v.max_version) for v in answer.api_keys}


EVERY_VERSION = pytest.mark.parametrize("version", ApiVersionsResponse.VERSIONS)


@EVERY_VERSION
def test_unchanged_api_versions_pass_and_teach(version: int) -> None:
    """An ApiVersions reply that needs no change passes unchanged, and the copy learns the broker's APIs."""
    state = broker_state()
    assert offered(state, versions(KAFKA_4, version), version)[1]
    assert state.versions.lacks_api(ApiKey.OFFSET_FETCH)
    assert not state.versions.lacks_api(ApiKey.LIST_GROUPS)


def test_api_versions_are_not_encoded_anew() -> None:
    """An ApiVersions reply that needs no change passes byte for byte, even with an unusual encoding."""
    reply_frame = encode_reply(versions(KAFKA_4, 3), 3, 1)
    strange = framed(reply_frame[4:10] + bytes((reply_frame[10] | 0x80, 0)) + reply_frame[11:])  # A long varint.
    state = broker_state()
    line = Line(state)
    line.sends(ApiVersionsRequest(), 3)
    assert line.upstream(strange) == [ToClient(strange)]
    assert state.versions.lacks_api(ApiKey.OFFSET_FETCH)


@EVERY_VERSION
def test_api_versions_are_capped(version: int) -> None:
    """The sidecar caps versions at its newest decodable ones, and a gateway also removes unknown APIs and caps further
    APIs.
    """
    response = versions(FUTURE, version)
    capped = {ApiKey.JOIN_GROUP: (0, 9), ApiKey.LEAVE_GROUP: (3, 5)}
    answer, untouched = offered(broker_state(), response, version)
    assert not untouched
    assert ranges(answer) == FUTURE | capped
    assert replace(answer, api_keys=()) == replace(response, api_keys=())
    answer, _ = offered(gateway(), response, version)
    known = {key: its for key, its in FUTURE.items() if key != 99}
    assert ranges(answer) == known | capped | {ApiKey.PRODUCE: (3, 13), ApiKey.FETCH: (4, 18)}
    assert replace(answer, api_keys=()) == replace(response, api_keys=())


@EVERY_VERSION
def test_missing_group_apis_are_added(version: int) -> None:
    """With local answers on, the sidecar adds the group APIs that the broker lacks, and otherwise the reply passes
    unchanged.
    """
    response = versions(MOCK, version)
    answer, _ = offered(broker_state(answers={"authorizer": "none"}), response, version)
    assert ranges(answer) == MOCK | {ApiKey.LIST_GROUPS: (0, 5), ApiKey.DESCRIBE_GROUPS: (0, 6)}
    for off in (broker_state(answers={"enabled": False, "authorizer": "none"}), broker_state()):
        assert offered(off, response, version)[1]
        assert off.versions.lacks_api(ApiKey.LIST_GROUPS)


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("offered_versions_in_reply", [{}, {ApiKey.API_VERSIONS: (0, 4)}])
def test_api_versions_fallback_reply_passes(
    version: int, offered_versions_in_reply: dict[Any, tuple[int, int]]
) -> None:
    """A version 0 reply to an unsupported ApiVersions version passes unchanged, and the copy keeps the known APIs."""
    state = broker_state()
    state.versions.learn({ApiKey.LIST_GROUPS: (0, 5)})
    line = Line(state)
    line.client(request(ApiKey.API_VERSIONS, 1, version=version, body=b"\0\1\1\0"))
    fallback = replace(versions(offered_versions_in_reply, 0), error_code=35)
    assert line.broker_replies(fallback, 0, correlation=1) == [ToClient(encode_reply(fallback, 0, 1))]
    assert state.traffic.decode_failures == {}
    assert not state.versions.lacks_api(ApiKey.LIST_GROUPS)


def test_api_versions_fallback_is_capped() -> None:
    """The ApiVersions range in a fallback reply of version 0 is capped too."""
    line = Line(broker_state())
    line.client(request(ApiKey.API_VERSIONS, 1, version=5, body=b"\0\1\1\0\0"))
    fallback = replace(versions({ApiKey.API_VERSIONS: (0, 9)}, 0), error_code=35)
    sent = to_client(line.broker_replies(fallback, 0, correlation=1))
    assert ranges(decode(ApiVersionsResponse, 0, sent[8:])) == {ApiKey.API_VERSIONS: (0, 5)}


def test_unreadable_api_versions_closes() -> None:
    """An unreadable ApiVersions reply is a decode failure, closes the connection, and teaches the copy nothing."""
    state = broker_state()
    line = Line(state)
    line.sends(ApiVersionsRequest(), 4)
    reply_frame = framed(encode_reply(versions(KAFKA_4, 4), 4, 1)[4:20])
    assert line.upstream(reply_frame) == [Close(CloseReason.UNREADABLE)]
    assert state.traffic.decode_failures == {ApiKey.API_VERSIONS: 1}
    assert not state.versions.lacks_api(ApiKey.OFFSET_FETCH)


@EVERY_VERSION
def test_kafka_0_9_api_versions_are_local(version: int) -> None:
    """For a Kafka 0.9 broker, the sidecar answers ApiVersions with the broker's and its own versions."""
    state = broker_state(answers={"authorizer": "none"})
    state.versions.learn(KAFKA_0_9)
    line, message = Line(state), ApiVersionsRequest()
    answer: ApiVersionsResponse = line.reads_reply(line.sends(message, version), message, version)
    assert answer.error_code == 0
    raised = {key: (0, newest) for key, (_, newest) in state.versions.added_versions_for(KAFKA_0_9).items()}
    assert ranges(answer) == {**KAFKA_0_9, **raised} | {ApiKey.API_VERSIONS: (0, 5)}
    assert ranges(answer)[ApiKey.JOIN_GROUP] == (0, 0)


@pytest.mark.parametrize("length", [0, 100_000])
def test_unknown_api_versions_get_version_0(length: int) -> None:
    """For a Kafka 0.9 broker, the sidecar refuses ApiVersions in an unknown version with a version 0 reply."""
    state = broker_state(limits={"inspected_frame": 65_536})
    state.versions.learn(KAFKA_0_9)
    frame = request(ApiKey.API_VERSIONS, 1, version=6, body=bytes(length))
    [command] = Line(state).client(frame)
    assert isinstance(command, ToClient)
    answer = decode(ApiVersionsResponse, 0, command.data[8:])
    assert (answer.error_code, ranges(answer)) == (35, {ApiKey.API_VERSIONS: (0, 5)})


def test_upgraded_broker_answers_api_versions() -> None:
    """After an upgrade from Kafka 0.9, the broker answers ApiVersions again."""
    state = broker_state()
    state.versions.learn(KAFKA_0_9)
    state.versions.learn({int(key): its for key, its in KAFKA_4.items()})
    assert offered(state, versions(KAFKA_4, 3), 3)[1]
