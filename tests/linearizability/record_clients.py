"""Producers that note acknowledged records, a consumer group that reads them, and a final reading of all records."""

import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.linearizability.connections import Progress
from tests.linearizability.record_check import Produced

PLAIN, TRANSACTIONAL = "plain-records", "transactional-records"
PARTITIONS = 3
_RECORDS_PER_SECOND = 150
BATCH = 5
_COMMITTED = 0.75
_SECONDS = 60.0
"""The maximum time for one step of a transaction, and for the final reading of a partition."""
_PATIENT: dict[str, Any] = {"socket.timeout.ms": 8000, "reconnect.backoff.max.ms": 500, "log_level": 0}


class PlainProducer:
    """An idempotent producer with acks=all. It writes ascending numbers to each partition."""

    def __init__(self, bootstrap: str, produced: Produced, progress: Progress) -> None:
        self._produced, self._progress = produced, progress
        self._next = [0] * PARTITIONS
        self._producer = Producer(
            {
                **_PATIENT,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "error_cb": lambda error: progress.failed(error.name()),
            }
        )

    def run(self, stopped: Callable[[], bool]) -> None:
        """Produces until `stopped` is true. Then waits until each record is acknowledged or has failed."""
        partition = 0
        while not stopped():
            partition = (partition + 1) % PARTITIONS
            value = self._next[partition]
            self._next[partition] += 1
            self._producer.produce(
                PLAIN, str(value).encode(), partition=partition, on_delivery=self._delivered(partition, value)
            )
            self._producer.poll(1 / _RECORDS_PER_SECOND)
        self._producer.flush(_SECONDS)
        self._progress.waited()

    def _delivered(self, partition: int, value: int) -> Callable[[KafkaError | None, Message], None]:
        def noted(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self._produced.acknowledged.append((partition, value))
                self._progress.succeeded()
            else:
                self._progress.failed(error.name())

        return noted


class TransactionalProducer:
    """A producer of transactions of some records each. Some transactions are aborted on purpose."""

    def __init__(self, bootstrap: str, produced: Produced, progress: Progress, random: Random) -> None:
        self._bootstrap, self._produced, self._progress, self._random = bootstrap, produced, progress, random
        self._producer: Producer | None = None

    def run(self, stopped: Callable[[], bool]) -> None:
        """Runs transactions until `stopped` is true."""
        number = 0
        while not stopped():
            number += 1
            self._produced.outcomes[number] = self._transaction(number)
        self._progress.waited()

    def _transaction(self, number: int) -> str:
        """Returns the outcome: `committed`, `aborted` or `unknown`."""
        commits, outcome = self._random.random() < _COMMITTED, "unknown"
        try:
            producer = self._producer = self._producer or self._new_producer()
            producer.begin_transaction()
            for each in range(BATCH):
                producer.produce(TRANSACTIONAL, f"{number}:{each}".encode(), partition=each % PARTITIONS)
            if commits:
                self._committed(producer)
                outcome = "committed"
            else:
                producer.abort_transaction(_SECONDS)
                outcome = "aborted"
            self._progress.succeeded()
        except KafkaException as error:
            outcome = self._recovered(error.args[0])
        return outcome

    def _committed(self, producer: Producer) -> None:
        until = time.monotonic() + _SECONDS
        while True:
            try:
                producer.commit_transaction(_SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > until:
                    raise
                self._progress.failed(error.args[0].name())

    def _recovered(self, error: KafkaError) -> str:
        """Prepares the next transaction after a failure. Returns the outcome of the failed one."""
        self._progress.failed(error.name())
        if self._producer is not None and error.txn_requires_abort():
            try:
                self._producer.abort_transaction(_SECONDS)
            except KafkaException as another:
                self._progress.failed(another.args[0].name())
            else:
                return "aborted"
        self._producer = None  # The next producer has the same id, and fences this one.
        return "unknown"

    def _new_producer(self) -> Producer:
        producer = Producer(
            {
                **_PATIENT,
                "bootstrap.servers": self._bootstrap,
                "transactional.id": "transactional-records",
                "transaction.timeout.ms": 60_000,
                "error_cb": lambda error: self._progress.failed(error.name()),
            }
        )
        producer.init_transactions(_SECONDS)
        return producer


class GroupReader:
    """A consumer of a group that reads both topics and commits what it has read."""

    def __init__(self, bootstrap: str, produced: Produced, progress: Progress) -> None:
        self._produced, self._progress = produced, progress
        self._consumer = Consumer(
            {
                **_PATIENT,
                "bootstrap.servers": bootstrap,
                "group.id": "records",
                "session.timeout.ms": 6000,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": True,
                "auto.commit.interval.ms": 500,
                "error_cb": lambda error: progress.failed(error.name()),
            }
        )

    def run(self, complete: threading.Event) -> None:
        """Reads until `complete` is set. Then reads until it has all required records, or the time is over."""
        self._consumer.subscribe([PLAIN, TRANSACTIONAL])
        while not complete.is_set():
            self._read()
        self._progress.waited()
        required, until = self._produced.required(PLAIN, TRANSACTIONAL, BATCH, PARTITIONS), time.monotonic() + _SECONDS
        while not required <= self._produced.consumed and time.monotonic() < until:
            self._read()
        self._consumer.close()

    def _read(self) -> None:
        for message in self._consumer.consume(500, 0.2):
            if (error := message.error()) is not None:
                self._progress.failed(error.name())
                continue
            self._produced.consumed.add((str(message.topic()), text(message)))
            self._progress.succeeded()


def text(message: Message) -> str:
    """Returns a record's partition and value, as `partition/value`."""
    return f"{message.partition()}/{(message.value() or b'').decode()}"


def read_all(bootstrap: str, topic: str) -> dict[int, list[str]]:
    """Returns the values of all committed records by partition, in the order of the log."""
    settings = {**_PATIENT, "bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    found: dict[int, list[str]] = {}
    for partition in range(PARTITIONS):
        consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
        consumer.assign([TopicPartition(topic, partition, 0)])
        values = found[partition] = []
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values.append((message.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                break
        else:
            raise TimeoutError(f"partition {partition} of {topic} could not be read to its end")
        consumer.close()
    return found
