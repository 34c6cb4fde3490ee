"""librdkafka clients for the scenarios. Consumers are closed at the end, and several consumers are polled together."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.routes import Run
from tests.kafka.processes import GIVE_UP_SECONDS

QUICK_CONSUMER = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 50,
}
CLASSIC = {"heartbeat.interval.ms": 200, "session.timeout.ms": 10_000}
"""Settings for members of classic groups. In groups of the new protocol, the broker has these settings."""
NO_API_VERSIONS_SETTINGS: dict[str, dict[str, Any]] = {
    "0.9.0.1": {"api.version.request": False, "broker.version.fallback": "0.9.0"}
}
"""Settings for a client of a broker that ignores ApiVersions requests, unless the sidecar answers them."""


@contextmanager
def consumer(
    run: Run, group: str, topics: Sequence[str], *, rebalances: list[str] | None = None, **settings: Any
) -> Iterator[Consumer]:
    """Runs a subscribed consumer of the run's group, and closes it at the end.

    Args:
        run: the run that owns the group.
        group: the name of the group in this run.
        topics: names in this run, or patterns. Without topics the consumer joins no group.
        rebalances: a list to which each rebalance of the client is added.
        settings: settings of librdkafka, with _ in place of dots.
    """
    given = {name.replace("_", "."): value for name, value in settings.items()}
    protocol = {} if given.get("group.protocol") == "consumer" else CLASSIC
    place = {"bootstrap.servers": run.bootstrap, "group.id": run.name(group)}
    client = Consumer({**place, **QUICK_CONSUMER, **protocol, **given})
    noted = [] if rebalances is None else rebalances
    try:
        if topics:
            client.subscribe(
                [topic if topic.startswith("^") else run.name(topic) for topic in topics],
                on_assign=lambda _, partitions: noted.append(f"{len(partitions)} assigned"),
                on_revoke=lambda _, partitions: noted.append(f"{len(partitions)} revoked"),
            )
        yield client
    finally:
        client.close()


def leaders_of(bootstrap: str, topic: str) -> dict[int, int]:
    """Returns the node that leads each partition of a topic."""
    with _reader(bootstrap) as reader:
        found = reader.list_topics(topic, GIVE_UP_SECONDS).topics[topic].partitions
    return {number: partition.leader for number, partition in found.items()}


def messages_in(bootstrap: str, topic: str) -> list[Message]:
    """Returns all current messages of a topic, partition by partition. Asserts that none is an error."""
    found: list[Message] = []
    with _reader(bootstrap) as reader:
        for number in sorted(reader.list_topics(topic, GIVE_UP_SECONDS).topics[topic].partitions):
            end = _end_of(reader, TopicPartition(topic, number))
            reader.assign([TopicPartition(topic, number, 0)])
            for _ in range(end):
                message = reader.poll(GIVE_UP_SECONDS)
                assert message is not None
                assert message.error() is None, message.error()
                found.append(message)
    return found


def _end_of(reader: Consumer, partition: TopicPartition) -> int:
    """Returns the end of a partition's log. Waits for a broker that has restarted and has yet to lead the partition."""
    give_up_at = time.monotonic() + GIVE_UP_SECONDS
    while True:
        try:
            _, end = reader.get_watermark_offsets(partition, timeout=GIVE_UP_SECONDS)
        except KafkaException as error:
            not_yet = error.args[0].code() == KafkaError.NOT_LEADER_FOR_PARTITION
            if not not_yet or time.monotonic() > give_up_at:
                raise
            time.sleep(0.05)
        else:
            return int(end)


