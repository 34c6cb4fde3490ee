"""An invented future Kafka: each API has one more version, with a tagged field that the sidecar does not know.

Offered versions must be capped. No request may bypass a policy undecoded, and no reply may carry a broker's own address
through a gateway. Everything else is forwarded unchanged.
"""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.headers import RequestHeader, encode_request, framed_reply, split_reply
from group_sidecar.codecs.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from group_sidecar.codecs.messages.describe_cluster import DescribeClusterResponse
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorResponse
from group_sidecar.codecs.messages.metadata import MetadataResponse, MetadataResponseBroker
from group_sidecar.codecs.messages.produce import ProduceResponse
from group_sidecar.codecs.schema import decode, encode
from group_sidecar.coordinator.wire import exchange_events
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.gateway_apis import GATEWAY_VERSIONS
from group_sidecar.proxy.broker.tail_rewrite import has_tail
from group_sidecar.proxy.dataplane.commands import Close, Command, ToClient, ToUpstream
from tests.codecs.declarations import full_sample, limited_to, zero
from tests.codecs.kafka_schemas import KafkaSchemas
from tests.kafka.maven import kafka_jars
from tests.proxy.dataplane.playbook import Line, broker_state, complete_state

HOST = "broker-7.internal"
TAGS = ((4711, HOST.encode()),)
"""A tagged field that today's schemas lack. It contains an address, like those of KIP-951 in Produce and Fetch."""
UNKNOWN_API = 95
NEWEST_KAFKA = "4.4.0"
ADDRESS_APIS = (MetadataResponse, FindCoordinatorResponse, DescribeClusterResponse, ProduceResponse)
LIMITED = {"policies": {"group_max_size": {"limit": 1}}}

schemas = KafkaSchemas(kafka_jars(NEWEST_KAFKA) / f"kafka-clients-{NEWEST_KAFKA}.jar")


def newest(key: int) -> int:
    """Returns the newest known version of an API."""
    return schemas.versions(f"{schemas.api_keys()[key]}Request")[-1]


SPOKEN = {key: newest(key) + 1 for key, name in schemas.api_keys().items() if schemas.versions(f"{name}Request")}
"""The newest version of each API of the future broker. It supports all versions from 0 on."""


def offered_by_broker() -> ApiVersionsResponse:
    """Returns the broker's ApiVersions reply."""
    spoken = {**SPOKEN, UNKNOWN_API: 0}
    keys = tuple(ApiVersion(api_key=key, min_version=0, max_version=v, unknown_tags=TAGS) for key, v in spoken.items())
    return ApiVersionsResponse(error_code=0, api_keys=keys, unknown_tags=TAGS)


def gateway(**settings: Any) -> BrokerState:
    """Returns the state of a broker whose clients connect through a gateway."""
    return complete_state(advertise=lambda node, host, port: ("gateway", 20_000 + abs(node)), **settings)


def sidecar(**settings: Any) -> BrokerState:
    """Returns the state of a broker whose clients connect through a sidecar."""
    return complete_state(**settings)


both = pytest.mark.parametrize("mode", [sidecar, gateway])


def raw_request(key: int, version: int, body: bytes = b"", number: int = 1) -> bytes:
    """Returns a complete request in any version. Its header is flexible."""
    payload = key.to_bytes(2) + version.to_bytes(2, signed=True) + number.to_bytes(4) + b"\0\1c" + b"\0" + body
    return len(payload).to_bytes(4) + payload


def offers(line: Line, version: int = ApiVersionsRequest.VERSIONS[-1]) -> dict[int, ApiVersion]:
    """Returns the versions that a client is offered, by API key."""
    line.sends(ApiVersionsRequest(), version)
    reply = line.reads_reply(line.broker_replies(offered_by_broker(), version), ApiVersionsRequest(), version)
    return {each.api_key: each for each in reply.api_keys}


@both
@pytest.mark.parametrize("version", [3, 4, 5])
def test_inspected_apis_are_capped(mode: Any, version: int) -> None:
    """No API that the sidecar reads is offered in a version that the sidecar cannot read."""
    response = offers(Line(mode()), version)
    read = exchange_events.GROUP_API_KEYS | {
        ApiKey.METADATA,
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    }
    assert {key: response[key].max_version for key in read} == {key: APIS[key].versions[-1] for key in read}


def test_sidecar_leaves_other_apis_alone() -> None:
    """The sidecar leaves the offered versions of all APIs that it does not read unchanged."""
    response = offers(Line(sidecar()))
    left = {key: v for key, v in SPOKEN.items() if key not in APIS} | {UNKNOWN_API: 0}
    assert {key: response[key].max_version for key in left} == left


