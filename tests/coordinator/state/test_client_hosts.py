"""The hosts of members: those that the sidecar sees, and the broker's, which are the sidecar's own host."""

from typing import Any

import pytest

from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.describe_groups import (
    DescribeGroupsRequest,
)
from group_sidecar.coordinator.answers.consumer_group_describe import consumer_group_describe
from group_sidecar.coordinator.answers.group_replies import describe_groups
from group_sidecar.coordinator.log.consumer_groups import consumer_group_of
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.events import (
    ConsumerJoinSent,
    ConsumerMemberSeen,
    LeaveSent,
    MemberSeen,
    MembersLeft,
)
from group_sidecar.coordinator.model.facts import Departure, Fact, MemberGone, MemberJoined, RebalanceStarted
from group_sidecar.coordinator.model.views import FallbackReason
from tests.coordinator.model import Broker
from tests.coordinator.restarts import SIGNS, leader_sees_restart, restarted, show_client
from tests.coordinator.rules.test_logged_rebalances import TOPIC, Copy, Group, generation, of
from tests.coordinator.world import Client, World

SIDECAR = "/the-sidecar"
ASKED = DescribeGroupsRequest(groups=("g",))


@pytest.fixture
def world() -> World:
    """A broker that sees one host for all clients."""
    return World(Broker(), seen_at=SIDECAR)


def hosts_of(world: World, *, true_hosts: bool = True) -> dict[str, str]:
    """Returns the hosts by client id in an answer from the copy."""
    reply = describe_groups(ASKED, 5, {"g": world.view()}, true_hosts=true_hosts)
    return {member.client_id: member.client_host for group in reply.groups for member in group.members}


# Classic groups.


def test_member_has_true_and_broker_host(world: World) -> None:
    """A member has its true host from the wire and, after a description, the host that the broker sees."""
    a = Client(world, "a", "g")
    world.gather(a)
    assert (hosts_of(world), hosts_of(world, true_hosts=False)) == ({"a": "/host-of-a"}, {"a": "/host-of-a"}), (
        "no description has reported the broker's host yet"
    )
    world.describe()
    assert (hosts_of(world), hosts_of(world, true_hosts=False)) == ({"a": "/host-of-a"}, {"a": SIDECAR})
    assert [(m.client_host, m.broker_host) for m in world.view().members] == [("/host-of-a", SIDECAR)]


def test_log_gives_broker_host(world: World) -> None:
    """The log gives the host at which the broker sees a member, and the true host stays."""
    world.read_log()
    a = Client(world, "a", "g")
    world.gather(a)
    world.tail.catch_up(world.now())
    assert (hosts_of(world), hosts_of(world, true_hosts=False)) == ({"a": "/host-of-a"}, {"a": SIDECAR})


@pytest.mark.parametrize("sign", SIGNS)
def test_next_request_gives_true_host(world: World, sign: str) -> None:
    """After a sidecar restart, the next request of a member sets its true host and reports no join."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    restarted(world)
    assert hosts_of(world) == {"a": SIDECAR, "b": SIDECAR}, "no member has sent a request since the restart"
    show_client(world, b, sign, a)
    assert hosts_of(world)["b"] == "/host-of-b"
    assert hosts_of(world, true_hosts=False) == {"a": SIDECAR, "b": SIDECAR}
    assert [fact for fact in world.facts if isinstance(fact, MemberJoined | MemberGone)] == [], (
        "the member was in the group all the time"
    )


def test_new_host_replaces_true_host(world: World) -> None:
    """A heartbeat from another host changes the member's true host and the group, and one from the same host changes
    nothing.
    """
    a = Client(world, "a", "g")
    world.gather(a)
    before = world.manager.changes_of("g")
    a.heartbeat()
    world.settle()
    assert world.manager.changes_of("g") == before, "the group is unchanged, so cached replies stay valid"
    a.name = "a-moved"
    a.heartbeat()
    world.settle()
    assert world.manager.changes_of("g") > before
    assert hosts_of(world) == {"a": "/host-of-a-moved"}


def test_static_restart_keeps_broker_host(world: World) -> None:
    """A static member that restarts on another host has its new true host and its old broker host."""
    a, b = Client(world, "a", "g", "i"), Client(world, "b", "g", "j")
    world.gather(a, b)
    world.describe()
    world.broker.groups["g"].members[b.member_id].client_host = "/first"
    world.describe()
    b.restart()
    b.name = "b-back"
    world.gather(a, b)
    assert hosts_of(world) == {"a": "/host-of-a", "b": "/host-of-b-back"}
    assert hosts_of(world, true_hosts=False) == {"a": SIDECAR, "b": "/first"}
    [gone] = [fact for fact in world.facts if isinstance(fact, MemberGone)]
    *_, joined = [fact for fact in world.facts if isinstance(fact, MemberJoined)]
    assert (gone.client_host, joined.client_host) == ("/host-of-b", "/host-of-b-back")


def test_leader_reply_places_static_member(world: World) -> None:
    """The leader's join reply alone gives the true host of a restarted static member."""
    leader_sees_restart(world)
    assert hosts_of(world)["b"] == "/host-of-b-back"
    *_, joined = [fact for fact in world.facts if isinstance(fact, MemberJoined)]
    assert joined.client_host == "/host-of-b-back"


