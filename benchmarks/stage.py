"""A broker and a sidecar before it, set up as in production, for benchmarks of how cost grows.

Owns: their settings, their processes, and what the kernel says of one of these. Must not know: what is measured.
"""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.targets import JAVA_OPTIONS
from tests.kafka.broker import KafkaBroker
from tests.kafka.sidecar import SidecarProcess

CONNECTIONS = 10_000
"""More are not needed; fewer where the system has not as many descriptors."""
OWN_DESCRIPTORS = 600
"""Descriptors of a process beside those of connections: a broker has its logs and jars open too."""
SETTLED_SECONDS = 0.15
"""A process that used no CPU for so long has done what it had to do."""
SETTLE_SECONDS = 1.0
"""What it still does after so long, it does all the time."""
HOUR = "3600000"
BROKER = {"group.max.size": "1000", "group.max.session.timeout.ms": HOUR, "connections.max.idle.ms": HOUR}
SIDECAR = {
    "policies": {"group_max_size": {"limit": 1000}},
    "answers": {"exclusive": True},
    "limits": {"connections": CONNECTIONS + 100},
}


def most_connections() -> int:
    """How many connections a sidecar can have here: each takes two of the descriptors that a process may have.

    Raises the limit of this process, and so of those that it starts, as far as is allowed.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return CONNECTIONS if hard == resource.RLIM_INFINITY else min(CONNECTIONS, (hard - OWN_DESCRIPTORS) // 2)


@contextmanager
def a_broker(folder: Path) -> Iterator[KafkaBroker]:
    """A broker whose group coordinator is there."""
    with KafkaBroker(folder / "broker", properties=BROKER, java_options=JAVA_OPTIONS) as broker:
        broker.wait_for_coordinator()
        yield broker


@contextmanager
def a_sidecar(folder: Path, broker: KafkaBroker) -> Iterator[psutil.Process]:
    """A sidecar that has read the offsets log. Gives its process."""
    sidecar = SidecarProcess(folder / "sidecar", listen=broker.sidecar, upstream=broker.client, settings=SIDECAR)
    with sidecar:
        sidecar.wait_for_log()
        process = psutil.Process(sidecar.process.running.pid)
        settle(process)
        yield process


def cpu_seconds(process: psutil.Process) -> float:
    """User and system time so far; the kernel tells it in hundredths."""
    times = process.cpu_times()
    return float(times.user + times.system)


def resident_bytes(process: psutil.Process) -> int:
    """Resident memory now."""
    return int(process.memory_info().rss)


def settle(process: psutil.Process) -> None:
    """Returns when it has nothing to do any more, as far as its CPU tells."""
    ends, before = time.monotonic() + SETTLE_SECONDS, -1.0
    while time.monotonic() < ends and before != (before := cpu_seconds(process)):
        time.sleep(SETTLED_SECONDS)


def share_when_idle(process: psutil.Process, seconds: float) -> float:
    """Which share of a core it takes while nobody asks for anything."""
    began, before = time.monotonic(), cpu_seconds(process)
    time.sleep(seconds)
    return (cpu_seconds(process) - before) / (time.monotonic() - began)
