"""Groups of every kind and state, held still while they are asked about.

Owns: how a group is brought into a state and kept there. Must not know: who asks.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition

from group_sidecar.codecs.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from group_sidecar.codecs.consumer_protocol import TopicPartition as AssignedPartition
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol, JoinGroupRequest
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, MemberIdentity
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from group_sidecar.codecs.schema import encode
from tests.conformance.librdkafka import consume, consumer, create_topic, poll_until, produce, settled
from tests.conformance.routes import Run
from tests.kafka.wire import Wire

SETTLED = ("stable", "static", "empty", "simple")
"""Classic groups that stay as they are."""
UNSETTLED = ("completing", "preparing", "new")
"""Classic groups between two states, and one of the new protocol."""
GROUPS = (*SETTLED, *UNSETTLED)
PARTITIONS = 4

_MINUTES = 5 * 60_000
_JOIN, _SYNC, _LEAVE = 5, 3, 3


class RawMember:
    """A classic member that takes each step only when told to, so a group stays where it is."""

    def __init__(self, run: Run, group: str, topic: str) -> None:
        self._run, self._group, self._topic = run, run.name(group), run.name(topic)
        self._wire = Wire(run.route.plain, client_id=run.name("raw"))
        self.member_id = ""
        self.generation = -1

    def send_join(self) -> int:
        """Sends a join that the broker may keep unanswered. Returns its correlation id."""
        if not self.member_id:
            self.member_id = self._wire.ask(self._join(), _JOIN).member_id  # MEMBER_ID_REQUIRED brings the id.
        return self._wire.send_request(self._join(), _JOIN)

    def join(self) -> None:
        """Joins, and waits for the generation."""
        reply = self._wire.receive_reply(self._join(), _JOIN, self.send_join())
        assert reply.error_code == 0, reply
        self.generation = reply.generation_id

    def sync(self) -> None:
        """Syncs as the leader of a group of one, with one partition for itself."""
        parts = (AssignedPartition(topic=self._topic, partitions=(0,)),)
        assignment = b"\0\0" + encode(ConsumerProtocolAssignment(assigned_partitions=parts), 0)
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=(SyncGroupRequestAssignment(member_id=self.member_id, assignment=assignment),),
        )
        reply = self._wire.ask(request, _SYNC)
        assert reply.error_code == 0, reply

    def _join(self) -> JoinGroupRequest:
        subscription = b"\0\0" + encode(ConsumerProtocolSubscription(topics=(self._topic,)), 0)
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=_MINUTES,
            rebalance_timeout_ms=_MINUTES,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=(JoinGroupProtocol(name="range", metadata=subscription),),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wire.__exit__(kind, error, trace)
        if self.member_id:  # A closed connection is not a leave, and its group would wait for minutes.
            leave = LeaveGroupRequest(group_id=self._group, members=(MemberIdentity(member_id=self.member_id),))
            with Wire(self._run.route.plain) as wire:
                wire.ask(leave, _LEAVE)


@contextmanager
def population(run: Run, groups: Sequence[str] = GROUPS) -> Iterator[None]:
    """The run's groups of these kinds, each held in its state, with the topics ``topic`` and ``other``."""
    with ExitStack() as stack:
        create_topic(run, "topic", PARTITIONS)
        create_topic(run, "other")
        produce(run, "topic", [str(number) for number in range(20)])
        for group in groups:
            _MAKERS[group](run, stack)
        yield


def _members(run: Run, stack: ExitStack, group: str, *settings: dict[str, Any]) -> None:
    """A group of a consumer for each of the settings; the first commits an offset."""
    members: list[Consumer] = []
    for number, own in enumerate(settings):
        client_id = run.name(f"{group}-{number}")
        members.append(stack.enter_context(consumer(run, group, ["topic"], client_id=client_id, **own)))
    poll_until(members, settled(members, PARTITIONS), f"{group} to settle")
    place = TopicPartition(run.name("topic"), 1, 2, metadata="a note")
    members[0].commit(offsets=[place], asynchronous=False)


def _stable(run: Run, stack: ExitStack) -> None:
    _members(run, stack, "stable", {}, {})


def _static(run: Run, stack: ExitStack) -> None:
    _members(run, stack, "static", *({"group_instance_id": run.name(f"instance-{number}")} for number in range(2)))


def _new(run: Run, stack: ExitStack) -> None:
    _members(run, stack, "new", {"group_protocol": "consumer"}, {"group_protocol": "consumer"})


def _empty(run: Run, stack: ExitStack) -> None:
    consume(run, "empty", ["topic"], 20)


def _simple(run: Run, stack: ExitStack) -> None:
    """Commits without ever joining: the broker keeps it as a group without a protocol."""
    with consumer(run, "simple", []) as client:
        client.commit(offsets=[TopicPartition(run.name("topic"), 0, 1)], asynchronous=False)


def _completing(run: Run, stack: ExitStack) -> None:
    """Its leader has joined and never syncs."""
    stack.enter_context(RawMember(run, "completing", "topic")).join()


def _preparing(run: Run, stack: ExitStack) -> None:
    """One is parked in its join until the other joins again, which it never does."""
    first = stack.enter_context(RawMember(run, "preparing", "topic"))
    first.join()
    first.sync()
    stack.enter_context(RawMember(run, "preparing", "topic")).send_join()


_MAKERS: dict[str, Callable[[Run, ExitStack], None]] = {
    "stable": _stable,
    "static": _static,
    "empty": _empty,
    "simple": _simple,
    "completing": _completing,
    "preparing": _preparing,
    "new": _new,
}
