"""Tests of the versions that ApiVersions replies offer to clients."""

from dataclasses import replace

import pytest

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from group_sidecar.codecs.schema import decode, encode
from group_sidecar.proxy.broker.gateway_apis import GATEWAY_VERSIONS
from group_sidecar.proxy.handlers.api_versions import SERVED_APIS, offered_api_versions
from tests.codecs.declarations import limited_to

BOTH = {"LIST_GROUPS": (0, 1), "DESCRIBE_GROUPS": (0, 1)}
INSPECTED = frozenset({ApiKey.JOIN_GROUP, ApiKey.METADATA})


def offering(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    """Returns a broker's ApiVersions, given by the names of the APIs."""
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


def test_only_inspected_versions_are_capped() -> None:
    """An inspected API is capped at the highest version that the codecs declare, and other APIs are unchanged."""
    offer = offering(JOIN_GROUP=(0, 99), METADATA=(2, 5), FETCH=(4, 99), HEARTBEAT=(0, 99), **BOTH)
    offered = offered_api_versions(offer, INSPECTED, {}, gateway=False, serve=True)
    assert ranges_of(offered) == ranges_of(offer) | {"JOIN_GROUP": (0, APIS[ApiKey.JOIN_GROUP].versions[-1])}
    assert replace(offered, api_keys=()) == replace(offer, api_keys=())
    assert all(version.unknown_tags == ((9, b"kept"),) for version in offered.api_keys)


def test_declared_offer_is_unchanged() -> None:
    """An offer within the declared versions is unchanged."""
    offered = offering(JOIN_GROUP=(2, 9), METADATA=(0, 13), FETCH=(4, 99), **BOTH)
    assert offered_api_versions(offered, INSPECTED, {}, gateway=False, serve=True) == offered


def test_undeclared_range_keeps_lowest_version() -> None:
    """A range above the declared versions keeps its lowest version only."""
    offered = offered_api_versions(offering(JOIN_GROUP=(20, 25)), INSPECTED, {}, gateway=False, serve=False)
    assert ranges_of(offered) == {"JOIN_GROUP": (20, 20)}


def test_undeclared_api_is_not_capped() -> None:
    """An inspected API that the codecs do not declare is not capped."""
    offered = offered_api_versions(
        offering(DELETE_TOPICS=(0, 99)), {ApiKey.DELETE_TOPICS}, {}, gateway=False, serve=False
    )
    assert ranges_of(offered) == {"DELETE_TOPICS": (0, 99)}


def test_gateway_offers_known_apis_only() -> None:
    """A gateway offers only APIs and versions that are known to carry no unhandled addresses."""
    offer = offering(DELETE_TOPICS=(0, 99), DESCRIBE_QUORUM=(0, 2), LEADER_AND_ISR=(0, 7), JOIN_GROUP=(20, 25))
    unknown = ApiVersion(api_key=95, min_version=0, max_version=0)
    offer = replace(offer, api_keys=(*offer.api_keys, unknown))
    offered = offered_api_versions(offer, INSPECTED, {}, gateway=True, serve=False)
    assert ranges_of(offered) == {"DELETE_TOPICS": (0, 6), "DESCRIBE_QUORUM": (0, 2)}


def test_gateway_caps_fetch_version() -> None:
    """A gateway offers Fetch up to the last version whose addresses it can replace."""
    assert GATEWAY_VERSIONS[ApiKey.FETCH] == 18
    offered = offering(FETCH=(4, 19), **BOTH)
    assert ranges_of(offered_api_versions(offered, INSPECTED, {}, gateway=True, serve=True))["FETCH"] == (
        4,
        18,
    )
    assert ranges_of(offered_api_versions(offering(FETCH=(4, 11)), INSPECTED, {}, gateway=True, serve=False))[
        "FETCH"
    ] == (
        4,
        11,
    )


@pytest.mark.parametrize("serve", [False, True])
@pytest.mark.parametrize("has", [{}, {"LIST_GROUPS": (0, 0)}, {"DESCRIBE_GROUPS": (0, 0)}, BOTH])
def test_served_apis_fill_the_offer(serve: bool, has: dict[str, tuple[int, int]]) -> None:
    """If `serve` is true, APIs that the sidecar itself serves are offered even if the broker lacks them, and the
    broker's own ranges are unchanged.
    """
    offered = ranges_of(offered_api_versions(offering(FETCH=(0, 11), **has), INSPECTED, {}, gateway=False, serve=serve))
    ours = {ApiKey(key).name: (v.min_version, v.max_version) for key, v in SERVED_APIS.items()} if serve else {}
    assert offered == {"FETCH": (0, 11)} | ours | has


@pytest.mark.parametrize("version", ApiVersionsResponse.VERSIONS)
def test_rewritten_offer_encodes_in_every_version(version: int) -> None:
    """A rewritten offer can be encoded and decoded in every ApiVersions version."""
    offer = limited_to(offering(JOIN_GROUP=(0, 99)), version)
    offered = offered_api_versions(offer, INSPECTED, {}, gateway=True, serve=True)
    assert decode(ApiVersionsResponse, version, encode(offered, version)) == offered
