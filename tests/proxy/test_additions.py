"""Which versions are added to what brokers offer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.headers import encode_reply
from group_sidecar.codecs.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from group_sidecar.codecs.registry import APIS, ApiKey
from group_sidecar.proxy.additions import Versions, additions
from group_sidecar.proxy.commands import ToClient
from group_sidecar.proxy.rewrite import api_versions
from tests.proxy.old_brokers import RELEASES
from tests.proxy.playbook import Line, broker_copy

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
        ("1.1.1", {FETCH: (4, 6), DESCRIBE: (2, 6), LIST: (2, 5)}),  # Of its transactions nothing pending is told.
        ("2.3.1", {FETCH: (6, 6), LIST: (3, 5)}),  # It has static members, and does not describe them.
        ("2.8.2", {FETCH: (8, 9), DESCRIBE: (6, 6), LIST: (5, 5)}),
        ("3.6.2", {FETCH: (9, 9), DESCRIBE: (6, 6), LIST: (5, 5)}),
        ("3.9.1", {}),
        ("4.3.1", {}),
        ("4.4.0", {}),
    ],
)
def test_what_is_added_to_a_release(version: str, expected: Versions) -> None:
    assert additions(RELEASES[version]) == expected


@pytest.mark.parametrize(
    ("offers", "expected"),
    [
        ({}, {}),
        ({FETCH: (0, 0)}, {}),  # It knows offsets in ZooKeeper only.
        ({FETCH: (0, 1)}, {FETCH: (2, 9)}),
        ({FETCH: (3, 2)}, {}),
        ({FETCH: (0, 4), ApiKey.OFFSET_COMMIT: (0, 6)}, {}),  # It keeps leader epochs, and does not tell them.
        ({FETCH: (0, 3), ApiKey.TXN_OFFSET_COMMIT: (0, 2)}, {FETCH: (4, 4)}),
        ({LIST: (0, 0)}, {LIST: (1, 3)}),  # Its groups cannot be described.
        ({LIST: (0, 4), ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 0)}, {}),  # Its groups are of two types.
        ({FETCH: (0, 7), ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 0)}, {FETCH: (8, 8)}),
        ({DESCRIBE: (0, 3), ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 0)}, {DESCRIBE: (4, 5)}),
    ],
)
def test_what_would_have_to_be_guessed_is_not_added(offers: Versions, expected: Versions) -> None:
    assert additions(offers) == expected


def offering(offers: Versions) -> tuple[ApiVersion, ...]:
    return tuple(ApiVersion(api_key=key, min_version=v[0], max_version=v[1]) for key, v in offers.items())


@given(offers=OFFERS, apis=st.sets(st.sampled_from(["ListGroups", "DescribeGroups", "OffsetFetch"])), on=st.booleans())
def test_what_is_advertised_is_what_is_spoken(offers: Versions, apis: set[str], on: bool) -> None:
    copy = broker_copy(answers={"apis": sorted(apis), "enabled": on})
    told = ApiVersionsResponse(error_code=0, api_keys=offering(offers))
    advertised = api_versions(told, set(APIS), copy.added_to(offers), gateway=False, serve=False)
    copy.learn_versions(offers)
    for version in advertised.api_keys:
        (lowest, highest), key = offers[version.api_key], version.api_key
        spoken = [v for v in APIS[key].versions if copy.speaks(key, v)] if key in ADDED and lowest <= highest else []
        assert spoken == [v for v in range(version.min_version, version.max_version + 1) if spoken]
        new = {v for v in APIS[key].versions if copy.adds(key, v)} if key in APIS else set()
        assert new.isdisjoint(range(lowest, highest + 1))
        assert not new or (on and APIS[key].name in apis)
    assert not any(copy.adds(key, v) for key in ADDED if key not in offers for v in range(-1, 12))


def test_nothing_is_added_before_the_broker_is_known() -> None:
    copy = broker_copy()
    assert not any(copy.adds(key, version) for key in ADDED for version in range(12))
    assert copy.speaks(FETCH, 9)


@pytest.mark.parametrize("version", ApiVersionsResponse.VERSIONS)
@pytest.mark.parametrize("authorizer", [False, True])
def test_clients_hear_of_it(version: int, authorizer: bool) -> None:
    copy = broker_copy()
    copy.learn_authorizer(authorizer)
    line, question = Line(copy), ApiVersionsRequest()
    line.says(question, version)
    told = ApiVersionsResponse(error_code=0, api_keys=offering(RELEASES["1.1.1"]))
    heard: ApiVersionsResponse = line.reads(line.broker_says(told, version), question, version)
    expected = {
        key: (lowest, {FETCH: 6, DESCRIBE: 6, LIST: 5}.get(ApiKey(key), highest))
        for key, (lowest, highest) in RELEASES["1.1.1"].items()
    }
    assert {v.api_key: (v.min_version, v.max_version) for v in heard.api_keys} == expected
    assert copy.adds(FETCH, 6)


def test_nothing_is_added_to_what_a_broker_says_beside_an_error() -> None:
    copy = broker_copy()
    line = Line(copy)
    line.says(ApiVersionsRequest(), 3)
    refused = ApiVersionsResponse(error_code=35, api_keys=offering(RELEASES["1.1.1"]))
    assert line.broker_says(refused, 0) == [ToClient(encode_reply(refused, 0, 1))]
    assert not copy.adds(FETCH, 6)
