"""The maintained list of groups equals a newly built list."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.schema import decode
from group_sidecar.coordinator.answers.list_groups import GROUPS_PER_STEP, Listing, ListingEntry
from group_sidecar.coordinator.model.events import FOREVER
from group_sidecar.coordinator.model.views import FallbackReason, GroupKind, GroupState, GroupView
from tests.coordinator.plain_list import entry, list_groups

IDS = ("a", "b", "c")
VERSIONS = ListGroupsResponse.VERSIONS


@dataclass(frozen=True)
class Plain:
    """A group that is in doubt from `doubtful_from` on."""

    state: GroupState = GroupState.EMPTY
    kind: GroupKind = GroupKind.CLASSIC
    protocol_type: str = ""
    doubtful_from: float = FOREVER

    def view(self, group_id: str) -> GroupView:
        return GroupView(group_id=group_id, state=self.state, kind=self.kind, protocol_type=self.protocol_type)

    def doubt_at(self, now: float) -> FallbackReason | None:
        return FallbackReason.IN_DOUBT if now >= self.doubtful_from else None


class World:
    """Groups, and the listing that is notified of changes."""

    def __init__(self) -> None:
        self.groups: dict[str, Plain] = {}
        self.looks = 0
        self.changed: set[str] = set()
        self.listing = Listing(self.look, self.changed)

    def look(self, group_id: str, now: float) -> ListingEntry:
        self.looks += 1
        group = self.groups.get(group_id)
        if group is None:
            return ListingEntry(None)
        doubt_at = group.doubt_at(now)
        return ListingEntry(entry(group.view(group_id)), doubt_at, FOREVER if doubt_at else group.doubtful_from)

    def put(self, group_id: str, group: Plain | None) -> None:
        if group is None:
            self.groups.pop(group_id, None)
        else:
            self.groups[group_id] = group
        self.changed.add(group_id)

    def reported(self, request: ListGroupsRequest, version: int) -> set[ListedGroup]:
        reply = decode(ListGroupsResponse, version, self.listing.reply(request, version))
        assert reply.error_code == reply.throttle_time_ms == 0
        assert len(reply.groups) == len(set(reply.groups))
        return set(reply.groups)

    def rebuilt(self, request: ListGroupsRequest, version: int) -> set[ListedGroup]:
        """Returns the list, newly built from all groups."""
        views = (group.view(name) for name, group in self.groups.items())
        groups = list_groups(request, views)
        return {
            replace(each, group_state=each.group_state * (version >= 4), group_type=each.group_type * (version >= 5))
            for each in groups
        }


PLAIN = st.builds(
    Plain,
    state=st.sampled_from(GroupState),
    kind=st.sampled_from(GroupKind),
    protocol_type=st.sampled_from(["", "consumer", "connect"]),
    doubtful_from=st.integers(0, 12).map(float) | st.just(FOREVER),
)
REQUESTS = st.builds(
    ListGroupsRequest,
    states_filter=st.lists(st.sampled_from(["Stable", " empty", "DEAD", "none such"]), max_size=2).map(tuple),
    types_filter=st.lists(st.sampled_from(["classic", "Consumer", "none such"]), max_size=2).map(tuple),
)
STEPS = st.lists(
    st.tuples(st.just("put"), st.sampled_from(IDS), st.none() | PLAIN)
    | st.tuples(st.just("hear"), st.sampled_from(IDS), st.integers(0, 12).map(float))
    | st.tuples(st.just("pass"), st.integers(1, 4), st.none())
    | st.tuples(st.just("ask"), st.sampled_from(VERSIONS), REQUESTS),
    max_size=20,
)


@given(STEPS)
def test_listing_matches_fresh_list(steps: list[tuple[str, object, object]]) -> None:
    """The cached listing equals a list built from scratch, and reports IN_DOUBT if and only if a group is in doubt."""
    world, now = World(), 0.0
    for what, one, other in steps:
        if what == "put":
            assert isinstance(one, str)
            assert other is None or isinstance(other, Plain)
            world.put(one, other)
        elif what == "hear":
            assert isinstance(one, str)
            assert isinstance(other, float)
            if (group := world.groups.get(one)) is not None:  # A request of a member always postpones the doubt.
                world.groups[one] = replace(group, doubtful_from=max(group.doubtful_from, other))
        elif what == "pass":
            assert isinstance(one, int)
            now += one
        else:
            assert isinstance(one, int)
            assert isinstance(other, ListGroupsRequest)
            world.listing.refresh(now)
            doubtful = {group.doubt_at(now) for group in world.groups.values()} - {None}
            assert world.listing.fallback_reason(now) == (FallbackReason.IN_DOUBT if doubtful else None)
            assert world.reported(other, one) == world.rebuilt(other, one)


def test_refresh_checks_only_changed_groups() -> None:
    """A refresh evaluates only groups that changed or whose doubt deadline has passed."""
    world = World()
    for name in IDS:
        world.put(name, Plain(doubtful_from=10.0))
    world.listing.refresh(1.0)
    assert world.looks == 3
    world.listing.refresh(9.0)
    assert world.looks == 3
    world.put("a", Plain(doubtful_from=20.0))
    world.listing.refresh(9.5)
    assert world.looks == 4
    world.listing.refresh(10.0)
    assert world.looks == 7  # Group a is evaluated once more without a change, because its former deadline has passed.


def test_listing_updates_in_steps() -> None:
    """update_in_steps evaluates GROUPS_PER_STEP groups per step, for changed groups and for groups in doubt."""
    world = World()
    for number in range(GROUPS_PER_STEP + 50):
        world.put(f"g{number}", Plain(doubtful_from=5.0))
    for _ in world.listing.update_in_steps(1.0):
        assert world.looks == GROUPS_PER_STEP
    assert world.looks == GROUPS_PER_STEP + 50
    world.listing.refresh(1.0)
    assert world.looks == GROUPS_PER_STEP + 50
    assert [None for _ in world.listing.update_in_steps(6.0)] == [None]
    assert world.listing.fallback_reason(6.0) is FallbackReason.IN_DOUBT
    world.groups = dict.fromkeys(world.groups, Plain())
    looks = world.looks
    assert [None for _ in world.listing.update_in_steps(7.0)] == [None]
    assert world.looks == looks + GROUPS_PER_STEP + 50
    assert world.listing.fallback_reason(7.0) is None
    assert world.looks == looks + GROUPS_PER_STEP + 50


def test_only_changed_shard_is_concatenated_again() -> None:
    """Only the shard of a changed group is concatenated again: for all of 100,000 groups, this took 10 ms."""
    world, request = World(), ListGroupsRequest()
    for number in range(1000):
        world.put(f"group-{number}", Plain())
    world.listing.refresh(1.0)
    assert len(decode(ListGroupsResponse, 4, world.listing.reply(request, 4)).groups) == 1000
    (groups,) = world.listing._form(4).kinds.values()
    first = groups.concatenations
    assert first == len(groups.shards)
    world.put("group-7", None)
    world.listing.refresh(2.0)
    for _ in world.listing.update_in_steps(2.0):
        pass
    assert groups.concatenations == first + 1
    reported = decode(ListGroupsResponse, 4, world.listing.reply(request, 4))
    assert {group.group_id for group in reported.groups} == {f"group-{n}" for n in range(1000)} - {"group-7"}
    assert groups.concatenations == first + 1


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_many_protocol_types_share_one_form(version: int) -> None:
    """Groups with 200 different protocol types are encoded as one kind, so that invented protocol types do not slow a
    list down.
    """
    world, request = World(), ListGroupsRequest()
    for number in range(200):
        world.put(f"group-{number}", Plain(protocol_type=f"made-up-{number}"))
    world.listing.refresh(1.0)
    assert world.reported(request, version) == world.rebuilt(request, version)
    assert len(world.listing._form(version).kinds) == 1


def test_earlier_doubt_is_noticed() -> None:
    """A refresh notices a group whose doubt deadline has moved to an earlier time."""
    world = World()
    world.put("a", Plain(doubtful_from=10.0))
    world.listing.refresh(1.0)
    world.put("a", Plain(doubtful_from=5.0))
    world.listing.refresh(2.0)
    assert world.listing.fallback_reason(2.0) is None
    world.listing.refresh(6.0)
    assert world.listing.fallback_reason(6.0) is FallbackReason.IN_DOUBT


@pytest.mark.parametrize("version", VERSIONS)
def test_changed_group_is_encoded_again(version: int) -> None:
    """A group whose protocol type changes is listed with its new protocol type."""
    world, request = World(), ListGroupsRequest()
    for protocol_type in ("", "consumer", "connect"):
        world.put("a", Plain(protocol_type=protocol_type))
        world.listing.refresh(0.0)
        assert world.reported(request, version) == world.rebuilt(request, version)


def test_one_doubtful_group_is_checked_again() -> None:
    """Each call of fallback_reason re-evaluates groups in doubt only until the first group that is still in doubt."""
    world = World()
    for name in IDS:
        world.put(name, Plain(doubtful_from=1.0))
    world.listing.refresh(2.0)
    assert world.listing.fallback_reason(2.0) is FallbackReason.IN_DOUBT
    assert world.looks == 4
    world.groups = dict.fromkeys(IDS, Plain())
    assert world.listing.fallback_reason(3.0) is None
    assert world.looks == 7
    assert world.listing.fallback_reason(3.0) is None
    assert world.looks == 7


@pytest.mark.parametrize("version", VERSIONS)
def test_revision_changes_with_listing(version: int) -> None:
    """The listing's revision grows if a group changes or disappears, and stays the same if a group is set to the same
    state.
    """
    world = World()
    world.put("a", Plain())
    world.listing.refresh(0.0)
    before, reply = world.listing.revision, world.listing.reply(ListGroupsRequest(), version)
    world.put("a", Plain())
    world.listing.refresh(0.0)
    assert world.listing.revision == before
    assert world.listing.reply(ListGroupsRequest(), version) == reply
    world.put("a", Plain(protocol_type="consumer"))
    world.listing.refresh(0.0)
    assert world.listing.revision > before
    before = world.listing.revision
    world.put("a", None)
    world.listing.refresh(0.0)
    assert world.listing.revision > before


# The contents of the list.


def view(group_id: str, state: GroupState = GroupState.STABLE, **more: Any) -> GroupView:
    return GroupView(group_id=group_id, state=state, **({"protocol_type": "consumer"} | more))


LISTED = (
    view("stable"),
    view("empty", GroupState.EMPTY, protocol_type=""),
    view("new", GroupState.STABLE, kind=GroupKind.CONSUMER),
    view("busy", GroupState.PREPARING_REBALANCE),
)


def listed(views: Iterable[GroupView], request: ListGroupsRequest, version: int) -> ListGroupsResponse:
    """Returns the ListGroups reply about these groups, as a client decodes it."""
    entries = {each.group_id: entry(each) for each in views}
    listing = Listing(lambda group_id, now: ListingEntry(entries[group_id]), set(entries))
    listing.refresh(0.0)
    return decode(ListGroupsResponse, version, listing.reply(request, version))


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ((), (), ["stable", "empty", "new", "busy"]),
        (("Stable",), (), ["stable", "new"]),
        (("sTaBLe", "EMPTY"), (), ["stable", "empty", "new"]),
        ((" Empty ",), (), ["empty"]),
        (("preparingrebalance",), (), ["busy"]),
        (("bogus",), (), []),
        (("",), (), []),
        (("bogus", "Empty"), (), ["empty"]),
        ((), ("classic",), ["stable", "empty", "busy"]),
        ((), ("CONSUMER",), ["new"]),
        ((), (" classic ",), []),
        ((), ("",), []),
        ((), ("bogus",), []),
        (("stable",), ("classic",), ["stable"]),
        (("empty",), ("consumer",), []),
    ],
)
def test_filters_select_groups(states: tuple[str, ...], types: tuple[str, ...], found: list[str]) -> None:
    """ListGroups selects groups by state filters and type filters as Kafka does: case-insensitive, and with trimmed
    states.
    """
    reply = listed(LISTED, ListGroupsRequest(states_filter=states, types_filter=types), 5)
    assert sorted(each.group_id for each in reply.groups) == sorted(found)
    assert reply.error_code == 0


@pytest.mark.parametrize("version", range(6))
def test_listed_fields_by_version(version: int) -> None:
    """ListGroups reports group states since v4 and group types since v5."""
    reply = listed(LISTED[1:3], ListGroupsRequest(), version)
    states, types = version >= 4, version >= 5
    assert replace(reply, groups=tuple(sorted(reply.groups, key=lambda each: each.group_id))) == ListGroupsResponse(
        error_code=0,
        groups=(
            ListedGroup(
                group_id="empty",
                protocol_type="",
                group_state="Empty" if states else "",
                group_type="classic" if types else "",
            ),
            ListedGroup(
                group_id="new",
                protocol_type="consumer",
                group_state="Stable" if states else "",
                group_type="consumer" if types else "",
            ),
        ),
    )


def test_groups_with_one_difference_stay_apart() -> None:
    """Groups that differ only in kind, state or protocol type are listed with their own fields."""
    world = World()
    for number, group in enumerate(
        (
            Plain(),
            Plain(kind=GroupKind.CONSUMER),
            Plain(state=GroupState.STABLE),
            Plain(protocol_type="consumer"),
            Plain(),
        )
    ):
        world.put("g" * (number + 1), group)
    world.listing.refresh(0.0)
    for version in VERSIONS:
        assert world.reported(ListGroupsRequest(), version) == world.rebuilt(ListGroupsRequest(), version)


def test_first_doubtful_group_in_constant_time() -> None:
    """Reasons are kept in an OrderedDict, because finding the first entry of a dict gets slow after many deletions."""
    assert isinstance(Listing(lambda _, now: ListingEntry(None), set())._fallback_reasons, OrderedDict)
