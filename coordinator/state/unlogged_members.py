"""Members of KIP-848 groups that have joined or left, and whose records were not read yet.

The broker accepts a new member at once, without waiting for other members. The log shows the member later.
"""

from collections.abc import Collection, Iterator

UNLOGGED_SECONDS = 5.0
"""Seconds within which the record of a member that has joined or left is written and read."""


class UnloggedMembers:
    """The members that have joined, may have joined, or have left, while the log does not show the change."""

    def __init__(self) -> None:
        self._joining: dict[str, float] = {}
        self._leaving: dict[str, float] = {}
        self._clients: dict[str, tuple[str, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._joining)

    def add_joining(self, member_key: str, now: float, client_host: str = "", principal: str = "") -> None:
        """Adds a new member that asks to join or has joined, with its host and its principal.

        `member_key`: the member id; the request's token if the request has no member id.
        """
        self._joining[member_key] = now
        self._clients[member_key] = client_host, principal
        self._leaving.pop(member_key, None)

    def client_of(self, member_id: str) -> tuple[str, str]:
        """Returns the host and the principal of a joining member; empty if unknown."""
        return self._clients.get(member_id, ("", ""))

    def add_leaving(self, member_id: str, now: float) -> None:
        """Adds a member that has left."""
        self.forget(member_id)
        self._leaving[member_id] = now

    def forget(self, member_key: str) -> None:
        """Forgets a joining member, and the member's host and principal."""
        self._joining.pop(member_key, None)
        self._clients.pop(member_key, None)

    def reconcile_with_log(self, members: Collection[str]) -> None:
        """Forgets the changes that the log shows. `members` are all members of the group in the log."""
        for member_id in self._joining.keys() & set(members):
            self.forget(member_id)
        for member_id in self._leaving.keys() - set(members):
            del self._leaving[member_id]

    def expire(self, now: float) -> None:
        """Drops changes that the log would already show if the broker had made them."""
        late = [member_key for member_key, at in self._joining.items() if now >= at + UNLOGGED_SECONDS]
        for member_key in late:
            self.forget(member_key)
        for member_key in [member_key for member_key, at in self._leaving.items() if now >= at + UNLOGGED_SECONDS]:
            del self._leaving[member_key]

    def joining_ids(self, now: float) -> Iterator[str]:
        """Returns the members that have joined, or may have joined, and are not in the log yet."""
        return (member_key for member_key, at in self._joining.items() if at + UNLOGGED_SECONDS > now)

    def leaving_ids(self, now: float) -> Iterator[str]:
        """Returns the members that have left and are still in the log."""
        return (member_key for member_key, at in self._leaving.items() if at + UNLOGGED_SECONDS > now)
