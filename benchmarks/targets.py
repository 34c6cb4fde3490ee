"""Starts the targets of the forwarding benchmark: a broker, the sidecar, and other proxies in front of that broker.

A tool that is not installed is left out and reported. A proxy that the user runs is given as NAME=HOST:PORT. Such a
proxy rewrites addresses itself and connects to the broker's port, which the user can choose.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import yaml

from benchmarks.shotover import VERSION, Unavailable, built
from scripts.bootstrap import haproxy
from tests.kafka.broker import KafkaBroker, answers
from tests.kafka.processes import Address, ChildProcess, ProcessFailed, free_addresses, host_port
from tests.kafka.sidecar_process import SidecarProcess

DIRECT, SIDECAR = "direct", "sidecar"
HAPROXY, SHOTOVER, PLAIN_COPY = "HAPROXY", "SHOTOVER", "PLAIN_COPY"
"""Proxies whose addresses the broker itself advertises. Shotover is one of them, because it cannot rewrite addresses in
Metadata v13."""
JAVA_OPTIONS = ("-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-XX:+UseG1GC", "-Xmx1g")
"""Options for the highest throughput, in place of the tests' options for a quick start of the broker."""
BROKER = {
    "group.max.size": "1",
    "group.max.session.timeout.ms": "3600000",
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "1000",
}
CONNECTIONS = 4_000
"""The maximum number of connections of a proxy, more than the benchmark opens."""
SETTINGS = {
    "policies": {"group_max_size": {"limit": 1}},
    "answers": {"exclusive": True},
    "limits": {"connections": CONNECTIONS},
}
"""The sidecar's settings, as in production: it decodes requests, applies policies, counts, reads the log, and
answers."""


class Target(NamedTuple):
    """A process that requests are sent to.

    Attributes:
        name: the heading of its column.
        address: the bootstrap address for clients.
        process: the process whose CPU time and memory count; None if it is not accessible.
        version, settings: texts for docs/performance.md.
    """

    name: str
    address: Address
    process: psutil.Process | None
    version: str
    settings: str

    def cpu_seconds(self) -> float:
        """Returns the CPU seconds of the target's processes so far, in user and system mode."""
        used = (each.cpu_times() for each in self._processes())
        return sum(each.user + each.system for each in used)

    def resident(self) -> int:
        """Returns the resident memory of the target's processes in bytes."""
        return sum(int(each.memory_info().rss) for each in self._processes())

    def _processes(self) -> list[psutil.Process]:
        if self.process is None or not self.process.is_running():
            return []
        return [self.process, *self.process.children(recursive=True)]


class ExternalProxy(NamedTuple):
    """A proxy that the user runs."""

    name: str
    address: Address


def parse_external_proxy(text: str) -> ExternalProxy:
    """Parses NAME=HOST:PORT, where NAME may contain blanks. Raises ValueError for another form."""
    name, _, address = text.rpartition("=")
    host, _, port = address.rpartition(":")
    if not (name.strip() and host and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ValueError(f"{text!r} is not NAME=HOST:PORT")
    return ExternalProxy(name.strip(), (host, int(port)))


class RunningTargets(NamedTuple):
    """All targets that are running.

    Attributes:
        targets: the direct connection, the sidecar, and the other proxies.
        left_out: for each target that is not available, one line with the reason.
    """

    broker: KafkaBroker
    targets: list[Target]
    left_out: list[str]


@contextmanager
def running_targets(folder: Path, broker_port: int | None, others: Sequence[ExternalProxy]) -> Iterator[RunningTargets]:
    """Runs a broker and all proxies in front of it for the length of a with statement."""
    direct = ("127.0.0.1", broker_port) if broker_port else None
    broker = KafkaBroker(
        folder / "broker",
        properties=BROKER,
        direct=direct,
        proxies=(HAPROXY, SHOTOVER, PLAIN_COPY),
        java_options=JAVA_OPTIONS,
    )
    with ExitStack() as stack:
        stack.enter_context(broker)
        broker.wait_for_coordinator()
        java = " ".join(JAVA_OPTIONS)
        targets = [
            Target(DIRECT, broker.direct, psutil.Process(broker.pid), f"Kafka {broker.release.version}", f"`{java}`"),
            _sidecar(stack, folder / "sidecar", broker),
        ]
        left_out = []
        for name, start in (("HAProxy", _haproxy), ("Shotover", _shotover), ("The plain copy", _plain_copy)):
            try:
                targets.append(start(stack, folder, broker))
            except Unavailable as error:
                left_out.append(str(error))
            except ProcessFailed as error:
                print(error, file=sys.stderr)
                left_out.append(f"{name} could not be started")
        for name, address in others:
            if not answers(address):
                left_out.append(f"{name} does not answer ApiVersions at {host_port(address)}")
                continue
            targets.append(Target(name, address, listening(address[1]), "as named", "as its owner started it"))
        yield RunningTargets(broker, targets, left_out)


def _sidecar(stack: ExitStack, folder: Path, broker: KafkaBroker) -> Target:
    sidecar = SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=SETTINGS)
    stack.enter_context(sidecar)
    sidecar.wait_for_log()
    [started] = [line for line in sidecar.process.log.read_text().splitlines() if '"started"' in line]
    settings = "inspection, policy `group_max_size`, `answers.exclusive`, metrics, the offsets log read, small frames "
    settings += json.loads(started)["small_frames"]
    process = psutil.Process(sidecar.process.running.pid)
    return Target(SIDECAR, broker.sidecar, process, importlib.metadata.version("kafka-group-sidecar"), settings)


