"""The results of queries about groups, from a broker or from a sidecar's admin port. `--json` prints the same fields.

The names are those of the admin port's JSON. None means that the value is unknown: a broker knows less than a sidecar.
`problems` has one error for each part of an answer that could not be had; in JSON it is its text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Assignment = Mapping[str, Sequence[int]]
"""Partitions by topic."""
Cell = Mapping[str, Any]
"""One entry of a timeline: `at`, `what`, and what that brings with it."""
Problems = Sequence[Exception]


class GroupNotFound(Exception):
    """There is no such group; so says who must know."""

    def __init__(self, group_id: str, said: str = "") -> None:
        super().__init__(said or f"Group {group_id} not found.")


class NoAnswer(Exception):
    """Nobody who was asked gave an answer. `problems`: one error for each."""

    def __init__(self, problems: Problems) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The broker that coordinates a group."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """A group in a list.

    Attributes:
        protocol: what `kafka-consumer-groups` calls the group's type: classic, consumer, share or streams.
        members: their number; to be relied on where `members_known`.
        limit: how many members it may have.
        rebalances: in the last hour.
        lacking: why the sidecar's copy of the group is not to be relied on; likewise `offsets_lacking`.
        sidecar: the admin port that reported the group.
    """

    group: str
    protocol: str | None = None
    state: str | None = None
    protocol_type: str | None = None
    assignor: str | None = None
    generation: int | None = None
    members: int | None = None
    members_known: bool = False
    limit: int | None = None
    lag: int | None = None
    lag_unknown_partitions: int | None = None
    committed_partitions: int | None = None
    last_rebalance_at: str | None = None
    last_cause: str | None = None
    last_reason: str | None = None
    rebalances: int | None = None
    lacking: str | None = None
    offsets_lacking: str | None = None
    sidecar: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Groups by id."""

    groups: Sequence[GroupSummary]
    problems: Problems = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group. The epoch and the target assignment are of the new protocol (KIP-848).

    Attributes:
        assignment: None where the bytes are not the consumer protocol's; `assignment_bytes` is then their number.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    since: str | None = None
    subscribed_topics: Sequence[str] | None = None
    assignment: Assignment | None = None
    assignment_bytes: int | None = None
    epoch: int | None = None
    target_assignment: Assignment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription(GroupSummary):
    """A group and its members. `generation` and `assignment_epoch` are epochs where the protocol is the new one."""

    coordinator: Coordinator | None = None
    leader: str | None = None
    assignment_epoch: int | None = None
    member_list: Sequence[GroupMember] = ()
    problems: Problems = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """A partition of which the group has an offset, or which one of its members is to read, and that member."""

    topic: str
    partition: int
    current_offset: int | None = None
    log_end_offset: int | None = None
    log_end_at: str | None = None
    lag: int | None = None
    metadata: str | None = None
    committed_at: str | None = None
    member_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsets:
    """A group's partitions in order."""

    group: str
    state: str | None = None
    offsets: Sequence[PartitionOffsets]
    sidecar: str | None = None
    problems: Problems = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What happened to a group, the newest last. Each cell names the `sidecar` that saw it.

    `forgotten`: by kind of event the newest moment of which a sidecar no longer keeps something; None where all is.
    """

    group: str
    timeline: Sequence[Cell]
    forgotten: Mapping[str, str | None]
    problems: Problems = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The first groups in some order.

    Attributes:
        total: how many match what was searched for.
        all: how many there are.
    """

    groups: Sequence[GroupSummary]
    total: int
    all: int
    problems: Problems = ()
