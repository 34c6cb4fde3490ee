"""Answers scrapes in slices, so that clients' frames are handled between them.

`Scraper` decides which part of a scrape runs in the thread of the data path, and shares a scrape between callers.

Python code runs in the thread of the data path, in slices. Another thread would not finish earlier. Because of the
GIL, another thread would also delay the data path after each system call. The delay is up to Python's thread switch
interval (0.5 ms in a sidecar). Only the body (up to 20 MB) is joined in another thread, because joining runs no Python
code.
"""

from collections.abc import Callable
from typing import NamedTuple

import trio

from group_sidecar.metrics.collector import ScrapeResult, ScrapeSources, process_registry, scrape
from group_sidecar.metrics.exposition import Format, choose_format, encode_family
from group_sidecar.proxy.runtime.shared_snapshot import run_in_slices


class _Body(NamedTuple):
    """An exposition. `begun_at`: when its scrape began, on trio's clock."""

    body: bytes
    content_type: str
    begun_at: float


class Scraper:
    """Answers scrapes, one after the other.

    Args:
        sources: the parts of the sidecar that the metrics are read from.
        epoch: returns seconds since the epoch.

    Attributes:
        suppressed: how many series the last scrape had to leave out.
    """

    def __init__(self, sources: ScrapeSources, epoch: Callable[[], float]) -> None:
        self._sources = sources
        self._epoch = epoch
        self._process = process_registry()
        self._lock = trio.Lock()
        self._latest: _Body | None = None
        self.suppressed = 0

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """Returns all metrics in the format that an Accept header requests, and the content type.

        Callers that arrive during a scrape share the next scrape, if they request the same format.
        """
        chosen, asked_at = choose_format(accept), trio.current_time()
        async with self._lock:
            latest = self._latest
            if latest is None or latest.begun_at < asked_at or latest.content_type != chosen.content_type:
                latest = await self._scrape(chosen)
            self._latest = latest if self._lock.statistics().tasks_waiting else None
        return latest.body, latest.content_type

    async def _scrape(self, chosen: Format) -> _Body:
        begun_at = trio.current_time()
        scraped = await run_in_slices(scrape(self._sources, chosen, self._epoch()))
        self.suppressed = scraped.suppressed
        body = await trio.to_thread.run_sync(self._join_lines, chosen, scraped)
        return _Body(body, chosen.content_type, begun_at)

    def _join_lines(self, chosen: Format, scraped: ScrapeResult) -> bytes:
        # The worker thread reads these metrics too, because counting the open descriptors takes milliseconds.
        process = [encode_family(family, openmetrics=chosen.openmetrics) for family in self._process.collect()]
        return b"".join((*scraped.lines, *process, chosen.end))
