"""The state and the generation of one group.

`Lifecycle` changes its state only along the table `model.state_transitions.TRANSITIONS`. The members are in `roster`.
"""

from group_sidecar.codecs.offsets_topic_values import GroupMetadataValue
from group_sidecar.coordinator.model.events import NEVER, GroupDescribed, JoinAccepted
from group_sidecar.coordinator.model.state_transitions import REPORTED, StateChange, next_state
from group_sidecar.coordinator.model.views import ConsumerGroupView, GroupKind, GroupState

UNKNOWN_GENERATION = -1
"""Stands for an unknown generation. A description does not contain the generation, but the next request of a member
does."""


class Lifecycle:
    """The state of a group, its generation, and the protocol of the generation.

    Attributes:
        kind: the protocol that the group uses.
        state: the state of a classic group. `LoggedState.consumer` has the state of a group of another kind.
        generation: the number of the generation, or the epoch of a KIP-848 group.
        passed_generation: the generation that has ended according to a description, if its successor was not seen.
        generation_at: when the generation was first seen.
        stable_at: when the generation was first seen stable, or when the broker last described the group as Stable.
        protocol_type, protocol, leader: the broker's values for the generation; empty if unknown.
        assignments_known: whether all assignments of the generation are known.
    """

    def __init__(self) -> None:
        self.kind = GroupKind.CLASSIC
        self.state = GroupState.DEAD  # Until the broker has shown that the group exists.
        self.generation = 0
        self.passed_generation = UNKNOWN_GENERATION
        self.generation_at = self.stable_at = NEVER
        self.protocol_type = self.protocol = self.leader = ""
        self.assignments_known = False

    def _change(self, change: StateChange) -> None:
        self.state = next_state(self.state, change)

    # Transitions of Kafka's state machine.

    def create(self) -> None:
        """Makes the group Empty, because the broker has created it."""
        self._change(StateChange.CREATED)

    def prepare_rebalance(self) -> None:
        """Makes the group PreparingRebalance, because the broker waits for the members' joins."""
        self._change(StateChange.REBALANCE_BEGAN)

    def start_generation(self, event: JoinAccepted, now: float) -> None:
        """Starts the generation that a join's reply contains. The reply shows that the join phase has ended."""
        self.kind = GroupKind.CLASSIC
        self._change(StateChange.JOINS_COMPLETED)
        self.generation, self.generation_at, self.stable_at = event.generation, now, NEVER
        self.passed_generation = UNKNOWN_GENERATION
        self.protocol_type, self.protocol, self.leader = event.protocol_type, event.protocol, event.leader
        self.assignments_known = False

    def first_sync(self, now: float) -> None:
        """Notes when the generation became stable, at the first reply to a sync."""
        if self.stable_at == NEVER:
            self.stable_at = now

    def know_assignments(self) -> None:
        """Notes that all assignments of the generation are known."""
        self.assignments_known = True

    def stabilise(self) -> None:
        """Makes the group Stable, because the broker has the assignments of the generation."""
        self._change(StateChange.SYNCED)

    def empty_out(self, now: float, *, kept: bool) -> None:
        """Makes the group Empty after its last member has left.

        `kept` is whether the broker keeps a group without members and increments its generation.
        """
        self._change(StateChange.LAST_MEMBER_LEFT)
        self.generation, self.generation_at = self.generation + 1 if kept else 0, now
        self.protocol = self.leader = ""

    def succeed_leader(self, old_id: str, new_id: str) -> None:
        """Replaces the leader's member id if the leader is a static member with a new member id."""
        if self.leader == old_id:
            self.leader = new_id

    # Changes that correct the state after unobserved steps of the broker.

    def disprove_rebalance(self) -> None:
        """Returns the group to Stable, because the broker turned out not to prepare a rebalance."""
        self._change(StateChange.REBALANCE_DISPROVED)

    def find_member(self) -> None:
        """Makes the group Stable, because a group without known members turned out to have a member."""
        self._change(StateChange.MEMBER_FOUND)

    def number_generation(self, generation: int, now: float) -> None:
        """Sets the number of the generation and the time at which it was first seen."""
        self.generation, self.generation_at = generation, now

    def adopt_generation(self, generation: int, now: float) -> None:
        """Adopts a generation whose beginning was not observed."""
        self._change(StateChange.GENERATION_FOUND)
        self.number_generation(generation, now)
        self.assignments_known = False

    def forget_generation(self) -> None:
        """Marks the number of the generation as unknown."""
        self.generation = UNKNOWN_GENERATION

    def pass_generation(self) -> None:
        """Notes that an unseen generation has begun, so that a record of the previous generation is outdated."""
        self.passed_generation = self.generation

    def report(self, state: GroupState) -> None:
        """Sets a state that was reported, or that follows from the members. Any state may follow any other state."""
        self._change(REPORTED[state])

    def describe(self, event: GroupDescribed, now: float) -> None:
        """Adopts the state and protocol from the broker's description of the group."""
        self.kind = GroupKind.CLASSIC
        self.report(event.state)
        self.protocol_type = event.protocol_type
        if event.state is GroupState.STABLE:
            self.protocol, self.stable_at = event.protocol, now
        elif event.state is GroupState.EMPTY:
            self.protocol = self.leader = ""
        self.assignments_known = event.state is GroupState.STABLE

    # Records of the log.

    def become_classic(self) -> None:
        """Makes a group of another kind classic, because the log has a classic generation of the group."""
        self.kind, self.generation = GroupKind.CLASSIC, UNKNOWN_GENERATION

    def take_names(self, value: GroupMetadataValue) -> None:
        """Sets protocol type, protocol and leader from a record of the generation."""
        self.protocol_type, self.protocol = value.protocol_type, value.protocol or ""
        self.leader = value.leader or ""

    def adopt_logged(self, value: GroupMetadataValue, now: float) -> None:
        """Adopts a generation from the log that the wire has not shown."""
        self.generation, self.generation_at, self.stable_at = value.generation, now, now
        self.take_names(value)
        self.report(GroupState.STABLE if value.members else GroupState.EMPTY)
        self.assignments_known = True

    def confirm_logged(self, now: float) -> None:
        """Makes the group Stable, because the log contains the generation whose joins were seen.

        The broker writes a generation to the log when its leader has synced.
        """
        self.stabilise()
        self.stable_at = now

    def lose_metadata(self, *, kept: bool) -> None:
        """Makes the group Empty, because the log has only offsets of the group and no generation any more.

        `kept` is whether the broker keeps a group without members and increments its generation.
        """
        self.kind = GroupKind.CLASSIC
        self.report(GroupState.EMPTY)
        self.protocol_type = "" if kept else self.protocol_type
        self.protocol = self.leader = ""
        self.generation = 0

    # Groups of newer protocols.

    def follow_log(self, view: ConsumerGroupView) -> None:
        """Takes kind and epoch from the log, which describes a group of a newer protocol."""
        self.kind, self.protocol_type, self.generation = view.kind, str(view.kind), view.epoch

    def become_consumer(self, epoch: int) -> None:
        """Makes the group a consumer group, because one of its members was seen before the log showed the group."""
        self.kind, self.protocol_type = GroupKind.CONSUMER, "consumer"
        self.generation = max(self.generation, epoch)
