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
    """The id of the group, percent-encoded. An id may be any text, also the empty text."""


class WhyQuery(GroupQuery):
    """Selects one group and a time span."""

    seconds: int = Field(default=HOUR, ge=1, le=MAX_WHY_SECONDS)
    """The number of seconds to look back."""


class RefusalsQuery(Query):
    """Selects a number of refusals."""

    limit: int = Field(default=200, ge=1, le=MAX_REFUSALS)
    """The maximum number of refusals in the reply."""


class GroupsQuery(Query):
    """Filters and sorts groups. An empty parameter counts as missing, because HTML forms send empty fields."""

    search: str = ""
    """A part of the group's id. Upper and lower case count as equal."""
    state: GroupState | None = None
    """The state of the group."""
    type: GroupKind | None = None
    """The group's type, as ListGroups returns it."""
    cause: RebalanceCause | None = None
    """The cause of the group's last rebalance."""
    sort: Literal["group", "members", "lag", "last_rebalance_at", "rebalances"] = "group"
    """The value that groups are sorted by. Groups without a known value come last."""
    order: Literal["asc", "desc"] = "asc"
    """Ascending or descending order."""
    limit: int = Field(default=100, ge=1, le=MAX_GROUPS)
    """The maximum number of groups in the reply."""
    offset: int = Field(default=0, ge=0)
    """The number of groups that are skipped before the first one in the reply."""

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, given: Any) -> Any:
        return {name: value for name, value in given.items() if value != ""}


# Replies.


class Problem(BaseModel):
    """The error reply to a request. It may have further fields."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)

    error: str
    """The reason, in one sentence."""


class GroupSummary(Answer):
    """A group's row in a list of groups."""

    group: str
    """The group's id."""
    protocol: GroupKind
    """The group's type, as ListGroups returns it."""
    state: GroupState
    """The group's state, as DescribeGroups returns it."""
    protocol_type: str
    """Kafka's protocol type, such as `consumer` or `connect`; empty if it is not known."""
    assignor: str
    """The assignor that the group's members use."""
    generation: int
    """The generation, or the epoch of a group of KIP-848; -1 if it is not known."""
    members: int
    """The number of known members."""
    members_known: bool
    """Whether all members are known."""
    limit: int | None
    """The maximum number of members; null without a limit."""
    lag: int | None
    """The sum of the lag of all partitions whose log end was seen, in records; null if there is no such partition."""
    lag_unknown_partitions: int
    """The number of partitions with a committed offset whose log end was not seen."""
    committed_partitions: int
    """The number of partitions with a committed offset."""
    last_rebalance_at: Moment | None
    """When the sidecar last saw the group rebalance."""
    last_cause: RebalanceCause | None
    """The cause of that rebalance."""
    last_reason: RebalanceReason | None
    """The cause of that rebalance as the label value of metrics."""
    rebalances: int
    """The number of recorded rebalances in the last hour."""
    lacking: FallbackReason | None
    """Why the sidecar cannot answer DescribeGroups for the group; null if it can."""
    offsets_lacking: FallbackReason | None
    """Why the sidecar cannot answer OffsetFetch for the group; null if it can."""


class UnreachableBroker(Answer):
    """A broker that does not answer the sidecar. The data of its groups date from before `since`."""

    broker: str
    """The address of the broker."""
    since: Moment
    """When the broker first failed to answer."""
    reason: str
    """Why the broker does not answer, as text."""


class Groups(Answer):
    """A page of the list of groups, and the numbers of groups."""

    at: Moment
    """The time of the data."""
    total: int
    """The number of groups that match the parameters."""
    all: int
    """The number of all groups."""
    unreachable: list[UnreachableBroker]
    """Brokers that do not answer the sidecar."""
    groups: list[GroupSummary]
    """The requested page of the matching groups."""


class Member(Answer):
    """A member of a group."""

    member_id: str
    instance_id: str | None
    """The member's `group.instance.id`."""
    client_id: str
    client_host: str
    """The client's host as Kafka prints it, with a leading slash."""
    principal: str
    """The client's user as Kafka writes it; empty if it is not known."""
    since: Moment | None
    """When the sidecar first saw the member."""
    assignment: dict[str, list[int]] | None
    """The member's partitions by topic; null if the assignment cannot be decoded."""
    assignment_bytes: int
    """The size of the encoded assignment in bytes."""


class Coordinator(Answer):
    """The broker that coordinates a group, with the address that clients use."""

    id: int
    host: str
    port: int


class GroupDetail(GroupSummary):
    """A group with its members."""

    coordinator: Coordinator | None
    """The group's coordinator; null if it is not known, for instance because `__consumer_offsets` is not read."""
    leader: str
    """The member id of the group's leader; empty if there is none."""
    unreachable: list[UnreachableBroker]
    """Brokers that do not answer the sidecar."""
    member_list: list[Member]
    """The group's members, sorted by client id, instance id and member id."""


