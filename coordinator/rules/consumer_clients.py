"""The rule of a KIP-848 heartbeat, which may change the client id of its member."""

from group_sidecar.coordinator.model.events import ConsumerMemberSeen
from group_sidecar.coordinator.model.facts import Fact
from group_sidecar.coordinator.rules.consumer_members import consumer_member_seen
from group_sidecar.coordinator.state.group import Group


def consumer_heartbeat_accepted(group: Group, event: ConsumerMemberSeen, now: float) -> list[Fact]:
    """Applies a heartbeat. If its client id is not the member's, puts the group in doubt until the log is read.

    The broker writes a record if only the client id has changed (`GroupMetadataManager.consumerGroupHeartbeat`).
    """
    member = group.members.get(event.member_id) if group.consumer is not None else None
    if member is not None and event.client_id not in ("", member.client_id):
        group.doubt(max(event.sent_at, now))
    return consumer_member_seen(group, event, now)
