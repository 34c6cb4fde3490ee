"""Starts a broker with a sidecar in front of it, set up as in production, and measures CPU time and memory of both."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.targets import JAVA_OPTIONS
from tests.kafka.broker import KafkaBroker
from tests.kafka.sidecar_process import SidecarProcess

CONNECTIONS = 10_000
"""The maximum number of connections. There are fewer if the system does not allow enough descriptors."""
OWN_DESCRIPTORS = 600
"""Descriptors that a process needs besides its connections. A broker also has its logs and jars open."""
SETTLED_SECONDS = 0.15
"""The seconds without CPU time after which a process counts as finished with its work."""
SETTLE_SECONDS = 1.0
"""The maximum number of seconds to wait for the end of a process's work. Longer work counts as permanent."""
HOUR = "3600000"
BROKER = {"group.max.size": "1000", "group.max.session.timeout.ms": HOUR, "connections.max.idle.ms": HOUR}
SIDECAR = {
    "policies": {"group_max_size": {"limit": 1000}},
    "answers": {"exclusive": True},
    "limits": {"connections": CONNECTIONS + 100},
}


def max_connections() -> int:
    """Returns how many connections a sidecar can have here. Each connection takes two descriptors of the process.

    Raises the descriptor limit of this process, and so of the processes that it starts, as far as is allowed.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return CONNECTIONS if hard == resource.RLIM_INFINITY else min(CONNECTIONS, (hard - OWN_DESCRIPTORS) // 2)


@contextmanager
def a_broker(folder: Path) -> Iterator[KafkaBroker]:
    """Starts a broker and waits until its group coordinator is available."""
    with KafkaBroker(folder / "broker", properties=BROKER, java_options=JAVA_OPTIONS) as broker:
        broker.wait_for_coordinator()
        yield broker


@contextmanager
def a_sidecar(folder: Path, broker: KafkaBroker) -> Iterator[psutil.Process]:
    """Starts a sidecar and waits until it has read the offsets log. Yields its process."""
    sidecar = SidecarProcess(folder / "sidecar", listen=broker.sidecar, upstream=broker.client, settings=SIDECAR)
    with sidecar:
        sidecar.wait_for_log()
        process = psutil.Process(sidecar.process.running.pid)
        settle(process)
        yield process


def cpu_seconds(process: psutil.Process) -> float:
    """Returns the user and system time so far. The kernel counts it in hundredths of a second."""
    times = process.cpu_times()
    return float(times.user + times.system)


def resident_bytes(process: psutil.Process) -> int:
    """Returns the resident memory in bytes."""
    return int(process.memory_info().rss)


def settle(process: psutil.Process) -> None:
    """Waits until a process has finished its work, judged by its CPU time."""
    ends, before = time.monotonic() + SETTLE_SECONDS, -1.0
    while time.monotonic() < ends and before != (before := cpu_seconds(process)):
        time.sleep(SETTLED_SECONDS)


def share_when_idle(process: psutil.Process, seconds: float) -> float:
    """Returns the share of a core that a process uses without any requests."""
    began, before = time.monotonic(), cpu_seconds(process)
    time.sleep(seconds)
    return (cpu_seconds(process) - before) / (time.monotonic() - began)
