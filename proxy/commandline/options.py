"""The flags of the commands about groups: names, help and allowed values.

The decorators `with_target` and `with_sidecars` add the flags that name the broker or the sidecars to query.
"""

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from group_sidecar.coordinator.model.views import GroupKind, GroupState
from group_sidecar.proxy.commandline.completion import group_ids
from group_sidecar.proxy.commandline.target import QueryTarget, target_of

_LONGEST_STRING = 0x7FFF  # Bytes. Kafka's limit for a string in a request.
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SHORTEST_INTERVAL = 0.1
_LONGEST = 3650 * _UNITS["d"]


def seconds_of(text: str) -> float:
    """Returns the seconds of a duration such as `90s`, `15m`, `1h30m` or `2d`. Raises typer.BadParameter."""
    if not re.fullmatch(r"([0-9]+(\.[0-9]+)?[smhd])+", text):
        raise typer.BadParameter("must be a time, for instance 90s, 15m, 1h30m or 2d")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9.]+)([smhd])", text))
    if not 0 < seconds <= _LONGEST:
        raise typer.BadParameter("must be more than 0s and at most 3650d")
    return seconds


def _group_id(text: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise typer.BadParameter("is not UTF-8") from None
    if size > _LONGEST_STRING:
        raise typer.BadParameter(f"has {size} bytes, {_LONGEST_STRING} are allowed")
    return text


def _positive(value: float | None) -> float | None:
    if value is not None and not value > 0:  # NaN fails this comparison too.
        raise typer.BadParameter("must be more than 0")
    return value


def _duration(text: str | None) -> str | None:
    if text is not None:
        seconds_of(text)
    return text


def _interval(value: float) -> float:
    if not value >= _SHORTEST_INTERVAL:  # NaN fails this comparison too.
        raise typer.BadParameter(f"must be at least {_SHORTEST_INTERVAL}")
    return value


GroupId = Annotated[
    str, typer.Argument(metavar="GROUP", callback=_group_id, autocompletion=group_ids, help="The group's id.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON in place of tables.")]
Utc = Annotated[bool, typer.Option("--utc", help="Times in UTC, not in this machine's zone.")]
Interval = Annotated[float, typer.Option(metavar="SECONDS", callback=_interval, help="The time between two tables.")]
Since = typer.Option(metavar="TIME", callback=_duration, help="How far back: 90s, 15m, 1h30m, 2d.")
States = Annotated[
    list[GroupState] | None,
    typer.Option("--state", case_sensitive=False, help="Only groups in this state; repeatable."),
]
Types = Annotated[
    list[GroupKind] | None, typer.Option("--type", case_sensitive=False, help="Only groups of this type; repeatable.")
]


def _flags(
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Any broker, or a sidecar's port for clients.")
    ] = None,
    sidecar: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT|URL", help="The admin port of a sidecar; repeatable.")
    ] = None,
    all_sidecars: Annotated[
        str | None, typer.Option(metavar="FILE", help="Admin ports, one a line, # for comments; - for standard input.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file with the token of the admin ports.")
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The trusted authorities for https, in PEM.")
    ] = None,
    command_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Properties of Kafka's clients for --bootstrap: TLS, SASL, client.id."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            callback=_positive,
            help="How long to wait for a connection, and for each answer. Default: request.timeout.ms, or 10.",
        ),
    ] = None,
) -> None: ...


Command = Callable[..., None]


def with_target(command: Command) -> Command:
    """Adds the flags that name the target. The command gets a QueryTarget as `source` in place of these flags."""
    return _with_flags(command, inspect.signature(_flags).parameters)


def with_sidecars(command: Command) -> Command:
    """Adds the flags that name sidecars, like `with_target`. The flags for brokers are hidden and refused."""
    flags = dict(inspect.signature(_flags).parameters)
    flags["bootstrap"] = flags["bootstrap"].replace(annotation=Annotated[str | None, typer.Option(hidden=True)])
    flags["command_config"] = flags["command_config"].replace(
        annotation=Annotated[Path | None, typer.Option(hidden=True)]
    )

    @wraps(command)
    def asked(source: QueryTarget, **given: Any) -> None:
        source.require_sidecars()
        command(source=source, **given)

    return _with_flags(asked, flags)


def _with_flags(command: Command, flags: Mapping[str, inspect.Parameter]) -> Command:
    @wraps(command)
    def asked(**given: Any) -> None:
        source = target_of({name: given.pop(name) for name in flags}, sys.stdin)
        command(source=source, **given)

    own = [each for name, each in inspect.signature(command).parameters.items() if name != "source"]
    shown = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *flags.values())]
    asked.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    asked.__annotations__ = {each.name: each.annotation for each in shown}
    return asked
