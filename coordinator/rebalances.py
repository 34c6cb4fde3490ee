"""A rebalance under way.

Owns: `Blame`, why it began, and `Rebalance`, what is kept of it until it is over. Must not know: the group, what
members own, how a cause is found (`causes`).
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from group_sidecar.coordinator.events import FOREVER, NEVER, JoinAccepted, JoinSent
from group_sidecar.coordinator.facts import RebalanceCause, Slowest, Who

Owned = frozenset[tuple[object, int]]
"""Partitions, by their topic's name or id, that a member owns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """Why a rebalance began, who brought it about, and what that one said.

    `token`, `at`: of the join that did, and when it went out; empty and None where it was none.
    """

    cause: RebalanceCause = RebalanceCause.UNKNOWN
    by: Who | None = None
    said: str = ""
    token: str = ""
    at: float | None = None

    @property
    def known(self) -> bool:
        """Whether it says anything."""
        return self.cause is not RebalanceCause.UNKNOWN


@dataclass(slots=True, kw_only=True)
class Rebalance:
    """A rebalance under way.

    Attributes:
        blame: why it began.
        began: when it began.
        since: when it began to wait for joins the last time; later, where one more cause came before it was over.
        led: whether the leader's join was seen, so that its sync will be.
        done_at: when its generation was stable. It is told of when the assignments are known too.
        joined, gone: how many members had come and gone by then.
        owners: what each member of a consumer group owned before.
    """

    blame: Blame
    began: float
    since: float
    led: bool = False
    done_at: float = NEVER
    joined: int = 0
    gone: int = 0
    owners: Mapping[str, Owned] = field(default_factory=dict)
    _first_at: float = FOREVER
    _last_at: float = NEVER
    _last: Who | None = None
    _waiting: tuple[JoinSent, ...] = ()

    def begin_generation(self, joins: Iterable[JoinSent]) -> None:
        """The join phase is over: the joins of its members, which all were sent by now, are answered one by one."""
        self.led, self._first_at, self._last_at, self._last = False, FOREVER, NEVER, None
        self._waiting = tuple(sent for sent in joins if sent.joining.parks and sent.joining.member_id)

    def answered(self, event: JoinAccepted) -> None:
        """A join that waited for this generation was answered."""
        self.led = self.led or bool(event.roster)
        self._note(event.sent_at, event.joining.who(event.member_id))
        by = self.blame.by
        if by is not None and not by.member_id and self.blame.token == event.joining.token:
            self.blame = replace(self.blame, by=event.joining.who(event.member_id))

    def _note(self, sent_at: float, who: Who) -> None:
        self._first_at = min(self._first_at, sent_at)
        if sent_at > self._last_at:
            self._last_at, self._last = sent_at, who

    def slowest(self, members: Container[str]) -> Slowest | None:
        """Which of these members' joins came last; None where fewer than two were seen."""
        for sent in self._waiting:
            if sent.joining.member_id in members:  # Else it came for the next generation.
                self._note(sent.sent_at, sent.joining.who(sent.joining.member_id))
        last = self._last
        if last is None or self._first_at == self._last_at:
            return None
        return Slowest(
            member_id=last.member_id,
            client_id=last.client_id,
            client_host=last.client_host,
            instance_id=last.instance_id,
            seconds=self._last_at - self._first_at,
        )
