"""One member of a group.

Owns: `Member`: who it is, what it sent, and its timers; and its `Leave`. Must not know: its group. Mirrors Kafka's
ClassicGroupMember.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from group_sidecar.coordinator.events import FOREVER, NEVER, Joining
from group_sidecar.coordinator.facts import Who
from group_sidecar.coordinator.views import MemberView, member_view

SHORTEST_TIMEOUT_MS, USUAL_TIMEOUT_MS = 6_000, 45_000
"""`group.min.session.timeout.ms`, and what clients ask for by default, longest of all Java's since 3.0.

A member whose join was not seen is in doubt after the one, and set aside after the other.
"""


class Leave(NamedTuple):
    """A leave that the broker has not answered: when it was sent, with what reason, and whether somebody else did."""

    at: float
    said: str
    kicked: bool


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a group.

    Attributes:
        since: when it was first seen in the group, under this id or, as a static member, under the one before.
        true_host: where its requests come from; empty while none has passed by.
        broker_host: where the broker says it is, which sees the sidecar in its place; empty while it has not said.
        certain: whether the broker has it under the same client id. A static member that comes back keeps the old
            one (KIP-345), unless its session had run out.
        session_timeout_ms: None where its join was not seen.
        protocols: metadata by protocol, in the order of its join.
        seen_at: when the request went out that last reset its session timer.
        sync_by: when the broker removes it, unless it has synced by then (KAFKA-12890).
        heard: whether any request of it has passed by; of others silence says nothing.
    """

    member_id: str
    since: float
    instance_id: str | None = None
    client_id: str = ""
    true_host: str = ""
    broker_host: str = ""
    certain: bool = True
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int = SHORTEST_TIMEOUT_MS
    protocols: dict[str, bytes] = field(default_factory=dict)
    assignment: bytes = b""
    seen_at: float = NEVER
    sync_by: float = FOREVER
    heard: bool = False

    @property
    def client_host(self) -> str:
        """Where it is, as far as is known; empty while only its id is known, not who it is."""
        return self.true_host or self.broker_host

    def identify(self, client_id: str, client_host: str) -> bool:
        """Takes who it is, and whence it speaks. Of its client id Kafka keeps what the first join said. Whether it is
        news.
        """
        news = not self.client_host
        if news:
            self.client_id = client_id
        self.true_host = client_host
        return news

    def told(self, client_id: str, client_host: str) -> None:
        """Takes the broker's word of who it is. Its client id was known before, where the wire is sure of it."""
        if not (self.certain and self.client_host):
            self.client_id, self.certain = client_id, True
        self.broker_host = client_host

    def take(self, joining: Joining) -> None:
        """Takes what its join says of it (Kafka's updateMember)."""
        self.heard = True
        self.session_timeout_ms = joining.session_timeout_ms
        self.rebalance_timeout_ms = joining.rebalance_timeout_ms
        self.protocols = dict(joining.protocols)

    def session_over(self, now: float) -> bool:
        """Whether its session may have run out."""
        return now > self.seen_at + (self.session_timeout_ms or SHORTEST_TIMEOUT_MS) / 1000

    def silent(self, now: float, began_at: float) -> bool:
        """Whether its session must have run out; the broker begins it anew when it has loaded the group: `began_at`."""
        heard_of = max(self.seen_at, self.since, began_at)
        return now > heard_of + (self.session_timeout_ms or USUAL_TIMEOUT_MS) / 1000

    @property
    def sound_until(self) -> float:
        """Until when its timers have not run out, if nothing is heard of it."""
        return min(self.seen_at + (self.session_timeout_ms or SHORTEST_TIMEOUT_MS) / 1000, self.sync_by)

    def due_at(self, began_at: float) -> float:
        """When its timers run out, if nothing is heard of it: as `silent` has it, or in its sync."""
        heard_of = max(self.seen_at, self.since, began_at)
        return min(heard_of + (self.session_timeout_ms or USUAL_TIMEOUT_MS) / 1000, self.sync_by)

    @property
    def who(self) -> Who:
        """As facts name it."""
        return Who(
            member_id=self.member_id,
            client_id=self.client_id,
            client_host=self.client_host,
            instance_id=self.instance_id,
        )

    def successor(self, member_id: str, now: float) -> "Member":
        """The same static member under another id (Kafka's replaceStaticMember); anew if it may have been removed."""
        if self.session_over(now) or now > self.sync_by:
            return Member(member_id=member_id, since=now, instance_id=self.instance_id, certain=False)
        return replace(self, member_id=member_id)

    def view(self, protocol: str) -> MemberView:
        """As others see it."""
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
