"""The table of APIs."""

import pytest

from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.registry import APIS, Api, ApiKey, api_name
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
"""Every API that is decoded, from version 0 to this one."""


def test_every_api_and_version_is_there() -> None:
    assert {api.name: api.versions for api in APIS.values()} == {
        name: range(last + 1) for name, last in TABLE_A.items()
    }


def test_an_api_is_found_by_the_number_on_the_wire() -> None:
    assert APIS[12] == Api(ApiKey.HEARTBEAT, "Heartbeat", HeartbeatRequest, HeartbeatResponse)
    assert 4 not in APIS


def test_request_and_response_belong_together() -> None:
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
    heartbeat, handshake = APIS[ApiKey.HEARTBEAT], APIS[ApiKey.SASL_HANDSHAKE]
    assert [heartbeat.flexible(version) for version in heartbeat.versions] == [False] * 4 + [True]
    assert not handshake.flexible(1)


@pytest.mark.parametrize(("key", "name"), [(11, "JoinGroup"), (25, "AddOffsetsToTxn"), (94, "UnregisterController")])
def test_api_name(key: int, name: str) -> None:
    assert api_name(key) == name


@pytest.mark.parametrize("key", [-1, 95, 0x7FFF])
def test_a_key_that_kafka_does_not_name(key: int) -> None:
    assert api_name(key) == "unknown"


@pytest.mark.parametrize("cls", MESSAGES, ids=case_id)
def test_every_message_says_what_it_is(cls: type[Struct]) -> None:
    assert cls.__doc__
    assert not cls.__doc__.startswith(cls.NAME)
