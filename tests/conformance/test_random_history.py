"""Clients change groups in random ways. After each step, the sidecar's answers agree with the broker's answers.

There are two runs. In the first, all clients connect through an `exclusive` sidecar, which must agree at once. In the
second, some clients bypass the sidecar. The sidecar learns of their changes from the log, so an answer may be late. The
answer to a question that the sidecar forwards always agrees.
"""

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure, FlakyStrategyDefinition
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, MemberIdentity
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from group_sidecar.codecs.schema import Struct
from tests.conformance.differential.comparison import differences, in_order
from tests.conformance.librdkafka import create_topic
from tests.conformance.routes import Route, Run
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect, until
from tests.kafka.group_members import MINUTES, ClassicMember, ConsumerMember, commit
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.transactions import Transaction

EXAMPLES = settings().max_examples * 3 // 10
STEPS = 25
ANY = st.integers(0, 7)
"""Draws the number of a client. Drawn values must not depend on the broker, so an impossible step does nothing."""
CLASSIC_GROUPS = ("classic one", "classic two")
CONSUMER_GROUP = "consumer"
SHORT_MS = 300
_MOMENT = 0.02
"""Seconds within which the broker answers a request that it does not park."""
_MOST_MEMBERS = 4
_UNKNOWN_MEMBER = 25
_HEARD = (0, 27)
"""NONE and REBALANCE_IN_PROGRESS: the broker accepted the heartbeat."""
_PROPERTIES = {"group.min.session.timeout.ms": "100"}


@dataclass(frozen=True)
class World:
    """A broker and the sidecar in front of it.

    Args:
        ways: the clients that actors may use: through the sidecar, and around it if that is allowed.
        patience: the seconds within which an answer has to become right.
    """

    ways: tuple[Client, ...]
    direct: Client
    through: Client
    topic: str
    patience: float


