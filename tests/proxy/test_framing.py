"""A stream cut into frames: whole, in pieces, and where it is none."""

import tracemalloc
from itertools import cycle, islice
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.proxy.framing import BadFrameLength, Frame, FrameWalker, Look, Run
from tests.proxy.playbook import framed, pieces

HEAD = 5
"""Length and one byte: P passes, T is taken, M says more only when five more bytes are there."""
LARGEST = 10_000


class Walk:
    """A walker, and what it made of a stream."""

    def __init__(self) -> None:
        self.walker = FrameWalker(HEAD, 1, LARGEST, self._look)
        self.looked = b""
        self.items: list[Run | Frame] = []

    def _look(self, buffer: bytes, start: int, end: int) -> Look:
        kind = buffer[start + 4 : start + 5]
        size = int.from_bytes(buffer[start : start + 4], "big")
        if kind == b"M" and end - start < min(HEAD + 5, 4 + size):
            return Look.MORE
        self.looked += kind
        return Look.TAKE if kind == b"T" else Look.PASS

    def push(self, chunk: bytes) -> list[Run | Frame]:
        """What comes of a chunk."""
        self.walker.push(chunk)
        before = len(self.items)
        while (item := self.walker.next()) is not None:
            self.items.append(item)
        return self.items[before:]


def test_frames_that_nobody_takes_leave_as_the_very_chunk_they_came_in() -> None:
    chunk = framed(b"P1") + framed(b"P22") + framed(b"P")
    (run,) = Walk().push(chunk)
    assert isinstance(run, Run)
    assert run.data is chunk


def test_a_taken_frame_parts_the_run_around_it() -> None:
    before, taken, after = framed(b"P1") + framed(b"P2"), framed(b"T3"), framed(b"P4")
    assert Walk().push(before + taken + after) == [Run(before), Frame(taken), Run(after)]


def test_a_long_frame_passes_as_it_comes_and_nothing_is_held() -> None:
    walk, long = Walk(), framed(b"P" * 1000)
    assert walk.push(long[:100]) == [Run(long[:100])]
    assert (walk.walker.passing, walk.walker.between_frames, walk.walker.held_bytes) == (904, False, 0)
    assert walk.push(long[100:] + framed(b"P")) == [Run(long[100:] + framed(b"P"))]
    assert (walk.walker.passing, walk.walker.between_frames, walk.walker.held_bytes) == (False, True, 0)


def test_a_long_taken_frame_is_collected_in_pieces_and_counted() -> None:
    walk, before, long = Walk(), framed(b"P1"), framed(b"T" * 1000)
    assert walk.push(before + long[:20]) == [Run(before)]
    for start in range(20, 1000, 20):
        assert walk.walker.held_bytes == start
        assert walk.push(long[start : start + 20]) == []
    assert walk.push(long[1000:] + b"\0\0") == [Frame(long)]
    assert walk.walker.held_bytes == 2
    assert not walk.walker.between_frames
    assert walk.looked == b"PT"


class Piece(bytes):
    """Bytes that tell when they are put behind others."""

    joined = 0

    def __radd__(self, before: bytes) -> bytes:
        Piece.joined += 1
        return before + bytes(self)


def test_the_pieces_of_a_long_taken_frame_are_not_copied_again_with_each() -> None:
    walk, long = Walk(), framed(b"T" * 1000)
    Piece.joined = 0
    for piece in pieces(long, 10):
        walk.push(Piece(piece))
    assert walk.items == [Frame(long)]
    assert Piece.joined == 0


def test_a_long_taken_frame_takes_no_more_memory_for_coming_in_tiny_pieces() -> None:
    walk, size = FrameWalker(HEAD, 1, 1_000_000, lambda buffer, start, end: Look.TAKE), 100_000
    tracemalloc.start()
    try:
        for at in range(0, size, 2):
            walk.push((size + 1).to_bytes(4, "big") + b"T" if at == 0 else at.to_bytes(4, "big")[2:])
            walk.next()
        assert tracemalloc.get_traced_memory()[0] < 2 * walk.held_bytes
    finally:
        tracemalloc.stop()


