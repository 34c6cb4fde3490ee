"""Replies rewritten: what must change does, and nothing else."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.headers import encode_reply
from group_sidecar.codecs.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from group_sidecar.codecs.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from group_sidecar.codecs.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from group_sidecar.codecs.messages.metadata import MetadataResponse, MetadataResponseBroker
from group_sidecar.codecs.messages.produce import NodeEndpoint, ProduceResponse
from group_sidecar.codecs.places import Odd
from group_sidecar.codecs.registry import APIS, ApiKey
from group_sidecar.codecs.schema import Struct, decode, encode, specs
from group_sidecar.proxy.framing import LENGTH_BYTES
from group_sidecar.proxy.passable import LAST_FETCH_WITHOUT_ENDPOINTS
from group_sidecar.proxy.rewrite import SERVED, addresses, api_versions, walked, walks
from tests.codecs.declarations import brought_down, full_sample, null_sample
from tests.codecs.strategies import structs
from tests.proxy.playbook import framed

INSPECTED = frozenset({ApiKey.JOIN_GROUP, ApiKey.METADATA})
PLACES = (MetadataResponseBroker, FindCoordinatorResponse, Coordinator, DescribeClusterBroker, NodeEndpoint)
"""What carries a host and a port."""
ADDRESSED = (MetadataResponse, FindCoordinatorResponse, DescribeClusterResponse, ProduceResponse)
CASES = [(message, version) for message in ADDRESSED for version in message.VERSIONS]


def advertise(node_id: int, host: str, port: int) -> tuple[str, int]:
    """A gateway's book: the node and where it is, so that no two are the same."""
    return f"{host}.gateway", (node_id + port) % 1000 + 20_000


def moved(value: Any) -> Any:
    """The model: every place inside a message, wherever it stands, moved by its own fields."""
    if isinstance(value, tuple):
        return tuple(moved(item) for item in value)
    if not isinstance(value, Struct):
        return value
    value = replace(value, **{name: moved(getattr(value, name)) for name in specs(type(value))})
    if isinstance(value, PLACES) and value.host:
        node = value.broker_id if isinstance(value, DescribeClusterBroker) else value.node_id
        host, port = advertise(node, value.host, value.port)
        return replace(value, host=host, port=port, unknown_tags=())
    return replace(value, unknown_tags=()) if isinstance(value, ADDRESSED) else value


@given(st.one_of(structs(FindCoordinatorResponse), structs(ProduceResponse)), st.data())
def test_a_reply_that_is_walked_becomes_what_a_decoded_one_does(told: Any, data: st.DataObject) -> None:
    message = type(told)
    version = data.draw(st.sampled_from([v for v in message.VERSIONS if walks(message.KEY, v)]))
    told = brought_down(told, version)
    frame = encode_reply(told, version, 7)[LENGTH_BYTES:] + b"rest"
    try:
        heard = walked(message.KEY, version, frame, advertise, 1000)
    except Odd:
        assert "unknown_tags=((" in repr(told)
        return
    changed = addresses(told, advertise)
    body = encode_reply(changed, version, 7)[LENGTH_BYTES:] + b"rest"
    assert heard == (None if changed == told and heard is None else framed(body))
    cut = data.draw(st.integers(4, len(frame) - 1 - len(b"rest")))
    with pytest.raises((Odd, DecodeError)):
        walked(message.KEY, version, frame[:cut], advertise, 1000)


def test_each_address_is_looked_up_once_in_a_reply_of_very_many() -> None:
    asked: list[int] = []

    def count(node_id: int, host: str, port: int) -> tuple[str, int]:
        asked.append(node_id)
        return advertise(node_id, host, port)

    found = tuple(
        Coordinator(key=f"g-{n}", node_id=n % 3, host=f"kafka-{n % 3}", port=9092, error_code=0, error_message=None)
        for n in range(1000)
    )
    told = FindCoordinatorResponse(coordinators=found)
    heard = walked(ApiKey.FIND_COORDINATOR, 4, encode_reply(told, 4, 1)[LENGTH_BYTES:], count, 1000)
    assert heard == encode_reply(addresses(told, advertise), 4, 1)
    assert sorted(asked) == [0, 1, 2]


def is_of_controllers(message: Struct) -> bool:
    return isinstance(message, DescribeClusterResponse) and message.endpoint_type == 2 and bool(message.brokers)


@pytest.mark.parametrize(("message", "version"), CASES)
@pytest.mark.parametrize("sample", [full_sample, null_sample])
def test_each_nodes_address_is_replaced_in_every_version(message: Any, version: int, sample: Any) -> None:
    told = brought_down(sample(message), version)
    rewritten = addresses(told, advertise)
    assert rewritten == moved(told)
    assert decode(message, version, encode(rewritten, version)) == rewritten


@given(st.one_of(*(structs(message) for message in ADDRESSED)))
def test_addresses_alone_change_whatever_else_a_reply_says(told: Struct) -> None:
    if not is_of_controllers(told):
        assert addresses(told, advertise) == moved(told)


def test_addresses_of_controllers_are_refused() -> None:
    told = replace(full_sample(DescribeClusterResponse), endpoint_type=2)
    with pytest.raises(ValueError, match="controllers"):
        addresses(told, advertise)
    assert addresses(replace(told, brokers=()), advertise) == replace(told, brokers=(), unknown_tags=())


