"""Injects the faults of a run: lost connections, restarts, delays and others."""

from collections.abc import Awaitable, Callable
from random import Random

import trio

from tests.simulation.client import SimulatedClient
from tests.simulation.members import SESSION_MS, Member
from tests.simulation.questions import commit_of
from tests.simulation.world import MEMBER_GROUPS, PLAIN_GROUPS, World

Fault = Callable[["Faults"], Awaitable[None]]
BURSTS = 0.2
"""The share of faults that follow the previous one at once."""


class Faults:
    """Injects the faults of a scenario one after the other."""

    def __init__(self, world: World, nursery: trio.Nursery) -> None:
        self.world, self.nursery = world, nursery
        self.rng = Random(f"{world.scenario.seed}:faults")

    async def run(self) -> None:
        """Injects faults for the scenario's seconds.

        When this method returns, all delays and resets have ended, and broker and sidecar run. Some clients may still
        hang, stay away, read nothing or bypass the sidecar for some seconds.
        """
        scenario, kinds = self.world.scenario, sorted(self.world.scenario.faults)
        with trio.move_on_after(scenario.seconds):
            while True:
                is_burst = self.rng.random() < BURSTS
                await trio.sleep(0.0 if is_burst else self.rng.expovariate(1 / scenario.pause))
                self.world.check_tables()
                if kinds:
                    kind = self.rng.choice(kinds)
                    self.world.timeline.note(f"fault {kind}")
                    with trio.CancelScope(shield=True):
                        await KINDS[kind](self)
                        self.world.settle()
        weather = self.world.weather
        weather.storms = weather.resets = weather.usual_resets = 0.0
        weather.own_lag = weather.distance

    def client(self) -> SimulatedClient:
        """Returns a random client. In half of the cases, the choice is among clients that wait for a reply."""
        waiting = [each for each in self.world.clients if each.is_waiting]
        return self.rng.choice(waiting if waiting and self.rng.random() < 0.5 else self.world.clients)

    def partition(self) -> int:
        """Returns the number of a random partition of the log."""
        return self.rng.choice([*self.world.kafka.log.partitions])


async def _cut_client(faults: Faults) -> None:
    """A client's connection breaks, perhaps in the middle of a request or a reply."""
    faults.client().disconnect()


async def _cut_joining(faults: Faults) -> None:
    """The connection of a member that waits for a reply breaks. Usually the reply is that of a parked join."""
    if joining := [each for each in faults.world.members if each.is_waiting]:
        faults.rng.choice(joining).disconnect()


async def _hang(faults: Faults) -> None:
    """Some members do nothing for about as long as their sessions last. Their connections stay open."""
    for each in _some_members(faults):
        each.hang(faults.rng.uniform(0.5, 2.0) * SESSION_MS / 1000)


async def _vanish(faults: Faults) -> None:
    """Some members close their connections together, and connect again late."""
    for each in _some_members(faults):
        each.vanish(faults.rng.uniform(0.5, 2.0) * SESSION_MS / 1000)


def _some_members(faults: Faults) -> list[Member]:
    """Returns all members of a group, or one of them."""
    group_id = faults.rng.choice(MEMBER_GROUPS)
    members = [each for each in faults.world.members if each.group_id == group_id]
    return members if faults.rng.random() < 0.5 else members[:1]


async def _half_close(faults: Faults) -> None:
    """A client closes its sending side."""
    faults.client().half_close()


async def _slow_reader(faults: Faults) -> None:
    """A client does not read for some seconds."""
    faults.client().pause_reading(faults.rng.uniform(0.1, 5.0))


async def _cut_broker(faults: Faults) -> None:
    """The broker closes one of its connections: a client's, or one of the sidecar's own."""
    faults.world.kafka.cut_connection()


async def _storm(faults: Faults) -> None:
    """For some seconds, the network delivers bytes with long delays."""
    weather = faults.world.weather
    weather.storms = faults.rng.choice((0.05, 0.3, 0.8))

    def end() -> None:
        weather.storms = 0.0

    faults.world.timeline.after(faults.rng.uniform(0.5, 5.0), end)


