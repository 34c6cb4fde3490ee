"""What the dashboards' files hold.

Owns: reading them. Must not know: how they were made.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"
FILES = sorted(FOLDER.glob("*.json"))

Dashboard = dict[str, Any]


class Asked(NamedTuple):
    """A query of a panel: where it stands, and its expression with Grafana's variables in it."""

    place: str
    expression: str


class Choice(NamedTuple):
    """A query of a variable: the values of a label in the series of a selector."""

    place: str
    selector: str
    label: str


def load(file: Path) -> Dashboard:
    """The dashboard in a file."""
    content: Dashboard = json.loads(file.read_text())
    return content


def panels(dashboard: Dashboard) -> list[Dashboard]:
    """Its panels without the headings."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries() -> Iterator[Asked]:
    """All queries of all panels."""
    for file in FILES:
        for panel in panels(load(file)):
            for target in panel["targets"]:
                yield Asked(f"{file.stem}: {panel['title']} {target['refId']}", target["expr"])


def choices() -> Iterator[Choice]:
    """All queries of all variables."""
    for file in FILES:
        for variable in load(file)["templating"]["list"]:
            if variable["type"] == "query":
                found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
                assert found, f"{file.stem}: {variable['query']}"
                yield Choice(f"{file.stem}: ${variable['name']}", found[1], found[2])
