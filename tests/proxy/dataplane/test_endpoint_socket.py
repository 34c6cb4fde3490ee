"""An endpoint socket of a connection, on real sockets."""

import os
import random
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from group_sidecar.proxy.dataplane.endpoint_socket import (
    MAX_READ_BYTES,
    SMALL_READ_BYTES,
    SPLICE_BYTES,
    YIELD_AFTER_BYTES,
    EndpointSocket,
    SplicePipe,
)
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.proxy.fakes import tcp_pair

FAULTS = """
import fcntl, os, resource
from group_sidecar.proxy.dataplane.endpoint_socket import MAX_READ_BYTES, EndpointSocket, keep_read_buffers
source, target = os.pipe()
fcntl.fcntl(target, fcntl.F_SETPIPE_SZ, MAX_READ_BYTES)
def faults():
    end = EndpointSocket(source)
    for _ in range(100):
        end.read_size = MAX_READ_BYTES
        os.write(target, bytes(MAX_READ_BYTES // 2))
        end.read()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
keep_read_buffers()
faults()
print(-faults() + faults())
"""
"""A program that prints the number of page faults of a hundred long reads."""
MUCH = 16 << 20
"""More bytes than two sockets and a pipe buffer."""


class Way:
    """A connection that the endpoint reads from, and a connection that it sends to."""

    def __init__(self) -> None:
        (self.sender, near), (far, self.receiver) = tcp_pair(), tcp_pair()
        for sock in (near, far):
            sock.setblocking(False)
        self.source, self.target = EndpointSocket(near.detach()), EndpointSocket(far.detach())

    def close(self) -> None:
        for each in (self.sender, self.source, self.target, self.receiver):
            each.close()


@pytest.fixture
def way() -> Iterator[Way]:
    way = Way()
    yield way
    way.close()


@pytest.fixture
def splice_pipe() -> Iterator[SplicePipe]:
    splice_pipe = SplicePipe()
    yield splice_pipe
    splice_pipe.close()


def read(sock: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count and (piece := sock.recv(count - len(found))):
        found += piece
    return bytes(found)


def test_splice_moves_at_most_the_limit(way: Way, splice_pipe: SplicePipe) -> None:
    """A splice moves no more bytes than requested."""
    way.sender.sendall(b"abcdef")
    assert splice_pipe.splice(way.source, way.target, 4) == 4
    assert read(way.receiver, 4) == b"abcd"
    assert way.source.read() == b"ef"


def test_untaken_bytes_stay_in_backlog_order(way: Way, splice_pipe: SplicePipe) -> None:
    """Bytes that the target socket does not accept stay in its backlog, in order."""
    data = random.Random(1).randbytes(MUCH)
    way.sender.setblocking(False)
    sent = moved = 0
    while not way.target.backlog:
        with suppress(BlockingIOError):
            sent += way.sender.send(data[sent:])
        with suppress(BlockingIOError):
            moved += splice_pipe.splice(way.source, way.target, SPLICE_BYTES)
    kept = b"".join(way.target.backlog)
    assert 0 < len(kept) == way.target.backlog_bytes <= SPLICE_BYTES
    assert read(way.receiver, moved - len(kept)) + kept == data[:moved]


def test_splice_without_bytes_raises(way: Way, splice_pipe: SplicePipe) -> None:
    """A splice from a source without bytes raises BlockingIOError."""
    with pytest.raises(BlockingIOError):
        splice_pipe.splice(way.source, way.target, 10)


def test_splice_at_end_of_stream_returns_zero(way: Way, splice_pipe: SplicePipe) -> None:
    """A splice at the end of the stream returns 0."""
    way.sender.close()
    assert splice_pipe.splice(way.source, way.target, 10) == 0


def test_splice_from_reset_source_raises(way: Way, splice_pipe: SplicePipe) -> None:
    """A splice from a source that was reset raises ConnectionResetError."""
    way.sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    way.sender.close()
    with pytest.raises(ConnectionResetError):
        splice_pipe.splice(way.source, way.target, 10)


def test_bytes_of_broken_target_do_not_leak(way: Way, splice_pipe: SplicePipe) -> None:
    """Bytes that a broken target did not accept never reach another connection."""
    way.sender.sendall(b"secret" * 100)
    way.target.shut()
    with pytest.raises(BrokenPipeError):
        splice_pipe.splice(way.source, way.target, 600)
    other = Way()
    other.sender.sendall(b"hello")
    assert splice_pipe.splice(other.source, other.target, 5) == 5
    assert read(other.receiver, 5) == b"hello"
    other.close()


def test_yield_cpu_after_each_transfer_quota(
    way: Way, splice_pipe: SplicePipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processor is yielded once each time YIELD_AFTER_BYTES were moved."""
    times: list[int] = []
    moved = 0
    monkeypatch.setattr(os, "sched_yield", lambda: times.append(moved))
    while moved < 3 * YIELD_AFTER_BYTES:
        way.sender.sendall(bytes(YIELD_AFTER_BYTES // 16))
        read(way.receiver, splice_pipe.splice(way.source, way.target, YIELD_AFTER_BYTES // 16))
        moved += YIELD_AFTER_BYTES // 16
        splice_pipe.yield_cpu()
        splice_pipe.yield_cpu()
    assert times == [YIELD_AFTER_BYTES, 2 * YIELD_AFTER_BYTES, 3 * YIELD_AFTER_BYTES]


def test_read_size_grows_up_to_the_limit(way: Way) -> None:
    """The size of a read starts at SMALL_READ_BYTES and grows up to MAX_READ_BYTES while much data is available."""
    way.sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_READ_BYTES)
    way.sender.setblocking(False)
    way.sender.send(bytes(2 * MAX_READ_BYTES))
    sizes = [len(way.source.read()) for _ in range(3)]
    assert sizes[0] == SMALL_READ_BYTES < sizes[1] <= sizes[2] <= MAX_READ_BYTES


def test_long_reads_reuse_memory() -> None:
    """Long reads reuse memory instead of mapping new pages for each read."""
    ran = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=True
    )
    assert int(ran.stdout) < 100
