"""Which groups may have a past that was not seen.

Owns: that list, its bound, and how groups leave it. Must not know: the groups' state.
"""

from collections.abc import Container, Iterable, Set

from group_sidecar.coordinator.events import LOST_SECONDS, NEVER


class UnseenPasts:
    """Groups with a past that was not seen, and since when that may be. Of others, if `others_seen`, all was seen.

    Attributes:
        others_seen: whether a group that is not noted here is known from its birth on.
        notings: how often a group was noted: a listing that was asked for before tells nothing of it.
    """

    def __init__(self, most: int) -> None:
        self.others_seen = False
        self.notings = 0
        self._since: dict[str, float] = {}
        self._elsewhere: set[str] = set()
        self._most = most

    def inherit(self, groups: Iterable[str]) -> None:
        """The broker has these groups, and no others."""
        self._since.update(dict.fromkeys(groups, NEVER))
        self.others_seen = True

    def note(self, group_id: str, since: float, *, elsewhere: bool = False) -> None:
        """A group may have a past; `elsewhere`: at another broker, whence it may come back."""
        self.notings += 1
        if len(self._since) >= self._most:
            self.others_seen = False
            return
        self._since[group_id] = since
        if elsewhere:
            self._elsewhere.add(group_id)

    def since(self, group_id: str) -> float:
        """Since when; NEVER where there is none, or it was always there."""
        return self._since.get(group_id, NEVER)

    def settled_at(self, group_id: str) -> float:
        """Until when what was lost may still reach the broker."""
        return self.since(group_id) + LOST_SECONDS

    def end(self, group_id: str) -> None:
        """The group's past is over: it was deleted."""
        self._since.pop(group_id, None)
        self._elsewhere.discard(group_id)

    def keep(self, there: Container[str], sent_at: float) -> None:
        """What a broker, asked then, did not list has no past, unless something lost may yet make it."""
        self._since = {
            group: since
            for group, since in self._since.items()
            if group in there or group in self._elsewhere or since + LOST_SECONDS > sent_at
        }

    def seen_whole(self, group_id: str) -> bool:
        """Whether all of a group was seen from its birth on."""
        return self.others_seen and group_id not in self._since

    def within(self, known: Set[str]) -> bool:
        """Whether all groups with an unseen past are among the known ones."""
        return self.others_seen and self._since.keys() <= known
