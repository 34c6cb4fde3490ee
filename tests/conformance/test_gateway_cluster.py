"""A cluster of three brokers behind one gateway. The clients' network reaches the gateway only.

The clients run in a network namespace of their own. The brokers listen on the machine's loopback address, and advertise
it. A client that got the address of a broker could not reach the broker.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from group_sidecar.codecs.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from group_sidecar.proxy.runtime.addresses import Address
from tests.conformance.copying_proxy import CopyingProxy
from tests.kafka.broker import KafkaBroker
from tests.kafka.cluster import kafka_cluster
from tests.kafka.dialect import until
from tests.kafka.java import java
from tests.kafka.processes import GIVE_UP_SECONDS, free_addresses, host_port, reserve
from tests.kafka.releases import NEWEST
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import ask
from tests.matrix.programs import run_steps
from tests.matrix.rows import ROWS, STREAMS_STEPS, Row
from tests.matrix.stage import make_topics

TOPIC, PARTITIONS, SHARED = "orders", 6, "shared"
PAIRS = "pairs"
"""A topic of which each partition is on two of the three brokers."""
NOT_LEADER = 6


def unavailable() -> str | None:
    """Returns the reason why this machine cannot make a network namespace with a link, or None if it can."""
    if os.geteuid() != 0:
        return "needs root, to make a network namespace"
    if shutil.which("ip") is None:
        return "needs the command ip (iproute2), to make a network namespace"
    name = f"probe-{os.getpid()}"
    link = ["ip", "-n", name, "link", "add", "near", "type", "veth", "peer", "name", "far"]
    steps = ["ip", "netns", "add", name], link, ["ip", "netns", "delete", name]
    done = [subprocess.run(step, capture_output=True, text=True, check=False) for step in steps]
    failed = [step.stderr.strip() for step in done if step.returncode]
    return f"this machine permits no network namespace with a link: {failed[0]}" if failed else None


pytestmark = pytest.mark.skipif((reason := unavailable()) is not None, reason=str(reason))


class Namespace:
    """A network namespace with one link to this machine, for the length of a with statement.

    Attributes:
        gateway: the machine's address on the link. The namespace has no other route.
    """

    def __init__(self) -> None:
        number = os.getpid() % 16_384
        self._name = f"gateway-{number}"
        self._links = f"gw{number}a", f"gw{number}b"
        net, host = divmod(number * 4, 256)
        self.gateway, self._client = f"10.213.{net}.{host + 1}", f"10.213.{net}.{host + 2}"

    def __enter__(self) -> "Namespace":
        ours, theirs = self._links
        self._ip("netns", "add", self._name)
        try:
            self._ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", self._name)
            self._ip("address", "add", f"{self.gateway}/30", "dev", ours)
            self._ip("link", "set", ours, "up")
            self._ip("-n", self._name, "address", "add", f"{self._client}/30", "dev", theirs)
            for link in (theirs, "lo"):
                self._ip("-n", self._name, "link", "set", link, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ip("netns", "delete", self._name)  # The links end with the namespace.

    def command(self, *command: str) -> list[str]:
        """Returns the command line that runs a command in the namespace."""
        return ["ip", "netns", "exec", self._name, *command]

    @staticmethod
    def _ip(*arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


class Stage(NamedTuple):
    """The brokers, the gateway and the clients' network. The gateway has strict ports."""

    brokers: tuple[KafkaBroker, ...]
    gateway: SidecarProcess
    network: Namespace
    first_port: int

    @property
    def bootstrap(self) -> str:
        """The address of the gateway."""
        return host_port(self.gateway.listen)

    def address(self, node: int) -> Address:
        """Returns the address of a broker for clients."""
        return Address(self.network.gateway, self.first_port + node)

    def topic(self, name: str = TOPIC) -> Any:
        """Returns a topic in Metadata through the gateway."""
        request = MetadataRequest(topics=(MetadataRequestTopic(name=name),))
        try:
            reply: MetadataResponse = ask(self.gateway.listen, request, 12)
        except ConnectionError:  # The bootstrap broker was stopped. The next connection leads to another broker.
            reply = ask(self.gateway.listen, request, 12)
        return reply.topics[0]


