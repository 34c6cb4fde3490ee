"""Members of KIP-848 groups that have joined or left, and whose records were not read yet.

The broker accepts a new member at once, without waiting for other members. The log shows the member later.
"""

from collections.abc import Collection, Iterator
from itertools import chain
from typing import NamedTuple

from group_sidecar.coordinator.model.events import NEVER

UNLOGGED_SECONDS = 5.0
"""Seconds within which the record of a member that has joined or left is written and read."""
IN_FLIGHT_SECONDS = 60.0
"""Seconds after which a join without a reply no longer counts: twice the default `request.timeout.ms`."""


class _Join(NamedTuple):
    """A member key, when its join was sent or accepted, and the client: the host, and the user as Kafka writes it."""

    member_key: str
    at: float
    client_host: str
    principal: str


class UnloggedMembers:
    """The members that have joined, may have joined, or have left, while the log does not show the change.

    A member key is the member id of a join, or the request's token if the request has no member id. One member may have
    several joins in flight, and the broker may accept one and reject another. So each join in flight ends on its own.
    A member that the broker has accepted counts until the log shows the member, the member leaves, or UNLOGGED_SECONDS
    have passed.
    """

    def __init__(self) -> None:
        self._in_flight: dict[str, dict[str, _Join]] = {}  # By member key, and then by the request's token.
        self._member_keys: dict[str, str] = {}  # By the token of a join in flight.
        self._joined: dict[str, _Join] = {}
        self._leaving: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._in_flight or self._joined)

    # Joins.

    def add_join(self, token: str, member_key: str, now: float, client_host: str, principal: str) -> None:
        """Adds a join that is sent to the broker."""
        self._in_flight.setdefault(member_key, {})[token] = _Join(member_key, now, client_host, principal)
        self._member_keys[token] = member_key

    def end_join(self, token: str) -> _Join | None:
        """Removes a join that has its reply, and returns it; None if it is not in flight."""
        if (member_key := self._member_keys.pop(token, None)) is None:
            return None
        joins = self._in_flight[member_key]
        join = joins.pop(token)
        if not joins:
            del self._in_flight[member_key]
        return join

    def lose_join(self, token: str, now: float) -> None:
        """Counts a join whose reply was lost as a member that has joined."""
        if (join := self.end_join(token)) is not None:
            self._joined[join.member_key] = join._replace(at=now)

    # Members.

    def add_joined(self, member_id: str, now: float, client_host: str = "", principal: str = "") -> None:
        """Adds a member that the broker has accepted."""
        self._joined[member_id] = _Join(member_id, now, client_host, principal)
        self._leaving.pop(member_id, None)

    def joined_at(self, member_id: str) -> float:
        """Returns when a member was accepted that the log does not show yet; NEVER if there is no such member."""
        return self._joined[member_id].at if member_id in self._joined else NEVER

    def client_of(self, member_id: str) -> tuple[str, str]:
        """Returns the host and the principal of a joining member; empty if unknown."""
        joins = [*self._in_flight.get(member_id, {}).values()]
        join = self._joined.get(member_id) or (joins[-1] if joins else None)
        return (join.client_host, join.principal) if join is not None else ("", "")

    def add_leaving(self, member_id: str, now: float) -> None:
        """Adds a member that has left."""
        self.forget(member_id)
        self._leaving[member_id] = now

    def forget(self, member_id: str) -> None:
        """Forgets a member that had joined. Its joins in flight stay."""
        self._joined.pop(member_id, None)

    def reconcile_with_log(self, members: Collection[str]) -> None:
        """Forgets the changes that the log shows. `members` are all members of the group in the log."""
        for member_id in self._joined.keys() & set(members):
            self.forget(member_id)
        for member_id in self._leaving.keys() - set(members):
            del self._leaving[member_id]

    def expire(self, now: float) -> None:
        """Drops changes that the log would already show if the broker had made them, and joins of clients that are
        gone.
        """
        for member_id in [each for each, join in self._joined.items() if now >= join.at + UNLOGGED_SECONDS]:
            self.forget(member_id)
        for member_id in [each for each, at in self._leaving.items() if now >= at + UNLOGGED_SECONDS]:
            del self._leaving[member_id]
        joins = chain.from_iterable(each.items() for each in self._in_flight.values())
        for token in [token for token, join in joins if now >= join.at + IN_FLIGHT_SECONDS]:
            self.end_join(token)

    def joining_ids(self, now: float) -> Iterator[str]:
        """Returns the members that have joined, or may have joined, and are not in the log yet."""
        joined = (member_id for member_id, join in self._joined.items() if join.at + UNLOGGED_SECONDS > now)
        return chain(self._in_flight, joined)

    def leaving_ids(self, now: float) -> Iterator[str]:
        """Returns the members that have left and are still in the log."""
        return (member_id for member_id, at in self._leaving.items() if at + UNLOGGED_SECONDS > now)
