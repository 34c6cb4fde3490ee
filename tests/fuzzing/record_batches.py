"""Target: record batches of a Fetch reply, in all formats and compressions.

An input is a byte of flags and the bytes of a partition. A flag gives the first batch a correct length and checksum,
because a fuzzer cannot guess checksums.

- Only DecodeError is raised. No batch has more decompressed bytes than the limit.
- A batch has the size, the offsets and the number of records that its header announces.
- A few bytes after the last batch change nothing.
"""

from collections.abc import Iterator
from typing import Any

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.record_batches import batches, first_batch_size
from tests.codecs import batch_vectors
from tests.codecs.handmade_batches import HEAD, compressed, messages, sealed, sealed_message
from tests.fuzzing.target import require

LIMIT = 1 << 16
"""The maximum number of decompressed bytes of a batch. It is small, so that a small input can exceed it."""
_SEAL, _MAGIC_AT = 1, 16
_OLD_HEAD = 18


def check(data: bytes) -> object:
    """Reads all batches and records."""
    flags, found = (data[0] if data else 0), data[1:]
    if flags & _SEAL:
        found = _sealed(found)
    try:
        require(first_batch_size(found) >= 0, "a batch of a negative size")
    except DecodeError:
        pass
    read, error = _read(found)
    if error is None and sum(size for size, *_ in read) == len(found):
        require(_read(found + b"\0" * 7) == (read, None), "bytes after the batches change the batches")
    return read, error


def _sealed(data: bytes) -> bytes:
    if len(data) >= HEAD and data[_MAGIC_AT] == 2:
        return sealed(data)
    return sealed_message(data) if len(data) >= _OLD_HEAD and data[_MAGIC_AT] < 2 else data


def _read(data: bytes) -> tuple[list[Any], str | None]:
    """Returns the batches and records that were read, and the text of the error that ended the reading, or None."""
    seen: list[Any] = []
    total = 0
    try:
        for batch in batches(data, limit=LIMIT):
            total += batch.size
            require(0 < batch.size <= len(data), "a batch of an impossible size")
            require(0 <= batch.base_offset < batch.next_offset, "a batch without offsets")
            records = list(batch.records())
            require(len(records) == batch.count, "another number of records than announced")
            room = LIMIT + len(data)
            require(sum(len(key or b"") + len(value or b"") for *_, key, value in records) <= room, "a bomb")
            require(all(offset < batch.next_offset for offset, *_ in records), "an offset after the batch")
            seen.append((batch.size, batch.base_offset, batch.next_offset, batch.producer_id, batch.marker, records))
    except DecodeError as error:
        return seen, str(error)
    require(total <= len(data), "more bytes read than given")
    return seen, None


def seeds() -> Iterator[bytes]:
    """Batches that Kafka's own classes wrote, and compressed messages of formats 0 and 1."""
    for case in batch_vectors.read():
        if len(case.data) < 2_000:
            yield b"\0" + case.data
            yield b"\1" + case.data
    for magic in (0, 1):
        inner = messages(magic, 3)
        for codec in (1, 2, 3):
            content = compressed(codec, inner)
            head = (2).to_bytes(8, "big") + bytes(8) + bytes((magic, codec)) + bytes(8 if magic else 0)
            yield b"\1" + head + b"\xff" * 4 + len(content).to_bytes(4, "big") + content