def free_ports(count: int) -> int:
    """Returns the number before the first of `count` consecutive ports that are free."""
    while True:
        [(_, first)] = free_addresses(1)
        if all(reserve(port) for port in range(first + 1, first + count)):
            return first - 1


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Runs the cluster and the gateway."""
    folder = tmp_path_factory.mktemp("gateway")
    with Namespace() as network, kafka_cluster(folder / "cluster") as brokers:
        admin = AdminClient({"bootstrap.servers": host_port(brokers[0].direct)})
        topics = [NewTopic(TOPIC, PARTITIONS, 3), NewTopic(PAIRS, PARTITIONS, 2), NewTopic(SHARED, 3, 3)]
        made = admin.create_topics([*topics, NewTopic("source", 1, 3), NewTopic("sink", 1, 3)])
        for future in made.values():
            future.result(GIVE_UP_SECONDS)
        first_port = free_ports(3)
        [free] = free_addresses(1)
        settings = {"mode": "gateway", "gateway": {"first_port": first_port, "strict_ports": True}}
        listen = Address(network.gateway, free[1])
        with SidecarProcess(folder, listen=listen, upstream=brokers[0].direct, settings=settings) as gateway:
            yield Stage(brokers, gateway, network, first_port)


def run(stage: Stage, *command: str) -> str:
    """Runs a command in the clients' network. Returns its output."""
    done = subprocess.run(
        stage.network.command(*command), capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_network_reaches_the_gateway_only(stage: Stage) -> None:
    """From the clients' network, the gateway's ports can be reached, and no broker."""
    probe = (
        "import socket, sys\n"
        "for at in sys.argv[1:]:\n"
        "    host, port = at.rsplit(':', 1)\n"
        "    with socket.socket() as client:\n"
        "        client.settimeout(5)\n"
        "        print(client.connect_ex((host, int(port))) == 0)\n"
    )
    ours = [stage.bootstrap, *(host_port(stage.address(node)) for node in (1, 2, 3))]
    until(lambda: "False" not in run(stage, sys.executable, "-c", probe, *ours), "all ports of the gateway are open")
    theirs = [host_port(broker.direct) for broker in stage.brokers]
    theirs += [f"{stage.network.gateway}:{broker.direct[1]}" for broker in stage.brokers]
    assert "True" not in run(stage, sys.executable, "-c", probe, *theirs)


def fetched(address: Address, topic: Any, partition: int) -> FetchResponse:
    """Returns the reply to a Fetch of the newest version at a broker."""
    wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=(FetchTopic(topic_id=topic.topic_id, partitions=(wanted,)),)
    )
    reply: FetchResponse = ask(address, request, 17)
    return reply


def test_fetch_at_another_broker_names_the_leader(stage: Stage) -> None:
    """A Fetch reply of a broker that does not lead the partition has the leader's address at the gateway."""
    topic = stage.topic(PAIRS)
    for partition in topic.partitions:
        [other] = {1, 2, 3}.difference(partition.replica_nodes)
        reply = fetched(stage.address(other), topic, partition.partition_index)
        [told] = reply.responses[0].partitions
        assert (told.error_code, told.current_leader.leader_id) == (NOT_LEADER, partition.leader_id)
        assert [(each.node_id, each.host, each.port) for each in reply.node_endpoints] == [
            (partition.leader_id, *stage.address(partition.leader_id))
        ]


def leaders(stage: Stage) -> set[int]:
    return {partition.leader_id for partition in stage.topic().partitions}


def move_leaders_back(stage: Stage) -> None:
    """Makes the first replica of each partition the leader again, while the current leaders run."""
    admin = AdminClient({"bootstrap.servers": stage.bootstrap})
    places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]

    def elected() -> bool:
        admin.elect_leaders(ElectionType.PREFERRED, places).result(GIVE_UP_SECONDS)
        return leaders(stage) == {1, 2, 3}

    until(elected, "each broker leads partitions")


