"""Tests the conversion between the system's clock and the one that does not jump."""

import time

import pytest
import trio
from trio.testing import MockClock

from group_sidecar.coordinator.model.facts import OffsetsCommitted
from group_sidecar.coordinator.model.views import CommittedOffset, GroupView, MemberView
from group_sidecar.metrics.group_snapshot import group_snapshot, walk
from group_sidecar.proxy.runtime.wall_clock import NOISE_SECONDS, WallClock
from tests.metrics.metrics_world import CoordinatorCopy, result

HOUR = 3600.0


class SystemClock:
    """Stands for time.time(): returns trio's clock plus an offset that a test sets."""

    def __init__(self) -> None:
        self.ahead = 1_000_000.0

    def __call__(self) -> float:
        return trio.current_time() + self.ahead


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> SystemClock:
    system = SystemClock()
    monkeypatch.setattr(time, "time", system)
    return system


async def test_clock_step_leaves_steady_clock_alone(system: SystemClock, autojump_clock: MockClock) -> None:
    """The wall clock follows a step of the system clock, and the steady clock does not."""
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


async def test_clock_ignores_noise(system: SystemClock, autojump_clock: MockClock) -> None:
    """A difference below the noise limit does not change the drift."""
    clock = WallClock()
    system.ahead += NOISE_SECONDS / 2
    clock.measure()
    assert clock.drift == 0.0


async def test_facts_get_wall_clock_time(system: SystemClock, autojump_clock: MockClock) -> None:
    """A fact is reported with the system clock's time after a clock step."""
    clock = WallClock()
    fact = OffsetsCommitted(group_id="g", at=clock.steady(), accepted=1)
    assert clock.with_wall_time(fact) is fact
    system.ahead += HOUR
    clock.measure()
    assert clock.with_wall_time(fact).at == pytest.approx(time.time())


def test_snapshot_uses_wall_clock_time() -> None:
    """All times in a snapshot are shifted to the system clock."""
    view = GroupView(
        group_id="g",
        last_rebalance_at=10.0,
        members=(MemberView(member_id="m", since=5.0),),
        offsets={("t", 0): CommittedOffset(7, at=8.0)},
    )
    copies = [CoordinatorCopy(groups=(view,), log_ends={("t", 0): (9, 11.0)})]
    [taken] = [each for each in walk(copies, 20.0, lambda _: None, HOUR) if each]
    shown = taken.figures.view
    assert (shown.last_rebalance_at, shown.members[0].since) == (10 + HOUR, 5 + HOUR)
    assert taken.figures.lag_seen_at == 11 + HOUR
    [position] = taken.each_position()
    assert (position.committed_at, position.log_end_at) == (8 + HOUR, 11 + HOUR)
    assert result(group_snapshot(copies, 20.0, lambda _: None, HOUR)).at == 20 + HOUR
