"""Target: decompression in each of Kafka's compression codecs.

An input is a codec, a byte of flags, and bytes. With a flag, the target compresses the bytes and changes one byte of
the result, so that the decompression gets beyond the first header.

- Only DecodeError is raised.
- The result is not longer than the limit. A limit of exactly its length gives the same result.
"""

from collections.abc import Iterator

from group_sidecar.codecs.compression import Codec, decompress
from group_sidecar.codecs.errors import DecodeError
from tests.codecs.handmade_batches import compressed, patched
from tests.fuzzing.input_bytes import InputBytes
from tests.fuzzing.target import require

LIMIT = 1 << 16
_COMPRESS = 1
XERIAL = b"\x82SNAPPY\0" + bytes(3) + b"\1" + bytes(3) + b"\1"


def check(data: bytes) -> object:
    """Decompresses one input."""
    given = InputBytes(data)
    codec, flags = Codec(1 + given.number() % 4), given.number()
    if flags & _COMPRESS:
        at, new = given.number(2), given.take(1)
        packed = compressed(codec, given.rest())
        content = patched(packed, at % len(packed), new)
    else:
        content = given.rest()
    try:
        result = decompress(codec, content, LIMIT)
    except DecodeError as error:
        return str(error)
    require(len(result) <= LIMIT, "more bytes than the limit")
    again = _decompressed(codec, content, len(result))
    # liblz4 checks the last bytes of a damaged block more strictly if the buffer is exactly as long as the content.
    require(again == result or (again is None and codec is Codec.LZ4), "a limit that is just large enough")
    require(not result or _decompressed(codec, content, len(result) - 1) is None, "more bytes than the limit")
    return result


def _decompressed(codec: Codec, content: bytes, limit: int) -> bytes | None:
    """Returns the decompressed content, or None after a DecodeError."""
    try:
        return decompress(codec, content, limit)
    except DecodeError:
        return None


def seeds() -> Iterator[bytes]:
    """Compressed data, several members or blocks, and bombs."""
    text = b"offsets " * 40
    for number in range(4):
        packed = compressed(number + 1, text)
        yield bytes((number, 0)) + packed
        yield bytes((number, 0)) + packed + packed
        yield bytes((number, 0)) + compressed(number + 1, bytes(LIMIT + 1))
        yield bytes((number, 0)) + compressed(number + 1, b"")
        yield bytes((number, 1, 0, 3, 7)) + text
    block = compressed(2, text)
    yield b"\1\0" + XERIAL + (len(block).to_bytes(4, "big") + block) * 2
