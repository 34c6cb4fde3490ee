"""Replies that the client must not get as the broker sent them.

Owns: the addresses in Metadata, FindCoordinator, DescribeCluster and Produce (gateway mode), and the
versions in ApiVersions. Must not know: connections, groups. Nothing else is ever re-encoded.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from io import BytesIO
from typing import TypeVar

from group_sidecar.codecs.headers import framed_reply, reply_start
from group_sidecar.codecs.messages.api_versions import ApiVersion, ApiVersionsResponse
from group_sidecar.codecs.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from group_sidecar.codecs.messages.find_coordinator import MANY_KEYS_SINCE, Coordinator, FindCoordinatorResponse
from group_sidecar.codecs.messages.metadata import MetadataResponse, MetadataResponseBroker, with_brokers
from group_sidecar.codecs.messages.produce import TOPIC_IDS_SINCE, NodeEndpoint, ProduceResponse
from group_sidecar.codecs.places import tags_at, with_coordinators
from group_sidecar.codecs.primitives import compact_text, decoded, read_exact, read_uvarint
from group_sidecar.codecs.registry import APIS, ApiKey
from group_sidecar.codecs.schema import Struct, decode_start, encode
from group_sidecar.proxy.additions import Versions
from group_sidecar.proxy.framing import LENGTH_BYTES
from group_sidecar.proxy.passable import PASSABLE

Advertise = Callable[[int, str, int], tuple[str, int]]
"""(node id, host, port) of a broker, to the (host, port) under which clients reach it."""

Place = TypeVar(
    "Place", MetadataResponseBroker, FindCoordinatorResponse, Coordinator, DescribeClusterBroker, NodeEndpoint
)
"""What carries a node's host and port."""

CONTROLLERS = 2
"""DescribeCluster's endpoint type for controllers. A broker refuses to tell of them (MISMATCHED_ENDPOINT_TYPE)."""

SERVED: Mapping[int, ApiVersion] = {
    key: ApiVersion(api_key=key, min_version=APIS[key].versions[0], max_version=APIS[key].versions[-1])
    for key in (ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS)
}
"""What is offered where the broker has no such API at all."""

_WALKED: Mapping[int, range] = {
    ApiKey.FIND_COORDINATOR: range(MANY_KEYS_SINCE, FindCoordinatorResponse.VERSIONS.stop),
    ApiKey.PRODUCE: range(ProduceResponse.FLEXIBLE, ProduceResponse.VERSIONS.stop),
}
_NO_TOPICS, _THROTTLE_BYTES = b"\1", 4
"""Of a Produce reply: the topics of one that has none, and the time behind them."""


def api_versions(
    reply: ApiVersionsResponse, inspected: Collection[int], added: Versions, *, gateway: bool, serve: bool
) -> ApiVersionsResponse:
    """Caps what the broker offers at what is decoded here, of the APIs looked into only; adds what is served here.

    A gateway offers what may pass it, and nothing else. `added`: versions that the sidecar adds to APIs of the broker's
    (`additions`).
    """
    if gateway:
        passing = (v for v in reply.api_keys if v.min_version <= PASSABLE.get(v.api_key, -1))
        capped = (_capped(v, PASSABLE[v.api_key]) for v in passing)
    else:
        described = {key: APIS[key].versions[-1] for key in inspected if key in APIS}
        capped = (_capped(v, described.get(v.api_key, v.max_version)) for v in reply.api_keys)
    offered = tuple(_raised(version, added) for version in capped)
    if serve:
        keys = {version.api_key for version in offered}
        offered += tuple(version for key, version in SERVED.items() if key not in keys)
    return replace(reply, api_keys=offered)


def _capped(version: ApiVersion, cap: int) -> ApiVersion:
    return version if cap >= version.max_version else replace(version, max_version=max(version.min_version, cap))


def _raised(version: ApiVersion, added: Versions) -> ApiVersion:
    own = version.api_key not in added
    return version if own else replace(version, max_version=added[version.api_key][1])


def group_coordinators_only(reply: ApiVersionsResponse) -> ApiVersionsResponse:
    """Offers FindCoordinator in its first version alone: another v1 is answered in the place of Kafka's."""
    offered = tuple(
        replace(v, max_version=v.min_version) if v.api_key == ApiKey.FIND_COORDINATOR else v for v in reply.api_keys
    )
    return replace(reply, api_keys=offered)


