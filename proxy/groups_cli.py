"""``group-sidecar groups``: a quick look at consumer groups, against a sidecar or a broker.

Owns: arguments, tables, JSON, exit codes. Must not know: the protocol; `groups_query` asks.

Tables go to standard output under the headings of Kafka's own tools, ``-`` standing for what is missing. What went
wrong goes to standard error, one line each. Exit codes: 0; 1 where the group does not exist or a broker answers with
an error; 2 for bad usage, and where a broker cannot be reached.
"""

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, TypeVar

import trio
import typer
from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.coordinator.views import GroupKind, GroupState
from group_sidecar.proxy.addresses import Address, parse_address
from group_sidecar.proxy.cli import PROGRAM
from group_sidecar.proxy.client import DEFAULT_TIMEOUT, BrokerClosed, BrokerError, BrokerSilent, BrokerUnreachable
from group_sidecar.proxy.groups_query import (
    Assigned,
    GroupDescription,
    GroupMember,
    GroupMissing,
    GroupsQuery,
    PartitionOffsets,
)

MISSING = "-"
"""In tables: there is none, or the broker does not tell."""
REFUSED, UNREACHABLE = 1, 2
"""Exit codes."""

_LONGEST_STRING = 0x7FFF  # Bytes; Kafka's limit for a string on the wire.
_NUMBERS = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "#PARTITIONS", "#MEMBERS")

T = TypeVar("T")
Cells = Mapping[str, object]
"""Values by heading; None and the empty string are missing."""

groups_app = typer.Typer(help="Look at the consumer groups behind a sidecar or a broker.", no_args_is_help=True)


