"""Two brokers with a sidecar each. Under load, partitions of the log change their leader, and a broker dies."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorRequest
from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import until
from tests.kafka.processes import host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.tools import TOPICS, ToolFailed, kafka_tool
from tests.kafka.wire import ask

LOG, PARTITIONS = "__consumer_offsets", 4
GROUPS = tuple(f"group-{number}" for number in range(20))
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
PROPERTIES = {"offsets.topic.replication.factor": "2", "offsets.topic.num.partitions": str(PARTITIONS)}
MOVING = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


class Pair:
    """The two brokers, node 1 first, and their sidecars."""

    def __init__(self, brokers: list[KafkaBroker], sidecars: list[SidecarProcess]) -> None:
        self.brokers, self.sidecars = brokers, sidecars

    def commit(self, group: str, offset: int, *, bypass: bool = False) -> bool:
        """Commits an offset at the group's coordinator. Returns False if the group is moving."""
        node = self.coordinator(group)
        if node is None:
            return False
        at = self.brokers[node].direct if bypass else self.sidecars[node].listen
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topic = OffsetCommitRequestTopic(name="t", partitions=(partition,))
        reply = ask(at, OffsetCommitRequest(group_id=group, topics=(topic,)), 7)
        code = reply.topics[0].partitions[0].error_code
        assert code in {ErrorCode.NONE, *MOVING}
        return bool(code == ErrorCode.NONE)

    def coordinator(self, group: str) -> int | None:
        """Returns the index of the broker that coordinates a group; None while no broker does."""
        reply = ask(self.brokers[0].direct, FindCoordinatorRequest(key=group), 2)
        return reply.node_id - 1 if reply.error_code == ErrorCode.NONE else None

    def leaders(self) -> dict[int, int]:
        """Returns the index of the leader of each partition of the log."""
        topics = (MetadataRequestTopic(name=LOG),)
        reply = ask(self.brokers[0].direct, MetadataRequest(topics=topics, allow_auto_topic_creation=False), 8)
        assert isinstance(reply, MetadataResponse)
        return {p.partition_index: p.leader_id - 1 for p in reply.topics[0].partitions}

    def wait_until_led(self, leaders: dict[int, int]) -> None:
        """Waits until these brokers lead, and their sidecars have read the partitions that they lead."""
        self.sidecars[0].process.wait_until(lambda: self.leaders() == leaders)
        for node, sidecar in enumerate(self.sidecars):
            led = sorted(number for number, leader in leaders.items() if leader == node)
            sidecar.process.wait_until(lambda sidecar=sidecar, led=led: owned(sidecar) == led)  # type: ignore[misc]

    def compare(self) -> None:
        """Asserts that all answers of both sidecars equal the brokers' answers.

        The sidecar of a group's coordinator must answer locally after some time. The other sidecar must forward.
        """
        for group in GROUPS:
            for node, sidecar in enumerate(self.sidecars):
                if node == self.coordinator(group):
                    sidecar.process.wait_until(lambda n=node, g=group: self._answers_locally(n, g))  # type: ignore[misc]
                else:
                    assert not self._answers_locally(node, group)

    def _answers_locally(self, node: int, group: str) -> bool:
        """Asserts that a sidecar's answer equals its broker's answer. Returns whether the answer was a local answer."""
        sidecar = self.sidecars[node]
        before = answers(sidecar)
        replies = [self._fetch(at, group) for at in (self.brokers[node].direct, sidecar.listen)]
        assert replies[0] == replies[1], (group, node)
        return answers(sidecar) > before

    def _fetch(self, at: tuple[str, int], group: str) -> OffsetFetchResponse:
        reply = ask(at, OffsetFetchRequest(group_id=group, topics=None), 5)
        assert isinstance(reply, OffsetFetchResponse)
        return reply


def owned(sidecar: SidecarProcess) -> list[int]:
    """Returns the partitions of the log that a sidecar follows."""
    [status] = json.loads(sidecar.get("/readyz")[1])["offsets_log"].values()
    partitions: list[int] = status["owned"]["partitions"]
    return partitions


def answers(sidecar: SidecarProcess) -> float:
    """Returns how many OffsetFetch requests a sidecar has answered itself."""
    return sidecar.metric("group_sidecar_mirror_answers_total", api="OffsetFetch")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("leadership")
    settings = {"answers": {"verify": 0}}
    with (
        KafkaBroker(folder / "1", properties=PROPERTIES) as first,
        KafkaBroker(folder / "2", properties=PROPERTIES, joins=first) as second,
        SidecarProcess(folder / "s1", listen=first.sidecar, upstream=first.client, settings=settings) as one,
        SidecarProcess(folder / "s2", listen=second.sidecar, upstream=second.client, settings=settings) as two,
    ):
        create = ("--create", "--topic", "t", "--partitions", "1", "--replication-factor", "2")
        kafka_tool(TOPICS, "--bootstrap-server", host_port(first.direct), *create)
        pair = Pair([first, second], [one, two])
        for group in GROUPS:
            one.process.wait_until(lambda group=group: pair.commit(group, 1))  # type: ignore[misc]
        yield pair


def swap(pair: Pair, folder: Path) -> dict[int, int]:
    """Exchanges the partitions that the brokers lead. Returns the new leader of each partition."""
    wanted = {number: 1 - leader for number, leader in pair.leaders().items()}
    bootstrap = ("--bootstrap-server", host_port(pair.brokers[0].direct))
    plan = [
        {"topic": LOG, "partition": number, "replicas": [leader + 1, 2 - leader]} for number, leader in wanted.items()
    ]
    (folder / "plan.json").write_text(json.dumps({"version": 1, "partitions": plan}))
    kafka_tool(REASSIGN, *bootstrap, "--execute", "--reassignment-json-file", str(folder / "plan.json"))
    elect_preferred_leaders(pair)
    return wanted


def elect_preferred_leaders(pair: Pair) -> None:
    """Makes the first replica of each partition its leader.

    Waits until the replicas of a restarted broker are in sync.
    """
    bootstrap = ("--bootstrap-server", host_port(pair.brokers[0].direct))

    def elected() -> bool:
        try:
            kafka_tool(ELECT, *bootstrap, "--election-type", "preferred", "--all-topic-partitions")
        except ToolFailed as error:
            if "PreferredLeaderNotAvailable" not in str(error):
                raise
            return False
        return True

    until(elected, "the preferred leaders are elected")


def test_leadership_moves_under_load(pair: Pair, tmp_path: Path) -> None:
    """After leadership moves and a broker dies under load, each sidecar's answers equal its broker's."""
    pair.wait_until_led(pair.leaders())
    pair.compare()
    stop, committed, broken = threading.Event(), [0], list[BaseException]()

    def load() -> None:
        try:
            while not stop.is_set():
                for number, group in enumerate(GROUPS):
                    committed[0] += pair.commit(group, 10 + committed[0], bypass=number % 2 == 0)
        except OSError:
            pass  # The broker that was asked has just died.
        except BaseException as error:  # noqa: BLE001  The test asserts that there is no such error.
            broken.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        leaders = swap(pair, tmp_path)
        pair.wait_until_led(leaders)
        pair.brokers[1].kill()
        pair.sidecars[0].process.wait_until(lambda: owned(pair.sidecars[0]) == list(range(PARTITIONS)))
    finally:
        stop.set()
        thread.join()
    assert not broken
    assert committed[0] > 0
    pair.brokers[1].start()
    elect_preferred_leaders(pair)
    pair.wait_until_led(leaders)
    pair.compare()
