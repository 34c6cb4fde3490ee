"""Clients that are not members: they ask about groups, commit and delete offsets, and produce."""

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest
from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsResponse
from group_sidecar.codecs.messages.end_txn import EndTxnRequest
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, MemberIdentity
from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataRequestTopic
from group_sidecar.codecs.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from group_sidecar.codecs.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.coordinator.model_log import batch
from tests.simulation.client import SimulatedClient
from tests.simulation.questions import (
    Question,
    any_question,
    commit_of,
    describe,
    list_groups,
    offset_fetch,
    transactional_commit_of,
)
from tests.simulation.topic_replies import TOPIC

if TYPE_CHECKING:
    from tests.simulation.world import World


class Looping(SimulatedClient):
    """A client that sends some requests, waits for all replies, rests, and begins again."""

    rest = (0.05, 1.0)
    """The shortest and the longest pause, in seconds."""

    def connected(self) -> None:
        """See SimulatedClient."""
        self._act()

    def _act(self) -> None:
        if self.is_connected and not self.is_waiting and not self.stops:
            self.act()
            self._check()

    def _check(self) -> None:
        if not self.is_waiting:
            self.world.timeline.after(self.rng.uniform(*self.rest), self._act)

    def send(self, question: Question, done: Callable[[Any], None] = lambda reply: None) -> None:
        """Sends a request, and continues the round after the reply."""

        def replied(reply: Any) -> None:
            done(reply)
            self._check()

        self.ask(*question, replied)

    def act(self) -> None:
        """Sends the requests of one round."""


class Asker(Looping):
    """Asks about groups, and pipelines several questions."""

    def __init__(self, world: "World", name: str, address: str, rng: Random, groups: Sequence[str]) -> None:
        super().__init__(world, name, address, rng)
        self._groups = groups

    def act(self) -> None:
        """See Looping."""
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            self.send(any_question(self.rng, self._groups))

    def ask_everything(self, done: Callable[[bool], None], *, learns: bool) -> None:
        """Asks about each group and all groups. Calls `done` with whether the sidecar answered all questions itself.

        Leaves out groups that the broker may remove soon, because the sidecar forwards questions about them.

        `learns`: whether to ask questions too that the sidecar can answer only after it has seen the broker's answer to
        an earlier one. Such questions are about offsets if the sidecar does not read the log, or about groups that the
        broker has removed. Without the offsets, the sidecar cannot know whether the broker keeps an empty group.
        """
        scenario, questions = self.world.scenario, list[Question]()
        knows_offsets = scenario.reads_log or learns
        kept = [each for each in self._groups if self.world.kafka.is_kept(each, for_offsets=knows_offsets)]
        dead = [each for each in self._groups if each not in self.world.kafka.groups()]
        known = kept + dead if learns else kept
        if scenario.reads_log or (scenario.exclusive and learns):
            questions += [offset_fetch(self.rng, [group]) for group in known]
        if scenario.exclusive:
            questions += [describe(self.rng, [group]) for group in known]
            questions += [list_groups(self.rng)] if len(known) == len(self._groups) else []
        if not questions:
            done(True)
        left = [len(questions)]

        def one(reply: Any) -> None:
            left[0] -= 1
            if not left[0]:
                done(not self.world.left_to_broker)

        for question in questions:
            self.send(question, one)


class Watcher(SimulatedClient):
    """Asks about a group whenever something happens to the group. The network delivers its bytes without delay."""

    is_instant = True

    def notice(self, group_id: str) -> None:
        """Called when something happens to a group. Asks about the group at once or soon, unless a reply is due."""
        if self.is_waiting or self.stops or self.rng.random() > self.world.scenario.curiosity:
            return
        delay = self.rng.choice((0.0, 0.0, *(self.rng.uniform(0.0, most) for most in (0.003, 0.3, 2.0))))

        def ask() -> None:
            if not self.is_waiting:
                self.ask(*any_question(self.rng, [group_id]), lambda reply: None)

        self.world.timeline.after(delay, ask)


