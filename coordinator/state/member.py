"""One member of a group: its identity, its last join, and its timers. Mirrors Kafka's ClassicGroupMember."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from group_sidecar.coordinator.model.events import FOREVER, NEVER, JoiningMember
from group_sidecar.coordinator.model.facts import MemberInfo
from group_sidecar.coordinator.model.views import MemberView, member_view

MIN_SESSION_TIMEOUT_MS, DEFAULT_SESSION_TIMEOUT_MS = 6_000, 45_000
"""`group.min.session.timeout.ms`, and the longest default of a client, which is Java's since 3.0.

A member whose join was not seen is in doubt after the shorter time, and set aside after the longer one.
"""


class Leave(NamedTuple):
    """A leave without a reply.

    `at`: when it was sent. `reason`: the reason given. `by_admin`: whether another client removes the member.
    """

    at: float
    reason: str
    by_admin: bool


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a group.

    Attributes:
        since: when it was first seen in the group. A static member that is back keeps the time of its first id.
        true_host: the host that its requests come from; empty while none was seen.
        broker_host: the host that the broker reports, which is the sidecar's; empty while it has not reported any.
        certain: whether the broker has it under the same client id. A static member that comes back keeps the old
            one (KIP-345), unless its session had run out.
        session_timeout_ms: None where its join was not seen.
        protocols: metadata by protocol, in the order of its join.
        seen_at: when the request went out that last reset its session timer.
        sync_by: when the broker removes it, unless it has synced by then (KAFKA-12890).
        seen_on_wire: whether any of its requests was seen. The silence of other members means nothing.
    """

    member_id: str
    since: float
    instance_id: str | None = None
    client_id: str = ""
    true_host: str = ""
    broker_host: str = ""
    certain: bool = True
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int = MIN_SESSION_TIMEOUT_MS
    protocols: dict[str, bytes] = field(default_factory=dict)
    assignment: bytes = b""
    seen_at: float = NEVER
    sync_by: float = FOREVER
    seen_on_wire: bool = False

    @property
    def client_host(self) -> str:
        """Its host, as far as is known; empty while only its id is known."""
        return self.true_host or self.broker_host

    def identify(self, client_id: str, client_host: str) -> bool:
        """Takes client id and host. Kafka keeps the client id of the first join. Returns whether they were unknown."""
        is_new = not self.client_host
        if is_new:
            self.client_id = client_id
        self.true_host = client_host
        return is_new

    def adopt_description(self, client_id: str, client_host: str) -> None:
        """Takes client id and host as the broker reports them. A client id that is certain stays."""
        if not (self.certain and self.client_host):
            self.client_id, self.certain = client_id, True
        self.broker_host = client_host

    def update_from_join(self, joining: JoiningMember) -> None:
        """Takes timeouts and protocols from its join (Kafka's updateMember)."""
        self.seen_on_wire = True
        self.session_timeout_ms = joining.session_timeout_ms
        self.rebalance_timeout_ms = joining.rebalance_timeout_ms
        self.protocols = dict(joining.protocols)

    def assign(self, assignment: bytes) -> None:
        """Takes its assignment."""
        self.assignment = assignment

    def take_record(
        self, *, session_timeout_ms: int, rebalance_timeout_ms: int, protocol: str, metadata: bytes, assignment: bytes
    ) -> None:
        """Takes what a record of the log contains of it. Metadata that its own join contained stays."""
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms if rebalance_timeout_ms >= 0 else session_timeout_ms
        self.assignment = assignment
        self.protocols.setdefault(protocol, metadata)

    def session_may_have_expired(self, now: float) -> bool:
        """Whether its session may have run out."""
        return now > self.seen_at + (self.session_timeout_ms or MIN_SESSION_TIMEOUT_MS) / 1000

    def session_expired(self, now: float, began_at: float) -> bool:
        """Whether its session must have run out. `began_at`: when the broker loaded the group and began sessions."""
        last_seen_at = max(self.seen_at, self.since, began_at)
        return now > last_seen_at + (self.session_timeout_ms or DEFAULT_SESSION_TIMEOUT_MS) / 1000

    @property
    def earliest_timeout(self) -> float:
        """Until when no timer of it runs out, if no request of it is seen."""
        return min(self.seen_at + (self.session_timeout_ms or MIN_SESSION_TIMEOUT_MS) / 1000, self.sync_by)

    def timeout_at(self, began_at: float) -> float:
        """Returns when its session (as of `session_expired`) or its sync is over, if no request of it is seen."""
        last_seen_at = max(self.seen_at, self.since, began_at)
        return min(last_seen_at + (self.session_timeout_ms or DEFAULT_SESSION_TIMEOUT_MS) / 1000, self.sync_by)

    @property
    def info(self) -> MemberInfo:
        """Its identity, as facts have it."""
        return MemberInfo(
            member_id=self.member_id,
            client_id=self.client_id,
            client_host=self.client_host,
            instance_id=self.instance_id,
        )

    def successor(self, member_id: str, now: float) -> "Member":
        """Returns the static member under another id (Kafka's replaceStaticMember); a new one if it may be removed."""
        if self.session_may_have_expired(now) or now > self.sync_by:
            return Member(member_id=member_id, since=now, instance_id=self.instance_id, certain=False)
        return replace(self, member_id=member_id)

    def view(self, protocol: str) -> MemberView:
        """Returns the member at this moment, to be read only."""
        return member_view(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            broker_host=self.broker_host,
            metadata=self.protocols.get(protocol, b""),
            assignment=self.assignment,
            since=self.since,
        )
