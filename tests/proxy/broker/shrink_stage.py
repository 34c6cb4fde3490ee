"""A broker with classic groups, its log, and the copy of a sidecar that reads the log.

Members leave the groups one by one or several at once, and the log records it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import trio

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from group_sidecar.codecs.offsets_topic import GroupKey, KeyType, encode_key, encode_value
from group_sidecar.codecs.offsets_topic_values import GroupMetadataValue, MemberMetadata
from group_sidecar.coordinator.model.facts import ClientRefused, Fact
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.policies.group_max_size import GroupMaxSize
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.shrink import shrink_forever
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.runtime.addresses import Address
from tests.coordinator.model_log import batch
from tests.proxy.scripted_broker import ScriptedBroker

BROKER = Address("broker", 9092)
_FRESH_SECONDS = 1.0
_MANY_SINCE = 3


@dataclass
class Group:
    """A group at the broker. `members` has the instance id of each member by member id; None for a dynamic member."""

    members: dict[str, str | None]
    generation: int = 1
    state: str = "Stable"


@dataclass
class Stage:
    """The broker, and a copy that has read its log.

    Attributes:
        denies: the APIs for which the sidecar lacks the right.
        left: the LeaveGroup requests: (seconds, group, members).
    """

    broker: ScriptedBroker
    state: BrokerState
    facts: list[Fact]
    groups: dict[str, Group] = field(default_factory=dict)
    denies: set[type[Any]] = field(default_factory=set)
    left: list[tuple[float, str, tuple[str, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.broker.answers |= {DescribeGroupsRequest: self._describe, LeaveGroupRequest: self._leave}
        now = trio.current_time()
        follower = self.state.copy.manager.log
        self.state.copy.manager.set_existing_groups(())
        follower.count_partitions(1, now)
        self._log = follower.begin_load(0, 0, 0, now)
        self._read()

    # Changes at the broker.

    def gather(self, name: str, members: str | Iterable[str], *, leader: str = "", static: bool = False) -> None:
        """Completes a generation of these members.

        Names in capitals are static members, with the name as instance id.
        """
        group = self.groups.setdefault(name, Group({}, 0))
        group.members = {member: member.upper() if static else None for member in members}
        group.generation, group.state = group.generation + 1, "Stable"
        value = GroupMetadataValue(
            protocol_type="consumer",
            generation=group.generation,
            protocol="range",
            leader=leader or next(iter(group.members)),
            members=tuple(
                MemberMetadata(
                    member_id=member,
                    group_instance_id=instance,
                    client_id=f"client {member}",
                    client_host=f"/host-{member}",
                    rebalance_timeout=300_000,
                    session_timeout=300_000,
                    subscription=b"",
                    assignment=b"",
                )
                for member, instance in group.members.items()
            ),
        )
        entry = encode_key(KeyType.GROUP_METADATA, GroupKey(group_id=name)), encode_value(value, 3)
        list(self._log.replay(batch(self._log.next_offset, [entry])))
        self._read()

    def _read(self) -> None:
        now = trio.current_time()
        list(self.state.copy.manager.log.merge(0, now))
        list(self.state.copy.manager.log.end_reached(0, now, now))

    def _describe(self, request: DescribeGroupsRequest, version: int) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=tuple(self._described(name) for name in request.groups))

    def _described(self, name: str) -> DescribedGroup:
        denied = DescribeGroupsRequest in self.denies
        group = self.groups[name]
        members = [] if denied else group.members.items()
        return DescribedGroup(
            error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED if denied else 0,
            group_id=name,
            group_state="" if denied else group.state,
            protocol_type="consumer",
            protocol_data="range",
            members=tuple(
                DescribedGroupMember(
                    member_id=member,
                    group_instance_id=instance,
                    client_id=f"client {member}",
                    client_host=f"/host-{member}",
                    member_metadata=b"",
                    member_assignment=b"",
                )
                for member, instance in members
            ),
        )

    def _leave(self, request: LeaveGroupRequest, version: int) -> LeaveGroupResponse:
        named = [(m.member_id, m.group_instance_id) for m in request.members]
        named = named if version >= _MANY_SINCE else [(request.member_id, None)]
        self.left.append(
            (trio.current_time(), request.group_id, tuple(instance or member for member, instance in named))
        )
        if LeaveGroupRequest in self.denies:
            return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        codes = [self._depart(self.groups[request.group_id], *each) for each in named]
        if version < _MANY_SINCE:
            return LeaveGroupResponse(error_code=codes[0])
        members = tuple(
            MemberResponse(member_id=member, group_instance_id=instance, error_code=code)
            for (member, instance), code in zip(named, codes, strict=True)
        )
        return LeaveGroupResponse(error_code=0, members=members)

    def _depart(self, group: Group, member_id: str, instance_id: str | None) -> int:
        member = next((m for m, i in group.members.items() if m == member_id or (i and i == instance_id)), None)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        del group.members[member]
        group.state = "PreparingRebalance"
        return 0

    # The sidecar.

    async def run(self) -> None:
        """Shrinks groups, reads the log, and sets overdue members aside, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shrink_forever, self.state.copy, self.state.active_policies, self.state.own_connections)
            while True:
                self._read()
                for _ in self.state.copy.sweep(trio.current_time()):
                    pass
                await trio.sleep(_FRESH_SECONDS)

    def refused(self) -> list[ClientRefused]:
        """The clients of the reported refusals."""
        return [fact for fact in self.facts if isinstance(fact, ClientRefused)]

    def limit(self, most: int, mode: str = "enforce", **more: Any) -> None:
        """Sets the limit of members per group."""
        self.state.active_policies.replace([limited(most, mode, **more)])


def limited(most: int, mode: str = "enforce", **more: Any) -> GroupMaxSize:
    return GroupMaxSize(GroupMaxSize.Settings.model_validate({"limit": most, "mode": mode, **more}))


def staged(broker: ScriptedBroker, *, exclusive: bool) -> Stage:
    """Returns a stage without groups and without a limit."""
    answers = {"exclusive": exclusive, "authorizer": "none"}
    config = Config.model_validate({"listen": "127.0.0.1:1", "upstream": "broker:9092", "answers": answers})
    facts: list[Fact] = []
    return Stage(broker, BrokerState(BROKER, config, TrafficCounters(), facts.append, clock_offset=0.0), facts)
