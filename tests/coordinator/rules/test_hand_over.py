"""Members of classic groups that depart while a predecessor still serves clients, so that no request shows why."""

from typing import Any

import pytest

from group_sidecar.coordinator.model.events import DescribedMember, GroupDescribed, MemberSeen
from group_sidecar.coordinator.model.facts import Departure, Fact, MemberGone
from group_sidecar.coordinator.model.views import GroupState
from tests.coordinator.rules.test_logged_rebalances import WHO, Copy, generation, is_let_in, of, sends_join
from tests.coordinator.sweeping import swept

GROUP = generation(7, a=(0,), b=(1,))
SESSION_SECONDS = 5.0


def _hand_over(seconds: float) -> tuple[Copy, list[Fact]]:
    """A successor loads the group, and its predecessor serves clients for `seconds`. Only `a` comes to the successor.

    Returns the copy and its facts.
    """
    copy = Copy(exclusive=True, load=[GROUP])
    copy.manager.begin_sharing()
    copy.now += seconds
    copy.wire_says(MemberSeen, member_id="a", instance_id=None, generation=7, no_rebalance=True, **WHO)
    facts = swept(copy.manager, copy.now)
    copy.manager.end_sharing(copy.now + 1)
    copy.now += 2
    return copy, facts


def _described(copy: Copy, *, has_instance_ids: bool = True, **member_ids: str | None) -> list[Fact]:
    """The broker describes the group as Stable. `member_ids`: the instance ids of its members."""
    copy.now += 1
    members = tuple(
        DescribedMember(member_id=member_id, instance_id=instance_id, metadata=b"", assignment=b"", **WHO)
        for member_id, instance_id in member_ids.items()
    )
    description: dict[str, Any] = {"protocol_type": "consumer", "protocol": "range", "members": members}
    return copy.wire_says(
        GroupDescribed,
        state=GroupState.STABLE,
        as_of=copy.manager.changes_of("g")[0],
        has_instance_ids=has_instance_ids,
        **description,
    )


@pytest.mark.parametrize("seconds", [1.0, SESSION_SECONDS + 1])
@pytest.mark.parametrize("sign", ["description", "log", "leader"])
def test_departure_is_reported(seconds: float, sign: str) -> None:
    """The departure of a member is reported, whatever shows it first. Its reason is not known."""
    copy, facts = _hand_over(seconds)
    if sign == "description":
        facts += _described(copy, a=None)
    elif sign == "leader":
        facts += is_let_in(copy, sends_join(copy), 8)
    facts += copy.log_says(generation(8, a=(0, 1)))
    assert [(gone.member_id, gone.how) for gone in of(facts, MemberGone)] == [("b", Departure.DROPPED)]


def test_later_departure_has_expired() -> None:
    """A member that no request shows for a whole session after the end of the predecessor has expired."""
    copy, facts = _hand_over(1.0)
    copy.now += SESSION_SECONDS
    copy.wire_says(MemberSeen, member_id="a", instance_id=None, generation=7, no_rebalance=True, **WHO)
    facts += swept(copy.manager, copy.now)
    facts += copy.log_says(generation(8, a=(0, 1)))
    assert [(gone.member_id, gone.how) for gone in of(facts, MemberGone)] == [("b", Departure.EXPIRED)]


def test_overdue_member_is_reported_later() -> None:
    """A member whose timer ends while the predecessor serves clients is reported when the log shows its departure."""
    copy, facts = _hand_over(SESSION_SECONDS + 1)
    copy.now += 60
    copy.wire_says(MemberSeen, member_id="a", instance_id=None, generation=7, no_rebalance=True, **WHO)
    facts += copy.log_says(generation(8, a=(0, 1)))
    assert [gone.member_id for gone in of(facts, MemberGone)] == ["b"]


def test_static_member_without_instance_id_may_be_there() -> None:
    """A description without instance ids does not show whether a static member is there under another member id."""
    copy = Copy(load=[generation(7, static=True, ax=(0,), by=(1,))])
    assert _described(copy, has_instance_ids=False, **{"ax": None, "by-new": None}) == []
