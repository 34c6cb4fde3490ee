"""Places that are taken in a group before its members are known.

Owns: `Reservations`: the joins that are with the broker, those that may be since their connection has gone, and what
the broker last said of who is there. Must not know: the rest of the group, what a limit is.

Kafka keeps a member whose join is parked when its connection breaks, until the rebalance is over. So a lost join
still holds its place; whether it ever reached the broker, only a description of the group can tell.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from group_sidecar.coordinator.arrivals import Arrivals
from group_sidecar.coordinator.events import (
    CONFIRMED_SECONDS,
    FOREVER,
    LOST_SECONDS,
    NEW_MEMBER_SECONDS,
    GroupDescribed,
    Joining,
    JoinSent,
)
from group_sidecar.coordinator.views import GroupState

MOST_GHOSTS = 10_000
"""Lost joins of one group that are remembered; the oldest go first."""

Seat = tuple[str, str]
"""What tells one place from another: a group instance id, a member id, or the request's token where it has neither."""


def _seat(joining: Joining) -> Seat:
    if joining.instance_id:
        return "instance", joining.instance_id
    return ("member", joining.member_id) if joining.member_id else ("join", joining.token)


@dataclass(frozen=True, slots=True)
class _Ghost:
    """A join whose connection has gone. `until`: when it will have reached the broker, if it ever does."""

    joining: Joining
    until: float

    @property
    def named(self) -> bool:
        return bool(self.joining.member_id or self.joining.instance_id)

    def is_one_of(self, members: Set[str], instances: Set[str | None]) -> bool:
        joining = self.joining
        return joining.member_id in members or bool(joining.instance_id and joining.instance_id in instances)


@dataclass(frozen=True, slots=True)
class Told:
    """What the broker said when it was asked at `asked_at`, and the reply came at `told_at`."""

    state: GroupState
    members: frozenset[str]
    asked_at: float
    told_at: float


