"""Describes a group's events in English: a sentence for each timeline entry, labels for causes, times and numbers.

Text that a client has chosen, such as its id or its reason, is a `UserText` in a sentence. Such text may contain any
characters, also of scripts from right to left, so the caller has to isolate it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from group_sidecar.metrics.rebalance_explanation import informative_reason

Cell: TypeAlias = Mapping[str, Any]
"""An entry of a timeline: `at`, `what`, and further fields that depend on `what`."""


class UserText(str):
    """Text that a client, a user or an operator chose."""


Sentence: TypeAlias = Sequence[str]
"""The parts of a sentence in order. Parts from clients and operators are `UserText`."""

CAUSE_LABELS = {
    "new_member": "new member",
    "member_left": "member left",
    "member_removed": "member removed",
    "session_expired": "session expired",
    "subscription_changed": "subscription changed",
    "partitions_revoked": "partitions handed over",
    "leader_rejoined": "leader rejoined",
    "topic_metadata": "topics changed",
    "static_replaced": "static member replaced",
    "coordinator_moved": "coordinator moved or restarted",
    "unknown": "cause not seen",
}
"""The label of each cause of a rebalance."""

_CAUSE_PHRASES = {
    "new_member": ("", " joined"),
    "member_left": ("", " left"),
    "member_removed": ("", " was removed"),
    "session_expired": ("", " was not heard of within its session timeout"),
    "subscription_changed": ("", " changed its subscription"),
    "partitions_revoked": ("", " gave up partitions for other members"),
    "leader_rejoined": ("the leader, ", ", joined again"),
    "topic_metadata": ("", " saw topics change, or lost its metadata"),
    "static_replaced": ("", " came back under its group.instance.id"),
}
_ANONYMOUS_CAUSE_PHRASES = {
    "new_member": "a member joined",
    "member_left": "a member left",
    "member_removed": "a member was removed",
    "session_expired": "a member was not heard of within its session timeout",
    "subscription_changed": "a member changed its subscription",
    "partitions_revoked": "a member gave up partitions for other members",
    "leader_rejoined": "the leader joined again",
    "topic_metadata": "topics changed, or a member lost its metadata",
    "static_replaced": "a static member came back",
    "coordinator_moved": "this broker had just become its coordinator, or been restarted",
}
_DEPARTURE_PHRASES = {
    "left": "left",
    "expired": "was not heard of within its session timeout",
    "dropped": "was dropped: the broker continued without it",
    "removed": "was removed by the sidecar, for a policy",
    "kicked": "was removed by an admin",
    "fenced": "was fenced: another member took over its instance id",
}


def cause(name: str | None) -> str:
    """Returns the label of a cause. An unknown cause is its own label, and None has an empty label."""
    return "" if name is None else CAUSE_LABELS.get(name, name.replace("_", " "))


def event(cell: Cell) -> Sentence:
    """Returns the sentence of a timeline entry."""
    sentence = _SENTENCES.get(cell["what"])
    return sentence(cell) if sentence else (str(cell["what"]).replace("_", " "),)


def client(member: Mapping[str, Any] | None) -> Sentence:
    """Returns a client's name, host and principal, as far as they are known.

    The name is the client id, or else the instance id or the member id.
    """
    if member is None:
        return ("somebody",)
    name = member.get("client_id") or member.get("instance_id") or member.get("member_id") or "a client without a name"
    host = address(member.get("client_host"))
    principal = member.get("principal")
    named = (UserText(name), " at ", UserText(host)) if host else (UserText(name),)
    return (*named, " as ", UserText(principal)) if principal else named


def address(client_host: str | None) -> str:
    """Returns a client's host, without the slash that Java prints before an address."""
    return (client_host or "").removeprefix("/")


def plain(sentence: Sentence) -> str:
    """Returns a sentence as plain text."""
    return "".join(sentence)


def _why(cell: Cell) -> Sentence:
    """Returns the part of a sentence that names a rebalance's cause, the client that caused it, and its reason."""
    who, name = cell.get("by"), cell.get("cause") or "unknown"
    if who is not None and name in _CAUSE_PHRASES:
        before, after = _CAUSE_PHRASES[name]
        because: Sentence = (before, *client(who), after)
    else:
        because = (_ANONYMOUS_CAUSE_PHRASES.get(name, "its cause was not seen"),)
    return (*because, *_said(cell))


def _said(cell: Cell) -> Sentence:
    said = informative_reason(cell.get("said") or "")
    return (", saying “", UserText(said), "”") if said else ()


