"""Prints the tables and the JSON of the commands about groups except `top` and `why`.

Tables go to standard output. Columns that Kafka's own tools have too get the headings of these tools. ``-`` means that
a value is missing.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import typer
from rich.console import Console

from group_sidecar.coordinator.model.views import GroupKind
from group_sidecar.proxy.admin.sentences import ago, event, plain
from group_sidecar.proxy.commandline.exit_codes import exit_on_problems
from group_sidecar.proxy.commandline.queries import ask, ask_sidecars
from group_sidecar.proxy.commandline.results import (
    Assignment,
    Cell,
    GroupDescription,
    GroupMember,
    GroupSummary,
    PartitionOffsets,
)
from group_sidecar.proxy.commandline.tables import Cells, print_fields, print_json, print_table, printable
from group_sidecar.proxy.commandline.target import QueryTarget
from group_sidecar.proxy.commandline.times import age_seconds, format_time, parse_time
from group_sidecar.proxy.runtime.addresses import Address

WIDE = 140
"""Minimum width of a terminal, in columns, for a list with the values that only sidecars have."""
OLD_LOG_END_SECONDS = 30.0
"""Age in seconds beyond which `groups offsets` names the age of a log end. A sidecar without a journal asks the broker
every 15 seconds for the log ends of partitions that no client fetches. So for quiet topics the command usually
prints no age."""
UNKNOWN_GROUP = GroupSummary(group="")
"""A group without any data, whose row provides the headings."""


def show_list(
    source: QueryTarget, states: Sequence[str], types: Sequence[str], *, verbose: bool, utc: bool, as_json: bool
) -> None:
    """Prints the result of `groups list`."""
    if verbose:
        source.require_sidecars()
    listing = ask(source, lambda query: query.groups(states, types))
    if as_json:
        print_json(asdict(listing))
    else:
        more = verbose or (bool(source.sidecars) and sys.stdout.isatty() and Console().width >= WIDE)
        rows = [_basic_columns(group) | (sidecar_columns(group, utc) if more else {}) for group in listing.groups]
        headings = (*_basic_columns(UNKNOWN_GROUP), *(sidecar_columns(UNKNOWN_GROUP, utc) if more else {}))
        print_table(headings, rows)
    exit_on_problems(listing.problems)


def show_group(source: QueryTarget, group_id: str, *, utc: bool, as_json: bool) -> None:
    """Prints the result of `groups describe`."""
    found = ask(source, lambda query: query.group(group_id))
    if as_json:
        print_json(asdict(found))
    else:
        print_fields(_group_fields(found, utc))
        if found.member_list:
            members = [_member_row(found, member) for member in found.member_list]
            typer.echo()
            print_table(tuple(members[0])[1:], members)
    exit_on_problems(found.problems)


def show_members(source: QueryTarget, group_id: str, *, as_json: bool) -> None:
    """Prints the result of `groups members`."""
    found = ask(source, lambda query: query.group(group_id))
    if as_json:
        print_json(asdict(found))
    else:
        rows = [_member_row(found, member) for member in found.member_list]
        print_table(tuple(_member_row(found, GroupMember(member_id=""))), rows)
    exit_on_problems(found.problems)


def show_offsets(source: QueryTarget, group_id: str, *, as_json: bool) -> None:
    """Prints the result of `groups offsets`."""
    found = ask(source, lambda query: query.offsets(group_id))
    if as_json:
        print_json(asdict(found))
    else:
        headings = tuple(_offsets_row(group_id, PartitionOffsets(topic="", partition=0)))
        print_table(headings, [_offsets_row(group_id, row) for row in found.offsets])
        if sentence := _old_log_ends(found.offsets, datetime.now(UTC)):
            typer.echo(sentence, err=True)
    exit_on_problems(found.problems)


def _old_log_ends(rows: Sequence[PartitionOffsets], now: datetime) -> str:
    """Returns a sentence about log ends that a sidecar saw some time ago; empty if there are none."""
    ages = [age for row in rows if (age := age_seconds(row.log_end_at, now)) is not None]
    old = [age for age in ages if age > OLD_LOG_END_SECONDS]
    if not old:
        return ""
    oldest = ago(max(old))
    if len(old) > 1:
        seen = f"{len(old):,} of {len(ages):,} log ends were seen some time ago, the oldest {oldest}"
    else:
        seen = f"1 of {len(ages):,} log ends was seen {oldest}" if len(ages) > 1 else f"The log end was seen {oldest}"
    return f"{seen}: LOG-END-OFFSET and LAG do not count records that were written since."


def show_timeline(source: QueryTarget, group_id: str, since: float | None, *, utc: bool, as_json: bool) -> None:
    """Prints the result of `groups timeline`. `since`: how many seconds to look back, or None for all kept events."""
    found = ask_sidecars(source, lambda query: query.timeline(group_id))
    starts = [time for time in found.forgotten.values() if time]
    if since is not None:
        begin = datetime.now(UTC) - timedelta(seconds=since)
        found = replace(found, timeline=[one for one in found.timeline if parse_time(one["at"]) >= begin])
        starts.append(begin.isoformat())
    if as_json:
        print_json(asdict(found))
    else:
        for one in found.timeline:
            typer.echo(f"{format_time(one['at'], utc, exact=True)}  {printable(_event_text(one))}")
        if not found.timeline and not found.problems:
            nothing = f"No sidecar has recorded an event of group {printable(group_id)}"
            typer.echo(f"{nothing}{_since(starts, utc)}.", err=True)
    exit_on_problems(found.problems)


def _since(starts: Sequence[str], utc: bool) -> str:
    """Returns " since" and the latest of some times, or the empty string if there are no times."""
    return f" since {format_time(max(starts, key=parse_time), utc)}" if starts else ""


def _event_text(cell: Cell) -> str:
    """Returns the sentence of an entry, or its JSON if a sidecar of another version sent an unknown entry."""
    try:
        return plain(event(cell))
    except (LookupError, TypeError, ValueError, AttributeError):
        return f"{cell['what']} {json.dumps(cell)}"


def sidecar_columns(group: GroupSummary, utc: bool) -> dict[str, object]:
    """Returns the columns of a listed group that only a sidecar provides."""
    return {
        "#MEMBERS": group.members if group.members_known else None,
        "LIMIT": group.limit,
        "LAG": group.lag,
        "REBALANCES": group.rebalances,
        "LAST-REBALANCE": format_time(group.last_rebalance_at, utc),
        "CAUSE": group.last_cause,
    }


def _basic_columns(group: GroupSummary) -> dict[str, object]:
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
        return fields | {"LEADER": group.leader, "SIDECAR": group.sidecar} | sidecar_columns(group, utc)
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
        # The target is shown only if it differs from the assignment, because both are long.
        target = _assignment(member.target_assignment or {})
        row |= {"EPOCH": member.epoch, "TARGET-ASSIGNMENT": None if target == row["ASSIGNMENT"] else target}
    return row | {"PRINCIPAL": member.principal}


def _assignment(assigned: Assignment) -> str:
    """Returns an assignment as Kafka's own tool prints it: ``topic:0,1;other:0``."""
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
        "PRINCIPAL": row.principal,
    }
