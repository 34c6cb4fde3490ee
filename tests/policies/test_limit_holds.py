"""Whatever clients do, no generation completes with more members than group.max.size.

Also, no client is refused that Kafka would have accepted. If a connection breaks, the effect of a lost join may be
unknown. In that case the limit has priority (decision 38).

Requests and replies move in any order that connections allow, so the policy often judges by a stale copy.
"""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.coordinator.model import Broker
from tests.coordinator.world import Client, World
from tests.policies.limited_clients import LIMIT, LimitedClient, LimitedWorld

VERSIONS = (9, 9, 5, 2, 2)
INSTANCES = (None, "i", "j", None, None)
numbers = st.integers(0, len(VERSIONS) - 1)


class Limit(RuleBasedStateMachine):
    """More clients than the limit, all of one group and all through the sidecar."""

    exclusive = True
    fair = False
    """Whether each refusal must be one that a broker with this limit could have made."""

    @initialize(delay=st.sampled_from((0.0, 3.0)))
    def start(self, delay: float) -> None:
        self.world = LimitedWorld(initial_delay=delay, exclusive=self.exclusive, fair=self.fair)
        self.clients = [
            LimitedClient(self.world, f"c{n}", "g", version=version, instance_id=instance)
            for n, (version, instance) in enumerate(zip(VERSIONS, INSTANCES, strict=True))
        ]

    @rule(number=numbers)
    def go_on(self, number: int) -> None:
        self.clients[number].go_on()

    @rule(number=numbers)
    def join(self, number: int) -> None:
        """A client joins with new metadata, perhaps before its last reply has arrived."""
        self.clients[number].metadata += b"!"
        self.clients[number].join()

    @rule(number=numbers)
    def leave(self, number: int) -> None:
        self.clients[number].leave()
        self.clients[number].forget()

    @rule(number=numbers)
    def reconnect(self, number: int) -> None:
        self.clients[number].reconnect()

    @rule(number=numbers)
    def restart(self, number: int) -> None:
        self.clients[number].restart()

    @rule(number=numbers)
    def handle(self, number: int) -> None:
        self.world.handle(self.clients[number].connection)

    @rule(number=numbers)
    def deliver(self, number: int) -> None:
        self.world.deliver(self.clients[number].connection)

    @precondition(lambda self: self.world.possible_arrivals())
    @rule(data=st.data())
    def handle_lost(self, data: st.DataObject) -> None:
        self.world.handle_lost(data.draw(st.sampled_from(self.world.possible_arrivals())))

    @rule(who=st.sets(numbers, min_size=2))
    def gather(self, who: set[int]) -> None:
        self.world.gather(*(self.clients[number] for number in who))

    @rule(seconds=st.sampled_from((0.5, 4.0, 11.0, 21.0)))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule()
    def sweep(self) -> None:
        self.world.sweep()

    @invariant()
    def no_generation_is_larger(self) -> None:
        if hasattr(self, "world") and not self.world.bypassing_clients:
            assert all(size <= LIMIT for _, _, size in self.world.broker.completed)


class LimitBesideOthers(Limit):
    """As Limit, with some members that bypass the sidecar."""

    exclusive = False

    @rule(again=st.booleans())
    def join_around(self, again: bool) -> None:
        self.world.join_bypassing_sidecar(again=again)

    @precondition(lambda self: self.world.bypassing_clients)
    @rule()
    def leave_around(self) -> None:
        self.world.bypassing_client_leaves()


def _idle(machine: Limit, number: int) -> bool:
    client = machine.clients[number]
    return not client.waiting and not any(True for _ in client.connection.exchanges())


class Fair(Limit):
    """As Limit, and each refusal must be right. Connections break only while nothing is in flight on them."""

    fair = True

    @rule(number=numbers)
    def reconnect(self, number: int) -> None:
        if _idle(self, number):
            super().reconnect(number)

    @rule(number=numbers)
    def restart(self, number: int) -> None:
        if _idle(self, number):
            super().restart(number)


class FairBesideOthers(Fair, LimitBesideOthers):
    """As Fair, with some members that bypass the sidecar."""

    exclusive = False


for _machine in (Limit, LimitBesideOthers, Fair, FairBesideOthers):
    _machine.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestLimit = Limit.TestCase
TestLimitBesideOthers = LimitBesideOthers.TestCase
TestFair = Fair.TestCase
TestFairBesideOthers = FairBesideOthers.TestCase


def test_group_exceeds_limit_without_policy() -> None:
    """Without the policy, a group grows beyond the limit."""
    world = World(Broker())
    world.gather(*(Client(world, name, "g") for name in "abc"))
    assert world.broker.completed[-1][2] == 3


