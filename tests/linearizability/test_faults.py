"""Tests on real brokers and sidecars that histories stay right under each kind of fault and that the check can fail."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.go_tools import go
from tests.linearizability import checker, history, schedule
from tests.linearizability.run import Options, run

_SLOW = 900
"""The maximum time of a run in seconds. On an idle machine, the runs take a minute or two."""


@pytest.mark.long
@pytest.mark.timeout(_SLOW)
def test_each_kind_of_fault_once(tmp_path: Path) -> None:
    """Under each kind of fault, offsets stay linearizable and no record is lost, and the check finds a made-up stale
    read in the same history.
    """
    go()
    report = run(Options(tmp_path, seconds=30, once=True))
    assert report.faults == dict.fromkeys(schedule.KINDS, 1)
    assert report.problems(direct=False) == []
    operations = list(history.read(tmp_path.glob(f"*{history.OPERATIONS_SUFFIX}")))
    kinds = {"commit", "delete", "read", "stable_read", "stage", "end_commit", "end_abort"}
    assert {each.kind for each in operations} == kinds
    clean = {each.key for each in operations} - {each["key"] for each in report.checked.violations}
    stale = history.made_stale(each for each in operations if each.key in clean)
    assert stale is not None
    assert len(checker.check(stale).violations) == 1


@pytest.mark.long
@pytest.mark.timeout(_SLOW)
def test_stale_answers_are_found(tmp_path: Path) -> None:
    """The check finds stale reads if proxies between clients and sidecars return old replies to OffsetFetch."""
    go()
    report = run(Options(tmp_path, seconds=15, kinds=(), stale=True))
    assert report.stale > 0
    assert report.unexplained


def test_schedule() -> None:
    """A seed gives one schedule, with at most one broker down or paused and at most one fault of a node at a time."""
    faults = schedule.schedule(7, 600)
    assert faults == schedule.schedule(7, 600)
    assert faults != schedule.schedule(8, 600)
    assert {each.kind for each in faults} == {*schedule.KINDS}
    brokers = [each for each in faults if each.kind in (schedule.KILL_BROKER, schedule.PAUSE_BROKER)]
    for group in (brokers, *([each for each in faults if each.node == node] for node in schedule.NODES)):
        assert all(one.at + one.seconds < other.at for one, other in pairwise(group))
    assert Counter(each.kind for each in schedule.schedule(7, None)) == Counter(schedule.KINDS)
