"""What happened to a group, in words.

Owns: the sentence of each cell of a timeline, the words for causes, and how times and numbers are spelled. Must not
know: HTML, nor where cells come from.

What a client chose itself, its id, its reason, is a `Name` in a sentence: it may be any text, in any direction of
writing, and whoever shows it has to keep it apart.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

Cell: TypeAlias = Mapping[str, Any]
"""A cell of a timeline: `at`, `what`, and what belongs to it."""


class Name(str):
    """Text that a client, a user or an operator chose."""


Sentence: TypeAlias = Sequence[str]
"""Its parts in order; those that are a `Name` are others' text."""

CAUSES = {
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
"""The causes of rebalances, as few words."""

_CAUSED = {
    "new_member": ("", " joined"),
    "member_left": ("", " left"),
    "member_removed": ("", " was removed"),
    "session_expired": ("", " was not heard of within its session timeout"),
    "subscription_changed": ("", " changed its subscription"),
    "partitions_revoked": ("", " gave up partitions that others are to have"),
    "leader_rejoined": ("the leader, ", ", joined again"),
    "topic_metadata": ("", " saw topics change"),
    "static_replaced": ("", " came back under its group.instance.id"),
}
_CAUSED_BY_NOBODY = {
    "new_member": "a member joined",
    "member_left": "a member left",
    "member_removed": "a member was removed",
    "session_expired": "a member was not heard of within its session timeout",
    "subscription_changed": "a member changed its subscription",
    "partitions_revoked": "a member gave up partitions that others are to have",
    "leader_rejoined": "the leader joined again",
    "topic_metadata": "topics changed",
    "static_replaced": "a static member came back",
    "coordinator_moved": "this broker had just become its coordinator, or been restarted",
}
_GONE = {
    "left": "left",
    "expired": "was not heard of within its session timeout",
    "dropped": "was left behind: the broker went on without it",
    "removed": "was removed by the sidecar, for a policy",
    "kicked": "was removed by an admin",
    "fenced": "was fenced by another with its instance id",
}


def cause(name: str | None) -> str:
    """A cause as few words; one that has none is shown as it is."""
    return "" if name is None else CAUSES.get(name, name.replace("_", " "))


def event(cell: Cell) -> Sentence:
    """What a cell tells."""
    sentence = _SENTENCES.get(cell["what"])
    return sentence(cell) if sentence else (str(cell["what"]).replace("_", " "),)


def client(who: Mapping[str, Any] | None) -> Sentence:
    """A client: its id, or else its instance or member id, and its host."""
    if who is None:
        return ("somebody",)
    name = who.get("client_id") or who.get("instance_id") or who.get("member_id") or "a client without a name"
    host = address(who.get("client_host"))
    return (Name(name), " at ", Name(host)) if host else (Name(name),)


def address(client_host: str | None) -> str:
    """A client's host, without the slash that Java prints before an address."""
    return (client_host or "").removeprefix("/")


def plain(sentence: Sentence) -> str:
    """A sentence as mere text."""
    return "".join(sentence)


def _why(cell: Cell) -> Sentence:
    """Who brought a rebalance about, and how."""
    who, name = cell.get("by"), cell.get("cause") or "unknown"
    if who is not None and name in _CAUSED:
        before, after = _CAUSED[name]
        because: Sentence = (before, *client(who), after)
    else:
        because = (_CAUSED_BY_NOBODY.get(name, "its cause was not seen"),)
    return (*because, *_said(cell))


def _said(cell: Cell) -> Sentence:
    said = cell.get("said")
    return (", saying “", Name(said), "”") if said else ()


def _started(cell: Cell) -> Sentence:
    return ("Rebalance began: ", *_why(cell))


def _completed(cell: Cell) -> Sentence:
    parts = [f"Generation {cell['generation']} of {count(cell['members'], 'member')}"]
    if cell.get("duration_seconds") is not None:
        parts.append(f" after {duration(cell['duration_seconds'])}")
    parts += [": ", *_why(cell)]
    came_and_went = [
        f"{count(cell[key], 'member')} {verb}" for key, verb in (("joined", "came"), ("gone", "went")) if cell.get(key)
    ]
    if came_and_went:
        parts.append("; " + ", ".join(came_and_went))
    if cell.get("moved_partitions") is not None:
        parts.append(f"; {count(cell['moved_partitions'], 'partition')} moved")
    if slowest := cell.get("slowest"):
        parts += ["; the last to join was ", *client(slowest), f", {duration(slowest['seconds'])} after the first"]
    return parts


def _joined(cell: Cell) -> Sentence:
    instance = cell.get("instance_id")
    return (*client(cell), " joined", *((" as instance ", Name(instance)) if instance else ()), *_said(cell))


def _gone(cell: Cell) -> Sentence:
    return (*client(cell), " ", _GONE.get(cell["how"], str(cell["how"])), *_said(cell))


def _moved(cell: Cell) -> Sentence:
    return ("The broker said that it does not coordinate the group: it restarts, or another broker does",)


def _commits(cell: Cell) -> Sentence:
    errors = ", ".join(f"{of['error']} for {count(of['partitions'], 'partition')}" for of in cell["refused"])
    accepted = f"; {count(cell['accepted'], 'partition')} accepted" if cell.get("accepted") else ""
    return (f"Commit refused: {errors}{accepted}",)


def _refused(cell: Cell) -> Sentence:
    limit = f", {cell['size']:,} of {cell['limit']:,}" if cell.get("limit") is not None else ""
    return (*client(cell), f" was refused{_often(cell)} with {cell['error']} by ", Name(cell["policy"]), limit)


def _audited(cell: Cell) -> Sentence:
    limit = f", {cell['size']:,} of {cell['limit']:,}" if cell.get("limit") is not None else ""
    refused = f" would have been refused{_often(cell)} with {cell['error']} by "
    return (*client(cell), refused, Name(cell["policy"]), limit)


def _often(cell: Cell) -> str:
    """How often within which time, of more than once."""
    number = cell.get("count", 1)
    if number == 1:
        return ""
    return f" {number:,} times in {duration((moment(cell['at']) - moment(cell['first_at'])).total_seconds())}"


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
    """A number with its noun: "1 member", "2,000 members"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """A length of time: "40 ms", "2.5 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    unit, length, lesser, part = next(row for row in _UNITS if seconds >= row[1])
    whole, rest = int(seconds // length), int(seconds % length // part)
    return f"{whole} {unit} {rest} {lesser}" if rest else f"{whole} {unit}"


def ago(seconds: float) -> str:
    """How long since, in one unit: "now", "40 s ago", "3 min ago", "2 h ago", "5 d ago"."""
    if seconds < 1:
        return "now"
    for unit, length, until in (("s", 1, 60), ("min", 60, 3600), ("h", 3600, 86400)):
        if seconds < until:
            return f"{int(seconds // length)} {unit} ago"
    return f"{int(seconds // 86400)} d ago"


def moment(iso: str) -> datetime:
    """A time of the JSON. Raises ValueError where it is none."""
    return datetime.fromisoformat(iso)


def size(number: int) -> str:
    """Bytes: "512 B", "1.5 MiB"."""
    value, units = float(number), ["B", "KiB", "MiB", "GiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:,.1f} {units[0]}".replace(".0 ", " ")
