"""What ListGroups tells of all groups, kept as it was last told.

Owns: `Listing`: each group's entry, decoded and encoded, why the list may not be told, and which groups must be looked
at again. Must not know: how a group comes to its state, what happens to it.

To look at 10,000 groups costs 50 ms, and to encode them another 50. So a list costs the groups that have changed since
the last one, or whose time has come, and joining the bytes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
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
from group_sidecar.coordinator.events import FOREVER
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.states import EMPTY
from group_sidecar.coordinator.views import GroupState, Lacking

_entry = maker(ListedGroup)
AT_ONCE = 100
"""Groups that are looked at between two breaths: about a millisecond."""


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

    Attributes:
        revision: grows with every change of what is listed.
    """

    def __init__(self, look: Callable[[str, float], Listed], changed: set[str]) -> None:
        self.revision = 0
        self._look = look
        self._changed = changed
        self._entries: dict[str, ListedGroup] = {}
        self._lacking: dict[str, Lacking] = {}
        self._due: dict[str, float] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._encoded: dict[int, dict[str, bytes]] = {}

    def refresh(self, now: float) -> None:
        """Looks at what was touched, and at what may be in doubt by now."""
        self._notice_due(now)
        while self._changed:
            self._look_at(self._changed.pop(), now)

    def tend(self, now: float) -> Iterator[None]:
        """As `refresh` and `lacking`, some groups at a time, so that not all is left to who asks for the list."""
        self._notice_due(now)
        for done in count(1):
            if self._changed:
                self._look_at(self._changed.pop(), now)
            elif not self._lacking or self._look_at(next(iter(self._lacking)), now):
                return
            if done % AT_ONCE == 0:
                yield

    def lacking(self, now: float) -> Lacking | None:
        """Why the list may not be told, after a refresh; None where it may.

        A doubt may be over without a word: so what was in doubt is looked at until something is found that still is.
        """
        while self._lacking:
            if reason := self._look_at(next(iter(self._lacking)), now):
                return reason
        return None

    def reply(self, request: ListGroupsRequest, version: int, *, empty: bool = True) -> bytes:
        """The body of the answer, as of the last refresh. `empty`: whether to tell of Empty groups."""
        encoded = self._encoded.setdefault(form(version), {})
        if len(encoded) < len(self._entries):
            encoded |= _encoded({id_: e for id_, e in self._entries.items() if id_ not in encoded}, version)
        if empty and not request.states_filter and not request.types_filter:
            return encode_list(encoded.values(), version)
        asked = asked_for(request)
        told = (id_ for id_, entry in self._entries.items() if asked(entry) and (empty or entry.group_state != EMPTY))
        return encode_list([encoded[group_id] for group_id in told], version)

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
        if listed.entry == self._entries.get(group_id):
            return
        self.revision += 1
        for encoded in self._encoded.values():
            encoded.pop(group_id, None)
        if listed.entry is None:
            del self._entries[group_id]
        else:
            self._entries[group_id] = listed.entry


def _encoded(entries: Mapping[str, ListedGroup], version: int) -> dict[str, bytes]:
    """Groups as a list has them. All but a group's name is the same in many."""
    name = compact_text if version >= ListGroupsResponse.FLEXIBLE else text
    found: dict[str, bytes] = {}
    ends: dict[tuple[str, str, str], bytes] = {}
    for group_id, entry in entries.items():
        kind = entry.protocol_type, entry.group_state, entry.group_type
        end = ends.get(kind)
        if end is None:
            end = ends[kind] = encode_group(replace(entry, group_id=""), version)[len(name("")) :]
        found[group_id] = name(group_id) + end
    return found
