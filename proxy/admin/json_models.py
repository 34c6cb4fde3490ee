"""The models of the JSON under /api/v1/: names, types and meaning of all parameters and replies.

The OpenAPI document is generated from these models. It publishes the docstrings of replies and of all fields, so a
changed docstring changes the public document.

Times are ISO 8601 in UTC with milliseconds. Offsets and sizes are integers. Unknown values are null, except those whose
description names another value.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from group_sidecar.coordinator.model.facts import RebalanceCause, RebalanceReason
from group_sidecar.coordinator.model.views import FallbackReason, GroupKind, GroupState
from group_sidecar.proxy.admin.timeline_models import Answer, Cell, Client, Moment, RefusalCell, Slowest

FallbackReason.__qualname__ = "Lacking"  # The OpenAPI document has published this schema name.

HOUR = 3600
MAX_GROUPS, MAX_REFUSALS = 1_000, 500
"""Maximum numbers of groups and refusals in one reply."""
MAX_WHY_SECONDS = 7 * 24 * HOUR


# Parameters of requests.


class Query(BaseModel):
    """The parameters of one path. Unknown parameters are refused, because a misspelt filter would have no effect."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class GroupQuery(Query):
    """Selects one group."""

    group: str
    """The group's id, percent-encoded; it may be any text, and empty."""


class WhyQuery(GroupQuery):
    """Selects one group and a time span."""

    seconds: int = Field(default=HOUR, ge=1, le=MAX_WHY_SECONDS)
    """How far to look back."""


class RefusalsQuery(Query):
    """Selects a number of refusals."""

    limit: int = Field(default=200, ge=1, le=MAX_REFUSALS)
    """The most that are told."""


class GroupsQuery(Query):
    """Filters and sorts groups. An empty parameter counts as missing, because HTML forms send empty fields."""

    search: str = ""
    """Part of the group's id, in capitals or not."""
    state: GroupState | None = None
    """Its state."""
    type: GroupKind | None = None
    """The protocol that it speaks."""
    cause: RebalanceCause | None = None
    """The cause of its last rebalance."""
    sort: Literal["group", "members", "lag", "last_rebalance_at", "rebalances"] = "group"
    """What to sort by; groups of which it is not known come last."""
    order: Literal["asc", "desc"] = "asc"
    """The direction."""
    limit: int = Field(default=100, ge=1, le=MAX_GROUPS)
    """The most groups that are told."""
    offset: int = Field(default=0, ge=0)
    """How many to pass over."""

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, given: Any) -> Any:
        return {name: value for name, value in given.items() if value != ""}


# Replies.


class Problem(BaseModel):
    """Why there is no other reply. What else belongs to it stands beside the sentence."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)

    error: str
    """One sentence for people."""


class GroupSummary(Answer):
    """A group in a line."""

    group: str
    """The group's id."""
    protocol: GroupKind
    """The protocol that it speaks, as ListGroups calls it."""
    state: GroupState
    """Its state, as DescribeGroups spells it."""
    protocol_type: str
    """`consumer`, `connect` and the like; empty where it is not known."""
    assignor: str
    """The assignor that its members use."""
    generation: int
    """The generation, or the epoch of a group of KIP-848; -1 where it is not known."""
    members: int
    """How many members are known."""
    members_known: bool
    """Whether these are all."""
    limit: int | None
    """The most members that it may have; null without limit."""
    lag: int | None
    """Records behind, over all partitions whose log end was seen; null where none was."""
    lag_unknown_partitions: int
    """Partitions with a committed offset whose log end was not seen."""
    committed_partitions: int
    """Partitions with a committed offset."""
    last_rebalance_at: Moment | None
    """When it last rebalanced, as far as was seen."""
    last_cause: RebalanceCause | None
    """What brought that about."""
    last_reason: RebalanceReason | None
    """The same as metrics have it."""
    rebalances: int
    """Rebalances in the last hour, as far as they are recorded."""
    lacking: FallbackReason | None
    """Why the sidecar cannot answer DescribeGroups for it; null where it can."""
    offsets_lacking: FallbackReason | None
    """The same of OffsetFetch."""


class UnreachableBroker(Answer):
    """A broker that does not answer: what is told of its groups is as it was then."""

    broker: str
    """Its address."""
    since: Moment
    """When it was first found not to answer."""
    reason: str
    """Why, for people."""


class Groups(Answer):
    """Some of the groups, and how many there are."""

    at: Moment
    """When they were looked at."""
    total: int
    """How many groups match."""
    all: int
    """How many groups there are."""
    unreachable: list[UnreachableBroker]
    """Brokers that do not answer the sidecar."""
    groups: list[GroupSummary]
    """Those asked for."""


class Member(Answer):
    """A member of a group."""

    member_id: str
    instance_id: str | None
    """Its `group.instance.id`."""
    client_id: str
    client_host: str
    """As Kafka prints it, with a leading slash."""
    principal: str
    """The client's user as Kafka writes it; empty if it is not known."""
    since: Moment | None
    """When it was first seen."""
    assignment: dict[str, list[int]] | None
    """Its partitions by topic; null where what the leader assigned cannot be read."""
    assignment_bytes: int
    """How long that is, in bytes."""


class Coordinator(Answer):
    """The broker that coordinates a group, under the address that clients are told."""

    id: int
    host: str
    port: int


