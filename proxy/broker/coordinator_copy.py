"""The copy of one broker's group coordinator, as the proxy uses it.

`CoordinatorCopy` owns the groups (`coordinator.manager`), and converts trio's clock to seconds since the epoch. The
class passes facts on to the observer. The class applies the deferred replies before a caller gets access to the groups,
so every decision about a group includes all earlier replies.
"""

import time
from collections.abc import Callable, Iterable, Iterator

import trio

from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.events import AnyEvent
from group_sidecar.coordinator.model.facts import ClientRefused, Fact
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker.answer_settings import AnswerSettings
from group_sidecar.proxy.broker.authorizer_state import AuthorizerState
from group_sidecar.proxy.broker.deferred_replies import DeferredReplies
from group_sidecar.proxy.config.limits_section import Limits

MAX_OFFSETS_WANTED = 1000
"""The maximum number of groups whose offsets the sidecar itself requests, after `forget_group_state`. The copy learns
the offsets of further groups from the replies to clients' questions."""
OFFSETS_TRIES = 5
"""How many times the sidecar requests the offsets of a group after `forget_group_state`."""


class CoordinatorCopy:
    """The groups of one broker. Parameters named `now` are on trio's clock.

    Args:
        settings: whether clients reach the broker only through this sidecar, and which hosts answers contain.
        limits: how many groups and offsets are kept.
        deferred: the replies that are applied before the groups are read or changed.
        authorizer_state: whether the broker may hide groups from the sidecar's own connection.
        traffic: counts refusals.
        observe: called with each fact.
        clock_offset: the time at which trio's clock reads zero, in seconds since the epoch; None to measure it.

    Attributes:
        offsets_wanted: groups that the copy has forgotten and whose offsets only the broker has. The value is the
            number of attempts that are left.
    """

    def __init__(
        self,
        settings: AnswerSettings,
        limits: Limits,
        deferred: DeferredReplies,
        authorizer_state: AuthorizerState,
        traffic: TrafficCounters,
        observe: Callable[[Fact], None],
        clock_offset: float | None = None,
    ) -> None:
        self.offsets_wanted: dict[str, int] = {}
        self._manager = GroupMetadataManager(
            exclusive=settings.exclusive,
            true_hosts=settings.true_hosts,
            max_groups=limits.groups,
            max_offsets=limits.offsets,
        )
        self._deferred = deferred
        self._authorizer_state = authorizer_state
        self._traffic = traffic
        self._observe = observe
        self._clock_offset = time.time() - trio.current_time() if clock_offset is None else clock_offset

    @property
    def manager(self) -> GroupMetadataManager:
        """The groups, to which all deferred replies have been applied."""
        self._deferred.apply_waiting()
        return self._manager

    def epoch(self, now: float) -> float:
        """Converts trio's clock to seconds since the epoch. The result does not jump with the system's clock."""
        return now + self._clock_offset

    # Changes.

    def apply(self, events: Iterable[AnyEvent], now: float) -> None:
        """Applies events to the groups and reports the facts."""
        self.report_facts(self.manager.apply(events, self.epoch(now)))

    def refresh(self, group_id: str, now: float) -> None:
        """Marks members of a group as overdue if their sessions must have expired."""
        self.report_facts(self.manager.refresh(group_id, self.epoch(now)))

    def sweep(self, now: float) -> Iterator[None]:
        """Marks members of all groups as overdue if their sessions must have expired. Yields between slices, so that
        other tasks can run.
        """
        for facts in self.manager.sweep(self.epoch(now)):
            self.report_facts(facts)
            yield

    def relist(self, now: float) -> Iterator[None]:
        """Updates the list from which ListGroups is answered. Yields between slices, so that other tasks can run."""
        return self.manager.update_listing(self.epoch(now))

    def forget_group_state(self, group_id: str, now: float) -> None:
        """Forgets a group whose copy is wrong. The copy then learns the group again."""
        self.manager.forget_group_state(group_id, self.epoch(now))
        if not self._authorizer_state.may_have_authorizer and len(self.offsets_wanted) < MAX_OFFSETS_WANTED:
            self.offsets_wanted[group_id] = OFFSETS_TRIES

    def count_offsets_attempt(self, group_id: str) -> None:
        """Counts one attempt to learn the offsets of a group in `offsets_wanted`. The last attempt removes the group
        from `offsets_wanted`.
        """
        self.offsets_wanted[group_id] -= 1
        if self.offsets_wanted[group_id] <= 0:
            del self.offsets_wanted[group_id]

    # Facts.

    def report_facts(self, facts: Iterable[Fact]) -> None:
        """Passes each fact to the observer."""
        for fact in facts:
            self._observe(fact)

    def refused(self, fact: ClientRefused) -> None:
        """Counts and reports that a policy refused a client, or, in audit mode, that the policy would have refused the
        client. The facts of deferred replies are reported first.
        """
        self._deferred.apply_waiting()
        if fact.enforced:
            self._traffic.policy_rejected(fact.policy, fact.error_code)
        else:
            self._traffic.policy_audited(fact.policy, fact.error_code)
        self._observe(fact)
