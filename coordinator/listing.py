"""What ListGroups tells of all groups, kept as it was last told.

Owns: `Listing`: each group's entry, decoded and encoded, why the list may not be told, and which groups must be looked
at again. Must not know: how a group comes to its state, what happens to it.

To look at 10,000 groups costs 50 ms, and to encode them another 50. So a list costs the groups that have changed since
the last one, or whose time has come, and joining the bytes. Where that is still too much for one request, `overdue` is
true, and `tend` makes up for it some groups at a time.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from heapq import heappop, heappush
from itertools import chain, count
from typing import NamedTuple

from group_sidecar.codecs.instances import maker
from group_sidecar.codecs.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    encode_group,
    encode_list,
    form,
)
from group_sidecar.codecs.primitives import compact_text, text
from group_sidecar.coordinator.bounded import ENTRY_BYTES, Table
from group_sidecar.coordinator.events import FOREVER
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.states import EMPTY
from group_sidecar.coordinator.views import GroupState, Lacking

_entry = maker(ListedGroup)
AT_ONCE = 100
"""Groups that are looked at between two breaths: about a millisecond."""
MOST_AT_ONCE = 300
"""Groups that one request for the list may look at, or encode: about three milliseconds."""
SHARDS = 1024
"""Parts in which the encoded groups of a kind are joined. With 100,000 groups one change costs to join 100 again, and
as many changes as one request may look at less than a third of all."""
SPARE_DEADLINES = 1000
"""Deadlines of groups that are gone or have been looked at since, beyond as many as count."""

_Kind = tuple[str, str]
"""State and group type: what a filter names. Not the protocol type, because clients can make up as many as groups."""


class Listed(NamedTuple):
    """A group as it is to be listed.

    Attributes:
        entry: None where it is not there.
        lacking: why the list may not be told because of it.
        until: time alone puts it in no doubt before; in seconds since the epoch.
    """

    entry: ListedGroup | None
    lacking: Lacking | None = None
    until: float = FOREVER


def listed(group: Group, lacking: Lacking | None, now: float) -> Listed:
    """A group as it is to be listed; one that only joins are under way for is not there."""
    until = FOREVER if lacking else group.sound_until(now)
    if group.state is GroupState.DEAD:
        return Listed(None, lacking, until)
    entry = _entry(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.apparent_state.value,
        group_type=group.kind.value,
    )
    return Listed(entry, lacking, until)


def asked_for(request: ListGroupsRequest) -> Callable[[ListedGroup], bool]:
    """Whether a request wants to be told of a group.

    Filters ignore case, that of states blanks around too; an unknown one matches nothing (KIP-518).
    """
    states = {state.strip().lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return lambda group: (
        (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
    )


class Listing:
    """The list of all groups of one broker.

    Args:
        look: a group as it is at a moment.
        changed: where others put the groups to be looked at again: their state is another, or they came or went.
        names: the groups that there are.

    Attributes:
        revision: grows with every change of what is listed.
    """

    def __init__(self, look: Callable[[str, float], Listed], changed: set[str], names: Collection[str] = ()) -> None:
        self.revision = 0
        self._look = look
        self._changed = changed
        self._names = names
        self._entries: dict[str, ListedGroup] = {}
        self._lacking: OrderedDict[str, Lacking] = OrderedDict()  # Its first entry is found in constant time.
        self._due: dict[str, float] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._sparse: list[tuple[float, str]] | None = None
        self._encoded: dict[int, _Encoded] = {}
        self._anew = False
        self._again: list[str] = []

    def __contains__(self, group_id: object) -> bool:
        """Whether anything is kept of a group."""
        return group_id in self._entries or group_id in self._lacking or group_id in self._due

    @property
    def tables(self) -> Iterator[Table]:
        """How large each table here is, beside the names that groups have anyway."""
        yield Table("relisted_groups", len(self._changed), len(self._changed) * ENTRY_BYTES)
        yield Table("listed_deadlines", len(self._deadlines), len(self._deadlines) * ENTRY_BYTES)
        encoded, entries = self._encoded.values(), len(self._entries)
        yield Table("listed_groups", entries, entries * ENTRY_BYTES + 2 * sum(each.bytes for each in encoded))

    def begin_anew(self) -> None:
        """Marks all groups to be looked at again, because any of them may have changed."""
        self._anew = True

    def refresh(self, now: float, most: int | None = None) -> None:
        """Looks at what was touched, and at what may be in doubt by now; at no more than `most` groups."""
        self._notice_due(now)
        if self._anew and (most is None or len(self._names) <= most):
            self._anew, self._again = False, list(self._names)
        for waiting in (self._again, self._changed):
            while waiting and most != 0:
                self._look_at(waiting.pop(), now)
                most = None if most is None else most - 1

    def overdue(self, version: int | None = None) -> bool:
        """Whether more is left to do, after a refresh, than one request may wait for; in this version, if given."""
        if self._anew or self._again or self._changed:
            return True
        if version is None or len(self._entries) <= MOST_AT_ONCE:
            return False
        return len(self._form(version).waiting) > MOST_AT_ONCE

    def tend(self, now: float) -> Iterator[None]:
        """As `refresh` and `lacking`, some groups at a time, so that not all is left to who asks for the list."""
        self._notice_due(now)
        for done in count(1):
            if self._anew:
                self._anew, self._again = False, list(self._names)
            elif self._again or self._changed:
                self._look_at((self._again or self._changed).pop(), now)
            elif not self._lacking or self._look_at(next(iter(self._lacking)), now):
                break
            if done % AT_ONCE == 0:
                yield
        for encoded in list(self._encoded.values()):
            while encoded.waiting:
                encoded.encode(self._entries, AT_ONCE)
                yield
            yield from encoded.join()
        yield from self._tidy()

    def lacking(self, now: float, most: int | None = None) -> Lacking | None:
        """Why the list may not be told, after a refresh; None where it may.

        A doubt may be over without a word: so what was in doubt is looked at until something is found that still is,
        or `most` groups were looked at.
        """
        for done in count():
            if not self._lacking:
                return None
            group_id, before = next(iter(self._lacking.items()))
            if done == most:
                return before
            if reason := self._look_at(group_id, now):
                return reason
        raise AssertionError("a count has no end")

    def reply(self, request: ListGroupsRequest, version: int, *, empty: bool = True) -> bytes:
        """The body of the answer, as of the last refresh. `empty`: whether to tell of Empty groups."""
        encoded = self._form(version)
        encoded.encode(self._entries)
        asked = asked_for(request)
        told = [
            groups for kind, groups in encoded.kinds.items() if asked(_of_kind(kind)) and (empty or kind[0] != EMPTY)
        ]
        return encode_list(sum(map(len, told)), chain.from_iterable(groups.joined() for groups in told), version)

    def _form(self, version: int) -> "_Encoded":
        encoded = self._encoded.get(form(version))
        if encoded is None:
            encoded = self._encoded[form(version)] = _Encoded(version, self._entries)
        return encoded

    def _notice_due(self, now: float) -> None:
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            due, group_id = heappop(deadlines)
            if self._due.get(group_id) == due:
                del self._due[group_id]
                self._changed.add(group_id)

    def _look_at(self, group_id: str, now: float) -> Lacking | None:
        listed = self._look(group_id, now)
        self._take(group_id, listed)
        return listed.lacking

    def _take(self, group_id: str, listed: Listed) -> None:
        if listed.lacking is None:
            self._lacking.pop(group_id, None)
        else:
            self._lacking[group_id] = listed.lacking
        if listed.until < self._due.get(group_id, FOREVER):
            self._due[group_id] = listed.until
            heappush(self._deadlines, (listed.until, group_id))
            if self._sparse is not None:
                heappush(self._sparse, (listed.until, group_id))
        elif listed.entry is None and listed.until == FOREVER:
            self._due.pop(group_id, None)
        before = self._entries.get(group_id)
        if listed.entry == before:
            return
        self.revision += 1
        for encoded in self._encoded.values():
            encoded.change(group_id, before, listed.entry)
        if listed.entry is None:
            del self._entries[group_id]
        else:
            self._entries[group_id] = listed.entry

    def _tidy(self) -> Iterator[None]:
        """Drops deadlines that count no more, where they are many: a group that is gone leaves one behind."""
        if len(self._deadlines) <= 2 * len(self._due) + SPARE_DEADLINES:
            return
        sparse = self._sparse = []
        for done, (group_id, due) in enumerate(list(self._due.items()), 1):
            heappush(sparse, (due, group_id))
            if done % AT_ONCE == 0:
                yield
        self._deadlines, self._sparse = sparse, None


class _Encoded:
    """The encoded groups of one form of the reply, by kind, so that a filter compares kinds and not groups.

    Attributes:
        kinds: the encoded groups by kind and name.
        waiting: groups that are to be encoded.
        bytes: of the encoded groups.
    """

    def __init__(self, version: int, entries: Iterable[str]) -> None:
        self.kinds: dict[_Kind, _Groups] = {}
        self.waiting = dict.fromkeys(entries)
        self.bytes = 0
        self._version = version
        self._name = _name(version)

    def change(self, group_id: str, before: ListedGroup | None, now: ListedGroup | None) -> None:
        """A group is listed as something else from now on, or not any more."""
        self.waiting.pop(group_id, None)
        if before is not None and (groups := self.kinds.get(kind := _kind(before))) is not None:
            self.bytes -= groups.remove(group_id)
            if not groups:
                del self.kinds[kind]
        if now is not None:
            self.waiting[group_id] = None

    def encode(self, entries: Mapping[str, ListedGroup], most: int | None = None) -> None:
        """Encodes groups that wait for it: all, or so many."""
        while self.waiting and most != 0:
            group_id, _ = self.waiting.popitem()
            entry = entries[group_id]
            groups = self.kinds.get(kind := _kind(entry))
            if groups is None:
                groups = self.kinds[kind] = _Groups()
            encoded = self._name(group_id) + _end(kind, entry.protocol_type, self._version)
            groups.add(group_id, encoded)
            self.bytes += len(encoded)
            most = None if most is None else most - 1

    def join(self) -> Iterator[None]:
        """Joins the shards that have changed, one at a time: else the next list would join all of them."""
        done = 0
        for groups in list(self.kinds.values()):
            for shard in groups.shards:
                done += 1
                if groups.join(shard) or done % AT_ONCE == 0:
                    yield


class _Groups:
    """The encoded groups of a kind, in shards, each of which is joined once until one of its groups changes.

    Attributes:
        joins: how many shards were joined.
    """

    __slots__ = ("_count", "_joined", "_shards", "joins")

    def __init__(self) -> None:
        self._shards: dict[int, dict[str, bytes]] = {}
        self._joined: dict[int, bytes] = {}
        self._count = 0
        self.joins = 0

    def __len__(self) -> int:
        return self._count

    def add(self, group_id: str, encoded: bytes) -> None:
        """Adds a group that is not there."""
        shard = hash(group_id) % SHARDS
        self._shards.setdefault(shard, {})[group_id] = encoded
        self._joined.pop(shard, None)
        self._count += 1

    def remove(self, group_id: str) -> int:
        """Removes a group, if it is there. Returns how many bytes it had."""
        shard = hash(group_id) % SHARDS
        encoded = self._shards.get(shard, {}).pop(group_id, None)
        if encoded is None:
            return 0
        self._joined.pop(shard, None)
        self._count -= 1
        return len(encoded)

    def joined(self) -> Iterator[bytes]:
        """All groups, joined by shards."""
        for shard in self._shards:
            self.join(shard)
            yield self._joined[shard]

    @property
    def shards(self) -> list[int]:
        """The numbers of the shards that there are."""
        return list(self._shards)

    def join(self, shard: int) -> bool:
        """Joins a shard. Returns whether it was not joined before."""
        if shard in self._joined:
            return False
        self._joined[shard] = b"".join(self._shards[shard].values())
        self.joins += 1
        return True


def _kind(entry: ListedGroup) -> _Kind:
    return entry.group_state, entry.group_type


def _of_kind(kind: _Kind, protocol_type: str = "") -> ListedGroup:
    return _entry(group_id="", protocol_type=protocol_type, group_state=kind[0], group_type=kind[1])


@lru_cache(maxsize=100)
def _end(kind: _Kind, protocol_type: str, version: int) -> bytes:
    """What follows the name in an encoded group. Nearly all groups have one of a few protocol types."""
    nameless = encode_group(_of_kind(kind, protocol_type), version)
    return nameless[len(_name(version)("")) :]


def _name(version: int) -> Callable[[str], bytes]:
    """What encodes a name."""
    return compact_text if version >= ListGroupsResponse.FLEXIBLE else text
