"""Bounded sets of ids in one group. Clients can create such ids without becoming members.

One client may ask for 10,000 member ids a second. The broker keeps each for a session timeout, which may be half an
hour.
"""

from collections.abc import Container, Iterator

from group_sidecar.coordinator.model.events import NEVER

MAX_IDS = 1_000
"""Maximum number of ids of each kind that are kept for one group. Each check of a join by a policy looks at all these
ids."""
MAX_LEFT_MEMBER_IDS = 10_000
"""Maximum number of kept ids of members that left during one generation of a group. Each restart of a static member
adds an id, and so does a LeaveGroup with an issued id that is not used yet. A client can repeat both without end."""
MAX_ID_LENGTH = 512
"""Maximum characters of a kept id. The broker builds a member id from the client id, which may have 32,767 bytes."""


class IssuedIds:
    """Member ids that the broker has issued, and until when each may be used (KIP-394).

    An id of more than MAX_ID_LENGTH characters is not kept. If there are too many ids, the oldest one is evicted.
    """

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._forgotten_until = NEVER

    def __bool__(self) -> bool:
        return bool(self._until)

    def __iter__(self) -> Iterator[str]:
        return iter(self._until)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._until

    def issue(self, member_id: str, until: float) -> None:
        """Adds an issued id, which may be used until the time `until`."""
        self._until.pop(member_id, None)
        self._until[member_id] = until
        if len(member_id) > MAX_ID_LENGTH:
            self._forget(member_id)
        elif len(self._until) > MAX_IDS:
            self._forget(next(iter(self._until)))

    def _forget(self, member_id: str) -> None:
        self._forgotten_until = max(self._forgotten_until, self._until.pop(member_id))

    def discard(self, member_id: str) -> None:
        """Removes an id that was used or that may not be used any more."""
        self._until.pop(member_id, None)

    def expire(self, now: float, joining: Container[str]) -> None:
        """Drops expired ids, except the ids of joins in flight.

        The broker ends the timer of an id when a join uses the id.
        """
        for member_id in [each for each, until in self._until.items() if until < now and each not in joining]:
            del self._until[member_id]

    def may_be_used(self, now: float) -> bool:
        """Whether any id may still be used."""
        return self.forgot_any(now) or any(now <= until for until in self._until.values())

    def forgot_any(self, now: float) -> bool:
        """Whether an evicted id may still be used."""
        return now <= self._forgotten_until


class ContestedIds:
    """Instance ids that members unknown to the copy may have used. Beyond the bound, every id counts as contested."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._any = False

    def __contains__(self, instance_id: str | None) -> bool:
        return bool(instance_id) and (self._any or instance_id in self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, instance_id: str) -> None:
        """Makes an instance id contested."""
        if len(instance_id) > MAX_ID_LENGTH or len(self._ids) >= MAX_IDS:
            self._any = True
        else:
            self._ids.add(instance_id)
