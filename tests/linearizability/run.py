"""Runs clients and faults for some time, and checks what the clients saw."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kafka.processes import ChildProcess, host_port
from tests.kafka.releases import NEWEST
from tests.linearizability import checker, failovers, history, members, record_check, record_clients
from tests.linearizability.injector import Injector
from tests.linearizability.installation import LOG_PARTITIONS, Installation, installation
from tests.linearizability.report import Report
from tests.linearizability.schedule import KINDS, SIDECAR_KINDS, Fault, schedule
from tests.linearizability.worker import STOP, SUMMARY_SUFFIX, Configuration

WORKERS = 3
"""Processes with clients of offsets. One more process has the producers and their consumer."""
_LEAD_SECONDS = 3.0
"""Seconds until the processes have started."""
_CALM_SECONDS = 5.0
"""Seconds at the end without faults."""
_LATE_SECONDS = 180.0
"""The maximum time in seconds until the clients have ended."""
_EXCUSED_SECONDS = 10.0
"""Seconds after the restart of a sidecar in which a generation may be too large (docs/limits.md)."""


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Attributes:
        folder: an empty folder for everything that the run writes.
        seconds: how long clients work. The run takes longer if a fault takes longer than it should.
        seed: the seed of faults and clients.
        version: the version of Kafka.
        direct: whether there are no sidecars, for comparison.
        stale: whether proxies return old answers, which the check has to find.
        kinds: the faults that may happen.
        deletes: whether clients delete offsets.
        once: whether each kind of fault happens exactly once. The run then takes as long as the faults.
    """

    folder: Path
    seconds: float = 60.0
    seed: int = 1
    version: str = NEWEST
    direct: bool = False
    stale: bool = False
    kinds: Sequence[str] = KINDS
    deletes: bool = True
    once: bool = False

    def faults(self) -> list[Fault]:
        """Returns the faults of the run. Without sidecars, the faults of sidecars are left out of the same schedule."""
        faults = schedule(self.seed, None if self.once else self.seconds - _CALM_SECONDS, self.kinds)
        return [each for each in faults if not (self.direct and each.kind in SIDECAR_KINDS)]


def run(options: Options) -> Report:
    """Runs the clients and the faults. Raises if the run itself fails, for instance because a broker does not start."""
    checker.program()  # Fails at once without Go.
    faults = options.faults()
    with installation(
        options.folder, options.version, options.seed, direct=options.direct, stale=options.stale
    ) as present:
        since = time.monotonic() + _LEAD_SECONDS
        injector = Injector(present, options.seed)
        with ExitStack() as stack:
            workers = [stack.enter_context(each) for each in _workers(options, present, since)]
            injector.run(faults, since)
            time.sleep(max(_CALM_SECONDS, since + options.seconds - time.monotonic()))
            (options.folder / STOP).touch()
            _wait(workers)
        servers = ",".join(map(host_port, present.bootstrap))
        topics = (record_clients.PLAIN, record_clients.TRANSACTIONAL)
        found = {topic: record_clients.read_all(servers, topic) for topic in topics}
        for node in present.nodes:
            if node.sidecar:
                present.count(node.sidecar)
        return _report(options, injector, present, found)


def _workers(options: Options, present: Installation, since: float) -> Iterator[ChildProcess]:
    for role, count in (("offsets", WORKERS), ("records", 1)):
        for number in range(count):
            configuration = Configuration(
                role=role,
                number=number,
                bootstrap=present.bootstrap,
                run=f"run{options.seed}",
                seed=options.seed,
                since=since,
                folder=str(options.folder),
                deletes=options.deletes,
                bounds_ends=not options.version.startswith("3."),
            )
            command = [sys.executable, "-m", "tests.linearizability.worker", configuration.text()]
            yield ChildProcess(command, options.folder / f"{role}-{number}.log")


def _wait(workers: Sequence[ChildProcess]) -> None:
    until = time.monotonic() + _LATE_SECONDS
    for worker in workers:
        status = worker.running.wait(max(1.0, until - time.monotonic()))
        assert status == 0, worker.tail()


def _report(
    options: Options,
    injector: Injector,
    present: Installation,
    found: dict[str, dict[int, list[str]]],
) -> Report:
    operations = list(history.read(sorted(options.folder.glob(f"*{history.OPERATIONS_SUFFIX}"))))
    lines = (path.read_text().splitlines() for path in sorted(options.folder.glob(f"*{members.MEMBERS_SUFFIX}")))
    generations = members.check(members.read(line for file in lines for line in file))
    summaries = [json.loads(path.read_text()) for path in sorted(options.folder.glob(f"*{SUMMARY_SUFFIX}"))]
    excused = [_is_excused(at, injector.restarts) for _, at in generations.large]
    checked = checker.check(operations, options.folder)
    unexplained = _unexplained(options, operations, checked, present.forwarded_reads())
    return Report(
        faults=dict(injector.done),
        recorded=len(operations),
        checked=checked,
        unexplained=unexplained,
        generations=generations.count,
        shared=generations.shared,
        large=[text for (text, _), is_excused in zip(generations.large, excused, strict=True) if not is_excused],
        excused=sum(excused),
        records=_record_problems(summaries, found),
        read=sum(len(values) for partitions in found.values() for values in partitions.values()),
        broken=[text for summary in summaries for text in summary["broken"]],
        progress=_merged(summaries),
        answered=dict(present.counted),
        stale=present.stale_replies(),
    )


def _unexplained(
    options: Options,
    operations: Sequence[history.Operation],
    checked: checker.Checked,
    forwarded: failovers.ForwardedReads | None,
) -> list[dict[str, Any]]:
    """Returns the violations that remain when the reads that Kafka itself answers from an old state are left out."""
    if not checked.violations:
        return []
    clock_offset = time.time_ns() - time.monotonic_ns()
    logs = (options.folder / "brokers").glob("*/broker.log")
    keys = {each["key"] for each in checked.violations}
    broken = [each for each in operations if each.key in keys]
    lags = list(failovers.lags(logs, clock_offset))
    return checker.check(failovers.unexplained(broken, lags, LOG_PARTITIONS, forwarded)).violations


def _is_excused(at: float, restarts: Sequence[float]) -> bool:
    return any(-_EXCUSED_SECONDS < at - each < _EXCUSED_SECONDS for each in restarts)


def _record_problems(summaries: Sequence[dict[str, Any]], found: dict[str, dict[int, list[str]]]) -> list[str]:
    [noted] = [each for each in summaries if "acknowledged" in each]
    produced = record_check.Produced(
        [(partition, value) for partition, value in noted["acknowledged"]],
        {int(number): outcome for number, outcome in noted["outcomes"].items()},
        {(topic, place) for topic, place in noted["consumed"]},
    )
    plain, transactional = record_clients.PLAIN, record_clients.TRANSACTIONAL
    required = produced.required(plain, transactional, record_clients.BATCH, record_clients.PARTITIONS)
    return [
        *record_check.check_plain(produced.acknowledged, found[plain]),
        *record_check.check_transactions(produced.outcomes, found[transactional], record_clients.BATCH),
        *record_check.check_consumed(required, produced.consumed),
    ]


def _merged(summaries: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    merged: dict[str, list[dict[str, Any]]] = {}
    for summary in summaries:
        for kind, clients in summary["progress"].items():
            merged.setdefault(kind, []).extend(clients)
    return merged
