"""A simulated fleet: the coordinator of each group, the leader of each partition, and all offsets at any moment.

All values follow from the seed and the moment. So any process can compute the state that any sidecar sees at any time.
The truth can be computed without reading the written records. Moments are milliseconds since the beginning of the
fleet, unless stated otherwise.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

HOUR, EDGE = 3_600_000, 5_000
"""Milliseconds of an hour, and of its margin. No event is in the margin, because a wrong clock could move such an event
into another hour."""
COMMIT_EVERY, COMMIT_PHASES = 5_000, 50
STALE = 600_000
"""Milliseconds for which a broker's sidecar continues to report a group that has moved away."""
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The size of a fleet and the simulated time.

    Attributes:
        begin: seconds since the epoch, at the full hour.
        partitions: partitions of all topics together, at least one per topic.
        commits: committed offsets, over all groups and partitions.
        interval_seconds: seconds between two snapshots, from 15 to 300.
        segment_seconds, segment_bytes: the age and the size at which a sidecar seals a segment.
        facts: events per group and hour, on average: rebalances, refusals and audits.
        moves: the share of groups whose coordinator changes.
        damage: the share of duplicate segments, and of late segments. A hundredth of this share of the lines is
            damaged.
    """

    begin: int
    hours: int = 1
    sidecars: int = 20
    groups: int = 1_500
    topics: int = 500
    partitions: int = 5_000
    commits: int = 10_000
    interval_seconds: int = 60
    segment_seconds: int = 300
    segment_bytes: int = 8 << 20
    facts: float = 0.5
    moves: float = 0.01
    damage: float = 0.02
    seed: int = 8

    @property
    def length(self) -> int:
        """The simulated time in milliseconds."""
        return self.hours * HOUR

    @property
    def interval(self) -> int:
        """Milliseconds between two snapshots."""
        return self.interval_seconds * 1000

    @property
    def rounds(self) -> int:
        """How many snapshots each sidecar writes."""
        return self.length // self.interval

    @property
    def snapshot_records(self) -> int:
        """The number of records in one snapshot of all sidecars, without moved groups and unseen log ends."""
        return self.sidecars + self.groups + self.commits + self.partitions


def shares(total: int, parts: int, exponent: float = 0.8) -> Numbers:
    """Divides a whole number by Zipf's law into parts of at least 1, the largest first."""
    weights = 1 / np.arange(1, parts + 1) ** exponent
    found: Numbers = 1 + ((total - parts) * weights / weights.sum()).astype(np.int64)
    found[0] += total - found.sum()
    return found


def commit_time(moment: Numbers, phase: Numbers) -> Numbers:
    """Returns the time of a group's last commit before a moment. `phase` is less than COMMIT_PHASES."""
    step = COMMIT_EVERY // COMMIT_PHASES
    return moment - (moment + phase * step) % COMMIT_EVERY


