"""A client of another kind that commits and reads offsets: librdkafka's consumer, without a subscription."""

from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.linearizability.connections import REQUEST_SECONDS, Progress
from tests.linearizability.history import NO_OFFSET, LineFile, Operation, key_of, now
from tests.linearizability.offsets_client import PARTITIONS, TOPIC, OffsetsClient

_RETRIED_NS = 50_000_000
"""A commit that took less time was sent once, because librdkafka waits for at least 80 ms before it retries."""
_OFFSET_INVALID = -1001
_READS = 0.8


class LibrdkafkaOffsets:
    """One client of the slot's groups. It opens a new consumer for each group.

    Args:
        name: unique in the run.
        values: the client from which it takes the values to write and the current group.
        bootstrap: librdkafka's ``bootstrap.servers``.
        random: decides what the client does.
        recorder: records the operations.
        progress: counts successes and errors.
    """

    def __init__(
        self,
        name: str,
        values: OffsetsClient,
        bootstrap: str,
        random: Random,
        recorder: LineFile,
        progress: Progress,
    ) -> None:
        self._name, self._values, self._bootstrap = name, values, bootstrap
        self._random, self._recorder, self._progress = random, recorder, progress
        self._consumer: Consumer | None = None
        self._group = ""
        self._stable = False

    def step(self) -> None:
        """Reads or commits."""
        group = self._values.group
        if group != self._group or self._consumer is None:
            self.close()
            self._group, self._stable = group, self._random.random() < 0.5
            self._consumer = Consumer(self._settings())
        began = now()
        try:
            if self._random.random() < _READS:
                self._read(self._consumer, began)
            else:
                self._commit(self._consumer, began)
        except KafkaException as error:
            self._progress.failed(str(error.args[0].name()))

    def close(self) -> None:
        """Closes the consumer."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._bootstrap,
            "client.id": self._name,
            "group.id": self._group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if self._stable else "read_uncommitted",
            "socket.timeout.ms": int(REQUEST_SECONDS * 1000),
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }

    def _read(self, consumer: Consumer, began: int) -> None:
        places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        found = consumer.committed(places, REQUEST_SECONDS)
        ended = now()
        kind = "stable_read" if self._stable else "read"
        for place in found:
            if place.error is None:
                value = NO_OFFSET if place.offset == _OFFSET_INVALID else place.offset
                key = key_of(self._group, place.partition)
                self._recorder.append(Operation(key, self._name, kind, began, ended, value).line())
        self._progress.succeeded()

    def _commit(self, consumer: Consumer, began: int) -> None:
        value, partition = self._values.value(), self._random.randrange(PARTITIONS)
        key = key_of(self._group, partition)
        ended = None
        try:
            done = consumer.commit(offsets=[TopicPartition(TOPIC, partition, value)], asynchronous=False)
            if done and done[0].error is None:
                ended = now()
                self._progress.succeeded()
        finally:
            self._recorder.append(Operation(key, self._name, "commit", began, ended, value).line())
            if ended is None or ended - began > _RETRIED_NS:
                # An earlier copy of the request may still be on its way.
                again = f"{self._name}-again-{value}"
                self._recorder.append(Operation(key, again, "commit_again", began, None, value).line())
