"""Groups as KIP-40's draft tells them.

Owns: which of the draft's states a group is in, what each state shows, and what of it the copy adds to a description
by the broker: DescribeGroups, which Kafka released instead, tells neither leader nor generation. Must not know: who
asks, whether a description is the copy's or the broker's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.group_records import GroupMetadataValue
from group_sidecar.codecs.messages.describe_groups import DescribedGroup
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorResponse
from group_sidecar.codecs.messages.group_metadata import (
    DraftCoordinator,
    DraftGroup,
    DraftGroupMetadata,
    DraftMember,
    DraftMemberMetadata,
    DraftState,
)
from group_sidecar.codecs.offsets_topic import decode_as
from group_sidecar.coordinator.events import NEVER
from group_sidecar.coordinator.groups import UNKNOWN_GENERATION, Group
from group_sidecar.coordinator.views import GroupState, GroupView
from group_sidecar.coordinator.wire_groups import STATES

_DRAFTED: Mapping[GroupState | None, DraftState] = {
    GroupState.DEAD: DraftState.DEAD,
    GroupState.EMPTY: DraftState.DEAD,  # It has no active members: the draft knows no other state without.
    GroupState.PREPARING_REBALANCE: DraftState.REBALANCING,
    GroupState.COMPLETING_REBALANCE: DraftState.REBALANCING,
    GroupState.STABLE: DraftState.STABLE,
}

_NOBODY = DraftMemberMetadata()


@dataclass(frozen=True, slots=True)
class Known:
    """What a copy knows of a group beside its description.

    Attributes:
        generation: the one that is valid, or was before the rebalance that is under way; -1 where it is not known.
        protocol: of the latter; empty where it is not known.
        leader: of the former; likewise.
    """

    generation: int = UNKNOWN_GENERATION
    protocol: str = ""
    leader: str = ""


def known(described: DescribedGroup, before: GroupView, group: Group | None, now: GroupView) -> Known:
    """What the copy adds to a description.

    Args:
        described: by the broker, or by the copy itself.
        before: the group as it was known when that was asked for.
        group: the group itself, as it is known now; None where it is not.
        now: its view.

    A generation that may not be the one described is not told: of a Stable group the members and what they have must
    be those that were known before.
    """
    if STATES.get(described.group_state) is not GroupState.STABLE:
        return Known(*_prior(group))
    told = {member.member_id: member.member_assignment for member in described.members}
    were = {member.member_id: member.assignment for member in before.members}
    if before.state is not GroupState.STABLE or told != were:
        return Known()
    return Known(now.generation, leader=now.leader if now.leader in told else "")


def _prior(group: Group | None) -> tuple[int, str]:
    """Generation and protocol before the rebalance that is under way; -1 and nothing where they are not known."""
    if group is None or group.generation < 0 or (group.past and group.generation_at == NEVER):
        return UNKNOWN_GENERATION, ""
    if group.state is not GroupState.COMPLETING_REBALANCE or group.stable_at != NEVER:
        return group.generation, group.protocol
    # Its joins are over and have made the next generation; the log has the one before, if anything does.
    before = group.generation - 1
    try:
        logged = decode_as(GroupMetadataValue, group.logged) if group.logged else None
    except DecodeError:
        logged = None
    return before, (logged.protocol or "") if logged and logged.generation == before else ""


def coordinator(found: FindCoordinatorResponse) -> DraftCoordinator:
    """The coordinator that FindCoordinator (up to v3) names."""
    return DraftCoordinator(id=found.node_id, host=found.host, port=found.port)


def refused(group_id: str, error_code: int, where: DraftCoordinator | None = None) -> DraftGroup:
    """A group of which nothing is told but the error and, where it is known, its coordinator."""
    return DraftGroup(error_code=error_code, group_id=group_id, coordinator=where or DraftCoordinator())


def initializing(group_id: str, where: DraftCoordinator | None = None) -> DraftGroup:
    """A group that its coordinator is loading."""
    return _in_state(group_id, where or DraftCoordinator(), DraftGroupMetadata(state=DraftState.INITIALIZING))


def drafted(described: DescribedGroup, knowledge: Known, where: DraftCoordinator, *, with_members: bool) -> DraftGroup:
    """A group that this broker coordinates, or is loading; any other error stays the group's."""
    group_id, error = described.group_id, described.error_code
    if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return initializing(group_id, where)
    state = _DRAFTED.get(STATES.get(described.group_state))
    if error not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND) or state is None:
        return refused(group_id, error or ErrorCode.COORDINATOR_NOT_AVAILABLE, where)
    if state is DraftState.DEAD:
        return _in_state(group_id, where, DraftGroupMetadata())
    stable = state is DraftState.STABLE
    metadata = DraftGroupMetadata(
        state=state,
        protocol_type=described.protocol_type,
        generation=knowledge.generation,
        protocol=described.protocol_data if stable else knowledge.protocol,
    )
    members = _members(described, knowledge.leader) if stable and with_members else _NOBODY
    return _in_state(group_id, where, metadata, members)


def _members(described: DescribedGroup, leader: str) -> DraftMemberMetadata:
    members = tuple(
        DraftMember(
            member_id=member.member_id,
            member_host=member.client_host,
            client_id=member.client_id,
            member_metadata=member.member_metadata,
            member_assignment=member.member_assignment,
        )
        for member in described.members
    )
    return DraftMemberMetadata(leader=leader, members=members)


def _in_state(
    group_id: str,
    where: DraftCoordinator,
    metadata: DraftGroupMetadata,
    members: DraftMemberMetadata = _NOBODY,
) -> DraftGroup:
    return DraftGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        coordinator=where,
        group_metadata=metadata,
        member_metadata=members,
    )
