"""Ends all connections in steps when the sidecar stops, so that clients do not all reconnect at the same moment."""

import math
from collections.abc import Mapping
from itertools import islice

import trio

from group_sidecar.proxy.dataplane.connection import Connection
from group_sidecar.proxy.dataplane.delivered_closes import DeliveredCloses

SWEEP_BATCH = 500
"""The number of connections that a drain or a sweep checks between two of trio's checkpoints. These checks take about a
millisecond."""
QUIET_SECONDS = 0.2
"""While draining, a connection that is not parsed is idle after this many seconds without traffic."""
DRAIN_STEP_SECONDS = 0.05
"""Seconds between two steps of a drain."""
DRAIN_STEPS_SHARE = 0.5
"""The share of a drain's time over which its steps are spread. The last connections have the rest of the time for
their replies."""


async def drain(connections: Mapping[int, Connection], closes: DeliveredCloses, seconds: float) -> None:
    """Ends all connections. A connection ends when its client has the replies to all forwarded requests.

    Each step takes the oldest of the remaining connections. Before its step, a connection is served as usual. The steps
    take DRAIN_STEPS_SHARE of the time. If there are few connections, each step takes one connection, and the steps take
    less time.

    Returns when no connection is left, or after `seconds`.

    Args:
        connections: the open connections, oldest first. A connection removes itself when it ends.
        closes: closed sockets whose last bytes the client has not received yet.
        seconds: the maximum time.
    """
    steps = max(1, int(seconds * DRAIN_STEPS_SHARE / DRAIN_STEP_SECONDS))
    batch = max(1, math.ceil(len(connections) / steps))
    stopping = set[int]()
    with trio.move_on_after(seconds):
        while connections or closes:
            stopping.update(islice((each for each in connections if each not in stopping), batch))
            left = [each for each in connections if each in stopping]
            while left:
                _drain_some(connections, left, trio.current_time())
                await trio.lowlevel.checkpoint()
            closes.sweep(trio.current_time())
            await trio.sleep(DRAIN_STEP_SECONDS)


def _drain_some(connections: Mapping[int, Connection], left: list[int], now: float) -> None:
    # This loop is not in `drain`, because a local variable there would keep the last connection in memory.
    for connection in next_of(connections, left):
        connection.drain(now, QUIET_SECONDS)


def next_of(connections: Mapping[int, Connection], left: list[int]) -> list[Connection]:
    """Removes the next numbers from `left`, and returns those of their connections that are still open."""
    batch = [connection for number in left[-SWEEP_BATCH:] if (connection := connections.get(number)) is not None]
    del left[-SWEEP_BATCH:]
    return batch
