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
    """Who brought something about. The host is as Kafka prints it, with a leading slash."""

    client_id: str
    client_host: str
    instance_id: str | None
    """Its `group.instance.id`."""
    principal: str
    """The client's user as Kafka writes it; empty if it is not known."""


class Who(Client):
    """A member."""

    member_id: str
    """Empty where it had none yet."""


class Slowest(Who):
    """The member that joined last."""

    seconds: float
    """After the first."""


class Event(Answer):
    """Something that happened to a group."""

    at: Moment


class RebalanceStarted(Event):
    """A group that was stable or empty began to rebalance."""

    what: Literal["rebalance_started"]
    reason: RebalanceReason
    """The cause as metrics have it."""
    cause: RebalanceCause
    by: Who | None
    """Who brought it about; null where that is not known."""
    said: str
    """The reason that this client gave (KIP-800); empty without."""


class RebalanceCompleted(Event):
    """A generation became stable."""

    what: Literal["rebalance_completed"]
    reason: RebalanceReason
    """The cause as metrics have it."""
    cause: RebalanceCause
    """What began it."""
    by: Who | None
    """Who brought it about; null where that is not known."""
    said: str
    """The reason that this client gave (KIP-800); empty without."""
    generation: int
    protocol: str
    """The assignor that was chosen."""
    members: int
    duration_seconds: float
    """First join to last sync."""
    joined: int
    """Members that came with it."""
    gone: int
    """Members that went with it."""
    slowest: Slowest | None
    """Null where fewer than two joins were seen."""
    moved_partitions: int | None
    """Partitions that have another owner than before; null where assignments cannot be read."""


class MemberJoined(Event):
    """A member came."""

    what: Literal["member_joined"]
    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    principal: str
    """The client's user as Kafka writes it; empty if it is not known."""
    said: str
    """The reason that it gave (KIP-800)."""


class MemberGone(Event):
    """A member went."""

    what: Literal["member_gone"]
    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    principal: str
    """The client's user as Kafka writes it; empty if it is not known."""
    how: Departure
    said: str
    """The reason that was given (KIP-800)."""


class CoordinatorMoved(Event):
    """The broker does not coordinate the group any more."""

    what: Literal["coordinator_moved"]


class RefusedPartitions(Answer):
    """Partitions whose commit was refused with one error."""

    error_code: int
    error: str
    """Kafka's name of it."""
    partitions: int


class OffsetsCommitted(Event):
    """A commit of which the broker refused something."""

    what: Literal["offsets_committed"]
    accepted: int
    """Partitions."""
    refused: list[RefusedPartitions]


class ClientRefused(Event):
    """A policy refused a request, or (`client_audited`) would have."""

    what: Literal["client_refused", "client_audited"]
    policy: str
    error_code: int
    error: str
    """Kafka's name of it."""
    client_id: str
    client_host: str
    principal: str
    """The client's user as Kafka writes it; empty if it is not known."""
    size: int
    """What the policy counted."""
    limit: int
    """The most that it lets pass."""
    enforced: bool
    """Whether the client was told."""
    count: int
    """How often this client was refused for this reason. `size` is of the last time, and so is `at`."""
    first_at: Moment
    """The first time."""


class Refusal(ClientRefused):
    """The same, with its group."""

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