def _haproxy(stack: ExitStack, folder: Path, broker: KafkaBroker) -> Target:
    program = haproxy()
    if program is None:
        raise Unavailable("HAProxy is not installed; on Debian: apt-get install haproxy")
    listen, upstream = broker.proxies[HAPROXY], broker.upstreams[HAPROXY]
    file = folder / "haproxy.cfg"
    file.write_text(
        f"global\n  maxconn {CONNECTIONS}\n"
        "defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 1h\n  timeout server 1h\n"
        f"listen kafka\n  bind {host_port(listen)}\n  server broker {host_port(upstream)}\n"
    )
    process = _started(stack, [program, "-db", "-f", str(file)], folder / "haproxy.log", listen)
    output = subprocess.run([program, "-v"], capture_output=True, text=True, check=True).stdout
    return Target("HAProxy (C)", listen, process, output.split()[2], f"TCP mode, {os.cpu_count()} threads")


def _shotover(stack: ExitStack, folder: Path, broker: KafkaBroker) -> Target:
    program = built()
    listen, upstream, [admin] = broker.proxies[SHOTOVER], broker.upstreams[SHOTOVER], free_addresses(1)
    topology, config = folder / "topology.yaml", folder / "shotover.yaml"
    sink = {"destination_port": upstream[1], "connect_timeout_ms": 10_000}
    source = {"name": "kafka", "listen_addr": host_port(listen), "connection_limit": CONNECTIONS}
    topology.write_text(yaml.safe_dump({"sources": [{"Kafka": {**source, "chain": [{"KafkaSinkSingle": sink}]}}]}))
    config.write_text(yaml.safe_dump({"main_log_level": "warn", "observability_interface": host_port(admin)}))
    command = [str(program), "--topology-file", str(topology), "--config-file", str(config)]
    process = _started(stack, command, folder / "shotover.log", listen)
    return Target("Shotover (Rust)", listen, process, VERSION, f"KafkaSinkSingle, metrics, {os.cpu_count()} threads")


def _plain_copy(stack: ExitStack, folder: Path, broker: KafkaBroker) -> Target:
    listen, upstream = broker.proxies[PLAIN_COPY], broker.upstreams[PLAIN_COPY]
    command = [sys.executable, "-m", "benchmarks.plain_copy", host_port(listen), host_port(upstream)]
    process = _started(stack, command, folder / "plain_copy.log", listen)
    return Target("trio streams", listen, process, importlib.metadata.version("trio"), "`benchmarks/plain_copy.py`")


def _started(stack: ExitStack, command: list[str], log: Path, listen: Address) -> psutil.Process:
    child = stack.enter_context(ChildProcess(command, log))
    child.wait_until(lambda: answers(listen))
    return psutil.Process(child.running.pid)


def listening(port: int) -> psutil.Process | None:
    """Returns the process that listens on a port, if it is accessible."""
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr[1] == port and each.pid:
            return psutil.Process(each.pid)
    return None
