"""Runs the program `group-sidecar` in this process through its entry point."""

from collections.abc import Mapping

from group_sidecar.proxy.cli import PROGRAM, app, main
from tests.surfaces.texts import Ran, ran


def program(*arguments: str, variables: Mapping[str, str] | None = None) -> Ran:
    """Runs the program with these arguments and environment variables.

    The entry point adds its commands to the application at each call. This function removes them again. Otherwise,
    hundreds of calls would add hundreds of commands.
    """
    groups, commands = list(app.registered_groups), list(app.registered_commands)
    try:
        return ran(main, PROGRAM, *arguments, variables=variables)
    finally:
        app.registered_groups[:], app.registered_commands[:] = groups, commands