class Offset(Answer):
    """A group's offsets in one partition."""

    topic: str
    partition: int
    current_offset: int | None
    """The committed offset; null if there is none."""
    log_end_offset: int | None
    """The log end offset; null if it was not seen."""
    log_end_at: Moment | None
    """When the log end offset was seen."""
    lag: int | None
    """The lag in records, at least 0."""
    metadata: str | None
    """The metadata of the commit."""
    committed_at: Moment | None
    """The time of the commit."""
    member_id: str | None
    """The id of the member that the partition is assigned to."""
    client_id: str | None
    """The client id of that member."""
    client_host: str | None
    """The client's host of that member."""
    principal: str | None
    """The user of that member as Kafka writes it; empty if it is not known."""


class Offsets(Answer):
    """A group's offsets in all partitions that have a commit or are assigned to a member."""

    group: str
    state: GroupState
    offsets: list[Offset]
    """One entry for each partition, sorted by topic and partition."""
    unreachable: list[UnreachableBroker]
    """Brokers that do not answer the sidecar."""


class Forgotten(Answer):
    """For each kind of event, the time of the newest event that is no longer kept; null if all events are kept."""

    changes: Moment | None
    """For events of members and rebalances."""
    commits: Moment | None
    """For commits that the broker refused."""
    refusals: Moment | None
    """For requests that a policy refused."""


class Timeline(Answer):
    """The recorded events of a group."""

    group: str
    timeline: list[Cell]
    """The events, the newest last. Refusals of one client for one reason within a minute are one event. Older refusals
    are merged further."""
    forgotten: Forgotten
    """The times up to which events are no longer kept."""
    unreachable: list[UnreachableBroker]
    """Brokers that do not answer the sidecar."""


class Cause(Answer):
    """One cause of a group's rebalances."""

    cause: RebalanceCause
    reason: RebalanceReason
    """The cause as the label value of metrics."""
    count: int
    """The number of rebalances with this cause."""
    by: Client | None
    """The client that caused these rebalances; null if it is not known."""
    said: str
    """The reason that this client gave (KIP-800); empty if it gave none."""
    sentence: str
    """The cause as a sentence."""


class RefusedClient(Answer):
    """A client whose requests a policy refused, with the reason."""

    policy: str
    error: str
    """The error that the client got, by Kafka's name."""
    client_id: str
    client_host: str
    principal: str
    """The client's user as Kafka writes it; empty if it is not known."""
    count: int
    """The number of refused requests."""
    first_at: Moment
    last_at: Moment


class Why(Answer):
    """Why a group rebalanced between two moments."""

    group: str
    since: Moment
    until: Moment
    rebalances: int
    summary: str
    """A summary in one sentence."""
    causes: list[Cause]
    """The causes of the rebalances, the most frequent first."""
    rebalancing_seconds: float
    """The duration of all rebalances together."""
    longest_seconds: float
    slowest: Slowest | None
    """The slowest joiner of all rebalances."""
    refusals: int
    """The number of requests that a policy refused."""
    refused: list[RefusedClient]
    """The refused clients, the most frequent first."""
    failed_commits: int
    """The number of partitions whose commits the broker refused."""
    at_least: list[Literal["rebalances", "refusals", "failed_commits"]]
    """The names of the figures that are lower bounds, because events of that time are no longer kept."""
    unreachable: list[UnreachableBroker]
    """Brokers that do not answer the sidecar."""


class Refusals(Answer):
    """The requests that policies refused, or would have refused in audit mode, in all groups."""

    refusals: list[RefusalCell]
    """The refusals, the newest first."""


class LastReload(Answer):
    """The result of the last reload of the settings."""

    successful: bool
    succeeded_at: Moment
    """When a reload or the start last read the settings successfully."""


class Outlet(Answer):
    """A destination of the journal's records."""

    records_written: int
    """The number of records that were written to the disk, or that the broker acknowledged."""
    records_dropped: dict[str, int]
    """The number of dropped records by reason."""
    write_failures: int
    """The number of failed attempts to write."""
    last_flush_at: Moment | None
    """When records were last written; null before the first."""


class Status(Answer):
    """The status of the sidecar."""

    version: str
    sidecar_id: str
    mode: Literal["sidecar", "gateway"]
    started_at: Moment
    ready: bool
    """Whether clients can reach the broker through the sidecar."""
    brokers: dict[str, dict[str, bool]]
    """The conditions of readiness by broker, and whether each of them holds."""
    unreachable: list[UnreachableBroker]
    """Brokers that do not answer the sidecar."""
    offsets_log: dict[str, dict[str, Any]]
    """How far `__consumer_offsets` was read, by broker."""
    connections: int
    """The number of client connections."""
    groups: dict[GroupState, int]
    """The number of groups by state."""
    held_bytes: int
    """Bytes held for connections: unfinished frames, and requests until their replies."""
    recorded_bytes: int
    """The approximate size of the flight recorder in bytes."""
    series_suppressed: int
    """The number of series that the last scrape left out because of the limit."""
    answers: dict[str, int]
    """The number of requests since the start that were answered from the copy of the coordinator, by API."""
    fallbacks: dict[str, int]
    """The number of questions since the start that were left to the broker, by reason."""
    outlets: dict[str, Outlet]
    """The destinations of the journal, `folder` and `topic`; empty without a journal."""
    last_reload: LastReload
