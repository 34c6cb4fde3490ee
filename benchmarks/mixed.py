"""Measures whether small requests are delayed by large fetches at the same time.

    python -m benchmarks.mixed [--quick]

The module runs both loads and describes the results. `broker_and_sidecar` starts the processes.
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

from benchmarks.broker_and_sidecar import a_broker, a_sidecar
from benchmarks.charts import Line, Panel, line_chart
from benchmarks.load_driver import close, connected, latencies
from benchmarks.section import Section
from benchmarks.workloads import HEARTBEAT, framed, produce
from group_sidecar.codecs.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address, host_port

TOPIC = "large"
FETCHED = 50 * 1024 * 1024
"""Bytes of one Fetch reply."""
RATE = 1_000
"""Small requests per second."""
CONNECTIONS = 16
"""Connections of the small requests, which take turns."""
_BUFFER_BYTES = 1 << 20
_FETCH_VERSION = 11
_CALM_SECONDS = 0.5


class Latencies(NamedTuple):
    """The milliseconds of requests, in ascending order."""

    milliseconds: list[float]

    def at(self, share: float) -> float:
        """Returns the time that this share of the requests did not exceed."""
        return self.milliseconds[min(len(self.milliseconds) - 1, int(share * len(self.milliseconds)))]


@dataclass
class Route:
    """One route to the broker, with its results by round. `fetched` is in bytes per second."""

    address: Address
    without_fetches: list[Latencies] = field(default_factory=list)
    with_fetches: list[Latencies] = field(default_factory=list)
    fetched: list[float] = field(default_factory=list)

    def ratios(self, share: float) -> list[float]:
        """Returns the time with fetches divided by the time without them, for each round, in ascending order."""
        return sorted(b.at(share) / a.at(share) for a, b in zip(self.without_fetches, self.with_fetches, strict=True))


def _fetch_forever(address: Address, fetched: "Synchronized[int]") -> None:
    """Fetches the same bytes repeatedly over one connection, and counts them."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=FETCHED)
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=FETCHED, topics=(FetchTopic(topic=TOPIC, partitions=(partition,)),)
    )
    frame, buffer = framed(request, _FETCH_VERSION), bytearray(_BUFFER_BYTES)
    with socket.create_connection(address) as connection:
        while True:
            connection.sendall(frame)
            left = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            if left < FETCHED:
                raise ValueError(f"a reply of {left} bytes")
            while left:
                count = connection.recv_into(buffer, min(left, _BUFFER_BYTES))
                left -= count
                fetched.value += count


@contextmanager
def _fetching(way: Route) -> Iterator[None]:
    """Runs fetches in a separate process for the length of a with statement."""
    spawning = multiprocessing.get_context("spawn")
    fetched = spawning.Value("q", 0)
    process = spawning.Process(target=_fetch_forever, args=(way.address, fetched), daemon=True)
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


def _round(way: Route, seconds: float, *, with_fetches: bool) -> None:
    connections = connected(way.address, CONNECTIONS, HEARTBEAT)
    with _fetching(way) if with_fetches else nullcontext():
        taken = latencies(connections, HEARTBEAT, RATE, seconds)
    (way.with_fetches if with_fetches else way.without_fetches).append(Latencies([each * 1000 for each in taken]))
    close(connections)
    time.sleep(_CALM_SECONDS)


def beside_fetches(quick: bool, broker: KafkaBroker) -> Section:
    """Measures both routes to a broker that has a sidecar in front of it."""
    admin = AdminClient({"bootstrap.servers": host_port(broker.direct)})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
    produce(broker.direct, TOPIC, 60_000)
    rounds, seconds = (1, 2.0) if quick else (6, 4.0)
    ways = {"direct": Route(broker.direct), "sidecar": Route(broker.sidecar)}
    for address in (broker.direct, broker.sidecar):
        _round(Route(address), seconds / 2, with_fetches=True)  # A first load makes the JVM compile code.
    for number in range(rounds):
        names = [*ways] if number % 2 else [*ways][::-1]
        for name in names:
            for with_fetches in (False, True) if number % 2 else (True, False):
                _round(ways[name], seconds, with_fetches=with_fetches)
    return _section(ways, rounds, seconds)


def _section(ways: dict[str, Route], rounds: int, seconds: float) -> Section:
    heads = ["", "p50", "p99", "max", "p50, fetching", "p99, fetching", "max, fetching"]
    heads += ["ratio of p99 (min, median, max)", "fetched, MB/s"]
    rows = [heads, ["---"] * len(heads)]
    for name, way in ways.items():
        cells = [
            f"{median(one.at(at) for one in taken):.2f}"
            for taken in (way.without_fetches, way.with_fetches)
            for at in (0.5, 0.99, 1)
        ]
        ratios = way.ratios(0.99)
        ratio = f"{ratios[0]:.2f}, **{median(ratios):.2f}**, {ratios[-1]:.2f}"
        rows.append([name, *cells, ratio, f"{median(way.fetched) / 1e6:,.0f}"])
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
    size = FETCHED >> 20
    text = f"""\
A client sends {RATE:,} Heartbeats per second over {CONNECTIONS} connections, each at its due time. First there is no
other load. Then another connection fetches {size} MB repeatedly. The figures are milliseconds from the due time of a
request to its reply, so they include delays by earlier requests. They are medians of {rounds} rounds of {seconds:.0f}
s. The broker, the sidecar and both clients share the cores, so requests to the broker directly wait too.

{table}

![At least how many milliseconds one request in N takes](charts/mixed.svg)
"""
    return Section("Small requests beside large fetches", text, {"mixed.svg": _chart(ways)})


def _chart(ways: dict[str, Route]) -> str:
    lines = []
    for name, way in ways.items():
        for label, taken in ((name, way.without_fetches), (f"{name}, fetching", way.with_fetches)):
            points = [(float(n), median(one.at(1 - 1 / n) for one in taken)) for n in (2, 10, 100, 1_000)]
            lines.append(Line(label, points))
    return line_chart("N", [Panel("one request in N takes at least this many ms", lines, logarithmic=True)])


def measure(quick: bool) -> Section:
    """Measures with its own broker and sidecar."""
    with tempfile.TemporaryDirectory() as place, a_broker(Path(place)) as broker, a_sidecar(Path(place), broker):
        return beside_fetches(quick, broker)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round")
    print(measure(parser.parse_args().quick).text)
