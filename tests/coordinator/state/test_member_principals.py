"""The principals of members. The copy learns them from requests and shows them in views and facts, not in replies."""

from dataclasses import replace
from typing import Any

import pytest

from group_sidecar.coordinator.model.events import ConsumerJoinSent, ConsumerMemberSeen, MemberSeen, RebalanceSeen
from group_sidecar.coordinator.model.facts import MemberGone, MemberJoined, RebalanceCompleted, RebalanceStarted
from tests.coordinator.model import Broker
from tests.coordinator.restarts import SIGNS, leader_sees_restart, restarted, show_client
from tests.coordinator.rules.test_logged_rebalances import Copy, Group, generation, of
from tests.coordinator.world import Client, World


@pytest.fixture
def world() -> World:
    """A broker without groups, and a copy of it. The user of each client has the client's name."""
    return World(Broker())


def principals(world: World) -> dict[str, str]:
    """Returns the principals by client id in a view of the copy."""
    return {member.client_id: member.principal for member in world.view().members}


def seen(world: World, client: Client, principal: str) -> None:
    """Applies an accepted heartbeat of a member under a principal."""
    now = world.now()
    who: Any = {"member_id": client.member_id, "instance_id": None, "client_id": client.name}
    host = f"/host-of-{client.name}"
    event = MemberSeen(
        group_id="g",
        sent_at=now,
        generation=client.generation,
        client_host=host,
        principal=principal,
        no_rebalance=True,
        **who,
    )
    world.apply([event], now)


# Classic groups.


def test_facts_name_principal(world: World) -> None:
    """Facts about members that join and leave, and about rebalances, have the members' principals."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    b.leave()
    world.settle()
    found = {(fact.client_id, fact.principal) for fact in world.facts if isinstance(fact, MemberJoined | MemberGone)}
    assert found == {("a", "User:a"), ("b", "User:b")}
    [gone] = of(world.facts, MemberGone)
    assert gone.principal == "User:b"
    started, completed = of(world.facts, RebalanceStarted), of(world.facts, RebalanceCompleted)
    assert {fact.by.principal for fact in started} == {"User:a", "User:b"}
    assert {fact.slowest.principal for fact in completed if fact.slowest} <= {"User:a", "User:b"}
    assert any(fact.slowest for fact in completed)


@pytest.mark.parametrize("sign", SIGNS)
def test_next_request_gives_principal(world: World, sign: str) -> None:
    """After a restart of the sidecar, a member has no principal until one of its requests has passed."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    restarted(world)
    assert principals(world) == {"a": "", "b": ""}
    show_client(world, b, sign, a)
    assert principals(world)["b"] == "User:b"
    assert of(world.facts, MemberJoined) == of(world.facts, MemberGone) == [], "no member joined or left"


def test_last_request_decides(world: World) -> None:
    """The principal is that of the last request, and is unknown if the user of the last request is unknown."""
    a = Client(world, "a", "g")
    world.gather(a)
    found = []
    for principal in ("User:x", "", "User:y"):
        before = world.manager.changes_of("g")
        seen(world, a, principal)
        assert world.manager.changes_of("g") > before, "views with the old principal are outdated"
        found.append(principals(world)["a"])
    assert found == ["User:x", "", "User:y"]


def test_reply_without_client_keeps_principal(world: World) -> None:
    """A reply that shows only that the group rebalances leaves the principal of the member."""
    a = Client(world, "a", "g")
    world.gather(a)
    now = world.now()
    event = RebalanceSeen(group_id="g", sent_at=now, member_id=a.member_id, generation=a.generation, is_heartbeat=True)
    world.apply([event], now)
    assert principals(world) == {"a": "User:a"}


def test_equal_principals_share_one_text(world: World) -> None:
    """A member keeps the string object of its last request, so that all members of a user share one object. The group
    does not count as changed.
    """
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    text = "".join(["User:", "shared"])
    for client in (a, b):
        seen(world, client, "".join(["User:", "shared"]))
    before = world.manager.changes_of("g")
    for client in (a, b):
        seen(world, client, text)
    assert world.manager.changes_of("g") == before, "the group is unchanged, so cached replies stay valid"
    members = world.manager.group_metadata_cache["g"].members.values()
    assert [member.principal is text for member in members] == [True, True]


