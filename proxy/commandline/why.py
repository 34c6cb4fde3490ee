"""The command ``group-sidecar groups why``.

The command prints the causes of a group's rebalances, which `metrics.rebalance_explanation` finds in the group's
timeline. The timeline contains the events of all sidecars, because after a move of the coordinator each sidecar has
recorded a part.
"""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import typer

from group_sidecar.metrics.rebalance_explanation import informative_reason, why
from group_sidecar.proxy.admin.sentences import client, duration, plain
from group_sidecar.proxy.commandline.exit_codes import exit_on_problems, exit_with_problems
from group_sidecar.proxy.commandline.queries import ask_sidecars
from group_sidecar.proxy.commandline.sidecar_queries import SidecarRefused
from group_sidecar.proxy.commandline.tables import Cells, print_fields, print_json, print_table, printable
from group_sidecar.proxy.commandline.target import QueryTarget
from group_sidecar.proxy.commandline.times import format_time

_REFUSED_HEADINGS = ("COUNT", "ERROR", "POLICY", "CLIENT-ID", "HOST", "PRINCIPAL", "FIRST", "LAST")
_HEADINGS = ("COUNT", "CAUSE", "REASON", "CLIENT-ID", "GROUP-INSTANCE-ID", "HOST", "PRINCIPAL", "SAID")


def show_why(source: QueryTarget, group_id: str, since: float, *, utc: bool, as_json: bool) -> None:
    """Prints the result of `groups why`. `since`: how many seconds to look back."""
    found = ask_sidecars(source, lambda query: query.timeline(group_id))
    now = time.time()
    as_shown = str if as_json else partial(format_time, utc=utc)
    try:
        explanation = why(found.timeline, now - since, now, found.forgotten, as_shown)
    except (LookupError, TypeError, ValueError):
        sidecars = ", ".join(sorted({str(cell["sidecar"]) for cell in found.timeline}))
        exit_with_problems([SidecarRefused(f"{sidecars}: of another version, whose timeline cannot be summed up here")])
    if as_json:
        print_json({"group": group_id, **explanation, "problems": found.problems})
    else:
        _print(explanation, found.forgotten, utc)
    exit_on_problems(found.problems)


def _print(explanation: Mapping[str, Any], forgotten: Mapping[str, str | None], utc: bool) -> None:
    typer.echo(printable(explanation["summary"]))
    if explanation["causes"]:
        typer.echo()
        print_table(_HEADINGS, [_row(cause) for cause in explanation["causes"]])
    if explanation["refused"]:
        typer.echo()
        print_table(_REFUSED_HEADINGS, [_refused_row(client, utc) for client in explanation["refused"]])
    if explanation["causes"] or explanation["refused"] or explanation["failed_commits"]:
        typer.echo()
        print_fields({**_figures(explanation), **(_known_since(forgotten, utc) if explanation["at_least"] else {})})


def _row(cause: Mapping[str, Any]) -> Cells:
    by = cause["by"] or {}
    return {
        "COUNT": cause["count"],
        "CAUSE": cause["cause"],
        "REASON": cause["reason"],
        "CLIENT-ID": by.get("client_id"),
        "GROUP-INSTANCE-ID": by.get("instance_id"),
        "HOST": by.get("client_host"),
        "PRINCIPAL": by.get("principal"),
        "SAID": informative_reason(cause["said"]),
    }


def _refused_row(refused: Mapping[str, Any], utc: bool) -> Cells:
    return {
        "COUNT": refused["count"],
        "ERROR": refused["error"],
        "POLICY": refused["policy"],
        "CLIENT-ID": refused["client_id"],
        "HOST": refused["client_host"],
        "PRINCIPAL": refused.get("principal"),
        "FIRST": format_time(refused["first_at"], utc),
        "LAST": format_time(refused["last_at"], utc),
    }


def _figures(explanation: Mapping[str, Any]) -> Cells:
    slowest = explanation["slowest"]
    last = f"{plain(client(slowest))}, {duration(slowest['seconds'])} after the first" if slowest else None
    return {
        "REBALANCING": duration(explanation["rebalancing_seconds"]),
        "LONGEST": duration(explanation["longest_seconds"]),
        "LAST-TO-JOIN": last,
        "REFUSALS": _figure(explanation, "refusals"),
        "FAILED-COMMITS": _figure(explanation, "failed_commits"),
    }


def _figure(explanation: Mapping[str, Any], name: str) -> object:
    return (
        f"at least {explanation[name]}" if explanation[name] and name in explanation["at_least"] else explanation[name]
    )


def _known_since(forgotten: Mapping[str, str | None], utc: bool) -> Cells:
    """Returns the time from which on all events are known.

    The command prints the time only if a figure is a lower bound.
    """
    return {"ALL-KNOWN-SINCE": format_time(max(filter(None, forgotten.values()), default=None), utc)}
