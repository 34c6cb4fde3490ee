"""The state of one group as the log `__consumer_offsets` records it, without committed offsets."""

from dataclasses import replace
from typing import NamedTuple

from group_sidecar.coordinator.model.views import ConsumerGroupView, ConsumerMemberView


class DecodedMember(NamedTuple):
    """A member of a KIP-848 group, and the raw values of its records from which it was decoded.

    `values`: the member's metadata, its current assignment and its target assignment; None for a missing record.
    """

    values: tuple[bytes, bytes | None, bytes | None]
    view: ConsumerMemberView


class LoggedState:
    """The last generation of a classic group in the log, or the state of a group of a newer protocol in the log.

    Attributes:
        logged_metadata: the raw metadata of the last generation in the log; None if the log has no generation.
        consumer: a group of a newer protocol, as the log describes it; None if the log has not shown such a group.
        decoded_members: the members of `consumer` by member id, so that only changed members are decoded again.
    """

    def __init__(self) -> None:
        self.logged_metadata: bytes | None = None
        self.consumer: ConsumerGroupView | None = None
        self.decoded_members: dict[str, DecodedMember] = {}
        self._decoded_changes = 0
        """How often the group's records had changed when they were last decoded, or found undecodable."""

    def set_metadata(self, metadata: bytes | None) -> bytes | None:
        """Sets the metadata of the last generation in the log. Returns the previous metadata."""
        before, self.logged_metadata = self.logged_metadata, metadata
        return before

    def is_decoded(self, changes: int) -> bool:
        """Whether `consumer` is known, and the records have not changed since they were last decoded.

        `changes`: how often the group's records have changed.
        """
        return self.consumer is not None and self._decoded_changes == changes

    def note_decoded(self, changes: int) -> None:
        """Notes that the records were decoded, or found undecodable, after this number of changes."""
        self._decoded_changes = changes

    def set_view(self, view: ConsumerGroupView) -> None:
        """Sets the state of a group of a newer protocol. The order of the members stays if the same members remain."""
        order = self.consumer.members if self.consumer is not None and self.consumer.ordered else ()
        self.consumer = view
        self.set_member_order(tuple(member.member_id for member in order))

    def drop_view(self) -> None:
        """Drops the state, because the log contains no group of a newer protocol with this name any more."""
        self.consumer = None
        self.decoded_members.clear()

    def set_member_order(self, members: tuple[str, ...]) -> None:
        """Puts the members in the order of `members`, which is that of the broker's hash table.

        Does nothing if `members` are not exactly the group's members.
        """
        if self.consumer is not None and set(members) == {member.member_id for member in self.consumer.members}:
            by_id = {member.member_id: member for member in self.consumer.members}
            self.consumer = replace(self.consumer, members=tuple(by_id[each] for each in members), ordered=True)
