"""Shrinks groups that have more members than a policy lets them have.

Owns: which groups, how many at a time, how often again; what is asked of the broker for it, and what is told of it.
Must not know: any one policy, who of a group has to go (`coordinator.surplus`), how the copy learns of it.

A group gets so large where no policy kept members out: before the sidecar was started, before the limit was lowered,
or before this broker became its coordinator. Kafka makes such a group rebalance when it loads it (KIP-389). Here
members leave on their own behalf, the newest first, which does the same. What counts is how a group is, not what made
it so: looked at are all groups that have changed, and acted on is whatever is Stable and too large. A group that is
rebalancing is left to the rule on joins.

Nobody is removed without the broker's word, at that moment, that the group is Stable and who is in it. Where nothing
but the wire tells of groups, members that bypass the sidecar are not seen, and so nor is it that they are too many.

Groups of KIP-848 are not shrunk. Kafka does not shrink them either, and LeaveGroup is of no use there.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import trio

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from group_sidecar.coordinator.facts import ClientRefused
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.surplus import surplus
from group_sidecar.coordinator.views import GroupKind, GroupState, GroupView, MemberView
from group_sidecar.policies.policy import Policy
from group_sidecar.proxy.attempts import Pace
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.client import KafkaClient
from group_sidecar.proxy.errands import carry_out, describe, run_errand
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.supervision import Supervisor, Task

ROUND_SECONDS = 1.0
"""Between looks whether a group is too large."""
GLANCES_AT_ONCE, GLANCES_OF_A_LOOK = 1000, 20
"""How many groups are glanced at between two breaths, which takes about a millisecond; and how many glances it costs
to look at one that has changed."""
GROUPS_A_SECOND = 10
"""Each makes all members of a group join anew: a broker full of large groups must not have them all at its door."""
AGAIN_SECONDS, LONGEST_AGAIN, REMEMBERED_SECONDS = 1.0, 300.0, 600.0
"""Until the same group is shrunk again, doubled each time, and when that is forgotten. Members that come past the
sidecar come back at once: without the pause their group would do nothing but rebalance."""
_MANY_SINCE, _REASON_SINCE = 3, 5  # LeaveGroup (KIP-345, KIP-800).


async def shrink_forever(copy: BrokerCopy, supervisor: Supervisor | None = None) -> None:
    """Shrinks groups as soon as they are too large, until cancelled. Never raises."""
    await run_errand(copy, _Shrinker(copy), ROUND_SECONDS, supervisor)


class _Excess(NamedTuple):
    """A policy whose limit a group exceeds."""

    policy: Policy
    limit: int


class _Looked(NamedTuple):
    """What was found when a group was looked at. `changes`: how often it had changed."""

    changes: int
    excess: tuple[_Excess, ...]


class _Shrinker:
    """Shrinks the groups of one broker."""

    task = Task.SHRINKING

    def __init__(self, copy: BrokerCopy) -> None:
        self._copy = copy
        self._rules: tuple[Policy, ...] = ()
        self._looked: dict[str, _Looked] = {}
        self._reported: dict[tuple[str, str], tuple[int, int]] = {}
        self._pace: Pace[str] = Pace(GROUPS_A_SECOND, AGAIN_SECONDS, LONGEST_AGAIN, REMEMBERED_SECONDS)
        self._denied = False

    # Which groups.

    async def due(self) -> list[str] | None:
        """See Errand."""
        rules, cache = tuple(self._copy.rulebook), self._copy.manager.group_metadata_cache
        if rules != self._rules:
            self._rules, self._looked = rules, {}
        wanted: list[str] = []
        glances, now = 0, self._now()
        for group in list(cache.values()) if rules else ():
            looked = self._looked.get(group.group_id)
            if looked is None or looked.changes != group.changes:
                looked = self._looked[group.group_id] = self._look(group)
                glances += GLANCES_OF_A_LOOK
            if looked.excess and self._is_ready(group, looked.excess, now):
                wanted.append(group.group_id)
            glances += 1
            if glances >= GLANCES_AT_ONCE:
                await trio.lowlevel.checkpoint()
                glances, now = 0, self._now()
        if len(self._looked) > len(cache):
            self._looked = {group_id: looked for group_id, looked in self._looked.items() if group_id in cache}
            self._reported = {which: said for which, said in self._reported.items() if which[0] in cache}
        return self._pace.due(wanted) or None

    def _look(self, group: Group) -> _Looked:
        # Those that are not heard of may be heard elsewhere: the broker will tell.
        size = len(group.members) + len(group.overdue)
        return _Looked(group.changes, self._excess(self._view(group.group_id), size) if size > 1 else ())

    def _excess(self, group: GroupView, size: int) -> tuple[_Excess, ...]:
        """The policies whose limits it exceeds with so many members, the strictest last."""
        if group.kind is not GroupKind.CLASSIC:
            return ()
        limits = ((policy, policy.most_members(group)) for policy in self._rules)
        found = [_Excess(policy, limit) for policy, limit in limits if limit and size > limit]
        return tuple(sorted(found, key=lambda each: -each.limit))

    def _is_ready(self, group: Group, excess: tuple[_Excess, ...], now: float) -> bool:
        """Whether the group is Stable, the log does not say more of it yet, and there is something left to do."""
        if group.state is not GroupState.STABLE or group.rebalancing_join is not None:
            return False
        log_table = self._copy.manager.log.partitions
        if log_table.count is not None and not log_table.follows(group.group_id, now):
            return False
        return any(policy.enforced or self._is_news(group, policy, limit) for policy, limit in excess)

    def _is_news(self, group: Group | GroupView, policy: Policy, limit: int) -> bool:
        """Whether a generation has not been reported before. Which it is may not be known for a moment."""
        said = self._reported.get((group.group_id, policy.name))
        return group.generation >= 0 and said != (group.generation, limit)

    # What is done.

    async def run(self, client: KafkaClient, due: list[str]) -> None:
        """See Errand."""
        for group_id in due:
            self._pace.begin([group_id])
            if (group := await self._confirmed(client, group_id)) is not None:
                await self._shrink(client, group)
            await trio.sleep(1 / GROUPS_A_SECOND)

    async def _confirmed(self, client: KafkaClient, group_id: str) -> GroupView | None:
        """The group as the broker describes it; None where the group is not Stable, the copy does not agree, or the
        reply does not describe exactly this group.
        """
        reply = await describe(self._copy, client, (group_id,))
        if [each.group_id for each in reply.groups] != [group_id]:
            return None
        told = reply.groups[0]
        if told.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self._deny(group_id)
        group = self._view(group_id)
        agreed = {each.member_id for each in told.members} == {each.member_id for each in group.members}
        stable = told.error_code == ErrorCode.NONE and told.group_state == group.state == GroupState.STABLE
        return group if stable and agreed else None

    async def _shrink(self, client: KafkaClient, group: GroupView) -> None:
        enforced: _Excess | None = None
        for policy, limit in self._excess(group, len(group.members)):
            if policy.enforced:
                enforced = _Excess(policy, limit)
            elif self._is_news(group, policy, limit):
                self._reported[group.group_id, policy.name] = group.generation, limit
                self._tell("group over its limit", group, policy, limit, surplus(group, limit))
        if enforced:
            removed = await self._remove(client, group, surplus(group, enforced.limit), enforced.limit)
            if removed:
                self._tell("group shrunk", group, *enforced, removed)

    async def _remove(
        self, client: KafkaClient, group: GroupView, members: Sequence[MemberView], limit: int
    ) -> list[MemberView]:
        """Lets members leave. Returns those that the broker has let go."""
        version = client.version_for(LeaveGroupRequest)
        reason = f"The group has {len(group.members)} members, where {limit} are allowed."
        removed: list[MemberView] = []
        for some, request in _leaves(group.group_id, members, version, reason):
            # Between two requests the group rebalances: who has joined anew by then is left to the rule on joins.
            if len(some) == 1 and self._is_parked(group.group_id, some[0].member_id):
                continue
            reply = await carry_out(self._copy, client, request, version, removing=True)
            codes = _outcomes(reply, some, version)
            removed += [member for member, code in zip(some, codes, strict=True) if code == ErrorCode.NONE]
            if ErrorCode.GROUP_AUTHORIZATION_FAILED in codes:
                self._deny(group.group_id)
                break
        return removed

    # What is told.

    def _tell(self, what: str, group: GroupView, policy: Policy, limit: int, members: Sequence[MemberView]) -> None:
        """One line, and a fact for each of the members that the group has lost, or would have."""
        size = len(group.members)
        place = {"group": group.group_id, "broker": str(self._copy.address), "policy": policy.name}
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
                )
            )

    def _deny(self, group_id: str) -> None:
        if not self._denied:
            self._denied = True
            hint = "grant READ on groups to the sidecar's own connection, or set the policy's mode to audit"
            log.warning("groups may not be shrunk", broker=str(self._copy.address), group=group_id, hint=hint)

    def _view(self, group_id: str) -> GroupView:
        return self._copy.manager.view(group_id, self._now())

    def _is_parked(self, group_id: str, member_id: str) -> bool:
        return self._copy.manager.seated(group_id, self._now()).seats.is_parked(member_id)

    def _now(self) -> float:
        return self._copy.epoch(trio.current_time())


def _leaves(
    group_id: str, members: Sequence[MemberView], version: int, reason: str
) -> Iterator[tuple[Sequence[MemberView], LeaveGroupRequest]]:
    """The requests by which members leave, and who in each: all in one where the broker can do that."""
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


def _outcomes(reply: LeaveGroupResponse, members: Sequence[MemberView], version: int) -> list[int]:
    """The error code of each member."""
    if reply.error_code or version < _MANY_SINCE:
        return [reply.error_code for _ in members]
    codes = {each.group_instance_id or each.member_id: each.error_code for each in reply.members}
    return [codes.get(each.instance_id or each.member_id, ErrorCode.UNKNOWN_MEMBER_ID) for each in members]
