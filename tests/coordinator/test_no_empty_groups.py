"""Brokers before 0.10.1 remove a group with its last member. No reply shows the offsets that remain."""

from collections.abc import Iterable

import pytest

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.offsets_topic import GroupKey, KeyType, encode_key, encode_value
from group_sidecar.codecs.offsets_topic_values import GroupMetadataValue, MemberMetadata
from group_sidecar.codecs.schema import decode
from group_sidecar.coordinator.answers.group_replies import describe_groups
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.events import DescribedMember, GroupDescribed, GroupsListed, MembersLeft
from group_sidecar.coordinator.model.views import FallbackReason, GroupState
from tests.coordinator.log.test_follower import T0, Reader, gone, offset
from tests.coordinator.model_log import Entry, batch


def described(manager: GroupMetadataManager, state: GroupState, at: float, *members: str) -> None:
    """Applies the broker's description of group g."""
    described_members = tuple(
        DescribedMember(member_id=m, instance_id=None, client_id="c", client_host="/h", metadata=b"", assignment=b"")
        for m in members
    )
    kind, as_of = "consumer" if members else "", manager.changes_of("g")[0]
    event = GroupDescribed(
        group_id="g", sent_at=at, state=state, protocol_type=kind, protocol="", members=described_members, as_of=as_of
    )
    manager.apply([event], at)


def generation(number: int, *members: str) -> Entry:
    """Returns the record of a generation of group g."""
    logged_members = tuple(
        MemberMetadata(
            member_id=m, client_id="c", client_host="/h", session_timeout=9000, subscription=b"", assignment=b""
        )
        for m in members
    )
    value = GroupMetadataValue(
        protocol_type="consumer", generation=number, protocol="range", leader=members[0], members=logged_members
    )
    return encode_key(KeyType.GROUP_METADATA, GroupKey(group_id="g")), encode_value(value, 0)


def old(load: Iterable[Entry] = ()) -> Reader:
    """Returns an exclusive copy of a broker without empty groups."""
    reader = Reader(exclusive=True, load=load)
    reader.manager.keep_empty_groups(False)
    return reader


@pytest.mark.parametrize("keeps", [False, True])
def test_dead_group_may_have_offsets(keeps: bool) -> None:
    """A group described as Dead stays Empty with its offsets at a broker that does not keep empty groups."""
    reader = Reader(exclusive=True, load=[offset(0, 5)])
    reader.manager.keep_empty_groups(keeps)
    described(reader.manager, GroupState.DEAD, 1)
    view = reader.manager.view("g", 1)
    assert (view.state, view.fallback_reason) == (GroupState.DEAD if keeps else GroupState.EMPTY, None)
    if not keeps:
        assert reader.offsets(1) == {T0: 5}


def test_dead_group_without_offsets_is_missing() -> None:
    """A Dead group without offsets does not exist in the copy."""
    reader = old()
    described(reader.manager, GroupState.DEAD, 1)
    assert reader.manager.existing("g", 1) is None


def test_type_outlasts_group_record() -> None:
    """The group keeps its protocol type after its record is removed."""
    reader = old([generation(3, "m"), offset(0, 5)])
    described(reader.manager, GroupState.STABLE, 1, "m")
    reader.read(gone(), at=2)
    view = reader.manager.view("g", 2)
    assert (view.state, view.protocol_type, view.generation, view.members) == (GroupState.EMPTY, "consumer", 0, ())


def test_next_life_starts_at_first_generation() -> None:
    """A group that is recreated from the log starts with generation 1 and only its new members."""
    reader = old([generation(3, "m"), offset(0, 5)])
    manager = reader.manager
    described(manager, GroupState.STABLE, 1, "m")
    manager.apply([MembersLeft(group_id="g", sent_at=2, members=(("m", None),))], 2)
    assert manager.view("g", 2).state is GroupState.EMPTY
    reader.read(gone(), generation(1, "n"), at=3)
    view = manager.view("g", 3)
    assert (view.generation, [member.member_id for member in view.members]) == (1, ["n"])


def test_unlisted_group_may_have_offsets() -> None:
    """Without the log, an unlisted group has COLD offsets at a broker that does not keep empty groups."""
    for keeps, lacking in ((True, None), (False, FallbackReason.COLD)):
        manager = GroupMetadataManager(exclusive=True)
        manager.keep_empty_groups(keeps)
        manager.set_existing_groups(())
        manager.apply([GroupsListed(groups=frozenset(), sent_at=1, as_of=manager.note_count)], 1)
        assert manager.offsets_fallback_reason("g", 1) is lacking


def test_empty_flag_controls_empty_groups() -> None:
    """With the empty flag, an Empty group is described as Empty and listed, and otherwise described as Dead and not
    listed.
    """
    manager = old([offset(0, 5)]).manager
    described(manager, GroupState.DEAD, 1)
    for empty, state in ((True, "Empty"), (False, "Dead")):
        request = DescribeGroupsRequest(groups=("g",))
        [group] = describe_groups(request, 0, {"g": manager.view("g", 1)}, empty=empty).groups
        assert group.group_state == state
        body = manager.listing(1).reply(ListGroupsRequest(), 0, empty=empty)
        assert len(decode(ListGroupsResponse, 0, body).groups) == empty


def test_earlier_description_survives_load() -> None:
    """A load after a description leaves the group IN_DOUBT, and a repeated description restores the described state."""
    manager = GroupMetadataManager(exclusive=True)
    manager.set_existing_groups(("g",))
    manager.log.count_partitions(1, 0)
    log = manager.log.begin_load(0, 3, 0, 0)
    described(manager, GroupState.PREPARING_REBALANCE, 1, "m", "n")
    list(log.replay(batch(0, [generation(3, "m")])))
    list(manager.log.merge(0, 2))
    list(manager.log.end_reached(0, 2, 2))
    assert manager.view("g", 2).fallback_reason is FallbackReason.IN_DOUBT
    described(manager, GroupState.PREPARING_REBALANCE, 3, "m", "n")
    assert manager.view("g", 3).state is GroupState.PREPARING_REBALANCE
