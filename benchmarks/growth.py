"""Measures how the cost of the sidecar grows with connections, in-flight requests, sizes of frames and groups.

    python -m benchmarks.growth [--quick]

The module defines what is varied and describes the results. `load_driver` sends the load, and `broker_and_sidecar`
starts the processes.
"""

import argparse
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import psutil

from benchmarks import mixed
from benchmarks.broker_and_sidecar import (
    a_broker,
    a_sidecar,
    cpu_seconds,
    max_connections,
    resident_bytes,
    settle,
    share_when_idle,
)
from benchmarks.charts import Line, Panel, line_chart
from benchmarks.load_driver import Driver, close, connected, latencies
from benchmarks.section import Section
from benchmarks.single_member_groups import LoneMember, commit_frames, create_groups, create_topic, heartbeat_frames
from benchmarks.workloads import HEARTBEAT
from tests.kafka.broker import KafkaBroker

AT_ONCE = 16
"""In-flight requests while another quantity is varied, each on its own connection if there are enough connections."""
COMMITS_AT_ONCE = 64
"""In-flight commits. The broker collects commits for some milliseconds before it writes them."""
FRAMES_AT_ONCE = 5
"""In-flight requests of a client by default (`max.in.flight.requests.per.connection`)."""
GROUPS_AT_LEAST = 1_000
"""The minimum number of groups for memory measurements. With fewer groups, other memory of the process would
dominate."""
MB = 1_000_000


class Plan(NamedTuple):
    """The amounts that are measured. `seconds`: the duration of a load. `group_seconds`: the duration of a load with
    many groups.

    The sidecar sweeps all groups every 3 s. A sweep costs more with more groups, so a load with many groups should last
    at least 3 s.
    """

    rounds: int
    seconds: float
    group_seconds: float
    idle_seconds: float
    wait_seconds: float
    connections: tuple[int, ...]
    in_flight: tuple[int, ...]
    frames: tuple[int, ...]
    groups: tuple[int, ...]


FULL = Plan(
    rounds=3,
    seconds=1.0,
    group_seconds=3.0,
    idle_seconds=2,
    wait_seconds=3,
    connections=(1, 10, 100, 1_000, 10_000),
    in_flight=(1, 4, 16, 64),
    frames=(100, 1_000, 10_000, 100_000, MB, 10 * MB, 50 * MB),
    groups=(10, 1_000, 10_000, 20_000),
)
QUICK = Plan(
    rounds=1,
    seconds=0.5,
    group_seconds=0.5,
    idle_seconds=0.5,
    wait_seconds=1,
    connections=(1, 100, 1_000),
    in_flight=(1, 8, 64),
    frames=(100, 10_000, MB, 50 * MB),
    groups=(10, 1_000),
)


@dataclass
class Figures:
    """The cost of one size, by round. `cpu` is the sidecar's CPU seconds per request."""

    direct: list[float] = field(default_factory=list)
    sidecar: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> str:
        """Formats the rate through the sidecar divided by the direct rate of the same round."""
        ratios = sorted(through / direct for through, direct in zip(self.sidecar, self.direct, strict=True))
        return f"{ratios[0]:.2f}, **{median(ratios):.2f}**, {ratios[-1]:.2f}"

    def row(self, scale: float = 1, digits: int = 0) -> list[str]:
        """Returns the cells: both rates times `scale`, their ratio, and CPU microseconds per request."""
        cpu = sorted(each * 1e6 for each in self.cpu)
        return [
            f"{median(self.direct) * scale:,.{digits}f}",
            f"{median(self.sidecar) * scale:,.{digits}f}",
            self.ratio,
            f"{cpu[0]:,.1f}, **{median(cpu):,.1f}**, {cpu[-1]:,.1f}",
        ]


