"""Joins that are in flight at the broker and already count towards the size of the group.

If the connection of a parked join breaks, Kafka keeps the member until the rebalance is over. So a lost join still
counts. Only a description of the group shows whether a lost join has reached the broker.

A later join with the same member id replaces a parked join, and Kafka never replies to the replaced join. If a client
joins again on a new connection, the broker may receive the earlier join last, and then never replies to the later join.
"""

from collections import Counter
from collections.abc import Iterator, KeysView, Mapping, Set
from dataclasses import dataclass

from group_sidecar.coordinator.model.events import (
    DESCRIPTION_VALID_SECONDS,
    FOREVER,
    LOST_REQUEST_SECONDS,
    NEVER,
    NEW_MEMBER_JOIN_TIMEOUT_SECONDS,
    GroupDescribed,
    JoiningMember,
    JoinSent,
)
from group_sidecar.coordinator.model.views import GroupState
from group_sidecar.coordinator.state.bounded_ids import IssuedIds
from group_sidecar.coordinator.state.unlogged_members import UnloggedMembers

MAX_LOST_JOINS = 10_000
"""Maximum number of lost joins that are kept for one group. The oldest are evicted first."""

JoinKey = tuple[str, str]
"""Identifies a join: its group instance id if it has one, else its member id, else the request's token."""


def _join_key(joining: JoiningMember) -> JoinKey:
    if joining.instance_id:
        return "instance", joining.instance_id
    return ("member", joining.member_id) if joining.member_id else ("join", joining.token)


