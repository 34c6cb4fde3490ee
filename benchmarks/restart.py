"""Measures how fast a sidecar starts, and how long clients wait for it after it was killed or stopped.

    python -m benchmarks.restart [--quick]

Starts a real broker. Starts a sidecar in front of it several times, and reports when the port accepts and when the
first request is served. Then opens many connections through a sidecar, ends the sidecar, starts it again at once, and
reports when the clients are served again. `ReturningClients` runs the clients.
"""

import argparse
import os
import platform
import random
import resource
import selectors
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from benchmarks.broker_and_sidecar import SIDECAR, a_broker, max_connections
from benchmarks.load_driver import connected
from benchmarks.markdown_tables import table
from benchmarks.section import Section
from benchmarks.workloads import HEARTBEAT
from group_sidecar.proxy.dataplane.connections import FAST_PATH
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address
from tests.kafka.sidecar_process import SidecarProcess

FIRST_BACKOFF, LONGEST_BACKOFF = 0.05, 1.0
"""Seconds between two attempts of a client to connect: Kafka's `reconnect.backoff.ms` and `reconnect.backoff.max.ms`.
The pause doubles after each attempt, and varies by a fifth."""
GIVE_UP_SECONDS = 60.0
POLL_SECONDS = 0.002
"""Seconds between two attempts to connect to a sidecar that starts."""
ABOUT = """\
`python -m benchmarks.restart` starts `group-sidecar run` in front of a real broker. All times except CPU are seconds of
wall-clock time. "Listening" is the time from the start of the process until a client can connect. "Served" is the time
until a client has the reply to its first request. CPU is the process's CPU time until this reply. The cells have the
median and the **longest** of {starts} starts.

{cold}

In the second part, many clients have one connection each to the sidecar. The benchmark ends the sidecar, and starts it
again as soon as the process is gone, as a service manager does. At SIGUSR2, the sidecar starts its successor itself,
and ends when the successor serves clients. All clients reconnect like Java's clients: 50 ms after the connection is
lost, then with doubled pauses up to a second. Each client sends one request when it is connected. The times are from
the signal. A client's pause is from the loss of its connection to the reply on its next one. `limits.drain_seconds` is
5. The figures are medians of {rounds} rounds.

{returns}

{machine}"""


ENDINGS = {"kill -9": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGUSR2": signal.SIGUSR2}


class Plan(NamedTuple):
    """The amounts that are measured."""

    starts: int
    rounds: int
    connections: tuple[int, ...]


FULL = Plan(starts=10, rounds=3, connections=(100, 10_000))
QUICK = Plan(starts=3, rounds=1, connections=(100, 2_000))


class Start(NamedTuple):
    """Seconds from the start of the process until it listened and until it served; its CPU seconds until it served."""

    listening: float
    served: float
    cpu: float


def cold_start(sidecar: SidecarProcess) -> Start:
    """Starts a sidecar, waits until it has served a request, and stops it."""
    began = time.perf_counter()
    sidecar.process.start()
    try:
        client = _first_connection(sidecar.listen, began)
        listening = time.perf_counter() - began
        client.sendall(HEARTBEAT)
        client.settimeout(GIVE_UP_SECONDS)
        if not client.recv(1):
            raise RuntimeError("the sidecar has closed the connection")
        served = time.perf_counter() - began
        times = psutil.Process(sidecar.process.running.pid).cpu_times()
        client.close()
    finally:
        sidecar.stop()
    return Start(listening, served, times.user + times.system)


def _first_connection(address: Address, began: float) -> socket.socket:
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            if time.perf_counter() - began > GIVE_UP_SECONDS:
                raise
            time.sleep(POLL_SECONDS)


class ReturningClients:
    """Clients with one connection each. A client without a connection reconnects, and then sends one request.

    Attributes:
        served_at: the times at which clients got the reply to their first request after the loss.
        pauses: for each client, the seconds between the loss of its connection and this reply.
    """

    def __init__(self, address: Address, connections: Sequence[socket.socket]) -> None:
        self._address = address
        self._selector = selectors.DefaultSelector()
        self._failures: dict[int, int] = {}
        self._due: list[tuple[float, int]] = []
        self._left = len(connections)
        self._sockets = dict(enumerate(connections))
        self._lost_at: dict[int, float] = {}
        self.served_at: list[float] = []
        self.pauses: list[float] = []
        for number, sock in self._sockets.items():
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ, (number, False))

    def run(self) -> None:
        """Runs the clients until each client has got a reply."""
        ends = time.perf_counter() + GIVE_UP_SECONDS
        while self._left:
            now = time.perf_counter()
            if now > ends:
                raise RuntimeError(f"{self._left} clients were not served")
            while self._due and self._due[0][0] <= now:
                self._connect(heappop(self._due)[1])
            for key, _ in self._selector.select(POLL_SECONDS):
                self._ready(*key.data)

    def close(self) -> None:
        """Closes all connections."""
        for sock in self._sockets.values():
            sock.close()
        self._selector.close()

    def _ready(self, number: int, returned: bool) -> None:
        sock = self._sockets[number]
        try:
            if returned and self._selector.get_key(sock).events == selectors.EVENT_WRITE:
                if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise OSError(error, os.strerror(error))
                sock.send(HEARTBEAT)
                self._selector.modify(sock, selectors.EVENT_READ, (number, True))
                return
            if sock.recv(4096):
                self._served(number)
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._lost_at.setdefault(number, time.perf_counter())
        self._selector.unregister(sock)
        sock.close()
        self._retry(number)

    def _served(self, number: int) -> None:
        now = time.perf_counter()
        self.served_at.append(now)
        self.pauses.append(now - self._lost_at[number])
        self._left -= 1
        self._selector.unregister(self._sockets[number])

    def _retry(self, number: int) -> None:
        failures = self._failures.get(number, 0)
        self._failures[number] = failures + 1
        pause = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2**failures) * random.uniform(0.8, 1.2)
        heappush(self._due, (time.perf_counter() + pause, number))

    def _connect(self, number: int) -> None:
        sock = self._sockets[number] = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(self._address)
        self._selector.register(sock, selectors.EVENT_WRITE, (number, True))


