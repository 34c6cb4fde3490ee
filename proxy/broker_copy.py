"""What the sidecar knows of one broker, beside its groups.

Owns: `BrokerCopy`: the versions the broker offers, whether it has an authorizer, topic names by id,
whether it can be reached; and with these, whether a request may be answered here. Must not know:
frames, connections.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

import trio

from group_sidecar.codecs.registry import ApiKey
from group_sidecar.coordinator.events import AnyEvent, LogEndsSeen
from group_sidecar.coordinator.facts import Fact
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.views import Lacking, Snapshot, TopicPartition
from group_sidecar.metrics.traffic import Traffic
from group_sidecar.policies.group_max_size import GroupMaxSize
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.config import Config
from group_sidecar.proxy.rewrite import Advertise

MOST_NAMES = 100_000
"""Topic ids remembered; beyond it a commit by id is not followed."""
LOCAL_APIS = frozenset({ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH})


class BrokerCopy:
    """One upstream broker, as far as it is known.

    Args:
        address: where the broker is.
        config: all settings.
        traffic: is told what was answered, refused and left to the broker.
        observe: is told each fact.
        advertise: the address book of a gateway; None where nothing is rewritten.
        epoch_of_zero: what trio's clock reads as zero, in seconds since the epoch; measured where it is not given.
        interest: partitions whose log ends are of interest; those that this broker's own groups have committed
            where it is not given. A gateway's groups commit at one broker what another one leads.
    """

    def __init__(
        self,
        address: Address,
        config: Config,
        traffic: Traffic,
        observe: Callable[[Fact], None],
        advertise: Advertise | None = None,
        epoch_of_zero: float | None = None,
        interest: Callable[[], set[TopicPartition]] | None = None,
    ) -> None:
        self.address = address
        self.config = config
        self.traffic = traffic
        self.advertise = advertise
        self.manager = GroupMetadataManager(
            exclusive=config.answers.exclusive,
            most_groups=config.limits.groups,
            most_offsets=config.limits.offsets,
        )
        limit = config.policies.group_max_size
        self.group_max_size = GroupMaxSize(limit.limit, limit.error_code) if limit else None
        self.names: dict[UUID, str] = {}
        self._observe = observe
        self._interest = interest or self.manager.committed_partitions
        self._epoch_of_zero = time.time() - trio.current_time() if epoch_of_zero is None else epoch_of_zero
        self._versions: Mapping[int, tuple[int, int]] | None = None
        self._authorizer = False if config.answers.authorizer == "none" else None
        self._trouble: str | None = "not asked yet"

    # Time and state.

    def epoch(self, now: float) -> float:
        """The shell's clock, in seconds since the epoch. It does not jump with the system's."""
        return now + self._epoch_of_zero

    def apply(self, events: Iterable[AnyEvent], now: float) -> None:
        """Applies events to the groups and tells the facts. `now`: the shell's clock."""
        self._tell(self.manager.apply(events, self.epoch(now)))

    def refresh(self, group_id: str, now: float) -> None:
        """Lets a group's overdue members go."""
        self._tell(self.manager.refresh(group_id, self.epoch(now)))

    def sweep(self, now: float) -> None:
        """Lets all groups' overdue members go."""
        self._tell(self.manager.sweep(self.epoch(now)))

    def snapshot(self, now: float) -> Snapshot:
        """All that is known of the groups."""
        return self.manager.snapshot(self.epoch(now))

    def _tell(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            self._observe(fact)

    def tell(self, fact: Fact) -> None:
        """Tells a fact that no event brought."""
        self._observe(fact)

    # What may be answered here.

    def lacks(self, api_key: int) -> bool:
        """Whether the broker is known not to have an API."""
        return self._versions is not None and api_key not in self._versions

    def withheld(self, api_key: int) -> Lacking | None:
        """Why no request of this API may be answered here, whatever the groups; None where it may."""
        if not self.config.answers.enabled:
            return Lacking.OFF
        if self.lacks(api_key):
            return None
        if self._authorizer is not False:
            return Lacking.UNAUTHORIZED
        return None if self.config.answers.exclusive else Lacking.COLD

    # What the prober learns.

    def learn_versions(self, versions: Mapping[int, tuple[int, int]]) -> None:
        """The broker's own ApiVersions: (lowest, highest) by API key."""
        self._versions = dict(versions)

    def learn_authorizer(self, present: bool) -> None:
        """Whether the broker has an authorizer; then every question about groups is left to it."""
        if self.config.answers.authorizer == "auto":
            self._authorizer = present

    def learn_groups_at_start(self, groups: list[str] | None) -> None:
        """The groups that have a past. None: the broker cannot list them, and the operator's word counts."""
        self.manager.inherit(groups or ())

    def learn_names(self, names: Mapping[UUID, str]) -> None:
        """Topic names by id."""
        for topic_id, name in names.items():
            if topic_id in self.names or len(self.names) < MOST_NAMES:
                self.names[topic_id] = name

    def committed_partitions(self) -> set[TopicPartition]:
        """Partitions whose log ends are of interest."""
        return self._interest()

    def learn_log_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Ends of logs."""
        self.apply([LogEndsSeen(ends=ends)], trio.current_time())

    def probe_failed(self, reason: str) -> None:
        """The broker did not answer the prober."""
        self._trouble = reason

    def probe_succeeded(self) -> None:
        """The broker answered the prober."""
        self._trouble = None

    def ready(self) -> tuple[bool, str]:
        """Whether the broker answers, and what is wrong where it does not."""
        return self._trouble is None, self._trouble or "reachable"
