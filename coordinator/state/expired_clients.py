"""The clients of one group whose members' sessions have expired, and that may come back as new members."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from group_sidecar.coordinator.model.events import NEVER
from group_sidecar.coordinator.model.facts import MemberInfo
from group_sidecar.coordinator.state.member import Member

MAX_EXPIRED_CLIENTS = 100
"""Maximum number of expired clients that are kept for a group."""
RETURN_SECONDS = 600.0
"""A client that comes back later than this many seconds after the end of its session counts as a new member."""


@dataclass(frozen=True, slots=True)
class _ExpiredClient:
    """An expired client: its former member, the end of the session, and whether the client is a new member by now."""

    member: MemberInfo
    ended_at: float
    is_back: bool = False


class ExpiredClients:
    """The expired clients of one group, by client id and true host.

    The clients are kept until a rebalance is completed that has another cause than the return of such a client.
    """

    __slots__ = ("_clients",)

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str], _ExpiredClient] | None = None

    def __len__(self) -> int:
        return len(self._clients or ())

    def note(self, members: Iterable[Member]) -> None:
        """Keeps the clients of members, as far as their true hosts are known.

        A session that has not ended yet counts from its end on.
        """
        for member in members:
            if member.true_host and len(self) < MAX_EXPIRED_CLIENTS:
                kept = self._clients = self._clients or {}
                client = _ExpiredClient(member.info, member.timeout_at(NEVER))
                kept.setdefault((client.member.client_id, member.true_host), client)

    def note_joined(self, member: Member) -> None:
        """Notes that a client is a member. Under its former member id, its session had not expired after all."""
        key = (member.info.client_id, member.true_host)
        if not self._clients or (client := self._clients.get(key)) is None:
            return
        if client.member.member_id == member.member_id:
            del self._clients[key]
        else:
            self._clients[key] = replace(client, is_back=True)

    def find(self, client_id: str, client_host: str, at: float) -> MemberInfo | None:
        """Returns the former member of a client that joins at the time `at`; None if no session has expired."""
        client = self._clients.get((client_id, client_host)) if self._clients else None
        return client.member if client and client.ended_at < at <= client.ended_at + RETURN_SECONDS else None

    def rebalanced(self, *, by_return: bool) -> None:
        """Forgets the clients that are explained by a completed rebalance.

        `by_return`: whether an expired client caused the rebalance by its return. If so, the others may still return.
        """
        kept = {key: client for key, client in (self._clients or {}).items() if by_return and not client.is_back}
        self._clients = kept or None
