"""Three brokers, a sidecar in front of each, and the groups of a fleet.

The module starts the cluster, acts as its clients, and waits until the journals contain everything. The module must
work without Spark.
"""

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic

from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorRequest
from group_sidecar.metrics.array_lines import records_of
from group_sidecar.metrics.journal_segments import SEALED_SEGMENTS
from group_sidecar.metrics.records import ARRAY_VERSION, VERSION, Group, LogEnd, Record, timestamp
from tests.conformance.librdkafka import admin, consume, consumer, poll_until, produce, settled, wait_for_partitions
from tests.conformance.routes import Route, Run
from tests.kafka.broker import KafkaBroker
from tests.kafka.cluster import kafka_cluster
from tests.kafka.dialect import Client, Dialect, until
from tests.kafka.group_members import ClassicMember
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import ask

NODES = 3
ORDERS, CLICKS, LETTERS = "orders", "clicks", "letters"
TOPICS = {ORDERS: 6, CLICKS: 3, LETTERS: 3}
"""Partitions by topic. No consumer reads `letters`: a group only commits offsets of it."""
JOURNAL = "journal"
"""The topic to which all sidecars write in addition to their folders. Each broker leads one of its partitions."""
CROWDED, CROWDED_LIMIT, REFUSALS = "crowded", 2, 3
"""A group, its maximum number of members, and how many joins are refused."""
SIMPLE = tuple(f"simple-{number}" for number in range(8))
"""Groups without joins. Every partition of the offsets topic has some of them."""
MEMBERS = {"range": 2, "sticky": 2, "new": 2, CROWDED: CROWDED_LIMIT}
"""Members by group. The groups without members are those of SIMPLE, `left`, whose members have left, and `lonely`."""
GROUPS = (*MEMBERS, *SIMPLE, "left", "lonely")
REFUSED = 77
ARRAY_NODE = 2
"""The node whose sidecar writes version 2 of the contract: array lines."""

_WRITTEN = "group_sidecar_records_written_total"
_STAYING: dict[str, Any] = {"reconnect_backoff_max_ms": 200, "max_poll_interval_ms": 3_600_000}
_PATIENT = {"session_timeout_ms": 45_000}
"""Long timeouts. With them, no member is removed when a sidecar or a broker is lost, or when clients are not polled."""
_READERS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "range": ([ORDERS], _PATIENT),
    "sticky": ([ORDERS], {"partition_assignment_strategy": "cooperative-sticky", **_PATIENT}),
    "new": ([ORDERS, CLICKS], {"group_protocol": "consumer", "group_remote_assignor": "range"}),
    CROWDED: ([CLICKS], _PATIENT),
}

_SETTLED = ("Stable", "Empty")
_SECONDS = 0.5
"""Seconds between two snapshots."""
_PROPERTIES = {"offsets.topic.num.partitions": "6"}


def sidecar_id(node: int) -> str:
    """Returns the id of the sidecar in front of a node."""
    return f"sidecar-{node}"


def _settings(node: int, journals: Path) -> dict[str, Any]:
    crowded = {"pattern": f".*{CROWDED}", "limit": CROWDED_LIMIT}
    return {
        "sidecar_id": sidecar_id(node),
        "answers": {"exclusive": True},
        "policies": {"group_max_size": {"overrides": [crowded]}},
        "journal": {
            "folder": str(journals / str(node)),
            "topic": JOURNAL,
            "contract_version": ARRAY_VERSION if node == ARRAY_NODE else VERSION,
            "interval_seconds": _SECONDS,
            "segment_seconds": _SECONDS,
            "topic_linger_seconds": 0,
        },
    }


@dataclass
class Journals:
    """The sealed segments of the sidecars. Each segment is read once."""

    folder: Path
    _read: dict[Path, list[Record]] = field(default_factory=dict)

    def records(self) -> Iterator[Record]:
        """Yields all records, in order for each sidecar."""
        for segment in sorted(self.folder.rglob(SEALED_SEGMENTS)):
            if segment not in self._read:
                lines = segment.read_bytes().splitlines()
                self._read[segment] = [record for line in lines for record in records_of(line)]
            yield from self._read[segment]

    def copy(self, folder: Path) -> Path:
        """Copies the current sealed segments, with their dates."""
        for segment in self.folder.rglob(SEALED_SEGMENTS):
            to = folder / segment.relative_to(self.folder)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(segment, to)
        return folder