class Return(NamedTuple):
    """Seconds from the signal until the process had ended, and until the first, the median and the last client was
    served. `pause`: the longest time between the loss of a client's connection and the reply on its new connection.
    """

    gone: float
    first: float
    middle: float
    last: float
    pause: float


def restarted(sidecar: SidecarProcess, count: int, how: signal.Signals) -> Return:
    """Ends a running sidecar with `count` clients, starts it again, and waits until all clients were served again.

    With SIGUSR2, the sidecar starts its successor by itself.
    """
    clients = ReturningClients(sidecar.listen, connected(sidecar.listen, count, HEARTBEAT))
    try:
        process, gone_at = sidecar.process.running, 0.0

        def restart() -> None:
            nonlocal gone_at
            if how is signal.SIGUSR2:
                sidecar.hand_over()
                gone_at = time.perf_counter()
                return
            process.send_signal(how)
            process.wait()
            gone_at = time.perf_counter()
            sidecar.process.start()

        service_manager = threading.Thread(target=restart)
        began = time.perf_counter()
        service_manager.start()
        clients.run()
        service_manager.join()
        served = sorted(each - began for each in clients.served_at)
        return Return(gone_at - began, served[0], served[len(served) // 2], served[-1], max(clients.pauses))
    finally:
        clients.close()


@contextmanager
def _sidecar(folder: Path, broker: KafkaBroker) -> Iterator[SidecarProcess]:
    sidecar = SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=SIDECAR)
    with sidecar:
        yield sidecar


def _cold(plan: Plan, folder: Path, broker: KafkaBroker) -> str:
    with _sidecar(folder, broker) as sidecar:  # The first start writes the bytecode of the modules.
        sidecar.stop()
        starts = [cold_start(sidecar) for _ in range(plan.starts)]
    cells = [f"{median(taken):.2f} **{max(taken):.2f}**" for taken in zip(*starts, strict=True)]
    return "\n".join(table(["", "listening", "served", "CPU"], [["cold start", *cells]]))


def _returns(plan: Plan, folder: Path, broker: KafkaBroker) -> str:
    rows = []
    for count in sorted({min(each, max_connections()) for each in plan.connections}):
        for name, how in ENDINGS.items():
            taken = []
            for _ in range(plan.rounds):
                with _sidecar(folder, broker) as sidecar:
                    taken.append(restarted(sidecar, count, how))
            middles = [f"{median(values):.2f}" for values in zip(*taken, strict=True)]
            rows.append([name, f"{count:,}", *middles])
    heads = ["ended by", "clients", "process gone", "first served", "half served", "all served", "longest pause"]
    return "\n".join(table(heads, rows))


def _machine(before: Sequence[float]) -> str:
    cores = len(os.sched_getaffinity(0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    load = f"{before[0]:.1f} before and {os.getloadavg()[0]:.1f} after"
    compiled = "with" if FAST_PATH else "without"
    return "\n".join(
        [
            f"This machine has {cores} cores, which broker, sidecar and clients share. So the times include the work",
            "of clients and broker. In production, these usually have cores of their own.",
            f"The load average was {load} the measurement.",
            f"The hard limit of {hard:,} descriptors allows {max_connections():,} connections. The",
            f"sidecar ran {compiled} the compiled data path, under Python {platform.python_version()}.",
        ]
    )


def measure(quick: bool) -> Section:
    """Starts the processes and measures."""
    plan, before = QUICK if quick else FULL, os.getloadavg()
    max_connections()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # An installed sidecar has the bytecode of its modules.
    with tempfile.TemporaryDirectory() as place, a_broker(Path(place)) as broker:
        cold, returns = _cold(plan, Path(place) / "sidecar", broker), _returns(plan, Path(place) / "sidecar", broker)
    about = ABOUT.format(starts=plan.starts, rounds=plan.rounds, cold=cold, returns=returns, machine=_machine(before))
    return Section("Restarts", about)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer starts, fewer clients, one round")
    print(measure(parser.parse_args().quick).text)
