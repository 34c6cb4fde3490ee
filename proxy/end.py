"""One socket of a connection, and what is kept for it.

Owns: reading, sending, keeping what a peer does not take, and having the kernel move bytes from one socket to
another. Must not know: what the bytes are, and when it is their turn (`pump`).
"""

import fcntl
import os
import socket
from select import EPOLLET, EPOLLIN, EPOLLRDHUP

READING = EPOLLIN | EPOLLRDHUP | EPOLLET
"""Of what has come the kernel tells once, not for as long as it is there: so it need not look at each socket that was
read before it sleeps again. Who has not read all of it has to ask again (decision 78)."""
CHUNK = 524_288
"""Most bytes of one read. Fewer cost more calls, and wake broker and client more often; of more, more is held for each
peer that does not read (decision 78)."""
SMALL_CHUNK = 478
"""Bytes of one read from who sends little: with its head as much as Python's own allocator serves. Larger room has to
be found and given back each time."""
SHORTCUT_BYTES = 262_144
"""Most bytes that the kernel moves at a time. Four times as many cost as much a GB, and who comes meanwhile waits
longer; fewer cost more."""
TURN_BYTES = 1_048_576
"""So much moved, and who waits for the processor goes first. Fewer serve small requests beside it better; but where
processors are never idle, each time may cost one of the scheduler's slices, some milliseconds."""


def keep_read_buffers() -> None:
    """Has the C library keep the memory of read buffers, in place of mapping it anew for each long read.

    glibc maps each block above a threshold by itself and unmaps the block when it is freed. The kernel then has to
    clear 64 pages for each 256 KiB that are read. glibc raises the threshold to the size of a mapped block when that
    block is freed (mallopt(3), M_MMAP_THRESHOLD). Other C libraries are not changed.
    """
    block = bytes(2 * CHUNK)
    del block


class End:
    """One socket of a connection. `interest`: the events that are waited for. `room`: most bytes of the next read.

    It is the descriptor alone, which must not block: a socket object is dearer to make and to close than to use.
    """

    __slots__ = ("backlog", "fd", "interest", "room")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.interest = READING
        self.backlog: list[memoryview] = []
        self.room = SMALL_CHUNK

    @property
    def kept_bytes(self) -> int:
        """Bytes that the peer has not taken yet."""
        return sum(map(len, self.backlog))

    def read(self) -> bytes:
        """What has come; nothing at its end. Raises OSError: BlockingIOError where nothing has come."""
        chunk = os.read(self.fd, self.room)
        if len(chunk) == self.room:
            self.widen()
        elif self.room > SMALL_CHUNK and len(chunk) < SMALL_CHUNK:
            self.room = SMALL_CHUNK
        return chunk

    def widen(self) -> None:
        """A read filled the room: the next one has more."""
        self.room = min(self.room * 8, CHUNK)

    def send(self, data: bytes) -> None:
        """Sends what the peer takes now and keeps the rest. Raises OSError where it has gone."""
        if self.backlog:
            self.backlog.append(memoryview(data))
            return
        try:
            sent = os.write(self.fd, data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self.backlog.append(memoryview(data)[sent:])

    def flush(self) -> None:
        """Sends of what is kept what the peer takes now. Raises OSError: BlockingIOError where it is nothing."""
        sent = os.write(self.fd, self.backlog[0])
        rest = self.backlog[0][sent:]
        self.backlog[:1] = [rest] if rest else []

    def shut(self) -> None:
        """Tells the peer that nothing more is sent. Raises OSError where it has gone."""
        named = socket.socket(fileno=self.fd)
        try:
            named.shutdown(socket.SHUT_WR)
        finally:
            named.detach()

    def close(self) -> None:
        """Ends it; once. What the peer has not taken is dropped."""
        self.backlog.clear()
        os.close(self.fd)


class Shortcut:
    """A pipe through which the kernel moves bytes from one socket to another, and none is copied to this process."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._room = fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, SHORTCUT_BYTES)
        except OSError:  # The user's pipes have had their share; it stays as it is.
            self._room = fcntl.fcntl(self._in, fcntl.F_GETPIPE_SZ)
        self._moved = 0
        """Bytes, since it last gave way."""

    def move(self, source: End, target: End, most: int) -> int:
        """Moves what has come, and keeps for the target what it does not take. Gives how many bytes came; 0 at the end.

        Raises:
            OSError: the source is broken; BlockingIOError where nothing has come.
            BrokenPipeError: the target takes nothing more.
        """
        came = left = os.splice(source.fd, self._in, min(most, self._room), flags=os.SPLICE_F_NONBLOCK)
        self._moved += came
        try:
            while left and not target.backlog:
                left -= os.splice(self._out, target.fd, left, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            pass
        except OSError as error:
            os.read(self._out, left)
            raise BrokenPipeError(*error.args) from error
        while left:
            rest = os.read(self._out, left)
            target.backlog.append(memoryview(rest))
            left -= len(rest)
        return came

    def give_way(self) -> None:
        """Lets those go first who wait for this processor, where much was moved since it last did."""
        if self._moved >= TURN_BYTES:
            self._moved = 0
            os.sched_yield()

    def close(self) -> None:
        """Ends it."""
        os.close(self._in)
        os.close(self._out)
