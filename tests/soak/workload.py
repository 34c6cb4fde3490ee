"""The clients of the soak test. Each runs in a thread of its own and repeats one round of work until the end."""

import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.metadata import MetadataRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from group_sidecar.codecs.schema import Struct
from tests.kafka.dialect import Client, until
from tests.kafka.group_members import ClassicMember, ConsumerMember, commit, succeeded
from tests.kafka.processes import GIVE_UP_SECONDS, Address, host_port
from tests.kafka.transactions import Transaction
from tests.kafka.wire import Wire
from tests.soak.samples import HEARTBEAT, OFFSET_FETCH, Latencies
from tests.soak.upheavals import Upheavals

TOPIC = "soak"
STEADY_GROUP = "steady"
PARTITIONS = 4
_PAUSE_SECONDS = 0.05
_NAMES = 200
"""How many names each kind of client uses in turn. With ever new names, caches of up to 200,000 names would grow for
hours until they reach their limits."""
_SESSION_MS = 10_000
"""The session timeout. It is shorter than the default, so that members whose round failed do not stay for long."""
_SHORT_SESSION_MS = 1000
_TOPIC_PAUSE_SECONDS = 8.0
"""The pause after a topic is deleted, because the sidecar then forwards every OffsetFetch for some seconds."""
_QUESTIONS_PER_CONNECTION = 5
_PROBES = 20
"""How many heartbeats and questions a member that measures latency sends before it joins again."""
_DELETED = (0, int(ErrorCode.GROUP_ID_NOT_FOUND))


