"""KIP-848 heartbeats that change only the client id of their member."""

from group_sidecar.coordinator.model.events import ConsumerMemberSeen
from group_sidecar.coordinator.model.views import FallbackReason
from tests.coordinator.rules.test_logged_rebalances import Copy, Group


def reason_after_heartbeat(copy: Copy, client_id: str) -> FallbackReason | None:
    """Reads the log, and then applies a heartbeat of member "a". Returns why the sidecar does not answer afterwards."""
    copy.log_says()
    copy.now += 0.1
    heartbeat = ConsumerMemberSeen(
        group_id="g",
        sent_at=copy.now,
        member_id="a",
        instance_id=None,
        epoch=5,
        client_id=client_id,
        client_host="/h",
        may_change_group=False,
    )
    copy.manager.apply([heartbeat], copy.now)
    return copy.manager.consumer_fallback_reason("g", copy.now)


def test_heartbeat_with_new_client_id_waits_for_log() -> None:
    """After a heartbeat with another client id, the broker answers until the log is read.

    Further heartbeats with this client id do not put the group in doubt. The return to the old client id does.
    """
    group = Group().at(5).member("a", 0)
    copy = Copy(load=group.write())
    assert reason_after_heartbeat(copy, "client-a") is None
    assert reason_after_heartbeat(copy, "new") is FallbackReason.IN_DOUBT
    copy.log_says(*group.write(client_id="new"))
    assert copy.manager.consumer_fallback_reason("g", copy.now) is None
    assert reason_after_heartbeat(copy, "new") is None
    assert reason_after_heartbeat(copy, "client-a") is FallbackReason.IN_DOUBT


def test_unlogged_group_has_no_client_ids_to_compare() -> None:
    """A heartbeat of a group that the log has not shown yet adds its member."""
    copy = Copy()
    reason_after_heartbeat(copy, "new")
    assert [member.client_id for member in copy.manager.view("g", copy.now).members] == ["new"]