@dataclass(frozen=True, slots=True)
class _LostJoin:
    """A join whose connection was lost. `until`: the time by which the broker has received the join, if at all."""

    joining: JoiningMember
    until: float

    @property
    def has_id(self) -> bool:
        return bool(self.joining.member_id or self.joining.instance_id)

    def is_one_of(self, members: Set[str], instances: Set[str | None]) -> bool:
        joining = self.joining
        return joining.member_id in members or bool(joining.instance_id and joining.instance_id in instances)


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A description of the group by the broker, which was requested at `asked_at` and received at `replied_at`."""

    state: GroupState
    members: frozenset[str]
    asked_at: float
    replied_at: float


class PendingJoins:
    """Joins of one group that are, or may be, in flight at the broker.

    Attributes:
        sent: joins without a reply, by their tokens.
        generation_at: when a reply last showed that a generation has begun; NEVER if none has.
        sessions_ended_at: when sessions of members last ended; NEVER if none has.
        unlogged_members: members of a KIP-848 group that have joined or left, and are not in the log.
    """

    def __init__(self) -> None:
        self.sent: dict[str, JoinSent] = {}
        # If the copy drops the state of the group, it forgets the issued ids, but keeps this object. Most groups have
        # no such tokens, and an empty set takes 216 bytes.
        self._tokens_with_issued_id: set[str] | None = None
        self.generation_at = NEVER
        self._description: BrokerDescription | None = None
        self.sessions_ended_at = NEVER
        self._join_keys: Counter[JoinKey] = Counter()
        self._joining_member_ids: Counter[str] = Counter()
        self._lost_joins: dict[JoinKey, _LostJoin] = {}
        self._lost_joins_by_member: dict[str, list[JoinKey]] | None = None
        """Lost joins by member id; None until the first search for a member. Some of these joins may have been dropped
        since."""
        self._lost_joins_expire_at = FOREVER  # No lost join expires before this time.
        self._unknown_joins = 0
        self._new_member_ids: frozenset[str] = frozenset()
        self.unlogged_members = UnloggedMembers()

    # Events.

    def add_join(self, event: JoinSent, *, has_issued_id: bool) -> None:
        """Adds a join that is sent to the broker. `has_issued_id`: whether the broker has just issued its member id."""
        self.sent[event.joining.token] = event
        if has_issued_id:
            self._tokens_with_issued_id = self._tokens_with_issued_id or set()
            self._tokens_with_issued_id.add(event.joining.token)
        if event.joining.will_park:
            self._count(event.joining, 1)

    def remove_join(self, token: str) -> JoinSent | None:
        """Removes a join that has its reply. Returns the join; None if no such join was sent."""
        event = self.sent.pop(token, None)
        if self._tokens_with_issued_id:
            self._tokens_with_issued_id.discard(token)
        if event is not None and event.joining.will_park:
            self._count(event.joining, -1)
        return event

    def mark_lost(self, token: str, now: float) -> JoinSent | None:
        """Removes a join whose connection was lost, and keeps it as a lost join if it may be parked.

        Returns the join; None if no such join was sent.
        """
        event = self.remove_join(token)
        if event is not None and event.joining.will_park:
            while len(self._lost_joins) >= MAX_LOST_JOINS:
                del self._lost_joins[next(iter(self._lost_joins))]
            self._lost_joins_by_member = None
            lost_join = self._lost_joins[_join_key(event.joining)] = _LostJoin(
                event.joining, now + LOST_REQUEST_SECONDS
            )
            self._lost_joins_expire_at = min(
                self._lost_joins_expire_at, lost_join.until + NEW_MEMBER_JOIN_TIMEOUT_SECONDS
            )
        return event

    def _count(self, joining: JoiningMember, by: int) -> None:
        join_key, member_id = _join_key(joining), joining.member_id
        self._join_keys[join_key] += by
        self._joining_member_ids[member_id] += by
        if not self._join_keys[join_key]:
            del self._join_keys[join_key]
        if not self._joining_member_ids[member_id]:
            del self._joining_member_ids[member_id]

    def forget(self, member_id: str) -> None:
        """Forgets the lost joins of a member that the broker does not have, and drops it from `unlogged_members`."""
        if self._lost_joins and member_id:
            for join_key in self._lost_joins_of(member_id):
                del self._lost_joins[join_key]
        self.unlogged_members.forget(member_id)

    def _lost_joins_of(self, member_id: str) -> list[JoinKey]:
        """Returns the keys of a member's lost joins, from an index, because one request may name 5,000 members."""
        if self._lost_joins_by_member is None:
            self._lost_joins_by_member = {}
            for join_key, lost_join in self._lost_joins.items():
                self._lost_joins_by_member.setdefault(lost_join.joining.member_id, []).append(join_key)
        return [join_key for join_key in self._lost_joins_by_member.get(member_id, ()) if join_key in self._lost_joins]

    def _set_lost_joins(self, lost_joins: dict[JoinKey, _LostJoin]) -> None:
        self._lost_joins, self._lost_joins_by_member = lost_joins, None
        until = min((lost_join.until for lost_join in lost_joins.values()), default=FOREVER)
        self._lost_joins_expire_at = until + NEW_MEMBER_JOIN_TIMEOUT_SECONDS

    def discard_description(self) -> None:
        """Drops the last description by the broker, because the members have changed since."""
        self._description = None

    def note_ended_sessions(self, now: float) -> None:
        """Notes that sessions of members have ended."""
        self.sessions_ended_at = now

    def begin_generation(self, now: float) -> None:
        """Ends a join phase. Only lost joins that may still reach the broker remain; all others are members or gone."""
        if self._lost_joins:
            self._set_lost_joins(
                {join_key: lost_join for join_key, lost_join in self._lost_joins.items() if lost_join.until > now}
            )
        self.forget_descriptions()
        self.generation_at = now

    def forget_descriptions(self) -> None:
        """Forgets what descriptions have shown, because a generation was found whose beginning was not seen.

        The lost joins remain. The broker may have received them after the generation began.
        """
        self._unknown_joins, self._new_member_ids, self._description = 0, frozenset(), None

    def apply_description(self, event: GroupDescribed, before: Set[str], now: float, *, roster_complete: bool) -> None:
        """Uses the broker's description to decide which lost joins have become members.

        `before`: the members that were known before the description. `roster_complete`: whether `before` had all
        members of the last generation.
        """
        members = frozenset(m.member_id for m in event.members)
        self._description = BrokerDescription(event.state, members, event.sent_at, now)
        in_transit = {
            join_key: lost_join for join_key, lost_join in self._lost_joins.items() if lost_join.until > event.sent_at
        }
        if event.state is not GroupState.PREPARING_REBALANCE:
            self._set_lost_joins(in_transit)
            self._unknown_joins = 0
            return
        instances = {m.instance_id for m in event.members}
        named = {
            join_key: lost_join
            for join_key, lost_join in self._lost_joins.items()
            if lost_join.has_id and lost_join.is_one_of(members, instances)
        }
        nameless = [
            join_key
            for join_key, lost_join in self._lost_joins.items()
            if not lost_join.has_id and join_key not in in_transit
        ]
        unexplained = self._unexplained_members(event, before, named)
        new = [sent for sent in self.sent.values() if sent.joining.will_park and _join_key(sent.joining)[0] == "join"]
        arrived = sum(sent.sent_at + LOST_REQUEST_SECONDS < event.sent_at for sent in new)
        confirmed = nameless[: max(0, len(unexplained) - arrived)]
        self._set_lost_joins(
            {**in_transit, **named, **{join_key: self._lost_joins[join_key] for join_key in confirmed}}
        )
        # If the copy may have missed members, it counts at most one member as new for each confirmed lost join.
        self._new_member_ids = frozenset(unexplained if roster_complete else unexplained[: len(confirmed)])
        lost = sum(not lost_join.has_id for lost_join in self._lost_joins.values())
        self._unknown_joins = max(0, len(unexplained) - len(new) - lost) if roster_complete else 0

    def _unexplained_members(
        self, event: GroupDescribed, before: Set[str], lost: Mapping[JoinKey, _LostJoin]
    ) -> list[str]:
        """Returns the described members that were not known before and have no join with an id."""
        member_ids = {*self._joining_member_ids, *(lost_join.joining.member_id for lost_join in lost.values())}
        known = member_ids | before - self._new_member_ids
        instances = {name for kind, name in (*self._join_keys, *lost) if kind == "instance"}
        return [m.member_id for m in event.members if m.member_id not in known and m.instance_id not in instances]

    def expire(self, now: float) -> None:
        """Drops old lost joins. The broker removes a new member whose first generation does not begin in time."""
        if now >= self._lost_joins_expire_at:
            kept = {
                join_key: lost_join
                for join_key, lost_join in self._lost_joins.items()
                if now < lost_join.until + NEW_MEMBER_JOIN_TIMEOUT_SECONDS
            }
            self._set_lost_joins(kept)
        self.unlogged_members.expire(now)

    # The state of the joins.

    @property
    def parked_ids(self) -> Iterator[str]:
        """The members whose parked joins have no reply: their ids, or the tokens of joins without an id."""
        joins = (sent.joining for sent in self.sent.values())
        return (joining.member_id or joining.token for joining in joins if joining.will_park)

    def has_issued_id(self, token: str) -> bool:
        """Whether the copy saw the broker issue the member id of a join without a reply."""
        return token in (self._tokens_with_issued_id or ())

    @property
    def has_any(self) -> bool:
        """Whether a join is, or may be, in flight at the broker."""
        return bool(self.sent or self._lost_joins or self.unlogged_members)

    @property
    def parked(self) -> int:
        """How many joins are parked at the broker, as far as is known."""
        both = len(self._lost_joins.keys() & self._join_keys.keys())  # Python iterates over the smaller set.
        return len(self._join_keys) + len(self._lost_joins) - both + self._unknown_joins

    def parked_unknown(self, members: Set[str], issued: IssuedIds) -> int:
        """Returns how many parked joins the broker rejects, because their member ids are unknown.

        When such a join was sent, no member had its member id, and the broker had not issued the id.
        """
        unknown = self._joining_member_ids.keys() - members - {"", *issued}
        if not unknown:
            return 0
        known_join_keys = {
            _join_key(sent.joining)
            for sent in self.sent.values()
            if sent.joining.member_id not in unknown or issued.forgot_any(sent.sent_at)
        }
        return sum(join_key not in known_join_keys for join_key in self._join_keys)

    @property
    def joining_member_ids(self) -> KeysView[str]:
        """The member ids of joins that are in flight. A join without an id counts under the empty string."""
        return self._joining_member_ids.keys()

    def is_parked(self, member_id: str, instance_id: str | None) -> bool:
        """Whether a join of the member is, or may be, parked at the broker.

        A static member that joins without a member id takes the place of a lost join with its instance id.
        """
        if not member_id:
            return bool(instance_id) and ("instance", instance_id) in self._lost_joins
        return member_id in self._joining_member_ids or bool(self._lost_joins and self._lost_joins_of(member_id))

    @property
    def has_join_before_generation(self) -> bool:
        """Whether a join from before the last generation has no reply: it was replaced, or its reply is late."""
        # `sent` is in the order in which the joins were sent.
        oldest = next((sent.sent_at for sent in self.sent.values() if sent.joining.will_park), FOREVER)
        return oldest < self.generation_at

    def waiting_since(self, now: float) -> float:
        """Returns since when a join has waited for the next generation; `now` if none waits."""
        first = min((sent.sent_at for sent in self.sent.values() if self.may_wait(sent)), default=now)
        return max(first, self.generation_at)

    def may_wait(self, sent: JoinSent) -> bool:
        """Whether a join without a reply may wait for the next generation. A replaced join does not wait."""
        return sent.joining.will_park and sent.sent_at + LOST_REQUEST_SECONDS >= self.generation_at

    @property
    def has_lost_joins(self) -> bool:
        """Whether a lost join may count towards the size of the group."""
        return bool(self._lost_joins)

    def last_description(self, now: float) -> BrokerDescription | None:
        """Returns the broker's last description; None unless it is recent.

        The group may have changed since the description was requested.
        """
        description = self._description
        recent = description is not None and now < description.replied_at + DESCRIPTION_VALID_SECONDS
        return description if recent else None

    def described_since(self, since: float, now: float) -> BrokerDescription | None:
        """Returns the broker's description; None unless it is recent, and newer than `since` and all lost joins."""
        description = self.last_description(now)
        if description is None or description.asked_at < since:
            return None
        for lost_join in self._lost_joins.values():
            # If a join was lost, or may have arrived, after the description was requested, the description lacks the
            # join.
            if (
                lost_join.until - LOST_REQUEST_SECONDS > description.asked_at
                or description.asked_at < lost_join.until <= now
            ):
                return None
        return description
