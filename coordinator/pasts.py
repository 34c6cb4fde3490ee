"""Which groups may have a past that was not seen.

Owns: that list, its bounds, and how groups leave it. Must not know: the groups' state.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from group_sidecar.coordinator.bounded import BoundedTable, Table, name_bytes
from group_sidecar.coordinator.events import CONFIRMED_SECONDS, FOREVER, NEVER
from group_sidecar.coordinator.partitions import FRESH_SECONDS


class _Past(NamedTuple):
    """Until when more may come of it, the number of its noting, and whether it may be at another broker."""

    until: float
    noting: int
    elsewhere: bool = False


class UnseenPasts:
    """Groups with a past that was not seen, and until when more may come of it.

    Args:
        most: groups that are kept here. Beyond it the oldest go, and any group may have a past until the broker has
            listed what it has.
        known: the groups that are kept with their state.

    Attributes:
        others_seen: whether a group that is not noted here is known from its birth on.
        notings: how often a group was noted: a listing that was asked for before tells nothing of it.
    """

    def __init__(self, most: int, known: Collection[str] = ()) -> None:
        self.others_seen = False
        self.notings = 0
        self._known = known
        self._pasts: BoundedTable[_Past] = BoundedTable(most, self._evicted)
        self._missing: BoundedTable[float] = BoundedTable(most)
        self._absent: dict[str, None] = {}
        """Noted groups that the broker may have, and that are not known."""
        self._elsewhere: dict[str, None] = {}
        self._listed: set[str] = set()
        """The groups that the broker had when it last listed all."""
        self._listed_bytes, self._listed_noting = 0, 0
        self._most = most
        self._inherited = False
        self._others_noting, self._others_until = 0, NEVER

    @property
    def tables(self) -> Iterator[Table]:
        """How large each table here is."""
        noted = len(self._pasts) + len(self._listed)
        yield Table("unseen_groups", noted, self._pasts.bytes + self._listed_bytes)
        yield Table("missing_groups", len(self._missing), self._missing.bytes)

    def inherit(self, groups: Iterable[str]) -> None:
        """The broker has these groups, and no others."""
        self._inherited = True
        self._restore(groups)

    def _restore(self, groups: Iterable[str]) -> None:
        """Notes that listed groups have a past and all others have none, if the list is within the bound."""
        listed = set(groups)
        self._forget_listed()
        if len(listed) > self._most:
            return
        self._listed, self._listed_noting = listed, self.notings
        self._listed_bytes = sum(map(name_bytes, listed))
        self._absent |= dict.fromkeys(listed.difference(self._known))
        self.others_seen = True

    def _forget_listed(self) -> None:
        self._listed, self._listed_bytes = set(), 0

    def note(self, group_id: str, until: float, *, elsewhere: bool = False) -> None:
        """A group may have a past, and get more of it until then. `elsewhere`: at another broker."""
        self.notings += 1
        self._put(group_id, _Past(until, self.notings, elsewhere))

    def _put(self, group_id: str, past: _Past) -> None:
        self._elsewhere.pop(group_id, None)
        if past.elsewhere:
            self._elsewhere[group_id] = None
        if group_id not in self._known:
            self._absent[group_id] = None
        self._pasts.put(group_id, past)

    def doubt_others(self) -> None:
        """Notes that any group may have a past, until the broker has listed its groups."""
        self.notings += 1
        self._others_noting, self.others_seen = self.notings, False

    def _evicted(self, group_id: str, past: _Past) -> None:
        self._absent.pop(group_id, None)
        self._elsewhere.pop(group_id, None)
        if past.until < FOREVER:  # Else it is unanswered, and noted again with its answer.
            self._others_until = max(self._others_until, past.until)
        self.doubt_others()

    # Groups come and go.

    def appeared(self, group_id: str) -> None:
        """A group is kept with its state from now on."""
        self._absent.pop(group_id, None)

    def vanished(self, group_id: str) -> None:
        """A group is not kept any more."""
        if group_id in self._pasts or group_id in self._listed:
            self._absent[group_id] = None

    # What is known of a past.

    def settled_at(self, group_id: str) -> float:
        """Until when what was lost may still reach the broker; NEVER where nothing was."""
        past = self._pasts.get(group_id)
        return self._others_until if past is None else past.until

    def end(self, group_id: str) -> None:
        """Ends a group's past: the group was deleted, or the broker has no such group."""
        self._pasts.pop(group_id)
        self._absent.pop(group_id, None)
        self._elsewhere.pop(group_id, None)
        if group_id in self._listed:
            self._listed.discard(group_id)
            self._listed_bytes -= name_bytes(group_id)

    def end_elsewhere(self, at: Callable[[str], bool]) -> None:
        """Ends the pasts at another broker of the groups for which `at` is true."""
        for group_id in [each for each in self._elsewhere if at(each)]:
            self.end(group_id)

    def end_before(self, now: float, most: int) -> bool:
        """Ends the oldest pasts that no lost request can change any more: the log has all that they led to.

        Returns whether there may be more of them than the `most` that are ended at a time.
        """
        self._forget_listed()
        for _ in range(most):
            oldest = self._pasts.first()
            if oldest is None or oldest[1].until >= now - FRESH_SECONDS:
                return False
            self.end(oldest[0])
        return True

    def listed(self, there: Collection[str], sent_at: float, as_of: int) -> None:
        """The broker, asked at `sent_at`, listed these groups and no others. `as_of`: `notings` at that time.

        What it did not list has no past, unless something lost may yet make it.
        """
        self._missed_in(there, sent_at, as_of)
        if self._inherited and not self.others_seen and self._others_noting <= as_of and self._others_until <= sent_at:
            self._restore(there)

    def _missed_in(self, there: Collection[str], sent_at: float, as_of: int) -> None:
        for group_id in {**self._absent, **self._elsewhere}:
            if group_id in self._known:
                continue
            past = self._pasts.get(group_id) or _Past(NEVER, self._listed_noting)
            if group_id in there:
                self._absent[group_id] = None
            elif past.noting <= as_of and past.until <= sent_at:
                if past.elsewhere:
                    self._absent.pop(group_id, None)  # It may come back with its past.
                else:
                    self.end(group_id)

    def missed(self, group_id: str, now: float) -> None:
        """The broker said that it has no such group."""
        for _ in range(2):  # As many go as come, and the next call drops more: one question has to wait for no others.
            oldest = self._missing.first()
            if oldest is not None and not self.is_missing(oldest[0], now):
                self._missing.pop(oldest[0])
        self._missing.put(group_id, now)

    def is_missing(self, group_id: str, now: float) -> bool:
        """Whether the broker has said so lately."""
        said_at = self._missing.get(group_id)
        return said_at is not None and now < said_at + CONFIRMED_SECONDS

    def noted(self) -> Iterator[str]:
        """The groups that may be there, and are not known."""
        return iter(self._absent)

    def may_be_there(self, group_id: str) -> bool:
        """Whether this is one of them."""
        return group_id in self._absent

    @property
    def wants_list(self) -> bool:
        """Whether only a list of what the broker has can end a doubt."""
        elsewhere_only = bool(self._absent) and any(group_id in self._absent for group_id in self._elsewhere)
        return self._inherited and (not self.others_seen or elsewhere_only)

    def seen_whole(self, group_id: str) -> bool:
        """Whether all of a group was seen from its birth on."""
        return self.others_seen and group_id not in self._pasts and group_id not in self._listed

    @property
    def all_known(self) -> bool:
        """Whether all groups with an unseen past that the broker may have are among the known ones."""
        return self.others_seen and not self._absent
