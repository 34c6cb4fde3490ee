"""aiokafka. Arguments: bootstrap, topic, group, steps."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata
from steps import PARTITIONS, RECORDS, WAIT_SECONDS, check, run

BOOTSTRAP, TOPIC, GROUP, STEPS = sys.argv[1:5]
POLL_MILLISECONDS = 100


async def produce() -> None:
    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all")
    await producer.start()
    try:
        sent = [
            await producer.send(TOPIC, f"v{number}".encode(), partition=number % PARTITIONS)
            for number in range(RECORDS)
        ]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


async def consume() -> None:
    async with joined(GROUP) as consumer:
        values: list[bytes] = []

        async def all_read() -> bool:
            for records in (await consumer.getmany(timeout_ms=POLL_MILLISECONDS)).values():
                values.extend(record.value for record in records)
            return len(set(values)) == RECORDS

        await until("all records", all_read)
        check(len(values) == RECORDS, f"{len(values)} records")
        await consumer.commit()
        committed = [await consumer.committed(place) or 0 for place in consumer.assignment()]
        check(sum(committed) == RECORDS, f"committed offsets: {committed}")


async def rebalance() -> None:
    shared, half = f"{GROUP}-r", PARTITIONS // 2
    async with joined(shared) as first:
        await until("the first member has all partitions", lambda: holds(first, PARTITIONS))
        async with joined(shared) as second:

            async def share() -> bool:
                return [await polled(first), await polled(second)] == [half, half]

            await until("the members share the partitions", share)
        await until("all partitions come back", lambda: holds(first, PARTITIONS))


async def transactions() -> None:
    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=f"{GROUP}-x")
    await producer.start()
    try:
        await in_transaction(producer, "aborted", 9)
        await producer.abort_transaction()
        await in_transaction(producer, "committed", 5)
        await producer.commit_transaction()
    finally:
        await producer.stop()
    reader = AIOKafkaConsumer(
        bootstrap_servers=BOOTSTRAP, group_id=f"{GROUP}-t", enable_auto_commit=False, isolation_level="read_committed"
    )
    written = TopicPartition(f"{TOPIC}-t", 0)
    reader.assign([written])
    await reader.start()
    try:
        await reader.seek_to_beginning(written)
        values: list[bytes] = []

        async def committed_read() -> bool:
            for records in (await reader.getmany(timeout_ms=POLL_MILLISECONDS)).values():
                values.extend(record.value for record in records)
            return len(values) >= 3

        await until("the committed records", committed_read)
        check(values == [b"committed0", b"committed1", b"committed2"], f"read {values}")
        offset = await reader.committed(TopicPartition(TOPIC, 0))
        check(offset == 5, f"the offset of the transaction is {offset}")
    finally:
        await reader.stop()


async def in_transaction(producer: AIOKafkaProducer, value: str, offset: int) -> None:
    await producer.begin_transaction()
    for number in range(3):
        await producer.send_and_wait(f"{TOPIC}-t", f"{value}{number}".encode(), partition=0)
    await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): OffsetAndMetadata(offset, "")}, f"{GROUP}-t")


async def admin() -> None:
    described = f"{GROUP}-a"
    async with joined(described) as member:
        await until("the member has all partitions", lambda: holds(member, PARTITIONS))
        client = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        await client.start()
        try:
            check(TOPIC in await client.list_topics(), "no topic")
            listed = [group[0] for group in await client.list_consumer_groups()]
            check(described in listed, "the group is not listed")
            [reply] = await client.describe_consumer_groups([described])
            [(_, _, state, _, _, members, *_)] = reply.groups
            check(state == "Stable", f"the state is {state}")
            check(len(members) == 1 and bool(members[0][4]), f"the members are {members}")
            offsets = await client.list_consumer_group_offsets(GROUP)
            check(sum(place.offset for place in offsets.values()) == RECORDS, f"committed offsets: {offsets}")
        finally:
            await client.close()


async def until(text: str, ready: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not await ready():
        check(time.monotonic() < deadline, f"timed out: {text}")


async def holds(consumer: AIOKafkaConsumer, count: int) -> bool:
    return await polled(consumer) == count


async def polled(consumer: AIOKafkaConsumer) -> int:
    await consumer.getmany(timeout_ms=POLL_MILLISECONDS)
    return len(consumer.assignment())


@asynccontextmanager
async def joined(group: str) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=BOOTSTRAP,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
        session_timeout_ms=10000,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


def blocking(step: Callable[[], Any]) -> Callable[[], None]:
    """Returns a function that runs the step in an event loop."""

    async def limited() -> None:
        await asyncio.wait_for(step(), 2 * WAIT_SECONDS)

    return lambda: asyncio.run(limited())


run(
    {
        "produce": blocking(produce),
        "consume": blocking(consume),
        "rebalance": blocking(rebalance),
        "transactions": blocking(transactions),
        "admin": blocking(admin),
    },
    STEPS,
)
