"""Members of the new protocols (KIP-848, 932, 1071) whose every heartbeat is under the test's control."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from group_sidecar.codecs.headers import RequestHeader, encode_request, split_reply
from group_sidecar.codecs.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from group_sidecar.codecs.primitives import BOOLEAN, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, request, struct, wire_field
from tests.conformance.routes import Run
from tests.kafka.wire import Wire

_BEAT, _HALF_A_MINUTE = 1, 30_000


@dataclass
class NewMember:
    """A member of the new protocol that sends heartbeats and changes its assignment only on request."""

    run: Run
    group: str
    wire: Wire
    settings: dict[str, Any] = field(default_factory=dict)
    member_id: str = field(default_factory=lambda: secrets.token_hex(8))
    epoch: int = 0
    target_partitions: tuple[TopicPartitions, ...] = ()

    def beat(self, owns: tuple[TopicPartitions, ...] | None = None, **fields: Any) -> None:
        """Sends a heartbeat, with its assignment if that is given. The first heartbeat joins the group."""
        joining = {"rebalance_timeout_ms": _HALF_A_MINUTE, **self.settings}
        reply = self.wire.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self.run.name(self.group),
                member_id=self.member_id,
                member_epoch=fields.pop("member_epoch", self.epoch),
                topic_partitions=() if owns is None and not self.epoch else owns,
                instance_id=self.settings.get("instance_id"),
                **{name: value for name, value in joining.items() if name != "instance_id" and not self.epoch},
                **fields,
            ),
            _BEAT,
        )
        assert reply.error_code == 0, reply
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.target_partitions = tuple(
                TopicPartitions(topic_id=part.topic_id, partitions=part.partitions)
                for part in reply.assignment.topic_partitions
            )

    def follow(self) -> None:
        """Sends heartbeats like a client that at once takes its target assignment and revokes all other partitions."""
        self.beat(self.target_partitions or None)


@contextmanager
def new_member(run: Run, group: str, **settings: Any) -> Iterator[NewMember]:
    """Runs a member that leaves at the end if it has not left before."""
    if not settings.keys() & {"subscribed_topic_names", "subscribed_topic_regex"}:
        settings["subscribed_topic_names"] = (run.name("topic"),)
    with Wire(run.route.plain, client_id=run.name("raw")) as wire:
        member = NewMember(run, group, wire, settings)
        yield member
        if member.epoch > 0:
            member.beat(member_epoch=-1)


@request(key=76, versions=(1, 1), flexible=0)
class ShareGroupHeartbeatRequest(Struct):
    """A heartbeat of a member of a share group (KIP-932), which the sidecar does not decode."""

    group_id: str = wire_field(STRING)
    member_id: str = wire_field(STRING)
    member_epoch: int = wire_field(INT32)
    rack_id: str | None = wire_field(STRING, nullable=0, default=None)
    subscribed_topic_names: tuple[str, ...] | None = wire_field(Array(STRING), nullable=0)


@struct
class Subtopology(Struct):
    """A part of a streams application. The fields on sink topics and repartition topics stay empty."""

    subtopology_id: str = wire_field(STRING)
    source_topics: tuple[str, ...] = wire_field(Array(STRING))
    source_topic_regex: tuple[str, ...] = wire_field(Array(STRING), default=())
    state_changelog_topics: tuple[str, ...] = wire_field(Array(STRING), default=())
    repartition_sink_topics: tuple[str, ...] = wire_field(Array(STRING), default=())
    repartition_source_topics: tuple[str, ...] = wire_field(Array(STRING), default=())
    copartition_groups: tuple[str, ...] = wire_field(Array(STRING), default=())


@struct
class Topology(Struct):
    """The topology of a streams application."""

    epoch: int = wire_field(INT32)
    subtopologies: tuple[Subtopology, ...] = wire_field(Array(Subtopology))


@request(key=88, versions=(0, 0), flexible=0)
class StreamsGroupHeartbeatRequest(Struct):
    """The first heartbeat of a member of a streams group (KIP-1071).

    Nullable fields that stay null have arbitrary types.
    """

    group_id: str = wire_field(STRING)
    member_id: str = wire_field(STRING)
    member_epoch: int = wire_field(INT32, default=0)
    endpoint_information_epoch: int = wire_field(INT32, default=0)
    instance_id: str | None = wire_field(STRING, nullable=0, default=None)
    rack_id: str | None = wire_field(STRING, nullable=0, default=None)
    rebalance_timeout_ms: int = wire_field(INT32, default=30_000)
    topology: Topology | None = wire_field(Topology, nullable=0)
    active_tasks: tuple[str, ...] | None = wire_field(Array(STRING), nullable=0, default=())
    standby_tasks: tuple[str, ...] | None = wire_field(Array(STRING), nullable=0, default=())
    warmup_tasks: tuple[str, ...] | None = wire_field(Array(STRING), nullable=0, default=())
    process_id: str | None = wire_field(STRING, nullable=0)
    user_endpoint: Topology | None = wire_field(Topology, nullable=0, default=None)
    client_tags: tuple[str, ...] | None = wire_field(Array(STRING), nullable=0, default=())
    task_offsets: tuple[str, ...] | None = wire_field(Array(STRING), nullable=0, default=None)
    task_end_offsets: tuple[str, ...] | None = wire_field(Array(STRING), nullable=0, default=None)
    shutdown_application: bool = wire_field(BOOLEAN, default=False)


def send(wire: Wire, request: Struct) -> bytes:
    """Sends a request that the codecs' registry lacks.

    Returns the body of the reply. Raises if it begins with an error.
    """
    version = request.VERSIONS[-1]
    wire.send(encode_request(request, RequestHeader(request.KEY, version, 1, "raw")))
    reply = split_reply(wire.receive(), flexible=True)
    assert reply[4:6] == bytes(2), reply  # The error code follows the throttle time.
    return reply


@contextmanager
def share_member(run: Run, group: str) -> Iterator[None]:
    """Runs a member of a share group, which leaves at the end."""
    heartbeat = ShareGroupHeartbeatRequest(
        group_id=run.name(group),
        member_id=secrets.token_hex(8),
        member_epoch=0,
        subscribed_topic_names=(run.name("topic"),),
    )
    with Wire(run.route.plain) as wire:
        send(wire, heartbeat)
        yield
        send(wire, replace(heartbeat, member_epoch=-1, subscribed_topic_names=None))


def streams_heartbeat(run: Run, group: str) -> Struct:
    """Returns the join of a streams application with one subtopology that only reads (KIP-1071)."""
    subtopology = Subtopology(subtopology_id="0", source_topics=(run.name("topic"),))
    return StreamsGroupHeartbeatRequest(
        group_id=run.name(group),
        member_id=secrets.token_hex(8),
        topology=Topology(epoch=0, subtopologies=(subtopology,)),
        process_id="process",
    )
