"""Cuts a stream into frames: whole frames, pieces of frames, and malformed streams."""

import tracemalloc
from itertools import cycle, islice
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.proxy.dataplane.framing import BadFrameLength, FrameAction, FrameWalker, HeldFrame, PassedBytes
from tests.proxy.dataplane.playbook import framed, pieces

HEAD = 5
"""The size of a frame's head: the length and one byte. P is passed, T is held, and M needs five more bytes."""
LARGEST = 10_000


class Walk:
    """A walker with its items."""

    def __init__(self) -> None:
        self.walker = FrameWalker(HEAD, 1, LARGEST, self._look)
        self.looked = b""
        self.items: list[PassedBytes | HeldFrame] = []

    def _look(self, buffer: bytes, start: int, end: int) -> FrameAction:
        kind = buffer[start + 4 : start + 5]
        size = int.from_bytes(buffer[start : start + 4], "big")
        if kind == b"M" and end - start < min(HEAD + 5, 4 + size):
            return FrameAction.NEED_MORE
        self.looked += kind
        return FrameAction.HOLD if kind == b"T" else FrameAction.PASS

    def push(self, chunk: bytes) -> list[PassedBytes | HeldFrame]:
        """Pushes a chunk. Returns the new items."""
        self.walker.push(chunk)
        before = len(self.items)
        while (item := self.walker.next()) is not None:
            self.items.append(item)
        return self.items[before:]


def test_passed_frames_keep_their_chunk() -> None:
    """Frames that pass leave as the same bytes object in which they arrived."""
    chunk = framed(b"P1") + framed(b"P22") + framed(b"P")
    (run,) = Walk().push(chunk)
    assert isinstance(run, PassedBytes)
    assert run.data is chunk


def test_held_frame_splits_the_run() -> None:
    """A held frame splits the passed bytes around it."""
    before, taken, after = framed(b"P1") + framed(b"P2"), framed(b"T3"), framed(b"P4")
    assert Walk().push(before + taken + after) == [PassedBytes(before), HeldFrame(taken), PassedBytes(after)]


def test_long_passed_frame_is_not_held() -> None:
    """A long frame that passes leaves in its chunks, and no byte is held."""
    walk, long = Walk(), framed(b"P" * 1000)
    assert walk.push(long[:100]) == [PassedBytes(long[:100])]
    assert (walk.walker.passing, walk.walker.between_frames, walk.walker.held_bytes) == (904, False, 0)
    assert walk.push(long[100:] + framed(b"P")) == [PassedBytes(long[100:] + framed(b"P"))]
    assert (walk.walker.passing, walk.walker.between_frames, walk.walker.held_bytes) == (False, True, 0)


def test_long_held_frame_is_collected() -> None:
    """A long held frame is collected from its pieces, and its bytes are counted."""
    walk, before, long = Walk(), framed(b"P1"), framed(b"T" * 1000)
    assert walk.push(before + long[:20]) == [PassedBytes(before)]
    for start in range(20, 1000, 20):
        assert walk.walker.held_bytes == start
        assert walk.push(long[start : start + 20]) == []
    assert walk.push(long[1000:] + b"\0\0") == [HeldFrame(long)]
    assert walk.walker.held_bytes == 2
    assert not walk.walker.between_frames
    assert walk.looked == b"PT"


class Piece(bytes):
    """Bytes that count how often they are appended to other bytes."""

    joined = 0

    def __radd__(self, before: bytes) -> bytes:
        Piece.joined += 1
        return before + bytes(self)


def test_held_pieces_are_not_copied_each_time() -> None:
    """The pieces of a long held frame are not joined again with each new piece."""
    walk, long = Walk(), framed(b"T" * 1000)
    Piece.joined = 0
    for piece in pieces(long, 10):
        walk.push(Piece(piece))
    assert walk.items == [HeldFrame(long)]
    assert Piece.joined == 0


def test_tiny_pieces_cost_little_memory() -> None:
    """A held frame in tiny pieces uses less than twice the memory of its bytes."""
    walk, size = FrameWalker(HEAD, 1, 1_000_000, lambda buffer, start, end: FrameAction.HOLD), 100_000
    tracemalloc.start()
    try:
        for at in range(0, size, 2):
            walk.push((size + 1).to_bytes(4, "big") + b"T" if at == 0 else at.to_bytes(4, "big")[2:])
            walk.next()
        assert tracemalloc.get_traced_memory()[0] < 2 * walk.held_bytes
    finally:
        tracemalloc.stop()


