"""Restarts of the sidecar and of static members, for tests of the hosts and principals of members."""

from typing import Any

from group_sidecar.coordinator.manager import GroupMetadataManager
from tests.coordinator.world import Client, World

SIGNS = ("heartbeat", "commit", "sync", "join")
"""The requests from which the copy learns the client of a member."""


def restarted(world: World, **settings: Any) -> None:
    """Restarts the sidecar, which then asks the broker for a description of the group."""
    world.manager = GroupMetadataManager(exclusive=True, **settings)
    world.manager.set_existing_groups(["g"])
    world.facts.clear()
    world.describe()


def show_client(world: World, client: Client, sign: str, *others: Client) -> None:
    """Lets the client reconnect and send one of SIGNS. After a join, all members complete the rebalance."""
    client.reconnect()
    if sign == "commit":
        client.commit(0, 1)
    else:
        {"heartbeat": client.heartbeat, "sync": client.sync, "join": client.join}[sign]()
    world.settle()
    if sign == "join":
        world.gather(*others, client)


def leader_sees_restart(world: World) -> None:
    """The static member b of group g restarts as b-back. Only the join reply of the leader a shows it."""
    a, b = Client(world, "a", "g", "i"), Client(world, "b", "g", "j")
    world.gather(a, b)
    a.join()
    b.join()
    world.settle()
    b.restart()
    b.name = "b-back"
    b.join()
    world.handle(b.connection)
    a.join()
    world.settle(b.connection)
