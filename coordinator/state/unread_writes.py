"""Writes that could not be decoded, and until when each of them may still change something.

A write whose group cannot be read may concern any group. No loop marks the groups. The write begins a new epoch
instead, and a group compares its own epoch with it when the group is looked up. So such a write costs the same with one
group and with a million.
"""

from group_sidecar.coordinator.model.events import FOREVER, NEVER


class UnreadWrites:
    """Unread writes of one broker's clients.

    Attributes:
        epoch: the number of the last epoch of any kind. A group with this epoch is up to date.
        offsets_epoch: the last epoch in which an unread write may have changed offsets, or made or deleted a group.
        members_epoch: the last epoch in which an unread write may have changed the members of a group.
        deletions_epoch: the last epoch in which topics may have been deleted.
        until: when the broker has carried out all writes whose group was not read; FOREVER while one has no reply. In
            seconds since the epoch of the clock. A reply to an earlier request may be outdated.
    """

    def __init__(self) -> None:
        self.epoch = self.offsets_epoch = self.members_epoch = self.deletions_epoch = 0
        self.until = NEVER
        self._done_by = NEVER
        self._unanswered = 0
        self._by_group: dict[str, tuple[int, float]] = {}
        """By group, how many writes have no reply, and until when the others may change the group."""

    @property
    def unanswered(self) -> int:
        """How many writes have no reply yet."""
        return self._unanswered + sum(count for count, _ in self._by_group.values())

    def begin(self, *, members: bool) -> None:
        """A write of an unread group goes to the broker. `members`: whether it may change members of a group."""
        self._unanswered += 1
        self.until = FOREVER
        self._begin_epoch(members=members)

    def end(self, until: float, *, members: bool) -> None:
        """Such a write has its reply, or its connection is gone. The broker will have carried it out by `until`."""
        if self._unanswered:
            self._unanswered -= 1
        else:
            self._begin_epoch(members=members)  # Its beginning was not seen.
        self._done_by = max(self._done_by, until)
        if not self._unanswered:
            self.until = self._done_by

    def begin_of(self, group_id: str) -> None:
        """A write to this group goes to the broker, and only its group was read."""
        count, until = self._by_group.get(group_id, (0, NEVER))
        self._by_group[group_id] = count + 1, until

    def end_of(self, group_id: str, until: float) -> float:
        """One of these writes has its reply. Returns until when all of them may change the group."""
        count, before = self._by_group.pop(group_id, (1, NEVER))
        until = max(until, before)
        if count <= 1:
            return until
        self._by_group[group_id] = count - 1, until
        return FOREVER

    def until_of(self, group_id: str) -> float:
        """Returns until when unread writes may change a group; FOREVER while one of them has no reply."""
        return FOREVER if group_id in self._by_group else self.until

    def topics_deleted(self) -> None:
        """Topics may have been deleted, and with them offsets of any group."""
        self.epoch += 1
        self.deletions_epoch = self.epoch

    def _begin_epoch(self, *, members: bool) -> None:
        self.epoch += 1
        self.offsets_epoch = self.epoch
        if members:
            self.members_epoch = self.epoch
