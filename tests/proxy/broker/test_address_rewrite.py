"""Tests that rewritten replies contain the new addresses and versions, and are otherwise unchanged."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.address_scan import NotScannable, find_body_tags
from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.headers import encode_reply
from group_sidecar.codecs.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from group_sidecar.codecs.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from group_sidecar.codecs.messages.metadata import MetadataResponse, MetadataResponseBroker
from group_sidecar.codecs.messages.produce import NodeEndpoint, ProduceResponse
from group_sidecar.codecs.schema import Struct, decode, encode, field_specs
from group_sidecar.proxy.broker.address_rewrite import (
    is_scannable,
    rewrite_addresses,
    scan_and_rewrite,
)
from group_sidecar.proxy.dataplane.framing import LENGTH_BYTES
from tests.codecs.declarations import full_sample, limited_to, null_sample
from tests.codecs.strategies import structs
from tests.proxy.dataplane.playbook import framed

INSPECTED = frozenset({ApiKey.JOIN_GROUP, ApiKey.METADATA})
PLACES = (MetadataResponseBroker, FindCoordinatorResponse, Coordinator, DescribeClusterBroker, NodeEndpoint)
"""The structures that contain a host and a port."""
ADDRESS_APIS = (MetadataResponse, FindCoordinatorResponse, DescribeClusterResponse, ProduceResponse)
CASES = [(message, version) for message in ADDRESS_APIS for version in message.VERSIONS]


def advertise(node_id: int, host: str, port: int) -> tuple[str, int]:
    """Returns a different address for each node and address, as a gateway does."""
    return f"{host}.gateway", (node_id + port) % 1000 + 20_000


def moved(value: Any) -> Any:
    """Returns a message with every address in it replaced. This is the model that the product is compared with."""
    if isinstance(value, tuple):
        return tuple(moved(item) for item in value)
    if not isinstance(value, Struct):
        return value
    value = replace(value, **{name: moved(getattr(value, name)) for name in field_specs(type(value))})
    if isinstance(value, PLACES) and value.host:
        node = value.broker_id if isinstance(value, DescribeClusterBroker) else value.node_id
        host, port = advertise(node, value.host, value.port)
        return replace(value, host=host, port=port, unknown_tags=())
    return replace(value, unknown_tags=()) if isinstance(value, ADDRESS_APIS) else value


@given(st.one_of(structs(FindCoordinatorResponse), structs(ProduceResponse)), st.data())
def test_scan_matches_decoded_rewrite(reply: Any, data: st.DataObject) -> None:
    """For random replies, the scan yields the same bytes as a decoded rewrite. A truncated reply raises."""
    message = type(reply)
    version = data.draw(st.sampled_from([v for v in message.VERSIONS if is_scannable(message.KEY, v)]))
    reply = limited_to(reply, version)
    frame = encode_reply(reply, version, 7)[LENGTH_BYTES:] + b"rest"
    try:
        heard = scan_and_rewrite(message.KEY, version, frame, advertise, 1000)
    except NotScannable:
        assert "unknown_tags=((" in repr(reply)
        return
    changed = rewrite_addresses(reply, advertise)
    body = encode_reply(changed, version, 7)[LENGTH_BYTES:] + b"rest"
    assert heard == (None if changed == reply and heard is None else framed(body))
    cut = data.draw(st.integers(4, len(frame) - 1 - len(b"rest")))
    with pytest.raises((NotScannable, DecodeError)):
        scan_and_rewrite(message.KEY, version, frame[:cut], advertise, 1000)


def test_repeated_address_is_looked_up_once() -> None:
    """A reply with many coordinators looks up each node's address once."""
    looked_up: list[int] = []

    def count(node_id: int, host: str, port: int) -> tuple[str, int]:
        looked_up.append(node_id)
        return advertise(node_id, host, port)

    found = tuple(
        Coordinator(key=f"g-{n}", node_id=n % 3, host=f"kafka-{n % 3}", port=9092, error_code=0, error_message=None)
        for n in range(1000)
    )
    reply = FindCoordinatorResponse(coordinators=found)
    heard = scan_and_rewrite(ApiKey.FIND_COORDINATOR, 4, encode_reply(reply, 4, 1)[LENGTH_BYTES:], count, 1000)
    assert heard == encode_reply(rewrite_addresses(reply, advertise), 4, 1)
    assert sorted(looked_up) == [0, 1, 2]


def is_of_controllers(message: Struct) -> bool:
    return isinstance(message, DescribeClusterResponse) and message.endpoint_type == 2 and bool(message.brokers)


@pytest.mark.parametrize(("message", "version"), CASES)
@pytest.mark.parametrize("sample", [full_sample, null_sample])
def test_addresses_replaced_in_every_version(message: Any, version: int, sample: Any) -> None:
    """Every node's address is replaced in every version of the APIs with addresses."""
    reply = limited_to(sample(message), version)
    rewritten = rewrite_addresses(reply, advertise)
    assert rewritten == moved(reply)
    assert decode(message, version, encode(rewritten, version)) == rewritten


@given(st.one_of(*(structs(message) for message in ADDRESS_APIS)))
def test_rewrite_changes_only_addresses(reply: Struct) -> None:
    """For random replies, the rewrite changes nothing except the addresses and unknown tags."""
    if not is_of_controllers(reply):
        assert rewrite_addresses(reply, advertise) == moved(reply)


def test_controller_addresses_are_refused() -> None:
    """A reply with addresses of controllers raises ValueError."""
    reply = replace(full_sample(DescribeClusterResponse), endpoint_type=2)
    with pytest.raises(ValueError, match="controllers"):
        rewrite_addresses(reply, advertise)
    assert rewrite_addresses(replace(reply, brokers=()), advertise) == replace(reply, brokers=(), unknown_tags=())


def test_unavailable_coordinator_is_unchanged() -> None:
    """The rewrite does not change a coordinator that is not available."""
    none = Coordinator(key="g", node_id=-1, host="", port=-1, error_code=15, error_message=None)
    reply = FindCoordinatorResponse(coordinators=(none,), node_id=-1, port=-1, error_code=15)
    assert rewrite_addresses(reply, advertise) == reply


@pytest.mark.parametrize("message", [ProduceResponse(responses=()), full_sample(APIS[ApiKey.HEARTBEAT].response)])
def test_reply_without_addresses_is_unchanged(message: Struct) -> None:
    """The rewrite returns the same object for a reply without addresses."""
    assert rewrite_addresses(message, advertise) is message


@pytest.mark.parametrize("body", [b"\1", b"\1\0\0\0", b"\1\0\0\0\0", b"\2\1\1\0\0\0\0\0"])
def test_produce_reply_without_its_last_fields_is_not_scanned(body: bytes) -> None:
    """A Produce reply that ends before its tagged fields is refused as cut off (found by the fuzzer)."""
    with pytest.raises(NotScannable, match="cut off"):
        find_body_tags(body, 10, topic_ids=False)


def test_shortest_produce_reply_is_scanned() -> None:
    """The tagged fields of a reply without topics begin after the throttle time."""
    assert find_body_tags(b"\1\0\0\0\0\0", 10, topic_ids=False) == 5
