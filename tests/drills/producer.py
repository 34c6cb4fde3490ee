"""A producer that writes to each partition at a steady rate."""

import threading
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from tests.kafka.processes import GIVE_UP_SECONDS

_PAUSE_SECONDS = 0.05


class SteadyProducer:
    """Writes a record to each partition every 50 ms, for the length of a with statement.

    Attributes:
        errors: the errors of deliveries.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 0}
        self._producer = Producer(settings)
        self._topic, self._partitions = topic, partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._produce, name="producer")
        self.errors: list[str] = []

    def _produce(self) -> None:
        try:
            while not self._stop.wait(_PAUSE_SECONDS):
                for partition in range(self._partitions):
                    self._producer.produce(self._topic, b"value", partition=partition, on_delivery=self._noted)
                self._producer.poll(0)
        except BufferError as error:  # The producer's queue is full, because no record was acknowledged for long.
            self.errors.append(str(error))
        left = self._producer.flush(GIVE_UP_SECONDS)
        if left:
            self.errors.append(f"{left} records were not delivered")

    def _noted(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.errors.append(str(error))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
