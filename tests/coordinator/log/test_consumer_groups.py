"""Without the log, the copy follows KIP-848 groups, which may become classic, but answers no question about them."""

from typing import Any

import pytest

from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.events import (
    ConsumerMemberSeen,
    Event,
    GroupDescribed,
    JoinAccepted,
    JoiningMember,
    MemberSeen,
    MembersLeft,
    MemberUnknown,
    RebalanceSeen,
    Synced,
)
from group_sidecar.coordinator.model.facts import Departure, Fact, MemberGone, MemberJoined, RebalanceStarted
from group_sidecar.coordinator.model.views import FallbackReason, GroupKind, GroupState, GroupView
from group_sidecar.coordinator.rules.consumer_members import CONSUMER_SESSION_MS
from tests.coordinator.sweeping import swept

SESSION = CONSUMER_SESSION_MS / 1000
WHO: Any = {"client_id": "c", "client_host": "/h"}


class Copy:
    """A copy to which a test applies events, one per second."""

    def __init__(self) -> None:
        self.manager = GroupMetadataManager(exclusive=True)
        self.manager.set_existing_groups(())
        self.now = 100.0

    def say(self, kind: type[Event], **fields: Any) -> list[Fact]:
        """Applies an event of the group. Returns the facts."""
        self.now += 1
        return self.manager.apply([kind(group_id="g", sent_at=self.now, **fields)], self.now)

    def beat(self, member: str = "m", epoch: int = 1) -> list[Fact]:
        """Applies a heartbeat of a member of the new protocol. With a negative epoch, the member leaves."""
        return self.say(ConsumerMemberSeen, member_id=member, instance_id=None, epoch=epoch, **WHO)

    def join(self, member: str = "m", generation: int = 1) -> list[Fact]:
        """Applies the join of a classic member that is alone in its generation."""
        joining = JoiningMember(
            token="1:1",
            member_id=member,
            instance_id=None,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("range", b"r"),),
            will_park=True,
            **WHO,
        )
        return self.say(
            JoinAccepted,
            joining=joining,
            member_id=member,
            generation=generation,
            protocol_type="consumer",
            protocol="range",
            leader=member,
            roster=((member, None, b"r"),),
        )

    def sync(self, member: str = "m", generation: int = 1) -> list[Fact]:
        """Applies the SyncGroup of a classic member."""
        who = {"member_id": member, "instance_id": None, "generation": generation, **WHO}
        return self.say(Synced, assignment=b"1", assignments={member: b"1"}, **who)

    def classic_beat(self, generation: int = 1) -> list[Fact]:
        """Applies a Heartbeat of a classic member."""
        return self.say(MemberSeen, member_id="m", instance_id=None, generation=generation, no_rebalance=True, **WHO)

    def view(self) -> GroupView:
        """Returns the current view of the group."""
        return self.manager.view("g", self.now)

    def members(self) -> set[str]:
        """Returns the ids of the members."""
        return {member.member_id for member in self.view().members}


def test_consumer_member_joins_and_leaves() -> None:
    """A consumer group member joins, stays, leaves and rejoins under the same id. The fallback reason stays VERSION."""
    copy = Copy()
    (joined,) = copy.beat()
    assert isinstance(joined, MemberJoined)
    assert copy.beat(epoch=3) == []
    view = copy.view()
    assert (view.kind, view.state, view.generation) == (GroupKind.CONSUMER, GroupState.STABLE, 3)
    assert (view.protocol_type, view.members[0].client_id) == ("consumer", "c")
    assert (view.fallback_reason, view.offsets_fallback_reason) == (FallbackReason.VERSION, FallbackReason.VERSION)
    assert copy.manager.listing_fallback_reason(copy.now) is FallbackReason.VERSION
    (gone,) = copy.beat(epoch=-1)
    assert isinstance(gone, MemberGone)
    assert gone.how is Departure.LEFT
    assert (copy.view().state, copy.view().fallback_reason) == (GroupState.EMPTY, FallbackReason.VERSION)
    assert copy.beat(epoch=-1) == []
    assert isinstance(copy.beat()[0], MemberJoined), "a consumer chooses its member id itself and keeps it"
    assert copy.view().state is GroupState.STABLE


def test_consumer_expiry_causes_no_rebalance() -> None:
    """A consumer group member expires after the session timeout, and the group stays stable for the other members."""
    copy = Copy()
    copy.beat("a")
    copy.now += SESSION
    copy.beat("b")
    (gone,) = swept(copy.manager, copy.now)
    assert isinstance(gone, MemberGone)
    assert (gone.member_id, gone.how) == ("a", Departure.EXPIRED)
    assert (copy.members(), copy.view().state) == ({"b"}, GroupState.STABLE)
    (joined,) = copy.beat("a")
    assert isinstance(joined, MemberJoined)
    copy.now += SESSION + 1
    assert len(swept(copy.manager, copy.now)) == 2
    assert copy.view().state is GroupState.EMPTY


