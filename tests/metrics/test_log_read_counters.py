"""The counters of the log reader, and their exposition."""

import pytest

from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.metrics.log_read_counters import LogReadCounters
from tests.metrics.metrics_world import MetricsWorld


def manager_with(*owned: int, loading: int = 0) -> GroupMetadataManager:
    """Returns a copy that has read the partitions `owned` and is loading `loading` other partitions."""
    manager = GroupMetadataManager(exclusive=False)
    manager.log.count_partitions(50, 1.0)
    for number in (*owned, *range(40, 40 + loading)):
        manager.log.begin_load(number, 1, 0, 1.0)
    for number in owned:
        list(manager.log.end_reached(number, 1.0, 1.0))
    return manager


def test_log_metrics_start_at_zero() -> None:
    """Without a log, the offsets log metrics are all zero."""
    world = MetricsWorld()
    assert world.series("offsets_log_partitions") == {("loading",): 0, ("owned",): 0, ("failed",): 0}
    assert world.value("offsets_log_load_duration_seconds_count") == 0
    for name in ("offsets_log_lag", "offsets_log_records_total", "offsets_expired_total"):
        assert world.value(name) == 0


def test_log_metrics_of_brokers_are_summed() -> None:
    """The offsets log metrics of several brokers are combined."""
    world = MetricsWorld()
    world.logs += [LogReadCounters(manager_with(0, 1, loading=1).log), LogReadCounters(manager_with(2).log)]
    for number, log in enumerate(world.logs, 1):
        log.records = 10 * number
        log.lags |= {0: number, 1: 1}
        log.loads.observe(0.2 * number)
        log.count_skipped({20: number, -1: 1})
    assert world.series("offsets_log_partitions") == {("loading",): 1, ("owned",): 3, ("failed",): 0}
    assert world.value("offsets_log_records_total") == 30
    assert world.value("offsets_log_lag") == 2
    assert world.value("offsets_log_load_duration_seconds_count") == 2
    assert world.value("offsets_log_load_duration_seconds_sum") == pytest.approx(0.6)
    assert world.series("offsets_log_records_skipped_total") == {("20",): 3, ("none",): 2}


def test_unknown_key_types_share_one_row() -> None:
    """Many unknown key types are counted in one row."""
    log = LogReadCounters(manager_with().log)
    log.count_skipped(dict.fromkeys(range(100, 30_000), 1))
    assert log.skipped == {"other": 29_900}
