"""``group-sidecar groups why``.

Owns: what is printed of the reasons for a group's rebalances. Must not know: how they are found (`metrics.why`).

They are found here, from what all sidecars have recorded: where the coordinator has moved, each of them saw a part.
"""

import time
from collections.abc import Mapping
from typing import Any

import typer

from group_sidecar.metrics.why import why
from group_sidecar.proxy.admin.words import client, duration, plain
from group_sidecar.proxy.commandline.asking import ask_sidecars, finish, give_up
from group_sidecar.proxy.commandline.moments import shown
from group_sidecar.proxy.commandline.sidecars import SidecarRefused
from group_sidecar.proxy.commandline.source import Source
from group_sidecar.proxy.commandline.tables import Cells, print_fields, print_json, print_table, printable

_REFUSED_HEADINGS = ("COUNT", "ERROR", "POLICY", "CLIENT-ID", "HOST", "FIRST", "LAST")
_HEADINGS = ("COUNT", "CAUSE", "REASON", "CLIENT-ID", "GROUP-INSTANCE-ID", "HOST", "SAID")


def show_why(source: Source, group_id: str, since: float, *, utc: bool, as_json: bool) -> None:
    """See `groups why`. `since`: seconds back."""
    found = ask_sidecars(source, lambda query: query.timeline(group_id))
    now = time.time()
    try:
        told = why(found.timeline, now - since, now, found.forgotten)
    except (LookupError, TypeError, ValueError):
        sidecars = ", ".join(sorted({str(cell["sidecar"]) for cell in found.timeline}))
        give_up([SidecarRefused(f"{sidecars}: of another version, whose timeline cannot be summed up here")])
    if as_json:
        print_json({"group": group_id, **told, "problems": found.problems})
    else:
        _print(told, found.forgotten, utc)
    finish(found.problems)


def _print(told: Mapping[str, Any], forgotten: Mapping[str, str | None], utc: bool) -> None:
    typer.echo(printable(told["summary"]))
    if told["causes"]:
        typer.echo()
        print_table(_HEADINGS, [_row(cause) for cause in told["causes"]])
    if told["refused"]:
        typer.echo()
        print_table(_REFUSED_HEADINGS, [_refused_row(client, utc) for client in told["refused"]])
    if told["causes"] or told["refused"]:
        typer.echo()
        print_fields({**_figures(told), **(_known_since(forgotten, utc) if told["at_least"] else {})})


def _row(cause: Mapping[str, Any]) -> Cells:
    by = cause["by"] or {}
    return {
        "COUNT": cause["count"],
        "CAUSE": cause["cause"],
        "REASON": cause["reason"],
        "CLIENT-ID": by.get("client_id"),
        "GROUP-INSTANCE-ID": by.get("instance_id"),
        "HOST": by.get("client_host"),
        "SAID": cause["said"],
    }


def _refused_row(refused: Mapping[str, Any], utc: bool) -> Cells:
    return {
        "COUNT": refused["count"],
        "ERROR": refused["error"],
        "POLICY": refused["policy"],
        "CLIENT-ID": refused["client_id"],
        "HOST": refused["client_host"],
        "FIRST": shown(refused["first_at"], utc),
        "LAST": shown(refused["last_at"], utc),
    }


def _figures(told: Mapping[str, Any]) -> Cells:
    slowest = told["slowest"]
    last = f"{plain(client(slowest))}, {duration(slowest['seconds'])} after the first" if slowest else None
    return {
        "REBALANCING": duration(told["rebalancing_seconds"]),
        "LONGEST": duration(told["longest_seconds"]),
        "LAST-TO-JOIN": last,
        "REFUSALS": _figure(told, "refusals"),
        "FAILED-COMMITS": _figure(told, "failed_commits"),
    }


def _figure(told: Mapping[str, Any], name: str) -> object:
    return f"at least {told[name]}" if told[name] and name in told["at_least"] else told[name]


def _known_since(forgotten: Mapping[str, str | None], utc: bool) -> Cells:
    """Since when all is known, where a part of the time asked about is no longer kept, or was before the start."""
    return {"ALL-KNOWN-SINCE": shown(max(filter(None, forgotten.values()), default=None), utc)}