def test_unknown_member_is_removed() -> None:
    """UNKNOWN_MEMBER_ID for a consumer group member removes this member. Without members, the group is Empty."""
    copy = Copy()
    copy.beat("a")
    copy.beat("b")
    (gone,) = copy.say(MemberUnknown, member_id="a")
    assert isinstance(gone, MemberGone)
    assert (copy.members(), copy.view().state) == ({"b"}, GroupState.STABLE)
    copy.say(MemberUnknown, member_id="b")
    assert copy.view().state is GroupState.EMPTY


@pytest.mark.parametrize("fields", [{"instance_id": "no such instance"}, {"protocol": GroupKind.CLASSIC}])
def test_error_of_odd_request_removes_no_member(fields: dict[str, Any]) -> None:
    """UNKNOWN_MEMBER_ID in reply to a wrong instance id, or to a request of the other protocol, removes no member."""
    copy = Copy()
    copy.beat("a")
    assert copy.say(MemberUnknown, member_id="a", **fields) == []
    assert copy.members() == {"a"}


def test_classic_group_upgrades_to_consumer() -> None:
    """A consumer heartbeat turns a classic group into a consumer group that keeps its classic member."""
    copy = Copy()
    copy.join()
    copy.sync()
    assert copy.view().fallback_reason is None
    copy.beat("new", epoch=2)
    assert (copy.view().kind, copy.view().fallback_reason) == (GroupKind.CONSUMER, FallbackReason.VERSION)
    assert copy.members() == {"m", "new"}


@pytest.mark.parametrize("event", ["join", "sync", "heartbeat", "rebalance"])
def test_classic_events_do_not_change_generation(event: str) -> None:
    """Joins, syncs, heartbeats and rebalances of a classic member report no facts and leave the consumer group's epoch
    unchanged.
    """
    copy = Copy()
    copy.join()
    copy.sync()
    copy.beat("new", epoch=7)
    say = {
        "join": lambda: copy.join("m", 8),
        "sync": lambda: copy.sync("m", 8),
        "heartbeat": lambda: copy.classic_beat(8),
        "rebalance": lambda: copy.say(RebalanceSeen, member_id="m", generation=7, is_heartbeat=True),
    }
    assert say[event]() == []
    view = copy.view()
    assert (view.kind, view.state, view.generation) == (GroupKind.CONSUMER, GroupState.STABLE, 7)
    assert copy.members() == {"m", "new"}


@pytest.mark.parametrize("event", ["heartbeat", "rebalance"])
def test_heartbeats_keep_classic_members_alive(event: str) -> None:
    """A classic member of a consumer group expires unless it sends heartbeats or gets rebalance errors."""
    copy = Copy()
    copy.join()
    copy.sync()
    copy.beat("new")
    for _ in range(4):
        copy.now += 5
        copy.beat("new")
        if event == "heartbeat":
            copy.classic_beat()
        else:
            copy.say(RebalanceSeen, member_id="m", generation=1, is_heartbeat=True)
    assert swept(copy.manager, copy.now) == []
    copy.now += 11
    assert [fact.member_id for fact in swept(copy.manager, copy.now) if isinstance(fact, MemberGone)] == ["m"]


def test_classic_member_joins_consumer_group() -> None:
    """A classic member joins and leaves a consumer group without a rebalance of the other members."""
    copy = Copy()
    copy.beat("new")
    (joined,) = copy.join("m", 2)
    assert isinstance(joined, MemberJoined)
    assert (copy.view().kind, copy.members()) == (GroupKind.CONSUMER, {"m", "new"})
    facts = copy.say(MembersLeft, members=(("m", None),))
    assert [type(fact) for fact in facts] == [MemberGone], "the other members see no rebalance"
    assert copy.view().state is GroupState.STABLE


def test_joined_empty_group_downgrades_to_classic() -> None:
    """A classic join turns an empty consumer group into a classic group."""
    copy = Copy()
    copy.beat(epoch=9)
    copy.beat(epoch=-1)
    facts = copy.join("m", 1)
    assert [type(fact) for fact in facts] == [RebalanceStarted, MemberJoined]
    copy.sync("m", 1)
    view = copy.view()
    assert (view.kind, view.state, view.generation, view.fallback_reason) == (
        GroupKind.CLASSIC,
        GroupState.STABLE,
        1,
        None,
    )


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (GroupState.DEAD, GroupKind.CONSUMER),
        (GroupState.STABLE, GroupKind.CLASSIC),
        (GroupState.EMPTY, GroupKind.CLASSIC),
    ],
)
def test_describe_groups_decides_group_kind(state: GroupState, kind: GroupKind) -> None:
    """DescribeGroups with the state Dead keeps a consumer group, and any other state makes it a classic group."""
    copy = Copy()
    copy.beat()
    as_of = copy.manager.changes_of("g")[0]
    copy.say(GroupDescribed, state=state, protocol_type="consumer", protocol="range", members=(), as_of=as_of)
    assert copy.view().kind is kind
    assert copy.view().state is (GroupState.STABLE if state is GroupState.DEAD else state)
