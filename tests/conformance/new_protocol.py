"""Members of the new protocols (KIP-848, 932, 1071) that take each step only when told to.

Owns: their heartbeats. Must not know: what is to be seen of their groups.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from group_sidecar.codecs.headers import RequestHeader, encode_request, split_reply
from group_sidecar.codecs.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from group_sidecar.codecs.primitives import BOOLEAN, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, f, request, struct
from tests.conformance.routes import Run
from tests.kafka.wire import Wire

_BEAT, _HALF_A_MINUTE = 1, 30_000


@dataclass
class NewMember:
    """A member of the new protocol that beats, gives up and takes over only when told to."""

    run: Run
    group: str
    wire: Wire
    settings: dict[str, Any] = field(default_factory=dict)
    member_id: str = field(default_factory=lambda: secrets.token_hex(8))
    epoch: int = 0
    shall_own: tuple[TopicPartitions, ...] = ()

    def beat(self, owns: tuple[TopicPartitions, ...] | None = None, **fields: Any) -> None:
        """Beats; says what it owns where that is given. The first time it joins."""
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
            self.shall_own = tuple(
                TopicPartitions(topic_id=part.topic_id, partitions=part.partitions)
                for part in reply.assignment.topic_partitions
            )

    def follow(self) -> None:
        """Beats as a client does that takes over at once what it shall own, and gives up the rest."""
        self.beat(self.shall_own or None)


@contextmanager
def new_member(run: Run, group: str, **settings: Any) -> Iterator[NewMember]:
    """A member that leaves at the end, where it has not done so before."""
    if not settings.keys() & {"subscribed_topic_names", "subscribed_topic_regex"}:
        settings["subscribed_topic_names"] = (run.name("topic"),)
    with Wire(run.route.plain, client_id=run.name("raw")) as wire:
        member = NewMember(run, group, wire, settings)
        yield member
        if member.epoch > 0:
            member.beat(member_epoch=-1)


@request(key=76, versions=(1, 1), flexible=0)
class ShareGroupHeartbeatRequest(Struct):
    """A member of a share group (KIP-932), which the sidecar does not look into."""

    group_id: str = f(STRING)
    member_id: str = f(STRING)
    member_epoch: int = f(INT32)
    rack_id: str | None = f(STRING, nullable=0, default=None)
    subscribed_topic_names: tuple[str, ...] | None = f(Array(STRING), nullable=0)


@struct
class Subtopology(Struct):
    """A part of a streams application; what it would write, and what repartition, is left empty."""

    subtopology_id: str = f(STRING)
    source_topics: tuple[str, ...] = f(Array(STRING))
    source_topic_regex: tuple[str, ...] = f(Array(STRING), default=())
    state_changelog_topics: tuple[str, ...] = f(Array(STRING), default=())
    repartition_sink_topics: tuple[str, ...] = f(Array(STRING), default=())
    repartition_source_topics: tuple[str, ...] = f(Array(STRING), default=())
    copartition_groups: tuple[str, ...] = f(Array(STRING), default=())


@struct
class Topology(Struct):
    """What a streams application is made of."""

    epoch: int = f(INT32)
    subtopologies: tuple[Subtopology, ...] = f(Array(Subtopology))


@request(key=88, versions=(0, 0), flexible=0)
class StreamsGroupHeartbeatRequest(Struct):
    """A member of a streams group (KIP-1071), as it joins; what can be null and stays so is of any type."""

    group_id: str = f(STRING)
    member_id: str = f(STRING)
    member_epoch: int = f(INT32, default=0)
    endpoint_information_epoch: int = f(INT32, default=0)
    instance_id: str | None = f(STRING, nullable=0, default=None)
    rack_id: str | None = f(STRING, nullable=0, default=None)
    rebalance_timeout_ms: int = f(INT32, default=30_000)
    topology: Topology | None = f(Topology, nullable=0)
    active_tasks: tuple[str, ...] | None = f(Array(STRING), nullable=0, default=())
    standby_tasks: tuple[str, ...] | None = f(Array(STRING), nullable=0, default=())
    warmup_tasks: tuple[str, ...] | None = f(Array(STRING), nullable=0, default=())
    process_id: str | None = f(STRING, nullable=0)
    user_endpoint: Topology | None = f(Topology, nullable=0, default=None)
    client_tags: tuple[str, ...] | None = f(Array(STRING), nullable=0, default=())
    task_offsets: tuple[str, ...] | None = f(Array(STRING), nullable=0, default=None)
    task_end_offsets: tuple[str, ...] | None = f(Array(STRING), nullable=0, default=None)
    shutdown_application: bool = f(BOOLEAN, default=False)


def send(wire: Wire, request: Struct) -> bytes:
    """Sends a request that is not in our registry; returns its reply's body. Raises where it begins with an error."""
    version = request.VERSIONS[-1]
    wire.send(encode_request(request, RequestHeader(request.KEY, version, 1, "raw")))
    reply = split_reply(wire.receive(), flexible=True)
    assert reply[4:6] == bytes(2), reply  # Behind the throttle time.
    return reply


@contextmanager
def share_member(run: Run, group: str) -> Iterator[None]:
    """A member of a share group, which leaves at the end."""
    said = ShareGroupHeartbeatRequest(
        group_id=run.name(group),
        member_id=secrets.token_hex(8),
        member_epoch=0,
        subscribed_topic_names=(run.name("topic"),),
    )
    with Wire(run.route.plain) as wire:
        send(wire, said)
        yield
        send(wire, replace(said, member_epoch=-1, subscribed_topic_names=None))


def streams_heartbeat(run: Run, group: str) -> Struct:
    """The join of a streams application of one subtopology that only reads (KIP-1071)."""
    subtopology = Subtopology(subtopology_id="0", source_topics=(run.name("topic"),))
    return StreamsGroupHeartbeatRequest(
        group_id=run.name(group),
        member_id=secrets.token_hex(8),
        topology=Topology(epoch=0, subtopologies=(subtopology,)),
        process_id="process",
    )
