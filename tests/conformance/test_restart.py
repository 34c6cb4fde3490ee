"""The sidecar is stopped and started again, several times, while real clients produce and consume at full speed."""

import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.conformance.librdkafka import consumer, create_topic, poll_until
from tests.conformance.routes import Route, Run
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.kafka.sidecar_process import SidecarProcess

PARTITIONS = 3
RESTARTS = 3
SERVED_SECONDS = 1.5
"""Seconds for which the clients are served between two restarts."""


class SteadyProducer:
    """Produces numbered values to all partitions until it is stopped.

    Attributes:
        sent: how many values were produced to each partition.
        delivered: the total number of values that the broker acknowledged.
        errors: the errors of deliveries.
    """

    def __init__(self, run: Run, *, idempotent: bool) -> None:
        settings = {"bootstrap.servers": run.bootstrap, "enable.idempotence": idempotent, "linger.ms": 1}
        self._producer = Producer({**settings, "queue.buffering.max.messages": 10_000})
        self._topic = run.name("topic")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self.sent = [0] * PARTITIONS
        self.delivered = 0
        self.errors: list[str] = []

    def __enter__(self) -> "SteadyProducer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _produce(self) -> None:
        while not self._stop.is_set():
            for partition in range(PARTITIONS):
                try:
                    value = str(self.sent[partition])
                    self._producer.produce(self._topic, value, partition=partition, on_delivery=self._noted)
                    self.sent[partition] += 1
                except BufferError:  # The queue is full, because the sidecar is down.
                    self._producer.poll(0.01)
            self._producer.poll(0)
            time.sleep(0.001)
        assert self._producer.flush(GIVE_UP_SECONDS) == 0

    def _noted(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.errors.append(str(error))


def values_by_partition(messages: list[Message]) -> dict[int, list[int]]:
    """Returns the numbers in each partition, in the order of their arrival."""
    found = defaultdict[int, list[int]](list)
    for message in messages:
        found[message.partition() or 0].append(int(message.value() or b""))
    return found


def restart(sidecar: SidecarProcess) -> None:
    """Stops the sidecar, and starts it again on the same ports."""
    assert sidecar.stop() == 0
    sidecar.start()


def polled_while_restarting(client: Consumer, sidecar: SidecarProcess) -> list[Message]:
    """Polls while the sidecar restarts, and for SERVED_SECONDS afterwards. Returns the messages."""
    restarting = threading.Thread(target=restart, args=(sidecar,))
    restarting.start()
    messages = poll_until([client], lambda _: not restarting.is_alive(), "the restart")
    served_until = time.monotonic() + SERVED_SECONDS
    return messages + poll_until([client], lambda _: time.monotonic() > served_until, "the next restart")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker of its own, because the sidecar listens at the address that the broker advertises."""
    with KafkaBroker(tmp_path_factory.mktemp("broker")) as broker:
        broker.wait_for_coordinator()
        yield broker


@pytest.mark.parametrize("idempotent", [True, pytest.param(False, marks=pytest.mark.long)])
def test_restarts_lose_nothing(broker: KafkaBroker, tmp_path: Path, idempotent: bool) -> None:
    """While the sidecar restarts under load, no delivery fails and the group consumes each value once.

    Without idempotence, values may be out of order. The broker would also store a value twice if the reply to its first
    request were lost.
    """
    sidecar = SidecarProcess(tmp_path, listen=broker.sidecar, upstream=broker.client)
    with sidecar:
        run = Run(Route("sidecar", broker.sidecar, broker.sasl_sidecar), f"t{secrets.token_hex(5)}")
        create_topic(run, "topic", partitions=PARTITIONS)
        rebalances: list[str] = []
        messages: list[Message] = []
        with consumer(run, "group", ["topic"], rebalances=rebalances, enable_auto_commit=True) as client:
            with SteadyProducer(run, idempotent=idempotent) as producer:
                messages += poll_until([client], lambda seen: len(seen) > 100, "the first values")
                for _ in range(RESTARTS):
                    messages += polled_while_restarting(client, sidecar)
            missing = sum(producer.sent) - len(messages)
            messages += poll_until([client], lambda seen: len(seen) >= missing, "all values")
    assert producer.errors == []
    assert producer.delivered == sum(producer.sent)
    values = values_by_partition(messages)
    if not idempotent:
        values = {partition: sorted(found) for partition, found in values.items()}
    assert values == {number: [*range(count)] for number, count in enumerate(producer.sent)}
    assert rebalances == [f"{PARTITIONS} assigned", f"{PARTITIONS} revoked"], (
        "the group must not rebalance during a restart"
    )
