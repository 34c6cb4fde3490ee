"""Measures how long a client waits beside clients that flood the broker with questions.

    python -m benchmarks.bystander [--quick]

Starts a real broker and a sidecar that answers questions itself. The floods and the bystander use the same address: the
broker's own, or the sidecar's. Each flood runs in a process of its own and ends with its measurement.
"""

import argparse
import multiprocessing
import selectors
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.broker_and_sidecar import a_broker, a_sidecar
from benchmarks.load_driver import close, connected, latencies
from benchmarks.many_groups import TOPICS, commit_all, commit_request, create_topics
from benchmarks.markdown_tables import table
from benchmarks.mixed import Latencies
from benchmarks.section import Section
from benchmarks.workloads import HEARTBEAT, framed
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.kafka.processes import Address

FLOODING = 120
"""The number of clients that flood."""
PARTITIONS = 100
"""Committed partitions of the group that the floods ask about."""
QUESTION = framed(OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="flooded", topics=None),)), 8)
COMMIT = framed(commit_request("committed", 1), 8)
AT_ONCE = 100
"""Requests that a client sends in one write."""
RATE = 200
"""Requests of the bystander per second."""
CONNECTIONS = 4
"""Connections of the bystander, which take turns."""
CALM_SECONDS = 1.0
READ_BYTES = 1 << 16


class Flood(NamedTuple):
    """The behaviour of the clients that flood. `reads`: whether the clients read the replies."""

    name: str
    request: bytes
    reads: bool


FLOODS = (
    Flood("questions, replies never read", QUESTION, reads=False),
    Flood("questions", QUESTION, reads=True),
    Flood("Heartbeats", HEARTBEAT, reads=True),
    Flood("commits of one partition", COMMIT, reads=True),
)


class Round(NamedTuple):
    """The bystander's latencies in one round, without and with a flood."""

    alone: Latencies
    beside: Latencies


def flood_forever(address: Address, flood: Flood, sent: "multiprocessing.sharedctypes.Synchronized[int]") -> None:
    """Sends requests on all connections as fast as the other side accepts them, and counts the bytes."""
    frames = flood.request * AT_ONCE
    with selectors.EpollSelector() as selector:
        for opened in connected(address, FLOODING, HEARTBEAT):
            opened.setblocking(False)
            selector.register(opened, selectors.EVENT_WRITE | (selectors.EVENT_READ if flood.reads else 0))
        left: dict[int, bytes] = {}
        while True:
            for key, events in selector.select():
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if events & selectors.EVENT_READ:
                    connection.recv(READ_BYTES)
                if events & selectors.EVENT_WRITE:
                    rest = left.get(key.fd) or frames
                    count = connection.send(rest)
                    left[key.fd] = rest[count:]
                    sent.value += count


@contextmanager
def _flooding(address: Address, flood: Flood) -> Iterator[None]:
    """Floods from a separate process for the length of a with statement."""
    spawning = multiprocessing.get_context("spawn")
    sent = spawning.Value("q", 0)
    process = spawning.Process(target=flood_forever, args=(address, flood, sent), daemon=True)
    process.start()
    try:
        while not sent.value and process.is_alive():
            time.sleep(0.01)
        yield
        if not process.is_alive():
            raise RuntimeError("the flood ended")
    finally:
        process.terminate()
        process.join()


def _latencies(address: Address, flood: Flood | None, seconds: float) -> Latencies:
    connections = connected(address, CONNECTIONS, HEARTBEAT)
    with _flooding(address, flood) if flood else nullcontext():
        taken = latencies(connections, HEARTBEAT, RATE, seconds)
    close(connections)
    time.sleep(CALM_SECONDS)
    return Latencies([each * 1000 for each in taken])


def _row(flood: Flood, name: str, rounds: list[Round]) -> list[str]:
    cells = [f"{median(each.alone.at(share) for each in rounds):.1f}" for share in (0.5, 0.99)]
    cells += [f"{median(each.beside.at(share) for each in rounds):.1f}" for share in (0.5, 0.99, 1)]
    return [flood.name, name, *cells]


def measure(quick: bool) -> Section:
    """Measures with its own broker and sidecar."""
    count, seconds = (1, 3.0) if quick else (3, 5.0)
    rows = []
    with tempfile.TemporaryDirectory() as place, a_broker(Path(place)) as broker, a_sidecar(Path(place), broker):
        create_topics(broker.direct, TOPICS[:1])
        commit_all(broker.sidecar, [commit_request("flooded", PARTITIONS)])
        addresses = {"direct": broker.direct, "sidecar": broker.sidecar}
        for flood in FLOODS:
            for address in addresses.values():
                _latencies(address, flood, seconds / 2)  # A first load makes the JVM compile the broker's code.
            results: dict[str, list[Round]] = {name: [] for name in addresses}
            for _ in range(count):
                for name, address in addresses.items():
                    alone, beside = _latencies(address, None, seconds), _latencies(address, flood, seconds)
                    results[name].append(Round(alone, beside))
            rows += [_row(flood, name, rounds) for name, rounds in results.items()]
    lines = table(["flood", "to", "p50 alone, ms", "p99 alone", "p50 beside, ms", "p99 beside", "max beside"], rows)
    text = f"""\
In `python -m benchmarks.bystander`, a client sends {RATE} Heartbeats per second over {CONNECTIONS} connections, each at
its due time. First there is no other load ("alone"). Then {FLOODING} other clients send as many requests as they can,
{AT_ONCE:,} at a time ("beside"). The questions of the first two floods ask for the {PARTITIONS} offsets of a group. The
figures are milliseconds from the due time of a request to its reply, as medians of {count} rounds of {seconds:.0f} s.
The broker, the sidecar and all clients share the cores.

"""
    return Section("A client beside floods of questions", text + "\n".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round")
    print(measure(parser.parse_args().quick).text)
