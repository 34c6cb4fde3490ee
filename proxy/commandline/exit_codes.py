"""Prints the problems of a `groups` command, and ends the program with the exit code."""

from collections.abc import Iterable
from typing import NoReturn

import typer

from group_sidecar.proxy.broker.broker_errors import BrokerClosed, BrokerTimeout, BrokerUnreachable, TlsFailed
from group_sidecar.proxy.commandline.broker_connections import WrongProtocol
from group_sidecar.proxy.commandline.sidecar_queries import SidecarBrokerUnreachable, SidecarUnreachable
from group_sidecar.proxy.commandline.tables import printable

PROGRAM = "group-sidecar"
REFUSED, UNREACHABLE = 1, 2
"""The exit codes if an answer is an error, and if a broker or sidecar cannot be reached or TLS fails."""

_UNREACHABLE = (
    BrokerUnreachable,
    BrokerTimeout,
    BrokerClosed,
    TlsFailed,
    WrongProtocol,
    SidecarUnreachable,
    SidecarBrokerUnreachable,
)


def exit_on_problems(problems: Iterable[Exception]) -> None:
    """Prints a line for each problem. If there is a problem, ends the program with the problems' highest exit code."""
    code = _print_problems(problems)
    if code:
        raise typer.Exit(code)


def exit_with_problems(problems: Iterable[Exception]) -> NoReturn:
    """Prints one line for each problem, and ends the program. There must be at least one problem."""
    raise typer.Exit(_print_problems(problems))


def _print_problems(problems: Iterable[Exception]) -> int:
    # An unreachable broker explains other problems, for instance a group that is not found.
    by_code = sorted(problems, key=_exit_code, reverse=True)
    for problem in by_code:
        typer.echo(f"{PROGRAM}: {printable(str(problem))}", err=True)
    return max(map(_exit_code, by_code), default=0)


def _exit_code(problem: Exception) -> int:
    return UNREACHABLE if isinstance(problem, _UNREACHABLE) else REFUSED
