"""Measures what a scrape costs the scraper, and whether forwarded requests wait for it.

    python -m benchmarks.scrape [--quick]

Starts a real broker and creates groups with committed offsets. Then starts a sidecar without a limit on series for each
level of detail. Scrapes the sidecar over HTTP, and sends small requests through it, first alone and then while another
process scrapes continuously. `broker_and_sidecar` starts the processes.
"""

import argparse
import gzip
import http.client
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.broker_and_sidecar import SIDECAR, a_broker
from benchmarks.load_driver import close, connected, latencies
from benchmarks.many_groups import TOPICS, commit_all, commit_request, create_topics
from benchmarks.markdown_tables import table
from benchmarks.section import Section
from benchmarks.workloads import HEARTBEAT
from group_sidecar.metrics.metric_family import Detail
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address
from tests.kafka.sidecar_process import SidecarProcess

RATE = 1_000
"""Small requests per second."""
CONNECTIONS = 4
"""Connections of the small requests, which take turns."""
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
NO_LIMIT = 100_000_000
_CALM_SECONDS = 0.5
_TIMEOUT_SECONDS = 60
_KNOWN_SECONDS = 60
"""Seconds within which the sidecar requests all log ends."""
ABOUT = """\
`python -m benchmarks.scrape` scrapes in OpenMetrics over HTTP from this machine, without a limit on series. The time of
a scrape is from the request to the last byte. The cells have the median and the longest time of {scrapes} scrapes,
plain and as gzip. Each group has committed offsets of the stated number of partitions, and all log ends are known.

The last two columns are latencies of {rate:,} Heartbeats per second over {connections} connections, each sent at its
due time. First there are no scrapes. Then another process scrapes as gzip without a pause. The figures are milliseconds
from the due time of a request to its reply: p50 and p99 as medians of {rounds} rounds of {seconds:.0f} s, and the
longest of all rounds. Broker, sidecar and both clients share the cores, so requests also wait without a scrape."""


class Groups(NamedTuple):
    """The number of groups, the number of partitions with offsets in each, and the levels of detail of the scrapes."""

    number: int
    partitions: int
    details: tuple[Detail, ...]


class Plan(NamedTuple):
    """The amounts that are measured. `scrapes` is the number of timed scrapes of each kind."""

    groups: tuple[Groups, ...]
    scrapes: int
    rounds: int
    seconds: float


FULL = Plan((Groups(2_000, 50, tuple(Detail)), Groups(20_000, 10, (Detail.GROUP,))), scrapes=5, rounds=3, seconds=3.0)
QUICK = Plan((Groups(2_000, 50, (Detail.GROUP, Detail.PARTITION)),), scrapes=3, rounds=1, seconds=3.0)


class Reply(NamedTuple):
    """The reply to a scrape. `body` is as received, possibly compressed."""

    milliseconds: float
    body: bytes


@dataclass
class Waits:
    """The milliseconds of requests by round, each round in ascending order."""

    rounds: list[list[float]] = field(default_factory=list)

    def at(self, share: float) -> float:
        """Returns the time that this share of the requests did not exceed, as the median of the rounds."""
        return median(one[min(len(one) - 1, int(share * len(one)))] for one in self.rounds)

    @property
    def longest(self) -> float:
        """Returns the longest time of all."""
        return max(one[-1] for one in self.rounds)

    def cell(self) -> str:
        """Formats the cell of the table."""
        return f"{self.at(0.5):.2f} {self.at(0.99):.2f} **{self.longest:.2f}**"


def scrape(address: Address, coding: str) -> Reply:
    """Scrapes once. `coding` is gzip or identity."""
    connection = http.client.HTTPConnection(*address, timeout=_TIMEOUT_SECONDS)
    began = time.perf_counter()
    connection.request("GET", "/metrics", headers={"accept": OPENMETRICS, "accept-encoding": coding})
    response = connection.getresponse()
    body = response.read()
    milliseconds = (time.perf_counter() - began) * 1000
    connection.close()
    if response.status != 200:
        raise RuntimeError(f"/metrics answered {response.status}")
    return Reply(milliseconds, body)


def series_in(body: bytes) -> int:
    """Returns the number of series of an exposition. No label value contains a newline."""
    return sum(not line.startswith(b"#") for line in body.splitlines())


