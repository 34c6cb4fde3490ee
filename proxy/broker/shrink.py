"""Shrinks groups that have more members than a policy allows.

The module decides which groups are shrunk, how many at a time, and when a group is shrunk again. The module removes
members and reports each removal. `coordinator.rules.excess_members` selects the members.

A group can exceed its limit if no policy kept members out. The sidecar may have started later, the limit may have been
lowered, or the group may have moved to this broker. Kafka makes such a group rebalance when its coordinator loads it
(KIP-389). The sidecar sends LeaveGroup for the newest members instead, which has the same effect.

The current size of a group counts, not the reason for it. The sidecar checks all groups that have changed, and shrinks
each that is Stable and too large. In a group that is rebalancing, the policy on joins applies.

A member is removed only if the broker has just described the group as Stable with the same members. If the sidecar does
not read `__consumer_offsets`, members that bypass the sidecar are not known. So the sidecar cannot notice that such
members make a group too large.

Groups of KIP-848 are not shrunk. Kafka does not shrink them either, and LeaveGroup does not apply to them.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import trio

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from group_sidecar.coordinator.model.facts import ClientRefused
from group_sidecar.coordinator.model.views import GroupKind, GroupState, GroupView, MemberView
from group_sidecar.coordinator.rules.excess_members import excess_members
from group_sidecar.coordinator.state.group import Group
from group_sidecar.policies.active_policies import ActivePolicies
from group_sidecar.policies.policy import Policy
from group_sidecar.proxy.broker.background_jobs import ask_and_learn, describe_and_learn, run_background_job
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.broker.own_connections import OwnConnections
from group_sidecar.proxy.runtime.backoff import RetrySchedule
from group_sidecar.proxy.runtime.logging import log
from group_sidecar.proxy.runtime.supervision import Supervisor, Task

ROUND_SECONDS = 1.0
"""Seconds between checks whether a group is too large."""
CHECKS_PER_SLICE, CHECKS_PER_INSPECTION = 1000, 20
"""The number of checks of groups in one slice of about a millisecond. The inspection of a changed group counts as
CHECKS_PER_INSPECTION checks."""
GROUPS_A_SECOND = 10
"""Groups that are shrunk in a second. All members of such a group join again. A broker full of large groups must not
get all their joins at once."""
RETRY_SECONDS, LONGEST_RETRY, REMEMBERED_SECONDS = 1.0, 300.0, 600.0
"""Seconds until the same group is shrunk again: the first pause, which doubles each time, and the longest pause. The
third value is the time after which the sidecar forgets its attempts. Members that bypass the sidecar rejoin at once.
Without the pause their group would rebalance all the time."""
_MANY_SINCE, _REASON_SINCE = 3, 5  # LeaveGroup (KIP-345, KIP-800).


async def shrink_forever(
    copy: CoordinatorCopy, policies: ActivePolicies, connections: OwnConnections, supervisor: Supervisor | None = None
) -> None:
    """Shrinks groups as soon as they are too large, until cancelled. Never raises."""
    shrinker = _Shrinker(copy, policies, str(connections.address))
    await run_background_job(connections, shrinker, ROUND_SECONDS, supervisor)


class _Excess(NamedTuple):
    """A policy, and its limit that a group exceeds."""

    policy: Policy
    limit: int


class _Inspection(NamedTuple):
    """The result of an inspection of a group. `changes`: the group's change counter at that time."""

    changes: int
    excess: tuple[_Excess, ...]


