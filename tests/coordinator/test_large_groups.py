"""A step that concerns all members of a large group costs linear time, not quadratic time."""

import json

import pytest

from group_sidecar.coordinator.model.events import JoinSent, MemberUnknown, ReplyLost
from tests.as_python import run_as_python
from tests.coordinator.large_groups import CASES, FEW, MANY, NOW, describe, joining, knowing_nothing, member_id

COUNTING = "import runpy; runpy.run_module('tests.coordinator.large_groups', run_name='__main__')"
Counted = dict[str, tuple[int, int]]


@pytest.fixture(scope="module")
def counted() -> Counted:
    """The instructions of each case, in a group with few members and in a group with many."""
    ran = run_as_python(COUNTING)
    assert ran.returncode == 0, ran.stderr
    found: Counted = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("case", CASES)
def test_member_cost_is_constant(case: str, counted: Counted) -> None:
    """Each member of a large group costs less than 1.2 times the instructions of a member in a small group."""
    few, many = counted[case]
    assert few > FEW, "fewer instructions than members, so the count is wrong"
    assert many / MANY < 1.2 * few / FEW


@pytest.mark.parametrize("case", CASES)
def test_large_group_cases_pass(case: str) -> None:
    """Each measured case runs without an assertion error in a very large group."""
    for _ in CASES[case](knowing_nothing(), 4 * MANY):
        pass


def test_lost_join_counts_again() -> None:
    """A repeated lost join of a forgotten member counts as parked each time until the broker rejects the member id."""
    manager = knowing_nothing()
    group = describe(manager, 4, static=False)
    for number in range(3):
        sent = joining(number, member=member_id(1))
        manager.apply([JoinSent(group_id="g", sent_at=NOW + 1, joining=sent)], NOW + 1)
        assert group.pending_joins.is_parked(member_id(1), None)
        manager.apply([ReplyLost(group_id="g", sent_at=NOW + 1, token=sent.token, may_create_group=True)], NOW + 1)
        assert group.pending_joins.is_parked(member_id(1), None)
        manager.apply([MemberUnknown(group_id="g", sent_at=NOW + 2, member_id=member_id(1))], NOW + 3)
        assert not group.pending_joins.is_parked(member_id(1), None)
