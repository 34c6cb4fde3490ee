"""Tests the verification of a group that commits five times a second: errors are found, delays are not reported."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace

import pytest
import trio
from trio.testing import MockClock

from group_sidecar.codecs.headers import encode_reply_rest
from group_sidecar.codecs.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
    TopicPartitions,
)
from group_sidecar.codecs.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from group_sidecar.codecs.primitives import ZERO_UUID
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.metrics.traffic_counters import TrafficCounters, Verification
from group_sidecar.proxy.broker.kafka_client import KafkaClient, connect
from group_sidecar.proxy.broker.verification import SampleQueue, Verifier
from group_sidecar.proxy.broker.verification_window import CATCH_UP_SECONDS, VerificationWindows
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.runtime.supervision import Supervisor, Task
from tests.proxy.dataplane.playbook import EPOCH
from tests.proxy.scripted_broker import MemoryNetwork, ScriptedBroker

BROKER = Address("broker", 9092)
COMMIT_SECONDS = 0.2
LATE_SECONDS = 0.13
"""Seconds by which the copy is behind the broker."""
ENOUGH_SECONDS = 4 * CATCH_UP_SECONDS
"""Seconds that are enough to verify one question, which may take two windows."""


@dataclass
class Told:
    """The state of group g on one side. Its offset in partition 0 grows; in partition 1 it stays."""

    offset: int = 0
    steady: int = 5
    metadata: str = "m"
    leader_epoch: int = 1
    state: str = "Stable"
    member: str = "m1"
    assignment: bytes = b"a"
    partitions: tuple[int, ...] = (0, 1)
    listed: tuple[str, ...] = ("g", "other")

    def reply(self, request: Struct) -> Struct:
        if isinstance(request, OffsetFetchRequest):
            return OffsetFetchResponse(topics=(OffsetFetchResponseTopic(name="t", partitions=self._offsets()),))
        if isinstance(request, ListGroupsRequest):
            groups = (ListedGroup(group_id=each, protocol_type="", group_state=self.state) for each in self.listed)
            return ListGroupsResponse(error_code=0, groups=tuple(groups))
        if isinstance(request, ConsumerGroupDescribeRequest):
            return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=(self._consumer_group(),))
        member = DescribedGroupMember(
            member_id=self.member,
            client_id="c",
            client_host="/h",
            member_metadata=b"",
            member_assignment=self.assignment,
        )
        group = DescribedGroup(
            error_code=0, group_id="g", group_state=self.state, protocol_type="", protocol_data="", members=(member,)
        )
        return DescribeGroupsResponse(groups=(group,))

    def _offsets(self) -> tuple[OffsetFetchResponsePartition, ...]:
        return tuple(
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=self.leader_epoch,
                metadata=self.metadata,
                error_code=0,
            )
            for index, offset in enumerate((self.offset, self.steady))
        )

    def _consumer_group(self) -> ConsumerGroup:
        owned = TopicPartitions(topic_id=ZERO_UUID, topic_name="t", partitions=self.partitions)
        member = Member(
            member_id=self.member,
            instance_id=None,
            rack_id=None,
            member_epoch=3,
            client_id="c",
            client_host="/h",
            subscribed_topic_names=("t",),
            subscribed_topic_regex=None,
            assignment=Assignment(topic_partitions=(owned,)),
            target_assignment=Assignment(topic_partitions=()),
        )
        return ConsumerGroup(
            error_code=0,
            group_id="g",
            group_state=self.state,
            group_epoch=3,
            assignment_epoch=3,
            assignor_name="uniform",
            members=(member,),
        )


@dataclass
class Manager:
    """The copy's groups: their change counter, and the distrusted ones."""

    changes: int = 0
    distrusted: set[str] = field(default_factory=set)

    def changes_of(self, group_id: str) -> tuple[int, int]:
        return (0, self.changes if group_id == "g" else 0)

    def distrust(self, group_id: str) -> None:
        self.distrusted.add(group_id)

    def trust(self, group_id: str) -> None:
        self.distrusted.remove(group_id)


class Copy:
    """The copy of a broker whose group commits all the time. `wrong`: turns the true state into the copy's."""

    def __init__(self) -> None:
        self.address = BROKER
        self.manager = Manager()
        self.traffic = TrafficCounters()
        self.samples = SampleQueue(1.0, self.traffic)
        self.may_have_authorizer, self.true_hosts = False, True
        self.theirs, self.heard = Told(), Told()
        self.wrong: Callable[[Told], Told] = lambda reported: reported
        self.reloaded: list[str] = []
        self.learns_correctly = False
        kinds = (OffsetFetchRequest, ListGroupsRequest, DescribeGroupsRequest, ConsumerGroupDescribeRequest)
        self.broker = ScriptedBroker(dict.fromkeys(kinds, lambda request, version: self.theirs.reply(request)))

    def epoch(self, now: float) -> float:
        return EPOCH + now

    def connect(self, *, additional: bool = False) -> AbstractAsyncContextManager[KafkaClient]:
        return connect(*self.address, timeout=5)

    def reply(self, request: Struct, version: int, at: float) -> bytes | None:
        return encode_reply_rest(self.wrong(self.heard).reply(request), version)

    def reload(self, group_id: str) -> None:
        """Learns the group again, correctly if `learns_correctly` is set."""
        self.reloaded.append(group_id)
        if self.learns_correctly:
            self.wrong = lambda reported: reported

    async def commits(self) -> None:
        """Commits repeatedly. The copy follows after `LATE_SECONDS`."""
        while True:
            self.theirs = replace(self.theirs, offset=self.theirs.offset + 10)
            await trio.sleep(LATE_SECONDS)
            self.heard = self.theirs
            self.manager.changes += 1
            await trio.sleep(COMMIT_SECONDS - LATE_SECONDS)

    def answers(self, request: Struct, version: int) -> None:
        """Answers a client from the copy."""
        rest = self.reply(request, version, 0.0)
        assert rest is not None
        exchange = Exchange(
            request=request, version=version, token="1:1", client_id="c", client_host="/c", sent_at=EPOCH
        )
        self.samples.sample_answer(exchange, rest)

    def outcomes(self) -> dict[Verification, int]:
        found: dict[Verification, int] = {}
        for (_, outcome), count in self.traffic.verifications.items():
            found[outcome] = found.get(outcome, 0) + count
        return found


