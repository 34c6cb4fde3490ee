"""Tests the table of APIs."""

import pytest

from group_sidecar.codecs.api_registry import APIS, ApiKey, api_name
from group_sidecar.codecs.schema import Struct
from tests.codecs.declarations import MESSAGES, case_id

TABLE_A = {
    "Produce": 13,
    "Fetch": 18,
    "ListOffsets": 11,
    "Metadata": 13,
    "OffsetCommit": 10,
    "OffsetFetch": 10,
    "FindCoordinator": 6,
    "JoinGroup": 9,
    "Heartbeat": 4,
    "LeaveGroup": 5,
    "SyncGroup": 5,
    "DescribeGroups": 6,
    "ListGroups": 5,
    "SaslHandshake": 1,
    "ApiVersions": 5,
    "AddOffsetsToTxn": 4,
    "EndTxn": 5,
    "TxnOffsetCommit": 6,
    "InitProducerId": 6,
    "DescribeAcls": 3,
    "SaslAuthenticate": 2,
    "DeleteGroups": 3,
    "OffsetDelete": 0,
    "DescribeCluster": 2,
    "ConsumerGroupHeartbeat": 1,
    "ConsumerGroupDescribe": 1,
}
"""Every decoded API, with its newest version. All versions from 0 on are decoded."""


def test_registry_covers_all_versions() -> None:
    """The API registry contains exactly the expected APIs, each from version 0 to its newest version."""
    assert {api.name: api.versions for api in APIS.values()} == {
        name: range(last + 1) for name, last in TABLE_A.items()
    }


def test_request_matches_response() -> None:
    """The request and the response of each API share its name, key, versions and flexible versions."""
    for key, api in APIS.items():
        assert (api.key, api.name) == (key, api_name(key))
        assert f"{api.name}Response" == api.response.NAME
        assert f"{api.name}Request" == api.request.NAME
        assert (api.request.KEY, api.request.VERSIONS, api.request.FLEXIBLE) == (
            api.response.KEY,
            api.response.VERSIONS,
            api.response.FLEXIBLE,
        )


def test_flexible() -> None:
    """An API reports which of its versions are flexible."""
    heartbeat, handshake = APIS[ApiKey.HEARTBEAT], APIS[ApiKey.SASL_HANDSHAKE]
    assert [heartbeat.flexible(version) for version in heartbeat.versions] == [False] * 4 + [True]
    assert not handshake.flexible(1)


@pytest.mark.parametrize(("key", "name"), [(11, "JoinGroup"), (25, "AddOffsetsToTxn"), (94, "UnregisterController")])
def test_api_name(key: int, name: str) -> None:
    """api_name returns Kafka's name of an API key."""
    assert api_name(key) == name


@pytest.mark.parametrize("key", [-1, 95, 0x7FFF])
def test_api_name_of_unknown_key(key: int) -> None:
    """api_name returns "unknown" for a key that Kafka does not define."""
    assert api_name(key) == "unknown"


@pytest.mark.parametrize("cls", MESSAGES, ids=case_id)
def test_every_message_has_docstring(cls: type[Struct]) -> None:
    """Each message class has a docstring that does not start with the message's name."""
    assert cls.__doc__
    assert not cls.__doc__.startswith(cls.NAME)