def _started(cell: Cell) -> Sentence:
    return ("Rebalance began: ", *_why(cell))


def _completed(cell: Cell) -> Sentence:
    parts = [f"Generation {cell['generation']} of {count(cell['members'], 'member')}"]
    if cell.get("duration_seconds") is not None:
        parts.append(f" after {duration(cell['duration_seconds'])}")
    parts += [": ", *_why(cell)]
    joined_and_left = [
        f"{count(cell[key], 'member')} {verb}" for key, verb in (("joined", "came"), ("gone", "went")) if cell.get(key)
    ]
    if joined_and_left:
        parts.append("; " + ", ".join(joined_and_left))
    if cell.get("moved_partitions") is not None:
        parts.append(f"; {count(cell['moved_partitions'], 'partition')} moved")
    if slowest := cell.get("slowest"):
        parts += ["; the last to join was ", *client(slowest), f", {duration(slowest['seconds'])} after the first"]
    return parts


def _joined(cell: Cell) -> Sentence:
    instance = cell.get("instance_id")
    return (*client(cell), " joined", *((" as instance ", UserText(instance)) if instance else ()), *_said(cell))


def _gone(cell: Cell) -> Sentence:
    return (*client(cell), " ", _DEPARTURE_PHRASES.get(cell["how"], str(cell["how"])), *_said(cell))


def _moved(cell: Cell) -> Sentence:
    return ("The broker said that it does not coordinate the group: it is restarting, or another broker does that now",)


def _commits(cell: Cell) -> Sentence:
    errors = ", ".join(f"{of['error']} for {count(of['partitions'], 'partition')}" for of in cell["refused"])
    accepted = f"; {count(cell['accepted'], 'partition')} accepted" if cell.get("accepted") else ""
    outcome = f"{_repetition(cell)}: {errors}{accepted}"
    if cell.get("by") is None:  # An older sidecar does not report the client.
        return (f"Commit refused{outcome}",)
    return (*client(cell["by"]), f" could not commit{outcome}")


def _refused(cell: Cell) -> Sentence:
    limit = f", {cell['size']:,} of {cell['limit']:,}" if cell.get("limit") is not None else ""
    return (*client(cell), f" was refused{_repetition(cell)} with {cell['error']} by ", UserText(cell["policy"]), limit)


def _audited(cell: Cell) -> Sentence:
    limit = f", {cell['size']:,} of {cell['limit']:,}" if cell.get("limit") is not None else ""
    refused = f" would have been refused{_repetition(cell)} with {cell['error']} by "
    return (*client(cell), refused, UserText(cell["policy"]), limit)


def _repetition(cell: Cell) -> str:
    """Returns how often an event happened, and in how much time; empty for a single event."""
    number = cell.get("count", 1)
    if number == 1:
        return ""
    return f" {number:,} times in {duration((parse_time(cell['at']) - parse_time(cell['first_at'])).total_seconds())}"


_SENTENCES = {
    "rebalance_started": _started,
    "rebalance_completed": _completed,
    "member_joined": _joined,
    "member_gone": _gone,
    "coordinator_moved": _moved,
    "offsets_committed": _commits,
    "client_refused": _refused,
    "client_audited": _audited,
}


_UNITS = (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1))


def count(number: int, noun: str) -> str:
    """Returns a number with its noun: "1 member", "2,000 members"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Returns a duration: "40 ms", "2.5 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    unit, length, lesser, part = next(row for row in _UNITS if seconds >= row[1])
    whole, rest = int(seconds // length), int(seconds % length // part)
    return f"{whole} {unit} {rest} {lesser}" if rest else f"{whole} {unit}"


def ago(seconds: float) -> str:
    """Returns an age in one unit: "now", "40 s ago", "3 min ago", "2 h ago", "5 d ago"."""
    if seconds < 1:
        return "now"
    for unit, length, until in (("s", 1, 60), ("min", 60, 3600), ("h", 3600, 86400)):
        if seconds < until:
            return f"{int(seconds // length)} {unit} ago"
    return f"{int(seconds // 86400)} d ago"


def parse_time(iso: str) -> datetime:
    """Parses a time in the JSON. Raises ValueError if the text is not a time."""
    return datetime.fromisoformat(iso)


def size(number: int) -> str:
    """Returns a size in bytes: "512 B", "1.5 MiB"."""
    value, units = float(number), ["B", "KiB", "MiB", "GiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:,.1f} {units[0]}".replace(".0 ", " ")