def test_a_coordinator_that_is_not_available_stays_so() -> None:
    none = Coordinator(key="g", node_id=-1, host="", port=-1, error_code=15, error_message=None)
    told = FindCoordinatorResponse(coordinators=(none,), node_id=-1, port=-1, error_code=15)
    assert addresses(told, advertise) == told


@pytest.mark.parametrize("message", [ProduceResponse(responses=()), full_sample(APIS[ApiKey.HEARTBEAT].response)])
def test_a_reply_without_addresses_is_not_touched(message: Struct) -> None:
    assert addresses(message, advertise) is message


def offering(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    """A broker's ApiVersions, by the names of the APIs."""
    keys = tuple(
        ApiVersion(api_key=ApiKey[name], min_version=low, max_version=high, unknown_tags=((9, b"kept"),))
        for name, (low, high) in ranges.items()
    )
    features = (FinalizedFeatureKey(name="group.version", max_version_level=1, min_version_level=1),)
    return ApiVersionsResponse(
        error_code=0, api_keys=keys, finalized_features=features, finalized_features_epoch=7, unknown_tags=((99, b"x"),)
    )


def ranges_of(reply: ApiVersionsResponse) -> dict[str, tuple[int, int]]:
    return {ApiKey(v.api_key).name: (v.min_version, v.max_version) for v in reply.api_keys}


BOTH = {"LIST_GROUPS": (0, 1), "DESCRIBE_GROUPS": (0, 1)}


def test_versions_are_capped_where_requests_are_looked_into_and_only_as_far_as_needed() -> None:
    told = offering(JOIN_GROUP=(0, 99), METADATA=(2, 5), FETCH=(4, 99), HEARTBEAT=(0, 99), **BOTH)
    offered = api_versions(told, INSPECTED, {}, gateway=False, serve=True)
    assert ranges_of(offered) == ranges_of(told) | {"JOIN_GROUP": (0, APIS[ApiKey.JOIN_GROUP].versions[-1])}
    assert replace(offered, api_keys=()) == replace(told, api_keys=())
    assert all(version.unknown_tags == ((9, b"kept"),) for version in offered.api_keys)


def test_an_offer_within_what_is_described_is_not_changed() -> None:
    told = offering(JOIN_GROUP=(2, 9), METADATA=(0, 13), FETCH=(4, 99), **BOTH)
    assert api_versions(told, INSPECTED, {}, gateway=False, serve=True) == told


def test_a_range_beyond_what_is_described_keeps_its_lowest_version() -> None:
    offered = api_versions(offering(JOIN_GROUP=(20, 25)), INSPECTED, {}, gateway=False, serve=False)
    assert ranges_of(offered) == {"JOIN_GROUP": (20, 20)}


def test_a_key_that_is_inspected_but_not_described_is_not_capped() -> None:
    offered = api_versions(offering(DELETE_TOPICS=(0, 99)), {ApiKey.DELETE_TOPICS}, {}, gateway=False, serve=False)
    assert ranges_of(offered) == {"DELETE_TOPICS": (0, 99)}


def test_gateway_offers_only_what_may_pass() -> None:
    """Versions and APIs that no table names may carry addresses, so a gateway does not offer them."""
    told = offering(DELETE_TOPICS=(0, 99), DESCRIBE_QUORUM=(0, 2), LEADER_AND_ISR=(0, 7), JOIN_GROUP=(20, 25))
    unknown = ApiVersion(api_key=95, min_version=0, max_version=0)
    told = replace(told, api_keys=(*told.api_keys, unknown))
    offered = api_versions(told, INSPECTED, {}, gateway=True, serve=False)
    assert ranges_of(offered) == {"DELETE_TOPICS": (0, 6), "DESCRIBE_QUORUM": (0, 1)}


def test_a_gateway_offers_fetch_only_as_far_as_it_carries_no_addresses() -> None:
    told = offering(FETCH=(4, 18), **BOTH)
    assert ranges_of(api_versions(told, INSPECTED, {}, gateway=True, serve=True))["FETCH"] == (
        4,
        LAST_FETCH_WITHOUT_ENDPOINTS,
    )
    assert ranges_of(api_versions(offering(FETCH=(4, 11)), INSPECTED, {}, gateway=True, serve=False))["FETCH"] == (
        4,
        11,
    )


@pytest.mark.parametrize("serve", [False, True])
@pytest.mark.parametrize("has", [{}, {"LIST_GROUPS": (0, 0)}, {"DESCRIBE_GROUPS": (0, 0)}, BOTH])
def test_what_is_served_here_is_offered_where_the_broker_lacks_it(serve: bool, has: dict[str, tuple[int, int]]) -> None:
    offered = ranges_of(api_versions(offering(FETCH=(0, 11), **has), INSPECTED, {}, gateway=False, serve=serve))
    ours = {ApiKey(key).name: (v.min_version, v.max_version) for key, v in SERVED.items()} if serve else {}
    assert offered == {"FETCH": (0, 11)} | ours | has


@pytest.mark.parametrize("version", ApiVersionsResponse.VERSIONS)
def test_a_rewritten_offer_can_be_said_in_every_version(version: int) -> None:
    told = brought_down(offering(JOIN_GROUP=(0, 99)), version)
    offered = api_versions(told, INSPECTED, {}, gateway=True, serve=True)
    assert decode(ApiVersionsResponse, version, encode(offered, version)) == offered
