"""Creates topics on brokers of any version."""

from confluent_kafka.admin import AdminClient, NewTopic

from group_sidecar.codecs.messages.metadata import MetadataRequest
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Dialect, until
from tests.kafka.processes import GIVE_UP_SECONDS, host_port
from tests.kafka.tools import TOPICS_BY_ZOOKEEPER, kafka_tool
from tests.kafka.wire import ask

_CREATE_TOPICS = 19


def make_topic(broker: KafkaBroker, name: str, partitions: int = 1) -> None:
    """Creates a topic and waits for the leaders of its partitions. Brokers before 0.10.1 need ZooKeeper for that."""
    if _CREATE_TOPICS in Dialect.of(broker.direct).spoken:
        client = AdminClient({"bootstrap.servers": host_port(broker.direct)})
        client.create_topics([NewTopic(name, partitions, 1)])[name].result(GIVE_UP_SECONDS)
    else:
        place = ("--zookeeper", host_port(broker.controller))
        topic = ("--topic", name, "--partitions", str(partitions), "--replication-factor", "1")
        kafka_tool(TOPICS_BY_ZOOKEEPER, *place, "--create", *topic, version=broker.release.version)
    until(lambda: leader_count(broker, name) == partitions, f"all partitions of {name} have a leader")


def leader_count(broker: KafkaBroker, topic: str) -> int:
    """Returns how many partitions of a topic have a leader. Requests all topics, because Metadata v0 creates topics."""
    reply = ask(broker.direct, MetadataRequest(topics=()), 0)
    found = [each for each in reply.topics if each.name == topic]
    return sum(part.leader_id >= 0 for each in found for part in each.partitions)
