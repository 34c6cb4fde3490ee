"""Which groups may have a past that was not seen.

Owns: that list, its bound, and how groups leave it. Must not know: the groups' state.
"""

from collections.abc import Container, Iterable, Iterator, Set

from group_sidecar.coordinator.events import CONFIRMED_SECONDS, NEVER


class UnseenPasts:
    """Groups with a past that was not seen, and until when more may come of it.

    Attributes:
        others_seen: whether a group that is not noted here is known from its birth on.
        notings: how often a group was noted: a listing that was asked for before tells nothing of it.
    """

    def __init__(self, most: int) -> None:
        self.others_seen = False
        self.notings = 0
        self._until: dict[str, float] = {}
        self._elsewhere: set[str] = set()
        self._missing: dict[str, float] = {}
        self._most = most

    def inherit(self, groups: Iterable[str]) -> None:
        """The broker has these groups, and no others."""
        self._until = dict.fromkeys(groups, NEVER) | self._until
        self.others_seen = True

    def note(self, group_id: str, until: float, *, elsewhere: bool = False) -> None:
        """A group may have a past, and get more of it until then. `elsewhere`: at another broker."""
        self.notings += 1
        if len(self._until) >= self._most:
            self.others_seen = False
            return
        self._until[group_id] = until
        if elsewhere:
            self._elsewhere.add(group_id)

    def settled_at(self, group_id: str) -> float:
        """Until when what was lost may still reach the broker; NEVER where nothing was."""
        return self._until.get(group_id, NEVER)

    def end(self, group_id: str) -> None:
        """The group's past is over: it was deleted."""
        self._until.pop(group_id, None)
        self._elsewhere.discard(group_id)

    def keep(self, there: Container[str], sent_at: float) -> None:
        """What a broker, asked then, did not list has no past, unless something lost may yet make it."""
        self._until = {
            group: until
            for group, until in self._until.items()
            if group in there or group in self._elsewhere or until > sent_at
        }

    def missed(self, group_id: str, now: float) -> None:
        """The broker said that it has no such group."""
        self._missing.pop(group_id, None)
        while self._missing and not self.is_missing(oldest := next(iter(self._missing)), now):
            del self._missing[oldest]
        self._missing[group_id] = now

    def is_missing(self, group_id: str, now: float) -> bool:
        """Whether the broker has said so lately."""
        return now < self._missing.get(group_id, NEVER) + CONFIRMED_SECONDS

    def noted(self) -> Iterator[str]:
        """The groups that may have a past, but for those that may have it at another broker."""
        return (group_id for group_id in self._until if group_id not in self._elsewhere)

    def seen_whole(self, group_id: str) -> bool:
        """Whether all of a group was seen from its birth on."""
        return self.others_seen and group_id not in self._until

    def within(self, known: Set[str]) -> bool:
        """Whether all groups with an unseen past are among the known ones."""
        return self.others_seen and self._until.keys() <= known
