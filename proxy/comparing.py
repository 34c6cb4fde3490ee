"""Whether two replies to the same question tell the same, group by group.

Owns: what of a reply is left out of a comparison, how a difference reads. Must not know: where the replies come from,
what is made of a difference. It works on large replies for long and touches nothing else: it may run in a thread.

Left out is the order in which groups, members, topics and partitions stand, which a broker takes from hash tables;
throttle times; and a member's host, where the sidecar tells the client's: the broker knows the sidecar's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from operator import attrgetter
from typing import Any

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from group_sidecar.codecs.registry import APIS
from group_sidecar.codecs.schema import Struct, decode_start

MOST_SHOWN = 10
"""Fields of a difference that are shown, and how many characters of each."""
LONGEST_SHOWN = 200

_IGNORED: Mapping[str, Any] = {"throttle_time_ms": 0}
_HOSTS: Mapping[str, Any] = {**_IGNORED, "client_host": ""}
_NAMES = ("group_id", "member_id", "topic_name", "name", "topic_id", "partition_index")
_MISSING = object()
"""Stands in place of a field that one side does not have."""
_REFUSALS = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED})

Difference = tuple[Struct | None, Struct | None]
"""What the sidecar tells of a group and what the broker does; None for nothing."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of a comparison.

    Attributes:
        differences: by group; None stands for the reply as a whole.
        hidden: groups of which nothing can be said, as the broker keeps something back because of who asked.
    """

    differences: Mapping[str | None, Difference] = field(default_factory=dict)
    hidden: frozenset[str | None] = frozenset()


def compare(
    request: Struct, version: int, ours: bytes, theirs: bytes, *, sees_all: bool, true_hosts: bool
) -> Comparison:
    """Compares two bodies of a reply.

    Args:
        request: what was asked.
        version: in which version.
        ours: the sidecar's answer.
        theirs: the broker's.
        sees_all: whether the broker hides nothing from who asked. Otherwise what is missing in its answer says nothing.
        true_hosts: whether the sidecar tells members' true hosts, which the broker does not know.

    Raises:
        DecodeError: one of them is no such reply.
    """
    if ours == theirs:
        return Comparison()
    kind = APIS[request.KEY].response
    ignored = _HOSTS if true_hosts else _IGNORED
    mine, other = (_by_group(request, decode_start(kind, version, body)[0], ignored) for body in (ours, theirs))
    hidden = {group for group, part in other.items() if not _REFUSALS.isdisjoint(_error_codes(part))}
    if not sees_all and isinstance(request, ListGroupsRequest):
        hidden |= mine.keys() ^ other.keys()
    differences: dict[str | None, Difference] = {}
    for group in (mine.keys() | other.keys()) - hidden:
        pair = mine.get(group), other.get(group)
        if not sees_all and isinstance(request, OffsetFetchRequest):
            pair = _of_common_topics(*pair)
        if pair[0] != pair[1]:
            differences[group] = pair
    return Comparison(differences, frozenset(hidden))


def judge(
    request: Struct, version: int, ours: Sequence[bytes], theirs: bytes, *, sees_all: bool, true_hosts: bool
) -> Comparison:
    """Compares the broker's body with all that the sidecar would have answered at some moment of the same window.

    A field that was the same all the time must be the same at the broker. One that changed must have one of its values
    there, or if it is a number, one between them: the sidecar was not asked after each change.

    Args and raises as `compare`; `ours` in the order of time. Of a difference the sidecar's last side is told.
    """
    *earlier, last = (
        compare(request, version, each, theirs, sees_all=sees_all, true_hosts=true_hosts) for each in ours
    )
    differences: dict[str | None, Difference] = {}
    for group, pair in last.differences.items():
        pairs = [each.differences.get(group) for each in earlier]
        if all(pairs) and _never_so([*(each for each in pairs if each), pair]):
            differences[group] = pair
    return Comparison(differences, last.hidden)


def _never_so(pairs: Sequence[Difference]) -> bool:
    """Whether the broker's side has a field with a value that ours never had."""
    theirs = dict(_fields(pairs[-1][1], ""))
    sides = [dict(_fields(ours, "")) for ours, _ in pairs]
    for path in theirs.keys() | set().union(*sides):
        values = {side.get(path, _MISSING) for side in sides}
        told = theirs.get(path, _MISSING)
        if told in values:
            continue
        numbers = [value for value in values if isinstance(value, int)]
        passed = len(numbers) > 1 and isinstance(told, int) and min(numbers) <= told <= max(numbers)
        if not passed:
            return True
    return False


