"""The table of APIs: the name of each key, which APIs are decoded, and in which versions.

Each module of `messages` declares the versions of its API. This table only collects the APIs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

from group_sidecar.codecs.messages import (
    add_offsets_to_txn,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_acls,
    describe_cluster,
    describe_groups,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
)
from group_sidecar.codecs.schema import Struct


class ApiKey(IntEnum):
    """Every API key that Kafka 4.4 names (Kafka class ``ApiKeys``), including removed APIs."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94


_NAMES = {key.value: "".join(word.capitalize() for word in key.name.split("_")) for key in ApiKey}


def api_name(key: int) -> str:
    """Returns Kafka's name of an API, such as ``JoinGroup``, or ``unknown`` for a key that Kafka 4.4 does not name."""
    return _NAMES.get(key, "unknown")


@dataclass(frozen=True)
class Api:
    """An API whose requests and replies this package can decode and encode."""

    key: ApiKey
    name: str
    request: type[Struct]
    response: type[Struct]

    @property
    def versions(self) -> range:
        """The versions that this package can decode."""
        return self.response.VERSIONS

    def flexible(self, version: int) -> bool:
        """Whether bodies and the request header have tagged fields. For reply headers see `Struct.HEADER_FLEXIBLE`."""
        return version >= self.response.FLEXIBLE


def _api(request: type[Struct], response: type[Struct]) -> Api:
    key = ApiKey(response.KEY)
    return Api(key, api_name(key), request, response)


_DECODED = (
    _api(produce.ProduceRequest, produce.ProduceResponse),
    _api(fetch.FetchRequest, fetch.FetchResponse),
    _api(list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse),
    _api(metadata.MetadataRequest, metadata.MetadataResponse),
    _api(offset_commit.OffsetCommitRequest, offset_commit.OffsetCommitResponse),
    _api(offset_fetch.OffsetFetchRequest, offset_fetch.OffsetFetchResponse),
    _api(find_coordinator.FindCoordinatorRequest, find_coordinator.FindCoordinatorResponse),
    _api(join_group.JoinGroupRequest, join_group.JoinGroupResponse),
    _api(heartbeat.HeartbeatRequest, heartbeat.HeartbeatResponse),
    _api(leave_group.LeaveGroupRequest, leave_group.LeaveGroupResponse),
    _api(sync_group.SyncGroupRequest, sync_group.SyncGroupResponse),
    _api(describe_groups.DescribeGroupsRequest, describe_groups.DescribeGroupsResponse),
    _api(list_groups.ListGroupsRequest, list_groups.ListGroupsResponse),
    _api(sasl_handshake.SaslHandshakeRequest, sasl_handshake.SaslHandshakeResponse),
    _api(api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse),
    _api(init_producer_id.InitProducerIdRequest, init_producer_id.InitProducerIdResponse),
    _api(add_offsets_to_txn.AddOffsetsToTxnRequest, add_offsets_to_txn.AddOffsetsToTxnResponse),
    _api(end_txn.EndTxnRequest, end_txn.EndTxnResponse),
    _api(txn_offset_commit.TxnOffsetCommitRequest, txn_offset_commit.TxnOffsetCommitResponse),
    _api(describe_acls.DescribeAclsRequest, describe_acls.DescribeAclsResponse),
    _api(sasl_authenticate.SaslAuthenticateRequest, sasl_authenticate.SaslAuthenticateResponse),
    _api(delete_groups.DeleteGroupsRequest, delete_groups.DeleteGroupsResponse),
    _api(offset_delete.OffsetDeleteRequest, offset_delete.OffsetDeleteResponse),
    _api(describe_cluster.DescribeClusterRequest, describe_cluster.DescribeClusterResponse),
    _api(
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse
    ),
    _api(consumer_group_describe.ConsumerGroupDescribeRequest, consumer_group_describe.ConsumerGroupDescribeResponse),
)

APIS: Mapping[int, Api] = MappingProxyType({api.key: api for api in _DECODED})
"""The APIs that are decoded, by key."""
