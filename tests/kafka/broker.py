"""A real Kafka broker on one node, as a plain process on free ports.

The module configures, formats, starts and stops a node, with ZooKeeper for old versions. `tests.kafka.releases` has the
differences between versions.

The sidecar connects to the listener CLIENT, which advertises the sidecar's address. The listener DIRECT advertises the
broker itself. With `sasl`, there is a second such pair: SASL_CLIENT and SASL_DIRECT. A reply contains the addresses
that its listener advertises, so a client stays on the listener on which it started. Each further proxy that rewrites no
addresses has its own listener, which advertises that proxy. Old versions whose listeners have no names have one
listener, which advertises itself. A sidecar in front of such a listener is a gateway.
"""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorRequest
from group_sidecar.codecs.messages.metadata import MetadataRequest
from tests.kafka.java import java
from tests.kafka.processes import Address, ChildProcess, ProcessFailed, free_addresses, host_port
from tests.kafka.releases import ALL_RELEASES, NEWEST
from tests.kafka.wire import ask
from tests.kafka.zookeeper import ZooKeeper

VERSION = NEWEST

SASL_USER = "alice"
SASL_PASSWORD = "alice-secret"
"""The user's password for PLAIN and for SCRAM."""

_CLUSTER_ID = "QPfZ1GWOQ4Kdy-ruIG0fYQ"
_FORMATTED: dict[tuple[str, str, bool], Mapping[str, bytes]] = {}
"""The files of formatted storage by version, node id, and whether it has a user for SCRAM. A run formats each kind only
once, because Kafka's tool takes more than a second."""
_ENOUGH_GROUPS = 100
"""How many group names are tried. Each partition of the offsets topic stores at least one of these groups."""


