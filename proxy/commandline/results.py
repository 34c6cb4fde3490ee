"""The results of queries about groups, from a broker or from a sidecar's admin port. `--json` prints the same fields.

The fields have the names of the admin port's JSON. None means that a value is unknown. A broker knows fewer values than
a sidecar. `problems` contains an error for each missing part of an answer. In JSON, `problems` contains the errors'
texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Assignment = Mapping[str, Sequence[int]]
"""Partitions by topic."""
Cell = Mapping[str, Any]
"""One entry of a timeline: `at`, `what`, and further fields that depend on `what`."""
Problems = Sequence[Exception]


class GroupNotFound(Exception):
    """The group does not exist. `said`: the broker's error message; empty for a standard message."""

    def __init__(self, group_id: str, said: str = "") -> None:
        super().__init__(said or f"Group {group_id} not found.")


class NoAnswer(Exception):
    """No broker or sidecar gave an answer. `problems`: the errors of the brokers or sidecars."""

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
        protocol: the group's type as ListGroups v5 spells it: classic, consumer, share or streams (column TYPE).
        members: the number of known members. Reliable only if `members_known`.
        limit: the group's size limit.
        rebalances: the number of rebalances in the last hour.
        lacking: why the sidecar cannot answer DescribeGroups for the group, or None if it can.
        offsets_lacking: why the sidecar cannot answer OffsetFetch for the group, or None if it can.
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
    """Groups, sorted by id."""

    groups: Sequence[GroupSummary]
    problems: Problems = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group. Only groups of the new protocol (KIP-848) have `epoch` and `target_assignment`.

    Attributes:
        assignment: the assigned partitions, or None if the assignment is not of the consumer protocol.
        assignment_bytes: the size of an assignment in bytes. The size is known only if a broker was asked and
            `assignment` is None.
        principal: the client's user as Kafka writes it; empty if the sidecar does not know it. Brokers report none.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    principal: str | None = None
    since: str | None = None
    subscribed_topics: Sequence[str] | None = None
    assignment: Assignment | None = None
    assignment_bytes: int | None = None
    epoch: int | None = None
    target_assignment: Assignment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription(GroupSummary):
    """A group and its members. For the new protocol (KIP-848), `generation` is the group epoch."""

    coordinator: Coordinator | None = None
    leader: str | None = None
    assignment_epoch: int | None = None
    member_list: Sequence[GroupMember] = ()
    problems: Problems = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """A partition that has a committed offset of the group or is assigned to a member, with this member."""

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
    principal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsets:
    """The offsets of a group, by topic and partition."""

    group: str
    state: str | None = None
    offsets: Sequence[PartitionOffsets]
    sidecar: str | None = None
    problems: Problems = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The events of a group, the newest last. Each cell names the `sidecar` that recorded it.

    `forgotten`: by kind of event, the time up to which the record may be incomplete, or None if all events are kept.
    """

    group: str
    timeline: Sequence[Cell]
    forgotten: Mapping[str, str | None]
    problems: Problems = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The first groups in some order.

    Attributes:
        total: the number of groups that match the search.
        all: the number of all groups.
    """

    groups: Sequence[GroupSummary]
    total: int
    all: int
    problems: Problems = ()
