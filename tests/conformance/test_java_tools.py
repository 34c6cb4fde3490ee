"""Kafka's own command-line tools, which use the Java producer, consumer and admin clients."""

from typing import Any

import pytest

from tests.conformance.librdkafka import admin, committed, create_topic, produce
from tests.conformance.routes import Routes, Run
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.kafka.tools import CONFIGS, CONSOLE_CONSUMER, CONSOLE_PRODUCER, CONSUMER_GROUPS, TOPICS, kafka_tool

VALUES = [f"value {number}" for number in range(50)]


def tool(run: Run, main_class: str, *args: str, stdin: str = "") -> list[str]:
    """Runs a tool. Returns its output line by line, without trailing blanks."""
    text = kafka_tool(main_class, "--bootstrap-server", run.bootstrap, *args, stdin=stdin)
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_console_consumer_reads_all_values(routes: Routes, protocol: str) -> None:
    """The console consumer reads and commits all values of the console producer in both protocols, directly and through
    the sidecar.
    """

    def scenario(run: Run) -> Any:
        topic = create_topic(run, "topic", 2)
        tool(run, CONSOLE_PRODUCER, "--topic", topic, stdin="\n".join(VALUES) + "\n")
        place = ("--topic", topic, "--group", run.name("group"), "--max-messages", str(len(VALUES)))
        read = tool(
            run, CONSOLE_CONSUMER, *place, "--from-beginning", "--command-property", f"group.protocol={protocol}"
        )
        return sorted(read), sum(committed(run, "group", "topic", 2))

    values, offsets = routes.compare(scenario)
    assert values == sorted(VALUES)
    assert offsets == len(VALUES)


def test_acks_0_and_read_committed(routes: Routes) -> None:
    """The console consumer with read_committed reads all values that were produced with acks=0."""

    def scenario(run: Run) -> Any:
        topic = create_topic(run, "topic")
        unacknowledged = ("--command-property", "acks=0", "--command-property", "enable.idempotence=false")
        tool(run, CONSOLE_PRODUCER, "--topic", topic, *unacknowledged, stdin="\n".join(VALUES) + "\n")
        limits = ("--max-messages", str(len(VALUES)), "--isolation-level", "read_committed")
        return tool(run, CONSOLE_CONSUMER, "--topic", topic, "--from-beginning", *limits)

    assert routes.compare(scenario) == VALUES


def test_share_group_reads(routes: Routes) -> None:
    """A share group (KIP-932) reads all values through the sidecar, which does not decode its APIs."""

    def scenario(run: Run) -> Any:
        topic, group = create_topic(run, "topic"), run.name("group")
        earliest = ("--alter", "--add-config", "share.auto.offset.reset=earliest")
        tool(run, CONFIGS, "--entity-type", "groups", "--entity-name", group, *earliest)
        produce(run, "topic", VALUES)
        place = ("--topic", topic, "--group", group, "--max-messages", str(len(VALUES)))
        return sorted(tool(run, "org.apache.kafka.tools.consumer.ConsoleShareConsumer", *place))

    assert routes.compare(scenario) == sorted(VALUES)


def test_kafka_client_compatibility_test_passes(routes: Routes) -> None:
    """Kafka's ClientCompatibilityTest, which asserts the features of this client version, succeeds directly and through
    the sidecar.
    """

    def scenario(run: Run) -> Any:
        topic = create_topic(run, "topic")
        features = ("offsets-for-times", "cluster-id", "create-topics", "describe-acls", "describe-configs")
        supported = [
            part for feature in (*features, "idempotent-producer") for part in (f"--{feature}-supported", "true")
        ]
        others = ("--topic", topic, "--expect-record-too-large-exception", "false", "--num-cluster-nodes", "1")
        last = tool(run, "org.apache.kafka.tools.ClientCompatibilityTest", *others, *supported)[-1]
        client = admin(run)
        client.delete_topics(["newtopic"])["newtopic"].result(GIVE_UP_SECONDS)  # The tool leaves it behind.
        return last

    assert "SUCCESS" in routes.compare(scenario)


def test_same_versions_are_advertised(routes: Routes) -> None:
    """Kafka's BrokerApiVersionsCommand prints the same versions directly and through the sidecar."""

    def scenario(run: Run) -> Any:
        return tool(run, "org.apache.kafka.tools.BrokerApiVersionsCommand")

    assert any("JoinGroup(11): 0 to 9" in line for line in routes.compare(scenario))


def test_topics_and_configurations(routes: Routes) -> None:
    """Kafka's tools create, describe, alter and delete a topic with the same output as without the sidecar."""

    def scenario(run: Run) -> Any:
        topic = run.name("topic")
        entity = ("--entity-type", "topics", "--entity-name", topic)
        created = ("--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=1000000")
        return [
            tool(run, TOPICS, *created),
            tool(run, TOPICS, "--describe", "--topic", topic),
            tool(run, CONFIGS, *entity, "--alter", "--add-config", "max.message.bytes=200000"),
            sorted(tool(run, CONFIGS, *entity, "--describe")),
            tool(run, TOPICS, "--delete", "--topic", topic),
        ]

    created, described, *_ = routes.compare(scenario)
    assert created == ["Created topic run-topic."]
    assert len(described) == 4


def test_offsets_are_reset_and_deleted(routes: Routes) -> None:
    """kafka-consumer-groups resets and deletes offsets and deletes the group with the same results directly and through
    the sidecar.
    """

    def scenario(run: Run) -> Any:
        topic = create_topic(run, "topic", 2)
        create_topic(run, "other")
        produce(run, "topic", [str(number) for number in range(10)])
        produce(run, "other", ["x"])
        group = ("--group", run.name("group"))
        reset = ("--reset-offsets", "--execute", "--topic", topic, "--topic", run.name("other"))
        steps = [
            sorted(tool(run, CONSUMER_GROUPS, *reset, "--to-latest", *group)),
            committed(run, "group", "topic", 2),
            sorted(tool(run, CONSUMER_GROUPS, *reset, "--shift-by", "-1", *group)),
            committed(run, "group", "topic", 2),
            sorted(tool(run, CONSUMER_GROUPS, "--delete-offsets", "--topic", topic, *group)),
            committed(run, "group", "topic", 2) + committed(run, "group", "other", 1),
        ]
        steps.append(tool(run, CONSUMER_GROUPS, "--delete", *group))
        return steps, committed(run, "group", "other", 1)

    steps, after = routes.compare(scenario)
    assert steps[1] == [5, 5]
    assert steps[3] == [4, 4]
    assert steps[5] == [-1001, -1001, 0]
    assert after == [-1001]
