"""Threads that client addresses share in turn, so that an address with much work does not delay other addresses."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio

_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")


class FairThreads:
    """Runs functions in threads. If all threads are busy, the addresses that wait get the next free thread in turn.

    Args:
        max_threads: the maximum number of functions that run at a time.
    """

    def __init__(self, max_threads: int) -> None:
        self._free = max_threads
        self._limiter = trio.CapacityLimiter(max_threads)  # This class counts the threads, so no task waits here.
        self._waiting: OrderedDict[str, trio.lowlevel.ParkingLot] = OrderedDict()
        """The waiting tasks of each address, in the order of the next turns. An address whose tasks were all cancelled
        stays until its turn."""

    async def run(self, address: str, function: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        """Runs a function in a thread when it is the turn of an address. Returns its result, or raises its exception.

        A function that has begun is not cancelled.
        """
        if self._free:
            self._free -= 1
        else:
            if address not in self._waiting:
                self._waiting[address] = trio.lowlevel.ParkingLot()
            await self._waiting[address].park()
        try:
            return await trio.to_thread.run_sync(function, *arguments, limiter=self._limiter)
        finally:
            self._hand_on()

    def _hand_on(self) -> None:
        """Gives the free thread to the next address. The address goes to the end if more of its tasks wait."""
        while self._waiting:
            address, tasks = self._waiting.popitem(last=False)
            if tasks.unpark():
                if tasks:
                    self._waiting[address] = tasks
                return
        self._free += 1
