"""Clients of newer brokers can read the groups of an old broker if a sidecar adds the API versions that they need."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.errors import IncompatibleBrokerVersion

from tests.conformance.differential.group_history import PROPERTIES, SETTLED, TOPIC, made
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect, until
from tests.kafka.processes import GIVE_UP_SECONDS, Address, host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.tools import CONSUMER_GROUPS, CONSUMER_GROUPS_BEFORE_3_7, kafka_tool
from tests.kafka.topics import make_topic

pytestmark = pytest.mark.timeout(300)

OLDEST_FOR_JAVA = "0.10.1.1"
"""Java clients since 0.10.2 do not support 0.9, which lacks Metadata v1."""
BROKERS = (OLDEST_FOR_JAVA, "0.9.0.1")
PARTITIONS, MESSAGES = 4, 10
GROUPS = ("empty", "simple", "stable")
OFFSETS = {"empty": {0: 7, 1: 8}, "simple": {0: 3, 2: 0}, "stable": {0: 7, 1: 8}}
"""The committed offsets by group and partition."""
GATEWAY = {"mode": "gateway", "answers": {"exclusive": True, "authorizer": "none"}}


@dataclass(frozen=True)
class Old:
    """An old broker with a group in each state, and a gateway in front of it."""

    version: str
    direct: Address
    through: Address


@pytest.fixture(scope="module")
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Old]:
    """A stage for one version of Kafka."""
    folder = tmp_path_factory.mktemp("old")
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(folder / "broker", version=request.param, properties=PROPERTIES))
        broker.wait_for_coordinator()
        make_topic(broker, TOPIC, PARTITIONS)
        sidecar = SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=GATEWAY)
        stack.enter_context(sidecar)
        sidecar.wait_for_log()
        producer = Producer({"bootstrap.servers": host_port(broker.sidecar)})
        for number in range(MESSAGES * PARTITIONS):
            producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
        assert producer.flush(GIVE_UP_SECONDS) == 0
        dialect = Dialect.of(broker.direct)
        direct, client = Client(broker.direct, dialect), Client(broker.sidecar, dialect, "member")
        made(client, direct, [state for state in SETTLED if state.name in GROUPS], stack)
        yield Old(request.param, broker.direct, broker.sidecar)


@pytest.mark.parametrize("old", BROKERS, indirect=True, scope="module")
def test_librdkafka_fetches_all_offsets(old: Old) -> None:
    """librdkafka gets all offsets of a group of an old broker through the gateway."""
    client = AdminClient({"bootstrap.servers": host_port(old.through)})
    for group, offsets in OFFSETS.items():
        told = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(GIVE_UP_SECONDS)
        assert {place.partition: place.offset for place in told.topic_partitions} == offsets


@pytest.mark.parametrize("old", BROKERS, indirect=True, scope="module")
def test_librdkafka_lists_group_states(old: Old) -> None:
    """librdkafka lists groups of an old broker by state through the gateway."""
    client = AdminClient({"bootstrap.servers": host_port(old.through)})

    def listed(state: ConsumerGroupState) -> dict[str, bool]:
        """The groups that are listed in this state, and whether each is a simple group."""
        groups = client.list_consumer_groups(states={state}).result(GIVE_UP_SECONDS).valid
        return {group.group_id: group.is_simple_consumer_group for group in groups}

    # 0.9 has no empty groups. Only the sidecar can list them, once it knows all groups.
    until(lambda: listed(ConsumerGroupState.EMPTY) == {"empty": False, "simple": True}, "empty groups are listed")
    assert listed(ConsumerGroupState.STABLE) == {"stable": False}


@pytest.mark.parametrize("old", BROKERS, indirect=True, scope="module")
def test_kafka_python_fetches_all_offsets(old: Old) -> None:
    """kafka-python gets all offsets of groups of an old broker through the gateway."""
    client = KafkaAdminClient(bootstrap_servers=host_port(old.through))
    try:
        offsets = client.list_group_offsets(dict.fromkeys(GROUPS))
    finally:
        client.close()
    seen = {group: {place.partition: each.offset for place, each in its.items()} for group, its in offsets.items()}
    assert seen == OFFSETS


@pytest.mark.parametrize("old", [OLDEST_FOR_JAVA], indirect=True, scope="module")
def test_clients_fail_without_sidecar(old: Old) -> None:
    """Without the sidecar, librdkafka and kafka-python cannot fetch all offsets from the old broker."""
    rdkafka = AdminClient({"bootstrap.servers": host_port(old.direct)})
    with pytest.raises(KafkaException, match="_TRANSPORT"):
        rdkafka.list_consumer_group_offsets([ConsumerGroupTopicPartitions("empty")])["empty"].result(GIVE_UP_SECONDS)
    python = KafkaAdminClient(bootstrap_servers=host_port(old.direct))
    try:
        with pytest.raises(IncompatibleBrokerVersion, match="OffsetFetchRequest"):
            python.list_group_offsets({"empty": None})
    finally:
        python.close()


def consumer_groups(version: str, address: Address, *arguments: str) -> str:
    """Runs ``kafka-consumer-groups`` of a release. Returns its output."""
    main_class = CONSUMER_GROUPS if version == "3.9.1" else CONSUMER_GROUPS_BEFORE_3_7
    return kafka_tool(main_class, "--bootstrap-server", host_port(address), *arguments, version=version)


def lines(text: str, first: str) -> list[list[str]]:
    """Returns the words of each line whose first word is `first`, sorted."""
    return sorted(words for words in map(str.split, text.splitlines()) if words[:1] == [first])


@pytest.mark.parametrize("group", ["empty", "stable"])
@pytest.mark.parametrize("old", [OLDEST_FOR_JAVA], indirect=True, scope="module")
def test_command_describes_offsets(old: Old, group: str) -> None:
    """kafka-consumer-groups 1.1.1 describes the offsets and lag of an old broker's group through the gateway."""
    rows = lines(consumer_groups("1.1.1", old.through, "--describe", "--group", group), TOPIC)
    assert [tuple(map(int, words[1:5])) for words in rows] == [
        (partition, offset, MESSAGES, MESSAGES - offset) for partition, offset in OFFSETS[group].items()
    ]
    clients = {words[7] for words in rows}
    assert clients == ({"-"} if group == "empty" else {"member"})


