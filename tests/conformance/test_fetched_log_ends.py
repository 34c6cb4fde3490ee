"""Log ends and lag come from clients' Fetch replies. The sidecar itself asks the broker only once a minute."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from group_sidecar.proxy.handlers.fetches import MAX_WHOLE_FETCH_BYTES
from tests.conformance import test_kafka_python as python
from tests.conformance.librdkafka import consumer, create_topic, produce
from tests.conformance.routes import Route, Run
from tests.kafka.broker import VERSION, KafkaBroker
from tests.kafka.java import java as kafka_java
from tests.kafka.processes import GIVE_UP_SECONDS, ChildProcess
from tests.kafka.releases import NEWEST_TOOLS
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.tools import CONSOLE_CONSUMER

PARTITIONS = 2
"""The number of partitions of each topic."""
Step = Callable[[], object]
Client = Callable[[Run, Path], AbstractContextManager[Step]]


@dataclass(frozen=True)
class Stage:
    """A sidecar that rarely asks its broker, and the routes to the broker: through the sidecar, and around it."""

    sidecar: SidecarProcess
    through: Run
    around: Run

    def anew(self) -> "Stage":
        """Returns the same stage with new names."""
        prefix = f"t{secrets.token_hex(5)}"
        return Stage(self.sidecar, replace(self.through, prefix=prefix), replace(self.around, prefix=prefix))

    def metric(self, name: str, **labels: str) -> float:
        return self.sidecar.metric(f"group_sidecar_{name}", **labels)

    def seen_at(self, topic: str) -> frozenset[float]:
        """Returns the times at which the sidecar observed the log ends of the topic's partitions."""
        samples = self.sidecar.samples("group_sidecar_log_end_offset_timestamp_seconds")
        return frozenset(each.value for each in samples if each.labels["topic"] == topic)


def staged(folder: Path, version: str) -> Iterator[Stage]:
    settings = {"metrics": {"detail": "partition"}, "journal": {"folder": str(folder / "j"), "interval_seconds": 60}}
    with KafkaBroker(folder / "broker", version=version) as broker:
        broker.wait_for_coordinator()
        with SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=settings) as sidecar:
            sidecar.wait_for_log()
            around = Run(Route("direct", broker.direct, broker.direct), f"t{secrets.token_hex(5)}")
            through = replace(around, route=Route("sidecar", broker.sidecar, broker.sidecar))
            yield Stage(sidecar, through, around)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    yield from staged(tmp_path_factory.mktemp("fetched"), VERSION)


@pytest.fixture(scope="module")
def old_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    yield from staged(tmp_path_factory.mktemp("fetched-old"), "1.1.1")


# Clients that read a topic during a with statement. Each yields a function that the test calls repeatedly.


@contextmanager
def librdkafka(run: Run, folder: Path) -> Iterator[Step]:
    with consumer(run, "readers", ["topic"]) as client:
        yield lambda: client.poll(0.02)


@contextmanager
def librdkafka_committed(run: Run, folder: Path) -> Iterator[Step]:
    with consumer(run, "readers", ["topic"], isolation_level="read_committed", group_protocol="consumer") as client:
        yield lambda: client.poll(0.02)


@contextmanager
def kafka_python(run: Run, folder: Path) -> Iterator[Step]:
    with python.consumer(run, "readers", "topic") as client:
        yield lambda: client.poll(timeout_ms=20)


@contextmanager
def java(run: Run, folder: Path) -> Iterator[Step]:
    command = [*kafka_java(NEWEST_TOOLS, "-Xmx256m"), CONSOLE_CONSUMER]
    command += ["--bootstrap-server", run.bootstrap, "--topic", run.name("topic"), "--group", run.name("readers")]
    with ChildProcess(command, folder / "consumer.log") as process:
        yield process.running.poll


def follow(stage: Stage, client: Client, folder: Path, value: str = "value") -> None:
    """Produces while a client reads. Asserts that the lag of another group is known."""
    around, topic = stage.around, create_topic(stage.around, "topic", PARTITIONS)
    sent, seen = 0, frozenset[float]()
    with consumer(around, "idle", []) as idle:
        idle.commit(offsets=[TopicPartition(topic, number, 0) for number in range(PARTITIONS)], asynchronous=False)
    deadline = time.monotonic() + GIVE_UP_SECONDS
    with client(stage.through, folder) as step:
        # The sidecar's own requests alone would give at most one of these times.
        while len(seen) < 4 or stage.metric("group_lag", group=around.name("idle")) < sent / 2:
            assert time.monotonic() < deadline, (
                f"{sent} records were sent, and log ends were observed only at {sorted(seen)}"
            )
            produce(around, "topic", [value] * PARTITIONS)
            sent += PARTITIONS
            step()
            seen |= stage.seen_at(topic)
    assert stage.metric("group_lag_unknown_partitions", group=around.name("idle")) == 0
    assert stage.metric("group_lag", group=around.name("idle")) <= sent
    assert stage.metric("decode_failures_total") == 0


@pytest.mark.parametrize("client", [librdkafka, librdkafka_committed, kafka_python, java])
def test_lag_from_fetch_replies(stage: Stage, client: Any, tmp_path: Path) -> None:
    """The lag of an idle group is known from other clients' Fetch replies."""
    follow(stage.anew(), client, tmp_path)


def test_lag_from_long_fetch_replies(stage: Stage, tmp_path: Path) -> None:
    """The lag of an idle group is known even if each Fetch reply of a Java client is too long to be read whole."""
    follow(stage.anew(), java, tmp_path, "x" * 2 * MAX_WHOLE_FETCH_BYTES)


def test_lag_at_old_broker(old_stage: Stage, tmp_path: Path) -> None:
    """The lag of an idle group is known from Fetch replies of an old broker."""
    follow(old_stage, librdkafka, tmp_path)
