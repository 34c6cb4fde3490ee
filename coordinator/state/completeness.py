"""Why the copy of one group's members is not complete.

`Completeness` holds everything that is missing from one group. `confidence` combines these reasons with what is missing
from the whole copy, and decides for each kind of question.
"""

from group_sidecar.coordinator.model.events import NEVER
from group_sidecar.coordinator.model.state_transitions import SETTLED
from group_sidecar.coordinator.model.views import FallbackReason, GroupKind, GroupState
from group_sidecar.coordinator.state.lifecycle import Lifecycle
from group_sidecar.coordinator.state.logged_state import LoggedState
from group_sidecar.coordinator.state.roster import Roster
from group_sidecar.coordinator.state.unread_writes import UnreadWrites


class Completeness:
    """Why the copy's members of a group may differ from the broker's.

    Attributes:
        incomplete_reason: why the members may not be all members of the generation; None if they are.
        doubted_until: until when a request may still change the group.
        lost_until: until when a lost or unread request may still change the group.
        metadata_omitted: whether metadata or assignments of members are missing, because there was no room for them.
        epoch: the epoch of unread writes at which the group was last checked.
    """

    def __init__(self, incomplete_reason: FallbackReason | None, unread_writes: UnreadWrites) -> None:
        self.incomplete_reason = incomplete_reason
        self.doubted_until = self.lost_until = NEVER
        self.metadata_omitted = False
        self.epoch = unread_writes.epoch
        self._unread_writes = unread_writes
        self._checked_at, self._identified = -1, False

    # Reasons for which the copy becomes incomplete. Most methods keep an earlier reason.

    def begin_generation(self) -> None:
        """Makes the members incomplete at the start of a generation, until the leader's reply lists all of them."""
        self.incomplete_reason = self.incomplete_reason or FallbackReason.IN_DOUBT

    def miss_metadata(self) -> None:
        """Makes the members incomplete because the metadata of a member is unknown, until the broker describes it."""
        self.incomplete_reason = self.incomplete_reason or FallbackReason.IN_DOUBT

    def miss_members(self) -> None:
        """Makes the members incomplete after the copy missed a member's join or a generation's beginning.

        More members may be missing.
        """
        self.incomplete_reason = self.incomplete_reason or FallbackReason.COLD

    def doubt(self, until: float) -> None:
        """Makes the members incomplete, because the outcome of a request is unknown.

        The broker executes that request before the time `until`, if at all.
        """
        self.incomplete_reason = self.incomplete_reason or FallbackReason.IN_DOUBT
        self.doubted_until = max(self.doubted_until, until)

    def wait(self, until: float) -> None:
        """Notes that a lost or unread request may still change the group before the time `until`."""
        self.doubted_until, self.lost_until = max(self.doubted_until, until), max(self.lost_until, until)

    def drop_metadata(self) -> None:
        """Notes that metadata or assignments of members were dropped, because there was no room for them."""
        self.metadata_omitted = True

    def note_undecoded_write(self) -> None:
        """Makes the members incomplete, because a write or record that may have changed them could not be decoded."""
        self.incomplete_reason = FallbackReason.UNDECODABLE

    def begin(self, until: float) -> None:
        """Notes that a lost request may change the new group before the time `until`."""
        self.doubted_until = self.lost_until = until

    # Reasons for which the copy becomes complete.

    def all_known(self) -> None:
        """Marks the members as complete."""
        self.incomplete_reason = None

    def describe(self) -> None:
        """Marks members and metadata as complete after the broker has described the group."""
        self.incomplete_reason, self.metadata_omitted = None, False

    def adopt_logged(self) -> None:
        """Ends the reason COLD, because the members were read from the log."""
        if self.incomplete_reason is FallbackReason.COLD:
            self.incomplete_reason = None

    def will_be_described(self) -> None:
        """Changes the reason from COLD to IN_DOUBT, because the broker will be asked for the unobserved members."""
        if self.incomplete_reason is FallbackReason.COLD:
            self.incomplete_reason = FallbackReason.IN_DOUBT

    def begin_epoch(self, epoch: int) -> int:
        """Notes that the unread writes up to this epoch were checked. Returns the epoch of the last check."""
        before, self.epoch = self.epoch, epoch
        return before

    # The reason.

    def settled_at(self, group_id: str) -> float:
        """Returns the time after which no lost or unread request can change the group.

        A reply is up to date if it was requested after this time.
        """
        return max(self.doubted_until, self._unread_writes.until_of(group_id))

    def unknown_until(self, group_id: str) -> float:
        """Returns the time after which no request of unknown content or effect can change the group."""
        return max(self.lost_until, self._unread_writes.until_of(group_id))

    def identifies_members(self, roster: Roster, changes: int) -> bool:
        """Whether the client id and the host of every member are known. `changes`: the number of the group's last
        change.

        The result is kept until the next change, because all groups are checked several times per second.
        """
        if self._checked_at != changes:
            self._checked_at = changes
            self._identified = all(member.client_host and member.certain for member in roster.members.values())
        return self._identified

    def reason(
        self, lifecycle: Lifecycle, logged_state: LoggedState, roster: Roster, *, joins: bool, changes: int, now: float
    ) -> FallbackReason | None:
        """Returns why state and members of the group may not be used to answer; None if they may.

        `joins` is whether any join is without a reply. `changes` is the number of the group's last change.
        """
        if lifecycle.kind is not GroupKind.CLASSIC:
            known = logged_state.consumer is not None and logged_state.consumer.state is not None
            return self.incomplete_reason if known else FallbackReason.VERSION
        if self.incomplete_reason is not None:
            return self.incomplete_reason
        if joins or roster.overdue or lifecycle.state not in SETTLED:
            return FallbackReason.IN_DOUBT
        if lifecycle.state is GroupState.STABLE and not lifecycle.assignments_known:
            return FallbackReason.IN_DOUBT
        if not self.identifies_members(roster, changes):
            return FallbackReason.COLD
        return None if now <= roster.earliest_timeout(changes, now) else FallbackReason.IN_DOUBT
