"""Sends single requests about groups and offsets, in a version that the broker has.

The module handles the differences between the versions of an API, such as the place of the error code.

Every function that sends a request raises the exceptions of `KafkaClient.ask`. `listed_groups`, `find_coordinator` and
`committed_offsets` also raise BrokerRefused if the broker replies with an error.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
)
from group_sidecar.coordinator.model.views import TopicPartition
from group_sidecar.proxy.broker.broker_errors import BrokerRefused
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.runtime.addresses import Address

_STATES_FROM, _TYPES_FROM = 4, 5  # ListGroups (KIP-518, KIP-848).
_NULL_TOPICS_FROM, _GROUPS_FROM, _NAMES_UNTIL = 2, 8, 9  # OffsetFetch (KIP-88, KIP-709, KIP-848).
_COORDINATORS_FROM = 4  # FindCoordinator (KIP-699).
_NO_CREATION_FROM = 4  # Metadata: in older versions a request for a topic by name may create the topic.

DESCRIBE_GROUPS_MAX_VERSION = 5
"""The highest DescribeGroups version to use. v4 has the instance ids; v6 only changes how a missing group is
reported."""
UNFILTERED_LISTING_CODES = (ErrorCode.NONE, ErrorCode.SECURITY_DISABLED)
"""Results of `describe_acls_error` that mean that ListGroups returns all groups. A user who may describe ACLs may
describe the cluster, and so may list all groups. Other users may not see some groups (KIP-231)."""
# Asks for rules of a principal that does not exist, so that the reply is short if there is an authorizer.
_ANY_ACL = DescribeAclsRequest(
    resource_type_filter=4,
    resource_name_filter="kafka-cluster",
    principal_filter="User:kafka-group-sidecar",
    host_filter=None,
    operation=1,
    permission_type=1,
)


@dataclass(frozen=True, slots=True)
class Node:
    """A broker, with the address that it advertises."""

    id: int
    host: str
    port: int

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


async def brokers(client: KafkaClient) -> tuple[Node, ...]:
    """Returns all brokers of the cluster."""
    reply: MetadataResponse = await client.ask(MetadataRequest(topics=()))
    return nodes_of(reply)


async def describe_acls_error(client: KafkaClient) -> int:
    """Returns the error code of a DescribeAcls reply: SECURITY_DISABLED if the broker has no authorizer."""
    reply: DescribeAclsResponse = await client.ask(_ANY_ACL)
    return reply.error_code


async def listed_groups(
    client: KafkaClient, states: Sequence[str] = (), types: Sequence[str] = ()
) -> tuple[ListedGroup, ...]:
    """Returns the groups that this broker coordinates. Raises UnsupportedApi if the broker lacks the requested
    filter.
    """
    lowest = _TYPES_FROM if types else _STATES_FROM if states else 0
    request = ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))
    reply: ListGroupsResponse = await client.ask(request, client.version_for(ListGroupsRequest, lowest=lowest))
    _raise_for_error(client, "ListGroups", reply.error_code)
    return reply.groups


async def find_coordinator(client: KafkaClient, group_id: str) -> Node:
    """Returns the broker that coordinates a group."""
    version = client.version_for(FindCoordinatorRequest)
    request = FindCoordinatorRequest(key=group_id, coordinator_keys=(group_id,))
    reply: FindCoordinatorResponse = await client.ask(request, version)
    if version < _COORDINATORS_FROM:
        _raise_for_error(client, "FindCoordinator", reply.error_code, reply.error_message)
        return Node(reply.node_id, reply.host, reply.port)
    for found in reply.coordinators:
        if found.key == group_id:
            _raise_for_error(client, "FindCoordinator", found.error_code, found.error_message)
            return Node(found.node_id, found.host, found.port)
    raise DecodeError(f"FindCoordinatorResponse v{version}", "coordinators", "lacks the group asked for")


async def committed_offsets(client: KafkaClient, group_id: str) -> dict[TopicPartition, OffsetFetchResponsePartition]:
    """Returns a group's committed offsets, and the partitions for which the broker reports an error."""
    version = client.version_for(OffsetFetchRequest, highest=_NAMES_UNTIL)
    topics = None if version >= _NULL_TOPICS_FROM else await _all_partitions(client)
    request = OffsetFetchRequest(
        group_id=group_id, topics=topics, groups=(OffsetFetchRequestGroup(group_id=group_id, topics=topics),)
    )
    reply: OffsetFetchResponse = await client.ask(request, version)
    found, error = reply.topics, reply.error_code
    if version >= _GROUPS_FROM:
        groups = [group for group in reply.groups if group.group_id == group_id]
        if not groups:
            raise DecodeError(f"OffsetFetchResponse v{version}", "groups", "lacks the group asked for")
        found, error = groups[0].topics, groups[0].error_code
    _raise_for_error(client, "OffsetFetch", error)
    return {
        (topic.name, partition.partition_index): partition
        for topic in found
        for partition in topic.partitions
        if partition.committed_offset >= 0 or partition.error_code
    }


async def leaders_of(client: KafkaClient, topics: Iterable[str]) -> dict[TopicPartition, Node]:
    """Returns the leaders of these topics' partitions. Partitions without a leader and missing topics are left out."""
    wanted = set(topics)
    reply = await metadata(client, wanted)
    nodes = {node.id: node for node in nodes_of(reply)}
    return {
        (topic.name, partition.partition_index): nodes[partition.leader_id]
        for topic in reply.topics
        for partition in topic.partitions
        if topic.name is not None and topic.name in wanted and partition.leader_id in nodes
    }


def _raise_for_error(client: KafkaClient, api: str, code: int, message: str | None = None) -> None:
    if code:
        raise BrokerRefused(f"{client.address} answers {api}", code, message)


def nodes_of(reply: MetadataResponse) -> tuple[Node, ...]:
    """Returns the brokers in a Metadata reply."""
    return tuple(Node(broker.node_id, broker.host, broker.port) for broker in reply.brokers)


async def metadata(client: KafkaClient, names: Iterable[str] | None) -> MetadataResponse:
    """Returns metadata of the named topics. Requests all topics if `names` is None or a request by name might create
    topics.
    """
    version = client.version_for(MetadataRequest)
    topics: tuple[MetadataRequestTopic, ...] | None
    if names is not None and version >= _NO_CREATION_FROM:
        topics = tuple(MetadataRequestTopic(name=name) for name in sorted(names))
    else:
        topics = None if version else ()
    reply: MetadataResponse = await client.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), version)
    return reply


async def _all_partitions(client: KafkaClient) -> tuple[OffsetFetchRequestTopic, ...]:
    reply = await metadata(client, None)
    return tuple(
        OffsetFetchRequestTopic(
            name=topic.name or "", partition_indexes=tuple(partition.partition_index for partition in topic.partitions)
        )
        for topic in reply.topics
    )
