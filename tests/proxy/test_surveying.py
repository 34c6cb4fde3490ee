"""Surveys and scrapes in slices, shared by those who ask at once."""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import pytest
import trio
from prometheus_client import CollectorRegistry
from trio.testing import MockClock, wait_all_tasks_blocked

from group_sidecar.coordinator.views import GroupView
from group_sidecar.metrics.collector import Sources
from group_sidecar.metrics.family import Detail
from group_sidecar.metrics.instruments import Instruments
from group_sidecar.metrics.survey import Survey
from group_sidecar.metrics.traffic import Traffic
from group_sidecar.proxy.scraping import Scraper
from group_sidecar.proxy.surveying import YOUNG_SECONDS, Surveyor, in_slices
from tests.metrics.world import OPENMETRICS, Copy, commits, group


async def test_others_have_a_turn_after_each_step() -> None:
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
        assert await in_slices(steps()) == "done"
    assert turns.count("turn") == 3
    assert turns.index("step 2") > turns.index("turn")


class Counted(Copy):
    """A copy that counts how often its group was looked at."""

    looks = 0

    def existing(self, group_id: str, now: float) -> GroupView | None:
        self.looks += 1
        return super().existing(group_id, now)


def surveyor(copy: Copy, most_members: Callable[[GroupView], int | None] = lambda _: 3) -> Surveyor:
    return Surveyor(lambda: [copy], lambda: 1000.0 + trio.current_time(), most_members)


async def gathered(ask: Callable[[], Any], times: int) -> list[Any]:
    """What so many get who ask at once."""
    got: list[Any] = []

    async def one() -> None:
        got.append(await ask())

    async with trio.open_nursery() as nursery:
        for _ in range(times):
            nursery.start_soon(one)
    return got


async def test_many_who_ask_at_once_share_one_survey(autojump_clock: MockClock) -> None:
    copy = Counted(groups=(group("g", members=1),))
    surveys: list[Survey] = await gathered(surveyor(copy).surveyed, 10)
    assert copy.looks == 1
    assert {id(survey) for survey in surveys} == {id(surveys[0])}
    (figures,) = surveys[0].groups
    assert (figures.view.group_id, figures.limit, surveys[0].at) == ("g", 3, 1000.0 + trio.current_time())


async def test_a_survey_is_used_while_it_is_young(autojump_clock: MockClock) -> None:
    copy = Counted(groups=(group("g"),))
    asked = surveyor(copy)
    first = await asked.surveyed()
    await trio.sleep(YOUNG_SECONDS / 2)
    asked.forget()
    assert await asked.surveyed() is first
    await trio.sleep(YOUNG_SECONDS)
    assert await asked.surveyed() is not first
    assert copy.looks == 2


async def test_an_old_survey_is_let_go(autojump_clock: MockClock) -> None:
    asked = surveyor(Copy())
    await asked.surveyed()
    await trio.sleep(YOUNG_SECONDS)
    asked.forget()
    assert asked._latest is None


async def test_who_gives_up_or_fails_leaves_the_others_theirs(autojump_clock: MockClock) -> None:
    calls = 0

    def most_members(view: GroupView) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise LookupError("of the first")
        return calls

    asked = surveyor(Copy(groups=(group("g"),)), most_members)
    with pytest.raises(LookupError):
        await asked.surveyed()
    with trio.CancelScope() as scope:
        scope.cancel()
        await asked.surveyed()
    (survey,) = await gathered(asked.surveyed, 1)
    assert len(survey.groups) == 1


# Scrapes.


def scraper(copy: Copy, **options: Any) -> Scraper:
    sources = Sources(
        copies=lambda: [copy],
        traffic=Traffic(),
        instruments=Instruments(CollectorRegistry()),
        mirror_ready=lambda: True,
        held_bytes=lambda: 0,
        detail=Detail.PARTITION,
        **options,
    )
    return Scraper(sources, lambda: 1000.0 + trio.current_time())


async def test_a_scrape_has_the_groups_the_sidecar_and_the_process() -> None:
    asked = scraper(Copy(groups=(group("g", offsets=commits("t", 4)),)))
    for accept, kind, end in (("", "text/plain", b"\n"), (OPENMETRICS, "application/openmetrics-text", b"\n# EOF\n")):
        body, content_type = await asked.exposed(accept)
        assert content_type.startswith(kind)
        assert body.endswith(end)
        assert body.count(b"# EOF") == (accept == OPENMETRICS)
        for line in (b'group_sidecar_committed_offset{group="g",partition="0",topic="t"} 4.0\n', b"mirror_ready 1.0\n"):
            assert line in body
        assert b"\nprocess_resident_memory_bytes " in body
        assert b"\npython_info{" in body


async def test_of_many_scrapes_at_once_two_are_made() -> None:
    """The first had begun before the others asked: what it tells may be older than their question."""
    copy = Counted(groups=(group("g"),))
    asked = scraper(copy)
    bodies = await gathered(partial(asked.exposed, ""), 8)
    assert len(bodies) == 8
    assert 1 <= copy.looks <= 2
    assert asked._latest is None


async def test_who_waits_for_another_format_gets_it() -> None:
    copy = Counted(groups=(group("g"),))
    asked = scraper(copy)
    kinds: list[str] = []

    async def one(accept: str) -> None:
        kinds.append((await asked.exposed(accept))[1].partition(";")[0])

    async with trio.open_nursery() as nursery:
        for accept in ("", OPENMETRICS, "", OPENMETRICS):
            nursery.start_soon(one, accept)
        await wait_all_tasks_blocked()
    assert sorted(kinds) == ["application/openmetrics-text"] * 2 + ["text/plain"] * 2


async def test_what_the_last_scrape_left_out_is_known() -> None:
    asked = scraper(Copy(groups=tuple(group(f"g{number}", members=1) for number in range(5))), max_series=4)
    assert asked.suppressed == 0
    await asked.exposed("")
    assert asked.suppressed == 5 * 3 - 4
