"""Runs the program `group-sidecar` in this process through its entry point."""

from collections.abc import Mapping
from functools import cache
from unittest.mock import patch

import typer.main

from group_sidecar.proxy.cli import PROGRAM, app, main
from tests.surfaces.texts import Ran, ran

_command = cache(typer.main.get_command)
"""Builds the command from the application once. Hundreds of calls would build the same one hundreds of times."""


def program(*arguments: str, variables: Mapping[str, str] | None = None) -> Ran:
    """Runs the program with these arguments and environment variables.

    The entry point adds its commands to the application at each call. This function removes them again. Otherwise,
    hundreds of calls would add hundreds of commands.
    """
    groups, commands = list(app.registered_groups), list(app.registered_commands)
    try:
        with patch.object(typer.main, "get_command", _command):
            return ran(main, PROGRAM, *arguments, variables=variables)
    finally:
        app.registered_groups[:], app.registered_commands[:] = groups, commands
