"""Clients that run in a network namespace from which only the gateway can be reached.

`python -m tests.conformance.gateway_clients BOOTSTRAP TOPIC` produces with librdkafka, and consumes with two members of
a librdkafka group and with kafka-python, until the standard input has a line. The clients then consume the remaining
records, and the program prints a JSON object with the values and errors that the clients have seen.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

GIVE_UP_SECONDS = 60.0
POLL_MS = 60_000
"""How long kafka-python waits for records. A consumer that learns the topic's partitions only after its first join
joins again. If `poll` times out during the second join, kafka-python 3.0.12 drops the assignment, and reads nothing any
more. It does so without a gateway too: with 20 ms, 17 of 40 consumers read nothing from a busy broker."""
QUICK = {"session.timeout.ms": 10_000, "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 300_000}
"""Metadata is refreshed rarely, so that the clients need the addresses of new leaders in replies (KIP-951)."""


class Clients:
    """The clients and what they have seen."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._stop = threading.Event()
        self.delivered: set[str] = set()
        self.failed: list[str] = []
        self.seen = {"rd": set[str](), "py": set[str]()}
        self.assignments = 0

    def run(self) -> dict[str, Any]:
        """Runs all clients until a line is read. Returns what they have seen."""
        members = (partial(self._consume, after) for after in (0.0, 3.0))
        tasks: list[Callable[[], None]] = [self._produce, *members, self._python]
        threads = [threading.Thread(target=task, daemon=True) for task in tasks]
        for thread in threads:
            thread.start()
        sys.stdin.readline()
        self._stop.set()
        threads[0].join(GIVE_UP_SECONDS)
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while any(self.delivered - seen for seen in self.seen.values()) and time.monotonic() < deadline:
            time.sleep(0.1)
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        nodes = admin.describe_cluster().result(GIVE_UP_SECONDS).nodes
        groups = admin.list_consumer_groups().result(GIVE_UP_SECONDS).valid
        return {
            "delivered": len(self.delivered),
            "failed": self.failed,
            "missing": {name: len(self.delivered - seen) for name, seen in self.seen.items()},
            "assignments": self.assignments,
            "nodes": sorted([node.id, node.host, node.port] for node in nodes),
            "groups": sorted(group.group_id for group in groups),
        }

    def _produce(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "acks": "all", "linger.ms": 5, "enable.idempotence": True}
        producer = Producer({**settings, "topic.metadata.refresh.interval.ms": 300_000})

        def done(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failed.append(str(error))
            elif value := message.value():
                self.delivered.add(value.decode())

        number = 0
        while not self._stop.is_set():
            producer.produce(self._topic, f"value {number}", on_delivery=done)
            producer.poll(0.01)
            number += 1
        if producer.flush(GIVE_UP_SECONDS):
            self.failed.append("not delivered")

    def _consume(self, after: float) -> None:
        self._stop.wait(after)  # The second member joins later, which rebalances the group.
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "rd", **QUICK})

        def assigned(*_: object) -> None:
            self.assignments += 1

        consumer.subscribe([self._topic], on_assign=assigned)
        while True:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None and (value := message.value()):
                self.seen["rd"].add(value.decode())

    def _python(self) -> None:
        settings = {"metadata_max_age_ms": 300_000, "auto_offset_reset": "earliest", "group_id": "py"}
        try:
            consumer = KafkaConsumer(self._topic, bootstrap_servers=self._bootstrap, **settings)
            while True:
                for records in consumer.poll(timeout_ms=POLL_MS).values():
                    self.seen["py"].update(record.value.decode() for record in records)
        except Exception as error:
            self.failed.append(f"kafka-python: {error!r}")
            raise


if __name__ == "__main__":
    sys.stdout.write(json.dumps(Clients(*sys.argv[1:]).run()) + "\n")
