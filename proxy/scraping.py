"""Answers scrapes between the frames.

Owns: `Scraper`: which work of a scrape is done in the thread of the data path, and what of it is shared. Must not know:
what a scrape tells, HTTP.

What is done in Python is done here, in slices. Another thread would do it no sooner, and would keep the data path
waiting each time that this asks the system for something, for `SWITCH_SECONDS`. To put 20 MB together is another
matter: that needs no Python.
"""

from collections.abc import Callable
from typing import NamedTuple

import trio

from group_sidecar.metrics.collector import Scraped, Sources, process_registry, scrape
from group_sidecar.metrics.exposition import Format, choose_format, text_of
from group_sidecar.proxy.surveying import in_slices


class _Body(NamedTuple):
    """An exposition; `begun_at`: it tells nothing older, on trio's clock."""

    body: bytes
    content_type: str
    begun_at: float


class Scraper:
    """Answers scrapes, one after the other.

    Args:
        sources: what is told.
        epoch: seconds since the epoch.

    Attributes:
        suppressed: how many series the last one had to leave out.
    """

    def __init__(self, sources: Sources, epoch: Callable[[], float]) -> None:
        self._sources = sources
        self._epoch = epoch
        self._process = process_registry()
        self._turn = trio.Lock()
        self._latest: _Body | None = None
        self.suppressed = 0

    async def exposed(self, accept: str) -> tuple[bytes, str]:
        """All metrics in the format that an Accept header asks for, and its content type.

        Of many who ask at once the first is served, and then all others together.
        """
        chosen, asked_at = choose_format(accept), trio.current_time()
        async with self._turn:
            latest = self._latest
            if latest is None or latest.begun_at < asked_at or latest.content_type != chosen.content_type:
                latest = await self._scrape(chosen)
            self._latest = latest if self._turn.statistics().tasks_waiting else None
        return latest.body, latest.content_type

    async def _scrape(self, chosen: Format) -> _Body:
        begun_at = trio.current_time()
        scraped = await in_slices(scrape(self._sources, chosen, self._epoch()))
        self.suppressed = scraped.suppressed
        body = await trio.to_thread.run_sync(self._put_together, chosen, scraped)
        return _Body(body, chosen.content_type, begun_at)

    def _put_together(self, chosen: Format, scraped: Scraped) -> bytes:
        # To count the descriptors of a process that has many takes milliseconds too.
        process = [text_of(family, openmetrics=chosen.openmetrics) for family in self._process.collect()]
        return b"".join((*scraped.lines, *process, chosen.end))