class Reservations:
    """Joins of one group that are, or may be, with the broker.

    Attributes:
        sent: joins that are not answered, by their tokens.
        arrivals: new members of a consumer group.
    """

    def __init__(self) -> None:
        self.sent: dict[str, JoinSent] = {}
        self._told: Told | None = None
        self._seats: Counter[Seat] = Counter()
        self._callers: Counter[str] = Counter()
        self._ghosts: dict[Seat, _Ghost] = {}
        self._ghosts_by_member: dict[str, list[Seat]] | None = None
        """Made when somebody looks for a member among them; some of these may have gone since."""
        self._ghosts_kept_until = FOREVER  # All of them; some may have gone since.
        self._strangers = 0
        self._newcomers: frozenset[str] = frozenset()
        self.arrivals = Arrivals()

    # What happens.

    def hold(self, event: JoinSent) -> None:
        """A join goes to the broker."""
        self.sent[event.joining.token] = event
        if event.joining.parks:
            self._count(event.joining, 1)

    def release(self, token: str) -> JoinSent | None:
        """A join was answered. Returns it, if there was one."""
        event = self.sent.pop(token, None)
        if event is not None and event.joining.parks:
            self._count(event.joining, -1)
        return event

    def lose(self, token: str, now: float) -> JoinSent | None:
        """The reply to a join will not come. Returns it, if there was one."""
        event = self.release(token)
        if event is not None and event.joining.parks:
            while len(self._ghosts) >= MOST_GHOSTS:
                del self._ghosts[next(iter(self._ghosts))]
            self._ghosts_by_member = None
            ghost = self._ghosts[_seat(event.joining)] = _Ghost(event.joining, now + LOST_SECONDS)
            self._ghosts_kept_until = min(self._ghosts_kept_until, ghost.until + NEW_MEMBER_SECONDS)
        return event

    def _count(self, joining: Joining, by: int) -> None:
        seat, caller = _seat(joining), joining.member_id
        self._seats[seat] += by
        self._callers[caller] += by
        if not self._seats[seat]:
            del self._seats[seat]
        if not self._callers[caller]:
            del self._callers[caller]

    def forget(self, member_id: str) -> None:
        """The broker has no such member."""
        if self._ghosts and member_id:
            for seat in self._ghosts_of(member_id):
                del self._ghosts[seat]
        self.arrivals.forget(member_id)

    def _ghosts_of(self, member_id: str) -> list[Seat]:
        """The lost joins of a member. One request may name 5,000 members, and there may be 10,000 lost joins."""
        if self._ghosts_by_member is None:
            self._ghosts_by_member = {}
            for seat, ghost in self._ghosts.items():
                self._ghosts_by_member.setdefault(ghost.joining.member_id, []).append(seat)
        return [seat for seat in self._ghosts_by_member.get(member_id, ()) if seat in self._ghosts]

    def _keep_ghosts(self, ghosts: dict[Seat, _Ghost]) -> None:
        self._ghosts, self._ghosts_by_member = ghosts, None
        until = min((ghost.until for ghost in ghosts.values()), default=FOREVER)
        self._ghosts_kept_until = until + NEW_MEMBER_SECONDS

    def outdate(self) -> None:
        """Somebody has gone: what the broker said before is not so any longer."""
        self._told = None

    def begin_generation(self, now: float) -> None:
        """A join phase is over: who waited in it is a member, or is gone."""
        if self._ghosts:
            self._keep_ghosts({seat: ghost for seat, ghost in self._ghosts.items() if ghost.until > now})
        self._strangers, self._newcomers, self._told = 0, frozenset(), None

    def described(self, event: GroupDescribed, before: Set[str], now: float, *, sure: bool) -> None:
        """The broker told who is there.

        `before`: the members that were known. `sure`: whether these were all of the last generation.
        """
        members = frozenset(m.member_id for m in event.members)
        self._told = Told(event.state, members, event.sent_at, now)
        yet_to_come = {seat: ghost for seat, ghost in self._ghosts.items() if ghost.until > event.sent_at}
        if event.state is not GroupState.PREPARING_REBALANCE:
            self._keep_ghosts(yet_to_come)
            self._strangers = 0
            return
        instances = {m.instance_id for m in event.members}
        named = {
            seat: ghost for seat, ghost in self._ghosts.items() if ghost.named and ghost.is_one_of(members, instances)
        }
        nameless = [seat for seat, ghost in self._ghosts.items() if not ghost.named and seat not in yet_to_come]
        unexplained = self._unexplained(event, before, named)
        own = [sent for sent in self.sent.values() if sent.joining.parks and _seat(sent.joining)[0] == "join"]
        arrived = sum(sent.sent_at + LOST_SECONDS < event.sent_at for sent in own)
        there = nameless[: max(0, len(unexplained) - arrived)]
        self._keep_ghosts({**yet_to_come, **named, **{seat: self._ghosts[seat] for seat in there}})
        # Where others may have been in before, only as many as were lost are known to have come since.
        self._newcomers = frozenset(unexplained if sure else unexplained[: len(there)])
        lost = sum(not ghost.named for ghost in self._ghosts.values())
        self._strangers = max(0, len(unexplained) - len(own) - lost) if sure else 0

    def _unexplained(self, event: GroupDescribed, before: Set[str], lost: Mapping[Seat, _Ghost]) -> list[str]:
        """Members of whom neither the last generation nor a join with a name tells why they are there."""
        callers = {*self._callers, *(ghost.joining.member_id for ghost in lost.values())}
        known = callers | before - self._newcomers
        instances = {name for kind, name in (*self._seats, *lost) if kind == "instance"}
        return [m.member_id for m in event.members if m.member_id not in known and m.instance_id not in instances]

    def expire(self, now: float) -> None:
        """Forgets what can no longer be: the broker drops a new member whose first generation does not come."""
        if now >= self._ghosts_kept_until:
            kept = {seat: ghost for seat, ghost in self._ghosts.items() if now < ghost.until + NEW_MEMBER_SECONDS}
            self._keep_ghosts(kept)
        self.arrivals.expire(now)

    # What is known.

    @property
    def joining(self) -> Iterator[str]:
        """Whose joins are with the broker unanswered: by member id, or the request's token without one."""
        joins = (sent.joining for sent in self.sent.values())
        return (joining.member_id or joining.token for joining in joins if joining.parks)

    @property
    def any(self) -> bool:
        """Whether anybody is, or may be, at the broker's door."""
        return bool(self.sent or self._ghosts or self.arrivals)

    @property
    def parked(self) -> int:
        """How many wait in a join at the broker, as far as is known."""
        both = len(self._ghosts.keys() & self._seats.keys())  # Looks at the smaller one only.
        return len(self._seats) + len(self._ghosts) - both + self._strangers

    def parked_beside(self, known: Set[str]) -> int:
        """How many of these wait with a member id that is none of the known."""
        unknown = self._callers.keys() - known - {""}
        if not unknown:
            return 0
        heeded = {_seat(sent.joining) for sent in self.sent.values() if sent.joining.member_id not in unknown}
        return sum(seat not in heeded for seat in self._seats)

    def is_parked(self, member_id: str) -> bool:
        """Whether a member waits in a join at the broker."""
        if not member_id:
            return False
        return member_id in self._callers or bool(self._ghosts and self._ghosts_of(member_id))

    @property
    def haunted(self) -> bool:
        """Whether a lost join may hold a place."""
        return bool(self._ghosts)

    def told_since(self, since: float, now: float) -> Told | None:
        """What the broker has lately told of a time after `since`; None where there is more to be known."""
        told = self._told
        if told is None or told.asked_at < since or now >= told.told_at + CONFIRMED_SECONDS:
            return None
        for ghost in self._ghosts.values():
            # What was lost after it was asked, or has had its time to arrive since, it does not tell of.
            if ghost.until - LOST_SECONDS > told.asked_at or told.asked_at < ghost.until <= now:
                return None
        return told
