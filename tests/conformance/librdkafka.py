"""librdkafka as the scenarios use it: clients that are closed at the end, and many polled as one.

Owns: client settings and waiting. Must not know: any scenario.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.routes import Run
from tests.kafka.processes import PATIENCE

QUICK_CONSUMER = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 50,
}
CLASSIC = {"heartbeat.interval.ms": 200, "session.timeout.ms": 10_000}
"""The new protocol's groups have these from the broker."""
PASSES_OVER: dict[str, dict[str, Any]] = {"0.9.0.1": {"api.version.request": False, "broker.version.fallback": "0.9.0"}}
"""What a client of a broker that passes ApiVersions over has to be told, unless the sidecar answers that."""


@contextmanager
def consumer(
    run: Run, group: str, topics: Sequence[str], *, rebalances: list[str] | None = None, **settings: Any
) -> Iterator[Consumer]:
    """A subscribed consumer of the run's group, closed at the end.

    Args:
        run: the run that owns the group.
        group: its name in this run.
        topics: names in this run, or patterns; without any it joins nothing.
        rebalances: where each rebalance that the client is told of is noted.
        settings: librdkafka's, with _ for the dot.
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
    """The node that leads each partition of a topic."""
    with _reader(bootstrap) as reader:
        found = reader.list_topics(topic, PATIENCE).topics[topic].partitions
    return {number: partition.leader for number, partition in found.items()}


def messages_in(bootstrap: str, topic: str) -> list[Message]:
    """All that is in a topic now, partition by partition. Asserts that none is an error."""
    found: list[Message] = []
    with _reader(bootstrap) as reader:
        for number in sorted(reader.list_topics(topic, PATIENCE).topics[topic].partitions):
            _, end = reader.get_watermark_offsets(TopicPartition(topic, number), timeout=PATIENCE)
            reader.assign([TopicPartition(topic, number, 0)])
            for _ in range(end):
                message = reader.poll(PATIENCE)
                assert message is not None
                assert message.error() is None, message.error()
                found.append(message)
    return found


@contextmanager
def _reader(bootstrap: str) -> Iterator[Consumer]:
    """A consumer that joins no group, closed at the end."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", **QUICK_CONSUMER})
    try:
        yield client
    finally:
        client.close()


def admin(run: Run) -> AdminClient:
    """An admin client; what it was asked ends where nobody holds it any more."""
    return AdminClient({"bootstrap.servers": run.bootstrap})


def create_topic(run: Run, topic: str, partitions: int = 1) -> str:
    """Creates a topic of the run's and returns its full name; by then the broker knows it."""
    name = run.name(topic)
    client = admin(run)
    client.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE)
    wait_for_partitions(client, name, partitions)
    return name


def wait_for_partitions(client: AdminClient, topic: str, partitions: int) -> None:
    """Returns when the broker knows so many partitions of a topic; the controller knows earlier."""
    deadline = time.monotonic() + PATIENCE
    while len(client.list_topics(topic, timeout=PATIENCE).topics[topic].partitions) != partitions:
        assert time.monotonic() < deadline, f"{topic} never had {partitions} partitions"


def produce(run: Run, topic: str, values: Sequence[str], **settings: Any) -> list[tuple[int, int]]:
    """Produces to the run's topic, to each partition in turn. Returns partition and offset of each, as reported."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": run.bootstrap, "linger.ms": 5, **given})
    places: list[tuple[int, int]] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        places.append((message.partition() or 0, message.offset() or 0))

    partitions = len(admin(run).list_topics(run.name(topic), timeout=PATIENCE).topics[run.name(topic)].partitions)
    for number, value in enumerate(values):
        producer.produce(run.name(topic), value, key=f"k{number}", partition=number % partitions, on_delivery=delivered)
    assert producer.flush(PATIENCE) == 0, "not all was delivered"
    return sorted(places)


def poll_until(
    consumers: Sequence[Consumer], condition: Callable[[list[Message]], bool], what: str, seconds: float = PATIENCE
) -> list[Message]:
    """Polls all consumers in turn until the condition holds for all messages so far, which are returned.

    An error that librdkafka reports fails the scenario; it reports only those that it does not heal itself.
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
    """The values that a group of one reads until it has `count`; it commits them."""
    with consumer(run, group, topics, **settings) as client:
        messages = poll_until([client], lambda seen: len(seen) >= count, f"{count} messages")
        client.commit(asynchronous=False)
    return sorted((message.value() or b"").decode() for message in messages)


def assigned(consumers: Sequence[Consumer]) -> list[list[tuple[str, int]]]:
    """What each consumer has assigned, the largest share first."""
    shares = [sorted((part.topic, part.partition) for part in each.assignment()) for each in consumers]
    return sorted(shares, key=lambda share: (-len(share), share))


def settled(consumers: Sequence[Consumer], partitions: int) -> Callable[[list[Message]], bool]:
    """A condition: every partition has exactly one of the consumers, as evenly as can be."""

    def holds(_: list[Message]) -> bool:
        shares = assigned(consumers)
        flat = [part for share in shares for part in share]
        return len(flat) == len(set(flat)) == partitions and len(shares[0]) - len(shares[-1]) <= 1

    return holds


def committed(run: Run, group: str, topic: str, partitions: int) -> list[int]:
    """The committed offset of each partition, asked by a client outside the group."""
    asker = Consumer({"bootstrap.servers": run.bootstrap, "group.id": run.name(group), **QUICK_CONSUMER})
    try:
        places = [TopicPartition(run.name(topic), partition) for partition in range(partitions)]
        return [place.offset for place in asker.committed(places, timeout=PATIENCE)]
    finally:
        asker.close()
