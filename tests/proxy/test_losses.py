"""A connection that ends while very much is owed: looked into some at a time, with no answer in between."""

from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.coordinator.views import Lacking
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.desk import BrokerDesk
from group_sidecar.proxy.losses import AT_ONCE, MOST_WAITING
from tests.proxy.playbook import EPOCH, Line, certain_copy, settled, to_client, to_upstream

GROUPS = tuple(f"a-group-of-some-length-{number:05}" for number in range(100))
OWED = 12
"""Requests that have no reply when their connection ends: 36 KB."""
REQUEST = len(Line(certain_copy()).frame(DeleteGroupsRequest(groups_names=(*GROUPS, "g")), 2)) - 4


def lose(desk: BrokerDesk, copy: BrokerCopy, requests: int = OWED) -> None:
    """A connection ends on which so many deletions have no reply, the last of them of the group g."""
    line = Line(copy, desk=desk)
    for number in range(requests):
        line.says(DeleteGroupsRequest(groups_names=(*GROUPS, "g" if number == requests - 1 else "f")), 2)
    line.upstream_closed()


def waiting(copy: BrokerCopy) -> int:
    return {table.name: table.entries for table in copy.tables}["lost_requests"]


def lacking(copy: BrokerCopy) -> Lacking | None:
    return copy.manager.group_lacking("g", EPOCH + 100)


def is_answered(desk: BrokerDesk, copy: BrokerCopy, group: str) -> bool:
    """Whether a client that asks for a group is answered here, and not by the broker."""
    commands = Line(copy, desk=desk).says(DescribeGroupsRequest(groups=(group,)), 5)
    assert bool(to_client(commands)) is not bool(to_upstream(commands))
    return bool(to_client(commands))


def test_very_many_lost_requests_are_looked_into_some_at_a_time() -> None:
    """To look into 512 KiB of them at once held up all clients for 80 ms."""
    copy = certain_copy()
    desk = BrokerDesk(copy)
    settled(copy, "m1")
    lose(desk, copy)
    assert waiting(copy) == OWED
    assert lacking(copy) is None
    turns = 1
    while desk.follow_losses():
        assert waiting(copy) >= OWED - turns * (AT_ONCE // REQUEST + 1)
        turns += 1
    assert turns == -(-OWED // (AT_ONCE // REQUEST + 1))
    assert lacking(copy) is Lacking.IN_DOUBT
    assert not desk.follow_losses()


def test_nothing_is_answered_before_all_losses_are_known() -> None:
    copy = certain_copy()
    desk = BrokerDesk(copy)
    settled(copy, "m1", group="other")
    assert is_answered(desk, copy, "other")
    lose(desk, copy)
    assert not is_answered(desk, copy, "other")
    assert copy.traffic.fallbacks[DescribeGroupsRequest.KEY, Lacking.STALE] == 1
    while desk.follow_losses():
        assert not is_answered(desk, copy, "other")
    assert is_answered(desk, copy, "other")


def test_a_few_lost_requests_are_looked_into_at_once() -> None:
    copy = certain_copy()
    settled(copy, "m1")
    lose(BrokerDesk(copy), copy, AT_ONCE // REQUEST)
    assert waiting(copy) == 0
    assert lacking(copy) is Lacking.IN_DOUBT


def test_what_waits_is_bounded() -> None:
    copy = certain_copy()
    desk = BrokerDesk(copy)
    for _ in range(MOST_WAITING // (OWED * REQUEST) + 10):
        lose(desk, copy)
    assert waiting(copy) * REQUEST <= MOST_WAITING
