"""Builds the reply to ListGroups from an encoded list that is updated as groups change.

`Listing` keeps the entry of each group, decoded and encoded. `Listing` also keeps the reasons not to answer from the
list, and the groups that must be evaluated again.

Evaluating 10,000 groups takes 50 ms, and encoding them takes another 50 ms. So a reply only evaluates and encodes
groups that have changed or whose deadline has passed, and concatenates the bytes. If that is still too much for one
request, `has_too_much_work` returns True, and `update_in_steps` does the work some groups at a time.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from heapq import heappop, heappush
from itertools import chain, count
from typing import NamedTuple

from group_sidecar.codecs.fast_instances import fast_constructor
from group_sidecar.codecs.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    encode_group,
    encode_list,
    form,
)
from group_sidecar.codecs.primitives import encode_compact_string, encode_string
from group_sidecar.coordinator.model.events import FOREVER
from group_sidecar.coordinator.model.state_transitions import EMPTY
from group_sidecar.coordinator.model.views import FallbackReason, GroupState
from group_sidecar.coordinator.state.bounded_table import ENTRY_BYTES, TableSize
from group_sidecar.coordinator.state.group import Group

_entry = fast_constructor(ListedGroup)
GROUPS_PER_STEP = 100
"""Groups that are evaluated before other tasks may run: about 1 ms."""
MAX_GROUPS_PER_REQUEST = 200
"""Groups that one ListGroups request may evaluate or encode: about 3 ms."""
SHARDS = 1024
"""Shards into which the encoded groups of a kind are divided. With 100,000 groups, one change means that the
bytes of 100 groups are concatenated again. MAX_GROUPS_PER_REQUEST changes affect at most a fifth of all groups."""
SPARE_DEADLINES = 1000
"""If outdated deadlines outnumber the current deadlines by more than this number, all outdated deadlines are
dropped."""

_Kind = tuple[str, str]
"""State and group type, by which requests filter. The protocol type is left out, because clients can invent any number
of protocol types."""


class ListingEntry(NamedTuple):
    """The entry of a group in the list.

    Attributes:
        entry: the entry, or None if the group does not exist.
        fallback_reason: why the list may not be used for an answer because of this group.
        until: the time until which no timer can put the entry in doubt, in seconds since the epoch.
    """

    entry: ListedGroup | None
    fallback_reason: FallbackReason | None = None
    until: float = FOREVER


def listing_entry(
    group: Group, fallback_reason: FallbackReason | None, now: float, expires_at: float = FOREVER
) -> ListingEntry:
    """Returns the entry of a group. A group that consists only of pending joins has none.

    `expires_at` is when the broker may remove the group because its offsets have expired.
    """
    until = FOREVER if fallback_reason else min(group.earliest_timeout(now), expires_at)
    if group.state is GroupState.DEAD:
        return ListingEntry(None, fallback_reason, until)
    entry = _entry(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.apparent_state.value,
        group_type=group.kind.value,
    )
    return ListingEntry(entry, fallback_reason, until)


def matches_filters(request: ListGroupsRequest) -> Callable[[ListedGroup], bool]:
    """Returns a function that decides whether a group matches the filters of a request.

    Filters ignore case. The state filter also ignores surrounding blanks. An unknown state or type matches nothing
    (KIP-518).
    """
    states = {state.strip().lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return lambda group: (
        (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
    )


class Listing:
    """The list of all groups of one broker.

    Args:
        look: returns the entry of a group at a given time.
        changed: the groups to evaluate again because they changed, appeared or disappeared. Other objects add groups.
        names: the ids of all known groups.

    Attributes:
        revision: a counter that grows with every change of the list.
    """

    def __init__(
        self, look: Callable[[str, float], ListingEntry], changed: set[str], names: Collection[str] = ()
    ) -> None:
        self.revision = 0
        self._look = look
        self._changed = changed
        self._names = names
        self._entries: dict[str, ListedGroup] = {}
        # The first entry of an OrderedDict is found in constant time.
        self._fallback_reasons: OrderedDict[str, FallbackReason] = OrderedDict()
        self._due: dict[str, float] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._sparse: list[tuple[float, str]] | None = None
        self._encoded: dict[int, _Encoded] = {}
        self._all_stale = False
        self._stale: list[str] = []

    def __contains__(self, group_id: object) -> bool:
        """Whether the list has any state of a group."""
        return group_id in self._entries or group_id in self._fallback_reasons or group_id in self._due

    @property
    def tables(self) -> Iterator[TableSize]:
        """The size of each table in this object, without the group ids, which exist elsewhere too."""
        yield TableSize("relisted_groups", len(self._changed), len(self._changed) * ENTRY_BYTES)
        yield TableSize("listed_deadlines", len(self._deadlines), len(self._deadlines) * ENTRY_BYTES)
        encoded, entries = self._encoded.values(), len(self._entries)
        yield TableSize("listed_groups", entries, entries * ENTRY_BYTES + 2 * sum(each.bytes for each in encoded))

    def mark_all_stale(self) -> None:
        """Marks all groups to be evaluated again, because any of them may have changed."""
        self._all_stale = True

    def refresh(self, now: float, max_groups: int | None = None) -> None:
        """Evaluates at most `max_groups` groups that have changed or whose deadline has passed."""
        self._notice_due(now)
        if self._all_stale and (max_groups is None or len(self._names) <= max_groups):
            self._all_stale, self._stale = False, list(self._names)
        for waiting in (self._stale, self._changed):
            while waiting and max_groups != 0:
                self._look_at(waiting.pop(), now)
                max_groups = None if max_groups is None else max_groups - 1

    def has_too_much_work(self, version: int | None = None) -> bool:
        """Whether more work is left after a refresh than one request may wait for.

        `version` is the version of the reply; None to ignore the groups that are not encoded yet.
        """
        if self._all_stale or self._stale or self._changed:
            return True
        if version is None or len(self._entries) <= MAX_GROUPS_PER_REQUEST:
            return False
        return len(self._form(version).waiting) > MAX_GROUPS_PER_REQUEST

    def update_in_steps(self, now: float) -> Iterator[None]:
        """Does the work of `refresh` and `fallback_reason`, some groups at a time.

        A request then has little work left.
        """
        self._notice_due(now)
        for done in count(1):
            if self._all_stale:
                self._all_stale, self._stale = False, list(self._names)
            elif self._stale or self._changed:
                self._look_at((self._stale or self._changed).pop(), now)
            elif not self._fallback_reasons or self._look_at(next(iter(self._fallback_reasons)), now):
                break
            if done % GROUPS_PER_STEP == 0:
                yield
        for encoded in list(self._encoded.values()):
            while encoded.waiting:
                encoded.encode(self._entries, GROUPS_PER_STEP)
                yield
            yield from encoded.concatenate()
        yield from self._drop_spare_deadlines()

    def fallback_reason(self, now: float, max_groups: int | None = None) -> FallbackReason | None:
        """Returns why the list may not be used for an answer after a refresh; None if it may be used.

        A doubt may end without any event. So groups in doubt are evaluated again until one is still in doubt, or until
        `max_groups` groups were evaluated.
        """
        for done in count():
            if not self._fallback_reasons:
                return None
            group_id, before = next(iter(self._fallback_reasons.items()))
            if done == max_groups:
                return before
            if reason := self._look_at(group_id, now):
                return reason
        raise AssertionError("count() never ends")

    def reply(self, request: ListGroupsRequest, version: int, *, empty: bool = True) -> bytes:
        """Returns the body of the reply as of the last refresh. `empty` is whether the reply contains Empty groups."""
        encoded = self._form(version)
        encoded.encode(self._entries)
        asked = matches_filters(request)
        selected = [
            groups for kind, groups in encoded.kinds.items() if asked(_of_kind(kind)) and (empty or kind[0] != EMPTY)
        ]
        return encode_list(
            sum(map(len, selected)), chain.from_iterable(groups.concatenated() for groups in selected), version
        )

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

    def _look_at(self, group_id: str, now: float) -> FallbackReason | None:
        listed = self._look(group_id, now)
        self._take(group_id, listed)
        return listed.fallback_reason

    def _take(self, group_id: str, listed: ListingEntry) -> None:
        if listed.fallback_reason is None:
            self._fallback_reasons.pop(group_id, None)
        else:
            self._fallback_reasons[group_id] = listed.fallback_reason
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

    def _drop_spare_deadlines(self) -> Iterator[None]:
        """Drops outdated deadlines if there are many. Each removed group leaves an outdated deadline."""
        if len(self._deadlines) <= 2 * len(self._due) + SPARE_DEADLINES:
            return
        sparse = self._sparse = []
        for done, (group_id, due) in enumerate(list(self._due.items()), 1):
            heappush(sparse, (due, group_id))
            if done % GROUPS_PER_STEP == 0:
                yield
        self._deadlines, self._sparse = sparse, None


class _Encoded:
    """The encoded groups for one form of the reply, stored by kind, so that a filter selects whole kinds.

    Attributes:
        kinds: the encoded groups by kind and group id.
        waiting: the groups that are still to be encoded.
        bytes: the size of the encoded groups.
    """

    def __init__(self, version: int, entries: Iterable[str]) -> None:
        self.kinds: dict[_Kind, _Groups] = {}
        self.waiting = dict.fromkeys(entries)
        self.bytes = 0
        self._version = version
        self._name = _name(version)

    def change(self, group_id: str, before: ListedGroup | None, now: ListedGroup | None) -> None:
        """Replaces the entry of a group. `before` or `now` is None if the group is not listed."""
        self.waiting.pop(group_id, None)
        if before is not None and (groups := self.kinds.get(kind := _kind(before))) is not None:
            self.bytes -= groups.remove(group_id)
            if not groups:
                del self.kinds[kind]
        if now is not None:
            self.waiting[group_id] = None

    def encode(self, entries: Mapping[str, ListedGroup], max_groups: int | None = None) -> None:
        """Encodes all waiting groups, or at most `max_groups` of them."""
        while self.waiting and max_groups != 0:
            group_id, _ = self.waiting.popitem()
            entry = entries[group_id]
            groups = self.kinds.get(kind := _kind(entry))
            if groups is None:
                groups = self.kinds[kind] = _Groups()
            encoded = self._name(group_id) + _end(kind, entry.protocol_type, self._version)
            groups.add(group_id, encoded)
            self.bytes += len(encoded)
            max_groups = None if max_groups is None else max_groups - 1

    def concatenate(self) -> Iterator[None]:
        """Concatenates the changed shards, one at a time. The next reply then does not have to concatenate them."""
        done = 0
        for groups in list(self.kinds.values()):
            for shard in groups.shards:
                done += 1
                if groups.concatenate(shard) or done % GROUPS_PER_STEP == 0:
                    yield


class _Groups:
    """The encoded groups of one kind, in shards. The bytes of a shard are kept until one of its groups changes.

    Attributes:
        concatenations: how many times a shard was concatenated.
    """

    __slots__ = ("_concatenated", "_count", "_shards", "concatenations")

    def __init__(self) -> None:
        self._shards: dict[int, dict[str, bytes]] = {}
        self._concatenated: dict[int, bytes] = {}
        self._count = 0
        self.concatenations = 0

    def __len__(self) -> int:
        return self._count

    def add(self, group_id: str, encoded: bytes) -> None:
        """Adds a group that is not present."""
        shard = hash(group_id) % SHARDS
        self._shards.setdefault(shard, {})[group_id] = encoded
        self._concatenated.pop(shard, None)
        self._count += 1

    def remove(self, group_id: str) -> int:
        """Removes a group if it is present. Returns its size in bytes."""
        shard = hash(group_id) % SHARDS
        encoded = self._shards.get(shard, {}).pop(group_id, None)
        if encoded is None:
            return 0
        self._concatenated.pop(shard, None)
        self._count -= 1
        return len(encoded)

    def concatenated(self) -> Iterator[bytes]:
        """Yields the concatenated groups of each shard."""
        for shard in self._shards:
            self.concatenate(shard)
            yield self._concatenated[shard]

    @property
    def shards(self) -> list[int]:
        """The numbers of the shards that are in use."""
        return list(self._shards)

    def concatenate(self, shard: int) -> bool:
        """Concatenates the groups of a shard. Returns False if the kept bytes are still valid."""
        if shard in self._concatenated:
            return False
        self._concatenated[shard] = b"".join(self._shards[shard].values())
        self.concatenations += 1
        return True


def _kind(entry: ListedGroup) -> _Kind:
    return entry.group_state, entry.group_type


def _of_kind(kind: _Kind, protocol_type: str = "") -> ListedGroup:
    return _entry(group_id="", protocol_type=protocol_type, group_state=kind[0], group_type=kind[1])


@lru_cache(maxsize=100)
def _end(kind: _Kind, protocol_type: str, version: int) -> bytes:
    """Returns the bytes that follow the name in an encoded group. Nearly all groups share a few protocol types."""
    nameless = encode_group(_of_kind(kind, protocol_type), version)
    return nameless[len(_name(version)("")) :]


def _name(version: int) -> Callable[[str], bytes]:
    """Returns the function that encodes a group's name."""
    return encode_compact_string if version >= ListGroupsResponse.FLEXIBLE else encode_string