def test_gateway_offers_nothing_unknown() -> None:
    """A gateway offers only the APIs and versions of its table, because unknown replies may carry addresses."""
    assert {key: each.max_version for key, each in offers(Line(gateway())).items()} == GATEWAY_VERSIONS


@both
@pytest.mark.parametrize("version", [6, 7, 0x7FFF, -1])
@pytest.mark.parametrize(("broker", "highest"), [(None, 5), (3, 3), (6, 5)])
def test_unknown_api_versions_request_is_answered(mode: Any, version: int, broker: int | None, highest: int) -> None:
    """A request in an unknown ApiVersions version gets Kafka's version 0 error reply with the range of ApiVersions
    alone.
    """
    state = mode()
    if broker is not None:
        state.versions.learn({int(ApiKey.API_VERSIONS): (0, broker)})
    commands = Line(state).client(raw_request(ApiKey.API_VERSIONS, version, number=77))
    (reply,) = commands
    assert isinstance(reply, ToClient)
    assert reply.data[4:8] == (77).to_bytes(4)
    own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=highest)
    response = decode(ApiVersionsResponse, 0, split_reply(reply.data[4:], flexible=False))
    assert response == ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(own,))


@both
@pytest.mark.parametrize(("broker", "highest"), [(None, 3), (2, 2)])
def test_unreadable_api_versions_error_is_rebuilt(mode: Any, broker: int | None, highest: int) -> None:
    """The sidecar replaces an unreadable refusal of ApiVersions by a readable refusal in version 0."""
    state = mode()
    if broker is not None:
        state.versions.learn({int(ApiKey.API_VERSIONS): (0, broker)})
    line = Line(state)
    line.sends(ApiVersionsRequest(), 4)
    error = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2)
    (reply,) = line.upstream(framed_reply(1, error + bytes.fromhex("02 0012 0000 0002 00 00000000 00")))
    assert isinstance(reply, ToClient)
    own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=highest)
    response = decode(ApiVersionsResponse, 0, split_reply(reply.data[4:], flexible=False))
    assert response == ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(own,))


@both
def test_unreadable_api_versions_reply_closes(mode: Any) -> None:
    """An unreadable ApiVersions reply closes the connection, because its versions were not capped."""
    line = Line(mode())
    line.sends(ApiVersionsRequest(), 5)
    commands = line.upstream(framed_reply(1, b"\0\0\xff\xff"), framed_reply(2, b"more"))
    assert commands == [Close(CloseReason.UNREADABLE)]
    assert line.session.close(line.now) == []


@both
def test_long_api_versions_reply_never_leaves(mode: Any) -> None:
    line = Line(mode(limits={"inspected_frame": 1024}))
    line.sends(ApiVersionsRequest(), 5)
    whole = framed_reply(1, bytes(2048))
    assert line.upstream(whole[:512]) == [Close(CloseReason.UNREADABLE)]


@both
@pytest.mark.parametrize("key", [ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT])
@pytest.mark.parametrize("step", [1, 2, 0x7000, -0x7000])
def test_unknown_version_does_not_pass_a_policy(mode: Any, key: ApiKey, step: int) -> None:
    """In a version that the sidecar cannot read, a judged request closes its connection."""
    state = mode(**LIMITED)
    line = Line(state)
    assert line.client(raw_request(key, APIS[key].versions[-1] + step)) == [Close(CloseReason.UNSUPPORTED_VERSION)]


def test_unknown_version_passes_audit_policy() -> None:
    """In audit mode, a judged request in an unknown version passes."""
    line = Line(sidecar(policies={"group_max_size": {"limit": 1, "mode": "audit"}}))
    frame = raw_request(ApiKey.JOIN_GROUP, 10, b"\x02g")
    assert line.client(frame) == [ToUpstream(frame)]


def test_pending_replies_precede_close() -> None:
    """The client gets pending replies before an unknown version closes the connection."""
    line = Line(sidecar(**LIMITED))
    line.sends(ApiVersionsRequest(), 0)
    assert line.client(raw_request(ApiKey.JOIN_GROUP, 10, number=2)) == []
    *before, last = line.broker_replies(ApiVersionsResponse(error_code=0, api_keys=()), 0)
    assert [type(each) for each in before] == [ToClient]
    assert last == Close(CloseReason.UNSUPPORTED_VERSION)


@pytest.mark.parametrize("key", [*sorted(set(SPOKEN) - {ApiKey.API_VERSIONS, ApiKey.PRODUCE}), UNKNOWN_API])
def test_unknown_versions_pass_without_policy(key: int) -> None:
    """Without a policy, requests and replies in unknown versions pass unchanged."""
    line = Line(broker_state())
    frame = raw_request(key, SPOKEN.get(key, 0), b"\x02g" + bytes(9))
    assert line.client(frame) == [ToUpstream(frame)]
    reply = framed_reply(1, b"\0" + HOST.encode())
    assert line.upstream(reply) == [ToClient(reply)]


