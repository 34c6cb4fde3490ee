"""Queries a cluster about its groups over Kafka's protocol. A sidecar's port for clients answers like a broker.

Like Java's admin client, the module sends Metadata to find all brokers, and ListGroups to each broker. For one group it
sends FindCoordinator, and then ConsumerGroupDescribe to the coordinator. If the group is not of the new protocol
(KIP-848), it sends DescribeGroups.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import trio

from group_sidecar.codecs import consumer_protocol
from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.messages import consumer_group_describe, describe_groups
from group_sidecar.codecs.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchResponsePartition
from group_sidecar.coordinator.model.views import GroupKind, GroupState, TopicPartition
from group_sidecar.proxy.broker.broker_errors import BrokerError, BrokerRefused
from group_sidecar.proxy.broker.group_queries import (
    Node,
    brokers,
    committed_offsets,
    find_coordinator,
    leaders_of,
    listed_groups,
)
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.broker.log_bound_queries import log_ends
from group_sidecar.proxy.commandline.broker_connections import connect_to_bootstrap, connect_to_broker
from group_sidecar.proxy.commandline.client_properties import NO_PROPERTIES, ClientProperties
from group_sidecar.proxy.commandline.results import (
    Assignment,
    Coordinator,
    GroupDescription,
    GroupMember,
    GroupNotFound,
    GroupOffsets,
    GroupSummary,
    Listing,
    PartitionOffsets,
)
from group_sidecar.proxy.runtime.addresses import Address

_PAUSE = 0.2  # Seconds before a query is repeated, if the broker was not ready to answer it.
_NOT_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
_NOT_OF_THE_NEW_PROTOCOL = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)

T = TypeVar("T")
Problem = BrokerError | DecodeError
"""Why a part of an answer is missing. The text is one line."""


@dataclass(frozen=True, slots=True)
class BrokerQueries:
    """Queries one cluster.

    Args:
        bootstrap: any broker or sidecar of the cluster.
        timeout: seconds to wait for a connection, for each reply, and for a coordinator that is not ready.
        client: the client's TLS context, user and client id.

    The methods raise GroupNotFound, BrokerError and DecodeError.
    """

    bootstrap: Address
    timeout: float
    client: ClientProperties = NO_PROPERTIES

    async def groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> Listing:
        """Returns the groups of the cluster, filtered by states and types if they are given."""
        async with self._connect_to_bootstrap() as client:
            nodes = await brokers(client)
        found: dict[str, GroupSummary] = {}

        async def ask(node: Node) -> None:
            for group in await self._retry_until_ready(partial(self._groups_at, node, states, types)):
                found[group.group] = group

        problems = await _ask_each(nodes, ask)
        return Listing(groups=[found[group_id] for group_id in sorted(found)], problems=problems)

    async def group(self, group_id: str) -> GroupDescription:
        """Returns a group and its members, as the coordinator describes them."""
        return (await self._retry_until_ready(partial(self._described, group_id)))[0]

    async def offsets(self, group_id: str) -> GroupOffsets:
        """Returns a group's committed offsets and their lag."""
        description, committed = await self._retry_until_ready(partial(self._described, group_id, with_offsets=True))
        owners = _owners(description.member_list)
        partitions = sorted(committed.keys() | owners.keys())
        ends, problems = await self._log_ends(partitions)
        for (topic, index), offset in sorted(committed.items()):
            if offset.error_code:
                problems.append(BrokerRefused(f"no offset of {topic}:{index}", offset.error_code))
        rows = [
            _offsets_of(partition, committed.get(partition), ends.get(partition), owners.get(partition))
            for partition in partitions
        ]
        return GroupOffsets(group=group_id, state=description.state, offsets=rows, problems=problems)

    async def _groups_at(self, node: Node, states: Sequence[str], types: Sequence[str]) -> list[GroupSummary]:
        async with self._connect(node.address) as client:
            listed = await listed_groups(client, states, types)
        return [
            GroupSummary(
                group=one.group_id,
                protocol=one.group_type or None,
                state=one.group_state or None,
                protocol_type=one.protocol_type or None,
            )
            for one in listed
        ]

    async def _described(
        self, group_id: str, with_offsets: bool = False
    ) -> tuple[GroupDescription, dict[TopicPartition, OffsetFetchResponsePartition]]:
        async with self._connect_to_bootstrap() as client:
            coordinator = await find_coordinator(client, group_id)
        async with self._connect(coordinator.address) as client:
            description = await _describe(client, group_id, coordinator)
            return description, await committed_offsets(client, group_id) if with_offsets else {}

    async def _log_ends(self, partitions: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], list[Problem]]:
        async with self._connect_to_bootstrap() as client:
            leaders = await leaders_of(client, {topic for topic, _ in partitions})
        partitions_by_leader: dict[Node, list[TopicPartition]] = {}
        for one in partitions:
            if one in leaders:
                partitions_by_leader.setdefault(leaders[one], []).append(one)
        ends: dict[TopicPartition, int] = {}

        async def ask(leader: Node) -> None:
            async with self._connect(leader.address) as client:
                ends.update(await log_ends(client, partitions_by_leader[leader]))

        return ends, await _ask_each(partitions_by_leader, ask)

    def _connect(self, address: Address) -> AbstractAsyncContextManager[KafkaClient]:
        return connect_to_broker(address, self.timeout, self.client)

    def _connect_to_bootstrap(self) -> AbstractAsyncContextManager[KafkaClient]:
        return connect_to_bootstrap(self.bootstrap, self.timeout, self.client)

    async def _retry_until_ready(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeats a query while the coordinator is loading or moving, as Kafka requires from clients."""
        deadline = trio.current_time() + self.timeout
        while True:
            try:
                return await ask()
            except BrokerRefused as error:
                if error.code not in _NOT_YET or trio.current_time() + _PAUSE > deadline:
                    raise
            await trio.sleep(_PAUSE)


async def _ask_each(nodes: Iterable[Node], ask: Callable[[Node], Awaitable[None]]) -> list[Problem]:
    """Asks all nodes at once. Returns a problem for each node that failed."""
    problems: list[Problem] = []

    async def try_one(node: Node) -> None:
        try:
            await ask(node)
        except (BrokerError, DecodeError) as error:
            problems.append(error)

    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(try_one, node)
    return sorted(problems, key=str)


async def _describe(client: KafkaClient, group_id: str, coordinator: Node) -> GroupDescription:
    if client.speaks(ConsumerGroupDescribeRequest):
        request = ConsumerGroupDescribeRequest(group_ids=(group_id,), include_authorized_operations=False)
        new: ConsumerGroupDescribeResponse = await client.ask(request)
        for group in new.groups:
            if group.group_id == group_id and group.error_code not in _NOT_OF_THE_NEW_PROTOCOL:
                _raise_for_error(client, "ConsumerGroupDescribe", group)
                return _from_new_protocol(group, coordinator)
    classic: DescribeGroupsResponse = await client.ask(DescribeGroupsRequest(groups=(group_id,)))
    for found in classic.groups:
        if found.group_id == group_id:
            return _from_classic(client, found, coordinator)
    raise DecodeError("DescribeGroupsResponse", "groups", "lacks the group asked for")


def _raise_for_error(
    client: KafkaClient, api: str, group: consumer_group_describe.DescribedGroup | describe_groups.DescribedGroup
) -> None:
    if group.error_code:
        raise BrokerRefused(f"{client.address} answers {api}", group.error_code, group.error_message)


def _from_new_protocol(group: consumer_group_describe.DescribedGroup, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group=group.group_id,
        protocol=GroupKind.CONSUMER,
        state=group.group_state,
        coordinator=_coordinator_row(coordinator),
        protocol_type=consumer_protocol.CONSUMER,
        assignor=group.assignor_name or None,
        generation=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        members=len(group.members),
        members_known=True,
        member_list=[
            GroupMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topics=member.subscribed_topic_names,
                assignment={one.topic_name: one.partitions for one in member.assignment.topic_partitions},
                epoch=member.member_epoch,
                target_assignment={one.topic_name: one.partitions for one in member.target_assignment.topic_partitions},
            )
            for member in group.members
        ],
    )


def _from_classic(client: KafkaClient, group: describe_groups.DescribedGroup, coordinator: Node) -> GroupDescription:
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (
        group.group_state == GroupState.DEAD and not group.error_code
    ):
        raise GroupNotFound(group.group_id, group.error_message or "")
    _raise_for_error(client, "DescribeGroups", group)
    return GroupDescription(
        group=group.group_id,
        protocol=GroupKind.CLASSIC,
        state=group.group_state,
        coordinator=_coordinator_row(coordinator),
        protocol_type=group.protocol_type or None,
        assignor=group.protocol_data or None,
        members=len(group.members),
        members_known=True,
        member_list=[_classic_member(member, group.protocol_type) for member in group.members],
    )


def _classic_member(member: describe_groups.DescribedGroupMember, protocol_type: str) -> GroupMember:
    assignment = _assignment(member.member_assignment, protocol_type)
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topics=_subscription(member.member_metadata, protocol_type),
        assignment=assignment,
        assignment_bytes=len(member.member_assignment) if assignment is None else None,
    )


def _assignment(data: bytes, protocol_type: str) -> Assignment | None:
    if not data:
        return {}
    if protocol_type != consumer_protocol.CONSUMER:
        return None
    try:
        decoded = consumer_protocol.decode_assignment(data)
    except DecodeError:
        return None
    return {one.topic: one.partitions for one in decoded.assigned_partitions}


def _subscription(data: bytes, protocol_type: str) -> Sequence[str]:
    if not data or protocol_type != consumer_protocol.CONSUMER:
        return ()
    try:
        return consumer_protocol.decode_subscription(data).topics
    except DecodeError:
        return ()


def _coordinator_row(coordinator: Node) -> Coordinator:
    return Coordinator(coordinator.id, coordinator.host, coordinator.port)


def _owners(members: Iterable[GroupMember]) -> dict[TopicPartition, GroupMember]:
    return {
        (topic, partition): member
        for member in members
        for topic, partitions in (member.assignment or {}).items()
        for partition in partitions
    }


def _offsets_of(
    partition: TopicPartition,
    committed: OffsetFetchResponsePartition | None,
    end: int | None,
    owner: GroupMember | None,
) -> PartitionOffsets:
    known = committed if committed and not committed.error_code else None
    current = known.committed_offset if known else None
    return PartitionOffsets(
        topic=partition[0],
        partition=partition[1],
        current_offset=current,
        log_end_offset=end,
        lag=None if end is None or current is None else end - current,
        metadata=known.metadata if known else None,
        member_id=owner.member_id if owner else None,
        client_id=owner.client_id if owner else None,
        client_host=owner.client_host if owner else None,
    )