def addresses(reply: Struct, advertise: Advertise) -> Struct:
    """The reply with each broker's address replaced; equal to it where it has none.

    Tagged fields that are not described are left out: a newer broker may put addresses into them, and clients must do
    without them (KIP-482).

    Raises:
        ValueError: an address stands there for which a gateway has no port.
    """
    if isinstance(reply, MetadataResponse):
        brokers = tuple(_moved(b, b.node_id, advertise) for b in reply.brokers)
        return replace(reply, brokers=brokers, unknown_tags=())
    if isinstance(reply, FindCoordinatorResponse):
        found = tuple(_moved(c, c.node_id, advertise) for c in reply.coordinators)
        return replace(_moved(reply, reply.node_id, advertise), coordinators=found, unknown_tags=())
    if isinstance(reply, DescribeClusterResponse):
        if reply.endpoint_type == CONTROLLERS and reply.brokers:
            raise ValueError("the addresses of controllers, which a gateway has no ports for")
        brokers_moved = tuple(_moved(b, b.broker_id, advertise) for b in reply.brokers)
        return replace(reply, brokers=brokers_moved, unknown_tags=())
    if isinstance(reply, ProduceResponse) and (reply.node_endpoints or reply.unknown_tags):
        endpoints = tuple(_moved(e, e.node_id, advertise) for e in reply.node_endpoints)
        return replace(reply, node_endpoints=endpoints, unknown_tags=())
    return reply


def long_metadata(version: int, frame: bytes, advertise: Advertise) -> bytes:
    """A Metadata reply with each broker's address replaced, whole. Nothing else of it is decoded.

    `frame`: without its length.

    Raises:
        DecodeError: its brokers cannot be read.
    """
    at = reply_start(frame, version >= MetadataResponse.HEADER_FLEXIBLE)
    start, changed, end = with_brokers(version, frame, at, lambda broker: _moved(broker, broker.node_id, advertise))
    size = start + len(changed) + len(frame) - end
    rest = memoryview(frame)
    return b"".join((size.to_bytes(LENGTH_BYTES, "big"), rest[:start], changed, rest[end:]))


def walks(api_key: int, version: int) -> bool:
    """Whether `walked` knows where the addresses of such a reply stand."""
    return version in _WALKED.get(api_key, ())


def walked(api_key: int, version: int, frame: bytes, advertise: Advertise, most: int) -> bytes | None:
    """Returns the whole frame of a long reply with each address replaced; None where the reply has no address. Entries
    are stepped over, not decoded.

    `frame`: without its length. `most`: entries that are stepped over.

    Raises:
        Odd: the reply has to be decoded.
        DecodeError: the header is cut off, or the tagged fields of a Produce reply cannot be read.
        ValueError: the reply has an address for which a gateway has no port.
    """
    at = reply_start(frame, flexible=True)
    body = frame[at:]
    if api_key == ApiKey.FIND_COORDINATOR:
        changed = with_coordinators(body, most, lambda address: _moved_address(address, advertise))
    else:
        tags = tags_at(body, most, topic_ids=version >= TOPIC_IDS_SINCE)
        if body[tags : tags + 1] == b"\0":
            return None
        # Nothing but the tagged fields, as in a reply without topics.
        told, rest = decode_start(ProduceResponse, version, _NO_TOPICS + body[tags - _THROTTLE_BYTES :])
        changed = encode(addresses(told, advertise), version).removeprefix(_NO_TOPICS) + rest
        changed = body[: tags - _THROTTLE_BYTES] + changed
    return framed_reply(int.from_bytes(frame[:4], "big", signed=True), frame[4:at] + changed)


def _moved_address(address: bytes, advertise: Advertise) -> bytes:
    """An encoded address replaced: node id, host in its compact form, and port."""
    stream = BytesIO(address)
    node_id = int.from_bytes(read_exact(stream, 4), "big", signed=True)
    host = decoded(read_exact(stream, read_uvarint(stream) - 1))
    port = int.from_bytes(read_exact(stream, 4), "big", signed=True)
    if not host:
        return address
    host, port = advertise(node_id, host, port)
    return address[:4] + compact_text(host) + port.to_bytes(4, "big", signed=True)


def _moved(place: Place, node_id: int, advertise: Advertise) -> Place:
    """The same with the node's address replaced; as it is where it names none (a coordinator that is not available)."""
    if not place.host:
        return place
    host, port = advertise(node_id, place.host, place.port)
    return replace(place, host=host, port=port, unknown_tags=())