def test_a_frame_whose_first_bytes_do_not_say_is_looked_at_again() -> None:
    walk, frame = Walk(), framed(b"M23456789")
    assert walk.push(framed(b"P") + frame[:9]) == [Run(framed(b"P"))]
    assert walk.walker.held_bytes == 9
    assert walk.push(frame[9:]) == [Run(frame)]
    assert walk.looked == b"PM"


def test_nothing_is_asked_of_a_frame_before_its_head_is_there() -> None:
    walk = Walk()
    assert walk.push(framed(b"P1")[:4]) == []
    assert walk.looked == b""
    assert not walk.walker.between_frames


@pytest.mark.parametrize("size", [0, -1, -(2**31), LARGEST + 1, 2**31 - 1])
@pytest.mark.parametrize("tail", [b"", b"more"])
def test_what_came_before_a_bad_length_goes_on_first(size: int, tail: bytes) -> None:
    walk, good = Walk(), framed(b"P1") + framed(b"T2")
    walk.walker.push(good + size.to_bytes(4, "big", signed=True) + tail)
    assert walk.walker.next() == Run(framed(b"P1"))
    assert walk.walker.next() == Frame(framed(b"T2"))
    for _ in range(2):
        with pytest.raises(BadFrameLength):
            walk.walker.next()


def test_a_bad_length_right_behind_a_run_is_met_at_the_next_step() -> None:
    walk = Walk()
    walk.walker.push(framed(b"P1") + bytes(4))
    assert walk.walker.next() == Run(framed(b"P1"))
    with pytest.raises(BadFrameLength):
        walk.walker.next()


def test_smallest_and_largest_frames_are_frames() -> None:
    walk, frames = Walk(), framed(b"P") + framed(b"T" * LARGEST)
    assert walk.push(frames) == [Run(framed(b"P")), Frame(framed(b"T" * LARGEST))]


def test_what_a_look_changes_holds_for_the_frames_behind() -> None:
    def look(buffer: bytes, start: int, end: int) -> Look:
        walker.head, walker.smallest = 4, 0
        return Look.PASS

    walker = FrameWalker(HEAD, 1, LARGEST, look)
    walker.push(framed(b"P") + framed(b"") + framed(b""))
    assert walker.next() == Run(framed(b"P") + framed(b"") + framed(b""))
    assert walker.between_frames


def test_the_rest_is_given_up_once() -> None:
    walk = Walk()
    walk.push(framed(b"T1") + b"\0\0\0")
    assert walk.walker.rest() == b"\0\0\0"
    assert walk.walker.rest() == b""
    assert walk.walker.between_frames


class Stream(NamedTuple):
    """Frames and how they are cut."""

    frames: list[bytes]
    chunks: list[bytes]


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Any frames, cut anywhere."""
    payloads = st.tuples(st.sampled_from([b"P", b"T", b"M"]), st.integers(0, 40) | st.integers(0, 900))
    frames = [framed(kind + bytes(length)) for kind, length in draw(st.lists(payloads, max_size=12))]
    data, chunks = b"".join(frames), []
    sizes = draw(st.lists(st.integers(1, 9) | st.integers(1, 400), min_size=1, max_size=8))
    for size in islice(cycle(sizes), len(data)):
        if data:
            chunks.append(data[:size])
            data = data[size:]
    return Stream(frames, chunks)


@given(streams())
def test_any_chunking_gives_the_same_bytes_and_the_same_taken_frames(stream: Stream) -> None:
    walk = Walk()
    for count, chunk in enumerate(stream.chunks, 1):
        walk.push(chunk)
        given_out = sum(len(item.data) for item in walk.items)
        assert given_out + walk.walker.held_bytes == sum(map(len, stream.chunks[:count]))
    assert b"".join(item.data for item in walk.items) == b"".join(stream.frames)
    assert [item.data for item in walk.items if isinstance(item, Frame)] == [
        frame for frame in stream.frames if frame[4:5] == b"T"
    ]
    assert walk.looked == b"".join(frame[4:5] for frame in stream.frames)
    assert walk.walker.between_frames
    assert walk.walker.held_bytes == 0


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_byte_by_byte_each_frame_is_decided_once(size: int) -> None:
    walk, frames = Walk(), [framed(b"M" + bytes(20)), framed(b"P"), framed(b"T" + bytes(9)), framed(b"M")]
    for piece in pieces(b"".join(frames), size):
        walk.push(piece)
    assert walk.looked == b"MPTM"
