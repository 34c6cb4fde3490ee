"""The sidecar is replaced by its successor several times, while real clients produce and consume at full speed."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message

from tests.conformance.librdkafka import consumer, create_topic
from tests.conformance.routes import Route, Run
from tests.conformance.test_restart import PARTITIONS, SteadyProducer, values_by_partition
from tests.kafka.broker import KafkaBroker
from tests.kafka.json_lines import json_lines
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.kafka.sidecar_process import SidecarProcess

RESTARTS = 3
SERVED_SECONDS = 1.5
"""How long the clients are served after a restart."""
JUDGED_SECONDS = 150.0
"""Seconds after the restart by which the sidecar would have found a client that bypasses it. It needs two minutes."""
SETTINGS = {"answers": {"exclusive": True}, "limits": {"drain_seconds": 3}}
PROTOCOLS = ("classic", "consumer")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker of its own, because the sidecar listens at the address that the broker advertises."""
    with KafkaBroker(tmp_path_factory.mktemp("broker")) as broker:
        broker.wait_for_coordinator()
        yield broker


class Clients:
    """A producer, and two consumers in a group of each protocol. The consumers commit continuously.

    Attributes:
        rebalances: the rebalances that the consumers have noticed.
        values: the values that were consumed.
    """

    def __init__(self, run: Run, stack: ExitStack) -> None:
        self.rebalances: list[str] = []
        self.values: list[Message] = []
        self._consumers: list[Consumer] = []
        for protocol in PROTOCOLS:
            settings = {} if protocol == "classic" else {"group_protocol": protocol}
            self._consumers += [
                stack.enter_context(
                    consumer(
                        run,
                        f"{protocol}-group",
                        ["topic"],
                        rebalances=self.rebalances,
                        enable_auto_commit=True,
                        auto_commit_interval_ms=100,
                        **settings,
                    )
                )
                for _ in range(2)
            ]
        self.producer = SteadyProducer(run, idempotent=True)

    def poll_until(self, condition: Callable[[], bool], seconds: float = GIVE_UP_SECONDS) -> None:
        """Polls all consumers in turn until the condition is true."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"gave up after {len(self.values)} values; sent: {self.producer.sent}"
            for each in self._consumers:
                for message in each.consume(500, 0.01):
                    assert message.error() is None, message.error()
                    self.values.append(message)

    def settle(self) -> None:
        """Polls until each group's partitions are assigned and values arrive."""
        pairs = [self._consumers[:2], self._consumers[2:]]

        def settled() -> bool:
            shares = [[len(each.assignment()) for each in pair] for pair in pairs]
            return len(self.values) > 100 and all(sum(share) == PARTITIONS and min(share) > 0 for share in shares)

        self.poll_until(settled)
        self.rebalances.clear()

    def poll_for(self, seconds: float) -> None:
        """Polls for `seconds`."""
        until = time.monotonic() + seconds
        self.poll_until(lambda: time.monotonic() > until, seconds + 10)

    def poll_rest(self) -> None:
        """Polls until each group has all values."""
        self.poll_until(lambda: len(self.values) >= len(PROTOCOLS) * sum(self.producer.sent))


def replaced(sidecar: SidecarProcess, clients: Clients) -> None:
    """Replaces the sidecar while the clients poll."""
    restart = threading.Thread(target=sidecar.hand_over)
    restart.start()
    clients.poll_until(lambda: not restart.is_alive())
    restart.join()


def events(sidecar: SidecarProcess) -> list[str]:
    """Returns the events in the log, in order."""
    return [line["event"] for line in json_lines(sidecar.process.log)]


@pytest.mark.parametrize(
    ("restarts", "seconds"),
    [(RESTARTS, SERVED_SECONDS), pytest.param(1, JUDGED_SECONDS, marks=[pytest.mark.long, pytest.mark.timeout(600)])],
    ids=["often", "judged"],
)
def test_clients_notice_nothing(broker: KafkaBroker, tmp_path: Path, restarts: int, seconds: float) -> None:
    """No request fails, no group rebalances, each value is consumed once, and no client counts as one that
    bypasses the sidecar.
    """
    sidecar = SidecarProcess(tmp_path, listen=broker.sidecar, upstream=broker.client, settings=SETTINGS)
    with sidecar:
        run = Run(Route("sidecar", broker.sidecar, broker.sasl_sidecar), f"t{secrets.token_hex(5)}")
        create_topic(run, "topic", partitions=PARTITIONS)
        with ExitStack() as running:
            clients = Clients(run, running)
            with clients.producer:
                clients.settle()
                for _ in range(restarts):
                    replaced(sidecar, clients)
                    clients.poll_for(seconds)
            clients.poll_rest()
            assert clients.rebalances == []
            assert clients.producer.errors == []
            assert sidecar.metric("group_sidecar_bypassing_records_total") == 0
        values = values_by_partition(clients.values)
        expected = {number: sorted([*range(count)] * 2) for number, count in enumerate(clients.producer.sent)}
        assert {partition: sorted(found) for partition, found in values.items()} == expected


def test_copy_is_loaded_before_clients_are_accepted(broker: KafkaBroker, tmp_path: Path) -> None:
    """The successor has read the broker's log before it accepts clients."""
    sidecar = SidecarProcess(tmp_path, listen=broker.sidecar, upstream=broker.client, settings=SETTINGS)
    with sidecar:
        sidecar.wait_for_log()
        before = len(events(sidecar))
        sidecar.hand_over()
        following = [event.partition(" from ")[0] for event in events(sidecar)[before:]]
        assert following.index("Finished loading offsets and group metadata") < following.index("started")


def test_members_are_known_after_restart(broker: KafkaBroker, tmp_path: Path) -> None:
    """Without `answers.exclusive`, the successor soon knows the members of each group from the log."""
    settings = {"limits": {"drain_seconds": 1}}
    with SidecarProcess(tmp_path, listen=broker.sidecar, upstream=broker.client, settings=settings) as sidecar:
        run = Run(Route("sidecar", broker.sidecar, broker.sasl_sidecar), f"t{secrets.token_hex(5)}")
        create_topic(run, "topic", partitions=PARTITIONS)
        groups = [run.name(f"{protocol}-group") for protocol in PROTOCOLS]

        def members() -> list[float]:
            return [sidecar.metric("group_sidecar_group_members", group=group) for group in groups]

        with ExitStack() as running:
            clients = Clients(run, running)
            with clients.producer:
                clients.settle()
                clients.poll_until(lambda: members() == [2, 2])
                replaced(sidecar, clients)
                clients.poll_until(lambda: members() == [2, 2])