class Admin(Looping):
    """Removes members from groups, deletes groups and offsets, and describes a group afterwards."""

    rest = (0.5, 6.0)

    def __init__(self, world: "World", name: str, address: str, rng: Random, groups: Sequence[str]) -> None:
        super().__init__(world, name, address, rng)
        self._groups = groups
        self._members: dict[str, Sequence[MemberIdentity]] = {}

    def act(self) -> None:
        """See Looping."""
        group_id, which = self.rng.choice(self._groups), self.rng.random()
        members = self._members.pop(group_id, ())
        if members and which < 0.4:
            some = tuple(self.rng.sample(members, self.rng.randrange(1, len(members) + 1)))
            self.send((LeaveGroupRequest(group_id=group_id, members=some), self.rng.choice((3, 4, 5))))
        elif which < 0.7:
            self.send((DeleteGroupsRequest(groups_names=(group_id,)), self.rng.randrange(3)))
        else:
            partition = OffsetDeleteRequestPartition(partition_index=self.rng.randrange(3))
            topics = (OffsetDeleteRequestTopic(name=TOPIC, partitions=(partition,)),)
            self.send((OffsetDeleteRequest(group_id=group_id, topics=topics), 0))
        self.send(describe(self.rng, [group_id]), self._look)

    def _look(self, reply: DescribeGroupsResponse) -> None:
        for group in reply.groups:
            self._members[group.group_id] = [
                MemberIdentity(
                    member_id="" if each.group_instance_id and self.rng.random() < 0.5 else each.member_id,
                    group_instance_id=each.group_instance_id,
                )
                for each in group.members
            ]


class Committer(Looping):
    """Commits offsets of a group without members, reads its own writes, and deletes offsets and the group."""

    def __init__(self, world: "World", name: str, address: str, rng: Random, group_id: str) -> None:
        super().__init__(world, name, address, rng)
        self._group_id = group_id
        self._offset = 0

    def act(self) -> None:
        """See Looping."""
        which = self.rng.random()
        if which < 0.08:
            self.send((DeleteGroupsRequest(groups_names=(self._group_id,)), self.rng.randrange(3)))
        elif which < 0.2:
            partition = OffsetDeleteRequestPartition(partition_index=self.rng.randrange(3))
            topics = (OffsetDeleteRequestTopic(name=TOPIC, partitions=(partition,)),)
            self.send((OffsetDeleteRequest(group_id=self._group_id, topics=topics), 0))
        else:
            for _ in range(self.rng.choice((1, 1, 3))):
                self._offset += 1
                partitions = self.rng.sample(range(3), self.rng.randrange(1, 3))
                offsets = dict.fromkeys(partitions, self._offset)
                self.send((commit_of(self._group_id, offsets), self.rng.choice((2, 5, 7, 8, 9))))
        if self.rng.random() < 0.6:
            self.send(offset_fetch(self.rng, [self._group_id]))


class Transactor(Looping):
    """Commits offsets of a group in transactions, and sometimes without. It leaves some transactions open."""

    def __init__(self, world: "World", name: str, address: str, rng: Random, group_id: str, producer_id: int) -> None:
        super().__init__(world, name, address, rng)
        self._group_id, self._producer_id = group_id, producer_id
        self._offset = 0

    def act(self) -> None:
        """See Looping."""
        self._offset += 1
        offsets = dict.fromkeys(self.rng.sample(range(3), self.rng.randrange(1, 3)), self._offset)
        which = self.rng.random()
        if which < 0.6:
            request = transactional_commit_of(self._group_id, offsets, self._producer_id)
            self.send((request, self.rng.choice((2, 3, 5))))
        if 0.4 <= which < 0.85:
            self._end()
        elif which >= 0.85:
            self.send((commit_of(self._group_id, offsets), 8))
        if self.rng.random() < 0.5:
            self.send(offset_fetch(self.rng, [self._group_id]))

    def _end(self) -> None:
        end = EndTxnRequest(
            transactional_id=f"transactional-{self._producer_id}",
            producer_id=self._producer_id,
            producer_epoch=0,
            committed=self.rng.random() < 0.7,
        )
        self.send((end, self.rng.choice((1, 3, 4))))


class Producer(Looping):
    """Sends requests that the sidecar forwards unread, some of them long and some without a reply."""

    def act(self) -> None:
        """See Looping."""
        for _ in range(self.rng.choice((1, 2, 5))):
            which = self.rng.random()
            if which < 0.1:
                self.send((ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3))
            elif which < 0.2:
                self.send((MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),)), self.rng.choice((1, 5, 9, 12))))
            else:
                self._produce()

    def _produce(self) -> None:
        size = self.rng.choice((10, 10, 300, 5_000, 100_000))
        records = batch(0, [(b"k", self.rng.randbytes(8) * (size // 8))])
        data = PartitionProduceData(index=self.rng.randrange(3), records=records)
        acks = self.rng.choice((-1, 1, 1, 0))
        request = ProduceRequest(
            acks=acks, timeout_ms=1000, topic_data=(TopicProduceData(name=TOPIC, partition_data=(data,)),)
        )
        if acks:
            self.send((request, self.rng.choice((3, 7, 9))))
        else:
            self.ask(request, self.rng.choice((3, 9)), lambda reply: None, replies=False)
