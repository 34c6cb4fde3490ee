"""Replies that the client must not get as the broker sent them.

Owns: the addresses in Metadata, FindCoordinator, DescribeCluster and Produce (gateway mode), and the
versions in ApiVersions. Must not know: connections, groups. Nothing else is ever re-encoded.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from group_sidecar.codecs.messages.api_versions import ApiVersion, ApiVersionsResponse
from group_sidecar.codecs.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from group_sidecar.codecs.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from group_sidecar.codecs.messages.metadata import MetadataResponse, MetadataResponseBroker
from group_sidecar.codecs.messages.produce import NodeEndpoint, ProduceResponse
from group_sidecar.codecs.registry import APIS, ApiKey
from group_sidecar.codecs.schema import Struct
from group_sidecar.proxy.additions import Versions

Advertise = Callable[[int, str, int], tuple[str, int]]
"""(node id, host, port) of a broker, to the (host, port) under which clients reach it."""

Place = TypeVar(
    "Place", MetadataResponseBroker, FindCoordinatorResponse, Coordinator, DescribeClusterBroker, NodeEndpoint
)
"""What carries a node's host and port."""

LAST_FETCH_WITHOUT_ENDPOINTS = 15
"""From v16 a Fetch reply may carry brokers' addresses (KIP-951), behind all its records. It brings nothing else that
a consumer needs, so a gateway does not offer it, and need not hold every fetched byte to look."""
CONTROLLERS = 2
"""DescribeCluster's endpoint type for controllers, whose addresses are no business of ours."""

SERVED: Mapping[int, ApiVersion] = {
    key: ApiVersion(api_key=key, min_version=APIS[key].versions[0], max_version=APIS[key].versions[-1])
    for key in (ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS)
}
"""What is offered where the broker has no such API at all."""


def api_versions(
    reply: ApiVersionsResponse, inspected: Collection[int], added: Versions, *, gateway: bool, serve: bool
) -> ApiVersionsResponse:
    """Caps what the broker offers at what is decoded here, of the APIs looked into only; adds what is served here.

    `added`: versions that the sidecar adds to APIs of the broker's (`additions`).
    """
    offered = tuple(_raised(_capped(version, inspected, gateway), added) for version in reply.api_keys)
    if serve:
        keys = {version.api_key for version in offered}
        offered += tuple(version for key, version in SERVED.items() if key not in keys)
    return replace(reply, api_keys=offered)


def _capped(version: ApiVersion, inspected: Collection[int], gateway: bool) -> ApiVersion:
    cap = version.max_version
    if version.api_key in inspected and version.api_key in APIS:
        cap = APIS[version.api_key].versions[-1]
    if gateway and version.api_key == ApiKey.FETCH:
        cap = LAST_FETCH_WITHOUT_ENDPOINTS
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
    """The reply with each broker's address replaced; equal to it where it has none."""
    if isinstance(reply, MetadataResponse):
        return replace(reply, brokers=tuple(_moved(b, b.node_id, advertise) for b in reply.brokers))
    if isinstance(reply, FindCoordinatorResponse):
        found = tuple(_moved(c, c.node_id, advertise) for c in reply.coordinators)
        return replace(_moved(reply, reply.node_id, advertise), coordinators=found)
    if isinstance(reply, DescribeClusterResponse) and reply.endpoint_type != CONTROLLERS:
        return replace(reply, brokers=tuple(_moved(b, b.broker_id, advertise) for b in reply.brokers))
    if isinstance(reply, ProduceResponse) and reply.node_endpoints:
        return replace(reply, node_endpoints=tuple(_moved(e, e.node_id, advertise) for e in reply.node_endpoints))
    return reply


def _moved(place: Place, node_id: int, advertise: Advertise) -> Place:
    """The same with the node's address replaced; as it is where it names none (a coordinator that is not available)."""
    if not place.host:
        return place
    host, port = advertise(node_id, place.host, place.port)
    return replace(place, host=host, port=port)
