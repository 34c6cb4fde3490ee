"""Runs real producers and consumers of several groups with librdkafka, each consumer in a thread."""

import threading
from collections.abc import Callable
from queue import Queue

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from group_sidecar.demo.cluster import QUIET

POLL_SECONDS = 0.1


class Member(threading.Thread):
    """One consumer of a group, which polls until `leave` is called.

    Attributes:
        error: the last error of a poll.
        consumed: number of records that the consumer has received.
        assigned: the currently assigned partitions.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.group = group
        self.error: KafkaError | None = None
        self.consumed = 0
        self.assigned: list[TopicPartition] = []
        self._topic = topic
        self._done = threading.Event()
        self._asked: Queue[Queue[dict[tuple[str, int], int]]] = Queue()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 300,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
            },
            logger=QUIET,
        )

    def run(self) -> None:
        """Polls until `leave` is called, and then leaves the group."""
        self._consumer.subscribe([self._topic])
        while not self._done.is_set():
            message = self._consumer.poll(POLL_SECONDS)
            self.assigned = self._consumer.assignment()
            self._answer_committed()
            if message is None:
                continue
            if message.error():
                self.error = message.error()
            else:
                self.consumed += 1
        self._consumer.close()

    def committed(self) -> dict[tuple[str, int], int]:
        """Returns the committed offsets of the assigned partitions. Raises queue.Empty after 10 seconds."""
        reported: Queue[dict[tuple[str, int], int]] = Queue()
        self._asked.put(reported)
        return reported.get(timeout=10)

    def _answer_committed(self) -> None:
        # The polling thread calls `committed`, because librdkafka would block a second thread until the poll returns.
        if not self._asked.empty():
            reported = self._consumer.committed(self.assigned, timeout=5)
            self._asked.get().put({(p.topic, p.partition): p.offset for p in reported if p.offset >= 0})

    def leave(self) -> None:
        """Makes the member commit, leave the group and end. Waits at most 15 seconds for the end."""
        self._done.set()
        self.join(timeout=15)


class GroupClients:
    """A producer and the consumers of several groups, all with the same bootstrap address."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.members: list[Member] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "client.id": "shop"}, logger=QUIET)

    def produce(self, topic: str, count: int) -> None:
        """Produces `count` records and waits for their delivery. Raises KafkaException if a record is not delivered."""
        for number in range(count):
            self._producer.produce(topic, f"{topic}-{number}", key=str(number), partition=number % 4)
        if self._producer.flush(10):
            raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT, "records were not delivered"))

    def join(self, group: str, topic: str, count: int) -> list[Member]:
        """Adds `count` members to a group and returns them."""
        joined = [Member(self.bootstrap, group, topic, f"{group}-{number + 1}") for number in range(count)]
        self.members += joined
        for member in joined:
            member.start()
        return joined

    def of(self, group: str) -> list[Member]:
        """Returns the running members of a group."""
        return [member for member in self.members if member.group == group and member.is_alive()]

    def ends(self, topic: str, partitions: int) -> dict[int, int]:
        """Returns the log ends by partition, as a client fetches them."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "ends"}, logger=QUIET)
        try:
            reported = {
                p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=5) for p in range(partitions)
            }
        finally:
            consumer.close()
        return {partition: end for partition, (_, end) in reported.items()}

    def leave_all(self) -> None:
        """Makes all members leave."""
        leaving = [threading.Thread(target=member.leave, daemon=True) for member in self.members if member.is_alive()]
        for thread in leaving:
            thread.start()
        for thread in leaving:
            thread.join(timeout=20)


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits at most `seconds` until a condition holds. Returns whether the condition holds."""
    turn = threading.Event()
    for _ in range(int(seconds / POLL_SECONDS)):
        if condition():
            return True
        turn.wait(POLL_SECONDS)
    return condition()
