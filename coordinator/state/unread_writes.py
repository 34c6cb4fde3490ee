"""Writes that could not be decoded, and until when each of them may still change groups.

A write whose group is unknown may concern any group. The write begins a new epoch, and each group compares its own
epoch with the current epoch when the group is looked up. So the cost of a write does not grow with the number of
groups.
"""

from group_sidecar.coordinator.model.events import FOREVER, NEVER


class UnreadWrites:
    """Unread writes of one broker's clients.

    Attributes:
        epoch: the number of the last epoch of any kind. A group with this epoch is up to date.
        offsets_epoch: the last epoch in which an unread write may have changed offsets, or created or deleted a group.
        members_epoch: the last epoch in which an unread write may have changed the members of a group.
        deletions_epoch: the last epoch in which topics may have been deleted.
        until: when the broker has executed all writes whose group is unknown, in seconds since the epoch; FOREVER while
            such a write has no reply. A reply to an earlier request may be outdated.
    """

    def __init__(self) -> None:
        self.epoch = self.offsets_epoch = self.members_epoch = self.deletions_epoch = 0
        self.until = NEVER
        self._done_by = NEVER
        self._unanswered = 0
        self._by_group: dict[str, tuple[int, float]] = {}
        """By group, how many of its writes have no reply, and until when its other writes may change the group."""

    @property
    def unanswered(self) -> int:
        """How many writes have no reply yet."""
        return self._unanswered + sum(count for count, _ in self._by_group.values())

    def begin(self, *, members: bool) -> None:
        """Notes that a write to an unknown group is sent. `members`: whether such a write may change members."""
        self._unanswered += 1
        self.until = FOREVER
        self._begin_epoch(members=members)

    def end(self, until: float, *, members: bool) -> None:
        """Notes that a write to an unknown group has its reply, or that its connection was lost.

        The broker executes the write before the time `until`. `members`: whether such a write may change members.
        """
        if self._unanswered:
            self._unanswered -= 1
        else:
            self._begin_epoch(members=members)  # The write was not noted when it was sent.
        self._done_by = max(self._done_by, until)
        if not self._unanswered:
            self.until = self._done_by

    def begin_of(self, group_id: str) -> None:
        """Notes that a write to this group is sent. Only the group of the write could be decoded."""
        count, until = self._by_group.get(group_id, (0, NEVER))
        self._by_group[group_id] = count + 1, until

    def end_of(self, group_id: str, until: float) -> float:
        """Notes that a write to this group has its reply, or that the write's connection was lost.

        Returns until when any unread write to this group may change the group; FOREVER while one of them has no reply.
        """
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
        """Notes that topics may have been deleted, and with them offsets of any group."""
        self.epoch += 1
        self.deletions_epoch = self.epoch

    def _begin_epoch(self, *, members: bool) -> None:
        self.epoch += 1
        self.offsets_epoch = self.epoch
        if members:
            self.members_epoch = self.epoch
