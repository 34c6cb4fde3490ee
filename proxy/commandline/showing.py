"""What each command about groups prints.

Owns: tables and JSON of every command but `top`. Must not know: who was asked.

Tables go to standard output under the headings of Kafka's own tools, ``-`` standing for what is missing.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import typer
from rich.console import Console

from group_sidecar.coordinator.views import GroupKind
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.admin.words import event, plain
from group_sidecar.proxy.commandline.answers import (
    Assigned,
    Cell,
    GroupDescription,
    GroupMember,
    GroupSummary,
    PartitionOffsets,
)
from group_sidecar.proxy.commandline.asking import ask, ask_sidecars, finish
from group_sidecar.proxy.commandline.moments import moment, shown
from group_sidecar.proxy.commandline.source import Source
from group_sidecar.proxy.commandline.tables import Cells, print_fields, print_json, print_table, printable

WIDE = 140
"""Columns of a terminal that has room for what only sidecars know."""
NOBODY = GroupSummary(group="")
"""A group of which nothing is known; its row has the headings."""


def show_list(
    source: Source, states: Sequence[str], types: Sequence[str], *, verbose: bool, utc: bool, as_json: bool
) -> None:
    """See `groups list`."""
    if verbose:
        source.require_sidecars()
    listing = ask(source, lambda query: query.groups(states, types))
    if as_json:
        print_json(asdict(listing))
    else:
        more = verbose or (bool(source.sidecars) and sys.stdout.isatty() and Console().width >= WIDE)
        rows = [_basics(group) | (figures(group, utc) if more else {}) for group in listing.groups]
        headings = (*_basics(NOBODY), *(figures(NOBODY, utc) if more else {}))
        print_table(headings, rows)
    finish(listing.problems)


def show_group(source: Source, group_id: str, *, utc: bool, as_json: bool) -> None:
    """See `groups describe`."""
    found = ask(source, lambda query: query.group(group_id))
    if as_json:
        print_json(asdict(found))
    else:
        print_fields(_group_fields(found, utc))
        if found.member_list:
            members = [_member_row(found, member) for member in found.member_list]
            typer.echo()
            print_table(tuple(members[0])[1:], members)
    finish(found.problems)


def show_members(source: Source, group_id: str, *, as_json: bool) -> None:
    """See `groups members`."""
    found = ask(source, lambda query: query.group(group_id))
    if as_json:
        print_json(asdict(found))
    else:
        rows = [_member_row(found, member) for member in found.member_list]
        print_table(tuple(_member_row(found, GroupMember(member_id=""))), rows)
    finish(found.problems)


def show_offsets(source: Source, group_id: str, *, as_json: bool) -> None:
    """See `groups offsets`."""
    found = ask(source, lambda query: query.offsets(group_id))
    if as_json:
        print_json(asdict(found))
    else:
        headings = tuple(_offsets_row(group_id, PartitionOffsets(topic="", partition=0)))
        print_table(headings, [_offsets_row(group_id, row) for row in found.offsets])
    finish(found.problems)


def show_timeline(source: Source, group_id: str, since: float | None, *, utc: bool, as_json: bool) -> None:
    """See `groups timeline`. `since`: seconds back; None for all that is kept."""
    found = ask_sidecars(source, lambda query: query.timeline(group_id))
    if since is not None:
        begin = datetime.now(UTC) - timedelta(seconds=since)
        found = replace(found, timeline=[one for one in found.timeline if moment(one["at"]) >= begin])
    if as_json:
        print_json(asdict(found))
    else:
        for one in found.timeline:
            typer.echo(f"{shown(one['at'], utc, exact=True)}  {printable(_words(one))}")
    finish(found.problems)


def _words(cell: Cell) -> str:
    """What a cell tells; of a sidecar so old or new that it cannot be put in words, the cell as it is."""
    try:
        return plain(event(cell))
    except (LookupError, TypeError, ValueError, AttributeError):
        return f"{cell['what']} {json.dumps(cell)}"


def figures(group: GroupSummary, utc: bool) -> dict[str, object]:
    """What only a sidecar knows of a group in a list."""
    return {
        "#MEMBERS": group.members if group.members_known else None,
        "LIMIT": group.limit,
        "LAG": group.lag,
        "REBALANCES": group.rebalances,
        "LAST-REBALANCE": shown(group.last_rebalance_at, utc),
        "CAUSE": group.last_cause,
    }


def _basics(group: GroupSummary) -> dict[str, object]:
    return {
        "GROUP": group.group,
        "TYPE": group.protocol,
        "STATE": group.state,
        "PROTOCOL-TYPE": group.protocol_type,
    }


def _group_fields(group: GroupDescription, utc: bool) -> Cells:
    fields: dict[str, object] = {"GROUP": group.group, "TYPE": group.protocol, "PROTOCOL-TYPE": group.protocol_type}
    if at := group.coordinator:
        fields["COORDINATOR (ID)"] = f"{Address(at.host, at.port)} ({at.id})"
    fields |= {"ASSIGNMENT-STRATEGY": group.assignor, "STATE": group.state}
    if group.generation is not None:
        fields["GENERATION" if group.protocol == GroupKind.CLASSIC else "GROUP-EPOCH"] = group.generation
    if group.assignment_epoch is not None:
        fields["TARGET-ASSIGNMENT-EPOCH"] = group.assignment_epoch
    if group.sidecar:
        return fields | {"LEADER": group.leader, "SIDECAR": group.sidecar} | figures(group, utc)
    return fields | {"#MEMBERS": group.members}


def _member_row(group: GroupDescription, member: GroupMember) -> Cells:
    row: dict[str, object] = {
        "GROUP": group.group,
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
    if any(one.target_assignment is not None for one in group.member_list):
        # Shown while it is something else: both are as long as the list of partitions.
        target = _assignment(member.target_assignment or {})
        row |= {"EPOCH": member.epoch, "TARGET-ASSIGNMENT": None if target == row["ASSIGNMENT"] else target}
    return row


def _assignment(assigned: Assigned) -> str:
    """``topic:0,1;other:0``, as Kafka's own tool prints it."""
    return ";".join(f"{topic}:{','.join(map(str, sorted(assigned[topic])))}" for topic in sorted(assigned))


def _offsets_row(group_id: str, row: PartitionOffsets) -> Cells:
    return {
        "GROUP": group_id,
        "TOPIC": row.topic,
        "PARTITION": row.partition,
        "CURRENT-OFFSET": row.current_offset,
        "LOG-END-OFFSET": row.log_end_offset,
        "LAG": row.lag,
        "CONSUMER-ID": row.member_id,
        "HOST": row.client_host,
        "CLIENT-ID": row.client_id,
        "METADATA": row.metadata,
    }