@contextmanager
def _reader(bootstrap: str) -> Iterator[Consumer]:
    """Runs a consumer that joins no group, and closes it at the end."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", **QUICK_CONSUMER})
    try:
        yield client
    finally:
        client.close()


def admin(run: Run) -> AdminClient:
    """Returns an admin client. Its pending requests end when nothing refers to the client."""
    return AdminClient({"bootstrap.servers": run.bootstrap})


def create_topic(run: Run, topic: str, partitions: int = 1) -> str:
    """Creates a topic of the run and waits until the broker knows it. Returns its full name."""
    name = run.name(topic)
    client = admin(run)
    client.create_topics([NewTopic(name, partitions, 1)])[name].result(GIVE_UP_SECONDS)
    wait_for_partitions(client, name, partitions)
    return name


def wait_for_partitions(client: AdminClient, topic: str, partitions: int) -> None:
    """Waits until the broker knows this number of a topic's partitions. The controller knows them earlier."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while len(client.list_topics(topic, timeout=GIVE_UP_SECONDS).topics[topic].partitions) != partitions:
        assert time.monotonic() < deadline, f"{topic} never had {partitions} partitions"


def produce(run: Run, topic: str, values: Sequence[str], **settings: Any) -> list[tuple[int, int]]:
    """Produces to each partition of the run's topic in turn.

    Returns the reported partition and offset of each message.
    """
    given = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": run.bootstrap, "linger.ms": 5, **given})
    places: list[tuple[int, int]] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        places.append((message.partition() or 0, message.offset() or 0))

    partitions = len(
        admin(run).list_topics(run.name(topic), timeout=GIVE_UP_SECONDS).topics[run.name(topic)].partitions
    )
    for number, value in enumerate(values):
        producer.produce(run.name(topic), value, key=f"k{number}", partition=number % partitions, on_delivery=delivered)
    assert producer.flush(GIVE_UP_SECONDS) == 0, "some messages were not delivered"
    return sorted(places)


def poll_until(
    consumers: Sequence[Consumer],
    condition: Callable[[list[Message]], bool],
    what: str,
    seconds: float = GIVE_UP_SECONDS,
) -> list[Message]:
    """Polls all consumers in turn until the condition is true for all messages so far. Returns the messages.

    An error that librdkafka reports fails the scenario, because librdkafka itself retries after all other errors.
    """
    deadline = time.monotonic() + seconds
    messages: list[Message] = []
    while not condition(messages):
        assert time.monotonic() < deadline, f"gave up waiting for {what}"
        for each in consumers:
            message = each.poll(0.02)
            if message is not None:
                assert message.error() is None, message.error()
                messages.append(message)
    return messages


def consume(run: Run, group: str, topics: Sequence[str], count: int, **settings: Any) -> list[str]:
    """Returns the values that a single consumer reads until it has `count` of them. The consumer commits them."""
    with consumer(run, group, topics, **settings) as client:
        messages = poll_until([client], lambda seen: len(seen) >= count, f"{count} messages")
        client.commit(asynchronous=False)
    return sorted((message.value() or b"").decode() for message in messages)


def assigned(consumers: Sequence[Consumer]) -> list[list[tuple[str, int]]]:
    """Returns the assignment of each consumer, the largest first."""
    shares = [sorted((part.topic, part.partition) for part in each.assignment()) for each in consumers]
    return sorted(shares, key=lambda share: (-len(share), share))


def settled(consumers: Sequence[Consumer], partitions: int) -> Callable[[list[Message]], bool]:
    """Returns a condition: every partition is assigned to exactly one consumer, as evenly as possible."""

    def holds(_: list[Message]) -> bool:
        shares = assigned(consumers)
        flat = [part for share in shares for part in share]
        return len(flat) == len(set(flat)) == partitions and len(shares[0]) - len(shares[-1]) <= 1

    return holds


def committed(run: Run, group: str, topic: str, partitions: int) -> list[int]:
    """Returns the committed offset of each partition, fetched by a client outside the group."""
    asker = Consumer({"bootstrap.servers": run.bootstrap, "group.id": run.name(group), **QUICK_CONSUMER})
    try:
        places = [TopicPartition(run.name(topic), partition) for partition in range(partitions)]
        return [place.offset for place in asker.committed(places, timeout=GIVE_UP_SECONDS)]
    finally:
        asker.close()
