"""A rebalance in progress: its cause, and the values that are kept until it is over."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from group_sidecar.coordinator.model.events import FOREVER, NEVER, JoinAccepted, JoinSent
from group_sidecar.coordinator.model.facts import MemberInfo, RebalanceCause, SlowestMember

OwnedPartitions = frozenset[tuple[object, int]]
"""Partitions, by their topic's name or id, that a member owns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseDetails:
    """Why a rebalance began, the member that caused it, and the reason that its client gave.

    `token`, `at`: the token of the join that caused the rebalance, and when the join was sent. If no join is known to
    be the cause, `token` is empty and `at` is None.
    """

    cause: RebalanceCause = RebalanceCause.UNKNOWN
    member: MemberInfo | None = None
    reason: str = ""
    token: str = ""
    at: float | None = None

    @property
    def known(self) -> bool:
        """Whether the cause is known."""
        return self.cause is not RebalanceCause.UNKNOWN


@dataclass(slots=True, kw_only=True)
class Rebalance:
    """A rebalance in progress.

    Attributes:
        cause_details: why the rebalance began.
        started_at: when the rebalance began.
        waiting_since: when the broker last began to wait for joins. Another cause may restart the wait.
        leader_join_seen: whether the leader's join was seen, so that the leader's sync will be seen too.
        done_at: when the generation became stable. The rebalance is reported once the assignments are known too.
        joined, left: how many members had joined and left by `done_at`.
        owners: the partitions that each member of a KIP-848 group owned before the rebalance.
    """

    cause_details: CauseDetails
    started_at: float
    waiting_since: float
    leader_join_seen: bool = False
    done_at: float = NEVER
    joined: int = 0
    left: int = 0
    owners: Mapping[str, OwnedPartitions] = field(default_factory=dict)
    _first_at: float = FOREVER
    _last_at: float = NEVER
    _last: MemberInfo | None = None
    _waiting: tuple[JoinSent, ...] = ()

    @property
    def is_return(self) -> bool:
        """Whether the rebalance began when a client came back after its member's session had expired."""
        return self.cause_details.cause is RebalanceCause.SESSION_EXPIRED and bool(self.cause_details.token)

    def begin_generation(self, joins: Iterable[JoinSent]) -> None:
        """Ends the join phase. `joins` are the joins without a reply. The broker replies to them one by one."""
        self.leader_join_seen, self._first_at, self._last_at, self._last = False, FOREVER, NEVER, None
        self._waiting = tuple(sent for sent in joins if sent.joining.will_park and sent.joining.member_id)

    def record_join(self, event: JoinAccepted) -> None:
        """Notes the reply to a join that waited for this generation."""
        self.leader_join_seen = self.leader_join_seen or bool(event.roster)
        self._record_join_time(event.sent_at, event.joining.member_info(event.member_id))
        member = self.cause_details.member
        if member is not None and not member.member_id and self.cause_details.token == event.joining.token:
            self.cause_details = replace(self.cause_details, member=event.joining.member_info(event.member_id))

    def _record_join_time(self, sent_at: float, member: MemberInfo) -> None:
        self._first_at = min(self._first_at, sent_at)
        if sent_at > self._last_at:
            self._last_at, self._last = sent_at, member

    def slowest(self, members: Container[str]) -> SlowestMember | None:
        """Returns the member whose join was sent last; None if fewer than two joins were seen."""
        for sent in self._waiting:
            if sent.joining.member_id in members:  # Other joins wait for the next generation.
                self._record_join_time(sent.sent_at, sent.joining.member_info(sent.joining.member_id))
        last = self._last
        if last is None or self._first_at == self._last_at:
            return None
        return SlowestMember(
            member_id=last.member_id,
            client_id=last.client_id,
            client_host=last.client_host,
            instance_id=last.instance_id,
            principal=last.principal,
            seconds=self._last_at - self._first_at,
        )
