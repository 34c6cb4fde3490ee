"""The system's clock beside the one that does not jump: it is followed where time is shown."""

import time

import pytest
import trio
from trio.testing import MockClock

from group_sidecar.coordinator.facts import OffsetsCommitted
from group_sidecar.coordinator.views import CommittedOffset, GroupView, MemberView
from group_sidecar.metrics.survey import survey, walk
from group_sidecar.proxy.wall_clock import NOISE_SECONDS, WallClock
from tests.metrics.world import Copy, result

HOUR = 3600.0


class SystemClock:
    """What time.time() says: trio's clock, set by hand."""

    def __init__(self) -> None:
        self.ahead = 1_000_000.0

    def __call__(self) -> float:
        return trio.current_time() + self.ahead


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> SystemClock:
    system = SystemClock()
    monkeypatch.setattr(time, "time", system)
    return system


async def test_a_clock_that_is_set_is_followed_and_the_other_does_not_jump(
    system: SystemClock, autojump_clock: MockClock
) -> None:
    clock = WallClock()
    await trio.sleep(5)
    system.ahead += HOUR
    before = clock.steady()
    clock.measure()
    assert clock.steady() == before
    assert clock.now() == pytest.approx(before + HOUR)
    system.ahead -= HOUR
    clock.measure()
    assert clock.now() == pytest.approx(before)


async def test_noise_is_not_followed(system: SystemClock, autojump_clock: MockClock) -> None:
    clock = WallClock()
    system.ahead += NOISE_SECONDS / 2
    clock.measure()
    assert clock.drift == 0.0


async def test_facts_carry_the_systems_time(system: SystemClock, autojump_clock: MockClock) -> None:
    clock = WallClock()
    fact = OffsetsCommitted(group_id="g", at=clock.steady(), accepted=1)
    assert clock.stamped(fact) is fact
    system.ahead += HOUR
    clock.measure()
    assert clock.stamped(fact).at == pytest.approx(time.time())


def test_what_stands_is_told_at_the_systems_time() -> None:
    view = GroupView(
        group_id="g",
        last_rebalance_at=10.0,
        members=(MemberView(member_id="m", since=5.0),),
        offsets={("t", 0): CommittedOffset(7, at=8.0)},
    )
    copies = [Copy(groups=(view,), log_ends={("t", 0): (9, 11.0)})]
    [taken] = [each for each in walk(copies, 20.0, lambda _: None, HOUR) if each]
    shown = taken.figures.view
    assert (shown.last_rebalance_at, shown.members[0].since) == (10 + HOUR, 5 + HOUR)
    assert taken.figures.lag_seen_at == 11 + HOUR
    [position] = taken.each_position()
    assert (position.committed_at, position.log_end_at) == (8 + HOUR, 11 + HOUR)
    assert result(survey(copies, 20.0, lambda _: None, HOUR)).at == 20 + HOUR