async def _resets(faults: Faults) -> None:
    """For some seconds, connections break while a request is on its way between the sidecar and the broker."""
    weather = faults.world.weather
    weather.resets = faults.rng.choice((0.05, 0.15))

    def end() -> None:
        weather.resets = weather.usual_resets

    faults.world.timeline.after(faults.rng.uniform(1.0, 8.0), end)


async def _slow_log(faults: Faults) -> None:
    """For some seconds, the broker's replies on the sidecar's own connections have long delays."""
    weather = faults.world.weather
    weather.own_lag = faults.rng.choice((0.2, 1.0, 6.0, 10.0))

    def end() -> None:
        weather.own_lag = weather.distance

    faults.world.timeline.after(faults.rng.uniform(1.0, 10.0), end)


async def _broker_restart(faults: Faults) -> None:
    """The broker is down for some seconds. It then loads its groups from its log."""
    kafka, rng = faults.world.kafka, faults.rng
    kafka.stop()
    faults.world.settle()
    await trio.sleep(rng.choice((0.05, rng.uniform(0.1, 6.0))))
    kafka.start(rng.choice((0.0, rng.uniform(0.0, 2.0))))


async def _leader_move(faults: Faults) -> None:
    """Another broker leads a partition of the log for some seconds."""
    kafka, number, rng = faults.world.kafka, faults.partition(), faults.rng
    kafka.lose_leadership(number)
    faults.world.settle()
    await trio.sleep(rng.choice((0.05, rng.uniform(0.1, 8.0))))
    kafka.become_leader(number, rng.choice((0.0, rng.uniform(0.0, 2.0))))


async def _compaction(faults: Faults) -> None:
    """The broker compacts a partition of the log."""
    faults.world.kafka.log.compact(faults.partition())


async def _clean_up(faults: Faults) -> None:
    """The broker removes groups that are empty and have no offsets."""
    faults.world.kafka.clean_up()


async def _clock_step(faults: Faults) -> None:
    """The system's clock is set."""
    faults.world.wall_time.step += faults.rng.choice((-100_000.0, -30.0, -1.0, 1.0, 30.0, 100_000.0))


async def _sidecar_crash(faults: Faults) -> None:
    """The sidecar ends at once, and another one starts."""
    await faults.world.host.crash()
    await trio.sleep(faults.rng.uniform(0.01, 2.0))
    await faults.world.host.start(faults.nursery)


async def _sidecar_restart(faults: Faults) -> None:
    """The sidecar is stopped in order, and another one starts."""
    await faults.world.host.stop()
    await faults.world.host.start(faults.nursery)


async def _reload(faults: Faults) -> None:
    """The sidecar reads its settings again, perhaps with another limit."""
    world = faults.world
    if world.limit is not None:
        world.set_limit(faults.rng.choice((2, 3, 4)))
    if world.host.sidecar is not None:
        await world.host.sidecar.reload_if_possible()


async def _bypass(faults: Faults) -> None:
    """A client that bypasses the sidecar commits offsets for some seconds."""
    timeline, rng = faults.world.timeline, faults.rng
    until = timeline.now + rng.uniform(0.0, 10.0)

    def commit() -> None:
        faults.world.kafka.bypass(commit_of(rng.choice(PLAIN_GROUPS), {0: rng.randrange(10_000, 20_000)}))
        if timeline.now < until:
            timeline.after(rng.uniform(0.1, 3.0), commit)

    commit()


KINDS: dict[str, Fault] = {
    "cut-client": _cut_client,
    "cut-joining": _cut_joining,
    "hang": _hang,
    "vanish": _vanish,
    "half-close": _half_close,
    "slow-reader": _slow_reader,
    "cut-broker": _cut_broker,
    "storm": _storm,
    "resets": _resets,
    "slow-log": _slow_log,
    "broker-restart": _broker_restart,
    "leader-move": _leader_move,
    "compaction": _compaction,
    "clean-up": _clean_up,
    "clock-step": _clock_step,
    "sidecar-crash": _sidecar_crash,
    "sidecar-restart": _sidecar_restart,
    "reload": _reload,
    "bypass": _bypass,
}
"""The kinds of faults by name. "bypass" only occurs without `answers.exclusive`."""
