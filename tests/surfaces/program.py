"""The program `group-sidecar`, run in this process through its entry point."""

from collections.abc import Mapping

from group_sidecar.proxy.cli import PROGRAM, app, main
from tests.surfaces.texts import Ran, ran


def program(*arguments: str, variables: Mapping[str, str] | None = None) -> Ran:
    """Runs it with these arguments and environment variables.

    The entry point adds its commands to the application at each call. They are taken away again, because hundreds of
    calls would otherwise add hundreds of them.
    """
    groups, commands = list(app.registered_groups), list(app.registered_commands)
    try:
        return ran(main, PROGRAM, *arguments, variables=variables)
    finally:
        app.registered_groups[:], app.registered_commands[:] = groups, commands
