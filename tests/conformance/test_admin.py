"""Administration with the clients of librdkafka and kafka-python. The answers are compared field by field."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka import KafkaAdminClient

from tests.conformance.librdkafka import (
    admin,
    committed,
    consume,
    consumer,
    create_topic,
    poll_until,
    produce,
    settled,
    wait_for_partitions,
)
from tests.conformance.routes import Routes, Run
from tests.kafka.processes import GIVE_UP_SECONDS


def outcome(future: Any) -> Any:
    """Returns the result of a future: its value, or the name of its error."""
    try:
        return future.result(GIVE_UP_SECONDS)
    except KafkaException as error:
        return error.args[0].name()


def test_topic_administration(routes: Routes) -> None:
    """librdkafka creates, grows, describes and deletes topics with the same results directly as through the sidecar."""

    def scenario(run: Run) -> Any:
        client, name = admin(run), run.name("topic")
        steps = [outcome(client.create_topics([NewTopic(name, 2, 1)])[name])]
        steps.append(outcome(client.create_topics([NewTopic(name, 2, 1)])[name]))
        steps.append(outcome(client.create_topics([NewTopic(run.name("far"), 2, 5)])[run.name("far")]))
        steps.append(outcome(client.create_partitions([NewPartitions(name, 5)])[name]))
        wait_for_partitions(client, name, 5)
        described = outcome(client.describe_topics(TopicCollection([name]))[name])
        partitions = [(each.id, each.leader.id, len(each.replicas), len(each.isr)) for each in described.partitions]
        steps.append(outcome(client.delete_topics([name])[name]))
        steps.append(outcome(client.delete_topics([name])[name]))
        return steps, described.name, partitions

    steps, name, partitions = routes.compare(scenario)
    assert steps == [
        None,
        "TOPIC_ALREADY_EXISTS",
        "INVALID_REPLICATION_FACTOR",
        None,
        None,
        "UNKNOWN_TOPIC_OR_PART",
    ]
    assert name == "run-topic"
    assert partitions == [(number, 1, 1, 1) for number in range(5)]


def test_cluster_address_is_the_clients_own(routes: Routes) -> None:
    """The cluster and metadata replies name the address that the client uses."""

    def scenario(run: Run) -> Any:
        client = admin(run)
        cluster = outcome(client.describe_cluster())
        metadata = client.list_topics(timeout=GIVE_UP_SECONDS)
        return (
            cluster.cluster_id,
            [(node.id, f"{node.host}:{node.port}") for node in cluster.nodes],
            cluster.controller.id,
            [(node.id, f"{node.host}:{node.port}") for node in metadata.brokers.values()],
        )

    assert routes.compare(scenario)[1:] == ([(1, "broker")], 1, [(1, "broker")])


def test_configurations_are_altered(routes: Routes) -> None:
    """librdkafka describes and alters configurations with the same results directly and through the sidecar."""

    def scenario(run: Run) -> Any:
        client, name = admin(run), create_topic(run, "topic")
        entry = ConfigEntry("retention.ms", "123456", incremental_operation=AlterConfigOpType.SET)
        change = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        altered = [outcome(future) for future in client.incremental_alter_configs([change]).values()]
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while (topic := _settings(client, ResourceType.TOPIC, name))["retention.ms"][0] != "123456":
            assert time.monotonic() < deadline, "the broker did not receive the change from the controller"
        settings = _settings(client, ResourceType.BROKER, "1")
        for name in ("listeners", "advertised.listeners"):  # These answers contain the addresses of both routes.
            del settings[name]
        return altered, topic, settings

    altered, topic, broker = routes.compare(scenario)
    assert altered == [None]
    assert topic["retention.ms"][0] == "123456"
    assert broker["group.initial.rebalance.delay.ms"][0] == "0"


def _settings(client: AdminClient, kind: ResourceType, resource: str) -> dict[str, tuple[str, int]]:
    [future] = client.describe_configs([ConfigResource(kind, resource)]).values()
    return {key: (entry.value, entry.source) for key, entry in outcome(future).items()}


@contextmanager
def groups(run: Run) -> Iterator[None]:
    """Creates a stable group, an empty group and a group of the new protocol, all with the same topic."""
    create_topic(run, "topic", 2)
    produce(run, "topic", [str(number) for number in range(10)])
    consume(run, "empty", ["topic"], 10)
    with (
        consumer(run, "stable", ["topic"], client_id=run.name("client")) as stable,
        consumer(run, "new", ["topic"], client_id=run.name("client"), group_protocol="consumer") as new,
    ):
        for client in (stable, new):
            poll_until([client], settled([client], 2), "the group to settle")
            client.commit(offsets=[TopicPartition(run.name("topic"), 0, 3, metadata="note")], asynchronous=False)
        yield


def test_groups_are_listed(routes: Routes) -> None:
    """librdkafka lists classic and consumer groups equally directly and through the sidecar."""

    def scenario(run: Run) -> Any:
        with groups(run):
            client = admin(run)
            listings = [
                outcome(client.list_consumer_groups()),
                outcome(client.list_consumer_groups(types={ConsumerGroupType.CONSUMER})),
                outcome(client.list_consumer_groups(types={ConsumerGroupType.CLASSIC})),
            ]
        return [
            sorted(
                (group.group_id, group.is_simple_consumer_group, group.state.name, group.type.name)
                for group in listing.valid
                if group.group_id.startswith(run.prefix)
            )
            for listing in listings
        ]

    everything, new, classic = routes.compare(scenario)
    assert everything == [
        ("run-empty", False, "EMPTY", "CLASSIC"),
        ("run-new", False, "STABLE", "CONSUMER"),
        ("run-stable", False, "STABLE", "CLASSIC"),
    ]
    assert new == [everything[1]]
    assert classic == [everything[0], everything[2]]


def test_groups_are_described(routes: Routes) -> None:
    """librdkafka describes classic, consumer and empty groups equally directly and through the sidecar."""

    def scenario(run: Run) -> Any:
        with groups(run):
            names = [run.name(stem) for stem in ("empty", "stable", "new", "unknown")]
            client = admin(run)
            described = client.describe_consumer_groups(names, include_authorized_operations=True)
            return {name: _description(outcome(future)) for name, future in described.items()}

    seen = routes.compare(scenario)
    assert seen["run-stable"]["state"] == "STABLE"
    assert seen["run-stable"]["members"] == [("run-client", "/127.0.0.1", None, [("run-topic", 0), ("run-topic", 1)])]
    assert seen["run-new"]["type"] == "CONSUMER"
    assert seen["run-empty"]["members"] == []


def _description(group: Any) -> Any:
    if isinstance(group, str):
        return group
    members = [
        (
            member.client_id,
            member.host,
            member.group_instance_id,
            sorted((part.topic, part.partition) for part in member.assignment.topic_partitions),
        )
        for member in group.members
    ]
    return {
        "simple": group.is_simple_consumer_group,
        "assignor": group.partition_assignor,
        "state": group.state.name,
        "type": group.type.name,
        "coordinator": f"{group.coordinator.host}:{group.coordinator.port}",
        "operations": sorted(operation.name for operation in group.authorized_operations or []),
        "members": sorted(members),
    }


def test_group_offsets_administration(routes: Routes) -> None:
    """librdkafka lists, alters and deletes group offsets with the same results directly and through the sidecar."""

    def scenario(run: Run) -> Any:
        client, topic = admin(run), run.name("topic")
        with groups(run):
            listed = {
                stem: _offsets(client, ConsumerGroupTopicPartitions(run.name(stem)))
                for stem in ("empty", "stable", "new", "unknown")
            }
            change = [TopicPartition(topic, 0, 1), TopicPartition(topic, 1, 2)]
            altered = [
                _altered(client, ConsumerGroupTopicPartitions(run.name(stem), change)) for stem in ("empty", "stable")
            ]
            deleted = [
                outcome(client.delete_consumer_groups([run.name(stem)])[run.name(stem)])
                for stem in ("empty", "stable", "unknown")
            ]
        return listed, altered, deleted, committed(run, "empty", "topic", 2)

    listed, altered, deleted, after = routes.compare(scenario)
    assert listed["stable"] == listed["new"] == [("run-topic", 0, 3, "note", None)]
    assert listed["empty"] == [("run-topic", 0, 5, "", None), ("run-topic", 1, 5, "", None)]
    assert listed["unknown"] == []
    assert altered[0] == [("run-topic", 0, 1, None), ("run-topic", 1, 2, None)]
    assert deleted == [None, "NON_EMPTY_GROUP", "GROUP_ID_NOT_FOUND"]
    assert after == [-1001, -1001]


def _offsets(client: AdminClient, partitions: ConsumerGroupTopicPartitions) -> Any:
    answer = outcome(client.list_consumer_group_offsets([partitions], require_stable=True)[partitions.group_id])
    return sorted(
        (part.topic, part.partition, part.offset, part.metadata or "", part.error) for part in answer.topic_partitions
    )


def _altered(client: AdminClient, change: ConsumerGroupTopicPartitions) -> Any:
    answer = outcome(client.alter_consumer_group_offsets([change])[change.group_id])
    if isinstance(answer, str):
        return answer
    return sorted(
        (part.topic, part.partition, part.offset, part.error and part.error.name()) for part in answer.topic_partitions
    )


def test_log_ends_are_listed(routes: Routes) -> None:
    """librdkafka lists earliest and latest offsets equally directly and through the sidecar."""

    def scenario(run: Run) -> Any:
        client, topic = admin(run), create_topic(run, "topic")
        produce(run, "topic", ["a", "b", "c"])
        part = TopicPartition(topic, 0)
        return [
            outcome(future).offset
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp())
            for future in client.list_offsets({part: spec}).values()
        ]

    assert routes.compare(scenario)[:2] == [0, 3]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafka_python_administers_groups(routes: Routes, protocol: str) -> None:
    """kafka-python lists, describes and deletes groups with the same results directly and through the sidecar."""

    def scenario(run: Run) -> Any:
        create_topic(run, "topic", 2)
        produce(run, "topic", [str(number) for number in range(10)])
        consume(run, "group", ["topic"], 10, group_protocol=protocol)
        client = KafkaAdminClient(bootstrap_servers=run.bootstrap)
        try:
            return _administer(client, run)
        finally:
            client.close()

    listed, described, offsets, deleted, left = routes.compare(scenario)
    assert listed[0]["group_id"] == "run-group"
    assert listed[0]["group_type"] == protocol
    assert described is not None
    assert sorted(offset for _, _, offset in offsets) == [5, 5]
    assert (deleted, left) == ({"run-group": "OK"}, [])


def _administer(client: KafkaAdminClient, run: Run) -> Any:
    name = run.name("group")
    listed = [group for group in client.list_groups() if group["group_id"] == name]
    try:
        described = client.describe_groups([name], include_authorized_operations=True)
    except Exception as error:  # noqa: BLE001 - the observation is which one
        described = type(error).__name__
    offsets = sorted(
        (part.topic, part.partition, place.offset) for part, place in client.list_group_offsets([name])[name].items()
    )
    deleted = client.delete_groups([name])
    left = [group for group in client.list_groups() if group["group_id"] == name]
    return listed, described, offsets, deleted, left
