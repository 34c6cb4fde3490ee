"""Chooses the faults of a run and their times. The same seed gives the same faults."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

KILL_SIDECAR, PAUSE_SIDECAR, HAND_OVER = "kill sidecar", "pause sidecar", "hand over sidecar"
KILL_BROKER, PAUSE_BROKER = "kill broker", "pause broker"
CUT_CLIENTS, CUT_BROKER = "cut clients", "cut broker"
FREEZE_CLIENTS, FREEZE_BROKER = "freeze clients", "freeze broker"
MOVE_LEADERS = "move leaders"
KINDS = (
    KILL_SIDECAR,
    PAUSE_SIDECAR,
    HAND_OVER,
    KILL_BROKER,
    PAUSE_BROKER,
    CUT_CLIENTS,
    CUT_BROKER,
    FREEZE_CLIENTS,
    FREEZE_BROKER,
    MOVE_LEADERS,
)
SIDECAR_KINDS = (KILL_SIDECAR, PAUSE_SIDECAR, HAND_OVER, CUT_BROKER, FREEZE_BROKER)
"""Kinds that need a sidecar. A run without sidecars leaves them out."""
_DURATIONS = {
    KILL_SIDECAR: (0.0, 2.0),
    PAUSE_SIDECAR: (0.3, 6.0),
    HAND_OVER: (0.0, 0.0),
    KILL_BROKER: (0.0, 4.0),
    PAUSE_BROKER: (0.5, 9.0),
    CUT_CLIENTS: (0.0, 0.0),
    CUT_BROKER: (0.0, 0.0),
    FREEZE_CLIENTS: (0.3, 6.0),
    FREEZE_BROKER: (0.3, 8.0),
    MOVE_LEADERS: (0.0, 0.0),
}
"""The shortest and the longest duration in seconds."""
_RECOVERY = {KILL_BROKER: 9.0, PAUSE_BROKER: 3.0, KILL_SIDECAR: 3.0, HAND_OVER: 4.0}
"""Seconds that a node needs after a fault of this kind."""
_GAP_SECONDS = (0.5, 4.0)
NODES = (1, 2, 3)


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        at: seconds after the start of the run.
        kind: one of `KINDS`.
        node: the broker or sidecar.
        seconds: how long it lasts; 0 for a fault without duration.
    """

    at: float
    kind: str
    node: int
    seconds: float


def schedule(seed: int, seconds: float | None, kinds: Sequence[str] = KINDS) -> list[Fault]:
    """Returns the faults of a run, in the order of their time.

    Args:
        seed: decides order, times, nodes and durations.
        seconds: the time by which the last node must have recovered; None if each kind happens once.
        kinds: the kinds of faults.

    Each kind occurs once before any kind occurs again. At most one broker at a time is killed or paused, because a
    partition needs two of its three replicas for writes. Faults of one node do not overlap.
    """
    random = Random(f"faults-{seed}")
    faults: list[Fault] = []
    free = dict.fromkeys((*NODES, "brokers"), 0.0)
    at, waiting = 0.0, list[str]()
    while kinds:
        waiting = waiting or random.sample(kinds, len(kinds))
        kind, node = waiting.pop(), random.choice(NODES)
        duration = round(random.uniform(*_DURATIONS[kind]), 2)
        at += random.uniform(*_GAP_SECONDS)
        busy: tuple[int | str, ...] = (node, "brokers") if kind in (KILL_BROKER, PAUSE_BROKER) else (node,)
        at = max(at, *(free[each] for each in busy))
        ends = at + duration + _RECOVERY.get(kind, 1.0)
        if seconds is not None and ends > seconds:
            break
        faults.append(Fault(round(at, 2), kind, node, duration))
        free |= dict.fromkeys(busy, ends)
        if seconds is None and not waiting:
            break
    return faults
