"""Writes that went to the broker without being understood here, and until when each may still change something.

Owns: `Unread`: how many such writes are unanswered, by group where their group could be read, and the epochs by which
groups and offsets notice that one passed. Must not know: groups, why a request could not be read, sockets.

A write whose group cannot be read may concern any group. No loop marks the groups: the write begins a new epoch, and
a group compares its own epoch with it when somebody looks at the group. So such a write costs the same with one group
and with a million.
"""

from group_sidecar.coordinator.events import FOREVER, NEVER


class Unread:
    """Unread writes of one broker's clients.

    Attributes:
        epoch: number of the last epoch of any kind. What was brought up to date in it needs no further look.
        offsets_epoch: the last epoch in which an unread write may have changed offsets, or made or deleted a group.
        members_epoch: the last epoch in which an unread write may have changed the members of a group.
        deletions_epoch: the last epoch in which topics may have been deleted.
        until: when the broker has done all writes whose group was not read; FOREVER while one is unanswered. In seconds
            since the epoch of the clock. What was asked before then settles no doubt.
    """

    def __init__(self) -> None:
        self.epoch = self.offsets_epoch = self.members_epoch = self.deletions_epoch = 0
        self.until = NEVER
        self._done_by = NEVER
        self._unanswered = 0
        self._by_group: dict[str, tuple[int, float]] = {}
        """How many writes to a group are unanswered, and until when those that were answered may change it."""

    @property
    def unanswered(self) -> int:
        """How many writes have no answer yet."""
        return self._unanswered + sum(count for count, _ in self._by_group.values())

    def begin(self, *, members: bool) -> None:
        """A write of an unread group goes to the broker. `members`: whether it may change members of a group."""
        self._unanswered += 1
        self.until = FOREVER
        self._notice(members=members)

    def end(self, until: float, *, members: bool) -> None:
        """Such a write was answered, or its connection is gone: the broker will have done it by `until`."""
        if self._unanswered:
            self._unanswered -= 1
        else:
            self._notice(members=members)  # Its beginning was not seen.
        self._done_by = max(self._done_by, until)
        if not self._unanswered:
            self.until = self._done_by

    def begin_of(self, group_id: str) -> None:
        """A write to this group goes to the broker, and only its group was read."""
        count, until = self._by_group.get(group_id, (0, NEVER))
        self._by_group[group_id] = count + 1, until

    def end_of(self, group_id: str, until: float) -> float:
        """One of them was answered. Returns until when all of them may change the group."""
        count, before = self._by_group.pop(group_id, (1, NEVER))
        until = max(until, before)
        if count <= 1:
            return until
        self._by_group[group_id] = count - 1, until
        return FOREVER

    def until_of(self, group_id: str) -> float:
        """Until when a group may be changed by what was not read: by unanswered writes to it, or to an unread group."""
        return FOREVER if group_id in self._by_group else self.until

    def topics_deleted(self) -> None:
        """Topics may have been deleted, and with them offsets of any group."""
        self.epoch += 1
        self.deletions_epoch = self.epoch

    def _notice(self, *, members: bool) -> None:
        self.epoch += 1
        self.offsets_epoch = self.epoch
        if members:
            self.members_epoch = self.epoch
