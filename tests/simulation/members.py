"""Clients that are members of groups, as Kafka's consumers are."""

from random import Random
from typing import TYPE_CHECKING, Any

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest
from group_sidecar.codecs.messages.join_group import JoinGroupMember, JoinGroupProtocol, JoinGroupRequest
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, MemberIdentity
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.world import LOST_ID
from tests.simulation.checker import REFUSED
from tests.simulation.client import SimulatedClient
from tests.simulation.questions import commit_of, offset_fetch

if TYPE_CHECKING:
    from tests.simulation.world import World

SESSION_MS, REBALANCE_MS = 10_000, 15_000
HEARTBEAT_SECONDS = 1.0
RESTARTS = 0.25
"""The share of broken connections after which the member has ended, and starts without its member id."""
LONG_ABSENCES = 0.1
"""The share of broken connections after which a member stays away for about as long as its session lasts."""

DELETED_GROUPS = 0.4
"""The share of departures after which the member deletes its group. The broker refuses this if other members remain."""


class Member(SimulatedClient):
    """A member of a group: joins, syncs, sends heartbeats and commits, leaves, and joins again."""

    def __init__(
        self, world: "World", name: str, address: str, rng: Random, group_id: str, instance_id: str | None
    ) -> None:
        super().__init__(world, name, address, rng)
        self.group_id, self.instance_id = group_id, instance_id
        self._join_version = self._any_join_version()
        self._member_id, self._generation = "", -1
        self._roster: tuple[JoinGroupMember, ...] = ()
        self._is_synced = False
        self._metadata = b"subscription"
        self._offset = 0
        self._beats = 0
        """The number of the current loop of heartbeats. A loop ends when this is no longer its number."""
        self._hangs_until = self._absence = 0.0

    def _any_join_version(self) -> int:
        """Returns an old version, which has no instance ids and issues no member ids, or another one."""
        if self.instance_id is None and self.rng.random() < self.world.scenario.old_members:
            return self.rng.choice((2, 3))
        return self.rng.choice((9, 9, 7, 5))

    def connected(self) -> None:
        """See SimulatedClient."""
        self._go_on()

    def lost(self) -> None:
        """See SimulatedClient. Sometimes the client has ended, and starts without its member id."""
        self._beats += 1
        if self.rng.random() < RESTARTS:
            self._forget()

    def away_seconds(self) -> float:
        """See SimulatedClient. Sometimes the client stays away until its session expires."""
        if self._absence:
            seconds, self._absence = self._absence, 0.0
            return seconds
        is_long = not self.stops and self.rng.random() < LONG_ABSENCES
        return self.rng.uniform(0.5, 2.0) * SESSION_MS / 1000 if is_long else super().away_seconds()

    def hang(self, seconds: float) -> None:
        """Sends no new request for some seconds. The connection stays open."""
        self._hangs_until = self.world.timeline.now + seconds

    def vanish(self, seconds: float) -> None:
        """Closes the connection, and stays away for some seconds."""
        self._absence = seconds
        self.disconnect()
        self._absence = 0.0

    def _forget(self) -> None:
        self._member_id, self._generation, self._roster, self._is_synced = "", -1, (), False

    def _soon(self, low: float = 0.0, high: float = 0.3) -> None:
        """Goes on after a pause, unless the connection has ended by then."""
        self._beats += 1
        beats = self._beats
        self.world.timeline.after(self.rng.uniform(low, high), lambda: self._go_on() if beats == self._beats else None)

    def _go_on(self) -> None:
        if not self.is_connected or self.is_waiting:
            return
        if (left := self._hangs_until - self.world.timeline.now) > 0:
            self._soon(left, left)
        elif self._generation < 0:
            self._join()
        elif not self._is_synced:
            self._sync()
        elif not self.stops and self.rng.random() < self.world.scenario.churn:
            self._leave()
        elif not self.stops and self.rng.random() < self.world.scenario.churn:
            self._metadata += b"!"
            self._join()
        else:
            self._work()

    def _join(self) -> None:
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=(JoinGroupProtocol(name="range", metadata=self._metadata),),
        )
        self.ask(request, self._join_version, self._joined)

    def _joined(self, reply: Any) -> None:
        if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = reply.member_id
            self.world.learn_member(self, reply.member_id)
            self._go_on()
        elif reply.error_code:
            self._failed(reply.error_code)
        else:
            self.world.learn_member(self, reply.member_id)
            self._member_id, self._generation = reply.member_id, reply.generation_id
            self._roster, self._is_synced = reply.members, reply.skip_assignment
            self._soon(0.0, 0.05)

    def _sync(self) -> None:
        salt = self.rng.choice("xyz")
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=f"{salt}{each.member_id}".encode())
                for each in self._roster
            ),
        )
        self.ask(request, self.rng.choice((3, 5)), self._synced)

    def _synced(self, reply: Any) -> None:
        if reply.error_code:
            self._failed(reply.error_code)
        else:
            self._is_synced = True
            self._soon()

    def _failed(self, error: int) -> None:
        """Joins again later, as consumers do after an error."""
        self._generation, self._is_synced = -1, False
        if error in LOST_ID or error in REFUSED:
            self._member_id = ""
        if error in REFUSED:
            self._soon(2.0, 5.0)
        else:
            self._soon(0.05, 0.6)

    def _work(self) -> None:
        """Sends a heartbeat. Sometimes sends a commit before it, or a commit and a question."""
        beat = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
        )
        if self.rng.random() < 0.4 and self.world.scenario.commits and not self.stops:
            self._offset += self.rng.randrange(1, 4)
            partition = self.rng.randrange(2)
            request = commit_of(
                self.group_id, {partition: self._offset}, self._generation, self._member_id, self.instance_id
            )
            self.ask(request, self.rng.choice((7, 9)), lambda reply: None)
            if self.rng.random() < 0.4:
                self.ask(*offset_fetch(self.rng, [self.group_id]), lambda reply: None)
        self.ask(beat, self.rng.choice((3, 4)), self._beaten)

    def _beaten(self, reply: Any) -> None:
        if reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._generation, self._is_synced = -1, False
            self._soon()
        elif reply.error_code:
            self._failed(reply.error_code)
        else:
            self._soon(HEARTBEAT_SECONDS * 0.5, HEARTBEAT_SECONDS * (3.0 if self.stops else 1.5))

    def _leave(self) -> None:
        identity = MemberIdentity(member_id=self._member_id, group_instance_id=self.instance_id)
        self.ask(LeaveGroupRequest(group_id=self.group_id, members=(identity,)), 4, lambda reply: self._left())

    def _left(self) -> None:
        """Stays away for some seconds. Sometimes it first deletes the group, like the user of a short-lived group."""
        self._forget()
        if self.rng.random() < DELETED_GROUPS:
            request = DeleteGroupsRequest(groups_names=(self.group_id,))
            self.ask(request, self.rng.randrange(3), lambda reply: self._soon(0.5, 8.0))
        else:
            self._soon(0.5, 8.0)
