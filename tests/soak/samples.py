"""Measures a running sidecar: memory, descriptors, threads, the sizes of its tables, and latency."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from prometheus_client.samples import Sample

HEARTBEAT, OFFSET_FETCH = "Heartbeat", "OffsetFetch"
_KIB = 1024
_TABLE_METRICS = {
    "group_sidecar_groups": "groups",
    "group_sidecar_table_entries": "entries",
    "group_sidecar_table_bytes": "bytes",
    "group_sidecar_flight_recorder_bytes": "history",
    "group_sidecar_remembered_bytes": "remembered answers",
    "group_sidecar_held_bytes": "held bytes",
    "group_sidecar_client_connections": "connections",
}
"""The metrics of the tables' sizes, each with the last word of its series' names in a report."""


@dataclass(frozen=True)
class Point:
    """One sample.

    Attributes:
        seconds: the time since the beginning of the run.
        anonymous: the memory of the process in bytes, without pages of files. Pages of programs and libraries do not
            count, because the kernel counts them as private as soon as no other process shares them.
        rss: the resident memory in bytes.
        descriptors: the open descriptors.
        threads: the threads of the process.
        tables: the entries or bytes of each table.
        latency: the durations in seconds of the requests since the last sample, by API.
    """

    seconds: float
    anonymous: int
    rss: int
    descriptors: int
    threads: int
    tables: Mapping[str, float]
    latency: Mapping[str, tuple[float, ...]]


class Latencies:
    """Collects durations from several threads until they are taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, list[float]] = {}

    def add(self, api: str, seconds: float) -> None:
        """Adds the duration of one request."""
        with self._lock:
            self._found.setdefault(api, []).append(seconds)

    def take(self) -> dict[str, tuple[float, ...]]:
        """Returns and forgets the durations."""
        with self._lock:
            found, self._found = self._found, {}
        return {api: tuple(durations) for api, durations in found.items()}


def percentile(durations: Iterable[float], percent: int) -> float:
    """Returns a percentile in seconds, or NaN without at least two durations."""
    found = list(durations)
    return quantiles(found, n=100, method="inclusive")[percent - 1] if len(found) > 1 else float("nan")


def memory(pid: int) -> tuple[int, int]:
    """Returns the anonymous and the resident memory of a process in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {name: int(size.split()[0]) * _KIB for name, _, size in (line.partition(":") for line in lines)}
    return sizes["Anonymous"], sizes["Rss"]


def descriptors(pid: int) -> int:
    """Returns how many descriptors a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def threads(pid: int) -> int:
    """Returns how many threads a process has."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def tables(samples: Iterable[Sample]) -> dict[str, float]:
    """Returns the sizes of the sidecar's tables from the samples of its metrics.

    The numbers of groups in all states are added up. Every other series stays separate.
    """
    found: dict[str, float] = {}
    for sample in samples:
        word = _TABLE_METRICS.get(sample.name)
        if word is None:
            continue
        label = sample.labels.get("table", "")
        name = f"{label} {word}" if label else word
        found[name] = found.get(name, 0.0) + sample.value
    return found


def measured(pid: int, seconds: float, samples: Iterable[Sample], latency: Mapping[str, tuple[float, ...]]) -> Point:
    """Returns a sample of a sidecar.

    Args:
        pid: the id of its process.
        seconds: the time since the beginning of the run.
        samples: the samples of its metrics.
        latency: the durations of requests since the last sample.
    """
    anonymous, rss = memory(pid)
    return Point(seconds, anonymous, rss, descriptors(pid), threads(pid), tables(samples), latency)
