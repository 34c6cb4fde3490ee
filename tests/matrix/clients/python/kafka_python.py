"""kafka-python. Arguments: bootstrap, topic, group, steps."""

import sys
import time
from functools import partial
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata
from steps import COMMIT_SECONDS, PARTITIONS, RECORDS, WAIT_SECONDS, both, check, progress, run, trouble, until

BOOTSTRAP, TOPIC, GROUP, STEPS = sys.argv[1:5]
POLL_MILLISECONDS = 100


def produce() -> None:
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all", enable_idempotence=False)
    sent = [producer.send(TOPIC, f"v{number}".encode(), partition=number % PARTITIONS) for number in range(RECORDS)]
    for each in sent:
        each.get(WAIT_SECONDS)
    producer.close(WAIT_SECONDS)


def consume() -> None:
    consumer = new_consumer(GROUP)
    consumer.subscribe([TOPIC])
    values: list[bytes] = []

    def all_read() -> bool:
        for records in consumer.poll(POLL_MILLISECONDS).values():
            values.extend(record.value for record in records)
        return len(set(values)) == RECORDS

    until("all records", all_read)
    check(len(values) == RECORDS, f"{len(values)} records")
    consumer.commit()
    committed = sum(consumer.committed(place) or 0 for place in consumer.assignment())
    check(committed == RECORDS, f"committed offsets: {committed}")
    consumer.close()


def rebalance() -> None:
    first = new_consumer(f"{GROUP}-r")
    first.subscribe([TOPIC])
    until("the first member has all partitions", lambda: polled(first) == PARTITIONS)
    second = new_consumer(f"{GROUP}-r")
    second.subscribe([TOPIC])
    half = PARTITIONS // 2
    joined_together(first, second, half)
    second.close()
    until("all partitions come back", lambda: polled(first) == PARTITIONS)
    first.close()


def joined_together(first: KafkaConsumer, second: KafkaConsumer, half: int) -> None:
    """Polls both members until they share the partitions."""
    until("the members share the partitions", lambda: [polled(first), polled(second)] == [half, half])


def transactions() -> None:
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=f"{GROUP}-x")
    producer.init_transactions()
    in_transaction(producer, "aborted", 9)
    producer.abort_transaction()
    in_transaction(producer, "committed", 5)
    producer.commit_transaction()
    producer.close(WAIT_SECONDS)
    reader = new_consumer(f"{GROUP}-t", isolation_level="read_committed")
    written = TopicPartition(f"{TOPIC}-t", 0)
    reader.assign([written])
    reader.seek_to_beginning(written)
    values: list[bytes] = []

    def committed_read() -> bool:
        for records in reader.poll(POLL_MILLISECONDS).values():
            values.extend(record.value for record in records)
        return len(values) >= 3

    until("the committed records", committed_read)
    check(values == [b"committed0", b"committed1", b"committed2"], f"read {values}")
    offset = reader.committed(TopicPartition(TOPIC, 0))
    check(offset == 5, f"the offset of the transaction is {offset}")
    reader.close()


def in_transaction(producer: KafkaProducer, value: str, offset: int) -> None:
    producer.begin_transaction()
    for number in range(3):
        producer.send(f"{TOPIC}-t", f"{value}{number}".encode(), partition=0)
    producer.flush(WAIT_SECONDS)
    producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): OffsetAndMetadata(offset, "", -1)}, f"{GROUP}-t")


def admin() -> None:
    described = f"{GROUP}-a"
    member = new_consumer(described)
    member.subscribe([TOPIC])
    until("the member has all partitions", lambda: polled(member) == PARTITIONS)
    client = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    check(TOPIC in client.list_topics(), "no topic")
    check(described in {group["group_id"] for group in client.list_groups()}, "the group is not listed")
    members = client.describe_groups([described])[described]["members"]
    check(len(members) == 1, f"{len(members)} members")
    assigned = {
        partition
        for topic in members[0]["member_assignment"]["assigned_partitions"]
        for partition in topic["partitions"]
    }
    check(assigned == set(range(PARTITIONS)), f"the assignment is {assigned}")
    offsets = client.list_group_offsets(GROUP)[GROUP]
    check(sum(place.offset for place in offsets.values()) == RECORDS, f"committed offsets: {offsets}")
    client.close()
    member.close()


def polled(consumer: KafkaConsumer) -> int:
    consumer.poll(POLL_MILLISECONDS)
    return len(consumer.assignment())


def new_consumer(group: str, **more: Any) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=BOOTSTRAP,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
        session_timeout_ms=10000,
        **more,
    )


def stay_as(number: int) -> None:
    """A member of the group consumes and commits until the process is killed."""
    consumer = new_consumer(GROUP)
    consumer.subscribe([TOPIC])
    due = time.monotonic() + COMMIT_SECONDS
    while True:
        try:
            if read := {place.partition for place, records in consumer.poll(POLL_MILLISECONDS).items() if records}:
                progress(number, read)
            if time.monotonic() > due:
                due = time.monotonic() + COMMIT_SECONDS
                consumer.commit_async(callback=partial(committed, number))
        except Exception as error:  # noqa: BLE001 - each error of the client is reported
            trouble(number, error)


def committed(number: int, _: Any, result: Any) -> None:
    """Reports a commit that failed. kafka-python passes the error in place of the result."""
    if isinstance(result, Exception):
        trouble(number, result)


run(
    {
        "produce": produce,
        "consume": consume,
        "rebalance": rebalance,
        "transactions": transactions,
        "admin": admin,
        "stay": both(stay_as),
    },
    STEPS,
)
