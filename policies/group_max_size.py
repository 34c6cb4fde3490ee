"""The policy for group.max.size (KIP-389), with the rule of Kafka since 2.6, and group.consumer.max.size (KIP-848).

| state of the group | a join is accepted when |
|---|---|
| Empty, Dead | always |
| PreparingRebalance | the caller is already parked, or fewer members than the limit are parked |
| CompletingRebalance, Stable | the caller is a member, or there are fewer members than the limit |

The table is Kafka's GroupCoordinator.acceptJoiningMember (since 4.0 GroupMetadataManager.acceptJoiningMember). The
caller is the client that asks to join. A member is parked while the broker holds back the reply to the member's join.
As in Kafka, members with a pending id (KIP-394) do not count. If a static member rejoins without its member id, the
rule does not recognise the member, so a full group refuses the join. There is one exception: in PreparingRebalance, the
join takes the place of an earlier join with the same instance id whose connection ended before the reply.

A consumer group has one rule in all states, GroupMetadataManager.throwIfConsumerGroupIsFull: the caller is a member, or
there are fewer members than the limit. The rule also holds for classic members of a consumer group.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.state_transitions import STATES_COUNTING_MEMBERS
from group_sidecar.coordinator.model.views import GroupKind, GroupState, GroupView
from group_sidecar.policies.patterns import RegularExpression, matcher
from group_sidecar.policies.policy import Policy, PolicySection, PolicySettings, WholeNumber
from group_sidecar.policies.verdicts import ALLOW, CONFIRM, Refuse, Verdict

MAX_CACHED_GROUPS = 1_000
"""Maximum number of groups whose limits are cached. Clients choose the group ids, which have up to 32 kB each."""

MemberLimit = Annotated[WholeNumber, Field(ge=1, le=0x7FFFFFFF)]
GroupId = Annotated[str, Field(min_length=1)]


def _whole_number(value: object) -> object:
    """Converts text to a number. Environment variables and flags are text, which a Literal does not accept."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class Override(PolicySection):
    """Other limits for some groups. A limit that is not set here is that of the policy. `null` means no limit."""

    group: GroupId | None = None
    """The exact id of the group. Exactly one of `group` and `pattern` is required."""
    pattern: RegularExpression | None = None
    """In place of `group`: a regular expression in the syntax of Python's `re`, which must match the whole id. Matching
    is case-sensitive. `.` matches any character, including a line end. `\\w` and `\\d` match word characters and digits
    of any script, unless the expression begins with `(?a)`. Bytes of an id that are not UTF-8 become U+FFFD, as in the
    broker. Clients choose the group ids. With one repetition inside another, as in `(a+)+`, the match of a single id
    may take so long that all clients wait."""
    limit: MemberLimit | None = None
    """The maximum number of members of a classic group, as `limit` of the policy."""
    consumer_max_size: MemberLimit | None = None
    """The maximum number of members of a consumer group, as `consumer_max_size` of the policy."""

    @model_validator(mode="after")
    def _require_a_limit(self) -> Self:
        if (self.group is None) == (self.pattern is None):
            raise ValueError("needs either group or pattern")
        if not self.model_fields_set & {"limit", "consumer_max_size"}:
            raise ValueError("needs limit or consumer_max_size")
        return self

    def matches(self, group_id: str) -> bool:
        """Whether the override applies to this group."""
        if self.pattern is None:
            return group_id == self.group
        return matcher(self.pattern)(group_id) is not None


class GroupMaxSizeSettings(PolicySettings):
    """Limits how many members a group may have (Kafka's `group.max.size`, KIP-389)."""

    limit: MemberLimit | None = None
    """The maximum number of members of a classic group. A join beyond it is refused. Default: no limit."""
    consumer_max_size: MemberLimit | None = None
    """The maximum number of members of a consumer group (Kafka's `group.consumer.max.size`, KIP-848). A new member
    beyond it is refused. Default: no limit."""
    overrides: tuple[Override, ...] = ()
    """Other limits for single groups. If several overrides match a group, the first one applies."""
    error_code: Annotated[Literal[77, 81], BeforeValidator(_whole_number)] = 77
    """The error code that a refused client gets: 77 as in KIP-389, or 81 as in released Kafka. A refused
    ConsumerGroupHeartbeat always gets 81."""

    @model_validator(mode="after")
    def _require_some_limit(self) -> Self:
        if self.limit is None and self.consumer_max_size is None and not self.overrides:
            raise ValueError("needs limit, consumer_max_size or an override")
        return self


class Limits(NamedTuple):
    """The maximum number of members of one group, as a classic group and as a consumer group. None means no limit."""

    classic: int | None
    consumer: int | None


