"""kafka-python: producing, consuming, groups, transactions."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.conformance.librdkafka import committed, create_topic
from tests.conformance.routes import Routes, Run
from tests.kafka.processes import GIVE_UP_SECONDS

VALUES = [f"value {number}" for number in range(100)]


@contextmanager
def producer(run: Run, **settings: Any) -> Iterator[KafkaProducer]:
    """Runs a producer, and closes it at the end."""
    client = KafkaProducer(bootstrap_servers=run.bootstrap, **settings)
    try:
        yield client
    finally:
        client.close()


@contextmanager
def consumer(run: Run, group: str, topic: str, **settings: Any) -> Iterator[KafkaConsumer]:
    """Runs a consumer of the run's group, and closes it at the end."""
    quick = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 200}
    place = {"bootstrap_servers": run.bootstrap, "group_id": run.name(group)}
    client = KafkaConsumer(**place, **quick, **settings)
    try:
        client.subscribe([run.name(topic)])
        # A consumer that joins before it knows the subscribed topic's partitions joins again when it learns them. If
        # the test does not poll while the second join completes, kafka-python 3.0.12 drops the result. The consumer
        # then sends no heartbeats, and its session expires.
        assert run.name(topic) in client.topics()
        yield client
    finally:
        client.close(autocommit=False)


def poll_until(members: Sequence[KafkaConsumer], condition: Callable[[list[str]], bool], what: str) -> list[str]:
    """Polls all members in turn until the condition is true for all values so far. Returns the values."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    values: list[str] = []
    while not condition(values):
        assert time.monotonic() < deadline, f"gave up waiting for {what}"
        for each in members:
            for records in each.poll(timeout_ms=50).values():
                values += [record.value.decode() for record in records]
    return values


def shares(members: Sequence[KafkaConsumer]) -> list[list[int]]:
    """Returns the partitions of each member, the largest share first."""
    return sorted((sorted(part.partition for part in each.assignment()) for each in members), key=len, reverse=True)


def test_values_are_consumed_and_committed(routes: Routes) -> None:
    """kafka-python produces, consumes and commits all values, directly and through the sidecar."""

    def scenario(run: Run) -> Any:
        create_topic(run, "topic", 2)
        with producer(run, acks="all") as client:
            sent = [
                client.send(run.name("topic"), value.encode(), partition=number % 2, headers=[("h", b"x")])
                for number, value in enumerate(VALUES)
            ]
            places = sorted((place.partition, place.offset) for place in (each.get(GIVE_UP_SECONDS) for each in sent))
        with consumer(run, "group", "topic") as client:
            values = poll_until([client], lambda seen: len(seen) >= len(VALUES), "all values")
            client.commit()
        return places, sorted(values), committed(run, "group", "topic", 2)

    places, values, offsets = routes.compare(scenario)
    assert places == [(partition, offset) for partition in range(2) for offset in range(50)]
    assert values == sorted(VALUES)
    assert offsets == [50, 50]


def test_members_join_and_leave(routes: Routes) -> None:
    """Members with kafka-python join and leave, and share all partitions, directly and through the sidecar."""

    def scenario(run: Run) -> Any:
        create_topic(run, "topic", 4)

        def settled(_: list[str]) -> bool:
            flat = [part for share in shares(members) for part in share]
            return sorted(flat) == [0, 1, 2, 3] and all(shares(members))

        seen = []
        members: list[KafkaConsumer] = []
        with ExitStack() as stack:
            for _ in range(2):
                members.append(stack.enter_context(consumer(run, "group", "topic")))
                poll_until(members, settled, "the group to settle")
                seen.append([len(share) for share in shares(members)])
            members.pop(0).close(autocommit=False)
            poll_until(members, settled, "the one left")
            seen.append([len(share) for share in shares(members)])
        return seen

    assert routes.compare(scenario) == [[4], [2, 2], [4]]


def test_transaction_contains_offsets(routes: Routes) -> None:
    """A transaction of kafka-python commits its value and its offsets, directly and through the sidecar."""

    def scenario(run: Run) -> Any:
        create_topic(run, "in")
        create_topic(run, "out")
        with producer(run, transactional_id=run.name("id")) as client, consumer(run, "group", "in") as reader:
            client.init_transactions()
            client.begin_transaction()
            client.send(run.name("out"), b"aborted").get(GIVE_UP_SECONDS)
            client.abort_transaction()
            client.begin_transaction()
            client.send(run.name("out"), b"committed").get(GIVE_UP_SECONDS)
            place = {TopicPartition(run.name("in"), 0): OffsetAndMetadata(7, "", -1)}
            poll_until([reader], lambda _: bool(reader.assignment()), "an assignment")
            client.send_offsets_to_transaction(place, reader.group_metadata())
            client.commit_transaction()
        with consumer(run, "readers", "out", isolation_level="read_committed") as client:
            values = poll_until([client], lambda seen: bool(seen), "the committed value")
        return values, committed(run, "group", "in", 1)

    assert routes.compare(scenario) == (["committed"], [7])