# With `client_host: broker`.


def test_missing_broker_host_is_in_doubt(world: World) -> None:
    """With true_hosts off, a member without a described host makes the group IN_DOUBT until a description."""
    world.manager = GroupMetadataManager(exclusive=True, true_hosts=False)
    world.manager.set_existing_groups(())
    a = Client(world, "a", "g")
    world.gather(a)
    assert world.manager.group_fallback_reason("g", world.now()) is FallbackReason.IN_DOUBT
    assert (world.view().fallback_reason, world.listing()) == (None, None), (
        "neither the state nor the list of groups contains hosts"
    )
    world.describe()
    assert world.manager.group_fallback_reason("g", world.now()) is None
    a.heartbeat()
    world.settle()
    assert hosts_of(world, true_hosts=False) == {"a": SIDECAR}
    b = Client(world, "b", "g")
    world.gather(a, b, steps=10)
    assert world.manager.group_fallback_reason("g", world.now()) is FallbackReason.IN_DOUBT


# Facts.


def test_member_facts_name_true_host(world: World) -> None:
    """Facts about members contain only the true host."""
    world.read_log()
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    world.describe()
    b.leave()
    world.settle()
    world.tail.catch_up(world.now())
    hosts = {(fact.client_id, fact.client_host) for fact in world.facts if isinstance(fact, MemberJoined | MemberGone)}
    assert hosts == {("a", "/host-of-a"), ("b", "/host-of-b")}


@pytest.mark.parametrize("heard", [False, True], ids=["unheard", "heard"])
def test_own_leave_is_not_an_admins(world: World, heard: bool) -> None:
    """A member's own leave is LEFT, even if only its broker host is known."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    restarted(world)
    if heard:
        b.heartbeat()
        world.settle()
    b.leave()
    world.settle()
    [gone] = [fact for fact in world.facts if isinstance(fact, MemberGone)]
    assert (gone.how, gone.client_host) == (Departure.LEFT, "/host-of-b" if heard else SIDECAR)


@pytest.mark.parametrize("events", [(LeaveSent, MembersLeft), (MembersLeft,)])
def test_leave_from_other_host_is_kicked(world: World, events: tuple[type[Any], ...]) -> None:
    """A leave from a host other than the member's true host is reported as REMOVED_BY_CLIENT."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    world.describe()
    leave = {"members": ((b.member_id, None),), "reasons": ("",), "client_id": "b"}
    for kind in events:
        now = world.now()
        world.apply([kind(group_id="g", sent_at=now, client_host=SIDECAR, **leave)], now)
    [gone] = [fact for fact in world.facts if isinstance(fact, MemberGone)]
    assert gone.how is Departure.REMOVED_BY_CLIENT, "true hosts are compared, not the hosts that the broker reports"


# Groups of KIP-848. The broker sees the host "/h" for their members.