@pytest.mark.parametrize("key", sorted(exchange_events.GROUP_WRITE_KEYS - {ApiKey.HEARTBEAT, ApiKey.END_TXN}))
def test_unknown_version_of_write_causes_doubt(key: int) -> None:
    """A write in an unknown version counts as a decode failure and makes its group incomplete."""
    state = sidecar()
    line = Line(state)
    line.client(raw_request(key, SPOKEN[key], b"\x02g"))
    line.upstream(framed_reply(1, b"\0"))
    assert state.traffic.decode_failures[key] == 1
    assert state.copy.manager.view("g", state.copy.epoch(line.now)).fallback_reason is not None


@pytest.mark.parametrize("key", [*SPOKEN, UNKNOWN_API])
def test_gateway_forwards_no_unknown_version(key: int) -> None:
    """A gateway closes the connection on a version above the offered one, because the reply may carry addresses."""
    if key == ApiKey.API_VERSIONS:
        return
    line = Line(gateway())
    wanted = b"\xff\xff\xff\xff"  # For Produce: acks=all, at any position.
    frame = raw_request(key, GATEWAY_VERSIONS.get(key, -1) + 1, b"\0" + wanted)
    assert line.client(frame) == [Close(CloseReason.UNSUPPORTED_VERSION)]


def test_gateway_classifies_each_fetch() -> None:
    """A gateway checks the version of every Fetch, even while it skips the inspection of Fetch replies."""
    line = Line(gateway())
    for number in (1, 2, 3):
        frame = raw_request(ApiKey.FETCH, GATEWAY_VERSIONS[ApiKey.FETCH], bytes(40), number)
        assert line.client(frame) == [ToUpstream(frame)]
        reply = framed_reply(number, bytes(11) + b"\2" + bytes(16) + b"\1" + bytes(2))
        assert line.upstream(reply) == [ToClient(reply)]
    frame = raw_request(ApiKey.FETCH, 19, bytes(40), 4)
    assert line.client(frame) == [Close(CloseReason.UNSUPPORTED_VERSION)]


def telling(message: type[Any], version: int) -> bytes:
    """Returns a reply of the future broker, with its host in every host field and a tagged field in every struct."""
    return encode(limited_to(with_hosts(full_sample(message)), version), version)


def with_hosts(value: Any) -> Any:
    """Returns a value with the broker's host in every host field, and with tagged fields in its structs."""
    if isinstance(value, tuple):
        return tuple(map(with_hosts, value))
    if not hasattr(value, "unknown_tags"):
        return value
    changed = {f.name: with_hosts(getattr(value, f.name)) for f in fields(value) if f.name != "unknown_tags"}
    if "host" in changed:
        changed |= {"host": HOST}
    tags = TAGS if "host" in changed or isinstance(value, ADDRESS_APIS) else ()
    return replace(value, **changed, unknown_tags=tags)


def sent(commands: list[Command]) -> bytes:
    return b"".join(each.data for each in commands if isinstance(each, ToClient))


@pytest.mark.parametrize(("message", "version"), [(m, v) for m in ADDRESS_APIS for v in m.VERSIONS])
def test_gateway_leaks_no_address(message: type[Any], version: int) -> None:
    """A gateway's client never receives a broker's own address, in any version of any reply with addresses."""
    line = Line(gateway())
    request = APIS[message.KEY].request
    body = telling(message, version).replace(b"\2s", b"\1s")
    frame = encode_request(zero(request), RequestHeader(message.KEY, version, 1, "c"))
    if message is ProduceResponse:
        frame = raw_request(ApiKey.PRODUCE, version, b"\0\xff\xff" + bytes(8)) if version >= 9 else frame
    head = b"\0" if version >= message.HEADER_FLEXIBLE else b""
    line.client(frame)
    if not line.session.in_flight:
        return  # acks=0
    commands = line.upstream(framed_reply(1, head + body))
    assert HOST.encode() not in sent(commands)
    assert sent(commands) or commands == [Close(CloseReason.UNREADABLE)]


@pytest.mark.parametrize("key", [m.KEY for m in ADDRESS_APIS if m is not ProduceResponse])
def test_gateway_closes_on_unreadable_reply(key: int) -> None:
    """A gateway closes the connection if it cannot read a reply that may carry addresses."""
    line = Line(gateway())
    line.client(encode_request(zero(APIS[key].request), RequestHeader(key, 1, 1, "c")))
    assert line.upstream(framed_reply(1, b"\xff" * 3 + HOST.encode())) == [Close(CloseReason.UNREADABLE)]


