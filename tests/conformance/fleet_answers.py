"""The expected results of the fleet job at one moment, from Kafka's tools and from the sidecars.

The module converts both to one form, so that a test can compare them.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame

from group_sidecar.spark.summaries import SUMMARIES
from tests.conformance.fleet_cluster import sidecar_id
from tests.conformance.fleet_scenario import FleetMoment, FleetScenario

Rows = list[dict[str, Any]]
Cells = dict[str, Any]


def answer(read: Callable[[str], DataFrame], name: str) -> Rows:
    """Returns all rows of a summary."""
    return [row.asDict() for row in SUMMARIES[name].compute(read).collect()]


def offsets(rows: Rows) -> dict[tuple[str, str, int], tuple[int, int, int]]:
    """Returns committed offset, log end and lag by group, topic and partition. Asserts that each occurs once."""
    found = {(row["group"], row["topic"], row["partition"]): row for row in rows}
    assert len(found) == len(rows)
    return {place: (row["committed"], row["log_end"], row["lag"]) for place, row in found.items()}


def groups(rows: Rows) -> dict[str, Cells]:
    """Returns the fields of each group that Kafka's tools report too. Asserts that each group occurs once."""
    found = {row["group"]: row for row in rows}
    assert len(found) == len(rows)
    names = ("sidecar", "assignor", "state", "members", "lag", "partitions", "partitions_without_log_end", "gone")
    return {group: {name: row[name] for name in names} for group, row in found.items()}


def kafkas_groups(moment: FleetMoment) -> dict[str, Cells]:
    """Returns the fields of each group from the output of Kafka's tools, in the form of `groups`."""
    partitions = Counter(group for group, _, _ in moment.kafka.offsets)
    lags = Counter[str]()
    for (group, _, _), (_, _, lag) in moment.kafka.offsets.items():
        lags[group] += lag
    return {
        group: {
            "sidecar": sidecar_id(state.coordinator),
            "assignor": state.assignor,
            "state": state.state,
            "members": len(moment.kafka.members[group]),
            "lag": lags[group],
            "partitions": partitions[group],
            "partitions_without_log_end": 0,
            "gone": False,
        }
        for group, state in moment.kafka.states.items()
    }


def rebalances(rows: Rows) -> dict[tuple[str, str], tuple[int, float]]:
    """Returns the number and total duration of rebalances by group and cause, to the millisecond."""
    return {(row["group"], row["cause"]): (row["rebalances"], round(row["seconds"], 3)) for row in rows}


def sidecars_rebalances(story: FleetScenario) -> dict[tuple[str, str], tuple[int, float]]:
    """Returns the rebalances of the sidecars' timelines at the quiet moment, in the form of `rebalances`."""
    count, seconds = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for group, cell in events_of_kind(story, "rebalance_completed"):
        count[group, cell["cause"]] += 1
        seconds[group, cell["cause"]] += cell["duration_seconds"]
    return {key: (count[key], round(seconds[key], 3)) for key in count}


def events_of_kind(story: FleetScenario, what: str) -> Iterator[tuple[str, Cells]]:
    """Yields the entries of one kind in all timelines of the quiet moment, each with its group."""
    for group, cells in story.timelines.items():
        yield from ((group, cell) for cell in cells if cell["what"] == what)