def _scrape_forever(address: Address, done: "Synchronized[int]") -> None:
    while True:
        scrape(address, "gzip")
        done.value += 1


@contextmanager
def _scraping(address: Address) -> Iterator[None]:
    """Runs scrapes in a separate process for the length of a with statement."""
    spawning = multiprocessing.get_context("spawn")
    done = spawning.Value("q", 0)
    process = spawning.Process(target=_scrape_forever, args=(address, done), daemon=True)
    process.start()
    try:
        while done.value < 1 and process.is_alive():
            time.sleep(0.01)
        yield
        if not process.is_alive():
            raise RuntimeError("the scrapes ended")
    finally:
        process.terminate()
        process.join()


def _waits(listen: Address, admin: Address, plan: Plan) -> tuple[Waits, Waits]:
    """Measures requests without scrapes and with scrapes."""
    alone, beside = Waits(), Waits()
    connections = connected(listen, CONNECTIONS, HEARTBEAT)
    for number in range(plan.rounds):
        for waits in (alone, beside) if number % 2 else (beside, alone):
            with _scraping(admin) if waits is beside else nullcontext():
                taken = latencies(connections, HEARTBEAT, RATE, plan.seconds)
            waits.rounds.append([each * 1000 for each in taken])
            time.sleep(_CALM_SECONDS)
    close(connections)
    return alone, beside


def _timed(replies: Sequence[Reply]) -> str:
    taken = [reply.milliseconds for reply in replies]
    return f"{median(taken):,.0f} **{max(taken):,.0f}**"


def _row(folder: Path, broker: KafkaBroker, groups: Groups, detail: Detail, plan: Plan) -> list[str]:
    settings = {**SIDECAR, "metrics": {"detail": detail.value, "series": NO_LIMIT}}
    sidecar = SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=settings)
    with sidecar:
        sidecar.wait_for_log()
        if detail is not Detail.NONE:
            _wait_for_log_ends(sidecar.admin)
        alone, beside = _waits(sidecar.listen, sidecar.admin, plan)
        plain, zipped = (
            [scrape(sidecar.admin, coding) for _ in range(plan.scrapes)] for coding in ("identity", "gzip")
        )
    body = plain[-1].body
    assert series_in(gzip.decompress(zipped[-1].body)) == series_in(body)
    name = f"{groups.number:,} groups of {groups.partitions}, {detail}"
    sizes = [f"{len(reply.body) / 1e6:,.1f}" for reply in (plain[-1], zipped[-1])]
    return [name, f"{series_in(body):,}", *sizes, _timed(plain), _timed(zipped), alone.cell(), beside.cell()]


def _wait_for_log_ends(admin: Address) -> None:
    """Waits until all lags of the first group are known. All groups have the same partitions."""
    ends = time.monotonic() + _KNOWN_SECONDS
    known = f'group_sidecar_group_lag_unknown_partitions{{group="{_name(0)}"}} 0.0\n'.encode()
    while known not in scrape(admin, "identity").body:
        if time.monotonic() > ends:
            raise RuntimeError("the log ends did not become known")
        time.sleep(1)


def _name(number: int) -> str:
    return f"scraped-{number:05}"


def _rows(place: Path, groups: Groups, plan: Plan) -> list[list[str]]:
    with a_broker(place) as broker:
        create_topics(broker.direct, TOPICS[:1])
        commit_all(broker.direct, (commit_request(_name(number), groups.partitions) for number in range(groups.number)))
        return [_row(place / detail, broker, groups, detail, plan) for detail in groups.details]


def measure(quick: bool) -> Section:
    """Starts the processes and measures."""
    plan, rows = QUICK if quick else FULL, []
    for groups in plan.groups:
        with tempfile.TemporaryDirectory() as place:
            rows += _rows(Path(place), groups, plan)
    about = ABOUT.format(
        scrapes=plan.scrapes, rate=RATE, connections=CONNECTIONS, rounds=plan.rounds, seconds=plan.seconds
    )
    heads = ["groups and detail", "series", "MB", "MB as gzip", "scrape, ms", "as gzip, ms"]
    heads += ["requests alone, ms (p50, p99, longest)", "beside scrapes, ms"]
    return Section("Scrapes", "\n".join([about, "", *table(heads, rows)]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only the first groups, and one round")
    print(measure(parser.parse_args().quick).text)
