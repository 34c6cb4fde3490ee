"""Runs the soak test: one broker, one sidecar, the workload, the upheavals, and the samples."""

import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.certificates import Authority, Certificate
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect
from tests.kafka.processes import host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.topics import make_topic
from tests.soak.samples import Point, measured
from tests.soak.upheavals import LIMITS, Upheavals
from tests.soak.verdict import FEWEST_SAMPLES, Trend, trend
from tests.soak.workload import PARTITIONS, TOPIC, Workload

_SAMPLE_SECONDS = 3.0
_MOST_SECONDS = {"reload": 20.0, "certificate": 30.0, "broker": 300.0}
"""The maximum time in seconds between two changes of a kind. In a short run the time is shorter, so that each change
still happens a few times."""
_FEWEST_TIMES = {"reload": 8, "certificate": 5, "broker": 2.5}
_KIB, _MIB = 1 << 10, 1 << 20
_SMALL_LIMITS = {"flight_recorder": 256 * _KIB, "remembered_answers": 256 * _KIB}
"""Limits in bytes of tables that keep past data. With these small limits, the tables are full in the first tenth of the
run."""
_SMALL_LOG = {"offsets.topic.segment.bytes": str(_MIB), "log.cleaner.backoff.ms": "1000"}
"""With these properties, the broker compacts its log early. Otherwise the sidecar would read a longer log after each
restart of the broker, and its buffers would grow during the run."""
_FLOORS = {"memory": float(_MIB), "descriptors": 6.0, "threads": 2.0, "bytes": 32.0 * _KIB, "entries": 12.0}
"""The growth of each kind of series that always counts as flat. The number of active clients causes such changes."""
_IN_BYTES = ("bytes", "history", "answers")
_SCRAPED_PAGES = ("/", "/api/v1/groups", "/healthz")


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        points: the samples.
        trends: the trend of each series that must be flat.
        rounds: how many rounds each kind of client has completed.
        expected: how many rounds failed during a restart of the broker.
        changes: how often each change around the sidecar was made.
        failures: everything that must not happen, one line each.
    """

    points: Sequence[Point]
    trends: Sequence[Trend]
    rounds: Mapping[str, int]
    expected: Mapping[str, int]
    changes: Mapping[str, int]
    failures: Sequence[str]

    @property
    def passed(self) -> bool:
        """Whether every series is flat and nothing failed."""
        return not self.failures and all(each.is_flat for each in self.trends)


def soak(
    folder: Path,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    note: Callable[[Point], None] = lambda _: None,
) -> Result:
    """Runs a sidecar under load for `seconds`. Returns the samples and the verdict.

    Args:
        folder: an empty folder for the broker, the sidecar and their logs.
        seconds: how long to run after the start of the broker and the sidecar.
        environment: further environment variables of the sidecar.
        note: is called with each sample.
    """
    with _Stage(folder, environment or {}).running() as stage:
        workload, upheavals = stage.workload, stage.upheavals
        pace = min(_SAMPLE_SECONDS, seconds / (2 * FEWEST_SAMPLES))
        with workload, _changing(stage, seconds) as faults:
            points = []
            for point in _sampled(stage, seconds, pace):
                points.append(point)
                note(point)
    failures = [*faults, *workload.failures]
    failures += [f"{kind}: no round was completed" for kind in workload.kinds if not workload.rounds[kind]]
    return Result(points, trends_of(points), workload.rounds, workload.expected, upheavals.done, failures)


def trends_of(points: Sequence[Point]) -> list[Trend]:
    """Returns the trend of memory, descriptors, threads and each table."""
    found = [
        trend("memory (anonymous)", [point.anonymous for point in points], floor=_FLOORS["memory"]),
        trend("memory (RSS)", [point.rss for point in points], floor=_FLOORS["memory"]),
        trend("descriptors", [point.descriptors for point in points], floor=_FLOORS["descriptors"]),
        trend("threads", [point.threads for point in points], floor=_FLOORS["threads"]),
    ]
    for name in sorted({name for point in points for name in point.tables}):
        floor = _FLOORS["bytes" if name.endswith(_IN_BYTES) else "entries"]
        found.append(trend(name, [point.tables.get(name, 0.0) for point in points], floor=floor))
    return found


class _Stage:
    """The broker, the sidecar and everything around them."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.authority = Authority(folder / "authority")
        properties = {"group.min.session.timeout.ms": "500", **_SMALL_LOG}
        self.broker = KafkaBroker(folder / "broker", properties=properties, proxies=("EDGE",))
        self.edge = self.broker.proxies["EDGE"]
        self._journal = folder / "journal"
        issued = self.authority.issue(self.edge[0])
        self.certificate = Certificate(folder / "listener.pem", folder / "listener.key")
        issued.certificate_file.replace(self.certificate.certificate_file)
        issued.key_file.replace(self.certificate.key_file)
        self.tls = ssl.create_default_context(cafile=str(self.authority.file))
        self.sidecar = SidecarProcess(
            folder / "sidecar",
            listen=self.broker.sidecar,
            upstream=self.broker.client,
            settings=self.settings(LIMITS[0]),
        )
        self.sidecar.process.environment |= environment

    def settings(self, limit: int) -> dict[str, Any]:
        """Returns the settings of the sidecar with a limit of members."""
        plain = {"name": "CLIENT", "listen": host_port(self.broker.sidecar), "upstream": host_port(self.broker.client)}
        edge = {"name": "EDGE", "listen": host_port(self.edge), "upstream": host_port(self.broker.upstreams["EDGE"])}
        return {
            "listeners": [plain, {**edge, "tls": self.certificate.settings}],
            "answers": {"exclusive": True, "verify": 0.05},
            "limits": _SMALL_LIMITS,
            "offsets_log": {"load_buffer_size": 128 * _KIB},
            "policies": {"group_max_size": {"limit": limit}},
            "metrics": {"detail": "partition"},
            "journal": {"folder": str(self._journal), "interval_seconds": 1, "total_bytes": 16 * _MIB},
        }

    @contextmanager
    def running(self) -> Iterator["_Stage"]:
        """Starts the broker and the sidecar, and prepares the workload."""
        with self.broker:
            self.broker.wait_for_coordinator()
            make_topic(self.broker, TOPIC, PARTITIONS)
            with self.sidecar:
                self.sidecar.wait_for_log()
                self.upheavals = Upheavals(self.broker, self.sidecar, self.settings, self.certificate, self.authority)
                client = Client(self.broker.sidecar, Dialect.of(self.broker.sidecar))
                self.workload = Workload(client, (self.edge, self.tls), self.upheavals)
                yield self


