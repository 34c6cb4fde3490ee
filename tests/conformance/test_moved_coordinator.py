"""A group's coordinator moves from one broker to another. Tests the reports of both brokers' sidecars."""

from pathlib import Path

from group_sidecar.codecs.errors import ErrorCode
from tests.conformance.cause_scenarios import Scene
from tests.conformance.test_leadership import GROUPS, Pair, pair, swap
from tests.kafka.dialect import until
from tests.kafka.group_members import ClassicMember

__all__ = ["pair"]  # pytest finds the imported fixtures.


def test_coordinator_moves(pair: Pair, tmp_path: Path) -> None:
    """A move of the coordinator is reported once by the old sidecar, and as the rebalance cause by the new sidecar."""
    pair.wait_until_led(pair.leaders())
    group = GROUPS[0]
    before = pair.coordinator(group)
    assert before is not None
    left, right = (Scene(pair.brokers[node], pair.sidecars[node], name=group) for node in (before, 1 - before))
    with ClassicMember(left.client("member"), group, "t") as member:
        member.join()
        member.sync()
        assert left.rebalanced("new_member")["members"] == 1
        pair.wait_until_led(swap(pair, tmp_path))
        until(lambda: member.heartbeat() == ErrorCode.NOT_COORDINATOR, "the group has moved to another coordinator")
        left.wait_for("coordinator_moved")
        member.reconnect(right.client("member"))
        until(lambda: member.heartbeat() == ErrorCode.NONE, "the new coordinator has loaded the group")
        assert right.timeline() == [] or right.events("member_joined") == right.timeline(), (
            "the load of a group may report only its members"
        )
        member.join()
        member.sync()
        moved = right.rebalanced("coordinator_moved")
    assert (moved["by"]["client_id"], moved["reason"], moved["gone"]) == ("member", "unknown", 0)
    assert len(left.events("coordinator_moved")) == 1