def _fields(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yields each field with its path. Items without a promised order are found by their names."""
    if isinstance(value, Struct):
        yield path, type(value)
        for each in fields(value):
            yield from _fields(getattr(value, each.name), f"{path}.{each.name}")
    elif isinstance(value, tuple) and value and isinstance(value[0], Struct):
        identity = _identity(value)
        for item in value:
            yield from _fields(item, f"{path}[{identity(item)}]")
    else:
        yield path, value


def _by_group(request: Struct, reply: Any, ignored: Mapping[str, Any]) -> dict[str | None, Struct]:
    """A reply as its parts by group, and what it says of none; put in order."""
    if isinstance(request, OffsetFetchRequest) and not reply.groups and request.group_id:
        return {request.group_id: _ordered(reply, ignored)}
    parts: dict[str | None, Struct] = {group.group_id: _ordered(group, ignored) for group in reply.groups}
    return {**parts, None: _ordered(replace(reply, groups=()), ignored)}


def _of_common_topics(ours: Any, theirs: Any) -> Difference:
    """Offsets of those topics alone that both tell of: of all topics, a broker leaves out those that it hides."""
    if ours is None or theirs is None or not hasattr(ours, "topics"):
        return ours, theirs
    common = {(topic.name, topic.topic_id) for topic in ours.topics}
    common &= {(topic.name, topic.topic_id) for topic in theirs.topics}

    def cut(part: Any) -> Any:
        return replace(part, topics=tuple(t for t in part.topics if (t.name, t.topic_id) in common))

    return cut(ours), cut(theirs)


def _ordered(value: Any, ignored: Mapping[str, Any]) -> Any:
    """The same without what is left out, and with all that stands in no promised order put in one."""
    if isinstance(value, tuple):
        if not value or isinstance(value[0], tuple):  # Tags stand in the order of their numbers.
            return value
        items = [_ordered(item, ignored) for item in value]
        return tuple(sorted(items, key=_identity(items)))
    if not isinstance(value, Struct):
        return value
    changed = {}
    for each in fields(value):
        found = getattr(value, each.name)
        if each.name in ignored:
            changed[each.name] = ignored[each.name]
        elif isinstance(found, tuple | Struct):
            changed[each.name] = _ordered(found, ignored)
    return replace(value, **changed)


def _identity(items: Sequence[Any]) -> Callable[[Any], Any]:
    """What tells items of one type from each other: their names, or where they have none, they themselves."""
    if not isinstance(items[0], Struct):
        return _itself
    names = {each.name for each in fields(items[0])}
    return attrgetter(*(name for name in _NAMES if name in names))


def _itself(value: Any) -> Any:
    return value


def _error_codes(value: Any) -> Iterator[int]:
    if isinstance(value, tuple):
        for item in value:
            yield from _error_codes(item)
    elif isinstance(value, Struct):
        for each in fields(value):
            found = getattr(value, each.name)
            if each.name == "error_code":
                yield found
            elif isinstance(found, tuple | Struct):
                yield from _error_codes(found)


# For people.


def shown(difference: Difference) -> tuple[dict[str, str], dict[str, str]]:
    """The fields that differ, by path, as each side has them; the first few, each cut to a length."""
    leaves = list(islice(_leaves(*difference, ""), MOST_SHOWN))
    return {path: _text(ours) for path, ours, _ in leaves}, {path: _text(theirs) for path, _, theirs in leaves}


def _leaves(ours: Any, theirs: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if ours == theirs:
        return
    if isinstance(ours, Struct) and type(ours) is type(theirs):
        for each in fields(ours):
            below = f"{path}.{each.name}" if path else each.name
            yield from _leaves(getattr(ours, each.name), getattr(theirs, each.name), below)
    elif isinstance(ours, tuple) and isinstance(theirs, tuple) and isinstance((ours or theirs)[0], Struct):
        identity = _identity(ours or theirs)
        mine, other = ({identity(item): item for item in side} for side in (ours, theirs))
        for name in sorted(mine.keys() | other.keys()):
            yield from _leaves(mine.get(name), other.get(name), f"{path}[{_called(name)}]")
    else:
        yield path or "group", ours, theirs


def _called(name: Any) -> Any:
    """A topic by its name, or by its id where it has none."""
    return (name[0] or name[1]) if isinstance(name, tuple) else name


def _text(value: Any) -> str:
    if value is None:
        return "none"
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}... ({len(text)} characters)"