def test_undecided_frame_is_classified_again() -> None:
    """A frame whose first bytes do not suffice is classified again when more bytes arrive."""
    walk, frame = Walk(), framed(b"M23456789")
    assert walk.push(framed(b"P") + frame[:9]) == [PassedBytes(framed(b"P"))]
    assert walk.walker.held_bytes == 9
    assert walk.push(frame[9:]) == [PassedBytes(frame)]
    assert walk.looked == b"PM"


def test_frame_without_head_is_not_classified() -> None:
    """A frame is not classified before its head is complete."""
    walk = Walk()
    assert walk.push(framed(b"P1")[:4]) == []
    assert walk.looked == b""
    assert not walk.walker.between_frames


@pytest.mark.parametrize("size", [0, -1, -(2**31), LARGEST + 1, 2**31 - 1])
@pytest.mark.parametrize("tail", [b"", b"more"])
def test_bytes_before_bad_length_pass_first(size: int, tail: bytes) -> None:
    """Frames before a bad length are returned first. Then each step raises BadFrameLength."""
    walk, good = Walk(), framed(b"P1") + framed(b"T2")
    walk.walker.push(good + size.to_bytes(4, "big", signed=True) + tail)
    assert walk.walker.next() == PassedBytes(framed(b"P1"))
    assert walk.walker.next() == HeldFrame(framed(b"T2"))
    for _ in range(2):
        with pytest.raises(BadFrameLength):
            walk.walker.next()


def test_bad_length_after_run_raises_next() -> None:
    """A bad length directly after passed frames raises BadFrameLength at the next step."""
    walk = Walk()
    walk.walker.push(framed(b"P1") + bytes(4))
    assert walk.walker.next() == PassedBytes(framed(b"P1"))
    with pytest.raises(BadFrameLength):
        walk.walker.next()


def test_smallest_and_largest_frames_are_frames() -> None:
    walk, frames = Walk(), framed(b"P") + framed(b"T" * LARGEST)
    assert walk.push(frames) == [PassedBytes(framed(b"P")), HeldFrame(framed(b"T" * LARGEST))]


def test_classification_changes_later_frames() -> None:
    """A change of the walker's limits during classification applies to the following frames."""

    def look(buffer: bytes, start: int, end: int) -> FrameAction:
        walker.head, walker.smallest = 4, 0
        return FrameAction.PASS

    walker = FrameWalker(HEAD, 1, LARGEST, look)
    walker.push(framed(b"P") + framed(b"") + framed(b""))
    assert walker.next() == PassedBytes(framed(b"P") + framed(b"") + framed(b""))
    assert walker.between_frames


def test_rest_is_returned_once() -> None:
    """The unfinished rest is returned once."""
    walk = Walk()
    walk.push(framed(b"T1") + b"\0\0\0")
    assert walk.walker.rest() == b"\0\0\0"
    assert walk.walker.rest() == b""
    assert walk.walker.between_frames


class Stream(NamedTuple):
    """Frames, and the chunks into which their bytes are cut."""

    frames: list[bytes]
    chunks: list[bytes]


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Draws frames that are cut anywhere."""
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
def test_any_chunking_gives_the_same_frames(stream: Stream) -> None:
    """Any chunking yields the same bytes and held frames, and each frame is classified once."""
    walk = Walk()
    for count, chunk in enumerate(stream.chunks, 1):
        walk.push(chunk)
        given_out = sum(len(item.data) for item in walk.items)
        assert given_out + walk.walker.held_bytes == sum(map(len, stream.chunks[:count]))
    assert b"".join(item.data for item in walk.items) == b"".join(stream.frames)
    assert [item.data for item in walk.items if isinstance(item, HeldFrame)] == [
        frame for frame in stream.frames if frame[4:5] == b"T"
    ]
    assert walk.looked == b"".join(frame[4:5] for frame in stream.frames)
    assert walk.walker.between_frames
    assert walk.walker.held_bytes == 0


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_small_pieces_decide_each_frame_once(size: int) -> None:
    """Fed in pieces of a few bytes, each frame is classified once."""
    walk, frames = Walk(), [framed(b"M" + bytes(20)), framed(b"P"), framed(b"T" + bytes(9)), framed(b"M")]
    for piece in pieces(b"".join(frames), size):
        walk.push(piece)
    assert walk.looked == b"MPTM"
