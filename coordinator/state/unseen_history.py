"""Groups that may have a history which the copy has not observed, and until when that history may grow.

The history of a group is everything that happened to the group at the broker. The copy of a group may be wrong if part
of this history was not observed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from group_sidecar.coordinator.model.events import DESCRIPTION_VALID_SECONDS, FOREVER, NEVER
from group_sidecar.coordinator.state.bounded_table import BoundedTable, TableSize, name_bytes
from group_sidecar.coordinator.state.log_partitions import FRESH_SECONDS


class _UnseenGroup(NamedTuple):
    """An unseen history of one group.

    Attributes:
        until: the time until which lost requests may add to the history.
        note_number: the value of `note_count` when the history was noted.
        elsewhere: whether another broker may coordinate the group.
    """

    until: float
    note_number: int
    elsewhere: bool = False


class UnseenHistory:
    """Groups that may have an unseen history.

    Args:
        max_groups: how many groups are kept here. Beyond that number the oldest group is evicted. Then any group may
            have an unseen history until the broker has listed its groups.
        known: the groups whose state the copy keeps.

    Attributes:
        others_observed: whether a group that is not noted here was observed from its creation on.
        note_count: how many notes of groups were made so far. A listing that was requested before a note does not show
            the state of the noted group.
    """

    def __init__(self, max_groups: int, known: Collection[str] = ()) -> None:
        self.others_observed = False
        self.note_count = 0
        self._known = known
        self._unseen: BoundedTable[_UnseenGroup] = BoundedTable(max_groups, self._evicted)
        self._missing: BoundedTable[float] = BoundedTable(max_groups)
        self._absent: dict[str, None] = {}
        """Noted groups that the broker may have and whose state the copy does not keep."""
        self._elsewhere: dict[str, None] = {}
        self._unlisted: dict[str, None] = {}
        """Noted groups for which only a listing shows whether the broker has them."""
        self._listed: set[str] = set()
        """The groups in the broker's last listing that was adopted."""
        self._listed_bytes, self._listed_note_number = 0, 0
        self._max_groups = max_groups
        self._knows_existing_groups = False
        self._others_note_number, self._others_until = 0, NEVER

    @property
    def tables(self) -> Iterator[TableSize]:
        """The size of each table."""
        noted = len(self._unseen) + len(self._listed)
        yield TableSize("unseen_groups", noted, self._unseen.bytes + self._listed_bytes)
        yield TableSize("missing_groups", len(self._missing), self._missing.bytes)

    def set_existing_groups(self, groups: Iterable[str]) -> None:
        """Notes that the broker has these groups and no others."""
        self._knows_existing_groups = True
        self._restore(groups)

    def _restore(self, groups: Iterable[str]) -> None:
        """Notes that exactly the listed groups have an unseen history.

        A list with more than `max_groups` groups is not kept.
        """
        listed = set(groups)
        self._forget_listed()
        if len(listed) > self._max_groups:
            return
        self._listed, self._listed_note_number = listed, self.note_count
        self._listed_bytes = sum(map(name_bytes, listed))
        self._absent |= dict.fromkeys(listed.difference(self._known))
        self.others_observed = True

    def _forget_listed(self) -> None:
        self._listed, self._listed_bytes = set(), 0

    def note(self, group_id: str, until: float, *, elsewhere: bool = False) -> None:
        """Notes that a group may have an unseen history, which may grow until the time `until`.

        `elsewhere` is whether another broker may coordinate the group.
        """
        self.note_count += 1
        noted = self._unseen.get(group_id)
        if noted is not None and noted.until < FOREVER:
            until = max(until, noted.until)
        self._put(group_id, _UnseenGroup(until, self.note_count, elsewhere))

    def _put(self, group_id: str, unseen_group: _UnseenGroup) -> None:
        self._elsewhere.pop(group_id, None)
        if unseen_group.elsewhere:
            self._elsewhere[group_id] = None
        if group_id not in self._known:
            self._absent[group_id] = None
        self._unseen.put(group_id, unseen_group)

    def await_listing(self, group_id: str) -> None:
        """Notes that only a listing shows whether the broker has a group."""
        if group_id in self._absent:
            self._unlisted[group_id] = None

    def doubt_others(self) -> None:
        """Notes that any group may have an unseen history, until the broker has listed its groups."""
        self.note_count += 1
        self._others_note_number, self.others_observed = self.note_count, False

    def _evicted(self, group_id: str, unseen_group: _UnseenGroup) -> None:
        self._drop(group_id)
        if unseen_group.until < FOREVER:  # FOREVER: the write has no reply yet. The reply notes the group again.
            self._others_until = max(self._others_until, unseen_group.until)
        self.doubt_others()

    # Groups enter and leave the cache.

    def appeared(self, group_id: str) -> None:
        """Notes that the copy keeps the state of a group from now on."""
        self._absent.pop(group_id, None)
        self._unlisted.pop(group_id, None)

    def vanished(self, group_id: str) -> None:
        """Notes that the copy does not keep the state of a group any more."""
        if group_id in self._unseen or group_id in self._listed:
            self._absent[group_id] = None

    # The history of a group.

    def settled_at(self, group_id: str) -> float:
        """Returns until when lost requests may still change a group; NEVER if no request was lost."""
        unseen_group = self._unseen.get(group_id)
        return self._others_until if unseen_group is None else unseen_group.until

    def end(self, group_id: str) -> None:
        """Ends the unseen history of a group. The broker has no such group any more, or the log shows the group."""
        self._unseen.pop(group_id)
        self._drop(group_id)
        if group_id in self._listed:
            self._listed.discard(group_id)
            self._listed_bytes -= name_bytes(group_id)

    def _drop(self, group_id: str) -> None:
        for groups in (self._absent, self._elsewhere, self._unlisted):
            groups.pop(group_id, None)

    def end_elsewhere(self, selects: Callable[[str], bool]) -> None:
        """Ends the histories that were noted as `elsewhere`, of the groups that `selects` chooses."""
        for group_id in [each for each in self._elsewhere if selects(each)]:
            self.end(group_id)

    def end_before(self, now: float, max_ended: int) -> bool:
        """Ends the histories of the last listing, and old histories whose lost requests cannot take effect any more.

        The log contains the whole effect of such requests. Ends at most `max_ended` of the old histories, and returns
        whether more of them may be due.
        """
        self._forget_listed()
        for _ in range(max_ended):
            oldest = self._unseen.first()
            if oldest is None or oldest[1].until >= now - FRESH_SECONDS:
                return False
            self.end(oldest[0])
        return True

    def apply_listing(self, listed_ids: Collection[str], sent_at: float, as_of: int) -> None:
        """Applies a complete listing of the broker's groups.

        A group that is not in the listing has no history, unless a lost request may still create the group.

        Args:
            listed_ids: all groups that the broker listed.
            sent_at: when the listing was requested.
            as_of: the value of `note_count` when the listing was requested.
        """
        self._apply_absences(listed_ids, sent_at, as_of)
        if (
            self._knows_existing_groups
            and not self.others_observed
            and self._others_note_number <= as_of
            and self._others_until <= sent_at
        ):
            self._restore(listed_ids)

    def _apply_absences(self, listed_ids: Collection[str], sent_at: float, as_of: int) -> None:
        for group_id in {**self._absent, **self._elsewhere}:
            if group_id in self._known:
                continue
            unseen_group = self._unseen.get(group_id) or _UnseenGroup(NEVER, self._listed_note_number)
            if group_id in listed_ids:
                self._absent[group_id] = None
            elif unseen_group.note_number <= as_of and unseen_group.until <= sent_at:
                if unseen_group.elsewhere:
                    # The group may return from the other broker with its history.
                    self._absent.pop(group_id, None)
                    self._unlisted.pop(group_id, None)
                else:
                    self.end(group_id)

    def note_missing(self, group_id: str, now: float) -> None:
        """Keeps the broker's reply that it has no such group."""
        for _ in range(2):  # Each call drops at most two outdated replies, so no request waits for a long loop.
            oldest = self._missing.first()
            if oldest is not None and not self.is_missing(oldest[0], now):
                self._missing.pop(oldest[0])
        self._missing.put(group_id, now)

    def is_missing(self, group_id: str, now: float) -> bool:
        """Whether the broker recently replied that it has no such group."""
        missing_since = self._missing.get(group_id)
        return missing_since is not None and now < missing_since + DESCRIPTION_VALID_SECONDS

    def noted(self) -> Iterator[str]:
        """Returns the groups that the broker may have and whose state the copy does not keep."""
        return iter(self._absent)

    def may_be_there(self, group_id: str) -> bool:
        """Whether the broker may have this group although the copy does not keep its state."""
        return group_id in self._absent

    @property
    def needs_listing(self) -> bool:
        """Whether the copy can become complete only by a listing of the broker's groups."""
        only_listed = bool(self._unlisted) or any(group_id in self._absent for group_id in self._elsewhere)
        return self._knows_existing_groups and (not self.others_observed or only_listed)

    def observed_whole(self, group_id: str) -> bool:
        """Whether a group was observed from its creation on."""
        return self.others_observed and group_id not in self._unseen and group_id not in self._listed

    @property
    def all_known(self) -> bool:
        """Whether the copy keeps the state of every group that may have an unseen history."""
        return self.others_observed and not self._absent