class KafkaBroker:
    """One Kafka node, which runs for the length of a with statement.

    Args:
        folder: an empty folder for its data, its configuration and its log.
        version: one of `ALL_RELEASES`.
        properties: broker properties that override the defaults.
        sasl: whether to open the second pair of listeners, with PLAIN and SCRAM-SHA-256. Requires Kafka 3.5. `sasl`,
            `direct` and `proxies` require listeners with names.
        joins: the node whose cluster this node joins as the second node. Requires Kafka 3.5.
        direct: the address of DIRECT, if others must know it in advance.
        proxies: names, in capitals, of further proxies that rewrite no addresses.
        more: names, in capitals, of further listeners that advertise themselves.
        java_options: JVM options that follow those of `tests.kafka.java`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        version: str = NEWEST,
        properties: Mapping[str, str] | None = None,
        sasl: bool = False,
        joins: "KafkaBroker | None" = None,
        direct: Address | None = None,
        proxies: Sequence[str] = (),
        more: Sequence[str] = (),
        java_options: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self._joins = joins
        self.release = ALL_RELEASES[version]
        assert self.release.listeners_have_names or not (sasl or direct or proxies)
        self.sasl = sasl
        self.client, self.sidecar, free, self.controller = free_addresses(4)
        """The sidecar connects to `client` and must listen on `sidecar`. For an old broker, `controller` is ZooKeeper's
        address."""
        self.direct = direct or (free if self.release.listeners_have_names else self.client)
        self.sasl_client, self.sasl_sidecar, self.sasl_direct = free_addresses(3)
        self.upstreams = dict(zip(proxies, free_addresses(len(proxies)), strict=True))
        self.proxies = dict(zip(proxies, free_addresses(len(proxies)), strict=True))
        """For each further proxy, the address that it connects to and the address that it must listen on."""
        self.more = dict(zip(more, free_addresses(len(more)), strict=True))
        self._properties = {**self.release.properties, **self._listeners(), **(properties or {})}
        java = self._java()
        self._zookeeper = ZooKeeper(folder / "zookeeper", java, self.controller) if self.release.zookeeper else None
        self._process = ChildProcess(
            [*java, "-Xmx512m", *java_options, "kafka.Kafka", str(folder / "server.properties")], folder / "broker.log"
        )

    def start(self) -> None:
        """Formats the node if necessary, and starts it. Returns when it responds.

        Raises:
            ProcessFailed: the node could not be formatted or did not start. The text contains the end of its log.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._configure()
        if self._zookeeper:
            self._zookeeper.start()
        elif not (self.folder / "data").exists():
            self._make_storage()
        try:
            self._process.start()
            self._process.wait_until(lambda: answers(self.direct))
        except BaseException:
            self.stop()
            raise

    def wait_for_coordinator(self) -> None:
        """Waits until every group has a coordinator: the offsets topic is created, has leaders, and is loaded."""
        names = tuple(f"any {number}" for number in range(_ENOUGH_GROUPS))
        question = DescribeGroupsRequest(groups=names)

        def there() -> bool:
            ask(self.direct, FindCoordinatorRequest(key="any"), 0)  # The first such request creates the topic.
            return all(group.error_code == 0 for group in ask(self.direct, question, 0).groups)

        self._process.wait_until(there)

    def stop(self) -> int:
        """Stops the node, which can be started again with its data. Returns the exit status of its JVM."""
        status = self._process.stop(seconds=30)
        if self._zookeeper:
            self._zookeeper.stop()
        return status

    def kill(self) -> None:
        """Kills the node, as in a crash. It can be started again with its data."""
        self._process.stop(how=signal.SIGKILL)

    @property
    def pid(self) -> int:
        """The id of the broker's process. `start` must have been called."""
        return self._process.running.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kills the node, because nothing uses its data afterwards and a shutdown in order would take seconds."""
        self.kill()
        if self._zookeeper:
            self._zookeeper.stop()

    def _java(self) -> list[str]:
        logging = self.release.logging
        flag = f"{logging.flag}{self.folder / logging.file}"
        return java(self.release.version, flag)

    def _listeners(self) -> dict[str, str]:
        if not self.release.listeners_have_names:
            place = f"PLAINTEXT://{host_port(self.client)}"
            return {
                "listeners": place,
                "advertised.listeners": place,
                "zookeeper.connect": host_port(self.controller),
            }
        bound = {"CLIENT": self.client, "DIRECT": self.direct, **self.upstreams, **self.more}
        advertised = {"CLIENT": self.sidecar, "DIRECT": self.direct, **self.proxies, **self.more}
        if self.release.zookeeper:
            properties = {"zookeeper.connect": host_port(self.controller)}
        else:
            properties = {"controller.quorum.voters": f"1@{host_port((self._joins or self).controller)}"}
            bound["CONTROLLER"] = self.controller
        security = dict.fromkeys(bound, "PLAINTEXT")
        if self._joins:
            properties |= {"node.id": "2", "process.roles": "broker"}
            del bound["CONTROLLER"]
        if self.sasl:
            pair = {"SASL_CLIENT": self.sasl_client, "SASL_DIRECT": self.sasl_direct}
            bound |= pair
            advertised |= pair | {"SASL_CLIENT": self.sasl_sidecar}
            security |= dict.fromkeys(pair, "SASL_PLAINTEXT")
            for name in pair:
                properties |= _sasl_properties(f"listener.name.{name.lower()}.")
        properties["listeners"] = ",".join(f"{name}://{host_port(at)}" for name, at in bound.items())
        properties["advertised.listeners"] = ",".join(f"{name}://{host_port(at)}" for name, at in advertised.items())
        properties["listener.security.protocol.map"] = ",".join(f"{name}:{how}" for name, how in security.items())
        return properties

    def _configure(self) -> None:
        settings = {**self._properties, "log.dirs": str(self.folder / "data")}
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self.folder / "server.properties").write_text(text)
        (self.folder / self.release.logging.file).write_text(self.release.logging.text)

    def _make_storage(self) -> None:
        """Creates the storage of a new node. Nodes of different clusters may have equal storage."""
        data = self.folder / "data"
        kind = (self.release.version, self._properties["node.id"], self.sasl)
        if kind not in _FORMATTED:
            self._format()
            files = [path for path in data.rglob("*") if path.is_file()]
            _FORMATTED[kind] = {str(file.relative_to(data)): file.read_bytes() for file in files}
            return
        for name, content in _FORMATTED[kind].items():
            (data / name).parent.mkdir(parents=True, exist_ok=True)
            (data / name).write_bytes(content)

    def _format(self) -> None:
        file = self.folder / "server.properties"
        command = [*self._java(), "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(file)]
        if self.sasl:
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):  # Properties may enable the second one.
                command += ["--add-scram", f"{mechanism}=[name={SASL_USER},password={SASL_PASSWORD}]"]
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
    """Whether a broker responds to Metadata v0, which all versions support."""
    try:
        return bool(ask(address, MetadataRequest(topics=()), 0).brokers)
    except OSError:
        return False
