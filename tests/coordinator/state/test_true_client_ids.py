"""Facts name the client that sends a static member's requests.

Descriptions keep the client id of the first join, as the broker does (KIP-345).
"""

import pytest

from group_sidecar.coordinator.model.facts import MemberGone, MemberJoined, RebalanceStarted
from group_sidecar.coordinator.state.member import DEFAULT_SESSION_TIMEOUT_MS
from tests.coordinator.model import Broker
from tests.coordinator.restarts import SIGNS, leader_sees_restart, restarted, show_client
from tests.coordinator.rules.test_causes import of
from tests.coordinator.world import Client, World


def _replaced(*others: str) -> tuple[World, Client, list[Client]]:
    """A client `host-b` takes over the instance id of the client `host-a`. Returns the world, the client and others."""
    world = World(Broker())
    static, more = Client(world, "host-a", "g", "same"), [Client(world, name, "g") for name in others]
    world.gather(static, *more, steps=8)
    world.facts.clear()
    static.restart()
    static.name = "host-b"
    world.gather(static, *more)
    return world, static, more


def _ends(world: World) -> None:
    """The sessions of all members end, also those whose timeout the copy does not know."""
    world.pass_time(DEFAULT_SESSION_TIMEOUT_MS / 1000 + 1)
    world.sweep()


def _clients(world: World, kind: type[MemberJoined | MemberGone]) -> list[str]:
    return [fact.client_id for fact in of(world, kind)]


@pytest.mark.parametrize("others", [(), ("other",)])
def test_facts_name_the_client_that_joined(others: tuple[str, ...]) -> None:
    """The old client is fenced, and the new client joins and expires. The description names the old client."""
    world, static, _ = _replaced(*others)
    assert (_clients(world, MemberGone), _clients(world, MemberJoined)) == (["host-a"], ["host-b"])
    described = {member.member_id: member.client_id for member in world.view().members}
    assert described[static.member_id] == "host-a"
    assert world.broker.groups["g"].members[static.member_id].client_id == "host-a"
    world.facts.clear()
    _ends(world)
    assert sorted(_clients(world, MemberGone)) == ["host-b", *others]


@pytest.mark.parametrize("sign", SIGNS)
def test_client_is_known_again_after_restart(sign: str) -> None:
    """After a restart of the sidecar, the client is known from its first request of any kind."""
    world, static, [other] = _replaced("other")
    restarted(world)
    show_client(world, static, sign, other)
    assert {member.member_id: member.client_id for member in world.view().members}[static.member_id] == "host-a"
    world.facts.clear()
    _ends(world)
    assert "host-b" in _clients(world, MemberGone)


def test_leaders_reply_names_the_client_that_joined() -> None:
    """The new client is named even if the leader's reply shows the member before the reply to the client's own join."""
    world = World(Broker())
    leader_sees_restart(world)
    assert _clients(world, MemberJoined)[-1] == "b-back"


def test_cause_names_the_client_that_joined() -> None:
    """A rebalance names the new client as its cause."""
    world, static, [other] = _replaced("other")
    world.facts.clear()
    static.metadata = b"changed"
    static.generation = -1
    world.gather(other, static)
    assert [started.by.client_id for started in of(world, RebalanceStarted)] == ["host-b"]
    world.facts.clear()
    static.leave()
    world.settle()
    assert [started.by.client_id for started in of(world, RebalanceStarted)] == ["host-b"]
