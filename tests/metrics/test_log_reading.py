"""What the reading of the log tells of itself, and what a scrape then says."""

import pytest

from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.metrics.log_reading import LogReading
from tests.metrics.world import World


def manager_with(*owned: int, loading: int = 0) -> GroupMetadataManager:
    """A copy that has caught up with these partitions, and loads so many others."""
    manager = GroupMetadataManager(exclusive=False)
    manager.log.count_partitions(50, 1.0)
    for number in (*owned, *range(40, 40 + loading)):
        manager.log.begin_load(number, 1, 0, 1.0)
    for number in owned:
        manager.log.caught_up(number, 1.0, 1.0)
    return manager


def test_without_a_log_all_stands_at_zero() -> None:
    world = World()
    assert world.series("offsets_log_partitions") == {("loading",): 0, ("owned",): 0, ("failed",): 0}
    assert world.value("offsets_log_load_duration_seconds_count") == 0
    for name in ("offsets_log_lag", "offsets_log_records_total", "offsets_expired_total"):
        assert world.value(name) == 0


def test_the_logs_of_several_brokers_count_together() -> None:
    world = World()
    world.logs += [LogReading(manager_with(0, 1, loading=1).log), LogReading(manager_with(2).log)]
    for number, log in enumerate(world.logs, 1):
        log.records = 10 * number
        log.lags |= {0: number, 1: 1}
        log.loads.observe(0.2 * number)
        log.skip({20: number, -1: 1})
    assert world.series("offsets_log_partitions") == {("loading",): 1, ("owned",): 3, ("failed",): 0}
    assert world.value("offsets_log_records_total") == 30
    assert world.value("offsets_log_lag") == 2
    assert world.value("offsets_log_load_duration_seconds_count") == 2
    assert world.value("offsets_log_load_duration_seconds_sum") == pytest.approx(0.6)
    assert world.series("offsets_log_records_skipped_total") == {("20",): 3, ("none",): 2}


def test_made_up_key_types_add_one_row() -> None:
    log = LogReading(manager_with().log)
    log.skip(dict.fromkeys(range(100, 30_000), 1))
    assert log.skipped == {"other": 29_900}
