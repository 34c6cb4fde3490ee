"""Chooses the settings, the clients, and the kinds of faults of a run from its seed."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from random import Random

SECONDS = 40.0
"""The virtual seconds with faults."""


@dataclass(frozen=True)
class Scenario:
    """The choices of one run.

    Attributes:
        seconds: the virtual seconds with faults.
        members: how many clients are members of groups.
        faults: the kinds of faults (`faults.KINDS`).
        pause: the mean number of seconds between two faults.
        exclusive: the setting `answers.exclusive`.
        reads_log: the setting `offsets_log.read`.
        verify: the setting `answers.verify`.
        limit: the setting `policies.group_max_size.limit`; None without the policy.
        partitions, initial_delay, eager: the arguments of `Kafka` with these names.
        small_buffers, distance, resets: the arguments of `Weather` with these names; `resets` is `usual_resets`.
        admins: how many clients remove members and delete groups.
        watchers: how many clients ask about a group when it changes.
        curiosity: the share of changes after which the watchers ask.
        statics: the share of static members.
        old_members: the share of dynamic members whose JoinGroup has an old version.
        churn: the share of rounds in which a member leaves or joins again.
        commits: whether members commit offsets.
        reconnect: the mean number of seconds that clients wait before they connect again.
        rests: whether no client asks for a while after the last fault, so that the sidecar ends all doubts on its own.
    """

    seed: int
    seconds: float
    members: int
    committers: int
    askers: int
    producers: int
    transactors: int
    faults: frozenset[str]
    pause: float
    exclusive: bool
    reads_log: bool
    verify: float
    limit: int | None
    partitions: int
    initial_delay: float
    eager: bool
    small_buffers: float
    distance: float
    resets: float
    admins: int
    watchers: int
    curiosity: float
    statics: float
    old_members: float
    churn: float
    commits: bool
    reconnect: float
    rests: bool

    @classmethod
    def of(cls, seed: int, kinds: Collection[str]) -> "Scenario":
        """Returns the scenario of a seed, with a random choice of these kinds of faults."""
        rng = Random(f"{seed}:scenario")
        faults = frozenset(each for each in sorted(kinds) if rng.random() < 0.5)
        exclusive, reads_log = rng.random() < 0.75, rng.random() < 0.6
        if exclusive:
            faults -= {"bypass"}
        if not reads_log:
            faults -= {"leader-move", "slow-log"}  # Only the log shows that the broker is no longer the coordinator.
        return cls(
            seed=seed,
            seconds=SECONDS,
            members=rng.randrange(1, 7),
            committers=rng.randrange(4),
            askers=rng.randrange(1, 3),
            producers=rng.choice((0, 1)),
            transactors=rng.choice((0, 0, 1, 2)) if reads_log else 0,
            faults=faults,
            pause=rng.choice((0.7, 2.0, 6.0)),
            exclusive=exclusive,
            reads_log=reads_log,
            verify=rng.choice((0.0, 0.0, 0.2)),
            limit=rng.choice((None, 2, 2, 3)),
            partitions=rng.choice((1, 2)),
            initial_delay=rng.choice((0.0, 3.0)),
            eager=rng.random() < 0.5,
            small_buffers=rng.choice((0.0, 0.1, 0.7)),
            distance=rng.choice((0.0, 0.05, 0.5)),
            resets=rng.choice((0.0, 0.01, 0.05)),
            admins=rng.choice((0, 1)),
            watchers=rng.choice((1, 2, 3)),
            curiosity=rng.choice((0.05, 0.2, 0.5)),
            statics=rng.choice((0.2, 0.2, 0.7)),
            old_members=rng.choice((0.2, 0.2, 0.8)),
            churn=rng.choice((0.03, 0.03, 0.15)),
            commits=rng.random() < 0.75,
            reconnect=rng.choice((0.05, 0.5)),
            rests=rng.random() < 0.3,
        )

    def changed(
        self,
        *,
        seconds: float | None = None,
        members: int | None = None,
        without: Collection[str] = (),
    ) -> "Scenario":
        """Returns the scenario with fewer seconds, members or kinds of faults."""
        return replace(
            self,
            seconds=self.seconds if seconds is None else seconds,
            members=self.members if members is None else members,
            faults=self.faults - {*without},
        )