@pytest.mark.parametrize("old", [OLDEST_FOR_JAVA], indirect=True, scope="module")
def test_command_fails_without_sidecar(old: Old) -> None:
    """Without the sidecar, kafka-consumer-groups 1.1.1 fails at the old broker because OffsetFetch v2 is missing."""
    result = consumer_groups("1.1.1", old.direct, "--describe", "--group", "empty")
    assert "The broker only supports OffsetFetchRequest v1, but we need v2 or newer" in result


@pytest.mark.parametrize("version", ["2.8.2", pytest.param("3.9.1", marks=pytest.mark.long)])
@pytest.mark.parametrize("old", [OLDEST_FOR_JAVA], indirect=True, scope="module")
def test_command_lists_states_and_members(old: Old, version: str) -> None:
    """kafka-consumer-groups lists states and members of an old broker's groups through the gateway."""
    listed = consumer_groups(version, old.through, "--list", "--state").splitlines()
    states = {"empty": "Empty", "simple": "Empty", "stable": "Stable"}
    assert {words[0]: words[-1] for words in map(str.split, listed) if words and words[0] in states} == states
    [state] = lines(consumer_groups(version, old.through, "--describe", "--group", "stable", "--state"), "stable")
    assert state[-3:] == ["range", "Stable", "2"]
    members = lines(consumer_groups(version, old.through, "--describe", "--group", "stable", "--members"), "stable")
    assert [words[2:] for words in members] == [["/127.0.0.1", "member", "1"]] * 2


@pytest.mark.long
@pytest.mark.parametrize("old", [OLDEST_FOR_JAVA], indirect=True, scope="module")
def test_metadata_v4_is_not_added(old: Old) -> None:
    """kafka-consumer-groups 2.8.2 fails, because the gateway does not add Metadata v4: an old broker would create the
    topics that such a request names.
    """
    result = consumer_groups("2.8.2", old.through, "--describe", "--group", "empty")
    assert "MetadataRequest versions older than 4" in result
