"""Members of KIP-848 groups that have joined or left, and whose records were not read yet.

Such a member joins without a rebalance. It is a member from the broker's reply on, and the log shows it a little later.
"""

from collections.abc import Collection, Iterator

UNLOGGED_SECONDS = 5.0
"""Seconds until the record of a member that has joined or left is in the log, and read."""


class UnloggedMembers:
    """The members that have joined, or may have, and those that have left, while the log does not show it."""

    def __init__(self) -> None:
        self._joining: dict[str, float] = {}
        self._leaving: dict[str, float] = {}
        self._hosts: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._joining)

    def add_joining(self, member_key: str, now: float, client_host: str = "") -> None:
        """A new member asks to join, or has joined. `member_key`: its member id, or the token of its request without
        one.
        """
        self._joining[member_key] = now
        self._hosts[member_key] = client_host
        self._leaving.pop(member_key, None)

    def host_of(self, member_id: str) -> str:
        """Returns the host of a member that joins; empty where it is not known."""
        return self._hosts.get(member_id, "")

    def add_leaving(self, member_id: str, now: float) -> None:
        """A member has left."""
        self.forget(member_id)
        self._leaving[member_id] = now

    def forget(self, member_key: str) -> None:
        """The broker has no such member."""
        self._joining.pop(member_key, None)
        self._hosts.pop(member_key, None)

    def reconcile_with_log(self, members: Collection[str]) -> None:
        """The log has these members and no others."""
        for member_id in self._joining.keys() & set(members):
            self.forget(member_id)
        for member_id in self._leaving.keys() - set(members):
            del self._leaving[member_id]

    def expire(self, now: float) -> None:
        """Drops unconfirmed members that the log would already have confirmed."""
        late = [member_key for member_key, at in self._joining.items() if now >= at + UNLOGGED_SECONDS]
        for member_key in late:
            self.forget(member_key)
        for member_key in [member_key for member_key, at in self._leaving.items() if now >= at + UNLOGGED_SECONDS]:
            del self._leaving[member_key]

    def joining_ids(self, now: float) -> Iterator[str]:
        """Returns the members that have joined, or may have, and are not in the log yet."""
        return (member_key for member_key, at in self._joining.items() if at + UNLOGGED_SECONDS > now)

    def leaving_ids(self, now: float) -> Iterator[str]:
        """Returns the members that have left, and are in the log yet."""
        return (member_key for member_key, at in self._leaving.items() if at + UNLOGGED_SECONDS > now)
