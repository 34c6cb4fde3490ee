"""The content of the log about one group, apart from its offsets."""

from dataclasses import replace

from group_sidecar.coordinator.model.views import ConsumerGroupView


class LoggedState:
    """The last generation of a classic group in the log, or a KIP-848 group as its records describe it.

    Attributes:
        logged_metadata: the raw metadata of the last generation in the log; None if the log has no generation.
        consumer: a group of a newer protocol, as the log describes it; None for a classic group.
    """

    def __init__(self) -> None:
        self.logged_metadata: bytes | None = None
        self.consumer: ConsumerGroupView | None = None
        self._read_changes = 0
        """How often the records had changed when `consumer` was decoded from them."""

    def take_metadata(self, metadata: bytes | None) -> bytes | None:
        """Sets the metadata of the last generation in the log. Returns the previous metadata."""
        before, self.logged_metadata = self.logged_metadata, metadata
        return before

    def is_read(self, changes: int) -> bool:
        """Whether `consumer` was decoded after the records had changed this often."""
        return self.consumer is not None and self._read_changes == changes

    def note_read(self, changes: int) -> None:
        """Notes that the records were decoded after they had changed this often."""
        self._read_changes = changes

    def take_view(self, view: ConsumerGroupView) -> None:
        """Sets the view of the group that the records describe now. A known order of the members is kept."""
        order = self.consumer.members if self.consumer is not None and self.consumer.ordered else ()
        self.consumer = view
        self.set_member_order(tuple(member.member_id for member in order))

    def drop_view(self) -> None:
        """Forgets the view, because the log describes no group of a newer protocol any more."""
        self.consumer = None

    def set_member_order(self, members: tuple[str, ...]) -> None:
        """Sorts the members in the order in which the broker describes them, which is that of its hash table."""
        if self.consumer is not None and set(members) == {member.member_id for member in self.consumer.members}:
            by_id = {member.member_id: member for member in self.consumer.members}
            self.consumer = replace(self.consumer, members=tuple(by_id[each] for each in members), ordered=True)
