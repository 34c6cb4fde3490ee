"""group.max.size (KIP-389), by the rule of Kafka since 2.6.

Owns: `GroupMaxSize`. Must not know: how the view came about, what a refusal looks like on the wire.

| state of the group | a join is accepted when |
|---|---|
| Empty, Dead | always |
| PreparingRebalance | the caller is parked already, or fewer than the limit are |
| CompletingRebalance, Stable | the caller is a member, or there are fewer members than the limit |

This is Kafka's GroupCoordinator.acceptJoiningMember (GroupMetadataManager's since 4.0). As there,
members whose id is only pending (KIP-394) do not count, and a static member that comes back without
its member id is not recognised: a full group refuses it.

What is known of a group from outside the broker is a lower bound: who joined around this sidecar may
be missing from the view. A count at the limit is then still a count at the limit, but a caller that
names a member id might be one of those missing, so it passes and the broker decides.
"""

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from group_sidecar.coordinator.views import GroupKind, GroupState, GroupView
from group_sidecar.policies.verdicts import ALLOW, Refuse, Verdict


class GroupMaxSize:
    """Refuses joins of groups that are full.

    Args:
        limit: most members of a group, 1 or more.
        error_code: 77 as KIP-389's text has it, or 81 as released Kafka does.
    """

    name = "group_max_size"

    def __init__(self, limit: int, error_code: int = ErrorCode.GROUP_MAX_SIZE_REACHED_KIP_389) -> None:
        if limit < 1:
            raise ValueError("group.max.size must be at least 1")
        self.limit = limit
        self.error_code = error_code

    def judge(self, request: JoinGroupRequest, group: GroupView) -> Verdict:
        """Whether this join may go to the broker."""
        caller = request.member_id
        if group.kind is not GroupKind.CLASSIC:
            return ALLOW  # Kafka has another limit for it (`group.consumer.max.size`).
        if group.state is GroupState.PREPARING_REBALANCE:
            if len(group.awaiting) < self.limit or caller in group.awaiting:
                return ALLOW
            # Kafka's coordinator takes out whom it refuses, a member or an id that was only issued: otherwise the
            # rebalance would wait for it.
            return self._refuse(len(group.awaiting), remove=caller)
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            if len(group.members) < self.limit or (caller and not group.roster_known):
                return ALLOW
            if caller and any(member.member_id == caller for member in group.members):
                return ALLOW
            # An id that was only issued is not taken out: for its leaving alone Kafka 4 rebalances a stable group.
            return self._refuse(len(group.members))
        return ALLOW

    def _refuse(self, size: int, remove: str = "") -> Refuse:
        return Refuse(error_code=self.error_code, size=size, limit=self.limit, remove=remove)
