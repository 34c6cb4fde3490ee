"""Decompression within a limit."""

import random
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from group_sidecar.codecs.compression import GZIP_FIRST_CHUNK_BYTES, Codec, decompress
from group_sidecar.codecs.errors import DecodeError
from tests.codecs.lz4 import lz4_frame


def gzip(content: bytes) -> bytes:
    return zlib.compress(content, wbits=31)


def snappy(content: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(content))


def xerial(content: bytes) -> bytes:
    """Returns content as snappy-java frames it: a head, then blocks of 32 KiB, each after its length."""
    blocks = [snappy(content[start : start + (32 << 10)]) for start in range(0, len(content), 32 << 10)]
    sized = b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    return b"\x82SNAPPY\0" + (1).to_bytes(4, "big") * 2 + sized


def zstd(content: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(content))


WRITERS: list[tuple[Codec, Callable[[bytes], bytes]]] = [
    (Codec.GZIP, gzip),
    (Codec.SNAPPY, snappy),
    (Codec.SNAPPY, xerial),
    (Codec.LZ4, lz4_frame),
    (Codec.ZSTD, zstd),
]
every_writer = pytest.mark.parametrize(("codec", "write"), WRITERS, ids=lambda value: getattr(value, "__name__", ""))
contents = st.binary(max_size=300) | st.integers(0, 200_000).map(bytes)


@every_writer
@settings(deadline=None)
@given(content=contents)
def test_decompress_round_trip(codec: Codec, write: Callable[[bytes], bytes], content: bytes) -> None:
    """Decompression restores the content that was compressed."""
    assert decompress(codec, write(content)) == content


def test_decompress_without_codec() -> None:
    """Data with no codec is returned unchanged."""
    assert decompress(Codec.NONE, b"abc") == b"abc"


@every_writer
@pytest.mark.parametrize("size", [1, 1_000, 65_536, 65_537, 300_000])
def test_decompress_limit(codec: Codec, write: Callable[[bytes], bytes], size: int) -> None:
    """Decompression returns content as large as the limit and raises DecodeError beyond the limit."""
    data = write(bytes(size))
    assert decompress(codec, data, limit=size) == bytes(size)
    with pytest.raises(DecodeError):
        decompress(codec, data, limit=size - 1)


@pytest.mark.parametrize("size", [0, 100, 255, 256, 257, 10_000])
def test_gzip_members_of_various_sizes(size: int) -> None:
    """Decompression concatenates gzip members of various sizes."""
    contents = [random.Random(number).randbytes(size) for number in range(5)]
    assert decompress(Codec.GZIP, b"".join(map(gzip, contents))) == b"".join(contents)


@pytest.mark.parametrize("content", [b"", b"x", bytes(100_000)])
def test_gzip_decompression_is_linear(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gzip decompression feeds each input byte to zlib only a few times, even with 500 members."""
    given = 0

    class Counting:
        def __init__(self, wbits: int) -> None:
            self._member = zlib_member(wbits=wbits)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._member, name)

        def decompress(self, data: bytes, limit: int) -> bytes:
            nonlocal given
            given += len(data)
            return self._member.decompress(data, limit)

    zlib_member = zlib.decompressobj
    data = gzip(content) * 500
    monkeypatch.setattr(zlib, "decompressobj", Counting)
    assert decompress(Codec.GZIP, data) == content * 500
    assert given <= 4 * len(data) + 500 * GZIP_FIRST_CHUNK_BYTES


def gzip_behind_gzip(content: bytes) -> bytes:
    return gzip(bytes(1 << 20)) + gzip(content)


@pytest.mark.parametrize(
    ("codec", "write"), [*WRITERS, (Codec.GZIP, gzip_behind_gzip)], ids=lambda value: getattr(value, "__name__", "")
)
def test_bomb_uses_little_memory(codec: Codec, write: Callable[[bytes], bytes]) -> None:
    """A compression bomb raises DecodeError and uses less than 8 MiB of memory."""
    data = write(bytes(32 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decompress(codec, data, limit=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@every_writer
def test_truncated_data_is_refused(codec: Codec, write: Callable[[bytes], bytes]) -> None:
    """Compressed data truncated at any byte raises a DecodeError with the codec's name and a reason."""
    content = b"some content that is said again: some content that is said again"
    data = write(content)
    for end in range(len(data)):
        if write is xerial and end == 16:  # The head alone states that the content is empty.
            assert decompress(codec, data[:end]) == b""
        else:
            with pytest.raises(DecodeError) as caught:
                decompress(codec, data[:end])
            assert caught.value.what == f"{codec.name.lower()} data"
            assert caught.value.reason


@every_writer
@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_damaged_data_decompresses_or_fails(codec: Codec, write: Callable[[bytes], bytes], data: st.DataObject) -> None:
    """Decompressing damaged data raises nothing but DecodeError and stays within the limit."""
    body = write(data.draw(contents))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(len(body), 64)))
        new = data.draw(st.binary(max_size=4))
        body = body[:at] + new + body[at + data.draw(st.integers(0, 4)) :]
    with suppress(DecodeError):
        assert len(decompress(codec, body, limit=100_000)) <= 100_000


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.binary(max_size=80))
def test_any_bytes_decompress_or_fail(codec: Codec, data: bytes) -> None:
    """Decompressing any bytes raises nothing but DecodeError and stays within the limit."""
    with suppress(DecodeError):
        assert len(decompress(codec, data, limit=1_000)) <= 1_000


def test_gzip_members_share_limit() -> None:
    """All gzip members together count towards the decompression limit."""
    data = gzip(b"one ") + gzip(b"two")
    assert decompress(Codec.GZIP, data, limit=7) == b"one two"
    with pytest.raises(DecodeError):
        decompress(Codec.GZIP, data, limit=6)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    ("flags", "head"),
    [(0x60, b""), (0x70, b""), (0x64, b""), (0x68, bytes(8)), (0x61, bytes(4)), (0x7D, bytes(12))],
)
@pytest.mark.parametrize("head_checksum", [0, 0x82, 0xFF])
def test_all_lz4_frame_variants(flags: int, head: bytes, stored: bool, head_checksum: int) -> None:
    """LZ4 frames with any supported flags, header fields and checksums decompress, and the limit applies."""
    content = bytes(range(256)) * 400
    data = lz4_frame(content, flags=flags, stored=stored, head=head, head_checksum=head_checksum)
    assert decompress(Codec.LZ4, data, limit=len(content)) == content
    assert decompress(Codec.LZ4, data + bytes(4), limit=len(content)) == content  # The checksum of the content.
    with pytest.raises(DecodeError):
        decompress(Codec.LZ4, data, limit=len(content) - 1)


@pytest.mark.parametrize(("at", "byte"), [(0, 5), (4, 0x40), (4, 0xA0), (5, 0x30)])
def test_unsupported_lz4_frames_are_refused(at: int, byte: int) -> None:
    """An LZ4 frame of a kind that Kafka does not write raises DecodeError."""
    data = bytearray(lz4_frame(b"content", stored=True))
    data[at] = byte
    with pytest.raises(DecodeError):
        decompress(Codec.LZ4, bytes(data))


def test_lz4_block_beyond_frame_limit() -> None:
    """An LZ4 block larger than its frame allows raises DecodeError."""
    block = bytes(cramjam.lz4.compress_block(bytes(70_000), store_size=False))
    data = b"\x04\x22\x4d\x18\x60\x40\0" + len(block).to_bytes(4, "little") + block + bytes(4)
    with pytest.raises(DecodeError):
        decompress(Codec.LZ4, data)
