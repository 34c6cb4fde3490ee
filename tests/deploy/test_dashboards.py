"""The dashboards' files: made by the code beside them, whole, and asking for what there is."""

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from deploy.grafana.__main__ import main
from tests.deploy.dashboards import FILES, Dashboard, choices, load, panels, queries
from tests.deploy.promql import metric_names
from tests.deploy.test_rules import KNOWN

NAMES = ["fleet", "group", "sidecar"]
OF_THE_PROCESS = {
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_max_fds",
}
"""What the Prometheus client library tells of a process."""
GRAFANAS_OWN = {"__rate_interval", "__interval", "__range"}
COLUMNS = 24

every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def test_files_match_generator(tmp_path: Path) -> None:
    """The dashboard files equal those that the generator writes."""
    main(tmp_path)

    assert [file.name for file in sorted(tmp_path.iterdir())] == [file.name for file in FILES]
    for file in FILES:
        assert (tmp_path / file.name).read_text() == file.read_text(), f"python -m deploy.grafana makes another {file}"


def test_three_distinct_dashboards() -> None:
    """There are three dashboards with different ids and titles."""
    dashboards = [load(file) for file in FILES]

    assert [file.stem for file in FILES] == NAMES
    assert len({one["uid"] for one in dashboards}) == len({one["title"] for one in dashboards}) == len(NAMES)


@every_file
def test_panels_do_not_overlap(file: Path) -> None:
    """Panels have ids of their own, stay within the grid and do not overlap."""
    placed = load(file)["panels"]

    assert len({panel["id"] for panel in placed}) == len(placed)
    assert all(at["x"] >= 0 and at["x"] + at["w"] <= COLUMNS for at in (panel["gridPos"] for panel in placed))
    for one, other in combinations(placed, 2):
        assert not _overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return not (beside or above)


@every_file
def test_panels_have_description_and_unit(file: Path) -> None:
    """Each panel has a title, a description, a unit and queries."""
    for panel in panels(load(file)):
        assert panel["title"], panel
        assert panel["description"].endswith((".", "GROUP.")), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@every_file
def test_datasource_is_selected_variable(file: Path) -> None:
    """Every panel, query and variable uses the selected datasource."""
    dashboard = load(file)
    named = list(_datasources(dashboard))

    assert dashboard["templating"]["list"][0]["name"] == "datasource"
    assert dashboard["templating"]["list"][0]["type"] == "datasource"
    assert len(named) == sum(1 + len(panel["targets"]) for panel in panels(dashboard)) + len(_names(dashboard)) - 1
    assert all(each == {"type": "prometheus", "uid": "${datasource}"} for each in named)


def _datasources(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "datasource":
                yield value
            else:
                yield from _datasources(value)
    elif isinstance(node, list):
        for value in node:
            yield from _datasources(value)


def _names(dashboard: Dashboard) -> list[str]:
    return [variable["name"] for variable in dashboard["templating"]["list"]]


@every_file
def test_variables_are_defined_and_used(file: Path) -> None:
    """Each variable is defined before its use, and each is used."""
    dashboard = load(file)
    known: set[str] = set()
    used: set[str] = {"datasource"}
    for variable in dashboard["templating"]["list"][1:]:
        asked = _variables(variable["query"]["query"])
        assert asked <= known, variable["name"]
        known.add(variable["name"])
        used |= asked
    for panel in panels(dashboard):
        for target in panel["targets"]:
            used |= _variables(target["expr"]) - GRAFANAS_OWN

    assert sorted(used) == sorted(_names(dashboard))


def _variables(expression: str) -> set[str]:
    return set(re.findall(r"\$\{?(\w+)", expression))


def test_queries_use_existing_series() -> None:
    """All queries use series that the sidecar, its process or the rules expose."""
    expressions = [asked.expression for asked in queries()] + [choice.selector for choice in choices()]

    for expression in expressions:
        assert metric_names(expression), expression
        assert metric_names(expression) <= KNOWN | OF_THE_PROCESS, expression