def test_clients_survive_moved_leaders_and_lost_brokers(stage: Stage) -> None:
    """While clients produce and consume, a broker goes and comes back, leaders move, and the gateway is restarted."""
    program = (sys.executable, "-m", "tests.conformance.gateway_clients", stage.bootstrap, TOPIC)
    command, groups = stage.network.command(*program), {"rd", "py"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as clients:
        try:
            until(lambda: groups_of(stage) >= groups, "the groups exist")
            for node in (3, 2):
                broker = stage.brokers[node - 1]
                broker.stop()
                try:
                    until(lambda gone=node: gone not in leaders(stage), "the broker leads no partition")  # type: ignore[misc]
                finally:
                    broker.start()
                move_leaders_back(stage)
            stage.gateway.hand_over()
            time.sleep(2)  # The clients continue at the successor.
            output, _ = clients.communicate("stop\n", timeout=3 * GIVE_UP_SECONDS)
        finally:
            clients.kill()
    seen = json.loads(output)
    assert seen["failed"] == []
    assert seen["delivered"] > 100
    assert seen["missing"] == dict.fromkeys(groups, 0)
    assert seen["assignments"] > 2
    assert seen["nodes"] == [[node, *stage.address(node)] for node in (1, 2, 3)]
    assert groups <= set(seen["groups"])
    assert stage.gateway.metric("group_sidecar_decode_failures_total") == 0


def groups_of(stage: Stage) -> set[str]:
    """Returns the ids of the groups in the cluster."""
    admin = AdminClient({"bootstrap.servers": stage.bootstrap})  # The client's requests end when nothing refers to it.
    listed = admin.list_consumer_groups().result(GIVE_UP_SECONDS)
    return {group.group_id for group in listed.valid}


def test_lost_bootstrap_broker_is_replaced(stage: Stage) -> None:
    """While the bootstrap broker is down, another broker serves the clients of the bootstrap address."""

    def is_served() -> bool:
        try:
            return bool(ask(stage.gateway.listen, MetadataRequest(topics=()), 12).brokers)
        except OSError:
            return False

    assert is_served()
    stage.brokers[0].stop()
    try:
        until(is_served, "a new client is served")
        until(lambda: stage.gateway.get("/readyz")[0] == 200, "the gateway is ready")
    finally:
        stage.brokers[0].start()


class Balancer(CopyingProxy):
    """A load balancer: connects each client to another broker than the previous client."""

    def __init__(self, at: Address, brokers: Sequence[KafkaBroker]) -> None:
        super().__init__(at, brokers[0].direct)
        self._rotation = cycle(Address(*broker.direct) for broker in brokers)

    def upstream(self) -> Address:
        """See `CopyingProxy`."""
        return Address(*next(self._rotation))


def test_balanced_upstream(stage: Stage, tmp_path: Path) -> None:
    """Behind a load balancer, the gateway has one copy of each broker, and sees all requests that the brokers log."""
    at, listen = map(Address._make, free_addresses(2))
    settings = {"mode": "gateway", "answers": {"exclusive": True}}
    names = {f"balanced-{number}" for number in range(6)}
    with (
        Balancer(at, stage.brokers),
        SidecarProcess(tmp_path, listen=listen, upstream=at, settings=settings) as gateway,
        ExitStack() as stack,
    ):
        bootstrap: dict[str, Any] = {"bootstrap.servers": host_port(listen)}
        for name in sorted(names):
            client = Consumer({**bootstrap, "group.id": name, "enable.auto.commit": False})
            stack.callback(client.close)
            client.assign([TopicPartition(TOPIC, 0)])
            client.commit(offsets=[TopicPartition(TOPIC, 0, 7)], asynchronous=False)
            [stored] = client.committed([TopicPartition(TOPIC, 0)], GIVE_UP_SECONDS)
            assert stored.offset == 7
        for _ in range(3):
            admin = AdminClient(bootstrap)  # The client's requests end when nothing refers to it.
            listed = admin.list_consumer_groups().result(GIVE_UP_SECONDS).valid
            assert names <= {group.group_id for group in listed}

        def shown() -> Counter[str]:
            groups = json.loads(gateway.get("/api/v1/groups")[1])["groups"]
            return Counter(group["group"] for group in groups if group["group"] in names)

        until(lambda: shown() == dict.fromkeys(names, 1), "each group is shown once")
        copies = json.loads(gateway.get("/readyz")[1])["offsets_log"]
        assert set(copies) == {host_port(broker.direct) for broker in stage.brokers}
        assert gateway.metric("group_sidecar_bypassing_records_total") == 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_client(stage: Stage, protocol: str) -> None:
    """Kafka's own client produces in transactions and consumes in a group, with its newest versions."""
    source = Path(__file__).with_name("Exchange.java")
    place: Sequence[str] = [stage.bootstrap, f"java-{protocol}", protocol, "source", "sink", "5"]
    run(stage, *java(NEWEST), str(source), *place)


def test_share_consumer(stage: Stage) -> None:
    """Kafka's share consumer gets and acknowledges records, whose leaders are several brokers."""
    source = Path(__file__).with_name("Share.java")
    place: Sequence[str] = [stage.bootstrap, "shared", SHARED, "5"]
    printed = run(stage, *java(NEWEST), str(source), *place)
    assert printed.splitlines() == [f"value {number}" for number in range(5)]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("row", [ROWS["streams"], ROWS["streams-kip-1071"]], ids=lambda row: row.name)
def test_kafka_streams(stage: Stage, row: Row, tmp_path: Path) -> None:
    """Kafka Streams counts words, also exactly once, and moves its tasks between instances, with both protocols."""
    make_topics(stage.brokers[0], [row.name])
    program = row.prepare()
    command, place = stage.network.command(*program.command), [stage.bootstrap, row.name, row.name]
    environment = {**program.environment, "TMPDIR": str(tmp_path)}
    outcomes = run_steps(command, place, STREAMS_STEPS, row.more, tmp_path / "log", environment)
    assert {step: outcome.error for step, outcome in outcomes.items() if not outcome.ok} == {}
