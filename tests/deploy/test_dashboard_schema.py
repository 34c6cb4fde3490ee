"""The dashboards follow Grafana's published schema, as the types of Grafana's Foundation SDK describe it.

The SDK reads what its types know and drops the rest. So a key that Grafana does not have is missing when the SDK writes
the dashboard again, and a value that Grafana does not know stops the SDK from reading.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.deploy.dashboards import FILES

NOT_IN_SCHEMA = {"definition"}
"""Keys that Grafana itself writes when it exports a dashboard, but that its schema lacks: the text of a variable's
query, which the list of variables shows."""


def dropped(written: Any, known: Any, path: str = "") -> Iterator[str]:
    """Yields the paths of keys and values that the SDK dropped or changed."""
    if isinstance(written, dict) and isinstance(known, dict):
        for key, value in written.items():
            if key in known:
                yield from dropped(value, known[key], f"{path}.{key}")
            elif key not in NOT_IN_SCHEMA:
                yield f"{path}.{key}"
    elif isinstance(written, list) and isinstance(known, list) and len(written) == len(known):
        for index, pair in enumerate(zip(written, known, strict=True)):
            yield from dropped(*pair, f"{path}[{index}]")
    elif written != known:
        yield path


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_dashboard_follows_schema(file: Path) -> None:
    """The SDK knows every key and every value of a dashboard, in its panels, queries and variables too."""
    register_default_plugins()
    written = json.loads(file.read_text())
    known = json.loads(JSONEncoder().encode(Dashboard.from_json(written)))
    assert [*dropped(written, known)] == []


@pytest.mark.parametrize(
    ("place", "key"), [(("panels", 1), "reapeat"), (("panels", 1, "options"), "showLegends"), (("time",), "until")]
)
def test_unknown_key_is_found(place: tuple[str | int, ...], key: str) -> None:
    """A key that Grafana would ignore is found: in a panel, in the options of its kind, in the dashboard."""
    register_default_plugins()
    written = json.loads(FILES[0].read_text())
    inner = written
    for step in place:
        inner = inner[step]
    inner[key] = "x"
    known = json.loads(JSONEncoder().encode(Dashboard.from_json(written)))
    assert len([*dropped(written, known)]) == 1
