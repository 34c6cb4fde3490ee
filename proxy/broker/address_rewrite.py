"""Replaces the addresses of brokers in replies to the clients of a gateway.

The module rewrites replies to Metadata, FindCoordinator, DescribeCluster and Produce. `tail_rewrite` replaces addresses
that come after all other fields of a reply.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from io import BytesIO
from typing import TypeVar

from group_sidecar.codecs.address_scan import find_body_tags, rewrite_coordinators
from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.headers import framed_reply, reply_start
from group_sidecar.codecs.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from group_sidecar.codecs.messages.find_coordinator import (
    FIRST_VERSION_OF_MANY_KEYS,
    Coordinator,
    FindCoordinatorResponse,
)
from group_sidecar.codecs.messages.metadata import MetadataResponse, MetadataResponseBroker, with_brokers
from group_sidecar.codecs.messages.produce import TOPIC_IDS_SINCE, NodeEndpoint, ProduceResponse
from group_sidecar.codecs.primitives import decoded, encode_compact_string, read_exact, read_uvarint
from group_sidecar.codecs.schema import Struct, decode_start, encode
from group_sidecar.proxy.dataplane.framing import LENGTH_BYTES

Advertise = Callable[[int, str, int], tuple[str, int]]
"""Maps (node id, host, port) of a broker to the (host, port) under which clients reach the broker."""

NodeAddress = TypeVar(
    "NodeAddress", MetadataResponseBroker, FindCoordinatorResponse, Coordinator, DescribeClusterBroker, NodeEndpoint
)
"""A structure that carries a node's host and port."""

CONTROLLER_ENDPOINTS = 2
"""DescribeCluster's endpoint type for controllers. A broker refuses requests of this type
(MISMATCHED_ENDPOINT_TYPE)."""

_SCANNED_VERSIONS: Mapping[int, range] = {
    ApiKey.FIND_COORDINATOR: range(FIRST_VERSION_OF_MANY_KEYS, FindCoordinatorResponse.VERSIONS.stop),
    ApiKey.PRODUCE: range(ProduceResponse.FLEXIBLE, ProduceResponse.VERSIONS.stop),
}
_NO_TOPICS, _THROTTLE_BYTES = b"\1", 4
"""Parts of a Produce reply: the encoding of an empty array of topics, and the size of the throttle time after the
topics."""


def rewrite_addresses(reply: Struct, advertise: Advertise) -> Struct:
    """Returns the reply with each broker's address replaced, or an equal reply if there is no address.

    Tagged fields that the schema does not describe are left out. A newer broker may put addresses into such fields, and
    clients must work without such fields (KIP-482).

    Raises:
        ValueError: the reply has an address for which a gateway has no port.
    """
    if isinstance(reply, MetadataResponse):
        brokers = tuple(_with_advertised_address(b, b.node_id, advertise) for b in reply.brokers)
        return replace(reply, brokers=brokers, unknown_tags=())
    if isinstance(reply, FindCoordinatorResponse):
        found = tuple(_with_advertised_address(c, c.node_id, advertise) for c in reply.coordinators)
        return replace(_with_advertised_address(reply, reply.node_id, advertise), coordinators=found, unknown_tags=())
    if isinstance(reply, DescribeClusterResponse):
        if reply.endpoint_type == CONTROLLER_ENDPOINTS and reply.brokers:
            raise ValueError("the addresses of controllers, which a gateway has no ports for")
        brokers_moved = tuple(_with_advertised_address(b, b.broker_id, advertise) for b in reply.brokers)
        return replace(reply, brokers=brokers_moved, unknown_tags=())
    if isinstance(reply, ProduceResponse) and (reply.node_endpoints or reply.unknown_tags):
        endpoints = tuple(_with_advertised_address(e, e.node_id, advertise) for e in reply.node_endpoints)
        return replace(reply, node_endpoints=endpoints, unknown_tags=())
    return reply


def rewrite_long_metadata(version: int, frame: bytes, advertise: Advertise) -> bytes:
    """Returns the whole frame of a Metadata reply with each broker's address replaced. Only the brokers are decoded.

    `frame`: without its length.

    Raises:
        DecodeError: the brokers cannot be decoded.
    """
    at = reply_start(frame, version >= MetadataResponse.HEADER_FLEXIBLE)
    start, changed, end = with_brokers(
        version, frame, at, lambda broker: _with_advertised_address(broker, broker.node_id, advertise)
    )
    size = start + len(changed) + len(frame) - end
    rest = memoryview(frame)
    return b"".join((size.to_bytes(LENGTH_BYTES, "big"), rest[:start], changed, rest[end:]))


def is_scannable(api_key: int, version: int) -> bool:
    """Whether `scan_and_rewrite` knows the layout of replies of this API and version."""
    return version in _SCANNED_VERSIONS.get(api_key, ())


def scan_and_rewrite(api_key: int, version: int, frame: bytes, advertise: Advertise, max_entries: int) -> bytes | None:
    """Returns the whole frame of a long reply with each address replaced, or None if the reply has no address.

    Entries are skipped, not decoded.

    Args:
        api_key: the API of the reply.
        version: the version of the reply.
        frame: the reply without its length.
        advertise: returns the address that replaces a broker's.
        max_entries: the maximum number of entries that are skipped.

    Raises:
        NotScannable: the reply has to be decoded.
        DecodeError: the header is cut off, or the tagged fields of a Produce reply cannot be decoded.
        ValueError: the reply has an address for which a gateway has no port.
    """
    at = reply_start(frame, flexible=True)
    body = frame[at:]
    if api_key == ApiKey.FIND_COORDINATOR:
        changed = rewrite_coordinators(body, max_entries, lambda address: _advertised_address_bytes(address, advertise))
    else:
        tags = find_body_tags(body, max_entries, topic_ids=version >= TOPIC_IDS_SINCE)
        if body[tags : tags + 1] == b"\0":
            return None
        # Decode only the tagged fields, as if the reply had no topics.
        response, rest = decode_start(ProduceResponse, version, _NO_TOPICS + body[tags - _THROTTLE_BYTES :])
        changed = encode(rewrite_addresses(response, advertise), version).removeprefix(_NO_TOPICS) + rest
        changed = body[: tags - _THROTTLE_BYTES] + changed
    return framed_reply(int.from_bytes(frame[:4], "big", signed=True), frame[4:at] + changed)


def rewrite_endpoint(endpoint: NodeEndpoint, advertise: Advertise) -> NodeEndpoint:
    """Returns a node's address as clients reach it. Raises ValueError if a gateway has no port for the node."""
    return _with_advertised_address(endpoint, endpoint.node_id, advertise)


def _advertised_address_bytes(address: bytes, advertise: Advertise) -> bytes:
    """Returns an encoded address (node id, compact host, port) with host and port replaced."""
    stream = BytesIO(address)
    node_id = int.from_bytes(read_exact(stream, 4), "big", signed=True)
    host = decoded(read_exact(stream, read_uvarint(stream) - 1))
    port = int.from_bytes(read_exact(stream, 4), "big", signed=True)
    if not host:
        return address
    host, port = advertise(node_id, host, port)
    return address[:4] + encode_compact_string(host) + port.to_bytes(4, "big", signed=True)


def _with_advertised_address(node: NodeAddress, node_id: int, advertise: Advertise) -> NodeAddress:
    """Returns the node with its address replaced. A node without a host, such as an unavailable coordinator, is
    unchanged.
    """
    if not node.host:
        return node
    host, port = advertise(node_id, node.host, node.port)
    return replace(node, host=host, port=port, unknown_tags=())
