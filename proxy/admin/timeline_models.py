"""Describes the JSON of timeline entries: the types and the meaning of their fields.

`metrics.flight_recorder` creates the entries (cells) as mappings. The models here only describe these mappings, for the
OpenAPI document, which publishes the docstrings.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from group_sidecar.coordinator.model.facts import Departure, RebalanceCause, RebalanceReason

Moment = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]


class Answer(BaseModel):
    """The body of a reply, or a part of one."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Client(Answer):
    """A client that caused an event. The host is as Kafka prints it, with a leading slash."""

    client_id: str
    client_host: str
    instance_id: str | None
    """The client's `group.instance.id`."""
    principal: str
    """The client's user as Kafka writes it; empty if it is not known."""


class Who(Client):
    """A member."""

    member_id: str
    """The member id; empty if the member had none yet."""


class Slowest(Who):
    """The member that joined last."""

    seconds: float
    """Seconds after the first join."""


class Event(Answer):
    """Something that happened to a group."""

    at: Moment


class RebalanceStarted(Event):
    """A rebalance began: a classic group entered PreparingRebalance, or the epoch of a KIP-848 group grew."""

    what: Literal["rebalance_started"]
    reason: RebalanceReason
    """The class of the cause, the label `reason` of metrics: join, leave, metadata, expired or unknown."""
    cause: RebalanceCause
    by: Who | None
    """The client that caused the rebalance; null if it is not known."""
    said: str
    """The reason that this client gave (KIP-800); empty if it gave none."""


class RebalanceCompleted(Event):
    """A generation became stable."""

    what: Literal["rebalance_completed"]
    reason: RebalanceReason
    """The class of the cause, the label `reason` of metrics: join, leave, metadata, expired or unknown."""
    cause: RebalanceCause
    """The cause of the rebalance's start."""
    by: Who | None
    """The client that caused the rebalance; null if it is not known."""
    said: str
    """The reason that this client gave (KIP-800); empty if it gave none."""
    generation: int
    protocol: str
    """The assignor that was chosen."""
    members: int
    duration_seconds: float
    """For a classic group, seconds from the first sign of the rebalance, usually a join, to the first sign of the
    stable generation, usually a SyncGroup reply; 0 if only the log showed the rebalance. For a KIP-848 group, seconds
    from the new epoch until each member owns its target assignment."""
    joined: int
    """The number of members that joined since the previous rebalance."""
    gone: int
    """The number of members that left since the previous rebalance."""
    slowest: Slowest | None
    """The member that joined last; null if fewer than two joins were seen."""
    moved_partitions: int | None
    """The number of partitions that have lost their previous owner; null if assignments cannot be decoded."""


class MemberJoined(Event):
    """A member joined."""

    what: Literal["member_joined"]
    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    principal: str
    """The client's user as Kafka writes it; empty if it is not known."""
    said: str
    """The reason that the client gave (KIP-800); empty if it gave none."""


class MemberGone(Event):
    """A member left or was removed."""

    what: Literal["member_gone"]
    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    principal: str
    """The client's user as Kafka writes it; empty if it is not known."""
    how: Departure
    said: str
    """The reason that was given (KIP-800); empty if none was given."""


class CoordinatorMoved(Event):
    """The broker does not coordinate the group any more."""

    what: Literal["coordinator_moved"]


class RefusedPartitions(Answer):
    """Partitions whose commit was refused with one error."""

    error_code: int
    error: str
    """The error by Kafka's name."""
    partitions: int


class OffsetsCommitted(Event):
    """Commits of one client of which the broker refused at least one partition each, with the same errors."""

    what: Literal["offsets_committed"]
    accepted: int
    """The number of partitions whose commit the broker accepted."""
    refused: list[RefusedPartitions]
    by: Who | None
    """The client of the commits; null if it is not known."""
    count: int
    """The number of commits. The numbers of partitions are sums over these commits. `at` is the time of the last."""
    first_at: Moment
    """The time of the first commit."""


class ClientRefused(Event):
    """A policy refused a request, or would have refused it in audit mode (`client_audited`)."""

    what: Literal["client_refused", "client_audited"]
    policy: str
    error_code: int
    error: str
    """The error by Kafka's name."""
    client_id: str
    client_host: str
    principal: str
    """The client's user as Kafka writes it; empty if it is not known."""
    size: int
    """The size that the policy compared with the limit."""
    limit: int
    """The limit of the policy."""
    enforced: bool
    """Whether the client got the error. False in audit mode."""
    count: int
    """How often this client was refused for this reason. `at` and `size` are those of the last refusal."""
    first_at: Moment
    """When this client was first refused for this reason."""


class Refusal(ClientRefused):
    """A refusal with its group."""

    group: str


class _Described:
    """Gives a mapping the JSON schema of a model, without the cost of converting the mapping to the model."""

    def __init__(self, like: Any) -> None:
        self._like = like

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(TypeAdapter(self._like).core_schema)


AnyEvent = (
    RebalanceStarted
    | RebalanceCompleted
    | MemberJoined
    | MemberGone
    | CoordinatorMoved
    | OffsetsCommitted
    | ClientRefused
)
Cell = Annotated[dict[str, Any], _Described(Annotated[AnyEvent, Field(discriminator="what")])]
"""An event of one group."""
RefusalCell = Annotated[dict[str, Any], _Described(Refusal)]
