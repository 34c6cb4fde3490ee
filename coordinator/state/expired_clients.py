"""The clients of one group whose members' sessions have expired, and that may come back as new members."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from group_sidecar.coordinator.model.events import NEVER
from group_sidecar.coordinator.model.facts import MemberInfo
from group_sidecar.coordinator.state.bounded_ids import MAX_ID_LENGTH
from group_sidecar.coordinator.state.bounded_table import name_bytes
from group_sidecar.coordinator.state.member import Member

MAX_EXPIRED_CLIENTS = 100
"""Maximum number of expired clients that are kept for a group."""
RETURN_SECONDS = 600.0
"""A client that comes back later than this many seconds after the end of its session counts as a new member."""


@dataclass(frozen=True, slots=True)
class ExpiredClient:
    """An expired client: its former member, the end of the session, and whether the client is a new member by now."""

    member: MemberInfo
    ended_at: float
    is_back: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """The client id and the true host."""
        return self.member.client_id, self.member.client_host

    @property
    def bytes(self) -> int:
        """The estimated memory, in bytes."""
        return sum(map(name_bytes, self._texts))

    @property
    def is_short(self) -> bool:
        """Whether each text is short enough to be kept."""
        return all(len(text) <= MAX_ID_LENGTH for text in self._texts)

    @property
    def _texts(self) -> tuple[str, ...]:
        member = self.member
        return (member.member_id, member.client_id, member.client_host, member.instance_id or "", member.principal)


_NO_CLIENTS: Mapping[tuple[str, str], ExpiredClient] = MappingProxyType({})


class ExpiredClients:
    """The expired clients of one group, by client id and true host.

    The clients are kept until a rebalance is completed that has another cause than the return of such a client, and at
    most RETURN_SECONDS after the end of their sessions. A client with a text of more than MAX_ID_LENGTH characters is
    not kept.
    """

    __slots__ = ("_clients",)

    def __init__(self) -> None:
        self._clients = _NO_CLIENTS  # One object for all groups without expired clients, which are most groups.

    def __len__(self) -> int:
        return len(self._clients)

    def note(self, members: Iterable[Member]) -> None:
        """Keeps the clients of members, as far as their true hosts are known.

        A session that has not ended yet counts from its end on.
        """
        for member in members:
            if member.true_host:
                self._put(ExpiredClient(member.info, member.timeout_at(NEVER)))

    def adopt(self, clients: Iterable[ExpiredClient]) -> None:
        """Keeps the expired clients of the dropped state of the same group."""
        for client in clients:
            self._put(client)

    def _put(self, client: ExpiredClient) -> None:
        """Keeps a client. Replaces an entry that is older, or whose client has come back since."""
        kept = self._clients.get(client.key)
        if kept is None:
            wanted = len(self) < MAX_EXPIRED_CLIENTS
        else:
            wanted = kept.is_back or kept.ended_at < client.ended_at
        if wanted and client.is_short:
            self._set(client)

    def _set(self, client: ExpiredClient) -> None:
        self._clients = {**self._clients, client.key: client}

    def with_members(self, members: Iterable[Member]) -> tuple[ExpiredClient, ...]:
        """Returns these clients and the clients of members, whose sessions may end unseen."""
        copy = ExpiredClients()
        copy.adopt(self._clients.values())
        copy.note(members)
        return tuple(copy._clients.values())

    def note_listed(self, members: Mapping[str, Member], began_at: float, now: float) -> None:
        """Notes that the log or a description contains these members, by member id.

        The broker began their sessions at the time `began_at`. A session that has not ended yet ends accordingly later.
        A session that has ended stays ended: the broker may have these members from the log, without their clients.
        """
        for client in self._clients.values():
            if client.ended_at > now and (member := members.get(client.member.member_id)) is not None:
                self._set(replace(client, ended_at=max(client.ended_at, member.timeout_at(began_at))))

    def forget(self, member_id: str) -> None:
        """Forgets the client of a former member: its session had not expired, or it left otherwise."""
        kept = [client for client in self._clients.values() if client.member.member_id != member_id]
        if len(kept) < len(self._clients):
            self._keep(kept)

    def expire(self, now: float) -> None:
        """Forgets the clients that count as new members when they come back."""
        self._keep(client for client in self._clients.values() if now <= client.ended_at + RETURN_SECONDS)

    def _keep(self, clients: Iterable[ExpiredClient]) -> None:
        self._clients = {client.key: client for client in clients} or _NO_CLIENTS

    def note_joined(self, member: Member) -> None:
        """Notes that a client is a member. Under its former member id, its session had not expired after all."""
        if not self._clients:
            return
        self.forget(member.member_id)
        if (client := self._clients.get((member.info.client_id, member.true_host))) is not None:
            self._set(replace(client, is_back=True))

    def find(self, client_id: str, client_host: str, at: float) -> MemberInfo | None:
        """Returns the former member of a client that joins at the time `at`.

        The result is None unless the client's session ended before, and at most RETURN_SECONDS before.
        """
        client = self._clients.get((client_id, client_host))
        return client.member if client and client.ended_at < at <= client.ended_at + RETURN_SECONDS else None

    def rebalanced(self, *, by_return: bool) -> None:
        """Forgets the clients that are explained by a completed rebalance.

        `by_return`: whether an expired client caused the rebalance by its return. If so, the others may still return.
        """
        self._keep(client for client in self._clients.values() if by_return and not client.is_back)
