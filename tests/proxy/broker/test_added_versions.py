"""Tests which versions are added to those that a broker offers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.headers import encode_reply
from group_sidecar.codecs.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from group_sidecar.proxy.broker.added_versions import Versions, added_versions
from group_sidecar.proxy.dataplane.commands import ToClient
from group_sidecar.proxy.handlers.api_versions import offered_api_versions
from tests.proxy.dataplane.playbook import Line, broker_state
from tests.proxy.handlers.old_brokers import RELEASES

FETCH, DESCRIBE, LIST = ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS
ADDED = (FETCH, DESCRIBE, LIST)
OFFERS = st.dictionaries(
    st.sampled_from([*ADDED, ApiKey.METADATA, ApiKey.JOIN_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT])
    | st.sampled_from([ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.CONSUMER_GROUP_HEARTBEAT]),
    st.tuples(st.integers(0, 4), st.integers(-1, 14)),
)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.9.0.1", {FETCH: (2, 9), DESCRIBE: (1, 6), LIST: (1, 5)}),
        ("0.10.1.1", {FETCH: (2, 9), DESCRIBE: (1, 6), LIST: (1, 5)}),
        ("0.10.2.2", {FETCH: (3, 9), DESCRIBE: (1, 6), LIST: (1, 5)}),
        # The broker has transactions, but does not report pending offsets.
        ("1.1.1", {FETCH: (4, 6), DESCRIBE: (2, 6), LIST: (2, 5)}),
        ("2.3.1", {FETCH: (6, 6), LIST: (3, 5)}),  # The broker has static members, but does not report instance ids.
        ("2.8.2", {FETCH: (8, 9), DESCRIBE: (6, 6), LIST: (5, 5)}),
        ("3.6.2", {FETCH: (9, 9), DESCRIBE: (6, 6), LIST: (5, 5)}),
        ("3.9.1", {}),
        ("4.3.1", {}),
        ("4.4.0", {}),
    ],
)
def test_added_versions_of_releases(version: str, expected: Versions) -> None:
    """Each Kafka release has the expected added versions."""
    assert added_versions(RELEASES[version]) == expected


@pytest.mark.parametrize(
    ("offers", "expected"),
    [
        ({}, {}),
        ({FETCH: (0, 0)}, {}),  # The broker has offsets only in ZooKeeper.
        ({FETCH: (0, 1)}, {FETCH: (2, 9)}),
        ({FETCH: (3, 2)}, {}),
        ({FETCH: (0, 4), ApiKey.OFFSET_COMMIT: (0, 6)}, {}),  # It does not report leader epochs.
        ({FETCH: (0, 3), ApiKey.TXN_OFFSET_COMMIT: (0, 2)}, {FETCH: (4, 4)}),
        ({LIST: (0, 0)}, {LIST: (1, 3)}),  # The broker cannot describe groups.
        ({LIST: (0, 4), ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 0)}, {}),  # The broker has groups of two types.
        ({FETCH: (0, 7), ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 0)}, {FETCH: (8, 8)}),
        ({DESCRIBE: (0, 3), ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 0)}, {DESCRIBE: (4, 5)}),
    ],
)
def test_unknowable_versions_are_not_added(offers: Versions, expected: Versions) -> None:
    """A version is not added if its fields would have to be guessed."""
    assert added_versions(offers) == expected


def offering(offers: Versions) -> tuple[ApiVersion, ...]:
    return tuple(ApiVersion(api_key=key, min_version=v[0], max_version=v[1]) for key, v in offers.items())


@given(offers=OFFERS, apis=st.sets(st.sampled_from(["ListGroups", "DescribeGroups", "OffsetFetch"])), on=st.booleans())
def test_advertised_versions_are_spoken(offers: Versions, apis: set[str], on: bool) -> None:
    """For random offers, the advertised versions are exactly the spoken ones, and added ones need enabled answers."""
    state = broker_state(answers={"apis": sorted(apis), "enabled": on})
    offered = ApiVersionsResponse(error_code=0, api_keys=offering(offers))
    advertised = offered_api_versions(
        offered, set(APIS), state.versions.added_versions_for(offers), gateway=False, serve=False
    )
    state.versions.learn(offers)
    for version in advertised.api_keys:
        (lowest, highest), key = offers[version.api_key], version.api_key
        spoken = (
            [v for v in APIS[key].versions if state.versions.speaks(key, v)]
            if key in ADDED and lowest <= highest
            else []
        )
        assert spoken == [v for v in range(version.min_version, version.max_version + 1) if spoken]
        new = {v for v in APIS[key].versions if state.versions.is_added_version(key, v)} if key in APIS else set()
        assert new.isdisjoint(range(lowest, highest + 1))
        assert not new or (on and APIS[key].name in apis)
    assert not any(state.versions.is_added_version(key, v) for key in ADDED if key not in offers for v in range(-1, 12))


def test_no_version_added_before_first_offer() -> None:
    """No version is added before the broker's versions are known."""
    state = broker_state()
    assert not any(state.versions.is_added_version(key, version) for key in ADDED for version in range(12))
    assert state.versions.speaks(FETCH, 9)


@pytest.mark.parametrize("version", ApiVersionsResponse.VERSIONS)
@pytest.mark.parametrize("authorizer", [False, True])
def test_clients_get_added_versions(version: int, authorizer: bool) -> None:
    """The ApiVersions reply to clients contains the added versions."""
    state = broker_state()
    state.learn_authorizer(authorizer)
    line, question = Line(state), ApiVersionsRequest()
    line.sends(question, version)
    offered = ApiVersionsResponse(error_code=0, api_keys=offering(RELEASES["1.1.1"]))
    heard: ApiVersionsResponse = line.reads_reply(line.broker_replies(offered, version), question, version)
    expected = {
        key: (lowest, {FETCH: 6, DESCRIBE: 6, LIST: 5}.get(ApiKey(key), highest))
        for key, (lowest, highest) in RELEASES["1.1.1"].items()
    }
    assert {v.api_key: (v.min_version, v.max_version) for v in heard.api_keys} == expected
    assert state.versions.is_added_version(FETCH, 6)


def test_error_offer_is_unchanged() -> None:
    """An ApiVersions reply with an error is forwarded unchanged."""
    state = broker_state()
    line = Line(state)
    line.sends(ApiVersionsRequest(), 3)
    refused = ApiVersionsResponse(error_code=35, api_keys=offering(RELEASES["1.1.1"]))
    assert line.broker_replies(refused, 0) == [ToClient(encode_reply(refused, 0, 1))]
    assert not state.versions.is_added_version(FETCH, 6)