def test_first_members_stay() -> None:
    """The first two members stay and sync, and the third is refused."""
    world = LimitedWorld()
    clients = [LimitedClient(world, name, "g") for name in "abc"]
    world.gather(*clients, steps=12)
    assert [client.refused > 0 for client in clients] == [False, False, True]
    assert {member.client_id for member in world.view().members} == {"a", "b"}
    assert all(client.synced for client in clients[:2])


def test_last_rejoiner_is_removed() -> None:
    """A member that rejoins last in a full rebalance is refused, and the rebalance completes without it."""
    world = LimitedWorld()
    a, b, late = (LimitedClient(world, name, "g", version=2) for name in ("a", "b", "late"))
    world.gather(a)
    world.gather(a, b)
    a.join(("range", "sticky"))
    late.join()
    world.settle()
    assert late.refused == 0, "a rebalance that is being prepared has room for the join"
    b.join()
    world.settle()
    assert b.refused == 1
    world.gather(a, late)
    assert {member.client_id for member in world.view().members} == {"a", "late"}
    assert (a.synced, late.synced) == (True, True)


def test_issued_id_does_not_block_rebalance() -> None:
    """A client that was only issued a member id and is then refused does not block the rebalance."""
    world = LimitedWorld()
    a, b, c = (LimitedClient(world, name, "g", version=version) for name, version in (("a", 2), ("b", 2), ("c", 9)))
    world.gather(a)
    c.join()
    world.settle()
    assert c.member_id, "the group had room when the id was issued"
    b.join()
    world.settle()
    for _ in range(2):
        a.go_on()
        world.settle()
    assert (a.synced, b.synced) == (False, False), "the rebalance waits for a join with the issued id"
    c.join()
    world.settle()
    assert c.refused == 1
    world.gather(a, b)
    assert (a.synced, b.synced) == (True, True)


# Histories that the state machine has found.


def four(world: LimitedWorld) -> list[LimitedClient]:
    """Returns clients of the first four kinds."""
    kinds = zip(VERSIONS[:4], INSTANCES, strict=False)
    return [LimitedClient(world, f"c{n}", "g", version=v, instance_id=i) for n, (v, i) in enumerate(kinds)]


def test_expired_unsynced_members_free_places() -> None:
    """Members whose sessions may have expired before their sync do not keep another client out."""
    world = LimitedWorld()
    a, b, c, _ = four(world)
    c.go_on()
    world.gather(a, b)
    assert b.refused > 0
    refused = b.refused
    world.pass_time(11.0)
    b.go_on()
    world.settle()
    assert (b.refused, world.broker.groups["g"].static("i") is not None) == (refused, True)


def test_dead_group_id_takes_no_place() -> None:
    """Clients that rejoin with ids of a dead group do not take the places of new clients."""
    world = LimitedWorld()
    a, b, c, d = (LimitedClient(world, name, "g", version=2) for name in "abcd")
    world.gather(a, b)
    world.pass_time(31.0)
    for client in (a, b, c, d):
        client.join()
    world.settle()
    assert [client.refused for client in (a, b, c, d)] == [0, 0, 0, 0]
    assert {member.client_id for member in world.broker.groups["g"].members.values()} == {"c", "d"}


def test_described_members_are_not_parked() -> None:
    """The limit holds if the broker describes members before the sidecar has seen their joins."""
    world = LimitedWorld(exclusive=False)
    clients = four(world)
    clients[2].go_on()
    clients[2].leave()
    clients[2].forget()
    world.gather(*clients)
    assert all(size <= LIMIT for _, _, size in world.broker.completed)


def test_lost_joins_take_member_place() -> None:
    """A member is refused if lost joins have taken all places."""
    world = LimitedWorld()
    member, one, other = (LimitedClient(world, name, "g", version=2) for name in ("member", "one", "other"))
    world.gather(member)
    one.join()
    other.join()
    one.reconnect()
    other.reconnect()
    for _ in range(2):
        world.handle_lost(0)
    member.join()
    world.settle()
    assert member.refused == 1
    assert world.broker.completed[-1][2] == 2


def test_static_leave_keeps_lost_join() -> None:
    """A leave by instance id does not discard a lost join, so the limit holds."""
    world = LimitedWorld(initial_delay=3.0)
    clients = four(world)[:3]
    world.gather(*clients)
    clients[1].reconnect()
    clients[2].reconnect()
    clients[1].leave()
    world.gather(*clients[:2])
    world.pass_time(4.0)
    assert all(size <= LIMIT for _, _, size in world.broker.completed)
