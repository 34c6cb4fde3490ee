"""Unusual clients: raw frames, unknown APIs, and many requests in one write."""

import struct
from dataclasses import replace
from typing import Any

import pytest

from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.metadata import MetadataRequest
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from tests.conformance.librdkafka import consume, create_topic
from tests.conformance.routes import Routes, Run
from tests.kafka.broker import KafkaBroker
from tests.kafka.wire import Wire

UNKNOWN_KEY = 9_999
FEATURES_SINCE = 3
"""The first version of ApiVersions with features (KIP-584)."""


def frame(key: int, version: int, body: bytes, correlation: int = 7) -> bytes:
    """Returns a request of any API, with header v1."""
    payload = struct.pack(">hhih", key, version, correlation, -1) + body
    return struct.pack(">i", len(payload)) + payload


def exchange(run: Run, data: bytes) -> str:
    """Sends a frame. Returns the reply in hex, or that the broker closed the connection."""
    with Wire(run.route.plain) as wire:
        wire.send(data)
        try:
            return wire.receive().hex()
        except ConnectionError:
            return "closed"


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        pytest.param(22, 0, struct.pack(">hi", -1, 60_000), id="InitProducerId"),
        pytest.param(32, 1, struct.pack(">iB", 0, 0), id="DescribeConfigs of nothing"),
        pytest.param(35, 1, struct.pack(">i", 0), id="DescribeLogDirs of nothing"),
        pytest.param(23, 2, struct.pack(">i", 0), id="OffsetForLeaderEpoch of nothing"),
        pytest.param(46, 0, b"\0" + struct.pack(">i", 1000) + b"\1\0", id="ListPartitionReassignments of nothing"),
        pytest.param(33, 0, struct.pack(">iB", 0, 1), id="AlterConfigs of nothing"),
    ],
)
def test_undecoded_apis_pass(routes: Routes, key: int, version: int, body: bytes) -> None:
    """Requests of APIs that the sidecar does not decode get the same replies directly and through the sidecar."""

    def scenario(run: Run) -> Any:
        answer = exchange(run, frame(key, version, body))
        return answer[:8], len(answer) if key == 22 else answer  # A producer id is issued only once.

    assert routes.compare(scenario)[0] == "00000007"


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        pytest.param(UNKNOWN_KEY, 0, b"", id="unknown key"),
        pytest.param(-1, 0, b"", id="negative key"),
        pytest.param(16, 99, b"", id="ListGroups of a version to come"),
        pytest.param(11, -1, b"", id="negative version"),
        pytest.param(15, 0, b"\0\0", id="DescribeGroups cut off"),
        pytest.param(9, 5, b"\xff" * 20, id="OffsetFetch of nonsense"),
        pytest.param(11, 9, b"\x03ab", id="JoinGroup cut off"),
        pytest.param(7, 0, b"", id="ControlledShutdown"),
        pytest.param(1, 4, b"\xff", id="Fetch cut off"),
    ],
)
def test_invalid_request_closes_connection(routes: Routes, key: int, version: int, body: bytes) -> None:
    """A request on which the broker closes the connection closes it through the sidecar too."""
    assert routes.compare(lambda run: exchange(run, frame(key, version, body))) == "closed"


def test_trailing_bytes_go_to_broker(routes: Routes) -> None:
    """A request with trailing bytes gets the broker's reply."""
    routes.compare(lambda run: exchange(run, frame(15, 0, struct.pack(">i", 0) + b"more")))


@pytest.mark.parametrize("length", [-1, 0, 3, 0x7FFFFFFF], ids=str)
def test_impossible_length_closes_connection(routes: Routes, length: int) -> None:
    """An impossible frame length closes the connection."""

    def scenario(run: Run) -> Any:
        with Wire(run.route.plain) as wire:
            wire.send(struct.pack(">i", length) + b"abc")
            return wire.closed()

    assert routes.compare(scenario) is True


def test_future_api_versions_gets_v0_reply(routes: Routes) -> None:
    """ApiVersions of an unknown version gets UNSUPPORTED_VERSION in the form of v0."""
    software = b"\0\2x\2y\0"  # The header's tags are followed by a name, a version, and the body's tags.
    answer = routes.compare(lambda run: exchange(run, frame(18, 99, software)))
    assert answer[:12] == "00000007" + "0023"  # UNSUPPORTED_VERSION in the format of v0


