"""What is done to a group of thousands of members at once costs so much for each, not for each of each."""

import json

import pytest

from group_sidecar.coordinator.events import JoinSent, MemberUnknown, ReplyLost
from tests.as_python import run_as_python
from tests.coordinator.large_groups import CASES, FEW, MANY, NOW, describe, joining, knowing_nothing, member_id

COUNTING = "import runpy; runpy.run_module('tests.coordinator.large_groups', run_name='__main__')"
Counted = dict[str, tuple[int, int]]


@pytest.fixture(scope="module")
def counted() -> Counted:
    """Instructions of each case, in a group of few and in one of many members."""
    ran = run_as_python(COUNTING)
    assert ran.returncode == 0, ran.stderr
    found: Counted = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("case", CASES)
def test_each_member_of_a_large_group_costs_as_much_as_of_a_small_one(case: str, counted: Counted) -> None:
    few, many = counted[case]
    assert few > FEW, "less than one instruction for each member"
    assert many / MANY < 1.2 * few / FEW


@pytest.mark.parametrize("case", CASES)
def test_a_large_group_is_what_it_was_told_to_be(case: str) -> None:
    for _ in CASES[case](knowing_nothing(), 4 * MANY):
        pass


def test_a_lost_join_counts_again_once_its_member_was_forgotten() -> None:
    manager = knowing_nothing()
    group = describe(manager, 4, static=False)
    for number in range(3):
        sent = joining(number, member=member_id(1))
        manager.apply([JoinSent(group_id="g", sent_at=NOW + 1, joining=sent)], NOW + 1)
        assert group.reservations.is_parked(member_id(1))
        manager.apply([ReplyLost(group_id="g", sent_at=NOW + 1, token=sent.token, creates=True)], NOW + 1)
        assert group.reservations.is_parked(member_id(1))
        manager.apply([MemberUnknown(group_id="g", sent_at=NOW + 2, member_id=member_id(1))], NOW + 3)
        assert not group.reservations.is_parked(member_id(1))