class GroupDetail(GroupSummary):
    """A group with its members."""

    coordinator: Coordinator | None
    """Its coordinator; null where it is not known, as where the coordinator's log is not read."""
    leader: str
    """The member that assigns; empty where there is none."""
    unreachable: list[UnreachableBroker]
    """Brokers that do not answer the sidecar."""
    member_list: list[Member]
    """Its members, by client id, instance id and member id."""


class Offset(Answer):
    """Where a group stands in one partition."""

    topic: str
    partition: int
    current_offset: int | None
    """The committed offset; null where nothing was committed."""
    log_end_offset: int | None
    """The end of the log; null where it was not seen."""
    log_end_at: Moment | None
    """When that was seen."""
    lag: int | None
    """Records behind, at least 0."""
    metadata: str | None
    """What the consumer said with the offset."""
    committed_at: Moment | None
    """When it was committed."""
    member_id: str | None
    """The member that has the partition now."""
    client_id: str | None
    """Of that member."""
    client_host: str | None
    """Of that member."""
    principal: str | None
    """Of that member; empty if it is not known."""


class Offsets(Answer):
    """All partitions that a group has committed, or has been assigned."""

    group: str
    state: GroupState
    offsets: list[Offset]
    """By topic and partition."""
    unreachable: list[UnreachableBroker]
    """Brokers that do not answer the sidecar."""


class Forgotten(Answer):
    """The newest moment of which something is no longer kept; null where all is."""

    changes: Moment | None
    """Members and rebalances."""
    commits: Moment | None
    """Commits that were refused."""
    refusals: Moment | None
    """What policies refused."""


class Timeline(Answer):
    """What is recorded of a group."""

    group: str
    timeline: list[Cell]
    """The newest last. Refusals of one client for one reason within a minute, or longer ago, are one event."""
    forgotten: Forgotten
    """What of it is no longer kept."""
    unreachable: list[UnreachableBroker]
    """Brokers that do not answer the sidecar."""


class Cause(Answer):
    """What brought about some of the rebalances."""

    cause: RebalanceCause
    reason: RebalanceReason
    """The same as metrics have it."""
    count: int
    """Rebalances."""
    by: Client | None
    """Who."""
    said: str
    """What that client gave as its reason (KIP-800)."""
    sentence: str
    """The same for people."""


class RefusedClient(Answer):
    """A client that a policy refused something."""

    policy: str
    error: str
    """Kafka's name of it."""
    client_id: str
    client_host: str
    principal: str
    """The client's user as Kafka writes it; empty if it is not known."""
    count: int
    """Requests."""
    first_at: Moment
    last_at: Moment


class Why(Answer):
    """Why a group rebalanced."""

    group: str
    since: Moment
    until: Moment
    rebalances: int
    summary: str
    """All of it in a sentence."""
    causes: list[Cause]
    """The most frequent first."""
    rebalancing_seconds: float
    """All rebalances together."""
    longest_seconds: float
    slowest: Slowest | None
    """The slowest joiner of all."""
    refusals: int
    """Requests that a policy refused."""
    refused: list[RefusedClient]
    """Who they were of, the most frequent first."""
    failed_commits: int
    """Partitions whose commits the broker refused."""
    at_least: list[Literal["rebalances", "refusals", "failed_commits"]]
    """The figures that may be more: a part of that time is no longer kept."""
    unreachable: list[UnreachableBroker]
    """Brokers that do not answer the sidecar."""


class Refusals(Answer):
    """What policies refused, or would have, in all groups."""

    refusals: list[RefusalCell]
    """The newest first, each with its `group`."""


class LastReload(Answer):
    """How the last reading of the settings went."""

    successful: bool
    succeeded_at: Moment
    """When one last succeeded."""


class Outlet(Answer):
    """Where the journal's records go."""

    records_written: int
    """Records that were handed to the disk, or that the broker acknowledged."""
    records_dropped: dict[str, int]
    """By reason."""
    write_failures: int
    """Failed attempts to write."""
    last_flush_at: Moment | None
    """When records were last written; null before the first."""


class Status(Answer):
    """The sidecar itself."""

    version: str
    sidecar_id: str
    mode: Literal["sidecar", "gateway"]
    started_at: Moment
    ready: bool
    """Whether it can be sent clients."""
    brokers: dict[str, dict[str, bool]]
    """By broker: what it takes to be ready, and whether it is so."""
    unreachable: list[UnreachableBroker]
    """Brokers that do not answer the sidecar."""
    offsets_log: dict[str, dict[str, Any]]
    """By broker: how far its log was read."""
    connections: int
    """Client connections."""
    groups: dict[GroupState, int]
    """By state: how many groups there are."""
    held_bytes: int
    """Bytes held in unfinished frames."""
    recorded_bytes: int
    """Bytes of the flight recorder, roughly."""
    series_suppressed: int
    """Series that the last scrape left out for the limit."""
    answers: dict[str, int]
    """By API: requests that were answered from the copy of the coordinator, since the start."""
    fallbacks: dict[str, int]
    """By reason: requests that could have been, and were left to the broker."""
    outlets: dict[str, Outlet]
    """Of the journal: `folder`, `topic`; none where no records are written."""
    last_reload: LastReload
