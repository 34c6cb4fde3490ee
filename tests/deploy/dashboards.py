"""Reads the Grafana dashboards in deploy/grafana: their panels, and the queries of panels and variables."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"
FILES = sorted(FOLDER.glob("*.json"))

Dashboard = dict[str, Any]


class Asked(NamedTuple):
    """A query of a panel: its place for test ids, and its expression, which may contain Grafana's variables."""

    place: str
    expression: str


class Choice(NamedTuple):
    """A query of a variable: its place for test ids, and the selector and label whose values it lists."""

    place: str
    selector: str
    label: str


def load(file: Path) -> Dashboard:
    """Reads a dashboard from a file."""
    content: Dashboard = json.loads(file.read_text())
    return content


def panels(dashboard: Dashboard) -> list[Dashboard]:
    """A dashboard's panels, without the row headings."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries() -> Iterator[Asked]:
    """Yields all queries of all panels of all dashboards."""
    for file in FILES:
        for panel in panels(load(file)):
            for target in panel["targets"]:
                yield Asked(f"{file.stem}: {panel['title']} {target['refId']}", target["expr"])


def choices() -> Iterator[Choice]:
    """Yields the queries of all query variables of all dashboards."""
    for file in FILES:
        for variable in load(file)["templating"]["list"]:
            if variable["type"] == "query":
                found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
                assert found, f"{file.stem}: not a label_values query: {variable['query']}"
                yield Choice(f"{file.stem}: ${variable['name']}", found[1], found[2])
