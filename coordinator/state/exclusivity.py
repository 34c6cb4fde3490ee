"""Whether all clients reach the broker through this sidecar: the operator's statement, and the evidence against it.

A commit or a new member in `__consumer_offsets` must follow from a request that passed through the sidecar. The record
may be read before the reply to its request arrives, so an unexplained record is kept for SETTLE_SECONDS, in which the
reply may explain it. A request of unknown effect, such as a request whose reply was lost, may explain any record of its
group.
"""

from collections import OrderedDict
from typing import NamedTuple

from group_sidecar.coordinator.model.events import NEVER
from group_sidecar.coordinator.model.views import FallbackReason, TopicPartition
from group_sidecar.coordinator.state.bounded_table import ENTRY_BYTES, BoundedTable, TableSize, name_bytes

SETTLE_SECONDS = 60.0
"""Seconds after which every request has its reply, or has lost its connection.

60 seconds is the largest default request timeout of any client (`socket.timeout.ms` of librdkafka). It is also the
default of `group.consumer.max.session.timeout.ms`, the longest session of a KIP-848 member. The default of
`replica.lag.time.max.ms` is shorter: 30 seconds."""
DOUBT_SECONDS = 600.0
"""After a client has bypassed the sidecar, the operator's statement counts as wrong for this many seconds."""
MAX_UNEXPLAINED = 10_000
"""Maximum number of unexplained records. Further records are dropped, because a client that bypasses the sidecar also
writes later records."""
MAX_UNKNOWN_EFFECTS = 1_000
"""Maximum number of groups with requests of unknown effect. An evicted request may explain any group's record."""

Subject = TopicPartition | str
"""The subject of a record: the partition of a commit, or the id of a member."""


class UnexplainedRecord(NamedTuple):
    """A record that no request has explained so far.

    Attributes:
        appended_after: the broker appended the record after this time, in seconds since the epoch.
        at: when the record was read.
    """

    group_id: str
    subject: Subject
    appended_after: float
    at: float


class Exclusivity:
    """The operator's statement that clients reach the broker only through this sidecar, and the evidence against it.

    Attributes:
        stated: the operator's statement (`answers.exclusive`).
        is_shared: whether another sidecar, the predecessor or the successor of this one, also forwards requests of
            clients.
        connection_lost_at: when the connection to the broker was last lost. The broker may have restarted.
        commits, members: how many commits and members bypassed the sidecar.
        last_at: when the last bypass was found; NEVER if there is none.
    """

    def __init__(self, *, stated: bool) -> None:
        self.stated = stated
        self.is_shared = False
        self.connection_lost_at = self.last_at = NEVER
        self.commits = self.members = 0
        self._unexplained: OrderedDict[tuple[str, Subject], UnexplainedRecord] = OrderedDict()
        self._name_bytes = 0
        self._unknown_effects: BoundedTable[float] = BoundedTable(MAX_UNKNOWN_EFFECTS, self._evicted)
        self._any_changed_until = NEVER

    @property
    def table(self) -> TableSize:
        """The size of this object."""
        entries = len(self._unexplained) + len(self._unknown_effects)
        return TableSize("records_to_explain", entries, self._name_bytes + self._unknown_effects.bytes)

    def holds(self, at: float) -> bool:
        """Whether the operator's statement can be relied on.

        The statement can be relied on if three conditions hold: the operator has made the statement, no other sidecar
        forwards requests to the broker, and no client has bypassed this sidecar in the last DOUBT_SECONDS.
        """
        return self.fallback_reason(at) is None

    def fallback_reason(self, at: float) -> FallbackReason | None:
        """Returns why questions that depend on the statement may not be answered; None if the statement holds.

        The reason is COLD while another sidecar forwards requests too, because the copy waits for that sidecar's end.
        """
        if not self.stated or at < self.last_at + DOUBT_SECONDS:
            return FallbackReason.NOT_EXCLUSIVE
        return FallbackReason.COLD if self.is_shared else None

    # Records that the wire has not explained.

    def add_unexplained(self, group_id: str, subject: Subject, appended_after: float, now: float) -> None:
        """Adds a record that no request has explained. An older record with the same subject stays."""
        key = group_id, subject
        if key in self._unexplained or len(self._unexplained) >= MAX_UNEXPLAINED:
            return
        self._unexplained[key] = UnexplainedRecord(group_id, subject, appended_after, now)
        self._name_bytes += _key_bytes(key)

    def take_due(self, now: float) -> list[UnexplainedRecord]:
        """Returns the records that no request has explained for SETTLE_SECONDS, and forgets them."""
        due = []
        while self._unexplained and next(iter(self._unexplained.values())).at + SETTLE_SECONDS <= now:
            key, record = self._unexplained.popitem(last=False)
            self._name_bytes -= _key_bytes(key)
            due.append(record)
        return due

    def connection_lost(self, now: float) -> None:
        """Forgets all unexplained records, because the broker may have restarted."""
        self.connection_lost_at = now
        self._unexplained.clear()
        self._name_bytes = 0

    # Requests.

    def explain(self, group_id: str, subject: Subject) -> None:
        """Notes that a request about this subject has passed through the sidecar."""
        if self._unexplained and self._unexplained.pop((group_id, subject), None) is not None:
            self._name_bytes -= _key_bytes((group_id, subject))

    def note_unknown_effect(self, group_id: str | None, until: float) -> None:
        """Notes a request whose effect is unknown. `group_id` is None if the request may concern any group.

        The broker executes the request, if at all, at most SETTLE_SECONDS after the time `until`.
        """
        if not self.stated:
            return
        if group_id is None:
            self._any_changed_until = max(self._any_changed_until, until)
        else:
            self._unknown_effects.put(group_id, max(until, self._changed_until(group_id)))

    def _evicted(self, _: str, until: float) -> None:
        self._any_changed_until = max(self._any_changed_until, until)

    def may_be_explained(self, group_id: str, appended_after: float) -> bool:
        """Whether a request of unknown effect may explain a record that was appended after this time."""
        return self._changed_until(group_id) + SETTLE_SECONDS >= appended_after

    def _changed_until(self, group_id: str) -> float:
        until = self._unknown_effects.get(group_id)
        return self._any_changed_until if until is None else max(until, self._any_changed_until)

    # Evidence.

    def record_bypass(self, subject: Subject, now: float, *, is_new: bool = True) -> None:
        """Notes that a client bypassed the sidecar. `is_new`: whether the record or member was not counted before."""
        self.last_at = now
        if is_new and isinstance(subject, str):
            self.members += 1
        elif is_new:
            self.commits += 1


def _key_bytes(key: tuple[str, Subject]) -> int:
    group_id, subject = key
    return ENTRY_BYTES + name_bytes(group_id) + name_bytes(subject if isinstance(subject, str) else subject[0])
