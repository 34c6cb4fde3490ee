"""The clients of one group whose members' sessions have expired, and that may come back as new members."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from group_sidecar.coordinator.model.events import FOREVER, NEVER
from group_sidecar.coordinator.model.facts import MemberInfo
from group_sidecar.coordinator.state.bounded_ids import MAX_ID_LENGTH
from group_sidecar.coordinator.state.bounded_table import TABLE_BYTES, TableSize
from group_sidecar.coordinator.state.member import Member

MAX_EXPIRED_CLIENTS = 100
"""Maximum number of expired clients that are kept for a group."""
RETURN_SECONDS = 600.0
"""A client that comes back later than this many seconds after the end of its session counts as a new member."""
CLIENT_BYTES = 700
"""Estimated bytes of an expired client without the characters of its texts: three objects, the key, the entry in the
dictionary of its group, and the headers of five texts."""


@dataclass(frozen=True, slots=True)
class ExpiredClient:
    """An expired client.

    Attributes:
        member: the former member.
        ended_at: when the member's session ended, or will end.
        is_back: whether the client is a new member by now.
        is_assumed: whether the copy did not see the session end, because it had forgotten the group's state. The member
            may have left instead.
    """

    member: MemberInfo
    ended_at: float
    is_back: bool = False
    is_assumed: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """The client id and the true host."""
        return self.member.client_id, self.member.client_host

    @property
    def bytes(self) -> int:
        """The estimated memory, in bytes."""
        size = CLIENT_BYTES
        for text in self._texts:
            size += len(text) if text.isascii() else 4 * len(text)
        return size

    @property
    def is_short(self) -> bool:
        """Whether each text is short enough to be kept."""
        return all(len(text) <= MAX_ID_LENGTH for text in self._texts)

    @property
    def _texts(self) -> tuple[str, ...]:
        member = self.member
        return (member.member_id, member.client_id, member.client_host, member.instance_id or "", member.principal)


class ExpiredClientsBudget:
    """Counts the expired clients of all groups, and bounds their bytes.

    Args:
        max_bytes: how many bytes all clients may take, as `ExpiredClient.bytes` counts them.
    """

    def __init__(self, max_bytes: int = TABLE_BYTES) -> None:
        self._clients, self._bytes, self._max_bytes = 0, 0, max_bytes

    @property
    def table(self) -> TableSize:
        """The number of clients, and their bytes."""
        return TableSize("expired_clients", self._clients, self._bytes)

    def take(self, size: int) -> bool:
        """Counts one more client. Returns False, and does not count the client, if there is no room for its bytes."""
        if self._bytes + size > self._max_bytes:
            return False
        self._clients, self._bytes = self._clients + 1, self._bytes + size
        return True

    def release(self, size: int) -> None:
        """Subtracts a client that is not kept any more."""
        self._clients, self._bytes = self._clients - 1, self._bytes - size


_NO_CLIENTS: dict[tuple[str, str], ExpiredClient] = {}
"""One object for all groups without expired clients, which are most groups. It stays empty."""


class ExpiredClients:
    """The expired clients of one group, by client id and true host.

    The clients are kept until a rebalance is completed that has another cause than the return of such a client, and at
    most RETURN_SECONDS after the end of their sessions. A client with a text of more than MAX_ID_LENGTH characters is
    not kept. Neither is a client for which the budget has no room, or whose session has no known end.

    Args:
        budget: counts the expired clients of all groups.
    """

    __slots__ = ("_budget", "_clients", "_first_end")

    def __init__(self, budget: ExpiredClientsBudget) -> None:
        self._budget = budget
        self._clients = _NO_CLIENTS
        self._first_end = FOREVER  # No session ended earlier.

    def __len__(self) -> int:
        return len(self._clients)

    def note(self, members: Iterable[Member]) -> None:
        """Keeps the clients of members, as far as their true hosts are known.

        A session that has not ended yet counts from its end on.
        """
        self.adopt(_clients_of(members))

    def note_expired(self, member: Member, now: float) -> None:
        """Keeps the client of a member whose session has ended. The session did not end later than now."""
        self.note([member])
        for client in list(self._clients.values()):
            if client.member.member_id == member.member_id:
                self._set(replace(client, ended_at=min(client.ended_at, now), is_assumed=False))

    def adopt(self, clients: Iterable[ExpiredClient]) -> None:
        """Keeps expired clients, for instance those of the dropped state of the same group."""
        for client in clients:
            if _is_wanted(self._clients, client):
                self._set(client)

    def _set(self, client: ExpiredClient) -> None:
        self._remove(client.key)
        if self._budget.take(client.bytes):
            if not self._clients:
                self._clients = {}
            self._clients[client.key] = client
            self._first_end = min(self._first_end, client.ended_at)

    def _remove(self, key: tuple[str, str]) -> None:
        if key in self._clients:
            self._budget.release(self._clients.pop(key).bytes)
            if not self._clients:
                self._clients, self._first_end = _NO_CLIENTS, FOREVER

    def with_members(self, members: Iterable[Member]) -> tuple[ExpiredClient, ...]:
        """Returns these clients and the clients of members, whose sessions may end unseen (`is_assumed`)."""
        clients = dict(self._clients)
        for client in _clients_of(members):
            if _is_wanted(clients, client):
                clients[client.key] = replace(client, is_assumed=True)
        return tuple(clients.values())

    @property
    def assumed_ids(self) -> list[str]:
        """The former member ids of the clients whose sessions the copy did not see end."""
        return [client.member.member_id for client in self._clients.values() if client.is_assumed]

    def note_listed(self, members: Mapping[str, Member], began_at: float, now: float) -> None:
        """Notes that the log or a description contains these members, by member id.

        The broker began their sessions at the time `began_at`. A session that has not ended yet ends accordingly later.
        A session that has ended stays ended: the broker may have these members from the log, without their clients.
        """
        for client in list(self._clients.values()):
            if client.ended_at > now and (member := members.get(client.member.member_id)) is not None:
                self._set(replace(client, ended_at=max(client.ended_at, member.timeout_at(began_at))))

    def forget_assumed(self, members: Container[str]) -> None:
        """Forgets the clients whose sessions the copy did not see end, except the clients of these members.

        The group has got other members while the copy had no state of the group, so a missing member may have left.
        """
        for key in [
            key for key, client in self._clients.items() if client.is_assumed and client.member.member_id not in members
        ]:
            self._remove(key)

    def forget(self, member_id: str) -> None:
        """Forgets the client of a former member: its session had not expired, or it left otherwise."""
        for key in [key for key, client in self._clients.items() if client.member.member_id == member_id]:
            self._remove(key)

    def due(self, now: float) -> int:
        """Returns how many clients `expire` has to look at: none as long as no session ended so long ago."""
        return len(self._clients) if now > self._first_end + RETURN_SECONDS else 0

    def expire(self, now: float) -> None:
        """Forgets the clients that count as new members when they come back."""
        if not self.due(now):
            return
        for key in [key for key, client in self._clients.items() if now > client.ended_at + RETURN_SECONDS]:
            self._remove(key)
        self._first_end = min((client.ended_at for client in self._clients.values()), default=FOREVER)

    def clear(self) -> None:
        """Forgets all clients."""
        for key in list(self._clients):
            self._remove(key)

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
        for key in [key for key, client in self._clients.items() if client.is_back or not by_return]:
            self._remove(key)


def _clients_of(members: Iterable[Member]) -> Iterable[ExpiredClient]:
    return (ExpiredClient(member.info, member.timeout_at(NEVER)) for member in members if member.true_host)


def _is_wanted(clients: Mapping[tuple[str, str], ExpiredClient], client: ExpiredClient) -> bool:
    """Whether a client is to be kept. It replaces an entry that is older, or whose client has come back since."""
    kept = clients.get(client.key)
    if kept is None:
        wanted = len(clients) < MAX_EXPIRED_CLIENTS
    else:
        wanted = kept.is_back or kept.ended_at < client.ended_at
    return wanted and client.ended_at < FOREVER and client.is_short
