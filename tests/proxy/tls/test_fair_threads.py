"""Threads that addresses share in turn."""

import threading
from functools import partial
from typing import Self

import pytest
import trio
import trio.testing

from group_sidecar.proxy.tls.fair_threads import FairThreads


class Occupied:
    """Threads, some of which are busy for the length of a with statement.

    Attributes:
        done: the addresses in the order in which their work was done.
    """

    def __init__(self, threads: FairThreads, nursery: trio.Nursery) -> None:
        self.done: list[str] = []
        self._threads = threads
        self._nursery = nursery
        self._go_on = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._go_on.set()

    async def occupy(self, address: str) -> None:
        self._nursery.start_soon(partial(self._threads.run, address, self._go_on.wait))
        await trio.testing.wait_all_tasks_blocked()

    async def queue(self, address: str, count: int = 1, nursery: trio.Nursery | None = None) -> None:
        """Adds work for an address. All threads must be busy."""
        for _ in range(count):
            (nursery or self._nursery).start_soon(self._threads.run, address, self.done.append, address)
            await trio.testing.wait_all_tasks_blocked()


async def test_addresses_take_turns() -> None:
    """Work of other addresses does not wait for all the work of a flood. Each address keeps its own order."""
    async with trio.open_nursery() as nursery:
        with Occupied(FairThreads(1), nursery) as threads:
            await threads.occupy("flood")
            await threads.queue("flood", 5)
            await threads.queue("a", 2)
            await threads.queue("b")
    assert threads.done == ["flood", "a", "b", "flood", "a", "flood", "flood", "flood"]


async def test_no_more_threads_than_allowed() -> None:
    """Further work waits while all threads are busy, and only then."""
    limited = FairThreads(2)
    async with trio.open_nursery() as nursery:
        with Occupied(limited, nursery) as threads:
            await threads.occupy("a")
            assert await limited.run("b", len, "abc") == 3
            await threads.occupy("b")
            await threads.queue("c", 3)
            assert threads.done == []
    assert threads.done == ["c"] * 3


async def test_cancelled_work_takes_no_thread() -> None:
    """Work that was cancelled while it waited is not done, and later work gets its thread."""
    limited = FairThreads(1)
    async with trio.open_nursery() as nursery:
        with Occupied(limited, nursery) as threads:
            await threads.occupy("a")
            async with trio.open_nursery() as cancelled:
                await threads.queue("left", 3, cancelled)
                cancelled.cancel_scope.cancel()
            await threads.queue("stays")
    assert threads.done == ["stays"]
    assert await limited.run("left", len, "abc") == 3
    assert not limited._waiting


async def test_exception_frees_the_thread() -> None:
    """A function's exception reaches the caller, and the thread is free again."""
    threads = FairThreads(1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await threads.run("a", lambda: 1 // 0)
    assert await threads.run("a", lambda: 1) == 1
