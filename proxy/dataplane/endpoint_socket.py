"""One socket of a connection with its backlog, and a pipe through which the kernel moves bytes between two sockets."""

import fcntl
import os
import socket
import struct
import termios
from select import EPOLLET, EPOLLIN, EPOLLRDHUP
from typing import Final

READ_EVENTS = EPOLLIN | EPOLLRDHUP | EPOLLET
"""The epoll events of a socket that is read. With EPOLLET, epoll reports new bytes only once, and need not check each
socket again before it sleeps. A caller that leaves bytes unread must re-arm the socket (decision 78)."""
MAX_READ_BYTES = 524_288
"""The maximum number of bytes of one read. A smaller number costs more system calls and wakes broker and client more
often. A larger number needs more memory for each peer that does not read (decision 78)."""
SMALL_READ_BYTES: Final = 478
"""The maximum number of bytes of one read from a peer that sends little. A bytes object of this size takes at most 512
bytes with its header, which is the largest block of Python's own allocator. A larger block costs a call of malloc and
free for each read."""
SPLICE_BYTES = 262_144
"""The maximum number of bytes that the kernel moves at a time. A larger number saves no CPU and makes other connections
wait longer. A smaller number costs more CPU (decision 48)."""
YIELD_AFTER_BYTES = 1_048_576
"""After this many moved bytes the thread yields the processor. A smaller number shortens the wait of small requests.
But on a busy processor each yield may cost a time slice of the scheduler, which is some milliseconds (decision 48)."""


def keep_read_buffers() -> None:
    """Makes the C library keep the memory of read buffers instead of mapping new memory for each long read.

    glibc maps each block above a threshold separately, and unmaps the block when it is freed. The kernel then has to
    clear 64 pages for each 256 KiB that are read. glibc raises the threshold to the size of a mapped block when that
    block is freed (mallopt(3), M_MMAP_THRESHOLD). Other C libraries are not affected.
    """
    block = bytes(2 * MAX_READ_BYTES)
    del block


class EndpointSocket:
    """One socket of a connection, as a non-blocking descriptor.

    There is no socket object, because Python takes longer to create and close a socket object than to use it.

    Args:
        fd: the descriptor.
        rest: bytes that were read from the socket already, for example during a handshake.

    Attributes:
        fd: the descriptor.
        backlog: the bytes that the peer has not accepted yet.
        interest: the epoll events that the poller reports.
        read_size: the maximum number of bytes of the next read.
        may_have_more: whether the last read may have left bytes in the socket.
        is_plain: whether the socket has no TLS, so that the bytes of `read` and `send` are the bytes on the wire.
        is_read_ahead: whether bytes, or the end of the stream, were read from the socket and not returned yet. Epoll
            does not report them.
        control_records: how many TLS records of the last read contain no bytes for the caller. Without TLS the number
            is 0.
    """

    __slots__ = (
        "_rest",
        "backlog",
        "control_records",
        "fd",
        "interest",
        "is_plain",
        "is_read_ahead",
        "may_have_more",
        "read_size",
    )

    def __init__(self, fd: int, rest: bytes = b"") -> None:
        self.fd = fd
        self._rest = rest
        self.interest = READ_EVENTS
        self.backlog: list[memoryview] = []
        self.read_size = SMALL_READ_BYTES
        self.may_have_more = False
        self.is_plain = True
        self.is_read_ahead = False
        self.control_records = 0

    @property
    def backlog_bytes(self) -> int:
        """The number of bytes that the peer has not accepted yet."""
        return sum(map(len, self.backlog))

    @property
    def read_ahead_bytes(self) -> int:
        """The number of bytes that were read from the socket and not returned yet."""
        return 0

    def read(self) -> bytes:
        """Reads a chunk. An empty chunk is the end of the stream.

        Raises:
            BlockingIOError: no bytes have arrived.
            OSError: the connection is broken.
        """
        self.may_have_more = False
        chunk = os.read(self.fd, self.read_size)
        if len(chunk) == self.read_size:
            self.may_have_more = True
            self.grow_read_size()
        elif self.read_size > SMALL_READ_BYTES and len(chunk) < SMALL_READ_BYTES:
            self.read_size = SMALL_READ_BYTES
        return chunk

    def read_rest(self) -> bytes:
        """Returns the bytes that were read before the data path got the socket. A second call returns no bytes."""
        rest, self._rest = self._rest, b""
        return rest

    def grow_read_size(self) -> None:
        """Makes the next read larger, because the last read filled its buffer."""
        self.read_size = min(self.read_size * 8, MAX_READ_BYTES)

    def send(self, data: bytes) -> None:
        """Sends the bytes that the peer accepts now and keeps the rest. Raises OSError if the connection is broken."""
        self.send_wire(data)

    def send_wire(self, data: bytes) -> None:
        """Sends bytes without encrypting them, even if the socket has TLS. See `send`."""
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
        """Sends as much of the first block of the backlog as the peer accepts now.

        Raises:
            BlockingIOError: the peer accepts no bytes now.
            OSError: the connection is broken.
        """
        sent = os.write(self.fd, self.backlog[0])
        rest = self.backlog[0][sent:]
        self.backlog[:1] = [rest] if rest else []

    @property
    def unacknowledged_bytes(self) -> int:
        """How many sent bytes the peer's kernel has not acknowledged. The end of the stream counts as one byte.

        Raises OSError if the connection is broken.
        """
        (count,) = struct.unpack("i", fcntl.ioctl(self.fd, termios.TIOCOUTQ, bytes(4)))  # tcp(7): SIOCOUTQ
        return int(count)

    def shut(self) -> None:
        """Shuts down the sending side. Raises OSError if the connection is broken."""
        socket_object = socket.socket(fileno=self.fd)
        try:
            socket_object.shutdown(socket.SHUT_WR)
        finally:
            socket_object.detach()

    def close(self) -> None:
        """Closes the socket and drops the backlog. Must be called only once."""
        self.backlog.clear()
        os.close(self.fd)


class SplicePipe:
    """A pipe through which the kernel moves bytes from one socket to another without a copy in this process."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._room = fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, SPLICE_BYTES)
        except OSError:  # The user has reached the limit on pipe memory, so the pipe keeps its default size.
            self._room = fcntl.fcntl(self._in, fcntl.F_GETPIPE_SZ)
        self._moved = 0
        """The bytes moved since the last yield."""

    def splice(self, source: EndpointSocket, target: EndpointSocket, max_bytes: int) -> int:
        """Moves bytes that have arrived, at most `max_bytes`. Bytes that the target does not accept go to the target's
        backlog.

        Returns:
            The number of bytes that were read from the source, 0 at the end of its stream.

        Raises:
            BlockingIOError: no bytes have arrived.
            BrokenPipeError: the target's connection is broken.
            OSError: the source's connection is broken.
        """
        received = left = os.splice(source.fd, self._in, min(max_bytes, self._room), flags=os.SPLICE_F_NONBLOCK)
        self._moved += received
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
        return received

    def yield_cpu(self) -> None:
        """Yields the processor to other threads if many bytes were moved since the last yield."""
        if self._moved >= YIELD_AFTER_BYTES:
            self._moved = 0
            os.sched_yield()

    def close(self) -> None:
        """Closes the pipe."""
        os.close(self._in)
        os.close(self._out)
