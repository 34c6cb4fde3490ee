"""What Kafka's compression codecs make of bytes, undone within a limit.

Owns: `Codec`, `decompress`. Must not know: records, batches, where the bytes come from.

gzip is the standard library's zlib; snappy, lz4 blocks and zstd are cramjam's (one wheel for all three). No codec may
write more than the limit allows, whatever the bytes announce: each writes into room of a known size, or is asked for
its size before it begins.
"""

import zlib
from enum import IntEnum

import cramjam

from group_sidecar.codecs.errors import DecodeError

LARGEST_DECOMPRESSED = 64 << 20
"""Bytes that one batch may become. Brokers append no batch larger than ``message.max.bytes``, 1 MiB unless changed;
this leaves room for a setting of some MiB, compressed well, and is still little to hold once."""

XERIAL_MAGIC = b"\x82SNAPPY\0"
XERIAL_HEAD = 16
"""The magic, and two int32: the version, and the oldest version that can read it."""

LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_BLOCK_SIZES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
LZ4_STORED = 1 << 31
"""Of a block's length: the block is not compressed."""

GZIP_PIECE = 256
"""Bytes that a gzip member gets first; it gets twice as many each time, until it ends."""

FIRST_ROOM = 64 << 10
"""Kafka's zstd frames do not say how large they will be. Room is doubled from here, or from eight times the input,
until the content fits; decompressing twice now and then costs less than room for the worst case each time."""


class Codec(IntEnum):
    """The codec as the low three bits of a batch's attributes say it (Kafka class ``CompressionType``)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompress(codec: Codec, data: bytes, limit: int = LARGEST_DECOMPRESSED) -> bytes:
    """The content of compressed bytes.

    Args:
        codec: how they are compressed.
        data: all of them; given back where the codec is NONE.
        limit: bytes that the content may have.

    Raises:
        DecodeError: they are damaged or cut off, or the content is larger than the limit.
    """
    if codec is Codec.NONE:
        return data
    try:
        return _DECOMPRESS[codec](data, limit)
    except (zlib.error, cramjam.DecompressionError, IndexError) as error:
        raise _damaged(codec, str(error).strip() or "damaged") from error


def _damaged(codec: Codec, reason: str) -> DecodeError:
    return DecodeError(f"{codec.name.lower()} data", "", reason)


def _gzip(data: bytes, limit: int) -> bytes:
    """One member after another, as Java's GZIPInputStream reads them.

    A member gets its bytes in pieces that grow with it, because zlib copies what it was given and did not use. So no
    byte is copied more than a few times, however many members there are.
    """
    parts: list[bytes] = []
    position = 0
    while position < len(data) or not parts:
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        piece = GZIP_PIECE
        while not member.eof:
            if position >= len(data):
                raise _damaged(Codec.GZIP, "cut off")
            part = member.decompress(data[position : position + piece], limit + 1)
            limit -= len(part)
            if limit < 0:
                raise _damaged(Codec.GZIP, "more bytes decompressed than allowed")
            parts.append(part)
            position += piece
            piece *= 2
        position = min(position, len(data)) - len(member.unused_data)
    return b"".join(parts)


def _snappy(data: bytes, limit: int) -> bytes:
    """Raw snappy, or the blocks of xerial's snappy-java, which is what Java clients and brokers write."""
    if not data.startswith(XERIAL_MAGIC):
        return _snappy_block(data, limit)
    if len(data) < XERIAL_HEAD:
        raise _damaged(Codec.SNAPPY, "cut off")
    parts: list[bytes] = []
    position = XERIAL_HEAD
    while position < len(data):
        start = position + 4
        position = start + int.from_bytes(data[start - 4 : start], "big")
        part = _snappy_block(data[start:position], limit)
        limit -= len(part)
        parts.append(part)
    return b"".join(parts)


def _snappy_block(data: bytes, limit: int) -> bytes:
    # The block says its size, and the decompressor holds it to that.
    if cramjam.snappy.decompress_raw_len(data) > limit:
        raise _damaged(Codec.SNAPPY, "more bytes decompressed than allowed")
    return bytes(cramjam.snappy.decompress_raw(data))


def _lz4(data: bytes, limit: int) -> bytes:
    """An LZ4 frame, walked by hand (https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md).

    Java clients up to 0.9 computed the head's checksum over the wrong bytes, and brokers up to message format 0 keep
    it so (KAFKA-3160). Libraries refuse such frames, hence the walk; what is inside is covered by the batch's own CRC,
    so no checksum of the frame's is looked at. Linked blocks are refused, as Kafka's own reader does.
    """
    if not data.startswith(LZ4_MAGIC):
        raise _damaged(Codec.LZ4, "no LZ4 frame")
    flags, room = data[4], LZ4_BLOCK_SIZES.get(data[5] >> 4 & 7, 0)
    if flags >> 6 != 1 or not flags & 0x20 or not room:
        raise _damaged(Codec.LZ4, f"frame of a kind that Kafka does not write: flags {flags:#x}, {data[5]:#x}")
    checksum = 4 if flags & 0x10 else 0
    position = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    block = bytearray(min(room, limit + 1))
    parts: list[bytes] = []
    while True:
        start = position + 4
        if start > len(data):
            raise _damaged(Codec.LZ4, "cut off")
        length = int.from_bytes(data[start - 4 : start], "little")
        if not length:
            return b"".join(parts)
        position = start + (length & ~LZ4_STORED) + checksum
        part = data[start : position - checksum]
        if not length & LZ4_STORED:
            part = bytes(block[: cramjam.lz4.decompress_block_into(part, block, output_len=len(block))])
        limit -= len(part)
        if limit < 0:
            raise _damaged(Codec.LZ4, "more bytes decompressed than allowed")
        parts.append(part)


def _zstd(data: bytes, limit: int) -> bytes:
    room = max(FIRST_ROOM, 8 * len(data))
    while True:
        output = bytearray(min(room, limit))
        try:
            return bytes(output[: cramjam.zstd.decompress_into(data, output)])
        except cramjam.DecompressionError as error:
            # Want of room is told from damage by the error's text alone, so either is tried again with more room.
            # Damage hardly gets here: batches have checksums.
            if room >= limit:
                raise _damaged(Codec.ZSTD, f"damaged, or more bytes decompressed than allowed: {error}") from error
        room *= 2


_DECOMPRESS = {Codec.GZIP: _gzip, Codec.SNAPPY: _snappy, Codec.LZ4: _lz4, Codec.ZSTD: _zstd}
