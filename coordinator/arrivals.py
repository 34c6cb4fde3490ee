"""Members of consumer groups on their way in and out, ahead of the log.

Owns: `Arrivals`. Must not know: the group, what a limit is. Such a member needs no rebalance to get in: the broker's
reply lets it in, and the log says so a little later.
"""

from collections.abc import Collection, Iterator

ARRIVING_SECONDS = 5.0
"""In so long a member that the broker has let in or let go is in its log, or out of it, and that is read."""


class Arrivals:
    """Who has been let in, or may be, and who has left, as far as the log does not say it yet."""

    def __init__(self) -> None:
        self._arriving: dict[str, float] = {}
        self._leaving: dict[str, float] = {}
        self._hosts: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._arriving)

    def arriving(self, who: str, now: float, client_host: str = "") -> None:
        """A new member asks the broker to let it in, or was let in; by its member id, or its token without one."""
        self._arriving[who] = now
        self._hosts[who] = client_host
        self._leaving.pop(who, None)

    def host_of(self, member_id: str) -> str:
        """Whence a member that is arriving has asked; empty where that is not known."""
        return self._hosts.get(member_id, "")

    def leaving(self, member_id: str, now: float) -> None:
        """A member has left."""
        self.forget(member_id)
        self._leaving[member_id] = now

    def forget(self, who: str) -> None:
        """The broker has no such member."""
        self._arriving.pop(who, None)
        self._hosts.pop(who, None)

    def logged(self, members: Collection[str]) -> None:
        """These are in the log, and no others."""
        for member_id in self._arriving.keys() & set(members):
            self.forget(member_id)
        for member_id in self._leaving.keys() - set(members):
            del self._leaving[member_id]

    def expire(self, now: float) -> None:
        """Forgets what the log must have said by now, if it was so."""
        late = [who for who, at in self._arriving.items() if now >= at + ARRIVING_SECONDS]
        for who in late:
            self.forget(who)
        for who in [who for who, at in self._leaving.items() if now >= at + ARRIVING_SECONDS]:
            del self._leaving[who]

    def ins(self, now: float) -> Iterator[str]:
        """Who has been let in, or may be, and is not in the log yet."""
        return (who for who, at in self._arriving.items() if at + ARRIVING_SECONDS > now)

    def outs(self, now: float) -> Iterator[str]:
        """Who has left, and is in the log yet."""
        return (who for who, at in self._leaving.items() if at + ARRIVING_SECONDS > now)
