"""The rebalance of one group that is in progress, and the counts that are kept until it ends.

`rules.causes` finds the cause of a rebalance. `lifecycle` has the state of the group.
"""

from collections.abc import Container, Iterable, Mapping, Set

from group_sidecar.coordinator.model.events import NEVER, JoinAccepted, JoinSent
from group_sidecar.coordinator.state.expired_clients import ExpiredClients, ExpiredClientsBudget
from group_sidecar.coordinator.state.member import Member
from group_sidecar.coordinator.state.rebalance import CauseDetails, OwnedPartitions, Rebalance

NO_IDS = frozenset[str]()


class RebalanceTracking:
    """Tracks the rebalances of one group.

    Args:
        expired_clients_budget: counts the expired clients of all groups.

    Attributes:
        rebalance: the rebalance that is in progress; None if there is none.
        last_rebalance_at: when the last rebalance ended; None before the first observed rebalance.
        expected_cause: the expected cause of the next rebalance of a KIP-848 group; None if unknown. The log has not
            shown that rebalance yet.
        previous_assignments: the assignments before the rebalance, by instance or member id; None without a rebalance,
            or if these assignments are not known.
        joined_since_rebalance, left_since_rebalance: ids of the members that joined and left since the last rebalance.
        expired_clients: the clients that may come back after their members' sessions have expired.
    """

    def __init__(self, expired_clients_budget: ExpiredClientsBudget) -> None:
        self.rebalance: Rebalance | None = None
        self.last_rebalance_at: float | None = None
        self.expected_cause: CauseDetails | None = None
        self.previous_assignments: dict[str, bytes] | None = None
        self.joined_since_rebalance: Set[str] = NO_IDS
        self.left_since_rebalance: Set[str] = NO_IDS
        self.expired_clients = ExpiredClients(expired_clients_budget)

    # The rebalance in progress.

    def begin(self, details: CauseDetails, since: float) -> None:
        """Begins a rebalance of a classic group, which waits for joins from the time `since`.

        A rebalance that is already in progress keeps its cause and its start.
        """
        if self.rebalance is None:
            self.rebalance = Rebalance(cause_details=details, started_at=since, waiting_since=since)
        self.rebalance.waiting_since = since

    def begin_consumer(self, details: CauseDetails, now: float, owners: Mapping[str, OwnedPartitions]) -> None:
        """Begins a rebalance of a KIP-848 group, whose epoch has grown.

        `owners` has the partitions that each member owned before the new epoch. A rebalance that has not ended keeps
        its cause and its start.
        """
        if self.rebalance is None or self.rebalance.done_at != NEVER:
            self.rebalance = Rebalance(cause_details=details, started_at=now, waiting_since=now, owners=owners)

    def resume(self, rebalance: Rebalance) -> None:
        """Restores the rebalance in progress, after the adoption of a generation from the log has dropped it."""
        self.rebalance = rebalance

    def explain(self, details: CauseDetails) -> None:
        """Sets the cause of the rebalance, unless the cause is already known."""
        if self.rebalance is not None and not self.rebalance.cause_details.known:
            self.rebalance.cause_details = details

    def correct(self, details: CauseDetails) -> None:
        """Replaces the cause of the rebalance."""
        if self.rebalance is not None:
            self.rebalance.cause_details = details

    def joins_complete(self, joins: Iterable[JoinSent]) -> None:
        """Notes the end of the join phase. `joins` are the joins without a reply."""
        if self.rebalance is not None:
            self.rebalance.begin_generation(joins)

    def join_answered(self, event: JoinAccepted) -> None:
        """Notes the reply to a join that waited for this generation."""
        if self.rebalance is not None:
            self.rebalance.record_join(event)

    def stabilise(self, now: float, members: Container[str]) -> None:
        """Ends the rebalance, because the generation is stable. `members` are the members of the generation."""
        self.last_rebalance_at = now
        self.expired_clients.rebalanced(by_return=self.rebalance is not None and self.rebalance.is_return)
        if self.rebalance is not None:
            self.rebalance.done_at = now
            self.rebalance.joined, self.rebalance.left = self.take_counts(members)

    def finish(self, now: float) -> None:
        """Ends the rebalance of a KIP-848 group."""
        self.rebalance, self.last_rebalance_at = None, now
        self.expired_clients.rebalanced(by_return=False)

    def drop(self) -> None:
        """Drops the rebalance without reporting it as completed."""
        self.rebalance = None

    def abandon(self) -> None:
        """Drops the rebalance and the assignments before it."""
        self.rebalance, self.previous_assignments = None, None

    # Values that are kept until the rebalance ends.

    def expect(self, details: CauseDetails) -> None:
        """Keeps the cause of the next rebalance of a KIP-848 group."""
        self.expected_cause = details

    def take_expected(self) -> CauseDetails | None:
        """Returns the expected cause and forgets it."""
        details, self.expected_cause = self.expected_cause, None
        return details

    def save_owners(self, assignments: dict[str, bytes]) -> None:
        """Keeps the assignments before the rebalance."""
        self.previous_assignments = assignments

    def take_owners(self) -> dict[str, bytes] | None:
        """Returns the assignments before the rebalance and forgets them."""
        assignments, self.previous_assignments = self.previous_assignments, None
        return assignments

    def count_joined(self, members: Iterable[Member]) -> None:
        """Counts members that joined, without members whose client is not known."""
        self.joined_since_rebalance = _with_identified(self.joined_since_rebalance, members)

    def count_unidentified(self, member_ids: Iterable[str]) -> None:
        """Counts members that joined and whose clients are not known yet, by their ids."""
        self.joined_since_rebalance = {*self.joined_since_rebalance, *member_ids}

    def count_left(self, members: Iterable[Member]) -> None:
        """Counts members that left, without members whose client is not known."""
        self.left_since_rebalance = _with_identified(self.left_since_rebalance, members)

    def take_counts(self, members: Container[str]) -> tuple[int, int]:
        """Returns how many members joined, and how many left and have not returned. Resets both counts.

        `members` are the member ids of the generation.
        """
        joined_ids, left_ids, self.joined_since_rebalance, self.left_since_rebalance = (
            self.joined_since_rebalance,
            self.left_since_rebalance,
            NO_IDS,
            NO_IDS,
        )
        return len(joined_ids), sum(member_id not in members for member_id in left_ids)

    def forget(self) -> None:
        """Forgets owners and counts, so that they do not count towards the next rebalance."""
        self.previous_assignments, self.joined_since_rebalance, self.left_since_rebalance = None, NO_IDS, NO_IDS


def _with_identified(names: Set[str], members: Iterable[Member]) -> Set[str]:
    """Returns the names together with the ids of those members whose client is known.

    If `names` is a set, it is changed in place, because each member of a group of 5,000 may leave separately.
    """
    added = [member.member_id for member in members if member.client_host]
    if not added:
        return names
    if not isinstance(names, set):
        return set(added)
    names.update(added)
    return names