def _limits(settings: GroupMaxSizeSettings, group_id: str) -> Limits:
    override = next((each for each in settings.overrides if each.matches(group_id)), None)
    named = override.model_fields_set if override else ()
    return Limits(
        override.limit if override and "limit" in named else settings.limit,
        override.consumer_max_size if override and "consumer_max_size" in named else settings.consumer_max_size,
    )


class GroupMaxSize(Policy):
    """Refuses joins of groups that are full."""

    name: ClassVar[str] = "group_max_size"
    Settings = GroupMaxSizeSettings
    judged_apis = frozenset({JoinGroupRequest.KEY, ConsumerGroupHeartbeatRequest.KEY})
    depends_on_group = True
    broker_error = ErrorCode.GROUP_MAX_SIZE_REACHED

    def __init__(self, settings: GroupMaxSizeSettings) -> None:
        self.settings: GroupMaxSizeSettings = settings
        # The cache must not refer to the policy. The garbage collector does not free such a cycle
        # (proxy/runtime/garbage_collection.py), so the policy and all cached ids would stay in memory after a reload.
        self.limits: Callable[[str], Limits] = lru_cache(MAX_CACHED_GROUPS)(partial(_limits, settings))

    @property
    def error_code(self) -> int:
        """The error code in the settings, which a client with a refused JoinGroup gets."""
        return self.settings.error_code

    @property
    def error_codes(self) -> frozenset[int]:
        """All error codes that a refused client may get: the code in the settings, and the broker's code."""
        return frozenset({self.settings.error_code, int(self.broker_error)})

    def max_members(self, group: GroupView) -> int | None:
        """Returns the limit for the protocol that the group uses now; None if there is no limit."""
        limits = self.limits(group.group_id)
        if group.kind is GroupKind.CLASSIC:
            return limits.classic
        return limits.consumer if group.kind is GroupKind.CONSUMER else None

    def judge(self, request: Struct, group: GroupView, principal: str) -> Verdict:
        """Returns the verdict on a JoinGroup or a ConsumerGroupHeartbeat."""
        if isinstance(request, ConsumerGroupHeartbeatRequest):
            return self._judge_heartbeat(request, group)
        assert isinstance(request, JoinGroupRequest)
        limit, occupancy, caller = self.max_members(group), group.occupancy, request.member_id
        if limit is None:
            return ALLOW
        if group.kind is GroupKind.CONSUMER:
            return self._judge_size(limit, caller, group, self.settings.error_code)
        if occupancy.state is GroupState.PREPARING_REBALANCE:
            if occupancy.may_be_settled:
                # The joins may never begin a rebalance. Then the members count, as in a stable group.
                verdict = self._judge_size(limit, caller, group, self.settings.error_code)
                if isinstance(verdict, Refuse):
                    return verdict
            if occupancy.is_parked(caller, request.group_instance_id):
                return ALLOW
            if not occupancy.certain:
                return CONFIRM
            # Kafka's coordinator removes the refused member, or its issued id. Otherwise the rebalance would wait for
            # the member.
            return ALLOW if occupancy.parked < limit else self._refuse(occupancy.parked, limit, remove=caller)
        if occupancy.state in STATES_COUNTING_MEMBERS:
            # An issued id is not removed, because Kafka 4 rebalances a stable group when the id leaves.
            return self._judge_size(limit, caller, group, self.settings.error_code)
        return ALLOW if occupancy.certain else CONFIRM

    def _judge_heartbeat(self, request: ConsumerGroupHeartbeatRequest, group: GroupView) -> Verdict:
        limit = self.limits(group.group_id).consumer
        if limit is None or request.member_epoch < 0 or (request.member_epoch > 0 and not group.occupancy.certain):
            return ALLOW
        return self._judge_size(limit, request.member_id, group, self.broker_error)

    def _judge_size(self, limit: int, caller: str, group: GroupView, error_code: int) -> Verdict:
        occupancy = group.occupancy
        if caller and caller in occupancy.members:
            return ALLOW
        if not occupancy.certain and group.kind is GroupKind.CLASSIC:
            # The reply of DescribeGroups can confirm only a classic group, because it reports a consumer group as Dead.
            # Consumer groups are judged by the observed traffic and the log.
            return CONFIRM
        size = len(occupancy.members)
        return ALLOW if size < limit else self._refuse(size, limit, error_code=error_code)

    def _refuse(self, size: int, limit: int, *, error_code: int | None = None, remove: str = "") -> Refuse:
        code = self.settings.error_code if error_code is None else error_code
        message = f"The consumer group has reached its maximum capacity of {limit} members."
        return Refuse(error_code=code, size=size, limit=limit, message=message, remove=remove)
