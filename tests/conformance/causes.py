"""What the scenarios about causes have in common.

Owns: a broker and the sidecar before it with quick timers, reading a group's timeline, and Java consumers as
processes. Must not know: any scenario.
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
from tests.kafka.broker import JVM_FLAGS, KafkaBroker
from tests.kafka.dialect import Client, Dialect
from tests.kafka.maven import kafka_jars
from tests.kafka.processes import PATIENCE, spelled
from tests.kafka.releases import NEWEST_TOOLS
from tests.kafka.sidecar import SidecarProcess
from tests.kafka.tools import CONSOLE_CONSUMER

QUICK = {"group.min.session.timeout.ms": "500", "group.consumer.session.timeout.ms": "6000"}
QUICK |= {"group.consumer.min.session.timeout.ms": "500", "group.consumer.heartbeat.interval.ms": "500"}
QUICK |= {"group.consumer.min.heartbeat.interval.ms": "200"}
"""Sessions that run out within a test, but not while a slow machine is between two heartbeats."""

Cells = dict[str, Any]


@dataclass
class Scene:
    """A group of its own, or one with this name, and what the sidecar tells of it. `stem`: what its name ends with."""

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
        """Asks through the sidecar."""
        return Client(self.sidecar.listen, Dialect.of(self.broker.direct), client_id)

    def timeline(self) -> list[Cells]:
        """What is told of the group, the newest last."""
        status, body = self.sidecar.get(f"/api/v1/timeline?group={quote(self.group, safe='')}")
        return list(json.loads(body)["timeline"]) if status == 200 else []

    def has_committed(self, client_id: str, since: str) -> bool:
        """Whether an offset of a partition that this client has was committed since then."""
        _, body = self.sidecar.get(f"/api/v1/offsets?group={quote(self.group, safe='')}")
        rows = json.loads(body)["offsets"]
        return any(row["client_id"] == client_id and (row["committed_at"] or "") > since for row in rows)

    def told(self, what: str, **cells: Any) -> list[Cells]:
        """Those entries that are of this kind, and say this."""
        return [each for each in self.timeline() if each["what"] == what and cells.items() <= each.items()]

    def add_partitions(self, topic: str, count: int) -> None:
        """The topic has so many partitions from now on."""
        client = admin(self.run)
        client.create_partitions([NewPartitions(topic, count)])[topic].result(PATIENCE)

    def wait_for(self, what: str, many: int = 1, **cells: Any) -> Cells:
        """Waits until there are so many such entries; returns the last. Says what there is where they do not come."""
        try:
            self.until(lambda: len(self.told(what, **cells)) >= many)
        except Exception as error:
            raise AssertionError(f"no {what} with {cells} in\n" + "\n".join(map(str, self.timeline()))) from error
        return self.told(what, **cells)[-1]

    def until(self, ready: Callable[[], bool]) -> None:
        """Waits for something that the sidecar's broker does."""
        self.sidecar.process.wait_until(ready)

    def rebalanced(self, cause: str, many: int = 1) -> Cells:
        """Waits for so many rebalances of that cause; returns the last, which was told to have begun for it."""
        completed = self.wait_for("rebalance_completed", many, cause=cause)
        assert self.told("rebalance_started"), "every end has a beginning"
        return completed


@contextmanager
def java_consumer(scene: Scene, topic: str, client_id: str, *, reads: bool = True, **settings: Any) -> Iterator["Java"]:
    """Kafka's console consumer as a process; ended at the end.

    Args:
        scene: whose group it is in.
        topic: what it reads.
        client_id: its name.
        reads: whether somebody takes what it prints. Else it comes to a halt while its heartbeats go on.
        settings: the consumer's, with _ for the dot.
    """
    given = {"client.id": client_id, **{name.replace("_", "."): value for name, value in settings.items()}}
    properties = [part for name, value in given.items() for part in ("--command-property", f"{name}={value}")]
    place = ["--bootstrap-server", spelled(scene.sidecar.listen), "--topic", topic, "--group", scene.group]
    command = [
        "java",
        *JVM_FLAGS,
        "-Xmx256m",
        "-cp",
        f"{kafka_jars(NEWEST_TOOLS)}/*",
        CONSOLE_CONSUMER,
        *place,
        *properties,
    ]
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
    """Whom these entries are about."""
    return [each["client_id"] for each in cells]