def _sampled(stage: _Stage, seconds: float, pace: float) -> Iterator[Point]:
    """Yields a sample every `pace` seconds. Scrapes the metrics for each sample, and requests other admin pages too."""
    began = time.monotonic()
    number = 0
    while (due := began + number * pace) < began + seconds:
        time.sleep(max(0.0, due - time.monotonic()))
        pid = stage.sidecar.process.running.pid
        metrics = scraped(stage.sidecar)
        yield measured(pid, time.monotonic() - began, metrics, stage.workload.latencies.take())
        stage.sidecar.get(_SCRAPED_PAGES[number % len(_SCRAPED_PAGES)])
        number += 1


def scraped(sidecar: SidecarProcess) -> list[Sample]:
    """Returns all samples of the sidecar's metrics."""
    status, text = sidecar.get("/metrics")
    assert status == 200, f"/metrics answered {status}"
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


@contextmanager
def _changing(stage: _Stage, seconds: float) -> Iterator[list[str]]:
    """Makes changes around the sidecar in a thread while the block runs. Yields the list of failures."""
    stop, faults, upheavals = threading.Event(), list[str](), stage.upheavals
    changes = {
        "reload": upheavals.reload,
        "certificate": lambda: upheavals.change_certificate(stage.edge, stage.tls),
        "broker": upheavals.restart_broker,
    }
    pauses = {kind: min(_MOST_SECONDS[kind], seconds / _FEWEST_TIMES[kind]) for kind in changes}

    def change() -> None:
        due = {kind: time.monotonic() + pause for kind, pause in pauses.items()}
        while True:
            kind = min(due, key=lambda each: due[each])
            if stop.wait(max(0.0, due[kind] - time.monotonic())):
                return
            try:
                changes[kind]()
            except Exception as error:  # noqa: BLE001 - a failed change fails the run, whatever failed
                faults.append(f"{kind}: {type(error).__name__}: {error}")
            due[kind] = time.monotonic() + pauses[kind]

    thread = threading.Thread(target=change, name="changes")
    thread.start()
    try:
        yield faults
    finally:
        stop.set()
        thread.join()