def _bootstrap(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _group_id(text: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise typer.BadParameter("is not UTF-8") from None
    if size > _LONGEST_STRING:
        raise typer.BadParameter(f"has {size} bytes, {_LONGEST_STRING} are allowed")
    return text


def _seconds(value: float) -> float:
    if not value > 0:  # Not a number, too.
        raise typer.BadParameter("must be more than 0")
    return value


Bootstrap = Annotated[
    Address,
    typer.Option("--bootstrap", metavar="HOST:PORT", parser=_bootstrap, help="Any broker or sidecar of the cluster."),
]
Group = Annotated[str, typer.Argument(callback=_group_id, help="The group's id.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON in place of tables.")]
Timeout = Annotated[
    float,
    typer.Option(metavar="SECONDS", callback=_seconds, help="How long to wait for a connection, and for each answer."),
]
States = Annotated[
    list[GroupState] | None,
    typer.Option("--state", case_sensitive=False, help="Only groups in this state; repeatable."),
]
Types = Annotated[
    list[GroupKind] | None, typer.Option("--type", case_sensitive=False, help="Only groups of this type; repeatable.")
]


@groups_app.command("list")
def list_groups(
    bootstrap: Bootstrap,
    states: States = None,
    types: Types = None,
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """List the groups of all brokers."""
    listing = _ask(partial(GroupsQuery(bootstrap, timeout).groups, states or (), types or ()))
    if as_json:
        _print_json({"groups": [asdict(group) for group in listing.groups], "problems": listing.problems})
    else:
        _print_table(
            ("GROUP", "TYPE", "STATE", "PROTOCOL-TYPE"),
            [
                {"GROUP": one.group_id, "TYPE": one.type, "STATE": one.state, "PROTOCOL-TYPE": one.protocol_type}
                for one in listing.groups
            ],
        )
    _finish(listing.problems)


@groups_app.command("describe")
def describe_group(
    group: Group, bootstrap: Bootstrap, as_json: AsJson = False, timeout: Timeout = DEFAULT_TIMEOUT
) -> None:
    """Describe a group: its state, its coordinator, its members and what they read."""
    found = _ask(partial(GroupsQuery(bootstrap, timeout).group, group))
    if as_json:
        _print_json(asdict(found))
        return
    _print_fields(_group_fields(found))
    if found.members:
        members = [_member_row(member) for member in found.members]
        typer.echo()
        _print_table(tuple(members[0]), members)


@groups_app.command("offsets")
def group_offsets(
    group: Group, bootstrap: Bootstrap, as_json: AsJson = False, timeout: Timeout = DEFAULT_TIMEOUT
) -> None:
    """Show a group's committed offsets, and how far behind the ends of the logs they are."""
    found = _ask(partial(GroupsQuery(bootstrap, timeout).offsets, group))
    if as_json:
        rows = [asdict(row) for row in found.offsets]
        _print_json({"group_id": found.group_id, "state": found.state, "offsets": rows, "problems": found.problems})
    else:
        _print_table(
            ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "METADATA"),
            [_offsets_row(row) for row in found.offsets],
        )
    _finish(found.problems)


def _ask(question: Callable[[], Awaitable[T]]) -> T:
    try:
        return trio.run(question)
    except GroupMissing as error:
        typer.echo(f"{PROGRAM}: {_printable(str(error))}", err=True)
        raise typer.Exit(REFUSED) from None
    except (BrokerError, DecodeError) as error:
        raise typer.Exit(_complain([error])) from None


def _finish(problems: Sequence[Exception]) -> None:
    if problems:
        raise typer.Exit(_complain(problems))


def _complain(problems: Iterable[Exception]) -> int:
    """Prints one line each. Returns the exit code for the worst."""
    code = REFUSED
    for problem in problems:
        typer.echo(f"{PROGRAM}: {_printable(str(problem))}", err=True)
        if isinstance(problem, (BrokerUnreachable, BrokerSilent, BrokerClosed)):
            code = UNREACHABLE
    return code


def _group_fields(group: GroupDescription) -> Cells:
    fields: dict[str, object] = {
        "GROUP": group.group_id,
        "TYPE": group.type,
        "PROTOCOL-TYPE": group.protocol_type,
        "COORDINATOR (ID)": f"{group.coordinator.address} ({group.coordinator.id})",
        "ASSIGNMENT-STRATEGY": group.assignor,
        "STATE": group.state,
    }
    if group.type == GroupKind.CONSUMER:
        fields |= {"GROUP-EPOCH": group.epoch, "TARGET-ASSIGNMENT-EPOCH": group.assignment_epoch}
    return fields | {"#MEMBERS": len(group.members)}


def _member_row(member: GroupMember) -> Cells:
    row: dict[str, object] = {
        "CONSUMER-ID": member.member_id,
        "GROUP-INSTANCE-ID": member.instance_id,
        "HOST": member.client_host,
        "CLIENT-ID": member.client_id,
    }
    if member.assignment is None:
        row |= {"#PARTITIONS": None, "ASSIGNMENT": f"({member.assignment_bytes} bytes)"}
    else:
        count = sum(len(partitions) for partitions in member.assignment.values())
        row |= {"#PARTITIONS": count, "ASSIGNMENT": _assignment(member.assignment)}
    if member.target_assignment is not None:
        # Shown while it is something else: both are as long as the list of partitions.
        target = _assignment(member.target_assignment)
        row |= {"EPOCH": member.epoch, "TARGET-ASSIGNMENT": None if target == row["ASSIGNMENT"] else target}
    return row


def _assignment(assigned: Assigned) -> str:
    """``topic:0,1;other:0``, as Kafka's own tool prints it."""
    return ";".join(f"{topic}:{','.join(map(str, sorted(assigned[topic])))}" for topic in sorted(assigned))


def _offsets_row(row: PartitionOffsets) -> Cells:
    return {
        "TOPIC": row.topic,
        "PARTITION": row.partition,
        "CURRENT-OFFSET": row.current_offset,
        "LOG-END-OFFSET": row.log_end_offset,
        "LAG": row.lag,
        "METADATA": row.metadata,
    }


def _print_json(content: Mapping[str, object]) -> None:
    typer.echo(json.dumps(content, indent=2, default=str))


def _print_fields(fields: Cells) -> None:
    width = max(map(len, fields))
    for heading, value in fields.items():
        typer.echo(f"{heading:{width}}  {_cell(value)}")


def _print_table(headings: Sequence[str], rows: Sequence[Cells]) -> None:
    """Plain columns, a line for each row; on a terminal, folded to its width and without columns that say nothing."""
    cells = {heading: [_cell(row[heading]) for row in rows] for heading in headings}
    if sys.stdout.isatty():
        table = Table(box=box.SIMPLE_HEAD)
        shown = {heading: column for heading, column in cells.items() if set(column) != {MISSING}}
        for heading in shown:
            justify: JustifyMethod = "right" if heading in _NUMBERS else "left"
            table.add_column(heading, justify=justify, overflow="fold", min_width=len(heading))
        for line in zip(*shown.values(), strict=True):
            table.add_row(*map(Text, line))
        Console().print(table, crop=False)  # Where even the headings are too wide, the terminal wraps.
        return
    widths = [max(map(len, (heading, *column))) for heading, column in cells.items()]
    for line in (tuple(headings), *zip(*cells.values(), strict=True)):
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    return MISSING if value is None or value == "" else _printable(str(value))


def _printable(text: str) -> str:
    """Without control characters: ids and metadata are any client's text and must not steer a terminal."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