def test_static_member_is_back_as_another_user(world: World) -> None:
    """A static member that returns as another user has the new principal, and its old id is reported with the old
    principal.
    """
    a, b = Client(world, "a", "g", "i"), Client(world, "b", "g", "j")
    world.gather(a, b)
    b.restart()
    b.name = "b-back"
    world.gather(a, b)
    assert principals(world) == {"a": "User:a", "b": "User:b-back"}
    [gone] = of(world.facts, MemberGone)
    *_, joined = of(world.facts, MemberJoined)
    assert (gone.principal, joined.principal) == ("User:b", "User:b-back")


def test_leader_reply_gives_principal_of_static_member(world: World) -> None:
    """The leader's reply alone gives the principal of a restarted static member."""
    leader_sees_restart(world)
    assert principals(world)["b"] == "User:b-back"


def test_member_of_log_has_no_principal() -> None:
    """A member that only the log shows has no principal."""
    [joined] = of(Copy().log_says(generation(1, a=(0,))), MemberJoined)
    assert joined.principal == ""


# Groups of KIP-848.


def test_consumer_members_have_principals() -> None:
    """A heartbeat gives the principal of a KIP-848 member, and records of the log keep it."""
    group = Group().at(1).member("a", 0).member("b", 1)
    copy = Copy(load=group.write())
    event: Any = {"instance_id": None, "client_id": "client-b", "client_host": "/h", "epoch": 1}
    copy.wire_says(ConsumerMemberSeen, member_id="b", may_change_group=False, principal="User:b", **event)
    changes = copy.manager.changes_of("g")
    copy.wire_says(ConsumerMemberSeen, member_id="b", may_change_group=False, principal="User:b", **event)
    assert copy.manager.changes_of("g") == changes, "the group is unchanged, so cached replies stay valid"
    assert principals_of(copy) == {"a": "", "b": "User:b"}
    copy.log_says(*group.at(2).member("b", 1, 2).write())
    assert principals_of(copy) == {"a": "", "b": "User:b"}
    [gone] = of(copy.log_says(*group.at(3).without("b").write()), MemberGone)
    assert gone.principal == "User:b"


def principals_of(copy: Copy) -> dict[str, str]:
    """Returns the principals by member id in the view of a KIP-848 group, which equal those of the copy."""
    view = copy.manager.view("g", copy.now)
    assert view.consumer is not None
    found = {member.member_id: member.principal for member in view.consumer.members}
    assert found == {member.member_id: member.principal for member in view.members}
    return found


@pytest.mark.parametrize("first", ["log", "reply"])
def test_consumer_join_facts_name_principal(first: str) -> None:
    """Facts about a new KIP-848 member have its principal, whether the log or the reply comes first."""
    group = Group().at(1).member("a", 0)
    copy = Copy(load=group.write())
    joins = group.at(2).member("b", 1)
    client: Any = {"client_host": "/host-of-b", "principal": "User:b"}
    facts = copy.wire_says(ConsumerJoinSent, token="t", member_key="b", **client)
    heartbeat: Any = {"member_id": "b", "instance_id": None, "client_id": "client-b", "epoch": 2, "is_join": True}
    if first == "log":
        facts += copy.log_says(*joins.write())
        facts += copy.wire_says(ConsumerMemberSeen, **heartbeat, **client)
    else:
        facts += copy.wire_says(ConsumerMemberSeen, **heartbeat, **client)
        facts += copy.log_says(*joins.write())
    [joined], [started] = of(facts, MemberJoined), of(facts, RebalanceStarted)
    assert (joined.principal, started.by.principal) == ("User:b", "User:b")
    assert principals_of(copy) == {"a": "", "b": "User:b"}


def test_consumer_member_without_log_has_principal() -> None:
    """Without the log, the first heartbeat of a KIP-848 member gives its principal."""
    world = World(Broker())
    now = world.now()
    client: Any = {"client_id": "c", "client_host": "/h", "principal": "User:c"}
    event = ConsumerMemberSeen(
        group_id="g", sent_at=now, member_id="m", instance_id=None, epoch=1, is_join=True, **client
    )
    world.apply([event], now)
    assert principals(world) == {"c": "User:c"}
    later = world.now()
    world.apply([replace(event, sent_at=later, is_join=False, principal="User:d")], later)
    assert principals(world) == {"c": "User:d"}
    assert [fact.principal for fact in of(world.facts, MemberJoined)] == ["User:c"]