@dataclass
class Fleet:
    """The brokers with their sidecars, node 1 first.

    Attributes:
        run: the run of the clients, which connect to the first sidecar and are directed to the others.
        members: the number of members of each group; 0 for other groups.
        gone: the nodes whose broker was killed.
    """

    brokers: Sequence[KafkaBroker]
    sidecars: Sequence[SidecarProcess]
    journals: Journals
    run: Run
    members: dict[str, int] = field(default_factory=lambda: dict(MEMBERS))
    gone: set[int] = field(default_factory=set)

    def nodes(self) -> list[int]:
        """The nodes that are running."""
        return [node for node in range(1, NODES + 1) if node not in self.gone]

    def coordinator(self, group: str) -> int:
        """Returns the node that coordinates a group."""
        request = FindCoordinatorRequest(key=self.run.name(group))
        until(lambda: ask(self.brokers[0].direct, request, 2).error_code == 0, f"{group} has a coordinator")
        return int(ask(self.brokers[0].direct, request, 2).node_id)

    def timelines(self) -> dict[str, list[dict[str, Any]]]:
        """Returns the timeline of each group, from all sidecars."""
        timelines: dict[str, list[dict[str, Any]]] = {}
        for group in map(self.run.name, GROUPS):
            replies = [sidecar.get(f"/api/v1/timeline?group={group}") for sidecar in self.sidecars]
            timelines[group] = [
                cell for status, body in replies if status == 200 for cell in json.loads(body)["timeline"]
            ]
        return timelines

    def settle(self) -> None:
        """Waits until snapshots contain the current state of all groups, and log ends that are newer than the call."""
        since = timestamp(time.time())
        until(lambda: not self._missing(since), "the whole state is in the journal again")

    def flush(self) -> None:
        """Waits until the topic contains everything that the folders contain now."""
        for sidecar in self.sidecars:
            written = sidecar.metric(_WRITTEN, outlet="folder")
            sidecar.process.wait_until(lambda s=sidecar, w=written: s.metric(_WRITTEN, outlet="topic") >= w)  # type: ignore[misc]

    def _missing(self, since: str) -> set[object]:
        """Returns the sidecars, the groups in their expected states, and the log ends that no record since then has."""
        alive = {sidecar_id(node) for node in self.nodes()}
        members = {self.run.name(group): self.members.get(group, 0) for group in GROUPS}
        left: set[object] = {*alive, *members}
        left |= {(self.run.name(topic), number) for topic, count in TOPICS.items() for number in range(count)}
        for record in self.journals.records():
            envelope, body = record.envelope, record.body
            if envelope.sidecar not in alive or envelope.emitted_at <= since:
                continue
            left.discard(envelope.sidecar)
            if isinstance(body, Group) and body.members == members.get(body.group) and body.state in _SETTLED:
                left.discard(body.group)
            if isinstance(body, LogEnd) and envelope.observed_at > since:
                left.discard((body.topic, body.partition))
        return left


@contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    """Runs the fleet for the length of a with statement, and creates its topics."""
    journals = folder / "journals"
    with ExitStack() as stack:
        brokers = stack.enter_context(kafka_cluster(folder, NODES, _PROPERTIES))
        sidecars = [
            SidecarProcess(
                folder / sidecar_id(node),
                listen=broker.sidecar,
                upstream=broker.client,
                settings=_settings(node, journals),
            )
            for node, broker in enumerate(brokers, 1)
        ]
        for sidecar in sidecars:
            stack.enter_context(sidecar)
        for sidecar in sidecars:
            sidecar.wait_for_log()
        run = Run(Route("sidecar", brokers[0].sidecar, brokers[0].sasl_sidecar), "fleet")
        client = admin(run)
        names = {JOURNAL: NODES} | {run.name(topic): partitions for topic, partitions in TOPICS.items()}
        for name, partitions in names.items():
            client.create_topics([NewTopic(name, partitions, NODES)])[name].result(GIVE_UP_SECONDS)
            wait_for_partitions(client, name, partitions)
        yield Fleet(brokers, sidecars, Journals(journals), run)


class FleetMembers:
    """The members of the groups, for the length of a with statement."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._run = fleet, fleet.run
        self._stack = ExitStack()
        self._members: dict[str, list[Consumer]] = {}

    def produce(self, messages: int) -> None:
        """Produces this number of messages to every partition."""
        for topic, partitions in TOPICS.items():
            produce(self._run, topic, [str(number) for number in range(messages * partitions)])

    def gather(self) -> None:
        """Creates all groups, with rebalances of several causes and different committed offsets."""
        for group in MEMBERS:
            self._join(group)
        with self._consumer("range") as third:
            everybody = [*self._members["range"], third]
            poll_until(everybody, settled(everybody, _partitions("range")), "a third member")
        self._settle("range")
        for number, members in enumerate(self._members.values()):
            for member in members:
                places = [TopicPartition(at.topic, at.partition, at.partition + number) for at in member.assignment()]
                member.commit(offsets=places, asynchronous=False)
        for number, group in enumerate(SIMPLE):
            self._commit(group, ORDERS, {number % TOPICS[ORDERS]: number, 5: 2})
        self._commit("lonely", LETTERS, dict.fromkeys(range(TOPICS[LETTERS]), 1))
        consume(self._run, "left", [CLICKS], 10)
        self._be_refused()

    def leave(self, group: str) -> None:
        """Makes the newest member leave a group. The other members get its partitions."""
        self._members[group].pop().close()
        self._fleet.members[group] -= 1
        self._settle(group)

    def _consumer(self, group: str) -> AbstractContextManager[Consumer]:
        topics, settings = _READERS[group]
        return consumer(self._run, group, topics, **_STAYING, **settings)

    def _join(self, group: str) -> None:
        """Makes members join one after the other."""
        members = self._members[group] = []
        for _ in range(MEMBERS[group]):
            members.append(self._stack.enter_context(self._consumer(group)))
            self._settle(group)

    def _settle(self, group: str) -> None:
        members = self._members[group]
        poll_until(members, settled(members, _partitions(group)), f"{group} to settle")

    def _commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Commits offsets without a member."""
        with consumer(self._run, group, []) as client:
            places = [TopicPartition(self._run.name(topic), number, offset) for number, offset in offsets.items()]
            client.commit(offsets=places, asynchronous=False)

    def _be_refused(self) -> None:
        """Sends joins to the full group. The members are static, so each is refused at once and only once."""
        node = self._fleet.coordinator(CROWDED)
        client = Client(self._fleet.sidecars[node - 1].listen, Dialect.of(self._fleet.brokers[node - 1].direct), "late")
        for number in range(REFUSALS):
            with ClassicMember(client, self._run.name(CROWDED), CLICKS, instance_id=f"late-{number}") as late:
                late.send_join()
                assert late.receive_join().error_code == REFUSED

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _partitions(group: str) -> int:
    return sum(TOPICS[topic] for topic in _READERS[group][0])
