"""Builds the replies to the GroupMetadata request of KIP-40's draft.

The module maps a group's state to the draft's states and selects the fields of each state. Kafka released
DescribeGroups instead, which returns neither the leader nor the generation. The copy adds both to a description of the
group. That description comes from the copy or from the broker.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.messages.describe_groups import DescribedGroup
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorResponse
from group_sidecar.codecs.messages.group_metadata import (
    Kip40Coordinator,
    Kip40Group,
    Kip40GroupMetadata,
    Kip40Member,
    Kip40MemberMetadata,
    Kip40State,
)
from group_sidecar.codecs.offsets_topic import decode_as
from group_sidecar.codecs.offsets_topic_values import GroupMetadataValue
from group_sidecar.coordinator.model.events import NEVER
from group_sidecar.coordinator.model.views import GroupState, GroupView
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.lifecycle import UNKNOWN_GENERATION
from group_sidecar.coordinator.wire.group_apis import STATES

_KIP40_STATES: Mapping[GroupState | None, Kip40State] = {
    GroupState.DEAD: Kip40State.DEAD,
    GroupState.EMPTY: Kip40State.DEAD,  # No member is active. The draft has no other state for such a group.
    GroupState.PREPARING_REBALANCE: Kip40State.REBALANCING,
    GroupState.COMPLETING_REBALANCE: Kip40State.REBALANCING,
    GroupState.STABLE: Kip40State.STABLE,
}

_NOBODY = Kip40MemberMetadata()


@dataclass(frozen=True, slots=True)
class KnownGeneration:
    """The values that the copy adds to a group's description.

    Attributes:
        generation: the current generation, or the previous generation during a rebalance; -1 if it is not known.
        protocol: the protocol of the generation before a rebalance; empty if it is not known.
        leader: the leader of the current generation; empty if it is not known.
    """

    generation: int = UNKNOWN_GENERATION
    protocol: str = ""
    leader: str = ""


def known_generation(
    described: DescribedGroup, before: GroupView, group: Group | None, now: GroupView
) -> KnownGeneration:
    """Returns the values that the copy adds to a description.

    The result has no generation if the description may belong to another generation. For a Stable group, the described
    members and assignments must equal those in `before`.

    Args:
        described: the description, from the broker or from the copy.
        before: the view of the group when the description was requested.
        group: the group as it is known now; None if it is not known.
        now: the current view of the group.
    """
    if STATES.get(described.group_state) is not GroupState.STABLE:
        return KnownGeneration(*_prior(group))
    assignments = {member.member_id: member.member_assignment for member in described.members}
    previous_assignments = {member.member_id: member.assignment for member in before.members}
    if before.state is not GroupState.STABLE or assignments != previous_assignments:
        return KnownGeneration()
    return KnownGeneration(now.generation, leader=now.leader if now.leader in assignments else "")


def _prior(group: Group | None) -> tuple[int, str]:
    """Returns the generation and protocol before the current rebalance; -1 and an empty string if they are unknown."""
    if group is None or group.generation < 0 or (group.roster.may_have_unseen_static and group.generation_at == NEVER):
        return UNKNOWN_GENERATION, ""
    if group.state is not GroupState.COMPLETING_REBALANCE or group.stable_at != NEVER:
        return group.generation, group.protocol
    # The replies to the joins have begun the next generation. Only the log may have the generation before it.
    before = group.generation - 1
    try:
        logged = decode_as(GroupMetadataValue, group.logged_metadata) if group.logged_metadata else None
    except DecodeError:
        logged = None
    return before, (logged.protocol or "") if logged and logged.generation == before else ""


def kip40_coordinator(found: FindCoordinatorResponse) -> Kip40Coordinator:
    """Returns the coordinator that a FindCoordinator reply (up to v3) names."""
    return Kip40Coordinator(id=found.node_id, host=found.host, port=found.port)


def kip40_error(group_id: str, error_code: int, where: Kip40Coordinator | None = None) -> Kip40Group:
    """Returns a group's reply with only an error and, if it is known, the group's coordinator."""
    return Kip40Group(error_code=error_code, group_id=group_id, coordinator=where or Kip40Coordinator())


def kip40_initializing(group_id: str, where: Kip40Coordinator | None = None) -> Kip40Group:
    """Returns the reply of a group whose coordinator is loading it."""
    return _in_state(group_id, where or Kip40Coordinator(), Kip40GroupMetadata(state=Kip40State.INITIALIZING))


def kip40_group_metadata(
    described: DescribedGroup, knowledge: KnownGeneration, where: Kip40Coordinator, *, with_members: bool
) -> Kip40Group:
    """Returns a group's reply: its state and members, or INITIALIZING while the broker loads the group, or an error."""
    group_id, error = described.group_id, described.error_code
    if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return kip40_initializing(group_id, where)
    state = _KIP40_STATES.get(STATES.get(described.group_state))
    if error not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND) or state is None:
        return kip40_error(group_id, error or ErrorCode.COORDINATOR_NOT_AVAILABLE, where)
    if state is Kip40State.DEAD:
        return _in_state(group_id, where, Kip40GroupMetadata())
    stable = state is Kip40State.STABLE
    metadata = Kip40GroupMetadata(
        state=state,
        protocol_type=described.protocol_type,
        generation=knowledge.generation,
        protocol=described.protocol_data if stable else knowledge.protocol,
    )
    members = _members(described, knowledge.leader) if stable and with_members else _NOBODY
    return _in_state(group_id, where, metadata, members)


def _members(described: DescribedGroup, leader: str) -> Kip40MemberMetadata:
    members = tuple(
        Kip40Member(
            member_id=member.member_id,
            member_host=member.client_host,
            client_id=member.client_id,
            member_metadata=member.member_metadata,
            member_assignment=member.member_assignment,
        )
        for member in described.members
    )
    return Kip40MemberMetadata(leader=leader, members=members)


def _in_state(
    group_id: str,
    where: Kip40Coordinator,
    metadata: Kip40GroupMetadata,
    members: Kip40MemberMetadata = _NOBODY,
) -> Kip40Group:
    return Kip40Group(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        coordinator=where,
        group_metadata=metadata,
        member_metadata=members,
    )