@dataclass
class Workload:
    """All clients of a run.

    Args:
        client: sends requests through the sidecar.
        secure: the address of the listener with TLS, and the context to connect with.
        upheavals: knows when the broker restarts. An error during a restart is expected.

    Attributes:
        rounds: how many rounds each kind of client has completed.
        expected: how many rounds ended with an error during a restart of the broker.
        failures: the errors of all other failed rounds.
    """

    client: Client
    secure: tuple[Address, ssl.SSLContext]
    upheavals: Upheavals
    latencies: Latencies = field(default_factory=Latencies)
    rounds: Counter[str] = field(default_factory=Counter)
    expected: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._leftovers = _Leftovers()
        self._admin = AdminClient({"bootstrap.servers": host_port(self.client.address), "log_level": 0})
        kinds: Mapping[str, Callable[[int], None]] = {
            "steady member": self._steady,
            "churning members": self._churn,
            "expiring member": self._expire,
            "short-lived group": self._make_and_delete,
            "consumer-protocol group": self._consumer_protocol,
            "short-lived topic": self._topic,
            "transaction": self._transaction,
            "questions": self._questions,
            "TLS client": self._tls,
        }
        self._threads = [
            threading.Thread(target=self._repeat, args=(name, work), name=name) for name, work in kinds.items()
        ]
        self.kinds = tuple(kinds)

    def __enter__(self) -> "Workload":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, name: str, work: Callable[[int], None]) -> None:
        for number in count():
            self.upheavals.wait_for_broker(self._stop)
            if self._stop.is_set():
                return
            began = time.monotonic()
            try:
                self._clean_up()
                work(number)
            except Exception as error:  # noqa: BLE001 - each kind of client may fail in its own way
                if self.upheavals.disturbed_since(began):
                    self.expected[name] += 1
                else:
                    self.failures.append(f"{name}: {type(error).__name__}: {error}")
            else:
                self.rounds[name] += 1
            self._stop.wait(_PAUSE_SECONDS)

    def _steady(self, _: int) -> None:
        """Joins a group, and measures heartbeats and questions on an open connection."""
        with self._member(STEADY_GROUP) as member, self.client.wire() as wire:
            member.join()
            member.sync()
            succeeded(member.commit({0: 1}))
            request = offsets_of(STEADY_GROUP)
            version = self.client.dialect.newest(request.KEY, 9)
            for _ in range(_PROBES):
                began = time.perf_counter()
                assert member.heartbeat() == 0
                self.latencies.add(HEARTBEAT, time.perf_counter() - began)
                began = time.perf_counter()
                reply = wire.ask(request, version)
                self.latencies.add(OFFSET_FETCH, time.perf_counter() - began)
                assert reply.groups[0].error_code == 0, reply
                if self._stop.wait(_PAUSE_SECONDS):
                    return

    def _churn(self, _: int) -> None:
        """Two members form a generation, commit, and the second one leaves."""
        with self._member("churning") as first, self._member("churning") as second:
            first.join()
            first.sync()
            second.send_join()
            until(lambda: first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "the group rebalances")
            first.send_join()
            for member in (first, second):
                succeeded(member.receive_join())
                member.send_sync()
            for member in (first, second):
                succeeded(member.receive_sync())
            succeeded(first.commit({0: 5}))
            succeeded(second.commit({1: 5}))

    def _expire(self, number: int) -> None:
        """A member of a new group stops without leaving, so its session expires. The group is then deleted."""
        group = self._new_group("expiring", number)
        member = self._member(group, _SHORT_SESSION_MS)
        try:
            member.join()
            member.sync()
        finally:
            member.vanish()
        self._clean_up()

    def _make_and_delete(self, number: int) -> None:
        """A group is created, used, described and deleted."""
        group = self._new_group("short-lived", number)
        with self._member(group) as member:
            member.join()
            member.sync()
            succeeded(member.commit({0: number, 1: number}))
            assert member.heartbeat() == 0
            [described] = self.client.ask(DescribeGroupsRequest(groups=(group,))).groups
            assert len(described.members) == 1, described
        self._clean_up()

    def _consumer_protocol(self, number: int) -> None:
        """A member of a KIP-848 group joins, takes its partitions, commits and leaves. The group is then deleted."""
        group = self._new_group("consumer", number)
        with ConsumerMember(self.client, group, (TOPIC,)) as member:
            member.join()

            def assigned() -> bool:
                member.heartbeat()
                return bool(member.assigned)

            until(assigned, "the member gets partitions")
            member.take()
            succeeded(member.commit(TOPIC, {0: number}))
        self._clean_up()

    def _topic(self, number: int) -> None:
        """A topic is created, a group commits offsets of the topic, and the topic is deleted with these offsets."""
        topic, group = unique("topic", number), self._new_group("reads-topic", number)
        self._leftovers.topics.append(topic)
        self._admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(GIVE_UP_SECONDS)
        request = MetadataRequest(topics=())
        until(lambda: topic in {each.name for each in self.client.ask(request, 0).topics}, f"{topic} exists")
        commit(self.client, group, topic, dict.fromkeys(range(PARTITIONS), number))
        self._clean_up()
        self._stop.wait(_TOPIC_PAUSE_SECONDS)

    def _transaction(self, number: int) -> None:
        """A transaction with offsets of a group is committed or aborted. Every tenth transaction has a new id."""
        with Transaction(self.client, f"transaction-{number // 10}") as transaction:
            transaction.begin()
            transaction.commit_offsets("transactions", TOPIC, {number % PARTITIONS: number})
            transaction.end(commit=number % 3 > 0)

    def _questions(self, _: int) -> None:
        """A client on a new connection lists and describes all groups, and fetches the offsets of some."""
        newest = self.client.dialect.newest
        with self.client.wire() as wire:
            for _ in range(_QUESTIONS_PER_CONNECTION):
                listed = succeeded(wire.ask(ListGroupsRequest(), newest(ListGroupsRequest.KEY))).groups
                names = tuple(group.group_id for group in listed)
                wire.ask(DescribeGroupsRequest(groups=names), newest(DescribeGroupsRequest.KEY))
                wire.ask(offsets_of(*names[:5]), newest(OffsetFetchRequest.KEY, 9))

    def _tls(self, _: int) -> None:
        """A client connects with TLS, and asks for a group's offsets."""
        address, context = self.secure
        with Wire(address, tls=context) as wire:
            for _ in range(_QUESTIONS_PER_CONNECTION):
                reply = wire.ask(offsets_of(STEADY_GROUP), self.client.dialect.newest(OffsetFetchRequest.KEY, 9))
                assert reply.groups[0].error_code == 0, reply

    def _member(self, group: str, session_ms: int = _SESSION_MS) -> ClassicMember:
        return ClassicMember(self.client, group, TOPIC, session_ms=session_ms)

    def _new_group(self, stem: str, number: int) -> str:
        group = unique(stem, number)
        self._leftovers.groups.append(group)
        return group

    def _clean_up(self) -> None:
        """Deletes all topics and groups that this thread has created, also those of rounds that failed."""
        mine = self._leftovers
        while mine.topics:
            with _unless(KafkaError.UNKNOWN_TOPIC_OR_PART):
                self._admin.delete_topics([mine.topics[0]])[mine.topics[0]].result(GIVE_UP_SECONDS)
            mine.topics.pop(0)
        while mine.groups:
            until(partial(self._deleted, mine.groups[0]), f"{mine.groups[0]} is deleted")
            mine.groups.pop(0)

    def _deleted(self, group: str) -> bool:
        """Tries to delete a group. Returns False while it still has a member or an unfinished change."""
        [result] = self.client.ask(DeleteGroupsRequest(groups_names=(group,))).results
        return result.error_code in _DELETED


class _Leftovers(threading.local):
    """The topics and groups that a thread has created and not deleted yet."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.groups: list[str] = []


@contextmanager
def _unless(code: int) -> Iterator[None]:
    """Suppresses an error of librdkafka that has this code."""
    try:
        yield
    except KafkaException as error:
        if error.args[0].code() != code:
            raise


def offsets_of(*groups: str) -> Struct:
    """Returns a request for all committed offsets of groups."""
    return OffsetFetchRequest(groups=tuple(OffsetFetchRequestGroup(group_id=each, topics=None) for each in groups))


def unique(stem: str, number: int) -> str:
    """Returns a name that no other round has at the same time."""
    return f"{stem}-{number % _NAMES}"
