"""Bounds the bytes that all connections hold together, by reading less while the budget is exceeded.

Each connection counts what it holds: bytes that a peer has not accepted, requests that are kept until their replies,
and frames that have arrived in part. While the sum exceeds the budget, these rules hold:

- A read takes at most `FREE_BYTES`.
- The client of a connection that holds more than `FREE_BYTES` is not read. Requests that have arrived in part do not
  count for this rule: `limits.held_frames` bounds them, and they become complete only if the client is read.
- If several connections hold more than `FREE_BYTES` of an incomplete reply, only one of them at a time reads the rest
  of its reply.

So a connection that holds at most `FREE_BYTES` is still served, and no bytes are lost. The sum exceeds the budget by at
most some kilobytes for each connection, and one local answer for each client that does not read its answers.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final

from group_sidecar.proxy.dataplane.poller import Poller

FREE_BYTES: Final = 4_096
"""While the budget is exceeded, a connection may still hold this many bytes, and read this many at a time. 10,000
connections then hold 40 MB."""
RESUMED_PER_TURN: Final = 64
"""How many connections are resumed in one turn of the poller. Resuming 64 connections takes about 0.2 ms."""


class BufferBudget:
    """The bytes that all connections hold.

    Args:
        max_bytes: the budget in bytes.
        poller: makes the calls that resume connections, in turns (`Poller.add_turn`).

    Attributes:
        held: the sum of what the connections have counted.
        exceeded: whether the sum exceeds the budget.
    """

    __slots__ = ("_max_bytes", "_partial_replies", "_paused", "_poller", "_waits_for_turn", "exceeded", "held")

    def __init__(self, max_bytes: int, poller: Poller) -> None:
        self._max_bytes = max_bytes
        self._poller = poller
        self.held = 0
        self.exceeded = False
        self._paused: dict[int, Callable[[], None]] = {}
        """The `resume` call of each connection that is not read because of the budget, by connection number."""
        self._partial_replies: dict[int, Callable[[], None]] = {}
        """The `resume` call of each connection that holds more than FREE_BYTES of an incomplete reply, oldest first.
        Only the first connection may read the rest of its reply."""
        self._waits_for_turn = False

    def add(self, difference: int) -> None:
        """Counts how much more or less a connection holds."""
        self.held += difference
        self.exceeded = self.held > self._max_bytes
        if not self.exceeded and self._paused:
            self._partial_replies.clear()
            self._resume_later()

    def must_pause(self, number: int, held: int, resume: Callable[[], None]) -> bool:
        """Returns whether a client must not be read while the budget is exceeded.

        Args:
            number: the connection's number.
            held: what the connection holds, without an incomplete request and without bytes that were read ahead.
            resume: checks again what the connection may read. `resume` is called when the budget is no longer exceeded.
        """
        if held > FREE_BYTES:
            self._paused[number] = resume
            return True
        self._paused.pop(number, None)
        return False

    def must_wait_for_reply(self, number: int, resume: Callable[[], None]) -> bool:
        """Returns whether a connection must not read the rest of a reply now, because another connection reads its
        reply first. `resume` is called when the connection may read on, or when the budget is no longer exceeded.
        """
        self._partial_replies.setdefault(number, resume)
        return next(iter(self._partial_replies)) != number

    def end_reply(self, number: int) -> None:
        """Notes that a connection holds little of a reply, or that its client must accept bytes before more is read."""
        if self._partial_replies.pop(number, None) is not None and self._partial_replies:
            self._resume_later()

    def forget(self, number: int, held: int) -> None:
        """Stops counting a connection that has ended, and that has counted `held` bytes."""
        self._paused.pop(number, None)
        self.end_reply(number)
        self.add(-held)

    def _resume_later(self) -> None:
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self._poller.add_turn(self._resume_some)

    def _resume_some(self) -> None:
        """Resumes the next connections. While the budget is exceeded, resumes only the oldest incomplete reply."""
        self._waits_for_turn = False
        if self.exceeded:
            if self._partial_replies:
                next(iter(self._partial_replies.values()))()
            return
        for number in list(islice(self._paused, RESUMED_PER_TURN)):
            resume = self._paused.pop(number, None)
            if resume is not None:
                resume()
        if self._paused and not self.exceeded:
            self._resume_later()