def measured(plan: Plan, process: psutil.Process, idle: float, direct: Driver, sidecar: Driver) -> Figures:
    """Sends the load directly and through the sidecar in turn. The side that begins alternates too.

    Work that the sidecar still does for a load after its end counts for the load. Permanent work of the sidecar does
    not count.

    Args:
        plan: the durations and the number of rounds.
        process: the sidecar's process.
        idle: the share of a core that the sidecar uses without any load.
        direct: sends the load directly to the broker.
        sidecar: sends the load to the sidecar.
    """
    figures = Figures()

    def through() -> None:
        before, began = cpu_seconds(process), perf_counter()
        load = sidecar.run(plan.seconds)
        settle(process)
        used = cpu_seconds(process) - before - idle * (perf_counter() - began)
        figures.sidecar.append(load.rate)
        figures.cpu.append(used / load.replies)

    def beside() -> None:
        figures.direct.append(direct.run(plan.seconds).rate)
        settle(process)  # The sidecar reads the direct commits from the log.

    for number in range(plan.rounds):
        for turn in (beside, through) if number % 2 else (through, beside):
            turn()
    return figures


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


RATES = ("direct", "sidecar", "ratio (min, median, max)", "CPU (min, median, max)")


def by_connections(plan: Plan, folder: Path, broker: KafkaBroker) -> Section:
    """Measures heartbeats over increasing numbers of connections, each time with a new sidecar."""
    rows, cost, memory = [], [], []
    for count in sorted({min(count, max_connections()) for count in plan.connections}):
        with a_sidecar(folder, broker) as process:
            close(connected(broker.sidecar, AT_ONCE, HEARTBEAT))  # The first requests cost more and must not count.
            settle(process)
            empty = resident_bytes(process)
            held = connected(broker.sidecar, count, HEARTBEAT)
            settle(process)
            idle, share = resident_bytes(process), share_when_idle(process, plan.idle_seconds)
            beside = connected(broker.direct, count, HEARTBEAT)
            drivers = [Driver(each, [HEARTBEAT], min(count, AT_ONCE)) for each in (beside, held)]
            figures = measured(plan, process, share, *drivers)
            loaded = resident_bytes(process)
            close([*held, *beside])
        each = f"{(idle - empty) / count / 1024:.1f}" if count >= 100 else ""
        rows.append([f"{count:,}", *figures.row(), f"{share:.1%}", each, f"{idle / MB:.0f}", f"{loaded / MB:.0f}"])
        cost.append((count, median(figures.cpu) * 1e6))
        memory.append((count, loaded / MB))
    heads = ["connections", *RATES, "CPU when idle", "kB per idle connection", "MB idle", "MB after load"]
    text = f"""\
The clients send heartbeats of an unknown member. The broker refuses them at once, so most of their cost is the way to
the broker and back. {AT_ONCE} requests are in flight, or one per connection if there are fewer connections. The
requests use all connections in turn. Rates are requests per second. CPU is the sidecar's microseconds per request,
without the CPU time that the sidecar uses when idle. Memory is resident memory. Each connection needs two descriptors.
If a process may have fewer than {2 * 10_000:,} descriptors, the last row has fewer connections.

{_table(heads, rows)}

![CPU and memory by connections](charts/growth-connections.svg)
"""
    panels = [
        Panel("CPU, \N{MICRO SIGN}s per Heartbeat", [Line("sidecar", cost)]),
        Panel("resident MB", [Line("sidecar", memory)]),
    ]
    return Section("Connections", text, {"growth-connections.svg": line_chart("connections", panels)})


def by_in_flight(plan: Plan, process: psutil.Process, broker: KafkaBroker) -> Section:
    """Measures increasing numbers of in-flight requests on one connection."""
    rows, cost, share = [], [], share_when_idle(process, plan.idle_seconds)
    through, beside = (connected(address, 1, HEARTBEAT) for address in (broker.sidecar, broker.direct))
    rates: dict[str, list[tuple[float, float]]] = {"direct": [], "sidecar": []}
    for count in plan.in_flight:
        figures = measured(plan, process, share, *(Driver(each, [HEARTBEAT], count) for each in (beside, through)))
        rows.append([str(count), *figures.row()])
        cost.append((float(count), median(figures.cpu) * 1e6))
        rates["direct"].append((count, median(figures.direct)))
        rates["sidecar"].append((count, median(figures.sidecar)))
    close([*through, *beside])
    text = f"""\
The clients send the same heartbeats over one connection. Each row has more requests in flight. A broker handles one
request of a connection at a time.

{_table(["in flight", *RATES], rows)}

![CPU and rate by requests in flight](charts/growth-pipelining.svg)
"""
    panels = [
        Panel("CPU, \N{MICRO SIGN}s per Heartbeat", [Line("sidecar", cost)]),
        Panel("Heartbeats a second", [Line(name, points) for name, points in rates.items()]),
    ]
    return Section("Requests in flight", text, {"growth-pipelining.svg": line_chart("in flight", panels)})


