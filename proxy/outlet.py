"""The task that feeds the journal.

Owns: when what stands is told again, and when the disk is written to. Must not know: what records say, and files.
"""

from collections.abc import Callable, Iterable

import trio
from prometheus_client.metrics_core import Metric

from group_sidecar.coordinator.facts import Fact
from group_sidecar.metrics.chronicle import Chronicle
from group_sidecar.metrics.collector import Sources, tallied, totals
from group_sidecar.metrics.journal import Journal as JournalFiles
from group_sidecar.metrics.survey import each_newest, walk
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.sections import Journal
from group_sidecar.proxy.surveying import in_slices

RECORDS_AT_ONCE = 50
"""Records made before other tasks have a turn: half a millisecond."""
RECORDS_WRITTEN_AT_ONCE = 1_000
"""Records made before the disk has its share."""


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
        # Figures of the sidecar alone: groups are told of by records of their own.
        sample = _sample(totals(sources, await in_slices(tallied(sources, epoch()))))
        now, queued = epoch(), 0
        groups = walk(sources.copies(), now, sources.most_members)
        log_ends = each_newest([copy.log_ends for copy in sources.copies()])
        for record in self._chronicle.restate(groups, log_ends, sample, now):
            if record is not None:
                self.journal.append(record)
                queued += 1
            if record is None or queued % RECORDS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if queued >= RECORDS_WRITTEN_AT_ONCE:
                await self._write()
                queued = 0
        await self._write()

    async def _write(self) -> None:
        await trio.to_thread.run_sync(self.journal.write)
        failure = self.journal.failure
        if failure and not self._failing:
            log.warning("the journal cannot be written", cause=str(failure))
        elif self._failing and not failure:
            log.info("the journal is written again")
        self._failing = failure is not None


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
