"""docs/command-line.md names all commands, flags and exit statuses."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command

from group_sidecar.proxy.commandline.groups import groups_app
from group_sidecar.proxy.commandline.results import GroupDescription, GroupOffsets, GroupSummary, Listing, Ranking
from group_sidecar.proxy.commandline.results import Timeline as Answer
from group_sidecar.proxy.commandline.target import CA_FILE, COMMAND_CONFIG, TARGET_VARIABLES, TOKEN, TOKEN_FILE
from tests.proxy.commandline.admin_ports import AdminPort, group, listening, run

PAGE = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text("utf-8")
COMMANDS = get_command(groups_app).commands  # type: ignore[attr-defined]
UNSAID = {"--help", "--utc", "--state", "--type"}
"""Flags that need no documentation besides their help."""


def test_page_documents_commands_and_flags() -> None:
    """The page on the command line contains every command and flag."""
    for name, command in COMMANDS.items():
        assert f"| `{name} GROUP` |" in PAGE or f"| `{name}` |" in PAGE
        flags = {flag for each in command.params for flag in each.opts if flag.startswith("--")}
        assert [flag for flag in flags - UNSAID if flag not in PAGE] == []


def test_page_documents_variables() -> None:
    """The page on the command line contains every environment variable."""
    names = (*TARGET_VARIABLES.values(), TOKEN, TOKEN_FILE, CA_FILE, COMMAND_CONFIG)
    assert [name for name in names if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("shape", [GroupSummary, GroupDescription, GroupOffsets, Listing, Answer, Ranking])
def test_page_documents_json_keys(shape: type) -> None:
    """The page on the command line contains every key of the JSON output."""
    assert [field.name for field in fields(shape) if f"`{field.name}`" not in PAGE] == []


def test_page_documents_why_keys() -> None:
    """The page on the command line lists exactly the JSON keys of groups why."""
    port = AdminPort([group("g")])
    with listening(port):
        output = json.loads(run("why", "g", "--json", ports=[port]).stdout)
    [row] = [line for line in PAGE.splitlines() if line.startswith("| `why` | `group`")]
    assert row == f"| `why` | {', '.join(f'`{key}`' for key in output)} |"
