"""librdkafka, by confluent-kafka. Arguments: bootstrap, topic, group, steps and, optionally, the group protocol."""

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from steps import (
    COMMIT_SECONDS,
    PARTITIONS,
    RECORDS,
    WAIT_SECONDS,
    Failed,
    both,
    check,
    progress,
    run,
    trouble,
    until,
)

BOOTSTRAP, TOPIC, GROUP, STEPS = sys.argv[1:5]
PROTOCOL = sys.argv[5] if len(sys.argv) > 5 else ""
POLL_SECONDS = 0.1
ERRORS: list[str] = []
"""The errors that librdkafka reported by its callback or in place of a message."""


def produce() -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "acks": "all", "message.timeout.ms": 30000})
    for number in range(RECORDS):
        producer.produce(
            TOPIC, f"v{number}", partition=number % PARTITIONS, on_delivery=lambda error, _: errors.append(error)
        )
    left = producer.flush(WAIT_SECONDS)
    failed = [str(error) for error in errors if error]
    check(not left and not failed, f"{left} not delivered, {failed[:1]}")


def consume() -> None:
    consumer = new_consumer(GROUP)
    consumer.subscribe([TOPIC])
    values: list[bytes] = []

    def all_read() -> bool:
        values.extend(message.value() for message in consumer.consume(RECORDS, POLL_SECONDS) if not message.error())
        return len(set(values)) == RECORDS

    until("all records", all_read)
    check(len(values) == RECORDS, f"{len(values)} records")
    consumer.commit(asynchronous=False)
    check(total(consumer.committed(consumer.assignment(), WAIT_SECONDS)) == RECORDS, "committed offsets")
    consumer.close()


def rebalance() -> None:
    first, second = (new_consumer(f"{GROUP}-r") for _ in range(2))
    first.subscribe([TOPIC])
    until("the first member has all partitions", lambda: polled(first) == PARTITIONS)
    second.subscribe([TOPIC])
    half = PARTITIONS // 2
    until("the members share the partitions", lambda: [polled(first), polled(second)] == [half, half])
    second.close()
    until("all partitions come back", lambda: polled(first) == PARTITIONS)
    first.close()


def transactions() -> None:
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": f"{GROUP}-x"})
    producer.init_transactions(WAIT_SECONDS)
    in_transaction(producer, "aborted", 9)
    producer.abort_transaction(WAIT_SECONDS)
    in_transaction(producer, "committed", 5)
    producer.commit_transaction(WAIT_SECONDS)
    reader = new_consumer(f"{GROUP}-t", **{"isolation.level": "read_committed"})
    reader.assign([TopicPartition(f"{TOPIC}-t", 0, 0)])
    values: list[bytes] = []

    def committed_read() -> bool:
        values.extend(message.value() for message in reader.consume(RECORDS, POLL_SECONDS) if not message.error())
        return len(values) >= 3

    until("the committed records", committed_read)
    check(values == [b"committed0", b"committed1", b"committed2"], f"read {values}")
    [place] = reader.committed([TopicPartition(TOPIC, 0)], WAIT_SECONDS)
    check(place.offset == 5, f"the offset of the transaction is {place.offset}")
    reader.close()


def in_transaction(producer: Producer, value: str, offset: int) -> None:
    producer.begin_transaction()
    for number in range(3):
        producer.produce(f"{TOPIC}-t", f"{value}{number}", partition=0)
    check(producer.flush(WAIT_SECONDS) == 0, "not delivered")
    group = new_consumer(f"{GROUP}-t")
    producer.send_offsets_to_transaction(
        [TopicPartition(TOPIC, 0, offset)], group.consumer_group_metadata(), WAIT_SECONDS
    )
    group.close()


def admin() -> None:
    described = f"{GROUP}-a"
    member = new_consumer(described)
    member.subscribe([TOPIC])
    until("the member has all partitions", lambda: polled(member) == PARTITIONS)
    client = AdminClient({"bootstrap.servers": BOOTSTRAP})
    check(TOPIC in client.list_topics(timeout=WAIT_SECONDS).topics, "no topic")
    listed = client.list_consumer_groups(request_timeout=WAIT_SECONDS).result()
    check(described in {group.group_id for group in listed.valid}, f"the group is not listed: {listed.errors}")
    group = client.describe_consumer_groups([described], request_timeout=WAIT_SECONDS)[described].result()
    check(len(group.members) == 1, f"{len(group.members)} members")
    assigned = {place.partition for each in group.members for place in each.assignment.topic_partitions}
    check(assigned == set(range(PARTITIONS)), f"the assignment is {assigned}")
    asked = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)], request_timeout=WAIT_SECONDS)
    offsets = asked[GROUP].result().topic_partitions
    check(total(offsets) == RECORDS, f"committed offsets: {offsets}")
    member.close()


def reported(step: Callable[[], None]) -> Callable[[], None]:
    """Returns a step whose failure includes the last error that librdkafka reported."""

    def run_step() -> None:
        ERRORS.clear()
        try:
            step()
        except Failed as failure:
            raise Failed("; ".join([str(failure), *ERRORS[-1:]])) from failure

    return run_step


def polled(consumer: Consumer) -> int:
    message = consumer.poll(POLL_SECONDS)
    if message is not None and message.error():
        ERRORS.append(str(message.error()))
    return len(consumer.assignment())


def total(places: Iterable[TopicPartition]) -> int:
    return sum(max(place.offset, 0) for place in places)


def new_consumer(group: str, **more: Any) -> Consumer:
    settings = {
        "bootstrap.servers": BOOTSTRAP,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "error_cb": lambda error: ERRORS.append(str(error)),
    }
    if PROTOCOL:
        settings["group.protocol"] = PROTOCOL
    else:
        settings |= {"heartbeat.interval.ms": 300, "session.timeout.ms": 10000}
    return Consumer(settings | more)


def stay_as(number: int) -> None:
    """A member of the group consumes and commits until the process is killed."""

    def committed(error: Any, _: Any) -> None:
        if error is not None and error.code() != KafkaError._NO_OFFSET:
            trouble(number, error)

    consumer = new_consumer(GROUP, error_cb=lambda error: trouble(number, error), on_commit=committed)
    consumer.subscribe([TOPIC])
    due = time.monotonic() + COMMIT_SECONDS
    while True:
        messages = consumer.consume(RECORDS, POLL_SECONDS)
        for message in messages:
            if message.error():
                trouble(number, message.error())
        if read := {message.partition() for message in messages if not message.error()}:
            progress(number, read)
        if time.monotonic() > due:
            due = time.monotonic() + COMMIT_SECONDS
            try:
                consumer.commit(asynchronous=True)
            except KafkaException as error:
                committed(error.args[0], None)


run(
    {
        "produce": produce,
        "consume": reported(consume),
        "rebalance": reported(rebalance),
        "transactions": transactions,
        "admin": reported(admin),
        "stay": both(stay_as),
    },
    STEPS,
)
