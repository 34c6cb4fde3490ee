"""The task that feeds the journal.

Owns: when what stands is told again, and when the disk is written to. Must not know: what records say, and files.
"""

from collections.abc import Callable
from dataclasses import replace

import trio
from prometheus_client.registry import Collector

from group_sidecar.coordinator.facts import Fact
from group_sidecar.metrics.chronicle import Chronicle
from group_sidecar.metrics.collector import SidecarCollector, Sources, merge
from group_sidecar.metrics.families import Detail
from group_sidecar.metrics.journal import Journal as JournalFiles
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.sections import Journal

RECORDS_AT_ONCE = 1_000
"""Records made before other tasks have a turn, and the disk its share."""


class Outlet:
    """Facts and restatements, on their way to disk.

    Attributes:
        journal: where they go; it says how many were written and dropped.
    """

    def __init__(self, sidecar_id: str, settings: Journal) -> None:
        self._chronicle = Chronicle(sidecar_id)
        self._interval_seconds = settings.interval_seconds
        self.journal = JournalFiles(
            settings.folder,
            self._chronicle.boot,
            segment_bytes=settings.segment_bytes,
            segment_seconds=settings.segment_seconds,
            total_bytes=settings.total_bytes,
        )
        self._failing = False

    def tell(self, fact: Fact, now: float) -> None:
        """Queues what has just happened. `now`: seconds since the epoch."""
        for record in self._chronicle.tell([fact], now):
            self.journal.append(record)

    async def run(self, sources: Sources, epoch: Callable[[], float]) -> None:
        """Restates what stands, and writes, at every interval. When cancelled, writes what is left and seals it.

        Args:
            sources: what stands.
            epoch: seconds since the epoch.
        """
        try:
            while True:
                await self._restate(sources, epoch)
                await trio.sleep(self._interval_seconds)
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self.journal.close)

    async def _restate(self, sources: Sources, epoch: Callable[[], float]) -> None:
        snapshot = merge(sources.snapshots())
        # Figures of the sidecar alone: groups are told of by records of their own.
        figures = SidecarCollector(replace(sources, snapshots=lambda: [snapshot], detail=Detail.NONE))
        sample = _totals(figures) | _totals(sources.instruments)
        records = self._chronicle.restate(snapshot, sample, sources.most_members, epoch())
        for number, record in enumerate(records, 1):
            self.journal.append(record)
            if number % RECORDS_AT_ONCE == 0:
                await self._write()
        await self._write()

    async def _write(self) -> None:
        await trio.to_thread.run_sync(self.journal.write)
        failure = self.journal.failure
        if failure and not self._failing:
            log.warning("the journal cannot be written", cause=str(failure))
        elif self._failing and not failure:
            log.info("the journal is written again")
        self._failing = failure is not None


def _totals(collector: Collector) -> dict[str, float]:
    """Counters summed over their labels, and gauges that have none."""
    totals: dict[str, float] = {}
    for family in collector.collect():
        for sample in family.samples:
            if family.type == "counter" and sample.name.endswith("_total"):
                totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
            elif family.type == "gauge" and not sample.labels:
                totals[sample.name] = float(sample.value)
    return totals
