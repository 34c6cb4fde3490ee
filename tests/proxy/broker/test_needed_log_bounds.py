"""Tests which log starts and ends are needed, and how they reach the copy."""

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.dataplane.playbook import EPOCH, broker_state


@pytest.mark.parametrize(
    ("mode", "journal", "tells"),
    [("sidecar", {"folder": "journal"}, True), ("sidecar", None, False), ("gateway", {"folder": "journal"}, False)],
)
def test_journal_enables_all_log_ends(mode: str, journal: dict[str, str] | None, tells: bool) -> None:
    """Only a sidecar with a journal, not a gateway, reports the ends of all logs."""
    assert broker_state(mode=mode, journal=journal).log_bounds.reports_all_log_ends is tells


async def test_log_ends_have_request_time(autojump_clock: MockClock) -> None:
    """A log end has the time of its request. It is stale for a caller that needs a log end from a later time."""
    state = broker_state()
    await trio.sleep(7)
    state.log_bounds.learn_log_ends({("t", 0): 42}, 6.0)
    assert state.copy.manager.log_ends == {("t", 0): (42, EPOCH + 6)}
    assert [state.log_bounds.partitions_with_stale_log_end([("t", 0)], since) for since in (5.5, 6.5)] == [
        set(),
        {("t", 0)},
    ]