OFFSETS: tuple[Struct, int] = (OffsetFetchRequest(group_id="g", topics=None), 7)
LISTED: tuple[Struct, int] = (ListGroupsRequest(), 4)
DESCRIBED: tuple[Struct, int] = (DescribeGroupsRequest(groups=("g",)), 5)
NEW: tuple[Struct, int] = (ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False), 1)
QUESTIONS: Sequence[tuple[Struct, int]] = (OFFSETS, LISTED, DESCRIBED, NEW)

WRONG: dict[str, tuple[tuple[Struct, int], Callable[[Told], Told]]] = {
    "an offset that stays": (OFFSETS, lambda reported: replace(reported, steady=6)),
    "an offset that grows": (OFFSETS, lambda reported: replace(reported, offset=reported.offset + 1000)),
    "an offset that is stuck": (OFFSETS, lambda reported: replace(reported, offset=-7)),
    "metadata": (OFFSETS, lambda reported: replace(reported, metadata="n")),
    "a leader epoch": (OFFSETS, lambda reported: replace(reported, leader_epoch=2)),
    "a member": (DESCRIBED, lambda reported: replace(reported, member="m2")),
    "an assignment": (DESCRIBED, lambda reported: replace(reported, assignment=b"b")),
    "a state": (DESCRIBED, lambda reported: replace(reported, state="Empty")),
    "a member of the new protocol": (NEW, lambda reported: replace(reported, member="m2")),
    "an assignment of the new protocol": (NEW, lambda reported: replace(reported, partitions=(0,))),
    "a state of the new protocol": (NEW, lambda reported: replace(reported, state="Reconciling")),
    "a listed state": (LISTED, lambda reported: replace(reported, state="Empty")),
    "a group that is missing": (LISTED, lambda reported: replace(reported, listed=("other",))),
    "a group that is not there": (LISTED, lambda reported: replace(reported, listed=("g", "other", "third"))),
}


@pytest.fixture
def copy(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> Copy:
    network, copy = MemoryNetwork(nursery), Copy()
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    network.brokers[BROKER] = copy.broker
    windows = VerificationWindows(copy, copy, copy, copy.samples, copy.reply)
    verifier = Verifier(copy, windows, copy.samples, copy, copy.traffic, lambda request, version, at: None, copy.reload)
    nursery.start_soon(Supervisor().keep_running, Task.VERIFICATION, verifier.run, str(copy.address))
    nursery.start_soon(copy.commits)
    return copy


@pytest.mark.parametrize("kind", WRONG)
async def test_wrong_answer_found_with_one_sample(autojump_clock: MockClock, copy: Copy, kind: str) -> None:
    """One sample finds each kind of wrong answer while the group commits."""
    (request, version), copy.wrong = WRONG[kind]
    await trio.sleep(3)
    copy.answers(request, version)
    await trio.sleep(ENOUGH_SECONDS)
    assert copy.outcomes() == {Verification.DIFFERENT: 1}
    assert copy.manager.distrusted


async def test_late_copy_is_never_distrusted(autojump_clock: MockClock, copy: Copy) -> None:
    """A copy that is only late is never distrusted."""
    for number in range(40):
        for request, version in QUESTIONS:
            copy.answers(request, version)
        await trio.sleep(3 * CATCH_UP_SECONDS + 0.017 * number)
    assert copy.outcomes().keys() == {Verification.AGREED, Verification.INCONCLUSIVE}
    assert not copy.manager.distrusted


@pytest.mark.parametrize("kind", WRONG)
async def test_reloaded_group_is_trusted_again(autojump_clock: MockClock, copy: Copy, kind: str) -> None:
    """A group that differs is learned again and then trusted."""
    (request, version), copy.wrong = WRONG[kind]
    copy.learns_correctly = True
    await trio.sleep(3)
    copy.answers(request, version)
    await trio.sleep(ENOUGH_SECONDS)
    assert copy.reloaded in (["g"], ["third"], ["g", "other"], ["other", "g"])
    await trio.sleep(60)
    assert not copy.manager.distrusted


async def test_group_is_reloaded_once_per_case(autojump_clock: MockClock, copy: Copy) -> None:
    """A group that still differs after its reload is not reloaded again."""
    (request, version), copy.wrong = WRONG["metadata"]
    copy.answers(request, version)
    await trio.sleep(600)
    assert copy.reloaded == ["g"]
    assert copy.manager.distrusted == {"g"}
