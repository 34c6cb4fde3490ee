"""The steps whose worst cases are documented."""

from benchmarks.worst_cases import BrokerWithManyGroups, timed


def test_each_step_can_be_timed() -> None:
    """Each step with a documented worst case runs and is timed."""
    house = BrokerWithManyGroups(600, 600)  # More groups than the sidecar describes at a time.
    took = {}
    for step in house.steps():
        took[step.name] = timed(step._replace(rounds=1))
        house.settle()
    assert len(took) > 15
    assert all(milliseconds >= 0 for milliseconds in took.values())
