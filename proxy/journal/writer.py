"""Writes the journal in a background task.

The task decides when snapshots are taken and when files are written, and writes the same records to the topic and the
folder. `RecordBuilder` makes the records. `metrics.journal_segments` writes files, and `topic_writer` writes to the
topic.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import trio
from prometheus_client.metrics_core import Metric

from group_sidecar.coordinator.model.facts import Fact
from group_sidecar.metrics.array_lines import Line
from group_sidecar.metrics.collector import JournalWriterHealth, ScrapeSources, count_groups, sidecar_families
from group_sidecar.metrics.group_snapshot import newest_log_bounds, walk
from group_sidecar.metrics.journal_segments import JournalSegments
from group_sidecar.metrics.record_builder import RecordBuilder
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.config.sections import Journal
from group_sidecar.proxy.journal.topic_writer import TopicWriter
from group_sidecar.proxy.runtime.logging import log
from group_sidecar.proxy.runtime.shared_snapshot import run_in_slices
from group_sidecar.proxy.runtime.supervision import Supervisor, Task

RECORDS_AT_ONCE = 50
"""The number of records that are made before other tasks run. Making them takes half a millisecond."""
RECORDS_WRITTEN_AT_ONCE = 1_000
"""The number of records that are made before the writer writes to the folder and waits for room in the topic's
queue."""
MAX_KEPT_FACTS = 65_536
"""The maximum number of facts that are kept until `JournalWriter.run` begins."""


class JournalWriter:
    """Turns facts and snapshots into records, and writes them to a folder, to a topic, or to both.

    Attributes:
        segments: the files in the folder, or None without a folder.
        topic: the writer to the topic, or None without a topic.
    """

    def __init__(
        self, sidecar_id: str, settings: Journal, connect: Callable[[], AbstractAsyncContextManager[KafkaClient]]
    ) -> None:
        """Creates the record builder and the configured outlets.

        `connect`: opens a connection to the broker with the sidecar's own credentials.
        """
        self._record_builder = RecordBuilder(sidecar_id, settings.contract_version)
        self._interval_seconds = settings.interval_seconds
        self.segments = (
            _journal_segments(settings.folder, self._record_builder.boot, settings) if settings.folder else None
        )
        self.topic = TopicWriter(sidecar_id, settings.topic, settings, connect) if settings.topic else None
        self._failing = False
        self._is_running = False
        self._kept_facts: deque[Fact] = deque()

    def outlets(self) -> Mapping[str, JournalWriterHealth]:
        """Returns the configured outlets, which are the folder and the topic, by the name of their setting.

        Each outlet counts records written and dropped.
        """
        named: dict[str, JournalWriterHealth | None] = {"folder": self.segments, "topic": self.topic}
        return {name: outlet for name, outlet in named.items() if outlet}

    def write_fact(self, fact: Fact, now: float) -> None:
        """Queues records of a fact. Never waits. `now`: seconds since the epoch.

        A fact that arrives before `run` begins is kept, and becomes a record when `run` begins. So no record of a
        successor is older than the last record of its predecessor. While MAX_KEPT_FACTS facts are kept, the records of
        further facts go to the queues of the outlets, which count dropped records.
        """
        if self._is_running or len(self._kept_facts) >= MAX_KEPT_FACTS:
            self._queue_records(fact, now)
        else:
            self._kept_facts.append(fact)

    def _queue_records(self, fact: Fact, now: float) -> None:
        for record in self._record_builder.records_of([fact], now):
            self._append(record)

    async def _write_kept_facts(self, now: float) -> None:
        """Queues the records of kept facts in slices, until no fact is kept."""
        kept = self._kept_facts
        while kept:
            for _ in range(min(RECORDS_AT_ONCE, len(kept))):
                self._queue_records(kept.popleft(), now)
            await trio.lowlevel.checkpoint()
        self._is_running = True

    def _append(self, line: Line) -> None:
        if self.segments:
            self.segments.append(line)
        if self.topic:
            self.topic.append(line)

    async def run(
        self, sources: ScrapeSources, epoch: Callable[[], float], supervisor: Supervisor | None = None
    ) -> None:
        """Writes a snapshot and the queued records at every interval, until cancelled.

        When cancelled, writes the remaining records and closes the segment. Records that the topic does not get within
        `topic_writer.CLOSE_SECONDS` are lost.

        Args:
            sources: the state from which snapshots are made.
            epoch: returns seconds since the epoch on the clock of the copies.
            supervisor: restarts the tasks of the folder and of the topic after unexpected exceptions.
        """
        supervisor = supervisor or Supervisor()
        await self._write_kept_facts(epoch() + sources.drift())
        async with trio.open_nursery() as nursery:
            if self.topic:
                write = partial(self.topic.run, lambda: epoch() + sources.drift())
                nursery.start_soon(supervisor.keep_running, Task.JOURNAL_TOPIC, write)
            try:
                await supervisor.keep_running(Task.JOURNAL, partial(self._write_forever, sources, epoch))
            finally:
                with supervisor.guard(Task.JOURNAL):
                    await self._close()

    async def _write_forever(self, sources: ScrapeSources, epoch: Callable[[], float]) -> None:
        while True:
            try:
                await self._write_snapshot(sources, epoch)
            finally:  # Facts are written even if the snapshot fails.
                await self._write()
            await trio.sleep(self._interval_seconds)

    async def _close(self) -> None:
        if self.topic:
            self.topic.close()
        if self.segments:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self.segments.close)

    async def _write_snapshot(self, sources: ScrapeSources, epoch: Callable[[], float]) -> None:
        # The sample contains only figures of the sidecar. Groups have their own records.
        sample = _sidecar_figures(sidecar_families(sources, await run_in_slices(count_groups(sources, epoch()))))
        now, queued, since_others = epoch(), 0, 0
        drift = sources.drift()
        groups = walk(sources.managers(), now, sources.max_members, drift)
        log_ends = newest_log_bounds([manager.log_ends for manager in sources.managers()], drift)
        for line in self._record_builder.snapshot(groups, log_ends, sample, now + drift):
            if line is not None:
                self._append(line)
                queued += line.count
                since_others += line.count
            if line is None or since_others >= RECORDS_AT_ONCE:
                since_others = 0
                await trio.lowlevel.checkpoint()
            if queued >= RECORDS_WRITTEN_AT_ONCE:
                await self._write()
                queued = 0

    async def _write(self) -> None:
        if self.topic:
            await self.topic.wait_for_room()
        if self.segments:
            await self._write_segments(self.segments)

    async def _write_segments(self, segments: JournalSegments) -> None:
        await trio.to_thread.run_sync(segments.write)
        failure = segments.failure
        if failure and not self._failing:
            log.warning("the journal cannot be written", cause=str(failure))
        elif self._failing and not failure:
            log.info("the journal is written again")
        self._failing = failure is not None


def _journal_segments(folder: Path, boot: str, settings: Journal) -> JournalSegments:
    return JournalSegments(
        folder,
        boot,
        segment_bytes=settings.segment_bytes,
        segment_seconds=settings.segment_seconds,
        total_bytes=settings.total_bytes,
        retention_seconds=settings.retention_seconds,
    )


def _sidecar_figures(families: Iterable[Metric]) -> dict[str, float]:
    """Returns counters summed over their labels, and gauges without labels."""
    sample: dict[str, float] = {}
    for family in families:
        for each in family.samples:
            if family.type == "counter" and each.name.endswith("_total"):
                sample[each.name] = sample.get(each.name, 0.0) + each.value
            elif family.type == "gauge" and not each.labels:
                sample[each.name] = float(each.value)
    return sample