class Shape:
    """A fleet as arrays.

    Attributes:
        phase, skew: by sidecar: the time of its snapshot within an interval, and how far its clock is ahead.
        topic, number, leader, rate, base: by partition: its topic, its number in the topic, the sidecar of its leader,
            messages per 1,000 seconds, and the log end at the beginning.
        seen: by partition: whether any sidecar sees its log end.
        home, members, generation, commit_phase, stuck_at: by group. The group stops committing at `stuck_at`.
        moved_at, moved_to: by group: when the group moves to another sidecar's broker; NEVER for most groups.
        group, partition, behind: by commit: its group, its partition, and its lag in messages at the time of the
            commit.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        random = np.random.default_rng(fleet.seed)
        self._sidecars(random)
        self._partitions(random)
        self._groups(random)
        self._commits(random)

    def _sidecars(self, random: np.random.Generator) -> None:
        fleet = self.fleet
        self.phase = random.integers(EDGE, fleet.interval - EDGE, fleet.sidecars)
        self.skew = np.zeros(fleet.sidecars, np.int64)
        # One sidecar in five has a wrong clock. Groups move only between sidecars with a right clock, such as the first
        # four.
        wrong = np.arange(fleet.sidecars) % 5 == 4
        self.skew[wrong] = random.integers(-3_000, 3_000, int(wrong.sum()))

    def _partitions(self, random: np.random.Generator) -> None:
        fleet, of_topic = self.fleet, shares(self.fleet.partitions, self.fleet.topics)
        random.shuffle(of_topic)
        self.topic = np.repeat(np.arange(fleet.topics), of_topic)
        first = np.cumsum(of_topic) - of_topic
        self.first = first
        self.number = np.arange(fleet.partitions) - first[self.topic]
        self.leader = (self.topic + self.number) % fleet.sidecars
        self.base = random.integers(1_000_000, 1_000_000_000, fleet.partitions)
        self.rate = np.minimum(random.lognormal(8, 2, fleet.partitions), 1e7).astype(np.int64)
        self.rate[random.random(fleet.partitions) < 0.3] = 0
        self.seen = random.random(fleet.partitions) >= 0.01

    def _groups(self, random: np.random.Generator) -> None:
        fleet = self.fleet
        self.home = random.integers(0, fleet.sidecars, fleet.groups)
        self.members = np.minimum(random.zipf(1.6, fleet.groups), 500)
        self.members[random.random(fleet.groups) < 0.05] = 0
        self.generation = random.integers(1, 500, fleet.groups)
        self.commit_phase = random.integers(0, COMMIT_PHASES, fleet.groups)
        self.stuck_at = np.where(
            random.random(fleet.groups) < 0.02, random.integers(0, fleet.length, fleet.groups), NEVER
        )
        moves = (random.random(fleet.groups) < fleet.moves) & (self.home % 5 != 4)
        self.moved_at = np.where(moves, random.integers(EDGE, fleet.length - EDGE, fleet.groups), NEVER)
        self.moved_to = (self.home + 1) % fleet.sidecars
        self.moved_to[self.moved_to % 5 == 4] = 0
        self.moved_at[self.moved_to == self.home] = NEVER

    def _commits(self, random: np.random.Generator) -> None:
        fleet = self.fleet
        sizes = np.minimum(shares(fleet.commits, fleet.groups), fleet.partitions)
        random.shuffle(sizes)
        # The popularity of topics follows Zipf's law too, so most groups begin with one of the first topics.
        begins = self.first[np.minimum(random.zipf(1.3, fleet.groups) - 1, fleet.topics - 1)]
        self.group = np.repeat(np.arange(fleet.groups), sizes)
        within = np.arange(len(self.group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        self.partition = (begins[self.group] + within) % fleet.partitions
        self.behind = np.minimum(random.lognormal(4, 2, len(self.group)), 900_000).astype(np.int64)
        self.behind[random.random(len(self.group)) < 0.6] = 0

    @cached_property
    def topics(self) -> list[str]:
        """Returns the names of the topics."""
        kinds = ("orders", "payments", "clicks", "audit.log", "größen")
        return [f"{kinds[index % len(kinds)]}-{index:05}" for index in range(self.fleet.topics)]

    @cached_property
    def groups(self) -> list[str]:
        """Returns the names of the groups."""
        kinds = ("checkout", "connect-sink", 'say-"hello"', "billing", "etl_nightly")
        return [f"{kinds[index % len(kinds)]}-{index:06}" for index in range(self.fleet.groups)]

    @cached_property
    def sidecars(self) -> list[str]:
        """Returns the ids of the sidecars."""
        return [f"kafka-{index:04}" for index in range(self.fleet.sidecars)]

    def log_end(self, partitions: Numbers, moment: Numbers | int) -> Numbers:
        """Returns log ends, at one moment for all partitions or at a moment for each."""
        ends: Numbers = self.base[partitions] + self.rate[partitions] * moment // 1_000_000
        return ends

    def committed_at(self, commits: Numbers, moment: Numbers | int, *, away: bool = False) -> Numbers:
        """Returns the times of the last commits before a moment.

        `away` selects the view of the sidecar that the group moved away from.
        """
        groups = self.group[commits]
        until = np.minimum(moment, self.stuck_at[groups])
        if away:
            until = np.minimum(until, self.moved_at[groups])
        return commit_time(until, self.commit_phase[groups])

    def committed(self, commits: Numbers, made_at: Numbers) -> Numbers:
        """Returns the offsets that were committed at these moments."""
        partitions = self.partition[commits]
        offsets: Numbers = np.maximum(self.log_end(partitions, made_at) - self.behind[commits], 0)
        return offsets

    def snapshots(self, sidecar: int) -> Numbers:
        """Returns the moments at which a sidecar writes a snapshot."""
        moments: Numbers = np.arange(self.fleet.rounds) * self.fleet.interval + self.phase[sidecar]
        return moments
