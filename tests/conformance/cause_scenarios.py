"""Helpers of the scenarios about the causes of rebalances.

The helpers start a broker and a sidecar with short timers, read a group's timeline, and run Java consumers as
processes.
"""

import json
import secrets
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from confluent_kafka.admin import NewPartitions

from tests.conformance.librdkafka import admin
from tests.conformance.routes import Route, Run
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect
from tests.kafka.java import java
from tests.kafka.processes import GIVE_UP_SECONDS, host_port
from tests.kafka.releases import NEWEST_TOOLS
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.tools import CONSOLE_CONSUMER

QUICK = {"group.min.session.timeout.ms": "500", "group.consumer.session.timeout.ms": "6000"}
QUICK |= {"group.consumer.min.session.timeout.ms": "500", "group.consumer.heartbeat.interval.ms": "500"}
QUICK |= {"group.consumer.min.heartbeat.interval.ms": "200"}
"""Sessions are short enough to expire within a test, and long enough for a slow machine to send heartbeats in time."""

Cells = dict[str, Any]


@dataclass
class Scene:
    """A group and its timeline in the sidecar.

    The group has a unique name that ends with `stem`, unless a name is given.
    """

    broker: KafkaBroker
    sidecar: SidecarProcess
    stem: str = "group"
    name: str = ""
    run: Run = field(init=False)

    def __post_init__(self) -> None:
        route = Route("sidecar", self.sidecar.listen, self.broker.sasl_sidecar)
        self.run = Run(route, f"t{secrets.token_hex(5)}")

    @property
    def group(self) -> str:
        return self.name or self.run.name(self.stem)

    def client(self, client_id: str = "raw") -> Client:
        """Returns a client that connects through the sidecar."""
        return Client(self.sidecar.listen, Dialect.of(self.broker.direct), client_id)

    def timeline(self) -> list[Cells]:
        """Returns the group's timeline, the newest entry last."""
        status, body = self.sidecar.get(f"/api/v1/timeline?group={quote(self.group, safe='')}")
        return list(json.loads(body)["timeline"]) if status == 200 else []

    def has_committed(self, client_id: str, since: str) -> bool:
        """Whether an offset of a partition that this client owns was committed after `since`."""
        _, body = self.sidecar.get(f"/api/v1/offsets?group={quote(self.group, safe='')}")
        rows = json.loads(body)["offsets"]
        return any(row["client_id"] == client_id and (row["committed_at"] or "") > since for row in rows)

    def events(self, what: str, **cells: Any) -> list[Cells]:
        """Returns the entries of this kind with these cells."""
        return [each for each in self.timeline() if each["what"] == what and cells.items() <= each.items()]

    def add_partitions(self, topic: str, count: int) -> None:
        """Raises the number of the topic's partitions."""
        client = admin(self.run)
        client.create_partitions([NewPartitions(topic, count)])[topic].result(GIVE_UP_SECONDS)

    def wait_for(self, what: str, many: int = 1, **cells: Any) -> Cells:
        """Waits for `many` entries of this kind with these cells, and returns the last one.

        A failure lists the entries that exist.
        """
        try:
            self.until(lambda: len(self.events(what, **cells)) >= many)
        except Exception as error:
            raise AssertionError(f"no {what} with {cells} in\n" + "\n".join(map(str, self.timeline()))) from error
        return self.events(what, **cells)[-1]

    def until(self, ready: Callable[[], bool]) -> None:
        """Waits until a condition is true."""
        self.sidecar.process.wait_until(ready)

    def rebalanced(self, cause: str, many: int = 1) -> Cells:
        """Waits for `many` rebalances with this cause. Returns the last one."""
        completed = self.wait_for("rebalance_completed", many, cause=cause)
        assert self.events("rebalance_started"), "a rebalance completed, but its start was not reported"
        return completed


@contextmanager
def java_consumer(scene: Scene, topic: str, client_id: str, *, reads: bool = True, **settings: Any) -> Iterator["Java"]:
    """Runs Kafka's console consumer as a process, and ends it at the end.

    Args:
        scene: the scene of its group.
        topic: the topic that it consumes.
        client_id: its client id.
        reads: whether its output is read. Otherwise it stops polling, while its heartbeats continue.
        settings: settings of the consumer, with _ in place of dots.
    """
    given = {"client.id": client_id, **{name.replace("_", "."): value for name, value in settings.items()}}
    properties = [part for name, value in given.items() for part in ("--command-property", f"{name}={value}")]
    place = ["--bootstrap-server", host_port(scene.sidecar.listen), "--topic", topic, "--group", scene.group]
    command = [*java(NEWEST_TOOLS, "-Xmx256m"), CONSOLE_CONSUMER, *place, *properties]
    output = subprocess.DEVNULL if reads else subprocess.PIPE
    with subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()
            if process.stdout:
                process.stdout.close()


Java = subprocess.Popen[bytes]


def clients(cells: Sequence[Cells]) -> list[str]:
    """Returns the clients of these entries."""
    return [each["client_id"] for each in cells]
