"""Makes a failing run smaller, so that its trace is easier to read."""

from collections.abc import Callable

from tests.simulation.run import Outcome, simulate
from tests.simulation.scenario import Scenario

MAX_RUNS = 40
"""The maximum number of runs of one search."""
SHORTEST_SECONDS = 0.5


def minimise(outcome: Outcome, run: Callable[[Scenario], Outcome] = simulate) -> Outcome:
    """Returns a failing run with fewer seconds, members and kinds of faults, or `outcome` if it finds none.

    The smaller run may violate another invariant.
    """
    runs = 0

    def smaller(scenario: Scenario) -> bool:
        nonlocal outcome, runs
        runs += 1
        if runs > MAX_RUNS:
            return False
        tried = run(scenario)
        if tried.violation:
            outcome = tried
        return bool(tried.violation)

    low, high = 0.0, min(outcome.scenario.seconds, outcome.seconds)
    while high - low > SHORTEST_SECONDS:
        middle = (low + high) / 2
        if smaller(outcome.scenario.changed(seconds=middle)):
            high = middle
        else:
            low = middle
    for kind in sorted(outcome.scenario.faults):
        smaller(outcome.scenario.changed(without=(kind,)))
    for members in range(1, outcome.scenario.members):
        if smaller(outcome.scenario.changed(members=members)):
            break
    return outcome


def command(scenario: Scenario, original: Scenario) -> str:
    """Returns the command that runs a scenario again. `original`: the scenario of the seed."""
    parts = [f"python -m tests.simulation --first {scenario.seed} --seeds 1"]
    if scenario.seconds != original.seconds:
        parts.append(f"--seconds {scenario.seconds}")
    if scenario.members != original.members:
        parts.append(f"--members {scenario.members}")
    parts += [f"--without {kind}" for kind in sorted(original.faults - scenario.faults)]
    return " ".join(parts)
