"""docs/command-line.md names all that there is."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command

from group_sidecar.proxy.commandline.answers import GroupDescription, GroupOffsets, GroupSummary, Listing, Ranking
from group_sidecar.proxy.commandline.answers import Timeline as Answer
from group_sidecar.proxy.commandline.groups import groups_app
from group_sidecar.proxy.commandline.source import CA_FILE, TOKEN, TOKEN_FILE, VARIABLES
from tests.proxy.commandline.admin_ports import AdminPort, group, listening, run

PAGE = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text("utf-8")
COMMANDS = get_command(groups_app).commands  # type: ignore[attr-defined]
UNSAID = {"--help", "--utc", "--state", "--type"}
"""Flags that their help says enough of."""


def test_every_command_and_flag_has_its_place() -> None:
    for name, command in COMMANDS.items():
        assert f"| `{name} GROUP` |" in PAGE or f"| `{name}` |" in PAGE
        flags = {flag for each in command.params for flag in each.opts if flag.startswith("--")}
        assert [flag for flag in flags - UNSAID if flag not in PAGE] == []


def test_every_variable_has_its_place() -> None:
    assert [name for name in (*VARIABLES.values(), TOKEN, TOKEN_FILE, CA_FILE) if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("shape", [GroupSummary, GroupDescription, GroupOffsets, Listing, Answer, Ranking])
def test_every_key_of_the_json_has_its_place(shape: type) -> None:
    assert [field.name for field in fields(shape) if f"`{field.name}`" not in PAGE] == []


def test_every_key_of_why_has_its_place() -> None:
    port = AdminPort([group("g")])
    with listening(port):
        told = json.loads(run("why", "g", "--json", ports=[port]).stdout)
    [row] = [line for line in PAGE.splitlines() if line.startswith("| `why` | `group`")]
    assert row == f"| `why` | {', '.join(f'`{key}`' for key in told)} |"
