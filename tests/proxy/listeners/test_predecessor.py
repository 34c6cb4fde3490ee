"""The predecessor as the successor sees it. tests/proxy/test_hot_restart.py restarts whole sidecars."""

import socket

import trio
from trio.testing import wait_all_tasks_blocked

from group_sidecar.proxy.listeners.predecessor import Predecessor


async def test_end_of_predecessor_is_noticed() -> None:
    """The successor reports that it is ready, and notices the end of the predecessor."""
    ours, theirs = socket.socketpair()
    predecessor = Predecessor(ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(predecessor.watch)
        with theirs:
            predecessor.report_ready()
            assert theirs.recv(10)
            await wait_all_tasks_blocked()
            assert not predecessor.gone.is_set()
        await predecessor.gone.wait()
    predecessor.report_ready()  # Has no effect, because nobody reads it.
