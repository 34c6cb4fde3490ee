"""The command `group-sidecar`: its subcommands, their flags, and the exit statuses.

Each command imports heavy modules by itself, so that `--help` is fast. Flags are passed on under the names of the
settings in the configuration.
"""

import gc
import os
import signal
import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from group_sidecar.proxy.commandline import healthcheck

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_sidecar.proxy.config.model import Config

USAGE_STATUS = 2
"""Exit status for a wrong flag, setting or address."""
FAILED_STATUS = 1
"""Exit status if a connection to the broker fails."""
INTERRUPTED = 130
PROGRAM = "group-sidecar"

app = typer.Typer(
    help="A proxy beside a Kafka broker that knows its consumer groups: it answers for them, limits and explains them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class Mode(StrEnum):
    """The values of `mode` in the configuration."""

    SIDECAR = "sidecar"
    GATEWAY = "gateway"


class LogFormat(StrEnum):
    """The values of `log.format` in the configuration."""

    AUTO = "auto"
    CONSOLE = "console"
    JSON = "json"


def _show_version(wanted: bool) -> None:
    if wanted:
        from group_sidecar.metrics.installed_version import installed_version

        typer.echo(f"{PROGRAM} {installed_version()}")
        raise typer.Exit


@app.callback()
def _program(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...


@app.command()
def run(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The settings file. Flags take precedence.")
    ] = None,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where clients connect.")] = None,
    upstream: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="The broker.")] = None,
    admin: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="The page, /metrics, health, reload.")] = None,
    group_max_size: Annotated[int | None, typer.Option(metavar="N", help="Maximum members of a group.")] = None,
    mode: Annotated[Mode | None, typer.Option(help="gateway: replaces brokers' addresses.")] = None,
    journal: Annotated[Path | None, typer.Option(metavar="DIR", help="The folder for records.")] = None,
    log_format: Annotated[LogFormat | None, typer.Option(help="auto: console on a terminal.")] = None,
) -> None:
    """Run a sidecar before a broker, until SIGTERM. At SIGHUP it reads its policies from FILE again.

    At SIGUSR2 a new process of the same command takes over the ports: for an upgrade or other settings.
    """
    for number in (signal.SIGHUP, signal.SIGUSR2):  # These signals would end a process that does not handle them yet.
        signal.signal(number, signal.SIG_IGN)
    flags = {
        "listen": listen,
        "upstream": upstream,
        "admin": admin,
        "policies": {"group_max_size": {"limit": group_max_size}},
        "mode": mode and mode.value,
        "journal": {"folder": journal},
        "log": {"format": log_format and log_format.value},
    }
    settings = _load(config, _without_none(flags))

    from group_sidecar.proxy.config.loading import load_config

    read = partial(load_config, config, _without_none(flags), only_regular=True) if config else None
    _open_ports_and_run(settings, read)


def _open_ports_and_run(settings: "Config", read: "Callable[[], Config] | None") -> None:
    """Opens the ports, or takes over those of a predecessor, and runs the sidecar. `read` reads the settings again."""
    from group_sidecar.proxy.listeners.passed_sockets import passed_sockets, take_predecessor
    from group_sidecar.proxy.listeners.ports import ListenError, open_ports

    try:
        passed = passed_sockets(os.environ)
        predecessor = take_predecessor(passed)
        is_gateway = settings.mode == "gateway"
        ports = open_ports(settings.listen_addresses, settings.admin, passed, is_gateway=is_gateway)

        # The other modules are imported now, because clients can already connect and wait in the kernel. The imports
        # make no garbage, so the collector is off meanwhile.
        gc.disable()
        from group_sidecar.proxy.config.misspelt_variables import unused_variables
        from group_sidecar.proxy.runtime.logging import configure_logging, log
        from group_sidecar.proxy.sidecar_process import run_until_signalled

        gc.enable()
        configure_logging(settings.log.format, settings.log.level)
        for name, reason in unused_variables(os.environ):
            log.warning("an environment variable looks like a setting", variable=name, reason=reason)
        run_until_signalled(settings, read, ports, predecessor)
    except ListenError as error:
        raise _failed([str(error)], FAILED_STATUS) from None  # A restart may help: the address may be free later.


@app.command()
def check_config(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    connect: Annotated[
        bool, typer.Option("--connect", help="Also try the broker, the addresses and the folder.")
    ] = False,
) -> None:
    """Check a configuration file, together with the environment, and the files and addresses that the settings name.

    Exit codes: 0; 1 if a trial of --connect fails; 2 if the settings have a fault. Warnings leave the code at 0.
    """
    settings = _load(file, {})

    from group_sidecar.proxy.checks.offline import check_settings

    findings = list(check_settings(settings))
    for finding in findings:
        if not finding.is_fault:
            typer.echo(f"warning: {finding}", err=True)
    if faults := [str(finding) for finding in findings if finding.is_fault]:
        raise _failed(faults)
    if connect:
        _try(settings)
    typer.echo(f"{file}: ok")


def _try(settings: "Config") -> None:
    """Prints a line for each of the sidecar's addresses, for its folder, and for each connection to the broker.

    Raises typer.Exit if one of them fails.
    """
    import trio

    from group_sidecar.proxy.checks.connections import try_connections
    from group_sidecar.proxy.checks.host import try_host

    results = [*try_host(settings), *trio.run(try_connections, settings)]
    for result in results:
        typer.echo(str(result) if result.succeeded else f"{PROGRAM}: {result}", err=not result.succeeded)
    if not all(result.succeeded for result in results):
        raise typer.Exit(FAILED_STATUS)


def _without_none(flags: dict[str, Any]) -> dict[str, Any]:
    """Returns the flags that were given: those that are not None, also in nested mappings."""
    given = {name: _without_none(value) if isinstance(value, dict) else value for name, value in flags.items()}
    return {name: value for name, value in given.items() if value is not None and value != {}}


def _load(file: Path | None, flags: dict[str, Any]) -> "Config":
    from group_sidecar.proxy.config.loading import ConfigError, load_config

    try:
        return load_config(file, flags)
    except ConfigError as error:
        raise _failed(error.lines) from None


def _failed(lines: list[str], status: int = USAGE_STATUS) -> typer.Exit:
    for line in lines:
        typer.echo(f"{PROGRAM}: {line}", err=True)
    return typer.Exit(status)


def main() -> None:
    """Runs the command line. Prints one line for an error in the arguments."""
    if sys.argv[1:2] == [healthcheck.COMMAND]:  # Orchestrators run this command often. Typer would double its CPU time.
        sys.exit(healthcheck.main(sys.argv[2:]))
    from group_sidecar.proxy.commandline.completion import rejoin_bash_words
    from group_sidecar.proxy.commandline.fleet import fleet
    from group_sidecar.proxy.commandline.groups import groups_app

    app.add_typer(groups_app, name="groups")
    passed_on = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command(context_settings=passed_on)(fleet)
    app.command(healthcheck.COMMAND, context_settings=passed_on)(_healthcheck)
    rejoin_bash_words(os.environ)
    try:
        sys.exit(app(prog_name=PROGRAM, standalone_mode=False))
    except typer.TyperException as error:
        if message := error.format_message():  # Empty if there are no arguments. Typer has then printed the help.
            typer.echo(f"{PROGRAM}: {message}", err=True)
        sys.exit(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):  # KeyboardInterrupt comes from shell completion.
        sys.exit(INTERRUPTED)


def _healthcheck(context: typer.Context) -> None:
    """Ask the sidecar on this machine whether it works: for orchestrators."""
    raise typer.Exit(healthcheck.main(context.args))


if __name__ == "__main__":
    main()
