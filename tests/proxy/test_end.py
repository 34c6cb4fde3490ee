"""One socket of a connection, on real sockets."""

import os
import random
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from group_sidecar.proxy.end import CHUNK, SHORTCUT_BYTES, SMALL_CHUNK, TURN_BYTES, End, Shortcut
from tests.kafka.processes import PATIENCE
from tests.proxy.fakes import tcp_pair

FAULTS = """
import fcntl, os, resource
from group_sidecar.proxy.end import CHUNK, End, keep_read_buffers
source, target = os.pipe()
fcntl.fcntl(target, fcntl.F_SETPIPE_SZ, CHUNK)
def faults():
    end = End(source)
    for _ in range(100):
        end.room = CHUNK
        os.write(target, bytes(CHUNK // 2))
        end.read()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
keep_read_buffers()
faults()
print(-faults() + faults())
"""
"""Prints how many pages the kernel gives for a hundred long reads."""
MUCH = 16 << 20
"""More than two sockets and a pipe take."""


class Way:
    """A connection to read from and one to send to, seen from between them."""

    def __init__(self) -> None:
        (self.sender, near), (far, self.receiver) = tcp_pair(), tcp_pair()
        for sock in (near, far):
            sock.setblocking(False)
        self.source, self.target = End(near.detach()), End(far.detach())

    def close(self) -> None:
        for each in (self.sender, self.source, self.target, self.receiver):
            each.close()


@pytest.fixture
def way() -> Iterator[Way]:
    way = Way()
    yield way
    way.close()


@pytest.fixture
def shortcut() -> Iterator[Shortcut]:
    shortcut = Shortcut()
    yield shortcut
    shortcut.close()


def read(sock: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count and (piece := sock.recv(count - len(found))):
        found += piece
    return bytes(found)


def test_no_more_is_moved_than_asked_for(way: Way, shortcut: Shortcut) -> None:
    way.sender.sendall(b"abcdef")
    assert shortcut.move(way.source, way.target, 4) == 4
    assert read(way.receiver, 4) == b"abcd"
    assert way.source.read() == b"ef"


def test_what_the_target_does_not_take_is_kept_in_order(way: Way, shortcut: Shortcut) -> None:
    data = random.Random(1).randbytes(MUCH)
    way.sender.setblocking(False)
    sent = moved = 0
    while not way.target.backlog:
        with suppress(BlockingIOError):
            sent += way.sender.send(data[sent:])
        with suppress(BlockingIOError):
            moved += shortcut.move(way.source, way.target, SHORTCUT_BYTES)
    kept = b"".join(way.target.backlog)
    assert 0 < len(kept) == way.target.kept_bytes <= SHORTCUT_BYTES
    assert read(way.receiver, moved - len(kept)) + kept == data[:moved]


def test_nothing_to_move_is_said(way: Way, shortcut: Shortcut) -> None:
    with pytest.raises(BlockingIOError):
        shortcut.move(way.source, way.target, 10)


def test_the_end_is_no_bytes(way: Way, shortcut: Shortcut) -> None:
    way.sender.close()
    assert shortcut.move(way.source, way.target, 10) == 0


def test_a_broken_source_is_told_from_a_broken_target(way: Way, shortcut: Shortcut) -> None:
    way.sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    way.sender.close()
    with pytest.raises(ConnectionResetError):
        shortcut.move(way.source, way.target, 10)


def test_what_a_broken_target_does_not_take_reaches_nobody_else(way: Way, shortcut: Shortcut) -> None:
    way.sender.sendall(b"secret" * 100)
    way.target.shut()
    with pytest.raises(BrokenPipeError):
        shortcut.move(way.source, way.target, 600)
    other = Way()
    other.sender.sendall(b"hello")
    assert shortcut.move(other.source, other.target, 5) == 5
    assert read(other.receiver, 5) == b"hello"
    other.close()


def test_others_go_first_each_time_that_much_was_moved(
    way: Way, shortcut: Shortcut, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[int] = []
    moved = 0
    monkeypatch.setattr(os, "sched_yield", lambda: times.append(moved))
    while moved < 3 * TURN_BYTES:
        way.sender.sendall(bytes(TURN_BYTES // 16))
        read(way.receiver, shortcut.move(way.source, way.target, TURN_BYTES // 16))
        moved += TURN_BYTES // 16
        shortcut.give_way()
        shortcut.give_way()
    assert times == [TURN_BYTES, 2 * TURN_BYTES, 3 * TURN_BYTES]


def test_a_read_grows_with_what_comes_and_shrinks_again(way: Way) -> None:
    way.sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * CHUNK)
    way.sender.setblocking(False)
    way.sender.send(bytes(2 * CHUNK))
    sizes = [len(way.source.read()) for _ in range(3)]
    assert sizes[0] == SMALL_CHUNK < sizes[1] <= sizes[2] <= CHUNK


def test_long_reads_are_into_memory_that_is_kept() -> None:
    """A buffer that is mapped for each read costs 64 pages, each cleared by the kernel."""
    ran = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert int(ran.stdout) < 100