class _Shrinker:
    """Shrinks the groups of one broker. `broker`: the name of the broker in log lines."""

    task = Task.SHRINKING

    def __init__(self, copy: CoordinatorCopy, policies: ActivePolicies, broker: str) -> None:
        self._copy = copy
        self._policies = policies
        self._broker = broker
        self._rules: tuple[Policy, ...] = ()
        self._inspections: dict[str, _Inspection] = {}
        self._reported: dict[tuple[str, str], tuple[int, int]] = {}
        self._schedule: RetrySchedule[str] = RetrySchedule(
            GROUPS_A_SECOND, RETRY_SECONDS, LONGEST_RETRY, REMEMBERED_SECONDS
        )
        self._denied = False

    # Selection of groups.

    async def due(self) -> list[str] | None:
        """See `BackgroundJob`. Returns the groups to shrink."""
        rules, cache = tuple(self._policies), self._copy.manager.group_metadata_cache
        if rules != self._rules:
            self._rules, self._inspections = rules, {}
        wanted: list[str] = []
        checks, now = 0, self._now()
        for group in list(cache.values()) if rules else ():
            inspection = self._inspections.get(group.group_id)
            if inspection is None or inspection.changes != group.changes:
                inspection = self._inspections[group.group_id] = self._inspect(group)
                checks += CHECKS_PER_INSPECTION
            if inspection.excess and self._is_ready(group, inspection.excess, now):
                wanted.append(group.group_id)
            checks += 1
            if checks >= CHECKS_PER_SLICE:
                await trio.lowlevel.checkpoint()
                checks, now = 0, self._now()
        if len(self._inspections) > len(cache):
            self._inspections = {
                group_id: inspection for group_id, inspection in self._inspections.items() if group_id in cache
            }
            self._reported = {
                which: last_reported for which, last_reported in self._reported.items() if which[0] in cache
            }
        return self._schedule.due(wanted) or None

    def _inspect(self, group: Group) -> _Inspection:
        # Overdue members count, because they may send heartbeats that bypass the sidecar. The broker's description
        # decides.
        size = len(group.members) + len(group.overdue)
        return _Inspection(group.changes, self._excess(self._view(group.group_id), size) if size > 1 else ())

    def _excess(self, group: GroupView, size: int) -> tuple[_Excess, ...]:
        """Returns the policies whose limit the group exceeds at this size, the strictest last."""
        if group.kind is not GroupKind.CLASSIC:
            return ()
        limits = ((policy, policy.max_members(group)) for policy in self._rules)
        found = [_Excess(policy, limit) for policy, limit in limits if limit and size > limit]
        return tuple(sorted(found, key=lambda each: -each.limit))

    def _is_ready(self, group: Group, excess: tuple[_Excess, ...], now: float) -> bool:
        """Whether a policy has something to do now: shrink the group, or report its excess in audit mode.

        The group must be Stable, and the copy must have caught up with the group's log partition.
        """
        if group.state is not GroupState.STABLE or group.rebalancing_join is not None:
            return False
        log_table = self._copy.manager.log.partitions
        if log_table.count is not None and not log_table.is_current(group.group_id, now):
            return False
        return any(policy.enforced or self._is_unreported(group, policy, limit) for policy, limit in excess)

    def _is_unreported(self, group: Group | GroupView, policy: Policy, limit: int) -> bool:
        """Whether the excess was not reported yet for this generation and limit. False if the generation is unknown."""
        last_reported = self._reported.get((group.group_id, policy.name))
        return group.generation >= 0 and last_reported != (group.generation, limit)

    # Removal.

    async def run(self, client: KafkaClient, due: list[str]) -> None:
        """See `BackgroundJob`."""
        for group_id in due:
            self._schedule.record_attempt([group_id])
            if (group := await self._confirmed(client, group_id)) is not None:
                await self._shrink(client, group)
            await trio.sleep(1 / GROUPS_A_SECOND)

    async def _confirmed(self, client: KafkaClient, group_id: str) -> GroupView | None:
        """Returns the group as the broker describes it.

        Returns None if the group is not Stable, the copy has other members, or the reply does not describe exactly this
        group.
        """
        reply = await describe_and_learn(self._copy, client, (group_id,))
        if [each.group_id for each in reply.groups] != [group_id]:
            return None
        description = reply.groups[0]
        if description.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self._log_denied(group_id)
        group = self._view(group_id)
        agreed = {each.member_id for each in description.members} == {each.member_id for each in group.members}
        stable = (
            description.error_code == ErrorCode.NONE and description.group_state == group.state == GroupState.STABLE
        )
        return group if stable and agreed else None

    async def _shrink(self, client: KafkaClient, group: GroupView) -> None:
        enforced: _Excess | None = None
        for policy, limit in self._excess(group, len(group.members)):
            if policy.enforced:
                enforced = _Excess(policy, limit)
            elif self._is_unreported(group, policy, limit):
                self._reported[group.group_id, policy.name] = group.generation, limit
                self._report("group over its limit", group, policy, limit, excess_members(group, limit))
        if enforced:
            removed = await self._remove(client, group, excess_members(group, enforced.limit), enforced.limit)
            if removed:
                self._report("group shrunk", group, *enforced, removed)

    async def _remove(
        self, client: KafkaClient, group: GroupView, members: Sequence[MemberView], limit: int
    ) -> list[MemberView]:
        """Sends LeaveGroup for members. Returns the members that the broker has removed."""
        version = client.version_for(LeaveGroupRequest)
        reason = f"The group has {len(group.members)} members, where {limit} are allowed."
        removed: list[MemberView] = []
        for some, request in _leave_requests(group.group_id, members, version, reason):
            # The group rebalances between two requests, so a member may have rejoined. The policy on joins has judged
            # such a member.
            if len(some) == 1 and self._is_parked(group.group_id, some[0].member_id):
                continue
            reply = await ask_and_learn(self._copy, client, request, version, removing=True)
            codes = _member_error_codes(reply, some, version)
            removed += [member for member, code in zip(some, codes, strict=True) if code == ErrorCode.NONE]
            if ErrorCode.GROUP_AUTHORIZATION_FAILED in codes:
                self._log_denied(group.group_id)
                break
        return removed

    # Reporting.

    def _report(self, what: str, group: GroupView, policy: Policy, limit: int, members: Sequence[MemberView]) -> None:
        """Logs one line, and reports a fact for each member that the group has lost, or would have lost in audit
        mode.
        """
        size = len(group.members)
        place = {"group": group.group_id, "broker": self._broker, "policy": policy.name}
        count = {"removed" if policy.enforced else "surplus": len(members)}
        log.warning(what, **place, size=size, limit=limit, **count)
        for member in members:
            self._copy.refused(
                ClientRefused(
                    group_id=group.group_id,
                    at=self._now(),
                    policy=policy.name,
                    error_code=policy.error_code,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    size=size,
                    limit=limit,
                    enforced=policy.enforced,
                    principal=member.principal,
                )
            )

    def _log_denied(self, group_id: str) -> None:
        if not self._denied:
            self._denied = True
            hint = "grant READ on groups to the sidecar's own connection, or set the policy's mode to audit"
            log.warning("groups may not be shrunk", broker=self._broker, group=group_id, hint=hint)

    def _view(self, group_id: str) -> GroupView:
        return self._copy.manager.view(group_id, self._now())

    def _is_parked(self, group_id: str, member_id: str) -> bool:
        return self._copy.manager.view_with_occupancy(group_id, self._now()).occupancy.is_parked(member_id, None)

    def _now(self) -> float:
        return self._copy.epoch(trio.current_time())


def _leave_requests(
    group_id: str, members: Sequence[MemberView], version: int, reason: str
) -> Iterator[tuple[Sequence[MemberView], LeaveGroupRequest]]:
    """Yields the requests that remove members, each with its members.

    One request contains all members if the broker supports such a request.
    """
    if version < _MANY_SINCE:
        for member in members:
            yield (member,), LeaveGroupRequest(group_id=group_id, member_id=member.member_id)
        return
    why = reason if version >= _REASON_SINCE else None
    identities = (
        MemberIdentity(
            member_id="" if member.instance_id else member.member_id,
            group_instance_id=member.instance_id,
            reason=why,
        )
        for member in members
    )
    yield members, LeaveGroupRequest(group_id=group_id, members=tuple(identities))


def _member_error_codes(reply: LeaveGroupResponse, members: Sequence[MemberView], version: int) -> list[int]:
    """Returns the error code of each member."""
    if reply.error_code or version < _MANY_SINCE:
        return [reply.error_code for _ in members]
    codes = {each.group_instance_id or each.member_id: each.error_code for each in reply.members}
    return [codes.get(each.instance_id or each.member_id, ErrorCode.UNKNOWN_MEMBER_ID) for each in members]
