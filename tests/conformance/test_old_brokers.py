"""Brokers whose listeners have no names, and real clients that connect to these brokers through a gateway.

Kafka 0.9.0.1 ignores ApiVersions requests, so the sidecar answers them. `test_differential` compares the questions
about groups.
"""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from group_sidecar.codecs.messages.api_versions import KAFKA_0_9, ApiVersionsRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from tests.conformance.librdkafka import NO_API_VERSIONS_SETTINGS
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect, until
from tests.kafka.group_members import ClassicMember
from tests.kafka.java import java
from tests.kafka.processes import GIVE_UP_SECONDS, Address, free_addresses, host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.topics import make_topic
from tests.kafka.wire import Wire

pytestmark = pytest.mark.timeout(300)

SILENT = "0.9.0.1"
FULL = 77
"""The sidecar's default error code. Brokers before 2.2 have no code for a full group."""
VALUES = [f"value {number}" for number in range(20)]
BROKERS = ("0.10.1.1", SILENT)


@pytest.fixture(scope="module", params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """An old broker, with a topic of two partitions for each route."""
    with KafkaBroker(tmp_path_factory.mktemp("old"), version=request.param) as broker:
        broker.wait_for_coordinator()
        for topic in ("direct", "through"):
            make_topic(broker, topic, 2)
        yield broker


@pytest.fixture(scope="module")
def gateway(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """A gateway in front of the broker."""
    settings = {"mode": "gateway", "answers": {"exclusive": True, "authorizer": "none"}}
    with SidecarProcess(
        tmp_path_factory.mktemp("gateway"), listen=broker.sidecar, upstream=broker.client, settings=settings
    ) as sidecar:
        sidecar.wait_for_log()
        yield sidecar


@pytest.fixture
def limiting(broker: KafkaBroker, tmp_path: Path) -> Iterator[SidecarProcess]:
    """Another sidecar in front of the broker, with a limit of one member per group."""
    [listen] = free_addresses(1)
    settings = {"policies": {"group_max_size": {"limit": 1}}}
    with SidecarProcess(tmp_path, listen=listen, upstream=broker.client, settings=settings) as sidecar:
        yield sidecar


def test_kafka_0_9_version_table() -> None:
    """The sidecar's version table of Kafka 0.9 equals the table in Kafka's own jars."""
    source = Path(__file__).with_name("KafkaVersions.java")
    command = [*java(SILENT), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=True)
    table = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert table == [(key, version) for key, (low, high) in KAFKA_0_9.items() for version in range(low, high + 1)]


def test_librdkafka_sees_no_difference(broker: KafkaBroker, gateway: SidecarProcess) -> None:
    """librdkafka produces, consumes and commits with the same results at an old broker and through the gateway."""
    direct = scenario(broker.direct, "direct", NO_API_VERSIONS_SETTINGS.get(broker.release.version, {}))
    through = scenario(gateway.listen, "through", {})
    assert through == direct
    assert direct["offsets"] == [10, 10]
    assert gateway.metric("group_sidecar_members_joined_total") >= 1


def scenario(address: Address, topic: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Produces, consumes and commits. Returns the observations. The group has the name of the topic."""
    place = {"bootstrap.servers": host_port(address), **settings}
    produced: list[tuple[int | None, int | None]] = []
    producer = Producer({**place, "acks": "all"})
    for number, value in enumerate(VALUES):
        producer.produce(
            topic,
            value,
            partition=number % 2,
            on_delivery=lambda _, sent: produced.append((sent.partition(), sent.offset())),
        )
    assert producer.flush(GIVE_UP_SECONDS) == 0
    quick = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    consumer = Consumer({**place, **quick, "group.id": topic, "session.timeout.ms": 10_000})
    try:
        consumer.subscribe([topic])
        consumed = values_of(consumer, len(VALUES))
        consumer.commit(asynchronous=False)
        committed = consumer.committed([TopicPartition(topic, partition) for partition in range(2)], GIVE_UP_SECONDS)
    finally:
        consumer.close()
    offsets = [partition.offset for partition in committed]
    return {"produced": sorted(map(str, produced)), "consumed": sorted(consumed), "offsets": offsets}


def values_of(consumer: Consumer, count: int) -> list[str]:
    """Polls until there are `count` values, and returns them."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    values: list[str] = []
    while len(values) < count:
        assert time.monotonic() < deadline, f"only {len(values)} of {count} values were read"
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode())
    return values


def test_limit_holds_at_old_broker(broker: KafkaBroker, limiting: SidecarProcess) -> None:
    """The group size limit holds at old brokers and counts members that joined directly."""
    dialect = Dialect.of(broker.direct)
    direct, client = Client(broker.direct, dialect), Client(limiting.listen, dialect)
    with (
        ClassicMember(direct, "limited", "through") as unseen,
        ClassicMember(client, "limited", "through") as first,
        ClassicMember(client, "limited", "through") as second,
    ):
        unseen.join()
        unseen.sync()
        assert joined(first) == (FULL, -1), "the member that joined directly must count"
        unseen.leave()
        until(lambda: joined(first) == (0, first.generation), "the sidecar has read in the log that the member left")
        first.sync()
        assert joined(second) == (FULL, -1)
        [group] = direct.ask(DescribeGroupsRequest(groups=("limited",))).groups
        assert [member.member_id for member in group.members] == [first.member_id]


def joined(member: ClassicMember) -> tuple[int, int]:
    """Joins. Returns error code and generation of the reply."""
    member.send_join()
    reply = member.receive_join()
    return reply.error_code, reply.generation_id


def test_sidecar_answers_api_versions(broker: KafkaBroker, gateway: SidecarProcess) -> None:
    """The sidecar answers ApiVersions for Kafka 0.9 itself and sends no ApiVersions to this broker."""
    spoken = Dialect.of(broker.direct)
    before = passed_over(broker)
    with Wire(gateway.listen) as wire:
        for version in ApiVersionsRequest.VERSIONS if broker.release.version == SILENT else (0,):
            reply = wire.ask(ApiVersionsRequest(), version)
            offered = {api.api_key: range(api.min_version, api.max_version + 1) for api in reply.api_keys}
            assert offered[JoinGroupRequest.KEY] == spoken.spoken[JoinGroupRequest.KEY]
            assert ApiVersionsRequest.KEY in offered
    assert passed_over(broker) == before


def passed_over(broker: KafkaBroker) -> int:
    """Returns how many ApiVersions requests the broker has ignored, according to its log."""
    return (broker.folder / "broker.log").read_text().count("Index 18 out of bounds")