def produce_frame(size: int) -> bytes:
    """Returns a Produce request (v7, acks=1) of `size` bytes. The topic does not exist, so nothing is stored."""
    around = struct.pack(">hhih5s", 0, 7, 1, 5, b"bench") + struct.pack(">hhi", -1, 1, 30_000)
    around += struct.pack(">ih7sii", 1, 7, b"nowhere", 1, 0)
    records = size - 4 - len(around) - 4
    return struct.pack(">i", size - 4) + around + struct.pack(">i", records) + bytes(records)


def by_size(plan: Plan, process: psutil.Process, broker: KafkaBroker) -> Section:
    """Measures frames of increasing length."""
    rows, cost, share = [], [], share_when_idle(process, plan.idle_seconds)
    rates: dict[str, list[tuple[float, float]]] = {"direct": [], "sidecar": []}
    for size in plan.frames:
        frame = produce_frame(size)
        ends = [connected(address, 1, frame) for address in (broker.direct, broker.sidecar)]
        figures = measured(plan, process, share, *(Driver(each, [frame], FRAMES_AT_ONCE) for each in ends))
        for each in ends:
            close(each)
        per_gb = median(figures.cpu) / size * 1e9
        rows.append([_bytes(size), *figures.row(size / MB, digits=1), f"{per_gb:,.2f}"])
        cost.append((float(size), per_gb))
        rates["direct"].append((size, median(figures.direct) * size / MB))
        rates["sidecar"].append((size, median(figures.sidecar) * size / MB))
    text = f"""\
The client sends Produce requests (acks=1) of increasing size over one connection, {FRAMES_AT_ONCE} in flight. Their
topic does not exist, so the broker reads each request to its end and stores nothing. Rates are MB per second. CPU is
the sidecar's microseconds per request. The last column has the sidecar's CPU seconds per GB.

{_table(["bytes", *RATES, "CPU s per GB"], rows)}

![CPU and rate by the size of frames](charts/growth-frames.svg)
"""
    panels = [
        Panel("CPU s per GB", [Line("sidecar", cost)], logarithmic=True),
        Panel("MB a second", [Line(name, points) for name, points in rates.items()], logarithmic=True),
    ]
    return Section("Size of frames", text, {"growth-frames.svg": line_chart("bytes of a request", panels)})


def _bytes(size: int) -> str:
    return f"{size // MB} MB" if size >= MB else f"{size // 1000} kB" if size >= 1000 else f"{size} B"


class GroupScaling(NamedTuple):
    """The cost with a number of groups.

    Attributes:
        share: the share of a core that is used without any load.
        heartbeats, commits: the results for heartbeats and commits of the groups' members.
        waits: p99 and maximum, in milliseconds, of small unrelated requests: direct, and through the sidecar.
        kilobytes: memory per group.
    """

    groups: int
    share: float
    heartbeats: Figures
    commits: Figures
    waits: tuple[float, ...]
    kilobytes: float

    def row(self) -> list[str]:
        """Returns the cells of a table."""
        cells = [f"{self.groups:,}", *self.heartbeats.row()[2:], *self.commits.row()[2:], f"{self.share:.1%}"]
        few = self.groups < GROUPS_AT_LEAST
        return [*cells, *(f"{each:.1f}" for each in self.waits), "" if few else f"{self.kilobytes:.1f}"]


