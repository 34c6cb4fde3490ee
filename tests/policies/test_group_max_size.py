"""group.max.size, state by state, as Kafka's acceptJoiningMember has it since 2.6."""

from typing import Any

import pytest

from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from group_sidecar.coordinator.views import GroupKind, GroupState, GroupView, MemberView
from group_sidecar.policies.group_max_size import GroupMaxSize
from group_sidecar.policies.verdicts import Allow, Refuse

LIMIT = 2
STABLE, COMPLETING = GroupState.STABLE, GroupState.COMPLETING_REBALANCE
PREPARING, EMPTY, DEAD = GroupState.PREPARING_REBALANCE, GroupState.EMPTY, GroupState.DEAD


def judge(
    state: GroupState, caller: str, members: str = "", awaiting: str = "", *, roster_known: bool = True, **more: Any
) -> Allow | Refuse:
    view = GroupView(
        group_id="g",
        state=state,
        members=tuple(MemberView(member_id=member) for member in members),
        awaiting=frozenset(awaiting),
        roster_known=roster_known,
        **more,
    )
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, member_id=caller, protocol_type="consumer", protocols=()
    )
    return GroupMaxSize(LIMIT).judge(join, view)


@pytest.mark.parametrize(
    ("state", "caller", "members", "awaiting"),
    [
        (EMPTY, "", "", ""),
        (DEAD, "", "", ""),
        (EMPTY, "", "", "xyz"),
        (STABLE, "", "a", ""),
        (STABLE, "a", "ab", ""),
        (STABLE, "a", "abc", ""),
        (COMPLETING, "", "a", ""),
        (COMPLETING, "b", "ab", ""),
        (PREPARING, "", "ab", "a"),
        (PREPARING, "a", "abc", "ab"),
        (PREPARING, "c", "abc", "a"),
    ],
)
def test_who_may_join(state: GroupState, caller: str, members: str, awaiting: str) -> None:
    assert isinstance(judge(state, caller, members, awaiting), Allow)


@pytest.mark.parametrize(
    ("state", "caller", "members", "awaiting", "size", "remove"),
    [
        (STABLE, "", "ab", "", 2, ""),
        (STABLE, "z", "ab", "", 2, ""),
        (STABLE, "", "abc", "", 3, ""),
        (COMPLETING, "", "ab", "", 2, ""),
        (PREPARING, "", "a", "ab", 2, ""),
        (PREPARING, "c", "abc", "ab", 2, "c"),
        (PREPARING, "z", "abc", "abz", 3, None),
    ],
)
def test_who_may_not(
    state: GroupState, caller: str, members: str, awaiting: str, size: int, remove: str | None
) -> None:
    verdict = judge(state, caller, members, awaiting)
    if remove is None:
        assert isinstance(verdict, Allow), "it is parked already"
    else:
        assert verdict == Refuse(error_code=77, size=size, limit=LIMIT, remove=remove)


def test_a_caller_with_an_id_passes_where_not_all_members_are_known() -> None:
    assert isinstance(judge(STABLE, "z", "ab", roster_known=False), Allow)
    assert isinstance(judge(STABLE, "", "ab", roster_known=False), Refuse)


def test_groups_of_the_new_protocol_are_not_counted() -> None:
    assert isinstance(judge(STABLE, "", "abc", kind=GroupKind.CONSUMER), Allow)


def test_the_error_that_is_told() -> None:
    view = GroupView(group_id="g", state=STABLE, members=(MemberView(member_id="a"),), roster_known=True)
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, member_id="", protocol_type="consumer", protocols=()
    )
    verdict = GroupMaxSize(1, 81).judge(join, view)
    assert isinstance(verdict, Refuse)
    assert verdict.error_code == 81


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_lets_nobody_in_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        GroupMaxSize(limit)
