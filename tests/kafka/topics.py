"""Topics, made whatever the broker's version.

Owns: the two ways. Must not know: what a topic is for.
"""

from confluent_kafka.admin import AdminClient, NewTopic

from group_sidecar.codecs.messages.metadata import MetadataRequest
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Dialect, until
from tests.kafka.processes import PATIENCE, spelled
from tests.kafka.tools import TOPICS_BY_ZOOKEEPER, kafka_tool
from tests.kafka.wire import ask

_CREATE_TOPICS = 19


def make_topic(broker: KafkaBroker, name: str, partitions: int = 1) -> None:
    """Makes a topic; returns when all of it is led. Brokers before 0.10.1 are told through their ZooKeeper."""
    if _CREATE_TOPICS in Dialect.of(broker.direct).spoken:
        client = AdminClient({"bootstrap.servers": spelled(broker.direct)})
        client.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE)
    else:
        place = ("--zookeeper", spelled(broker.controller))
        topic = ("--topic", name, "--partitions", str(partitions), "--replication-factor", "1")
        kafka_tool(TOPICS_BY_ZOOKEEPER, *place, "--create", *topic, version=broker.release.version)
    until(lambda: led(broker, name) == partitions, f"{name} is led")


def led(broker: KafkaBroker, topic: str) -> int:
    """How many partitions of a topic have a leader. Metadata v0, which asks for all topics so as to create none."""
    reply = ask(broker.direct, MetadataRequest(topics=()), 0)
    found = [each for each in reply.topics if each.name == topic]
    return sum(part.leader_id >= 0 for each in found for part in each.partitions)
