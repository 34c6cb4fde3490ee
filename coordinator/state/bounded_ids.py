"""Bounded sets of ids of one group, which clients can create without becoming members.

One client may ask for 10,000 member ids a second. The broker keeps each for a session timeout, which may be half an
hour.
"""

from collections.abc import Container, Iterator

from group_sidecar.coordinator.model.events import NEVER

MAX_IDS = 1_000
"""Ids of each kind that are kept of one group. Each join that a policy checks looks at all of them."""
MAX_LEFT_MEMBER_IDS = 10_000
"""Member ids that have left one generation of a group and are kept. Each restart of a static member adds one, and so
does each issued id that leaves before it is used. A client can do both without end."""
MAX_ID_LENGTH = 512
"""Characters of an id that is kept. The broker makes member ids of a client id, which may have 32,767."""


class IssuedIds:
    """Member ids that the broker has issued, and until when they may be used (KIP-394). The oldest are evicted."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._forgotten_until = NEVER

    def __bool__(self) -> bool:
        return bool(self._until)

    def __iter__(self) -> Iterator[str]:
        return iter(self._until)

    def issue(self, member_id: str, until: float) -> None:
        """An id was issued."""
        self._until.pop(member_id, None)
        self._until[member_id] = until
        if len(member_id) > MAX_ID_LENGTH:
            self._forget(member_id)
        elif len(self._until) > MAX_IDS:
            self._forget(next(iter(self._until)))

    def _forget(self, member_id: str) -> None:
        self._forgotten_until = max(self._forgotten_until, self._until.pop(member_id))

    def discard(self, member_id: str) -> None:
        """An id is used, or may not be used any more."""
        self._until.pop(member_id, None)

    def expire(self, now: float, joining: Container[str]) -> None:
        """Drops the ids whose time is over. The id of a join that is in flight stays: the broker ends the timer of an
        id when a join uses it.
        """
        for member_id in [each for each, until in self._until.items() if until < now and each not in joining]:
            del self._until[member_id]

    def may_be_used(self, now: float) -> bool:
        """Whether any id may still be used."""
        return self.forgot_any(now) or any(now <= until for until in self._until.values())

    def forgot_any(self, now: float) -> bool:
        """Whether an id that is not kept may still be used."""
        return now <= self._forgotten_until


class ContestedIds:
    """Instance ids of members that the copy may not have seen. With too many of them every id counts as contested."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._any = False

    def __contains__(self, instance_id: str | None) -> bool:
        return bool(instance_id) and (self._any or instance_id in self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, instance_id: str) -> None:
        """An id is contested."""
        if len(instance_id) > MAX_ID_LENGTH or len(self._ids) >= MAX_IDS:
            self._any = True
        else:
            self._ids.add(instance_id)
