"""Replies that the desk reads for their own sake: handshakes, versions, names and addresses."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

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
from group_sidecar.codecs.registry import APIS, ApiKey
from group_sidecar.codecs.schema import decode
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.proxy import rewrite
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.commands import Close, ToClient, ToUpstream
from group_sidecar.proxy.holding import UNAUTHENTICATED_FRAME
from group_sidecar.proxy.reply_rewriting import ADDRESSED, LARGEST_METADATA
from tests.codecs.declarations import brought_down, full_sample
from tests.proxy.playbook import Line, broker_copy, framed, reply, request, to_client, to_upstream

TOPIC_ID = UUID(int=5)


def telling(key: int, version: int) -> Any:
    """A reply in which every field says something."""
    return brought_down(full_sample(APIS[key].response), version)


# SaslHandshake.


def handshake(mechanism: str, error_code: int = 0, version: int = 0) -> Line:
    """A connection whose handshake has been answered."""
    line = Line(broker_copy())
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
def test_behind_other_mechanisms_nothing_is_parsed(mechanism: str) -> None:
    line = handshake(mechanism)
    for number in range(5):
        assert line.client(b"\0" * number + b"x") == [ToUpstream(b"\0" * number + b"x")]


@pytest.mark.parametrize(("mode", "closed"), [("enforce", True), ("audit", False)])
def test_nobody_gets_past_a_policy_behind_other_mechanisms(mode: str, closed: bool) -> None:
    line = Line(broker_copy(policies={"group_max_size": {"limit": 1, "mode": mode}}))
    line.says(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 0)
    told = encode_reply(SaslHandshakeResponse(error_code=0, mechanisms=()), 0, 1)
    assert (line.upstream(told) == [Close(CloseReason.UNREADABLE)]) is closed


@pytest.mark.parametrize("key", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
def test_sasl_replies_are_held_up_to_the_length_of_an_unauthenticated_frame(key: int) -> None:
    for size, closed in ((UNAUTHENTICATED_FRAME, False), (UNAUTHENTICATED_FRAME + 1, True)):
        line = Line(broker_copy())
        line.client(request(key, 1, version=1, body=b"\0\0\0\0"))
        commands = line.upstream(framed(reply(1)[4:].ljust(size, b"\0"))[:2000])
        assert (commands == [Close(CloseReason.UNREADABLE)]) is closed
        assert (line.session.held_bytes == 0) is closed


@pytest.mark.parametrize(("error_code", "version"), [(33, 0), (0, 1), (33, 1)])
def test_a_refused_handshake_and_a_newer_one_have_no_raw_tokens(error_code: int, version: int) -> None:
    line = handshake("PLAIN", error_code, version)
    assert line.client(framed(b"")) == [Close(CloseReason.BAD_FRAME_LENGTH)]


@pytest.mark.parametrize(("body", "told"), [(b"\0\x63PLAIN", b"\0\0\0\0\0\0"), (b"\0\5PLAIN", b"\0")])
def test_a_handshake_that_cannot_be_read_makes_the_connection_opaque(body: bytes, told: bytes) -> None:
    copy = broker_copy()
    line, frame = Line(copy), request(ApiKey.SASL_HANDSHAKE, 1, body=body)
    assert line.client(frame) == [ToUpstream(frame)]
    assert line.upstream(reply(1, told)) == [ToClient(reply(1, told))]
    assert line.client(b"anything") == [ToUpstream(b"anything")]
    assert copy.traffic.decode_failures == {ApiKey.SASL_HANDSHAKE: 1}


def test_a_handshake_too_long_to_be_looked_into_is_followed_by_what_is_not_parsed() -> None:
    copy = broker_copy(limits={"inspected_frame": 1024})
    line, frame = Line(copy), request(ApiKey.SASL_HANDSHAKE, 1, body=bytes(1100))
    assert to_upstream(line.client(frame)) == frame
    assert to_client(line.upstream(reply(1, bytes(6)))) == reply(1, bytes(6))
    assert line.client(b"anything") == [ToUpstream(b"anything")]


# Metadata, where nothing is rewritten.


def names(version: int, topics: int = 1) -> MetadataResponse:
    told = telling(ApiKey.METADATA, version)
    named = replace(told.topics[0], topic_id=TOPIC_ID, name="t")
    return brought_down(replace(told, topics=(named,) * topics), version)  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", MetadataResponse.VERSIONS)
def test_metadata_passes_untouched_and_tells_the_names_of_ids(version: int) -> None:
    copy = broker_copy()
    Line(copy).exchange(MetadataRequest(topics=()), names(version), version)
    assert copy.names == ({TOPIC_ID: "t"} if version >= 10 else {})
    assert copy.traffic.decode_failures == {}


def test_long_metadata_streams() -> None:
    copy = broker_copy()
    line, told = Line(copy), encode_reply(names(12, topics=2000), 12, 1)
    line.says(MetadataRequest(topics=()), 12)
    assert len(told) > LARGEST_METADATA
    assert line.upstream(told[:1000]) == [ToClient(told[:1000])]
    assert line.upstream(told[1000:]) == [ToClient(told[1000:])]
    assert copy.traffic.decode_failures == {}
    assert copy.names == {}


@pytest.mark.parametrize("key", [ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER, ApiKey.PRODUCE])
def test_addresses_are_not_looked_into_without_a_gateway(key: int) -> None:
    line, version = Line(broker_copy()), APIS[key].versions[-1]
    assert line.client(request(key, 1, version=version, body=b"\0\0\xff\xff"))
    told = encode_reply(telling(key, version), version, 1)
    assert line.upstream(told[:20]) == [ToClient(told[:20])]


# What a gateway rewrites.


def gateway(**settings: Any) -> BrokerCopy:
    """A broker behind a gateway that gives node N the port 20000 + N."""
    return broker_copy(advertise=lambda node, host, port: ("gateway", 20_000 + abs(node)), **settings)


def asked(line: Line, key: int, version: int) -> None:
    """The client asks; a Produce with acks."""
    assert line.client(request(key, 1, version=version, body=b"\0\0\xff\xff" if version >= 9 else b"\xff\xff" * 2))


@pytest.mark.parametrize(
    ("key", "version"), [(key, version) for key in sorted(ADDRESSED) for version in APIS[key].versions]
)
def test_a_gateway_rewrites_addresses_in_every_version_and_nothing_else(key: int, version: int) -> None:
    copy = gateway()
    line, told = Line(copy), telling(key, version)
    asked(line, key, version)
    tags = b"\1\7\2hi" if version >= APIS[key].response.HEADER_FLEXIBLE else b""
    header = (1).to_bytes(4, "big") + tags
    sent = to_client(line.upstream(framed(header + encode_reply(told, version, 1)[8 + bool(tags) :] + b"rest")))
    assert int.from_bytes(sent[:4], "big") == len(sent) - 4
    assert sent[4 : 4 + len(header)] == header
    assert sent.endswith(b"rest")
    rewritten = decode(APIS[key].response, version, sent[4 + len(header) : -4])
    assert copy.advertise is not None
    assert rewritten == rewrite.addresses(told, copy.advertise)
    assert (rewritten == told) is (key == ApiKey.PRODUCE and version < 10)
    assert copy.traffic.decode_failures == {}


@pytest.mark.parametrize("key", sorted(ADDRESSED))
def test_unreadable_reply_closes_a_gateways_connection(key: int, capsys: pytest.CaptureFixture[str]) -> None:
    """An address that was not rewritten must not reach a client."""
    version = APIS[key].versions[-1]
    for told in (framed(encode_reply(telling(key, version), version, 1)[4:-1]), reply(1)):
        copy = gateway()
        line = Line(copy)
        asked(line, key, version)
        assert line.upstream(told) == [Close(CloseReason.UNREADABLE)]
        assert copy.traffic.decode_failures == {key: 1}
        said = capsys.readouterr().out
        assert "a reply was not understood and its connection is closed" in said
        assert "passed on" not in said


@pytest.mark.parametrize(("keys", "closed"), [(700, False), (701, True)])
def test_a_reply_of_very_many_addresses_is_not_decoded(keys: int, closed: bool) -> None:
    """One FindCoordinator of 50,000 keys held up all clients of a gateway for a third of a second."""
    copy = gateway(limits={"inspected_elements": 100})
    line = Line(copy)
    asked(line, ApiKey.FIND_COORDINATOR, 4)
    found = tuple(
        Coordinator(key=f"g{n}", node_id=1, host="kafka-1", port=9092, error_code=0, error_message="")
        for n in range(keys)
    )
    commands = line.upstream(encode_reply(FindCoordinatorResponse(coordinators=found), 4, 1))
    assert (commands == [Close(CloseReason.UNREADABLE)]) is closed
    assert b"kafka-1" not in to_client(commands)


@pytest.mark.parametrize(("partitions", "closed"), [(699, False), (700, True)])
def test_a_produce_reply_of_very_many_partitions_is_not_decoded(partitions: int, closed: bool) -> None:
    """3,000 partitions with another leader each took 22 ms: their tagged fields are slow to read."""
    line = Line(gateway(limits={"inspected_elements": 100}))
    asked(line, ApiKey.PRODUCE, 12)
    led = LeaderIdAndEpoch(leader_id=1, leader_epoch=2)
    told = ProduceResponse(
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
    commands = line.upstream(encode_reply(told, 12, 1))
    assert (commands == [Close(CloseReason.UNREADABLE)]) is closed
    assert b"kafka-1" not in to_client(commands)


@pytest.mark.parametrize("version", range(ProduceResponse.FLEXIBLE))
def test_a_produce_reply_that_can_carry_no_address_passes_as_it_comes(version: int) -> None:
    line = Line(gateway())
    asked(line, ApiKey.PRODUCE, version)
    told = reply(1, bytes(100))
    assert line.upstream(told[:20]) == [ToClient(told[:20])]


def test_a_port_that_cannot_be_opened_closes_the_connection(capsys: pytest.CaptureFixture[str]) -> None:
    def fails(node: int, host: str, port: int) -> tuple[str, int]:
        raise OSError("too many open files")

    line, told = Line(broker_copy(advertise=fails)), encode_reply(telling(ApiKey.METADATA, 12), 12, 1)
    asked(line, ApiKey.METADATA, 12)
    assert line.upstream(told) == [Close(CloseReason.UNREADABLE)]
    assert "too many open files" in capsys.readouterr().out


def test_long_metadata_is_rewritten_by_a_gateway_up_to_the_longest_frame() -> None:
    told = encode_reply(names(12, topics=2000), 12, 1)
    inspected = {"inspected_frame": 1024}
    for settings, closed in (({}, False), (inspected, False), ({**inspected, "largest_frame": len(told) - 5}, True)):
        copy = gateway(limits=settings)
        line = Line(copy)
        asked(line, ApiKey.METADATA, 12)
        commands = line.upstream(told)
        assert (commands == [Close(CloseReason.UNREADABLE)]) is closed
        assert to_client(commands) != told
        assert copy.traffic.decode_failures == {}


# ApiVersions.


KAFKA_4 = {ApiKey.FETCH: (4, 18), ApiKey.LIST_GROUPS: (0, 5), ApiKey.DESCRIBE_GROUPS: (0, 6), ApiKey.JOIN_GROUP: (0, 9)}
MOCK = {ApiKey.FETCH: (0, 11), ApiKey.JOIN_GROUP: (0, 9)}
FUTURE = KAFKA_4 | {ApiKey.JOIN_GROUP: (0, 10), ApiKey.LEAVE_GROUP: (3, 6), ApiKey.PRODUCE: (3, 14), 99: (0, 3)}


def versions(ranges: dict[Any, tuple[int, int]], version: int) -> ApiVersionsResponse:
    keys = tuple(ApiVersion(api_key=int(key), min_version=low, max_version=high) for key, (low, high) in ranges.items())
    told = replace(full_sample(ApiVersionsResponse), error_code=0, api_keys=keys, unknown_tags=((50, b"new"),))
    return brought_down(told, version)  # type: ignore[no-any-return]


def offered(copy: BrokerCopy, told: ApiVersionsResponse, version: int) -> tuple[ApiVersionsResponse, bool]:
    """What the client is offered, and whether it is as the broker sent it."""
    line, message = Line(copy), ApiVersionsRequest()
    line.says(message, version)
    commands = line.broker_says(told, version)
    answer: ApiVersionsResponse = line.reads(commands, message, version)
    return answer, commands == [ToClient(encode_reply(told, version, 1))]


def ranges(answer: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {v.api_key: (v.min_version, v.max_version) for v in answer.api_keys}


EVERY_VERSION = pytest.mark.parametrize("version", ApiVersionsResponse.VERSIONS)


@EVERY_VERSION
def test_an_offer_that_needs_no_change_passes_as_it_came_and_is_learnt(version: int) -> None:
    copy = broker_copy()
    assert offered(copy, versions(KAFKA_4, version), version)[1]
    assert copy.lacks(ApiKey.OFFSET_FETCH)
    assert not copy.lacks(ApiKey.LIST_GROUPS)


def test_an_offer_that_needs_no_change_is_not_even_written_anew() -> None:
    told = encode_reply(versions(KAFKA_4, 3), 3, 1)
    strange = framed(told[4:10] + bytes((told[10] | 0x80, 0)) + told[11:])  # A varint a byte longer than it need be.
    copy = broker_copy()
    line = Line(copy)
    line.says(ApiVersionsRequest(), 3)
    assert line.upstream(strange) == [ToClient(strange)]
    assert copy.lacks(ApiKey.OFFSET_FETCH)


@EVERY_VERSION
def test_an_offer_is_capped_at_what_is_described_where_it_is_looked_into(version: int) -> None:
    told = versions(FUTURE, version)
    capped = {ApiKey.JOIN_GROUP: (0, 9), ApiKey.LEAVE_GROUP: (3, 5)}
    answer, untouched = offered(broker_copy(), told, version)
    assert not untouched
    assert ranges(answer) == FUTURE | capped
    assert replace(answer, api_keys=()) == replace(told, api_keys=())
    answer, _ = offered(gateway(), told, version)
    known = {key: its for key, its in FUTURE.items() if key != 99}
    assert ranges(answer) == known | capped | {ApiKey.PRODUCE: (3, 13), ApiKey.FETCH: (4, 15)}
    assert replace(answer, api_keys=()) == replace(told, api_keys=())


@EVERY_VERSION
def test_the_group_apis_are_added_where_the_broker_lacks_them_and_answers_are_on(version: int) -> None:
    told = versions(MOCK, version)
    answer, _ = offered(broker_copy(answers={"authorizer": "none"}), told, version)
    assert ranges(answer) == MOCK | {ApiKey.LIST_GROUPS: (0, 5), ApiKey.DESCRIBE_GROUPS: (0, 6)}
    for off in (broker_copy(answers={"enabled": False, "authorizer": "none"}), broker_copy()):
        assert offered(off, told, version)[1]
        assert off.lacks(ApiKey.LIST_GROUPS)


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("told", [{}, {ApiKey.API_VERSIONS: (0, 4)}])
def test_a_broker_that_does_not_know_the_version_answers_in_the_oldest(
    version: int, told: dict[Any, tuple[int, int]]
) -> None:
    copy = broker_copy()
    copy.learn_versions({ApiKey.LIST_GROUPS: (0, 5)})
    line = Line(copy)
    line.client(request(ApiKey.API_VERSIONS, 1, version=version, body=b"\0\1\1\0"))
    fallback = replace(versions(told, 0), error_code=35)
    assert line.broker_says(fallback, 0, correlation=1) == [ToClient(encode_reply(fallback, 0, 1))]
    assert copy.traffic.decode_failures == {}
    assert not copy.lacks(ApiKey.LIST_GROUPS)


def test_a_range_in_such_an_answer_is_capped_too() -> None:
    line = Line(broker_copy())
    line.client(request(ApiKey.API_VERSIONS, 1, version=5, body=b"\0\1\1\0\0"))
    fallback = replace(versions({ApiKey.API_VERSIONS: (0, 9)}, 0), error_code=35)
    sent = to_client(line.broker_says(fallback, 0, correlation=1))
    assert ranges(decode(ApiVersionsResponse, 0, sent[8:])) == {ApiKey.API_VERSIONS: (0, 5)}


def test_an_offer_that_cannot_be_read_is_counted_and_teaches_nothing() -> None:
    copy = broker_copy()
    line = Line(copy)
    line.says(ApiVersionsRequest(), 4)
    told = framed(encode_reply(versions(KAFKA_4, 4), 4, 1)[4:20])
    assert line.upstream(told) == [Close(CloseReason.UNREADABLE)]
    assert copy.traffic.decode_failures == {ApiKey.API_VERSIONS: 1}
    assert not copy.lacks(ApiKey.OFFSET_FETCH)


@EVERY_VERSION
def test_in_place_of_kafka_0_9_the_sidecar_says_what_it_speaks(version: int) -> None:
    copy = broker_copy(answers={"authorizer": "none"})
    copy.learn_versions(KAFKA_0_9)
    line, message = Line(copy), ApiVersionsRequest()
    answer: ApiVersionsResponse = line.reads(line.says(message, version), message, version)
    assert answer.error_code == 0
    raised = {key: (0, newest) for key, (_, newest) in copy.added_to(KAFKA_0_9).items()}
    assert ranges(answer) == {**KAFKA_0_9, **raised} | {ApiKey.API_VERSIONS: (0, 5)}
    assert ranges(answer)[ApiKey.JOIN_GROUP] == (0, 0)


@pytest.mark.parametrize("length", [0, 100_000])
def test_a_version_that_is_not_described_is_refused_in_the_oldest(length: int) -> None:
    copy = broker_copy(limits={"inspected_frame": 65_536})
    copy.learn_versions(KAFKA_0_9)
    frame = request(ApiKey.API_VERSIONS, 1, version=6, body=bytes(length))
    [told] = Line(copy).client(frame)
    assert isinstance(told, ToClient)
    answer = decode(ApiVersionsResponse, 0, told.data[8:])
    assert (answer.error_code, ranges(answer)) == (35, {ApiKey.API_VERSIONS: (0, 5)})


def test_an_upgraded_broker_is_asked_what_it_speaks() -> None:
    copy = broker_copy()
    copy.learn_versions(KAFKA_0_9)
    copy.learn_versions({int(key): its for key, its in KAFKA_4.items()})
    assert offered(copy, versions(KAFKA_4, 3), 3)[1]
