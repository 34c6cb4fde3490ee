"""Runs one seed, and returns the outcome."""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial

import trio

from group_sidecar.proxy.runtime.supervision import first_error
from tests.simulation import virtual_time
from tests.simulation.faults import Faults
from tests.simulation.scenario import Scenario
from tests.simulation.timeline import KEPT_LINES, Timeline, Violation
from tests.simulation.world import World

SETTLE_SECONDS = 90.0
"""Virtual seconds within which all doubts must end after the last fault. The sidecar asks the broker again after at
most 30 s."""
STEADY_SECONDS = 16.0
"""Virtual seconds for which the sidecar must stay certain: longer than the session of a member."""
ASK_SECONDS = 3.0


@dataclass
class Outcome:
    """The outcome of one run.

    Attributes:
        violation: the invariant that does not hold, or empty.
        trace_hash: the hash of the trace.
        seconds: the virtual seconds.
        last_lines: the last lines of the trace.
        local: how many replies the sidecar made itself, by API.
        forwarded: how many replies of the broker the sidecar forwarded, by API.
    """

    scenario: Scenario
    violation: str = ""
    trace_hash: str = ""
    seconds: float = 0.0
    last_lines: tuple[str, ...] = ()
    local: Counter[str] = field(default_factory=Counter)
    forwarded: Counter[str] = field(default_factory=Counter)


def simulate(scenario: Scenario, kept_lines: int = KEPT_LINES) -> Outcome:
    """Runs a scenario, and keeps the last lines of its trace. The outcome has a Violation; other errors are raised."""
    wall_time, timeline = virtual_time.WallTime(), Timeline(kept_lines)
    program = partial(_simulate, scenario, wall_time, timeline)
    return virtual_time.run(scenario.seed, wall_time, timeline.clock, program)


async def _simulate(scenario: Scenario, wall_time: virtual_time.WallTime, timeline: Timeline) -> Outcome:
    world, outcome = World(scenario, wall_time, timeline), Outcome(scenario)
    with world.host.patched():
        try:
            async with trio.open_nursery() as nursery:
                timeline.failed = nursery.cancel_scope.cancel
                nursery.start_soon(_play, world, nursery)
        except BaseExceptionGroup as group:
            timeline.error = timeline.error or first_error(group)
        finally:
            world.network.close()
    if timeline.error is not None and not isinstance(timeline.error, Violation):
        raise timeline.error
    outcome.violation = str(timeline.error or "")
    outcome.trace_hash, outcome.seconds = timeline.trace.hash, timeline.now
    outcome.last_lines = tuple(timeline.trace.last)
    outcome.local, outcome.forwarded = world.checker.local, world.checker.forwarded
    return outcome


async def _play(world: World, nursery: trio.Nursery) -> None:
    await world.host.start(nursery)
    for client in world.clients:
        client.start()
    await Faults(world, nursery).run()
    world.timeline.note("the faults are over")
    for client in world.clients:
        client.stops = True
    await _become_certain(world, rests=world.scenario.rests)
    if world.scenario.rests:
        await _stay_certain(world)
    await world.host.crash()
    world.check_always()
    nursery.cancel_scope.cancel()


async def _become_certain(world: World, *, rests: bool) -> None:
    """Asks about all groups until the sidecar answers all questions itself. Raises Violation if it never does.

    `rests`: whether to ask only after the time in which the sidecar must have ended all doubts.
    """
    began = world.timeline.now
    is_certain = False
    if rests:
        await trio.sleep(SETTLE_SECONDS - 2 * ASK_SECONDS)
    while not is_certain:
        await trio.sleep(ASK_SECONDS)
        waited = world.timeline.now - began
        if waited > SETTLE_SECONDS:
            left = "".join(f"\n    {each}" for each in world.left_to_broker)
            left += "".join(f"\n    {each} with its members" for each in world.too_large())
            raise Violation(f"{waited:.0f} seconds after the last fault, the sidecar leaves to the broker:{left}")
        is_certain = await _answers_everything(world, learns=not rests) and not world.too_large()
    world.timeline.note("everything is certain")


def _can_ask(world: World) -> bool:
    return world.askers[0].is_connected and not world.askers[0].is_waiting


async def _answers_everything(world: World, *, learns: bool) -> bool:
    """Asks about all groups. Returns whether the sidecar answered all questions itself. `learns`: see `Asker`."""
    if not _can_ask(world):
        return False
    asker = world.askers[0]
    world.left_to_broker.clear()
    answered, has_all = list[bool](), trio.Event()

    def done(are_local: bool) -> None:
        answered.append(are_local)
        has_all.set()

    asker.ask_everything(done, learns=learns)
    with trio.move_on_after(ASK_SECONDS):
        await has_all.wait()
    return answered == [True]


async def _stay_certain(world: World) -> None:
    """Checks that the sidecar continues to answer all questions itself while members only send heartbeats."""
    until = world.timeline.now + STEADY_SECONDS
    while world.timeline.now < until:
        before = world.kafka.history.numbers()
        await trio.sleep(ASK_SECONDS)
        if not _can_ask(world):
            continue  # The replies to the asker's own questions are on their way.
        if not await _answers_everything(world, learns=False) and before == world.kafka.history.numbers():
            left = "".join(f"\n    {each}" for each in world.left_to_broker)
            raise Violation(f"without any change, the sidecar leaves to the broker again:{left}")
