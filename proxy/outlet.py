"""The task that feeds the journal.

Owns: when what stands is told again, when the disk is written to, and that the topic gets the same records as the
folder. Must not know: what records say, files, and how a topic is written to.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import trio
from prometheus_client.metrics_core import Metric

from group_sidecar.coordinator.facts import Fact
from group_sidecar.metrics.chronicle import Chronicle
from group_sidecar.metrics.collector import OutletHealth, Sources, tallied, totals
from group_sidecar.metrics.journal import Journal as JournalFiles
from group_sidecar.metrics.records import Record
from group_sidecar.metrics.survey import each_newest, walk
from group_sidecar.proxy.client import KafkaClient
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.sections import Journal
from group_sidecar.proxy.supervision import Supervisor, Task
from group_sidecar.proxy.surveying import in_slices
from group_sidecar.proxy.topic_outlet import TopicOutlet

RECORDS_AT_ONCE = 50
"""Records made before other tasks have a turn: half a millisecond."""
RECORDS_WRITTEN_AT_ONCE = 1_000
"""Records made before the disk, and the topic, have their share."""


class Outlet:
    """Facts and restatements, on their way to disk, to a topic, or to both.

    Attributes:
        journal: the folder; None where there is none.
        topic: the topic, likewise.
    """

    def __init__(
        self, sidecar_id: str, settings: Journal, connect: Callable[[], AbstractAsyncContextManager[KafkaClient]]
    ) -> None:
        """`connect`: a connection to the broker, with the sidecar's own credentials."""
        self._chronicle = Chronicle(sidecar_id)
        self._interval_seconds = settings.interval_seconds
        self.journal = _files(settings.folder, self._chronicle.boot, settings) if settings.folder else None
        self.topic = TopicOutlet(sidecar_id, settings.topic, settings, connect) if settings.topic else None
        self._failing = False

    def outlets(self) -> Mapping[str, OutletHealth]:
        """What there is, by the name of its setting; each says how many records it wrote and dropped."""
        named: dict[str, OutletHealth | None] = {"folder": self.journal, "topic": self.topic}
        return {name: outlet for name, outlet in named.items() if outlet}

    def tell(self, fact: Fact, now: float) -> None:
        """Queues what has just happened. Never waits. `now`: seconds since the epoch."""
        for record in self._chronicle.tell([fact], now):
            self._append(record)

    def _append(self, record: Record) -> None:
        if self.journal:
            self.journal.append(record)
        if self.topic:
            self.topic.append(record)

    async def run(self, sources: Sources, epoch: Callable[[], float], supervisor: Supervisor | None = None) -> None:
        """Restates what stands, and writes, at every interval. When cancelled, writes what is left and seals it; what
        is left for the topic has seconds for that.

        Args:
            sources: what stands.
            epoch: seconds since the epoch, on the clock of the copies.
            supervisor: keeps both parts running.
        """
        supervisor = supervisor or Supervisor()
        async with trio.open_nursery() as nursery:
            if self.topic:
                write = partial(self.topic.run, lambda: epoch() + sources.drift())
                nursery.start_soon(supervisor.keep, Task.JOURNAL_TOPIC, write)
            try:
                await supervisor.keep(Task.JOURNAL, partial(self._write_forever, sources, epoch))
            finally:
                with supervisor.guard(Task.JOURNAL):
                    await self._close()

    async def _write_forever(self, sources: Sources, epoch: Callable[[], float]) -> None:
        while True:
            try:
                await self._restate(sources, epoch)
            finally:  # Facts are written even where the snapshot fails.
                await self._write()
            await trio.sleep(self._interval_seconds)

    async def _close(self) -> None:
        if self.topic:
            self.topic.close()
        if self.journal:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self.journal.close)

    async def _restate(self, sources: Sources, epoch: Callable[[], float]) -> None:
        # Figures of the sidecar alone: groups are told of by records of their own.
        sample = _sample(totals(sources, await in_slices(tallied(sources, epoch()))))
        now, queued = epoch(), 0
        drift = sources.drift()
        groups = walk(sources.copies(), now, sources.most_members, drift)
        log_ends = each_newest([copy.log_ends for copy in sources.copies()], drift)
        for record in self._chronicle.restate(groups, log_ends, sample, now + drift):
            if record is not None:
                self._append(record)
                queued += 1
            if record is None or queued % RECORDS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if queued >= RECORDS_WRITTEN_AT_ONCE:
                await self._write()
                queued = 0

    async def _write(self) -> None:
        if self.topic:
            await self.topic.digest()
        if self.journal:
            await self._write_files(self.journal)

    async def _write_files(self, journal: JournalFiles) -> None:
        await trio.to_thread.run_sync(journal.write)
        failure = journal.failure
        if failure and not self._failing:
            log.warning("the journal cannot be written", cause=str(failure))
        elif self._failing and not failure:
            log.info("the journal is written again")
        self._failing = failure is not None


def _files(folder: Path, boot: str, settings: Journal) -> JournalFiles:
    return JournalFiles(
        folder,
        boot,
        segment_bytes=settings.segment_bytes,
        segment_seconds=settings.segment_seconds,
        total_bytes=settings.total_bytes,
        retention_seconds=settings.retention_seconds,
    )


def _sample(families: Iterable[Metric]) -> dict[str, float]:
    """Counters summed over their labels, and gauges that have none."""
    sample: dict[str, float] = {}
    for family in families:
        for each in family.samples:
            if family.type == "counter" and each.name.endswith("_total"):
                sample[each.name] = sample.get(each.name, 0.0) + each.value
            elif family.type == "gauge" and not each.labels:
                sample[each.name] = float(each.value)
    return sample
