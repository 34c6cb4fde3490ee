"""One member of a group: its identity, its last join, and its timers. Mirrors Kafka's ClassicGroupMember."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from group_sidecar.coordinator.model.events import FOREVER, NEVER, JoiningMember
from group_sidecar.coordinator.model.facts import MemberInfo
from group_sidecar.coordinator.model.views import MemberView, member_view

MIN_SESSION_TIMEOUT_MS, DEFAULT_SESSION_TIMEOUT_MS = 6_000, 45_000
"""The shortest and the longest session timeout assumed for a member whose join was not seen, in milliseconds.

The shortest is the default of `group.min.session.timeout.ms`. The longest is the largest default of any client, that of
Java since 3.0. The group is in doubt after the shortest timeout, and the member is overdue after the longest.
"""
LOG_DELAY_SECONDS = 1.0
"""The copy may learn from the log up to this many seconds later that a member is gone."""


class Leave(NamedTuple):
    """A leave without a reply.

    `at`: when the request was sent. `reason`: the reason that the client gave. `by_admin`: whether another client
    removes the member.
    """

    at: float
    reason: str
    by_admin: bool


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a group.

    Attributes:
        since: when the member was first seen in the group. A static member that joins again under another id keeps
            this time, unless its session may have expired.
        client_id: the client id that the broker has for the member. In a classic group, the broker keeps the client id
            of the first join with an instance id (KIP-345). In a KIP-848 group, each join or heartbeat changes it.
        true_client_id: the client id of the member's own requests, for facts; empty until a request was seen.
        true_host: the host that the member's requests come from; empty until a request was seen.
        broker_host: the host that the broker reports, which is the sidecar's; empty until the broker has reported one.
        principal: the user of the member's last request, as Kafka writes it; empty if it is not known.
        certain: whether the broker certainly has the same client id for the member as the copy. The broker keeps the
            old client id of a static member that joins again (KIP-345), unless the member's session had expired.
        session_timeout_ms: the session timeout; None if the member's join was not seen.
        protocols: metadata by protocol, in the order of the member's join.
        seen_at: when the request was sent that last reset the member's session timer.
        sync_by: the time at which the broker removes the member if it has not synced (KAFKA-12890).
        seen_on_wire: whether any request of the member was seen. A member without requests may bypass this sidecar.
        seen_before: whether any request of the member was seen before the copy forgot the group's state. The broker has
            loaded the member again since then.
        silent_since: a pair for a member without requests: a generation, and when the broker first reported that
            generation as Stable with this member in it.
        bypasses: whether the member is known to bypass this sidecar.
        reported_gone_at: when a fact reported that the member is gone; NEVER if no fact did, or a later fact reported
            that the member joined again. The broker may still have the member.
        heartbeat: the content hash of the last KIP-848 heartbeat that may have changed the group, and when its reply
            was seen.
    """

    member_id: str
    since: float
    instance_id: str | None = None
    client_id: str = ""
    true_client_id: str = ""
    true_host: str = ""
    broker_host: str = ""
    principal: str = ""
    certain: bool = True
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int = MIN_SESSION_TIMEOUT_MS
    protocols: dict[str, bytes] = field(default_factory=dict)
    assignment: bytes = b""
    seen_at: float = NEVER
    sync_by: float = FOREVER
    seen_on_wire: bool = False
    seen_before: bool = False
    silent_since: tuple[int, float] = (-1, NEVER)
    bypasses: bool = False
    reported_gone_at: float = NEVER
    heartbeat: tuple[int | None, float] = (None, NEVER)

    @property
    def client_host(self) -> str:
        """The true host of the member, or the host that the broker reports; empty if only the member id is known."""
        return self.true_host or self.broker_host

    def identify(self, client_id: str, client_host: str, principal: str) -> bool:
        """Sets the client of the member's requests, and the broker's client id if no host was known before.

        Returns whether no host was known. Kafka keeps the client id of the first join.
        """
        is_new = not self.client_host
        if is_new:
            self.client_id = client_id
        self.see_client(client_id, client_host, principal)
        return is_new

    def see_client(self, client_id: str, client_host: str, principal: str) -> None:
        """Sets client id, host and principal of the member's requests. An empty client id is not known."""
        if client_id:
            # Usually the broker has the same client id, so the member keeps one text for both.
            self.true_client_id = self.client_id if client_id == self.client_id else client_id
        self.true_host, self.principal = client_host, principal

    def learn_instance_id(self, instance_id: str | None) -> None:
        """Sets the instance id if it is known now. The instance id of a member id never changes.

        The leader's JoinGroup reply before v5, and descriptions before v4, show static members without instance ids.
        """
        if instance_id is not None:
            self.instance_id = instance_id

    def adopt_description(self, client_id: str, client_host: str) -> None:
        """Adopts client id and host as the broker reports them. Keeps a `certain` client id if the host was known."""
        if not (self.certain and self.client_host):
            self.client_id, self.certain = client_id, True
        self.broker_host = client_host

    def adopt_consumer_record(self, client_id: str, client_host: str) -> None:
        """Adopts client id and host from a record of a KIP-848 group. Each join or heartbeat may change both."""
        self.client_id, self.broker_host = client_id, client_host

    def update_from_join(self, joining: JoiningMember) -> None:
        """Sets timeouts and protocols to the values in the member's join (Kafka's updateMember)."""
        self.seen_on_wire = True
        self.learn_instance_id(joining.instance_id)
        self.session_timeout_ms = joining.session_timeout_ms
        self.rebalance_timeout_ms = joining.rebalance_timeout_ms
        self.protocols = dict(joining.protocols)

    def note_silence(self, generation: int, at: float) -> None:
        """Sets `silent_since`."""
        self.silent_since = generation, at

    def note_seen_before(self) -> None:
        """Notes that a request of the member was seen before the copy forgot the group's state."""
        self.seen_before = True

    def note_bypass(self) -> None:
        """Notes that the member bypasses this sidecar."""
        self.bypasses = True

    @property
    def is_reported_gone(self) -> bool:
        """Whether a fact has reported that the member is gone, and no later fact that it joined again."""
        return self.reported_gone_at != NEVER

    @property
    def was_seen(self) -> bool:
        """Whether requests of the member were seen, or the member was reported as gone. These requests may be old."""
        return self.seen_on_wire or self.seen_before or self.is_reported_gone

    def note_gone(self, at: float) -> None:
        """Notes that a fact has reported the member as gone."""
        self.reported_gone_at = at

    def note_joined(self) -> None:
        """Notes that a fact has reported the member as joined."""
        self.reported_gone_at = NEVER

    def note_heartbeat(self, content_hash: int | None, now: float) -> float:
        """Sets the content of the last KIP-848 heartbeat that may have changed the group.

        Returns when the previous such heartbeat was seen if both contents are known and equal; else NEVER.
        """
        before, at = self.heartbeat
        self.heartbeat = content_hash, now
        return at if content_hash is not None and content_hash == before else NEVER

    def assign(self, assignment: bytes) -> None:
        """Sets the assignment."""
        self.assignment = assignment

    def forget_session_timeout(self) -> None:
        """Forgets the session timeout that was assumed for a KIP-848 member, because the log shows when it is gone."""
        self.session_timeout_ms = None

    def learn_metadata(self, protocol: str, metadata: bytes) -> None:
        """Sets the metadata for a protocol, as a record or a description of the generation contains it."""
        self.protocols[protocol] = metadata

    def forget_metadata(self) -> None:
        """Forgets the metadata of an earlier generation."""
        self.protocols = {}

    def take_record(
        self, *, session_timeout_ms: int, rebalance_timeout_ms: int, protocol: str, metadata: bytes, assignment: bytes
    ) -> None:
        """Sets the values that a record of the log contains. Metadata of the same generation is kept."""
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms if rebalance_timeout_ms >= 0 else session_timeout_ms
        self.assignment = assignment
        self.protocols.setdefault(protocol, metadata)

    @property
    def session_seconds(self) -> float:
        """The longest session timeout that the member can have, in seconds."""
        return (self.session_timeout_ms or DEFAULT_SESSION_TIMEOUT_MS) / 1000

    def session_may_have_expired(self, now: float) -> bool:
        """Whether the session may have expired."""
        return now > self.seen_at + (self.session_timeout_ms or MIN_SESSION_TIMEOUT_MS) / 1000

    def session_expired(self, now: float, began_at: float) -> bool:
        """Whether the session must have expired. `began_at`: when the broker loaded the group and began sessions."""
        last_seen_at = max(self.seen_at, self.since, began_at)
        return now > last_seen_at + self.session_seconds

    def missed_heartbeat(self, now: float, heartbeat_seconds: float) -> bool:
        """Whether a KIP-848 member has missed a heartbeat. `heartbeat_seconds`: how often it has to send one.

        A member whose session expires has missed several. A member that the broker removes for another reason has not.
        """
        return now > max(self.seen_at, self.since) + heartbeat_seconds + max(heartbeat_seconds, LOG_DELAY_SECONDS)

    @property
    def earliest_timeout(self) -> float:
        """A time before which no timer of the member expires, even without further requests."""
        return min(self.seen_at + (self.session_timeout_ms or MIN_SESSION_TIMEOUT_MS) / 1000, self.sync_by)

    def timeout_at(self, began_at: float) -> float:
        """Returns when the session must have expired or when the sync deadline ends, whichever is earlier.

        `began_at`: when the broker loaded the group and began the sessions of its members.
        """
        last_seen_at = max(self.seen_at, self.since, began_at)
        return min(last_seen_at + self.session_seconds, self.sync_by)

    @property
    def info(self) -> MemberInfo:
        """The identity of the member, for facts."""
        return MemberInfo(
            member_id=self.member_id,
            client_id=self.true_client_id or self.client_id,
            client_host=self.client_host,
            instance_id=self.instance_id,
            principal=self.principal,
        )

    def successor(self, member_id: str, now: float) -> "Member":
        """Returns the static member under another id (Kafka's replaceStaticMember).

        If the broker may have removed this member, the result has only the instance id of this member.
        """
        if self.session_may_have_expired(now) or now > self.sync_by:
            return Member(member_id=member_id, since=now, instance_id=self.instance_id, certain=False)
        return replace(self, member_id=member_id)

    def view(self, protocol: str) -> MemberView:
        """Returns a read-only view of the member at this moment."""
        return member_view(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            broker_host=self.broker_host,
            principal=self.principal,
            metadata=self.protocols.get(protocol, b""),
            assignment=self.assignment,
            since=self.since,
        )
