"""Tests the prober: its requests, what the copy learns, and its behaviour while the broker is unreachable."""

import random
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from group_sidecar.codecs.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from group_sidecar.codecs.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.views import TopicPartition
from group_sidecar.proxy.broker.broker_errors import AuthenticationFailed, TlsFailed
from group_sidecar.proxy.broker.kafka_client import KafkaClient, connect
from group_sidecar.proxy.broker.log_bound_queries import END_OF_LOG, PARTITIONS_PER_REQUEST, START_OF_LOG
from group_sidecar.proxy.broker.probe import (
    FRESH_SHARE_OF_ROUND,
    LONGEST_ROUND,
    MIN_TRIGGER_SECONDS,
    ROUND_SECONDS,
    STARTS_SECONDS,
    ProbeTrigger,
    probe_forever,
)
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.runtime.backoff import FIRST_PAUSE, LONGEST_PAUSE
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.proxy.scripted_broker import HangUp, MemoryNetwork, NoReply, RawReply, ScriptedBroker

BROKER = Address("broker", 9092)
TIMES = {START_OF_LOG: 1, END_OF_LOG: 10}
UNREACHABLE = "broker:9092 cannot be reached: Connection refused"
GROUPS = ListGroupsResponse(
    error_code=0,
    groups=(ListedGroup(group_id="a", protocol_type="consumer"), ListedGroup(group_id="b", protocol_type="")),
)
LOADING = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=())


def asked_for(served: ScriptedBroker, bound: int) -> list[ListOffsetsRequest]:
    """Returns the requests for log starts or log ends."""
    requests = served.requests(ListOffsetsRequest)
    return [request for request in requests if request.topics[0].partitions[0].timestamp == bound]


def acls(code: int) -> DescribeAclsResponse:
    return DescribeAclsResponse(throttle_time_ms=0, error_code=code, error_message=None, resources=())


