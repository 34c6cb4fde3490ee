"""Small requests beside large fetches: whether the one waits for the other.

    python -m benchmarks.mixed [--quick]

Owns: both loads at once, and what is told of them. Must not know: how processes are set up (`stage`).
"""

import argparse
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from statistics import median
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.charts import Line, Panel, line_chart
from benchmarks.driving import close, connected, latencies
from benchmarks.section import Section
from benchmarks.stage import a_broker, a_sidecar
from benchmarks.workloads import HEARTBEAT, framed, produce
from group_sidecar.codecs.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address, spelled

TOPIC = "large"
FETCHED = 50 * 1024 * 1024
"""Bytes of one reply."""
RATE = 1_000
"""Small requests a second."""
CONNECTIONS = 16
"""On which they are sent, in turn."""
_ROOM = 1 << 20
_FETCH_VERSION = 11
_CALM_SECONDS = 0.5


class Taken(NamedTuple):
    """Milliseconds that requests took, in ascending order."""

    milliseconds: list[float]

    def at(self, share: float) -> float:
        """What so large a share of them did not exceed."""
        return self.milliseconds[min(len(self.milliseconds) - 1, int(share * len(self.milliseconds)))]


@dataclass
class Way:
    """One way to the broker, round by round; `fetched` in bytes a second."""

    address: Address
    alone: list[Taken] = field(default_factory=list)
    beside: list[Taken] = field(default_factory=list)
    fetched: list[float] = field(default_factory=list)

    def ratios(self, share: float) -> list[float]:
        """How many times as long requests took beside fetches as alone in the same round, ascending."""
        return sorted(b.at(share) / a.at(share) for a, b in zip(self.alone, self.beside, strict=True))


def _fetch_for_ever(address: Address, fetched: "Synchronized[int]") -> None:
    """Fetches the same bytes again and again over one connection, and counts them."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=FETCHED)
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=FETCHED, topics=(FetchTopic(topic=TOPIC, partitions=(partition,)),)
    )
    frame, room = framed(request, _FETCH_VERSION), bytearray(_ROOM)
    with socket.create_connection(address) as connection:
        while True:
            connection.sendall(frame)
            left = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            if left < FETCHED:
                raise ValueError(f"a reply of {left} bytes")
            while left:
                count = connection.recv_into(room, min(left, _ROOM))
                left -= count
                fetched.value += count


@contextmanager
def _fetching(way: Way) -> Iterator[None]:
    """Fetches go on for the length of a with statement, in a process of their own."""
    spawning = multiprocessing.get_context("spawn")
    fetched = spawning.Value("q", 0)
    process = spawning.Process(target=_fetch_for_ever, args=(way.address, fetched), daemon=True)
    process.start()
    try:
        while fetched.value < 2 * FETCHED and process.is_alive():
            time.sleep(0.01)
        began, before = time.perf_counter(), fetched.value
        yield
        if not process.is_alive():
            raise RuntimeError("the fetches ended")
        way.fetched.append((fetched.value - before) / (time.perf_counter() - began))
    finally:
        process.terminate()
        process.join()


def _round(way: Way, seconds: float, *, beside: bool) -> None:
    connections = connected(way.address, CONNECTIONS, HEARTBEAT)
    with _fetching(way) if beside else nullcontext():
        taken = latencies(connections, HEARTBEAT, RATE, seconds)
    (way.beside if beside else way.alone).append(Taken([each * 1000 for each in taken]))
    close(connections)
    time.sleep(_CALM_SECONDS)


def beside_fetches(quick: bool, broker: KafkaBroker) -> Section:
    """Measures both ways to a broker before which a sidecar stands."""
    admin = AdminClient({"bootstrap.servers": spelled(broker.direct)})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
    produce(broker.direct, TOPIC, 60_000)
    rounds, seconds = (1, 2.0) if quick else (6, 4.0)
    ways = {"direct": Way(broker.direct), "sidecar": Way(broker.sidecar)}
    for address in (broker.direct, broker.sidecar):
        _round(Way(address), seconds / 2, beside=True)  # By then the broker's code is compiled.
    for number in range(rounds):
        names = [*ways] if number % 2 else [*ways][::-1]
        for name in names:
            for beside in (False, True) if number % 2 else (True, False):
                _round(ways[name], seconds, beside=beside)
    return _told(ways, rounds, seconds)


def _told(ways: dict[str, Way], rounds: int, seconds: float) -> Section:
    heads = ["", "p50", "p99", "max", "p50, fetching", "p99, fetching", "max, fetching"]
    heads += ["ratio of p99 (min, median, max)", "fetched, MB/s"]
    rows = [heads, ["---"] * len(heads)]
    for name, way in ways.items():
        cells = [
            f"{median(one.at(at) for one in taken):.2f}" for taken in (way.alone, way.beside) for at in (0.5, 0.99, 1)
        ]
        ratios = way.ratios(0.99)
        told = f"{ratios[0]:.2f}, **{median(ratios):.2f}**, {ratios[-1]:.2f}"
        rows.append([name, *cells, told, f"{median(way.fetched) / 1e6:,.0f}"])
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
    size = FETCHED >> 20
    text = f"""\
{RATE:,} Heartbeats a second, each sent when it is due on one of {CONNECTIONS} connections, alone and while another
connection fetches {size} MB after {size} MB. Milliseconds from when a request was due to its reply, so that what waits
behind a late one is late too; medians of {rounds} x {seconds:.0f} s. The cores are shared by the broker, the
sidecar and both clients, which is why requests wait without a sidecar, too.

{table}

![Milliseconds that one request in so many takes](charts/mixed.svg)
"""
    return Section("Small requests beside large fetches", text, {"mixed.svg": _chart(ways)})


def _chart(ways: dict[str, Way]) -> str:
    lines = []
    for name, way in ways.items():
        for told, taken in ((name, way.alone), (f"{name}, fetching", way.beside)):
            points = [(float(n), median(one.at(1 - 1 / n) for one in taken)) for n in (2, 10, 100, 1_000)]
            lines.append(Line(told, points))
    return line_chart("one request in", [Panel("takes so many ms or longer", lines, logarithmic=True)])


def measure(quick: bool) -> Section:
    """This alone, with a broker and a sidecar of its own."""
    with tempfile.TemporaryDirectory() as place, a_broker(Path(place)) as broker, a_sidecar(Path(place), broker):
        return beside_fetches(quick, broker)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round")
    print(measure(parser.parse_args().quick).text)