@pytest.mark.parametrize("version", ApiVersionsRequest.VERSIONS)
def test_same_versions_are_advertised(routes: Routes, version: int) -> None:
    """ApiVersions replies are the same directly and through the sidecar, except for the features epoch, which only
    grows.
    """
    epochs: list[int] = []

    def scenario(run: Run) -> Any:
        request = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
        with Wire(run.route.plain) as wire:
            reply = wire.ask(request, version)
        epochs.append(reply.finalized_features_epoch)
        return replace(reply, finalized_features_epoch=0)

    assert routes.compare(scenario).error_code == 0
    assert epochs == sorted(epochs)  # The second reply, through the sidecar, must not have an older epoch.
    assert (min(epochs) >= 0) is (version >= FEATURES_SINCE)


def test_unacknowledged_produce_has_no_reply(routes: Routes) -> None:
    """After Produce with acks=0, the next reply belongs to the next request."""

    def scenario(run: Run) -> Any:
        topic = create_topic(run, "topic")
        produced = b"".join(frame(0, 3, produce_body(topic, f"value {n}".encode())) for n in range(20))
        versions, listed = ApiVersionsRequest(), ListGroupsRequest()
        with Wire(run.route.plain) as wire:
            wire.send(produced)
            first = wire.ask(versions, 0).error_code
            wire.send(frame(0, 3, produce_body(topic, b"last")))
            second = wire.ask(listed, 0).error_code
        return first, second, consume(run, "group", ["topic"], 21)

    assert routes.compare(scenario) == (0, 0, sorted(["last", *(f"value {n}" for n in range(20))]))


def produce_body(topic: str, value: bytes) -> bytes:
    """Returns a Produce v3 body with acks=0 and one record for partition 0."""
    record = b"\0" + b"\0" + b"\0" + b"\x01" + zigzag(len(value)) + value + b"\0"
    record = zigzag(len(record)) + record
    after_crc = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + record
    batch = struct.pack(">qiib", 0, 9 + len(after_crc), -1, 2) + struct.pack(">I", crc32c(after_crc)) + after_crc
    name = topic.encode()
    topics = struct.pack(">ih", 1, len(name)) + name + struct.pack(">iii", 1, 0, len(batch)) + batch
    return struct.pack(">hhi", -1, 0, 5_000) + topics


def zigzag(value: int) -> bytes:
    """Encodes a signed varint of at most two bytes."""
    value <<= 1
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80, value >> 7])


def crc32c(data: bytes) -> int:
    """Returns the CRC-32C checksum of record batches."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_pipelined_commit_is_read_back(routes: Routes, broker: KafkaBroker) -> None:
    """Each pipelined read returns the commit before it, and replies keep the order of requests."""
    broker.wait_for_coordinator()

    def scenario(run: Run) -> Any:
        topic, group = create_topic(run, "topic"), run.name("group")
        questions: list[tuple[Any, int]] = [(MetadataRequest(topics=()), 4)]
        for offset in range(10):
            place = OffsetCommitRequestPartition(
                partition_index=0, committed_offset=offset, committed_metadata=f"note {offset}"
            )
            topics = (OffsetCommitRequestTopic(name=topic, partitions=(place,)),)
            requested = (OffsetFetchRequestTopic(name=topic, partition_indexes=(0,)),)
            questions += [
                (OffsetCommitRequest(group_id=group, topics=topics), 7),
                (OffsetFetchRequest(group_id=group, topics=requested), 5),
                (OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=None),)), 8),
                (DescribeGroupsRequest(groups=(group,)), 5),
                (FindCoordinatorRequest(key=group), 0),
            ]
        with Wire(run.route.plain) as wire:
            sent = [(request, version, wire.send_request(request, version)) for request, version in questions]
            replies = [wire.receive_reply(*each) for each in sent]
        fetched = [(reply.topics[0].partitions[0], reply.error_code) for reply in replies[2::5]]
        all_fetched = [reply.groups[0].topics[0].partitions[0] for reply in replies[3::5]]
        described = [(reply.groups[0].group_state, reply.groups[0].error_code) for reply in replies[4::5]]
        return fetched, all_fetched, described

    fetched, all_fetched, described = routes.compare(scenario)
    assert [(part.committed_offset, part.metadata) for part, _ in fetched] == [(n, f"note {n}") for n in range(10)]
    assert [part.committed_offset for part in all_fetched] == list(range(10))
    assert set(described) == {("Empty", 0)}


def test_many_connections_at_once(routes: Routes) -> None:
    """Fifty simultaneous connections all get their replies."""

    def scenario(run: Run) -> Any:
        wires = [Wire(run.route.plain, client_id=f"wire {number}") for number in range(50)]
        try:
            sent = [wire.send_request(ApiVersionsRequest(), 0) for wire in wires]
            return {
                wire.receive_reply(ApiVersionsRequest(), 0, correlation).error_code
                for wire, correlation in zip(wires, sent, strict=True)
            }
        finally:
            for wire in wires:
                wire.__exit__(None, None, None)

    assert routes.compare(scenario) == {0}
