"""Compares two replies to the same question, group by group.

The module has no side effects and may run in a thread, because comparing large replies takes long.

The comparison ignores the order of groups, members, topics and partitions, which a broker takes from hash tables. The
comparison also ignores throttle times. If the sidecar's answer contains the clients' own hosts (true hosts), the
comparison ignores hosts, because the broker knows only the sidecar's host.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from operator import attrgetter
from typing import Any

from group_sidecar.codecs.api_registry import APIS
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from group_sidecar.codecs.schema import Struct, decode_start

MAX_SHOWN_FIELDS = 10
"""The maximum number of fields of a difference that are logged. `LONGEST_SHOWN` is the maximum length of each value in
characters."""
LONGEST_SHOWN = 200

_IGNORED: Mapping[str, Any] = {"throttle_time_ms": 0}
_HOSTS: Mapping[str, Any] = {**_IGNORED, "client_host": ""}
_NAMES = ("group_id", "member_id", "topic_name", "name", "topic_id", "partition_index")
_MISSING = object()
"""The value of a field that one side does not have."""
_REFUSALS = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED})

Difference = tuple[Struct | None, Struct | None]
"""A group in the sidecar's answer and in the broker's answer. None if the answer lacks the group."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        differences: the differences by group. The key None means the part of the reply that belongs to no group.
        hidden: groups without a result, because the broker hides something from the sidecar's user.
    """

    differences: Mapping[str | None, Difference] = field(default_factory=dict)
    hidden: frozenset[str | None] = frozenset()


def compare(
    request: Struct, version: int, ours: bytes, theirs: bytes, *, sees_all: bool, true_hosts: bool
) -> Comparison:
    """Compares two bodies of a reply.

    Args:
        request: the question.
        version: the version of the question.
        ours: the sidecar's answer.
        theirs: the broker's answer.
        sees_all: whether the broker hides nothing from the sidecar's user. Otherwise a missing group or topic is no
            difference.
        true_hosts: whether the sidecar's answer contains members' true hosts, which the broker does not know.

    Raises:
        DecodeError: one of the bodies is not a reply to this request and version.
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
            pair = _only_common_topics(*pair)
        if pair[0] != pair[1]:
            differences[group] = pair
    return Comparison(differences, frozenset(hidden))


def compare_over_window(
    request: Struct, version: int, ours: Sequence[bytes], theirs: bytes, *, sees_all: bool, true_hosts: bool
) -> Comparison:
    """Compares the broker's body with all answers of the sidecar within one window.

    A field that did not change must have the same value at the broker. If a field changed, the broker must have one of
    the field's values. A number may also lie between two of these values, because not every change was recorded.

    The arguments and exceptions are the same as for `compare`. `ours` contains the answers in the order of time. A
    difference contains the sidecar's last answer.
    """
    *earlier, last = (
        compare(request, version, each, theirs, sees_all=sees_all, true_hosts=true_hosts) for each in ours
    )
    differences: dict[str | None, Difference] = {}
    for group, pair in last.differences.items():
        pairs = [each.differences.get(group) for each in earlier]
        if all(pairs) and _has_unseen_value([*(each for each in pairs if each), pair]):
            differences[group] = pair
    return Comparison(differences, last.hidden)


def _has_unseen_value(pairs: Sequence[Difference]) -> bool:
    """Whether the broker's side has a field with a value that the sidecar's side never had."""
    theirs = dict(_fields(pairs[-1][1], ""))
    sides = [dict(_fields(ours, "")) for ours, _ in pairs]
    for path in theirs.keys() | set().union(*sides):
        values = {side.get(path, _MISSING) for side in sides}
        broker_value = theirs.get(path, _MISSING)
        if broker_value in values:
            continue
        numbers = [value for value in values if isinstance(value, int)]
        passed = len(numbers) > 1 and isinstance(broker_value, int) and min(numbers) <= broker_value <= max(numbers)
        if not passed:
            return True
    return False


def _fields(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yields each field with its path. In an array, the path identifies an item by its name or id."""
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
    """Returns the parts of a reply by group. The part that belongs to no group has the key None. Each part is
    normalized.
    """
    if isinstance(request, OffsetFetchRequest) and not reply.groups and request.group_id:
        return {request.group_id: _normalized(reply, ignored)}
    parts: dict[str | None, Struct] = {group.group_id: _normalized(group, ignored) for group in reply.groups}
    return {**parts, None: _normalized(replace(reply, groups=()), ignored)}


def _only_common_topics(ours: Any, theirs: Any) -> Difference:
    """Returns both sides with the topics that both contain.

    A broker that is asked for all topics leaves out the topics that it hides.
    """
    if ours is None or theirs is None or not hasattr(ours, "topics"):
        return ours, theirs
    common = {(topic.name, topic.topic_id) for topic in ours.topics}
    common &= {(topic.name, topic.topic_id) for topic in theirs.topics}

    def cut(part: Any) -> Any:
        return replace(part, topics=tuple(t for t in part.topics if (t.name, t.topic_id) in common))

    return cut(ours), cut(theirs)


def _normalized(value: Any, ignored: Mapping[str, Any]) -> Any:
    """Returns the value without ignored fields, with its arrays in a fixed order."""
    if isinstance(value, tuple):
        if not value or isinstance(value[0], tuple):  # Empty, or unknown tagged fields, which KIP-482 orders.
            return value
        items = [_normalized(item, ignored) for item in value]
        return tuple(sorted(items, key=_identity(items)))
    if not isinstance(value, Struct):
        return value
    changed = {}
    for each in fields(value):
        found = getattr(value, each.name)
        if each.name in ignored:
            changed[each.name] = ignored[each.name]
        elif isinstance(found, tuple | Struct):
            changed[each.name] = _normalized(found, ignored)
    return replace(value, **changed)


def _identity(items: Sequence[Any]) -> Callable[[Any], Any]:
    """Returns a sort key for items of one type: their names and ids, or the items themselves if they have none."""
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


# Text for log lines.


def format_difference(difference: Difference) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the first few differing fields as two mappings by path: the sidecar's values, and the broker's values.

    Long values are cut.
    """
    leaves = list(islice(_differing_fields(*difference, ""), MAX_SHOWN_FIELDS))
    return {path: _format_value(ours) for path, ours, _ in leaves}, {
        path: _format_value(theirs) for path, _, theirs in leaves
    }


def _differing_fields(ours: Any, theirs: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if ours == theirs:
        return
    if isinstance(ours, Struct) and type(ours) is type(theirs):
        for each in fields(ours):
            below = f"{path}.{each.name}" if path else each.name
            yield from _differing_fields(getattr(ours, each.name), getattr(theirs, each.name), below)
    elif isinstance(ours, tuple) and isinstance(theirs, tuple) and isinstance((ours or theirs)[0], Struct):
        identity = _identity(ours or theirs)
        mine, other = ({identity(item): item for item in side} for side in (ours, theirs))
        for name in sorted(mine.keys() | other.keys()):
            yield from _differing_fields(mine.get(name), other.get(name), f"{path}[{_topic_label(name)}]")
    else:
        yield path or "group", ours, theirs


def _topic_label(name: Any) -> Any:
    """Returns a topic's name, or the topic's id if the name is empty."""
    return (name[0] or name[1]) if isinstance(name, tuple) else name


def _format_value(value: Any) -> str:
    if value is None:
        return "none"
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}... ({len(text)} characters)"