def by_groups(plan: Plan, process: psutil.Process, broker: KafkaBroker) -> Section:
    """Measures increasing numbers of stable groups, whose members send heartbeats and commits in turn."""
    plan = plan._replace(seconds=plan.group_seconds, idle_seconds=2 * plan.group_seconds, rounds=min(2, plan.rounds))
    create_topic(broker.direct)
    create_groups(broker.sidecar, ["first"])  # Memory of the first group must not count.
    settle(process)
    empty = resident_bytes(process)
    members: list[LoneMember] = []
    crowds: list[GroupScaling] = []
    ends = [connected(address, COMMITS_AT_ONCE, HEARTBEAT) for address in (broker.direct, broker.sidecar)]
    for count in plan.groups:
        names = [f"group-{number:05}" for number in range(len(members), count)]
        members += create_groups(broker.sidecar, names)
        settle(process)
        size, share = (resident_bytes(process) - empty) / count, share_when_idle(process, plan.idle_seconds)
        beats, commits = (
            measured(plan, process, share, *(Driver(each[:at_once], frames, at_once) for each in ends))
            for frames, at_once in ((heartbeat_frames(members), AT_ONCE), (commit_frames(members), COMMITS_AT_ONCE))
        )
        waits = [latencies(each[:AT_ONCE], HEARTBEAT, 1_000, plan.wait_seconds) for each in ends]
        milliseconds = [wait * 1000 for taken in waits for wait in (taken[int(0.99 * len(taken))], taken[-1])]
        crowds.append(GroupScaling(count, share, beats, commits, tuple(milliseconds), size / 1000))
    for each in ends:
        close(each)
    return _groups_section(crowds)


def _groups_section(crowds: Sequence[GroupScaling]) -> Section:
    heads = ["groups", *(f"{name}, {head}" for name in ("Heartbeat", "commit") for head in RATES[2:]), "CPU when idle"]
    heads += [f"{which} ms, {way}" for way in ("direct", "sidecar") for which in ("p99", "longest")]
    text = f"""\
Each group has one member and one committed offset, and was created through the sidecar. The members of all groups take
turns to send heartbeats ({AT_ONCE} in flight), and to commit one partition. {COMMITS_AT_ONCE} commits are in flight,
because the broker writes commits some milliseconds later. Ratios compare requests per second. CPU is the sidecar's
microseconds per request, without the CPU time that the sidecar uses when idle. For a commit, CPU includes reading the
commit in the offsets log. The columns in ms are latencies of 1,000 Heartbeats per second of an unknown member, without
other load. Memory per group is resident memory, minus that of the sidecar without groups.

{_table([*heads, "kB per group"], [crowd.row() for crowd in crowds])}

![CPU and memory by groups](charts/growth-groups.svg)
"""
    beats = [(crowd.groups, median(crowd.heartbeats.cpu) * 1e6) for crowd in crowds]
    commits = [(crowd.groups, median(crowd.commits.cpu) * 1e6) for crowd in crowds]
    sizes = [(crowd.groups, crowd.kilobytes) for crowd in crowds if crowd.groups >= GROUPS_AT_LEAST]
    panels = [
        Panel("CPU, \N{MICRO SIGN}s", [Line("Heartbeat", beats), Line("OffsetCommit", commits)]),
        Panel("kB per group", [Line("sidecar", sizes)]),
    ]
    return Section("Groups", text, {"growth-groups.svg": line_chart("groups", panels)})


def measure(quick: bool) -> Section:
    """Runs all measurements."""
    plan = QUICK if quick else FULL
    max_connections()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with a_broker(folder) as broker:
            parts = [by_connections(plan, folder, broker)]
            with a_sidecar(folder, broker) as process:
                parts += [by_in_flight(plan, process, broker), by_size(plan, process, broker)]
            with a_sidecar(folder, broker) as process:
                parts += [mixed.beside_fetches(quick, broker), by_groups(plan, process, broker)]
    text = f"`python -m benchmarks.growth{' --quick' if quick else ''}`\n"
    text += "".join(f"\n### {part.title}\n\n{part.text}" for part in parts)
    return Section("How cost grows", text, {name: chart for part in parts for name, chart in part.charts.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes, one round")
    print(measure(parser.parse_args().quick).text)
