"""The commands of ``group-sidecar groups``: their names, flags and help.

Each command imports the modules that query and print by itself, so that `--help` and completion are fast.
"""

from typing import Annotated

import typer

from group_sidecar.proxy.commandline.options import (
    AsJson,
    GroupId,
    Interval,
    Since,
    States,
    Types,
    Utc,
    seconds_of,
    with_sidecars,
    with_target,
)
from group_sidecar.proxy.commandline.ranking import Order, TopSelection
from group_sidecar.proxy.commandline.target import ENVIRONMENT_HELP, QueryTarget

_EXIT_CODES = (
    "Exit codes: 0; 1 if the group does not exist, or a broker or sidecar answers with an error; 2 if the command line "
    "is wrong, or a broker or sidecar cannot be reached. The results of the others are shown nevertheless."
)
_JSON = (
    "--json writes one document to standard output, and nothing else. Its fields are those of the admin port's JSON. "
    'Unknown values are null. "problems" has the errors, which are also on standard error.'
)

groups_app = typer.Typer(
    help="Look at the consumer groups behind a sidecar or a broker.",
    epilog=f"{ENVIRONMENT_HELP}\n\n{_EXIT_CODES}\n\n{_JSON}",
    no_args_is_help=True,
)


@groups_app.command("list")
@with_target
def list_groups(
    source: QueryTarget,
    states: States = None,
    types: Types = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show the columns that only sidecars know. Default: on a wide terminal.")
    ] = False,
    utc: Utc = False,
    as_json: AsJson = False,
) -> None:
    """List the groups of all brokers."""
    from group_sidecar.proxy.commandline.output import show_list

    show_list(source, states or (), types or (), verbose=verbose, utc=utc, as_json=as_json)


@groups_app.command("describe")
@with_target
def describe_group(group: GroupId, source: QueryTarget, utc: Utc = False, as_json: AsJson = False) -> None:
    """Describe a group: its state, its coordinator, its members and their partitions."""
    from group_sidecar.proxy.commandline.output import show_group

    show_group(source, group, utc=utc, as_json=as_json)


@groups_app.command("members")
@with_target
def group_members(group: GroupId, source: QueryTarget, as_json: AsJson = False) -> None:
    """Show a group's members and their partitions."""
    from group_sidecar.proxy.commandline.output import show_members

    show_members(source, group, as_json=as_json)


@groups_app.command("offsets")
@with_target
def group_offsets(group: GroupId, source: QueryTarget, as_json: AsJson = False) -> None:
    """Show a group's committed offsets, their lag, and the members that own the partitions."""
    from group_sidecar.proxy.commandline.output import show_offsets

    show_offsets(source, group, as_json=as_json)


@groups_app.command("timeline")
@with_sidecars
def group_timeline(
    group: GroupId,
    source: QueryTarget,
    since: Annotated[str | None, Since] = None,
    utc: Utc = False,
    as_json: AsJson = False,
) -> None:
    """List the events of a group that sidecars have seen, one in a line."""
    from group_sidecar.proxy.commandline.output import show_timeline

    show_timeline(source, group, seconds_of(since) if since else None, utc=utc, as_json=as_json)


@groups_app.command("why")
@with_sidecars
def why_rebalanced(
    group: GroupId, source: QueryTarget, since: Annotated[str, Since] = "1h", utc: Utc = False, as_json: AsJson = False
) -> None:
    """Show why a group rebalanced, as sidecars have seen it."""
    from group_sidecar.proxy.commandline.why import show_why

    show_why(source, group, seconds_of(since), utc=utc, as_json=as_json)


@groups_app.command("top")
@with_sidecars
def top_groups(
    source: QueryTarget,
    sort: Annotated[Order, typer.Option(help="The column to sort by: most first, but names from a to z.")] = Order.LAG,
    search: Annotated[str, typer.Option(metavar="TEXT", help="Only groups whose names contain this text.")] = "",
    interval: Interval = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show one table and end. Default without a terminal.")] = False,
    utc: Utc = False,
    as_json: AsJson = False,
) -> None:
    """Watch the groups with the most lag, rebalances or members, as sidecars know them.

    Keys: l, r, m, n sort by lag, rebalances, members, name; / searches; q ends.
    """
    from group_sidecar.proxy.commandline.top import show_top

    show_top(source, TopSelection(sort, search), interval, once=once, utc=utc, as_json=as_json)
