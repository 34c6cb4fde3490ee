"""A real Kafka broker on one node, as a plain process on free ports.

Owns: how a KRaft node is configured, formatted, started and ended. Must not know: the sidecar, but for
the address that a listener advertises in its place.

Listeners: CLIENT is what the sidecar connects to, and advertises the sidecar; DIRECT is the same
broker without it. With `sasl`, SASL_CLIENT and SASL_DIRECT are a second such pair. A reply names
the listener it came by, so a client that starts on one stays on it.
"""

import socket
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorRequest
from tests.kafka.maven import kafka_jars
from tests.kafka.processes import Address, ChildProcess, ProcessFailed, free_addresses, spelled
from tests.kafka.wire import ask

VERSION = "4.3.1"

SASL_USER = "alice"
SASL_PASSWORD = "alice-secret"
"""Known to PLAIN and to SCRAM-SHA-256."""

JVM_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""For processes that live a minute: start quickly, leave the other core alone."""

_CLUSTER_ID = "QPfZ1GWOQ4Kdy-ruIG0fYQ"
_START_SECONDS = 90
_ENOUGH_GROUPS = 100
"""So many names fall on every partition of the offsets topic."""
_LOGGING = """\
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{HH:mm:ss.SSS} %-5p %c{1} %m%n
"""
_API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 0, -1)

_DEFAULTS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "DIRECT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # The defaults of the new protocol are made for large fleets: a test would wait 5 s per step.
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.coordinator.rebalance.protocols": "classic,consumer,share,streams",
    "auto.create.topics.enable": "false",
    "connection.failed.authentication.delay.ms": "0",
}


class KafkaBroker:
    """One Kafka 4.3.1 node, up for the length of a with statement.

    Args:
        folder: an empty folder for its data, its configuration and its log.
        properties: broker properties over the defaults.
        sasl: whether to open the second pair of listeners, with PLAIN and SCRAM-SHA-256.
    """

    def __init__(self, folder: Path, *, properties: Mapping[str, str] | None = None, sasl: bool = False) -> None:
        self.folder = folder
        self.sasl = sasl
        self.client, self.sidecar, self.direct, self.controller = free_addresses(4)
        """`client` is where the sidecar connects, `sidecar` the address it must listen on."""
        self.sasl_client, self.sasl_sidecar, self.sasl_direct = free_addresses(3)
        self._properties = {**_DEFAULTS, **self._listeners(), **(properties or {})}
        self._process = ChildProcess(
            [*self._java(), "-Xmx512m", "kafka.Kafka", str(folder / "server.properties")], folder / "broker.log"
        )

    def start(self) -> None:
        """Formats the node where that has not been done, and starts it; returns when it answers.

        Raises:
            ProcessFailed: it could not be formatted, or did not come up; with the end of its log.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "data").exists():
            self._format()
        self._process.start()
        try:
            self._process.wait_until(lambda: answers(self.direct), _START_SECONDS)
        except BaseException:
            self._process.stop()
            raise

    def wait_for_coordinator(self) -> None:
        """Returns when the group coordinator is there for every group: its topic made, led and loaded."""
        names = tuple(f"any {number}" for number in range(_ENOUGH_GROUPS))
        question = DescribeGroupsRequest(groups=names)

        def there() -> bool:
            ask(self.direct, FindCoordinatorRequest(key="any"), 0)  # The first such question makes the topic.
            return all(group.error_code == 0 for group in ask(self.direct, question, 0).groups)

        self._process.wait_until(there, _START_SECONDS)

    def stop(self) -> None:
        """Ends the node; it can be started again with its data."""
        self._process.stop(seconds=30)

    def kill(self) -> None:
        """Ends the node at once, as a crash would; it can be started again with its data."""
        self._process.running.kill()
        self._process.running.wait()

    def log_tail(self) -> str:
        """The end of the broker's log."""
        return self._process.tail()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _java(self) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        return ["java", *JVM_FLAGS, logging, "-cp", f"{kafka_jars(VERSION)}/*"]

    def _listeners(self) -> dict[str, str]:
        bound = {"CLIENT": self.client, "DIRECT": self.direct, "CONTROLLER": self.controller}
        advertised = {"CLIENT": self.sidecar, "DIRECT": self.direct}
        security = dict.fromkeys(bound, "PLAINTEXT")
        properties = {"controller.quorum.voters": f"1@{spelled(self.controller)}"}
        if self.sasl:
            pair = {"SASL_CLIENT": self.sasl_client, "SASL_DIRECT": self.sasl_direct}
            bound |= pair
            advertised |= pair | {"SASL_CLIENT": self.sasl_sidecar}
            security |= dict.fromkeys(pair, "SASL_PLAINTEXT")
            for name in pair:
                properties |= _sasl_properties(f"listener.name.{name.lower()}.")
        properties["listeners"] = ",".join(f"{name}://{spelled(at)}" for name, at in bound.items())
        properties["advertised.listeners"] = ",".join(f"{name}://{spelled(at)}" for name, at in advertised.items())
        properties["listener.security.protocol.map"] = ",".join(f"{name}:{how}" for name, how in security.items())
        return properties

    def _format(self) -> None:
        file = self.folder / "server.properties"
        settings = {**self._properties, "log.dirs": str(self.folder / "data")}
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (self.folder / "log4j2.properties").write_text(_LOGGING)
        command = [*self._java(), "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(file)]
        if self.sasl:
            command += ["--add-scram", f"SCRAM-SHA-256=[name={SASL_USER},password={SASL_PASSWORD}]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ProcessFailed(f"the storage could not be formatted\n{done.stdout}{done.stderr}")


def _sasl_properties(prefix: str) -> dict[str, str]:
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        f"{prefix}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        f"{prefix}plain.sasl.jaas.config": f'{plain} required user_{SASL_USER}="{SASL_PASSWORD}";',
        f"{prefix}scram-sha-256.sasl.jaas.config": f"{scram} required;",
    }


def answers(address: Address) -> bool:
    """Whether a broker answers ApiVersions there."""
    try:
        with socket.create_connection(address, timeout=2) as connection:
            connection.sendall(_API_VERSIONS_V0)
            return len(connection.recv(4)) > 0
    except OSError:
        return False
