"""Rounds with fake targets: the order of the targets, and the processing of the figures."""

from collections.abc import Callable

import pytest

from benchmarks.rounds import Results, Row, Sample, Spread, measured, rotated
from benchmarks.targets import DIRECT, SIDECAR, Target
from benchmarks.workloads import LoadFailed
from tests.kafka.processes import Address

NAMES = (DIRECT, SIDECAR, "other")
TARGETS = [Target(name, (name, 0), None, "1", "as it comes") for name in NAMES]
"""The address of a target is its name, so that a row knows its target."""


def row(run: Callable[[Address], float] = lambda at: 1.0, work: float = 1.0) -> Row:
    return Row("Heartbeat", "per second", run, work, "10,000")


def test_targets_rotate() -> None:
    """The order of targets rotates, so that each is first and last in turn."""
    orders = [rotated("abc", number) for number in range(6)]
    assert orders == [list(order) for order in ("abc", "cba", "bca", "acb", "cab", "bac")]


def test_ratios_are_per_round() -> None:
    """Ratios compare samples of the same round."""
    one, results = row(), Results([row()], TARGETS)
    results.samples[one.name, DIRECT] = [Sample(100, 0), Sample(10, 0), Sample(1000, 0)]
    results.samples[one.name, SIDECAR] = [Sample(50, 0), Sample(9, 0), Sample(700, 0)]
    assert results.ratios(one, SIDECAR) == Spread(0.5, 0.7, 0.9)
    assert results.ratios(one, DIRECT, SIDECAR) == Spread(10 / 9, 10 / 7, 2)
    assert results.ratios(one, "other") is None
    assert results.middle(one, DIRECT) == 100
    assert results.middle(one, "other") is None


def test_cpu_is_total_over_work() -> None:
    """CPU time per unit of work is the total of all rounds divided by their work."""
    one, results = row(work=0.5), Results([row()], TARGETS)
    results.samples[one.name, SIDECAR] = [Sample(1, 0.0), Sample(1, 0.3)]
    assert results.cpu(one, SIDECAR) == pytest.approx(0.3)
    assert results.cpu(one, DIRECT) is None


def test_warm_up_round_does_not_count() -> None:
    """The first round is a warm-up and does not count."""
    asked: list[str] = []

    def run(address: Address) -> float:
        asked.append(address[0])
        return float(len(asked))

    results = measured([row(run)], TARGETS, seconds=0, at_least=2)
    assert results.rounds == 2
    assert asked == [*rotated(NAMES, 0), *rotated(NAMES, 1), *rotated(NAMES, 2)]
    assert [each.figure for each in results.samples["Heartbeat", DIRECT]] == [6, 9]


def test_failed_proxy_is_not_asked_again() -> None:
    """Another proxy that fails once is reported and not asked again."""
    asked: list[str] = []

    def run(address: Address) -> float:
        asked.append(address[0])
        if address[0] == "other":
            raise LoadFailed("a reply of 20 bytes")
        return 1.0

    results = measured([row(run)], TARGETS, seconds=0, at_least=2)
    assert asked.count("other") == 1
    assert results.failed == {("Heartbeat", "other"): "a reply of 20 bytes"}
    assert ("Heartbeat", "other") not in results.samples


@pytest.mark.parametrize("who", [DIRECT, SIDECAR])
def test_broker_and_sidecar_must_not_fail(who: str) -> None:
    """A failure of the broker or the sidecar ends the measurement."""

    def run(address: Address) -> float:
        if address[0] == who:
            raise ConnectionResetError("gone")
        return 1.0

    with pytest.raises(ConnectionResetError):
        measured([row(run)], TARGETS, seconds=0, at_least=1)
