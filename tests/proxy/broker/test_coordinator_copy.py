"""Tests the copy's clock, its facts, and how it forgets."""

import time
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from group_sidecar.coordinator.model.facts import Fact, MemberGone, MemberJoined, RebalanceStarted
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker import coordinator_copy as room
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.coordinator_copy import OFFSETS_TRIES
from group_sidecar.proxy.runtime.addresses import Address
from tests.coordinator.all_groups import all_groups
from tests.proxy.dataplane.playbook import EPOCH, broker_state, stable_group


def kinds(facts: Sequence[Fact]) -> list[type[Fact]]:
    """Returns the types of the reported facts."""
    return [type(fact) for fact in facts]


@pytest.mark.parametrize("way", ["sweep", "refresh"])
async def test_expired_members_become_facts(way: str) -> None:
    """A member whose session expires is reported as gone at that time, without the start of a rebalance."""
    facts: list[Fact] = []
    state = broker_state(facts.append)
    (line,) = stable_group(state, "m1")
    assert MemberJoined in kinds(facts)
    assert all(EPOCH + line.now == fact.at for fact in facts)
    facts.clear()
    if way == "sweep":
        for _ in state.copy.sweep(line.now + 31):
            pass
    else:
        state.copy.refresh("g", line.now + 31)
    assert MemberGone in kinds(facts)
    assert {fact.at for fact in facts} == {EPOCH + line.now + 31}
    assert RebalanceStarted not in kinds(facts)


def test_copy_contains_seen_groups() -> None:
    """The copy contains the members of a group that it has seen."""
    state = broker_state()
    stable_group(state, "m1", "m2")
    (group,) = all_groups(state.copy.manager, 100.0)
    assert {member.member_id for member in group.members} == {"m1", "m2"}
    assert list(state.copy.manager.committed_partitions()) == []


async def test_default_clock_offset_is_measured(autojump_clock: MockClock) -> None:
    """Without a given clock offset, epoch times match the system clock."""
    await trio.sleep(1000)
    before = time.time()
    measured = BrokerState(Address("broker", 1), broker_state().config, TrafficCounters(), lambda fact: None)
    assert before <= measured.copy.epoch(trio.current_time()) <= time.time()


@pytest.mark.parametrize(("present", "wanted"), [(False, ["a", "b"]), (True, [])])
def test_offsets_of_forgotten_groups_are_wanted(
    present: bool, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets of forgotten groups are requested, within a bound, if the broker hides none of them."""
    monkeypatch.setattr(room, "MAX_OFFSETS_WANTED", 2)
    state = broker_state()
    state.learn_authorizer(present)
    for group in "abc":
        state.copy.forget_group_state(group, 0.0)
    assert list(state.copy.offsets_wanted) == wanted


def test_offsets_attempts_are_counted() -> None:
    """After the last attempt, the offsets of a group are not wanted any more."""
    copy = broker_state(answers={"authorizer": "none"}).copy
    copy.forget_group_state("g", 0.0)
    for _ in range(OFFSETS_TRIES):
        assert "g" in copy.offsets_wanted
        copy.count_offsets_attempt("g")
    assert copy.offsets_wanted == {}