@pytest.mark.parametrize("version", MetadataResponse.VERSIONS)
def test_gateway_rewrites_long_metadata(version: int) -> None:
    """A gateway rewrites the broker addresses in Metadata longer than limits.inspected_frame and leaves the topics
    unchanged.
    """
    line = Line(gateway(limits={"inspected_frame": 1024}))
    brokers = tuple(MetadataResponseBroker(node_id=n, host=HOST, port=9092) for n in (1, 2))
    topic = limited_to(full_sample(MetadataResponse), version).topics[0]
    response = limited_to(MetadataResponse(brokers=brokers, topics=(topic,) * 4000), version)
    head = b"\0" if version >= MetadataResponse.HEADER_FLEXIBLE else b""
    line.client(encode_request(zero(APIS[ApiKey.METADATA].request), RequestHeader(ApiKey.METADATA, version, 1, "c")))
    frame = sent(line.upstream(framed_reply(1, head + encode(response, version))))
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    heard = decode(MetadataResponse, version, split_reply(frame[4:], version >= MetadataResponse.HEADER_FLEXIBLE))
    assert [(b.node_id, b.host, b.port) for b in heard.brokers] == [(1, "gateway", 20_001), (2, "gateway", 20_002)]
    assert heard.topics == response.topics


def test_gateway_closes_on_overlong_metadata() -> None:
    """A gateway closes the connection on Metadata longer than limits.largest_frame."""
    line = Line(gateway(limits={"inspected_frame": 1024, "largest_frame": 2048}))
    line.client(encode_request(zero(APIS[ApiKey.METADATA].request), RequestHeader(ApiKey.METADATA, 9, 1, "c")))
    assert line.upstream(framed_reply(1, bytes(4096))[:64]) == [Close(CloseReason.UNREADABLE)]


def test_table_of_passable_versions_is_kafkas() -> None:
    """The gateway's table has all APIs that Kafka brokers serve, without versions whose addresses stay unrewritten."""
    served, unhandled = {}, set()
    for key, name in schemas.api_keys().items():
        if not schemas.versions(f"{name}Request") or "broker" not in schemas.listeners(f"{name}Request"):
            continue
        versions = schemas.versions(f"{name}Response")
        served[key] = versions[-1]
        unhandled |= {(name, v) for v in versions if tells_addresses(f"{name}Response", v) and not is_rewritten(key, v)}
    assert served == GATEWAY_VERSIONS
    assert not unhandled


def test_replies_with_addresses_are_listed() -> None:
    """The page on limits lists exactly the replies of Kafka's brokers that have an address in some version."""
    addressed = {
        name
        for key, name in schemas.api_keys().items()
        if "broker" in schemas.listeners(f"{name}Request")
        and any(tells_addresses(f"{name}Response", v) for v in schemas.versions(f"{name}Response"))
    }
    page = (Path(__file__).parents[3] / "docs/listeners.md").read_text()
    rows = page.split("| reply | addresses |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    assert {row.split("|")[1].strip().strip("`") for row in rows} == addressed


def is_rewritten(key: int, version: int) -> bool:
    """Whether a gateway replaces the addresses in a reply."""
    return key in {message.KEY for message in ADDRESS_APIS} or has_tail(key, version)


NO_NODES = {
    "DescribeAclsResponse": "Resources.Acls.Host",
    "DeleteAclsResponse": "FilterResults.MatchingAcls.Host",
    "StreamsGroupHeartbeatResponse": "PartitionsByUserEndpoint",
    "StreamsGroupDescribeResponse": "Groups.Members.UserEndpoint",
}
"""Fields whose hosts belong to ACLs, or are chosen by applications of Kafka Streams."""
ADDRESS_WORDS = {"Host", "Port", "Listener", "Listeners", "Endpoint", "Endpoints", "Address"}
NO_ADDRESSES = {"ClientHost", "EndpointType", "EndpointInformationEpoch"}
"""Fields with such a word that contain no address of a node. `ClientHost` is the host of a group's member."""


def tells_addresses(message: str, version: int) -> bool:
    """Whether a reply has a field for a node's address."""

    def places(fields: Any, path: str = "") -> Any:
        for field in fields:
            if field.name not in NO_ADDRESSES and ADDRESS_WORDS.intersection(re.findall("[A-Z][a-z]+", field.name)):
                yield path + field.name
            yield from places(field.fields, f"{path}{field.name}.")

    own = NO_NODES.get(message, "nowhere")
    return any(not place.startswith(own) for place in places(schemas.fields(message, version)))
