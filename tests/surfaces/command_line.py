"""The surface of the command lines: commands, arguments, flags, defaults and choices, and the errors of wrong usage."""

import argparse
from collections.abc import Callable
from enum import Enum
from typing import Any, get_args
from unittest.mock import patch

from typer.main import get_command

from group_sidecar.demo.__main__ import main as demo
from group_sidecar.proxy.cli import app
from group_sidecar.proxy.commandline import healthcheck
from group_sidecar.proxy.commandline.fleet import PROGRAM, PROGRAM_VARIABLE
from group_sidecar.proxy.commandline.groups import groups_app
from group_sidecar.proxy.commandline.target import CA_FILE, COMMAND_CONFIG, TARGET_VARIABLES, TOKEN, TOKEN_FILE
from group_sidecar.spark.command_arguments import (
    EXIT_EMPTY,
    EXIT_FAILED,
    EXIT_FINDINGS,
    EXIT_REQUIREMENT_MISSING,
    EXIT_STORE_LOCKED,
    EXIT_USAGE,
    arguments,
)
from tests.surfaces.program import program
from tests.surfaces.texts import Ran, as_json, empty_folder, environment, ran, steady
from tests.surfaces.wrong_usage import FLEET, USAGE

Json = dict[str, Any]


def command_line() -> str:
    """Returns every command of `group-sidecar`, of the fleet job and of the demo."""
    own = _command(get_command(app))
    for added in (
        "groups",
        "fleet",
        healthcheck.COMMAND,
    ):  # If a test has called `main` in this process, it has added these commands.
        own["commands"].pop(added, None)
    own["commands"]["groups"] = _command(get_command(groups_app))
    return as_json(
        {
            "group-sidecar": own,
            "healthcheck": _parser(lambda: healthcheck.main([])),
            "healthcheck's statuses": {"unhealthy": healthcheck.UNHEALTHY},
            "fleet is called": PROGRAM,
            "variables": [*TARGET_VARIABLES.values(), TOKEN, TOKEN_FILE, CA_FILE, COMMAND_CONFIG, PROGRAM_VARIABLE],
            "fleet": _parser(lambda: arguments([])),
            "fleet's statuses": {
                "failed": EXIT_FAILED,
                "usage": EXIT_USAGE,
                "unmet": EXIT_REQUIREMENT_MISSING,
                "busy": EXIT_STORE_LOCKED,
                "findings": EXIT_FINDINGS,
                "empty": EXIT_EMPTY,
            },
            "demo": _parser(demo),
            "listed by --help": _listed("--help") + _listed("groups", "--help"),
        }
    )


def usage_faults() -> str:
    """Returns the output and the exit status of `group-sidecar groups` for wrong flags."""
    parts = []
    with empty_folder() as folder:
        (folder / "empty").write_text("# none\n")
        (folder / "wrong").write_text("127.0.0.1:9464\nhere\n")
        (folder / "oauth.properties").write_text("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n")
        (folder / "jks.properties").write_text("security.protocol=SSL\nssl.truststore.location=trust.jks\n")
        (folder / "binary").write_bytes(b"\xff")
        for variables, argv in USAGE:
            named = " ".join([*(f"{name}={value}" for name, value in variables.items()), *(word[:80] for word in argv)])
            parts.append(program(*argv, variables=variables).text(named))
    return "\n".join(parts)


def fleet_faults() -> str:
    """Returns the error and the exit status of the fleet job for wrong arguments, without the usage line."""
    parts = []
    with empty_folder() as folder:
        (folder / "journals").mkdir()
        (folder / "file").write_text("")
        for argv in FLEET:
            done = ran(lambda given=argv: arguments(given), "fleet")  # type: ignore[misc]
            error = "".join(done.err.splitlines()[-1:]).replace("'", "")  # Since 3.12, Python does not quote choices.
            parts.append(Ran(done.status, "", error).text(" ".join(argv)))
    return "\n".join(parts)


def _command(command: Any) -> Json:
    """Describes a typer command with its subcommands."""
    told: Json = {"parameters": [_parameter(each) for each in command.params]}
    if commands := getattr(command, "commands", None):
        told["commands"] = {name: _command(each) for name, each in commands.items()}
    return told


def _parameter(each: Any) -> Json:
    """Describes an argument or flag of typer. Default properties are left out."""
    annotation = each.type_descriptor.annotation
    (kind,) = get_args(annotation) or (annotation,)
    choices = [choice.value for choice in kind] if issubclass(kind, Enum) else []
    told = {
        "flags": [flag for flag in (*each.opts, *each.secondary_opts) if flag.startswith("-")],
        "type": "choice" if choices else kind.__name__,
        "choices": choices,
        "any_case": bool(choices) and not each.type_descriptor.parameter_info.case_sensitive,
        "metavar": each.metavar,
        "default": getattr(each.default, "value", each.default),
        "required": each.required,
        "repeatable": each.multiple,
        "variable": each.envvar,
        "hidden": each.hidden,
    }
    return {name: value for name, value in told.items() if value not in (None, [], False)}


def _listed(*argv: str) -> list[str]:
    """Returns the names of the commands in a help text, in order, without their descriptions."""
    shown = program(*argv)
    known = {*get_command(groups_app).commands, "run", "check-config", "groups", "fleet", healthcheck.COMMAND}  # type: ignore[attr-defined]
    words = [line.strip(" │|").split() for line in shown.out.splitlines()]
    return [line[0] for line in words if len(line) > 1 and line[0] in known]


class _CaughtError(Exception):
    """Carries a parser out of the function that created it."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def _parser(main: Callable[[], object]) -> Json:
    """Describes the parser that a program creates. The program is stopped before it parses its arguments."""

    def catch(parser: argparse.ArgumentParser, *_: object) -> None:
        raise _CaughtError(parser)

    with environment({}), patch.object(argparse.ArgumentParser, "parse_args", catch):
        try:
            main()
        except _CaughtError as caught:
            return _arguments(caught.parser)
    raise AssertionError("no arguments were read")


def _arguments(parser: argparse.ArgumentParser) -> Json:
    told: Json = {"program": parser.prog, "arguments": []}
    for action in parser._actions:
        choices = action.choices
        if isinstance(action, argparse._SubParsersAction):
            told["commands"] = {name: _arguments(each) for name, each in action.choices.items()}
            choices = None
        told["arguments"].append(
            {
                "flags": [*action.option_strings],
                "default": steady(repr(action.default)),
                "required": action.required,
                "nargs": action.nargs,
                "constant": action.const,
                "choices": None if choices is None else [*choices],
                "metavar": action.metavar,
            }
        )
    return told
