"""Groups of the new protocol (KIP-848): counted and shown, never answered for; and how they turn into classic ones."""

from typing import Any

import pytest

from group_sidecar.coordinator.events import (
    ConsumerMemberSeen,
    Event,
    GroupDescribed,
    JoinAccepted,
    Joining,
    MemberSeen,
    MembersLeft,
    MemberUnknown,
    RebalanceSeen,
    Synced,
)
from group_sidecar.coordinator.facts import Departure, Fact, MemberGone, MemberJoined, RebalanceStarted
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.membership import CONSUMER_SESSION_MS
from group_sidecar.coordinator.views import GroupKind, GroupState, GroupView, Lacking
from tests.coordinator.sweeping import swept

SESSION = CONSUMER_SESSION_MS / 1000
WHO: Any = {"client_id": "c", "client_host": "/h"}


class Copy:
    """A copy to which events happen one after the other, a second apart."""

    def __init__(self) -> None:
        self.manager = GroupMetadataManager(exclusive=True)
        self.manager.inherit(())
        self.now = 100.0

    def say(self, kind: type[Event], **fields: Any) -> list[Fact]:
        """Something happens to the group."""
        self.now += 1
        return self.manager.apply([kind(group_id="g", sent_at=self.now, **fields)], self.now)

    def beat(self, member: str = "m", epoch: int = 1) -> list[Fact]:
        """A member of the new protocol says that it is alive, or leaves."""
        return self.say(ConsumerMemberSeen, member_id=member, instance_id=None, epoch=epoch, **WHO)

    def join(self, member: str = "m", generation: int = 1) -> list[Fact]:
        """A classic member, alone in its generation, has joined."""
        joining = Joining(
            token="1:1",
            member_id=member,
            instance_id=None,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("range", b"r"),),
            parks=True,
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
        """A classic member has synced."""
        who = {"member_id": member, "instance_id": None, "generation": generation, **WHO}
        return self.say(Synced, assignment=b"1", assignments={member: b"1"}, **who)

    def classic_beat(self, generation: int = 1) -> list[Fact]:
        """A classic member says that it is alive."""
        return self.say(MemberSeen, member_id="m", instance_id=None, generation=generation, steady=True, **WHO)

    def view(self) -> GroupView:
        """The group now."""
        return self.manager.view("g", self.now)

    def members(self) -> set[str]:
        """Their ids."""
        return {member.member_id for member in self.view().members}


def test_a_member_joins_stays_and_leaves() -> None:
    copy = Copy()
    (joined,) = copy.beat()
    assert isinstance(joined, MemberJoined)
    assert copy.beat(epoch=3) == []
    view = copy.view()
    assert (view.kind, view.state, view.generation) == (GroupKind.CONSUMER, GroupState.STABLE, 3)
    assert (view.protocol_type, view.members[0].client_id) == ("consumer", "c")
    assert (view.lacking, view.offsets_lacking) == (Lacking.VERSION, Lacking.VERSION)
    assert copy.manager.listing_lacking(copy.now) is Lacking.VERSION
    (gone,) = copy.beat(epoch=-1)
    assert isinstance(gone, MemberGone)
    assert gone.how is Departure.LEFT
    assert (copy.view().state, copy.view().lacking) == (GroupState.EMPTY, Lacking.VERSION)
    assert copy.beat(epoch=-1) == []
    assert isinstance(copy.beat()[0], MemberJoined), "with the same id, which the client makes"
    assert copy.view().state is GroupState.STABLE


def test_members_expire_without_a_rebalance_of_the_others() -> None:
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


def test_the_broker_does_not_know_a_member() -> None:
    copy = Copy()
    copy.beat("a")
    copy.beat("b")
    (gone,) = copy.say(MemberUnknown, member_id="a")
    assert isinstance(gone, MemberGone)
    assert (copy.members(), copy.view().state) == ({"b"}, GroupState.STABLE)
    copy.say(MemberUnknown, member_id="b")
    assert copy.view().state is GroupState.EMPTY


def test_a_classic_group_becomes_one() -> None:
    copy = Copy()
    copy.join()
    copy.sync()
    assert copy.view().lacking is None
    copy.beat("new", epoch=2)
    assert (copy.view().kind, copy.view().lacking) == (GroupKind.CONSUMER, Lacking.VERSION)
    assert copy.members() == {"m", "new"}


@pytest.mark.parametrize("event", ["join", "sync", "heartbeat", "rebalance"])
def test_classic_members_of_one_have_no_generations(event: str) -> None:
    copy = Copy()
    copy.join()
    copy.sync()
    copy.beat("new", epoch=7)
    say = {
        "join": lambda: copy.join("m", 8),
        "sync": lambda: copy.sync("m", 8),
        "heartbeat": lambda: copy.classic_beat(8),
        "rebalance": lambda: copy.say(RebalanceSeen, member_id="m", generation=7, alive=True),
    }
    assert say[event]() == []
    view = copy.view()
    assert (view.kind, view.state, view.generation) == (GroupKind.CONSUMER, GroupState.STABLE, 7)
    assert copy.members() == {"m", "new"}


@pytest.mark.parametrize("event", ["heartbeat", "rebalance"])
def test_classic_members_of_one_are_kept_alive(event: str) -> None:
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
            copy.say(RebalanceSeen, member_id="m", generation=1, alive=True)
    assert swept(copy.manager, copy.now) == []
    copy.now += 11
    assert [fact.member_id for fact in swept(copy.manager, copy.now) if isinstance(fact, MemberGone)] == ["m"]


def test_a_new_classic_member_of_one() -> None:
    copy = Copy()
    copy.beat("new")
    (joined,) = copy.join("m", 2)
    assert isinstance(joined, MemberJoined)
    assert (copy.view().kind, copy.members()) == (GroupKind.CONSUMER, {"m", "new"})
    facts = copy.say(MembersLeft, members=(("m", None),))
    assert [type(fact) for fact in facts] == [MemberGone], "the others see no rebalance"
    assert copy.view().state is GroupState.STABLE


def test_an_empty_one_that_is_joined_becomes_classic() -> None:
    copy = Copy()
    copy.beat(epoch=9)
    copy.beat(epoch=-1)
    facts = copy.join("m", 1)
    assert [type(fact) for fact in facts] == [RebalanceStarted, MemberJoined]
    copy.sync("m", 1)
    view = copy.view()
    assert (view.kind, view.state, view.generation, view.lacking) == (GroupKind.CLASSIC, GroupState.STABLE, 1, None)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (GroupState.DEAD, GroupKind.CONSUMER),
        (GroupState.STABLE, GroupKind.CLASSIC),
        (GroupState.EMPTY, GroupKind.CLASSIC),
    ],
)
def test_describe_groups_knows_classic_ones_only(state: GroupState, kind: GroupKind) -> None:
    copy = Copy()
    copy.beat()
    as_of = copy.manager.changes_of("g")[0]
    copy.say(GroupDescribed, state=state, protocol_type="consumer", protocol="range", members=(), as_of=as_of)
    assert copy.view().kind is kind
    assert copy.view().state is (GroupState.STABLE if state is GroupState.DEAD else state)