@pytest.fixture(scope="module", params=["all through it", "some around it"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    exclusive = request.param == "all through it"
    folder = tmp_path_factory.mktemp("history")
    answers = {"answers": {"exclusive": exclusive}}
    with (
        KafkaBroker(folder / "broker", properties=_PROPERTIES) as broker,
        SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=answers),
    ):
        broker.wait_for_coordinator()
        topic = create_topic(Run(Route("direct", broker.direct, broker.direct), "t"), "topic", 4)
        dialect = Dialect.of(broker.direct)
        direct, through = Client(broker.direct, dialect, "around"), Client(broker.sidecar, dialect, "through")
        if exclusive:
            yield World((through,), direct, through, topic, 0.0)
        else:
            yield World((through, direct), direct, through, topic, 20.0)


class Actor:
    """A classic member of a group that may be waiting for a reply."""

    def __init__(self, member: ClassicMember, group: str, *, short: bool) -> None:
        self.member, self.group, self.short = member, group, short
        self.waits_for = ""

    def join(self) -> None:
        self.member.send_join()
        self.waits_for = "join"

    def sync(self) -> None:
        self.member.send_sync()
        self.waits_for = "sync"

    def collect(self, seconds: float) -> None:
        """Receives the pending reply if it arrives within `seconds`."""
        if self.waits_for and self.member.answered(seconds):
            reply = self.member.receive_join() if self.waits_for == "join" else self.member.receive_sync()
            self.waits_for = ""
            self.noted(reply.error_code)

    @property
    def speaks(self) -> bool:
        """Whether the member is in a generation and has no pending reply."""
        return not self.waits_for and bool(self.member.member_id) and self.member.generation >= 0

    def noted(self, code: int) -> None:
        if code == _UNKNOWN_MEMBER:
            self.member.member_id = ""


class History(RuleBasedStateMachine):
    """Clients that join, leave, commit and fail, and questions after each step."""

    world: ClassVar[World]
    found: ClassVar[list[str]]
    """The differences that were found. Hypothesis cannot always reproduce them, because a broker's timing varies."""

    @initialize()
    def begin(self) -> None:
        self.prefix = secrets.token_hex(4)
        self.actors: list[Actor] = []
        self.consumers: list[ConsumerMember] = []
        self.transactions: list[Transaction] = []
        self.direct, self.through = self.world.direct.wire(), self.world.through.wire()

    @rule(
        group=st.sampled_from(CLASSIC_GROUPS),
        way=st.integers(0, 1),
        instance=st.sampled_from([None, None, "instance"]),
        short_session=st.booleans(),
        short_rebalance=st.booleans(),
        settles=st.booleans(),
    )
    def join(
        self, group: str, way: int, instance: str | None, short_session: bool, short_rebalance: bool, settles: bool
    ) -> None:
        """A new member joins, and perhaps the others join again."""
        if len(self.actors) >= _MOST_MEMBERS:
            return
        member = ClassicMember(
            self.client(way),
            self.name(group),
            self.world.topic,
            instance_id=instance,
            session_ms=SHORT_MS if short_session else MINUTES,
            rebalance_ms=SHORT_MS if short_rebalance else MINUTES,
        )
        actor = Actor(member, self.name(group), short=short_session)
        self.actors.append(actor)
        actor.join()
        actor.collect(_MOMENT)
        if settles:
            self.rebalance(group)

    @precondition(lambda self: self.actors)
    @rule(number=ANY)
    def join_again(self, number: int) -> None:
        actor = self.actor(number)
        if not actor.waits_for:
            actor.join()
            actor.collect(_MOMENT)

    @precondition(lambda self: self.actors)
    @rule(number=ANY)
    def sync(self, number: int) -> None:
        actor = self.actor(number)
        if actor.speaks:
            actor.sync()
            actor.collect(_MOMENT)

    @precondition(lambda self: self.actors)
    @rule(group=st.sampled_from(CLASSIC_GROUPS))
    def everybody_joins_again(self, group: str) -> None:
        self.rebalance(group)

    def rebalance(self, group: str) -> None:
        """All active members join again and then sync. Usually that makes the group stable."""
        actors = [actor for actor in self.actors if actor.group == self.name(group)]
        for actor in actors:
            if not actor.waits_for:
                actor.join()
        for actor in actors:
            actor.collect(_MOMENT)
        for actor in sorted(actors, key=lambda actor: not actor.member.leads):
            if actor.speaks:
                actor.sync()
                actor.collect(_MOMENT)

    @precondition(lambda self: self.actors)
    @rule(number=ANY)
    def heartbeat(self, number: int) -> None:
        actor = self.actor(number)
        if actor.speaks:
            actor.noted(actor.member.heartbeat())

    @precondition(lambda self: self.actors)
    @rule(number=ANY, partition=st.integers(0, 3), offset=st.integers(0, 1000))
    def commit(self, number: int, partition: int, offset: int) -> None:
        actor = self.actor(number)
        if actor.speaks:
            actor.member.commit({partition: offset})

    @precondition(lambda self: self.actors)
    @rule(number=ANY)
    def leave(self, number: int) -> None:
        """A client leaves, perhaps with a pending reply."""
        actor = self.actor(number)
        if actor.member.member_id:
            actor.member.leave()
        self.forget(actor)

    @precondition(lambda self: self.actors)
    @rule(number=ANY)
    def vanish(self, number: int) -> None:
        """A client is killed, perhaps with a pending reply."""
        self.forget(self.actor(number))

    @precondition(lambda self: self.actors)
    @rule(number=ANY)
    def expire(self, number: int) -> None:
        """The broker removes a silent member.

        The member sends one heartbeat before it falls silent. Otherwise a static member that replaced another one might
        live longer: Kafka schedules its first expiration with the session timeout of its predecessor.
        """
        actor = self.actor(number)
        if actor.short and actor.speaks:
            code = actor.member.heartbeat()
            actor.noted(code)
            if code not in _HEARD:
                return
            gone = actor.member.member_id
            until(lambda: gone not in self.members(actor.group), "the broker drops the silent member")

    @rule(group=st.sampled_from(CLASSIC_GROUPS), way=st.integers(0, 1), offset=st.integers(0, 1000))
    def commit_alone(self, group: str, way: int, offset: int) -> None:
        """A client that is not a member commits. The broker refuses the commit if the group has members."""
        try:
            commit(self.client(way), self.name(group), self.world.topic, {0: offset})
        except AssertionError:
            assert self.members(self.name(group))

    @rule(group=st.sampled_from((*CLASSIC_GROUPS, CONSUMER_GROUP)), way=st.integers(0, 1), partition=st.integers(0, 3))
    def delete_offset(self, group: str, way: int, partition: int) -> None:
        gone = (OffsetDeleteRequestPartition(partition_index=partition),)
        topics = (OffsetDeleteRequestTopic(name=self.world.topic, partitions=gone),)
        self.client(way).ask(OffsetDeleteRequest(group_id=self.name(group), topics=topics))

    @rule(group=st.sampled_from((*CLASSIC_GROUPS, CONSUMER_GROUP)), way=st.integers(0, 1))
    def delete_group(self, group: str, way: int) -> None:
        self.client(way).ask(DeleteGroupsRequest(groups_names=(self.name(group),)))

    @precondition(lambda self: len(self.transactions) < 2)
    @rule(group=st.sampled_from(CLASSIC_GROUPS), way=st.integers(0, 1), partition=st.integers(0, 3))
    def commit_in_transaction(self, group: str, way: int, partition: int) -> None:
        transaction = Transaction(self.client(way), f"{self.prefix} {secrets.token_hex(4)}")
        transaction.begin()
        self.transactions.append(transaction)
        transaction.commit_offsets(self.name(group), self.world.topic, {partition: 5_000 + partition})

    @precondition(lambda self: self.transactions)
    @rule(commit=st.booleans())
    def end_transaction(self, commit: bool) -> None:
        self.transactions.pop(0).end(commit=commit)

    @precondition(lambda self: len(self.consumers) < 2)
    @rule(way=st.integers(0, 1))
    def join_the_new_way(self, way: int) -> None:
        """A member joins with the new protocol. The broker refuses the join if a classic group has the name."""
        member = ConsumerMember(self.client(way), self.name(CONSUMER_GROUP), (self.world.topic,))
        member.join()
        self.consumers.append(member)

    @precondition(lambda self: self.consumers)
    @rule(number=ANY, owns=st.booleans())
    def go_on_the_new_way(self, number: int, owns: bool) -> None:
        member = self.consumers[number % len(self.consumers)]
        if owns:
            member.take()
        else:
            member.heartbeat()

    @precondition(lambda self: self.consumers)
    @rule(number=ANY, partition=st.integers(0, 3))
    def commit_the_new_way(self, number: int, partition: int) -> None:
        self.consumers[number % len(self.consumers)].commit(self.world.topic, {partition: 9})

    @precondition(lambda self: self.consumers)
    @rule()
    def leave_the_new_way(self) -> None:
        self.consumers.pop().leave()

    @invariant()
    def agree(self) -> None:
        """Asserts that the answers about every group agree with the broker's answers."""
        for actor in self.actors:
            actor.collect(0)
        names = tuple(map(self.name, (*CLASSIC_GROUPS, CONSUMER_GROUP)))
        everything = tuple(OffsetFetchRequestGroup(group_id=name, topics=None) for name in names)
        self.compare(DescribeGroupsRequest(groups=names), 6)
        for name in names:
            self.compare(DescribeGroupsRequest(groups=(name,)), 5)
            self.compare(OffsetFetchRequest(group_id=name, topics=None), 5)
        self.compare(OffsetFetchRequest(groups=everything), 8)
        self.compare(OffsetFetchRequest(groups=everything, require_stable=True), 8)
        self.compare(ListGroupsRequest(), 4)
        self.compare(ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=False), 1)

    def teardown(self) -> None:
        """Removes all members, and the groups that the broker allows to delete."""
        for transaction in self.transactions:
            transaction.end(commit=False)
        for consumer in self.consumers:
            consumer.leave()
        for actor in self.actors:
            actor.member.__exit__(None, None, None)
        for name in map(self.name, CLASSIC_GROUPS):  # Vanished clients are still members.
            left = tuple(MemberIdentity(member_id=member) for member in self.members(name))
            self.world.through.ask(LeaveGroupRequest(group_id=name, members=left))
        names = tuple(map(self.name, (*CLASSIC_GROUPS, CONSUMER_GROUP)))
        self.world.through.ask(DeleteGroupsRequest(groups_names=names))
        for wire in (self.direct, self.through):
            wire.__exit__(None, None, None)

    def compare(self, request: Struct, version: int) -> None:
        """Asks broker and sidecar until they agree.

        Fails only if the broker gives equal answers before and after the sidecar's answer.
        """
        started = time.monotonic()
        while True:
            before = in_order(self.direct.ask(request, version))
            seen = in_order(self.through.ask(request, version))
            after = in_order(self.direct.ask(request, version))
            if seen in (before, after):
                return
            if before == after and time.monotonic() > started + self.world.patience:
                where = "\n  ".join(differences(after, seen))
                self.found.append(f"{type(request).__name__} v{version} differs\n  {where}\n  asked {request}")
                raise AssertionError(self.found[-1])

    def name(self, group: str) -> str:
        return f"{self.prefix} {group}"

    def client(self, way: int) -> Client:
        return self.world.ways[way % len(self.world.ways)]

    def actor(self, number: int) -> Actor:
        return self.actors[number % len(self.actors)]

    def members(self, group: str) -> set[str]:
        """Returns the member ids of a classic group at the broker."""
        described = self.direct.ask(DescribeGroupsRequest(groups=(group,)), 5)
        return {member.member_id for member in described.groups[0].members}

    def forget(self, actor: Actor) -> None:
        actor.member.vanish()
        self.actors.remove(actor)


@pytest.mark.timeout(600)
def test_random_history_agrees(world: World) -> None:
    """After each step of a random history, the sidecar's answers equal the broker's."""

    class HistoryHere(History):
        pass

    HistoryHere.world, HistoryHere.found = world, []
    try:
        run_state_machine_as_test(
            HistoryHere,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                deadline=None,
                phases=(Phase.explicit, Phase.generate),
                suppress_health_check=list(HealthCheck),
            ),
        )
    except (FlakyFailure, FlakyStrategyDefinition) as error:
        raise AssertionError(HistoryHere.found) from error
