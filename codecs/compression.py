"""Decompresses bytes in each of Kafka's compression codecs, within a size limit.

The standard library's zlib decompresses gzip. cramjam decompresses snappy, lz4 blocks and zstd, in one wheel. No result
is larger than the limit, whatever size the input announces. zlib stops at a given size. cramjam writes lz4 and zstd
into a buffer of known size, and reports the decompressed size of snappy before it decompresses.
"""

import zlib
from enum import IntEnum

import cramjam

from group_sidecar.codecs.errors import DecodeError

MAX_DECOMPRESSED_BYTES = 64 << 20
"""Largest decompressed size of one batch, in bytes. Brokers append no batch larger than ``message.max.bytes`` (default
1 MiB). The limit leaves room for batches of several MiB that compress well. Only one decompressed batch is in memory at
a time."""

XERIAL_MAGIC = b"\x82SNAPPY\0"
XERIAL_HEADER_BYTES = 16
"""Size of the magic and two int32 fields: the version, and the oldest compatible version."""

LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_BLOCK_SIZES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
LZ4_UNCOMPRESSED_FLAG = 1 << 31
"""Bit in a block's length field: the block is not compressed."""

GZIP_FIRST_CHUNK_BYTES = 256
"""Size in bytes of the first chunk of input for a gzip member. Each further chunk is twice as large."""

ZSTD_MIN_BUFFER_BYTES = 64 << 10
"""Smallest output buffer for zstd. Kafka's zstd frames do not contain their decompressed size. The buffer starts at
this size, or at eight times the input, and doubles until the content fits. An occasional second decompression costs
less than a worst-case buffer each time."""


class Codec(IntEnum):
    """The codec number in the low three bits of a batch's attributes (Kafka class ``CompressionType``)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompress(codec: Codec, data: bytes, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Returns the decompressed content of `data`.

    Args:
        codec: how `data` is compressed.
        data: the compressed bytes; returned unchanged if the codec is NONE.
        limit: largest size of the content in bytes.

    Raises:
        DecodeError: `data` is damaged or truncated, or the content is larger than the limit.
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
    """Decompresses all gzip members in order, as Java's GZIPInputStream does.

    zlib copies the input that it did not use. A member therefore gets its input in growing chunks, so that no byte is
    copied more than a few times, however many members there are.
    """
    parts: list[bytes] = []
    position = 0
    while position < len(data) or not parts:
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        piece = GZIP_FIRST_CHUNK_BYTES
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
    """Decompresses raw snappy, or the blocks of xerial's snappy-java, which Java clients and brokers write."""
    if not data.startswith(XERIAL_MAGIC):
        return _snappy_block(data, limit)
    if len(data) < XERIAL_HEADER_BYTES:
        raise _damaged(Codec.SNAPPY, "cut off")
    parts: list[bytes] = []
    position = XERIAL_HEADER_BYTES
    while position < len(data):
        start = position + 4
        position = start + int.from_bytes(data[start - 4 : start], "big")
        part = _snappy_block(data[start:position], limit)
        limit -= len(part)
        parts.append(part)
    return b"".join(parts)


def _snappy_block(data: bytes, limit: int) -> bytes:
    # The block contains its decompressed size, and the decompressor enforces it.
    if cramjam.snappy.decompress_raw_len(data) > limit:
        raise _damaged(Codec.SNAPPY, "more bytes decompressed than allowed")
    return bytes(cramjam.snappy.decompress_raw(data))


def _lz4(data: bytes, limit: int) -> bytes:
    """Decompresses an LZ4 frame block by block (https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md).

    Java clients up to 0.9 computed the header's checksum over the wrong bytes, and brokers keep this error in message
    format 0 (KAFKA-3160). Libraries refuse such frames, so this function parses the frame itself. This function ignores
    the frame's checksums, because the batch's own CRC covers the content. Like Kafka's reader, it refuses linked
    blocks.
    """
    if not data.startswith(LZ4_MAGIC):
        raise _damaged(Codec.LZ4, "no LZ4 frame")
    flags, buffer_bytes = data[4], LZ4_BLOCK_SIZES.get(data[5] >> 4 & 7, 0)
    if flags >> 6 != 1 or not flags & 0x20 or not buffer_bytes:
        raise _damaged(Codec.LZ4, f"frame of a kind that Kafka does not write: flags {flags:#x}, {data[5]:#x}")
    checksum = 4 if flags & 0x10 else 0
    position = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    block = bytearray(min(buffer_bytes, limit + 1))
    parts: list[bytes] = []
    while True:
        start = position + 4
        if start > len(data):
            raise _damaged(Codec.LZ4, "cut off")
        length = int.from_bytes(data[start - 4 : start], "little")
        if not length:
            return b"".join(parts)
        position = start + (length & ~LZ4_UNCOMPRESSED_FLAG) + checksum
        part = data[start : position - checksum]
        if not length & LZ4_UNCOMPRESSED_FLAG:
            part = bytes(block[: cramjam.lz4.decompress_block_into(part, block, output_len=len(block))])
        limit -= len(part)
        if limit < 0:
            raise _damaged(Codec.LZ4, "more bytes decompressed than allowed")
        parts.append(part)


def _zstd(data: bytes, limit: int) -> bytes:
    buffer_bytes = max(ZSTD_MIN_BUFFER_BYTES, 8 * len(data))
    while True:
        output = bytearray(min(buffer_bytes, limit))
        try:
            return bytes(output[: cramjam.zstd.decompress_into(data, output)])
        except cramjam.DecompressionError as error:
            # cramjam raises the same exception for a small buffer and for damaged data, so each is tried again with a
            # larger buffer. Damaged data is rare here, because batches have checksums.
            if buffer_bytes >= limit:
                raise _damaged(Codec.ZSTD, f"damaged, or more bytes decompressed than allowed: {error}") from error
        buffer_bytes *= 2


_DECOMPRESS = {Codec.GZIP: _gzip, Codec.SNAPPY: _snappy, Codec.LZ4: _lz4, Codec.ZSTD: _zstd}