def bounds_of(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
    """Returns the bounds of logs: partition N begins at N and ends at N * 10. Another broker leads partition 9."""
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(
                        partition_index=one.partition_index,
                        error_code=6 if one.partition_index == 9 else 0,
                        offset=-1 if one.partition_index == 9 else one.partition_index * TIMES[one.timestamp],
                    )
                    for one in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def broker(**instead: Any) -> ScriptedBroker:
    """Returns a broker without an authorizer. `instead`: other replies, by field."""
    answers: dict[type[Struct], Any] = {
        DescribeAclsRequest: acls(ErrorCode.SECURITY_DISABLED),
        ListGroupsRequest: GROUPS,
        ListOffsetsRequest: bounds_of,
    }
    names = {"acls": DescribeAclsRequest, "groups": ListGroupsRequest, "hello": ApiVersionsRequest}
    answers.update({names[name]: answer for name, answer in instead.items()})
    return ScriptedBroker({kind: answer for kind, answer in answers.items() if answer is not None})


@dataclass
class Journal:
    """The settings of a journal."""

    interval_seconds: float


@dataclass
class Settings:
    """The settings that the prober uses."""

    journal: Journal | None = None


@dataclass
class Copy:
    """Replaces all parts that the prober uses. Records each call with its time."""

    config: Settings = field(default_factory=Settings)
    partitions: set[TopicPartition] = field(default_factory=set)
    reports_all_log_ends: bool = False
    address: Address = BROKER
    calls: list[tuple[float, str, Any]] = field(default_factory=list)
    fault: Exception | None = None
    seen: dict[TopicPartition, float] = field(default_factory=dict)
    needs_broker_count: bool = False

    @property
    def own_connections(self) -> "Copy":
        return self

    @property
    def versions(self) -> "Copy":
        return self

    @property
    def access(self) -> "Copy":
        return self

    @property
    def log_bounds(self) -> "Copy":
        return self

    @property
    def reachability(self) -> "Copy":
        return self

    def connect(self) -> AbstractAsyncContextManager[KafkaClient]:
        return connect(*self.address)

    def _note(self, what: str, value: Any = None) -> None:
        self.calls.append((trio.current_time(), what, value))

    def values_of(self, what: str) -> list[Any]:
        return [value for _, name, value in self.calls if name == what]

    def times(self, what: str) -> list[float]:
        return [at for at, name, _ in self.calls if name == what]

    def reset_learned(self) -> None:
        self._note("anew")

    def learn(self, versions: Mapping[int, tuple[int, int]]) -> None:
        self._note("versions", dict(versions))

    def learn_authorizer(self, present: bool) -> None:
        self._note("authorizer", present)

    def learn_broker_count(self, count: int) -> None:
        self._note("brokers", count)

    def learn_initial_groups(self, groups: list[str] | None) -> None:
        self._note("groups", groups)

    async def committed_partitions(self) -> set[TopicPartition]:
        if self.fault:
            raise self.fault
        return self.partitions

    def partitions_with_stale_log_end(self, partitions: Iterable[TopicPartition], since: float) -> set[TopicPartition]:
        self._note("since", since)
        return {partition for partition in partitions if self.seen.get(partition, float("-inf")) < since}

    def learn_log_ends(self, ends: Mapping[TopicPartition, int], asked_at: float) -> None:
        self._note("ends", dict(ends))
        self._note("asked", asked_at)

    def learn_log_starts(self, starts: Mapping[TopicPartition, int], asked_at: float) -> None:
        self._note("starts", dict(starts))

    def probe_failed(self, reason: str) -> None:
        self._note("failed", reason)

    def probe_succeeded(self) -> None:
        self._note("succeeded")

    def probe_refused(self) -> None:
        self._note("refused")


@pytest.fixture
def network(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> MemoryNetwork:
    network = MemoryNetwork(nursery)
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    return network


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


def events(lines: list[Any]) -> list[str]:
    return [line["event"] for line in lines]


async def probe_for(seconds: float, copy: Copy) -> None:
    with trio.move_on_after(seconds):
        await probe_forever(copy)


async def test_first_connection_learns_all(network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any]) -> None:
    """The first connection learns the versions, the authorizer, the groups, and the starts and ends of logs."""
    network.brokers[BROKER] = broker()
    copy = Copy(partitions={("t", 2), ("t", 9), ("s", 1)})
    await probe_for(1, copy)
    start = copy.calls[0][0]
    assert [(what, value) for _, what, value in copy.calls] == [
        ("anew", None),
        ("versions", {3: (0, 13), 18: (0, 5), 29: (0, 3), 16: (0, 5), 2: (0, 11)}),
        ("authorizer", False),
        ("groups", ["a", "b"]),
        ("since", start - FRESH_SHARE_OF_ROUND * ROUND_SECONDS),
        ("ends", {("t", 2): 20, ("s", 1): 10}),
        ("asked", start),
        ("starts", {("t", 2): 2, ("s", 1): 1}),
        ("succeeded", None),
    ]
    assert lines == [{"event": "broker reachable", "broker": "broker:9092", "log_level": "info"}]


async def test_brokers_are_counted_before_groups(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """If the copy needs the number of brokers, each round counts them, the first round before it lists the groups."""
    nodes = tuple(MetadataResponseBroker(node_id=number, host="b", port=number) for number in (1, 2))
    served = network.brokers[BROKER] = broker()
    served.answers[MetadataRequest] = MetadataResponse(brokers=nodes, topics=())
    copy = Copy(needs_broker_count=True)
    await probe_for(1.5 * ROUND_SECONDS, copy)
    names = [what for _, what, _ in copy.calls if what in ("brokers", "groups")]
    assert (names, copy.values_of("brokers")) == (["brokers", "groups", "brokers"], [2, 2])


@pytest.mark.parametrize("code", [0, 31, -1])
async def test_any_acl_reply_means_authorizer(network: MemoryNetwork, autojump_clock: MockClock, code: int) -> None:
    """Any reply except SECURITY_DISABLED means an authorizer. Groups are learned only if it has no error."""
    network.brokers[BROKER] = broker(acls=acls(code))
    copy = Copy()
    await probe_for(1, copy)
    assert copy.values_of("authorizer") == [True]
    # A user who may not describe the cluster may not see all groups.
    assert copy.values_of("groups") == ([["a", "b"]] if code == 0 else [])


async def test_missing_apis_are_not_requested(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """A broker without DescribeAcls and ListGroups still counts as reachable, with unknown groups."""
    network.brokers[BROKER] = broker(acls=None, groups=None)
    copy = Copy()
    await probe_for(1, copy)
    assert [what for _, what, _ in copy.calls] == ["anew", "versions", "groups", "succeeded"]
    assert copy.values_of("groups") == [None]


async def test_groups_are_requested_until_loaded(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """Groups are requested until the broker has loaded them, and not again."""
    served = network.brokers[BROKER] = broker(groups=LOADING)
    copy = Copy()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probe_forever, copy)
        await trio.sleep(2.5)
        assert copy.values_of("groups") == []
        assert copy.values_of("failed") == []
        served.answers[ListGroupsRequest] = GROUPS
        await trio.sleep(2)
        served.answers[ListGroupsRequest] = LOADING
        await trio.sleep(10 * ROUND_SECONDS)
        nursery.cancel_scope.cancel()
    assert copy.values_of("groups") == [["a", "b"]]
    assert len(served.requests(ListGroupsRequest)) == 4


@pytest.mark.parametrize(
    ("journal", "seconds"), [(None, ROUND_SECONDS), (Journal(3), 3), (Journal(3600), LONGEST_ROUND)]
)
async def test_rounds_follow_journal_interval(
    network: MemoryNetwork, autojump_clock: MockClock, journal: Journal | None, seconds: float
) -> None:
    """Rounds follow the journal's interval up to a maximum, over one connection."""
    network.brokers[BROKER] = broker()
    copy = Copy(Settings(journal), {("t", 1)})
    await probe_for(3.5 * seconds, copy)
    start = copy.times("ends")[0]
    assert [at - start for at in copy.times("ends")] == pytest.approx([0, seconds, 2 * seconds, 3 * seconds])
    assert len(network.attempts) == 1


async def test_all_led_log_ends_are_reported(network: MemoryNetwork, nursery: trio.Nursery) -> None:
    """If all log ends are wanted, each round requests every partition that the broker leads."""
    served = network.brokers[BROKER] = broker()
    partitions = tuple(
        MetadataResponsePartition(
            error_code=0, partition_index=number, leader_id=number, replica_nodes=(), isr_nodes=()
        )
        for number in (1, 9)
    )
    topic = MetadataResponseTopic(error_code=0, name="u", partitions=partitions)
    served.answers[MetadataRequest] = MetadataResponse(brokers=(), topics=(topic,))
    copy = Copy(partitions={("t", 2)}, reports_all_log_ends=True)
    nursery.start_soon(probe_forever, copy)
    with trio.fail_after(GIVE_UP_SECONDS):
        while not copy.values_of("succeeded"):  # Real time: a thread reads the metadata.
            await trio.lowlevel.checkpoint()
    nursery.cancel_scope.cancel()
    assert copy.values_of("ends") == [{("t", 2): 20, ("u", 1): 10}]
    assert copy.values_of("starts") == [{("t", 2): 2}]


async def test_no_partitions_means_plain_ping(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """Without partitions, a round checks only that the broker answers."""
    served = network.brokers[BROKER] = broker()
    copy = Copy()
    await probe_for(2.5 * ROUND_SECONDS, copy)
    assert len(copy.values_of("succeeded")) == 3
    assert copy.values_of("ends") == []
    assert served.requests(ListOffsetsRequest) == []


async def test_fresh_log_ends_are_not_requested(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """Log ends that traffic has shown recently are not requested."""
    served = network.brokers[BROKER] = broker()
    copy = Copy(partitions={("t", 1), ("t", 2)})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probe_forever, copy)
        await trio.sleep(ROUND_SECONDS / 2)
        copy.seen = {("t", 1): trio.current_time() + ROUND_SECONDS / 2}
        await trio.sleep(ROUND_SECONDS)
        copy.seen = {partition: trio.current_time() + ROUND_SECONDS / 2 for partition in copy.partitions}
        await trio.sleep(ROUND_SECONDS)
        copy.seen = {partition: trio.current_time() for partition in copy.partitions}
        await trio.sleep(ROUND_SECONDS)
        nursery.cancel_scope.cancel()
    both, one = {("t", 1): 10, ("t", 2): 20}, {("t", 2): 20}
    assert copy.values_of("ends") == [both, one, both]
    assert len(copy.values_of("succeeded")) == 4, "a round that needs no log ends must still check the broker"
    assert len(asked_for(served, END_OF_LOG)) == 3


async def test_many_partitions_are_split(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """Many partitions are requested in several requests."""
    served = network.brokers[BROKER] = broker()
    copy = Copy(partitions={(topic, number) for topic in "st" for number in range(10, PARTITIONS_PER_REQUEST)})
    await probe_for(1, copy)
    reported = [set(each) for each in copy.values_of("ends")]
    assert set().union(*reported) == copy.partitions
    assert [len(each) for each in reported] == [PARTITIONS_PER_REQUEST, PARTITIONS_PER_REQUEST - 20]
    assert len(asked_for(served, END_OF_LOG)) == 2
    starts = copy.values_of("starts")
    assert set().union(*starts) == copy.partitions
    assert [len(each) for each in starts] == [PARTITIONS_PER_REQUEST, PARTITIONS_PER_REQUEST - 20]


async def test_log_starts_are_requested_rarely(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """Log starts are requested less often than log ends."""
    network.brokers[BROKER] = broker()
    copy = Copy(partitions={("t", 3), ("t", 9)})
    await probe_for(2.5 * STARTS_SECONDS, copy)
    assert copy.values_of("starts") == [{("t", 3): 3}] * 3
    assert len(copy.values_of("ends")) == 2.5 * STARTS_SECONDS / ROUND_SECONDS


async def test_new_partitions_get_log_start_soon(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The log start of a newly committed partition is requested in the next round."""
    network.brokers[BROKER] = broker()
    copy = Copy(partitions={("t", 2)})
    nursery.start_soon(probe_forever, copy)
    await trio.sleep(ROUND_SECONDS / 2)
    copy.partitions = {("t", 2), ("t", 3)}
    await trio.sleep(2 * ROUND_SECONDS)
    nursery.cancel_scope.cancel()
    assert copy.values_of("starts") == [{("t", 2): 2}, {("t", 3): 3}]


async def test_pauses_grow_to_a_maximum(
    network: MemoryNetwork, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, lines: list[Any]
) -> None:
    """The pauses between failed attempts grow to a maximum, and the log has one line."""
    monkeypatch.setattr(random, "uniform", lambda least, most: most)
    copy = Copy()
    await probe_for(33, copy)
    times = copy.times("failed")
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses == pytest.approx([FIRST_PAUSE, 0.4, 0.8, 1.6, 3.2, 6.4, LONGEST_PAUSE, LONGEST_PAUSE])
    assert set(copy.values_of("failed")) == {UNREACHABLE}
    assert lines == [
        {"event": "broker unreachable", "broker": "broker:9092", "reason": UNREACHABLE, "log_level": "warning"}
    ]


async def test_pauses_are_randomized(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """The pauses of different probers differ."""
    copies = [Copy() for _ in range(5)]
    async with trio.open_nursery() as nursery:
        for copy in copies:
            nursery.start_soon(probe_for, 5, copy)
    seconds = [copy.times("failed")[1] - copy.times("failed")[0] for copy in copies]
    assert len(set(seconds)) == len(copies)
    assert all(FIRST_PAUSE / 2 <= pause <= FIRST_PAUSE for pause in seconds)


async def test_each_state_change_is_logged(network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any]) -> None:
    """Each change of reachability is one log line, and the pauses start short again."""
    served = broker()
    copy = Copy()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probe_forever, copy)
        await trio.sleep(30)
        network.brokers[BROKER] = served
        await trio.sleep(30)
        del network.brokers[BROKER]
        await served.hang_up()
        back = trio.current_time()
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert events(lines) == [
        "broker unreachable",
        "broker reachable",
        "broker unreachable",
    ]
    again = [at for at in copy.times("failed") if at > back]
    assert again[0] - back <= FIRST_PAUSE  # The prober notices the change before its next round.
    assert again[1] - again[0] <= FIRST_PAUSE
    assert copy.values_of("groups") == [["a", "b"]]


@asynccontextmanager
async def probed(network: MemoryNetwork) -> AsyncIterator[tuple[ScriptedBroker, Copy]]:
    """Yields a broker, and the copy that learns from it until the end of the block."""
    served = network.brokers[BROKER] = broker()
    copy = Copy()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probe_forever, copy)
        yield served, copy
        nursery.cancel_scope.cancel()


async def test_closed_idle_connection_is_no_failure(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """A closed idle connection is opened again without a failure."""
    async with probed(network) as (served, copy):
        for _ in range(3):
            await trio.sleep(5)
            await served.hang_up()
        await trio.sleep(1)
    assert copy.values_of("failed") == []
    assert len(copy.values_of("versions")) == 4


async def test_connection_closed_at_once_fails(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """A connection that is closed soon after a round counts as a failure."""
    async with probed(network) as (served, copy):
        await trio.sleep(0.5)
        await served.hang_up()
        await trio.sleep(0.05)
    assert copy.values_of("failed") == ["broker:9092 closed the connection"]


async def test_trigger_ends_pause(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """A trigger starts a round at once, unless the last round was too recent."""
    network.brokers[BROKER] = broker()
    copy, probe_trigger = Copy(), ProbeTrigger()
    probe_trigger.fire()  # The prober does not pause yet.
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probe_forever, copy, None, probe_trigger)
        await trio.sleep(MIN_TRIGGER_SECONDS / 2)
        probe_trigger.fire()  # The last round was too recent.
        await trio.sleep(MIN_TRIGGER_SECONDS)
        assert len(copy.times("succeeded")) == 1
        probe_trigger.fire()
        probe_trigger.fire()
        await trio.sleep(0.01)
        assert len(copy.times("succeeded")) == 2
        nursery.cancel_scope.cancel()


async def test_unsolicited_bytes_reconnect(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """Unsolicited bytes from the broker make the prober open a new connection."""
    async with probed(network) as (served, copy):
        await trio.sleep(5)
        await served.streams[0].send_all(b"x")
        await trio.sleep(1)
    assert len(copy.values_of("versions")) == 2


async def test_next_connection_learns_authorizer(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """The next connection learns the authorizer again, but not the groups."""
    async with probed(network) as (served, copy):
        await trio.sleep(1)
        served.answers[DescribeAclsRequest] = acls(0)
        served.answers[ListGroupsRequest] = LOADING
        await served.hang_up()
        await trio.sleep(2 * ROUND_SECONDS)
    assert copy.values_of("authorizer") == [False, True]
    assert copy.values_of("groups") == [["a", "b"]]


@pytest.mark.parametrize(
    ("answers", "event", "reason", "setting_hint"),
    [
        (
            {"hello": HangUp()},
            "broker closes the connection",
            "broker:9092 closed the connection at ApiVersions: it may require TLS, or be older than 0.9",
            {"setting": "own_connection.tls"},
        ),
        (
            {"hello": ApiVersionsResponse(error_code=0, api_keys=())},
            "broker not understood",
            "broker:9092 speaks Kafka without Metadata: is it the listener of a controller?",
            {},
        ),
        (
            {"acls": HangUp()},
            "broker closes the connection",
            "broker:9092 closed the connection at DescribeAcls: it may require SASL",
            {"setting": "own_connection.sasl"},
        ),
        (
            {"acls": NoReply()},
            "broker does not answer",
            "broker:9092 did not answer DescribeAcls within 10 s: it may require SASL",
            {"setting": "own_connection.sasl"},
        ),
        (
            {"acls": RawReply(b"\0\0\0\2\0" + bytes(6) + b"\x32")},
            "broker not understood",
            "DescribeAclsResponse v3: error_message: 49 bytes announced, 0 left",
            {},
        ),
    ],
)
async def test_unusable_broker_is_logged_once(
    network: MemoryNetwork,
    autojump_clock: MockClock,
    lines: list[Any],
    answers: dict[str, Any],
    event: str,
    reason: str,
    setting_hint: dict[str, str],
) -> None:
    """A broker that does not complete the first requests is logged once with the reason."""
    network.brokers[BROKER] = broker(**answers)
    copy = Copy()
    await probe_for(300, copy)
    reported, untold = ("failed", "succeeded") if "hello" in answers else ("refused", "failed")
    assert len(copy.values_of(reported)) > 5, "a broker that answers ApiVersions has not failed"
    assert copy.values_of(untold) == copy.values_of("succeeded") == []
    assert copy.values_of("authorizer") == copy.values_of("groups") == []
    assert lines == [
        {"event": event, "broker": "broker:9092", "reason": reason, "log_level": "warning", **setting_hint}
    ]


@pytest.mark.parametrize(
    ("refusal", "event"),
    [
        (TlsFailed("no trust"), "broker not reached by TLS"),
        (AuthenticationFailed("no such user"), "broker refuses the sidecar's credentials"),
    ],
)
async def test_refused_credentials_do_not_fail_probe(
    network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any], refusal: Exception, event: str
) -> None:
    """A broker that refuses TLS or credentials counts as refusing, not as unreachable."""

    async def refuse(client: KafkaClient) -> float:
        raise refusal

    class Refused(Copy):
        def connect(self) -> AbstractAsyncContextManager[KafkaClient]:
            return connect(*self.address, authenticate=refuse)

    network.brokers[BROKER] = broker()
    copy = Refused()
    await probe_for(100, copy)
    assert {what for _, what, _ in copy.calls} == {"refused"}
    pauses = [after - before for before, after in pairwise(copy.times("refused"))]
    assert pauses[0] <= FIRST_PAUSE
    assert pauses[-1] >= LONGEST_PAUSE / 2
    assert lines == [{"event": event, "broker": "broker:9092", "reason": str(refusal), "log_level": "warning"}]


async def test_versions_are_learned_before_refusal(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """The versions are learned although the broker closes the connection at the next request."""
    network.brokers[BROKER] = broker(acls=HangUp())
    copy = Copy()
    await probe_for(0.05, copy)
    assert copy.values_of("versions") == [{3: (0, 13), 18: (0, 5), 29: (0, 3), 16: (0, 5), 2: (0, 11)}]


async def test_internal_error_is_logged_once(
    network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any]
) -> None:
    """An internal error is logged once and does not count as a failure of the broker."""
    network.brokers[BROKER] = broker()
    copy = Copy(fault=KeyError())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probe_forever, copy)
        await trio.sleep(60)
        copy.fault = None
        await trio.sleep(30)
        nursery.cancel_scope.cancel()
    assert copy.values_of("failed") == []
    assert copy.values_of("groups") == [["a", "b"]]
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("a background task failed", "error"),
        ("broker reachable", "info"),
    ]
    assert lines[0]["exc_info"]
