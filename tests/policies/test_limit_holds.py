"""group.max.size as a promise: whatever clients do, no generation completes with more members than the limit.

Requests and replies move in any order that connections allow, so the policy often judges by a copy that lags.
"""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest
from group_sidecar.codecs.schema import Struct
from group_sidecar.policies.group_max_size import GroupMaxSize
from group_sidecar.policies.verdicts import Refuse
from tests.coordinator.model import Broker
from tests.coordinator.world import Client, World

LIMIT = 2
numbers = st.integers(0, 4)


class Guarded(Client):
    """A client behind the policy. `refused`: how often it was."""

    refused = 0

    def send(self, request: Struct, version: int) -> None:
        """Sends what may pass. Whom the policy refuses begins anew, and is taken out where the policy says so."""
        if isinstance(request, JoinGroupRequest):
            now = self.world.now()
            self.world.facts += self.world.manager.refresh(self.group_id, now)
            verdict = GroupMaxSize(LIMIT).judge(request, self.world.manager.view(self.group_id, now))
            if isinstance(verdict, Refuse):
                self._take_out(verdict.remove)
                return
        super().send(request, version)

    def _take_out(self, member_id: str) -> None:
        self.refused += 1
        if member_id:
            leave = LeaveGroupRequest(group_id=self.group_id, member_id=member_id)
            self.world.send(self.connection, leave, 0, self.name, removing=True)
        self.forget()


class Limit(RuleBasedStateMachine):
    """More clients than the limit, all of one group."""

    @initialize(delay=st.sampled_from((0.0, 3.0)))
    def start(self, delay: float) -> None:
        self.world = World(Broker(initial_delay=delay))
        self.clients = [Guarded(self.world, f"c{n}", "g", version=(9, 9, 9, 2, 2)[n]) for n in range(5)]

    @rule(number=numbers)
    def go_on(self, number: int) -> None:
        self.clients[number].go_on()

    @rule(number=numbers)
    def join(self, number: int) -> None:
        self.clients[number].metadata += b"!"
        self.clients[number].join()

    @rule(number=numbers)
    def leave(self, number: int) -> None:
        self.clients[number].leave()
        self.clients[number].forget()

    @rule(number=numbers)
    def handle(self, number: int) -> None:
        self.world.handle(self.clients[number].connection)

    @rule(number=numbers)
    def deliver(self, number: int) -> None:
        self.world.deliver(self.clients[number].connection)

    @rule(who=st.sets(numbers, min_size=3))
    def gather(self, who: set[int]) -> None:
        self.world.gather(*(self.clients[number] for number in who))

    @rule(seconds=st.sampled_from((0.5, 4.0, 11.0, 21.0)))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @invariant()
    def no_generation_is_larger(self) -> None:
        if hasattr(self, "world"):
            assert all(size <= LIMIT for _, _, size in self.world.broker.completed)


Limit.TestCase.settings = settings(max_examples=250, stateful_step_count=60)
TestLimit = Limit.TestCase


def test_without_the_policy_it_is_larger() -> None:
    world = World(Broker())
    world.gather(*(Client(world, name, "g") for name in "abc"))
    assert world.broker.completed[-1][2] == 3


def test_the_first_stay_and_go_on() -> None:
    world = World(Broker())
    clients = [Guarded(world, name, "g") for name in "abc"]
    world.gather(*clients, steps=12)
    assert [client.refused > 0 for client in clients] == [False, False, True]
    assert {member.client_id for member in world.view().members} == {"a", "b"}
    assert all(client.synced for client in clients[:2])


def test_who_is_last_in_a_rebalance_is_out_and_nobody_waits_for_it() -> None:
    world = World(Broker())
    a, b, late = (Guarded(world, name, "g", version=2) for name in ("a", "b", "late"))
    world.gather(a)
    world.gather(a, b)
    a.join(("range", "sticky"))
    late.join()
    world.settle()
    assert late.refused == 0, "while a rebalance is prepared there is room for it"
    b.join()
    assert b.refused == 1
    world.settle()
    world.gather(a, late)
    assert {member.client_id for member in world.view().members} == {"a", "late"}
    assert (a.synced, late.synced) == (True, True)


def test_an_id_that_was_only_issued_does_not_hold_a_rebalance_up() -> None:
    world = World(Broker())
    a, b, c = (Guarded(world, name, "g", version=version) for name, version in (("a", 2), ("b", 2), ("c", 9)))
    world.gather(a)
    c.join()
    world.settle()
    assert c.member_id, "there was room when it asked"
    b.join()
    world.settle()
    for _ in range(2):
        a.go_on()
        world.settle()
    assert (a.synced, b.synced) == (False, False), "the rebalance waits for c"
    c.join()
    assert c.refused == 1
    world.settle()
    world.gather(a, b)
    assert (a.synced, b.synced) == (True, True)