def described(copy: Copy, *, true_hosts: bool = True) -> list[str]:
    """Returns the hosts in an answer from the copy."""
    view = consumer_group_of(copy.manager.view("g", copy.now))
    request = ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False)
    reply = consumer_group_describe(request, 1, {"g": view}, {TOPIC: "t"}, true_hosts=true_hosts)
    assert reply is not None
    return [member.client_host for group in reply.groups for member in group.members]


def beat(copy: Copy, member: str, host: str, *, joins: bool = False) -> list[Fact]:
    """Applies a heartbeat of a member of the new protocol with its reply. Returns the facts."""
    who: Any = {"member_id": member, "instance_id": None, "client_id": f"client-{member}", "client_host": host}
    return copy.wire_says(ConsumerMemberSeen, epoch=1, is_join=joins, may_change_group=joins, **who)


def test_consumer_heartbeat_gives_true_host() -> None:
    """A consumer heartbeat sets the member's true host, and log records keep it."""
    group = Group().at(1).member("a", 0).member("b", 1)
    copy = Copy(load=group.write())
    assert described(copy) == ["/h", "/h"]
    assert beat(copy, "b", "/host-of-b") == []
    changes = copy.manager.changes_of("g")
    assert beat(copy, "b", "/host-of-b") == []
    assert copy.manager.changes_of("g") == changes, "the group is unchanged, so cached replies stay valid"
    assert (described(copy), described(copy, true_hosts=False)) == (["/h", "/host-of-b"], ["/h", "/h"])
    assert [m.client_host for m in copy.manager.view("g", copy.now).members] == ["/h", "/host-of-b"]
    copy.log_says(*group.at(2).member("b", 1, 2).write())
    assert described(copy) == ["/h", "/host-of-b"], "log records keep the true host"
    [gone] = of(copy.log_says(*group.at(3).without("b").write()), MemberGone)
    assert gone.client_host == "/host-of-b"


@pytest.mark.parametrize("first", ["log", "reply"])
def test_consumer_join_facts_name_true_host(first: str) -> None:
    """Facts about a new consumer group member contain its true host, whether the log or the reply comes first."""
    group = Group().at(1).member("a", 0)
    copy = Copy(load=group.write())
    joins = group.at(2).member("b", 1)
    facts = copy.wire_says(ConsumerJoinSent, token="t", member_key="b", client_host="/host-of-b")
    if first == "log":
        facts += copy.log_says(*joins.write())
        facts += beat(copy, "b", "/host-of-b", joins=True)
    else:
        facts += beat(copy, "b", "/host-of-b", joins=True)
        facts += copy.log_says(*joins.write())
    assert [(fact.member_id, fact.client_host) for fact in of(facts, MemberJoined)] == [("b", "/host-of-b")]
    [started] = of(facts, RebalanceStarted)
    assert started.by
    assert started.by.client_host == "/host-of-b"
    assert described(copy) == ["/h", "/host-of-b"]


def test_subscription_fact_names_true_host() -> None:
    """A rebalance start caused by a changed subscription contains the member's true host."""
    group = Group().at(1).member("a", 0)
    copy = Copy(load=group.write())
    beat(copy, "a", "/host-of-a")
    [started] = of(copy.log_says(*group.at(2).member("a", 0, topic="other").write()), RebalanceStarted)
    assert started.by
    assert started.by.client_host == "/host-of-a"


def test_classic_member_has_true_host() -> None:
    """A heartbeat of a classic member in a consumer group sets its true host."""
    copy = Copy(load=Group().at(1).member("a", 0).write())
    who: Any = {"member_id": "a", "instance_id": None, "client_id": "client-a", "client_host": "/host-of-a"}
    copy.wire_says(MemberSeen, generation=1, no_rebalance=True, **who)
    assert described(copy) == ["/host-of-a"]


def test_logged_member_has_broker_host() -> None:
    """A member that only the log reports has the broker's host in its facts."""
    copy = Copy()
    [joined] = of(copy.log_says(generation(1, a=(0,))), MemberJoined)
    assert joined.client_host == "/h", "no request of the member may ever pass this sidecar"
