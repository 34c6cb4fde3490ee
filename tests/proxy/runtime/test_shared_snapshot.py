"""Tests snapshots and scrapes in slices, which concurrent callers share."""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import pytest
import trio
from prometheus_client import CollectorRegistry
from trio.testing import MockClock, wait_all_tasks_blocked

from group_sidecar.coordinator.model.views import GroupView
from group_sidecar.metrics.collector import ScrapeSources
from group_sidecar.metrics.fact_counters import FactCounters
from group_sidecar.metrics.group_snapshot import GroupSnapshot
from group_sidecar.metrics.metric_family import Detail
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.runtime.scrape import Scraper
from group_sidecar.proxy.runtime.shared_snapshot import FRESH_SECONDS, SharedSnapshot, run_in_slices
from tests.metrics.metrics_world import OPENMETRICS, CoordinatorCopy, commits, group


async def test_sliced_work_yields_after_each_step() -> None:
    """Work in slices yields to other tasks after each step and returns its result."""
    turns: list[str] = []

    def steps() -> Generator[None, None, str]:
        for number in range(3):
            turns.append(f"step {number}")
            yield
        return "done"

    async def beside() -> None:
        for _ in range(3):
            turns.append("turn")
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(beside)
        assert await run_in_slices(steps()) == "done"
    assert turns.count("turn") == 3
    assert turns.index("step 2") > turns.index("turn")


class Counted(CoordinatorCopy):
    """A copy that counts how often its group was read."""

    looks = 0

    def existing(self, group_id: str, now: float) -> GroupView | None:
        self.looks += 1
        return super().existing(group_id, now)


def surveyor(copy: CoordinatorCopy, max_members: Callable[[GroupView], int | None] = lambda _: 3) -> SharedSnapshot:
    return SharedSnapshot(lambda: [copy], lambda: 1000.0 + trio.current_time(), max_members)


async def gathered(ask: Callable[[], Any], times: int) -> list[Any]:
    """Returns the results of `times` concurrent callers."""
    got: list[Any] = []

    async def one() -> None:
        got.append(await ask())

    async with trio.open_nursery() as nursery:
        for _ in range(times):
            nursery.start_soon(one)
    return got


async def test_concurrent_callers_share_snapshot(autojump_clock: MockClock) -> None:
    """Concurrent callers share one snapshot, for which each group is read once."""
    copy = Counted(groups=(group("g", members=1),))
    surveys: list[GroupSnapshot] = await gathered(surveyor(copy).group_snapshot, 10)
    assert copy.looks == 1
    assert {id(group_snapshot) for group_snapshot in surveys} == {id(surveys[0])}
    (figures,) = surveys[0].groups
    assert (figures.view.group_id, figures.limit, surveys[0].at) == ("g", 3, 1000.0 + trio.current_time())


async def test_fresh_snapshot_is_reused(autojump_clock: MockClock) -> None:
    """A snapshot is reused while it is fresh and taken again afterwards."""
    copy = Counted(groups=(group("g"),))
    shared_surveyor = surveyor(copy)
    first = await shared_surveyor.group_snapshot()
    await trio.sleep(FRESH_SECONDS / 2)
    shared_surveyor.forget()
    assert await shared_surveyor.group_snapshot() is first
    await trio.sleep(FRESH_SECONDS)
    assert await shared_surveyor.group_snapshot() is not first
    assert copy.looks == 2


async def test_stale_snapshot_is_released(autojump_clock: MockClock) -> None:
    """A stale snapshot is released."""
    shared_surveyor = surveyor(CoordinatorCopy())
    await shared_surveyor.group_snapshot()
    await trio.sleep(FRESH_SECONDS)
    shared_surveyor.forget()
    assert shared_surveyor._latest is None


async def test_failed_caller_does_not_affect_next(autojump_clock: MockClock) -> None:
    """A caller that fails or is cancelled does not prevent the next snapshot."""
    calls = 0

    def max_members(view: GroupView) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise LookupError("of the first")
        return calls

    shared_surveyor = surveyor(CoordinatorCopy(groups=(group("g"),)), max_members)
    with pytest.raises(LookupError):
        await shared_surveyor.group_snapshot()
    with trio.CancelScope() as scope:
        scope.cancel()
        await shared_surveyor.group_snapshot()
    (group_snapshot,) = await gathered(shared_surveyor.group_snapshot, 1)
    assert len(group_snapshot.groups) == 1


# Scrapes.


def scraper(copy: CoordinatorCopy, **options: Any) -> Scraper:
    sources = ScrapeSources(
        managers=lambda: [copy],
        traffic=TrafficCounters(),
        fact_counters=FactCounters(CollectorRegistry()),
        copies_ready=lambda: True,
        held_bytes=lambda: 0,
        detail=Detail.PARTITION,
        **options,
    )
    return Scraper(sources, lambda: 1000.0 + trio.current_time())


async def test_scrape_has_group_and_process_series() -> None:
    """A scrape in either format contains series of the groups, the sidecar and the process."""
    shared_scraper = scraper(CoordinatorCopy(groups=(group("g", offsets=commits("t", 4)),)))
    for accept, kind, end in (("", "text/plain", b"\n"), (OPENMETRICS, "application/openmetrics-text", b"\n# EOF\n")):
        body, content_type = await shared_scraper.exposition(accept)
        assert content_type.startswith(kind)
        assert body.endswith(end)
        assert body.count(b"# EOF") == (accept == OPENMETRICS)
        for line in (b'group_sidecar_committed_offset{group="g",partition="0",topic="t"} 4.0\n', b"mirror_ready 1.0\n"):
            assert line in body
        assert b"\nprocess_resident_memory_bytes " in body
        assert b"\npython_info{" in body


async def test_concurrent_scrapes_share_results() -> None:
    """Eight concurrent scrapes read each group at most twice. The second read serves all later callers."""
    copy = Counted(groups=(group("g"),))
    shared_scraper = scraper(copy)
    bodies = await gathered(partial(shared_scraper.exposition, ""), 8)
    assert len(bodies) == 8
    assert 1 <= copy.looks <= 2
    assert shared_scraper._latest is None


async def test_concurrent_scrapes_keep_their_format() -> None:
    """Concurrent scrapes with different formats each get their own format."""
    copy = Counted(groups=(group("g"),))
    shared_scraper = scraper(copy)
    kinds: list[str] = []

    async def one(accept: str) -> None:
        kinds.append((await shared_scraper.exposition(accept))[1].partition(";")[0])

    async with trio.open_nursery() as nursery:
        for accept in ("", OPENMETRICS, "", OPENMETRICS):
            nursery.start_soon(one, accept)
        await wait_all_tasks_blocked()
    assert sorted(kinds) == ["application/openmetrics-text"] * 2 + ["text/plain"] * 2


async def test_suppressed_series_are_counted() -> None:
    """The scraper reports how many series the last scrape suppressed."""
    shared_scraper = scraper(
        CoordinatorCopy(groups=tuple(group(f"g{number}", members=1) for number in range(5))), max_series=4
    )
    assert shared_scraper.suppressed == 0
    await shared_scraper.exposition("")
    assert shared_scraper.suppressed == 5 * 3 - 4
