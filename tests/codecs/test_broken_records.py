"""Record batches that are damaged, impossible or too large, and arbitrary bytes."""

import zlib
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.record_batches import ControlMarker, batches, first_batch_size
from tests.codecs import batch_vectors
from tests.codecs.batch_vectors import Case
from tests.codecs.handmade_batches import (
    HEAD,
    ONE,
    all_records,
    batch_of,
    compressed,
    message,
    messages,
    patched,
    record,
    sealed,
    sealed_message,
    varint,
)

CASES = {case.name: case for case in batch_vectors.read()}
SMALL = [case for case in CASES.values() if len(case.data) < 2_000]
PLAIN = CASES["v2-none"].data


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (patched(PLAIN, 8, (13).to_bytes(4, "big")), "length"),
        (patched(PLAIN, 8, (-1).to_bytes(4, "big", signed=True)), "length"),
        (patched(PLAIN, 8, (48).to_bytes(4, "big")), "length"),
        (PLAIN + bytes(12), "length"),
        (patched(PLAIN, 16, b"\3"), "magic"),
        (patched(PLAIN, 16, b"\xff"), "magic"),
        (patched(PLAIN, 16, b"\3")[:20], "magic"),
        (patched(PLAIN, 17, b"\0\0\0\0"), "crc"),
        (patched(PLAIN, len(PLAIN) - 1, b"\xff"), "crc"),
        (patched(PLAIN, 0, b"\xff"), "head"),
        (sealed(patched(PLAIN, 23, b"\xff")), "head"),
        (sealed(patched(PLAIN, 57, b"\xff")), "head"),
        (sealed(patched(PLAIN, 22, b"\5")), "head"),
        (patched(message(0, 5, b"k", b"v"), 12, b"\0\0\0\0"), "crc"),
        (sealed_message(message(1, 5, None, None)[:26]), "length"),
        (sealed_message(message(1, 5, None, None, attributes=1)[:26]), "length"),
        (sealed_message(message(1, 5, None, None)[:33]), "length"),
        (sealed_message(message(0, 5, None, None)[:25]), "length"),
        (message(0, 7, b"k", b"v") + message(0, 7, b"k", b"v"), "offset"),
        (patched(message(0, 7, b"k", b"v"), 0, b"\xff"), "offset"),
        (message(1, 7, None, None, attributes=1), "value"),
        (message(1, 7, None, cramjam.zstd.compress(messages(1, 2)).read(), attributes=4), "value"),
        (message(1, 7, None, zlib.compress(b"", wbits=31), attributes=1), "value"),
        (message(1, 7, None, zlib.compress(messages(0, 2), wbits=31), attributes=1), "value"),
        (message(1, 7, None, zlib.compress(messages(1, 2)[:-1], wbits=31), attributes=1), "value"),
        (message(1, 0, None, zlib.compress(messages(1, 2), wbits=31), attributes=1), "value"),
        (message(0, 7, None, zlib.compress(messages(0, 2), wbits=31), attributes=1), "value"),
        (patched(message(1, 1, None, zlib.compress(messages(1, 2), wbits=31), attributes=1), 12, bytes(4)), "crc"),
    ],
)
def test_invalid_batches_are_refused(data: bytes, field: str) -> None:
    """Iterating over an invalid record batch raises a DecodeError that names the invalid field."""
    with pytest.raises(DecodeError) as caught:
        list(batches(data))
    assert caught.value.path == field
    assert caught.value.what.startswith("record batch at offset ")


@pytest.mark.parametrize(
    "data",
    [
        batch_of(ONE, count=2),
        batch_of(ONE, ONE, count=1),
        batch_of(ONE, b"\0"),
        batch_of(ONE, b"\x80"),
        batch_of(ONE[:-1]),
        batch_of(record(varint(0), varint(0), varint(1), b"k", varint(1), b"v")),
        batch_of(record(varint(0), varint(0), varint(100), b"k", varint(1), b"v", varint(0))),
        batch_of(record(varint(0), varint(0), varint(1), b"k", varint(100), b"v", varint(0))),
        batch_of(record(varint(0), varint(0), varint(1), b"k", varint(1), b"v", varint(0), length=9)),
        batch_of(record(varint(0), varint(0), varint(1), b"k", varint(1), b"v", varint(0), length=-1)),
        batch_of(record(varint(0), varint(-1), varint(1), b"k", varint(1), b"v", varint(0))),
        batch_of(record(varint(0), varint(1), varint(1), b"k", varint(1), b"v", varint(0))),
        batch_of(record(b"\x80" * 9 + b"\2", varint(0), varint(1), b"k", varint(1), b"v", varint(0))),
        batch_of(record(b"\x80" * 10 + b"\1", varint(0), varint(1), b"k", varint(1), b"v", varint(0))),
        batch_of(record(varint(0), b"\x80" * 5 + b"\1", varint(1), b"k", varint(1), b"v", varint(0))),
        batch_of(ONE, attributes=1),
        message(0, 1, b"key", None)[:-1],
        message(0, 1, None, b"value") + b"\0",
    ],
)
def test_invalid_records_are_refused(data: bytes) -> None:
    """Reading invalid records from a batch or message raises DecodeError."""
    data = sealed_message(data) if data[16] < 2 else data
    with pytest.raises(DecodeError):
        all_records(data)


def test_record_overlapping_next_batch() -> None:
    """A record that runs into the next batch raises DecodeError."""
    data = batch_of(record(varint(0), varint(0), varint(1), b"k", varint(60), b"v", varint(0), length=80)) + PLAIN
    with pytest.raises(DecodeError):
        next(next(batches(data)).records())


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("length", [-2, 2, 5, 0x7FFF_FFFF])
def test_message_with_oversized_key_or_value(magic: int, length: int) -> None:
    """A message whose key or value length does not fit raises DecodeError."""
    whole = message(magic, 3, b"k", b"v")
    for at in (18 + 8 * magic, 23 + 8 * magic):
        with pytest.raises(DecodeError):
            all_records(sealed_message(patched(whole, at, length.to_bytes(4, "big", signed=True))))


# Decompression bombs.


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_batch_decompression_limit(codec: int) -> None:
    """A batch that decompresses beyond the limit raises DecodeError. A batch at the limit is read."""
    content = record(varint(0), varint(0), varint(-1), varint(300_000), bytes(300_000), varint(0))
    data = batch_of(compressed(codec, content), count=1, attributes=codec)
    (batch,) = batches(data, limit=len(content))
    assert list(batch.records()) == [(0, 0, None, bytes(300_000))]
    (batch,) = batches(data, limit=len(content) - 1)
    with pytest.raises(DecodeError):
        batch.records()


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_message_decompression_limit(codec: int) -> None:
    """A compressed message set beyond the decompression limit raises DecodeError."""
    content = messages(1, 2_000)
    data = message(1, 2_099, None, compressed(codec, content), attributes=codec)
    assert [record[0] for record in all_records(data)] == list(range(100, 2_100))
    with pytest.raises(DecodeError):
        list(batches(data, limit=len(content) - 1))


# Arbitrary bytes.


def read_all(data: bytes) -> None:
    """Reads all batches and records. Only a DecodeError may stop it. Asserts that each batch has bytes."""
    with suppress(DecodeError):
        assert first_batch_size(data) >= 0
    with suppress(DecodeError):
        total = 0
        for batch in batches(data, limit=1 << 20):
            total += batch.size
            assert batch.size > 0
            assert total <= len(data)
            assert batch.next_offset >= batch.base_offset
            with suppress(DecodeError):
                assert len(list(batch.records())) == batch.count
            with suppress(DecodeError):
                assert batch.marker in (None, *ControlMarker)


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_any_bytes_as_batches(data: bytes) -> None:
    """Reading any bytes as record batches raises nothing but DecodeError, and no batch exceeds its bytes."""
    read_all(data)


# Bytes that are frequent in lengths, counts and varints.
MUTATIONS = (b"", b"\0", b"\1", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff", b"\x80\x80\x80\x80\x80")


@settings(max_examples=1_000, deadline=None)
@given(st.data(), st.sampled_from(SMALL))
def test_mutated_batches_read_or_fail(data: st.DataObject, case: Case) -> None:
    """Reading mutated record batches raises nothing but DecodeError, with wrong and with repaired checksums."""
    body = case.data
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        body = body[:at] + data.draw(st.sampled_from(MUTATIONS)) + body[at + data.draw(st.integers(0, 4)) :]
    read_all(body)
    if len(body) > HEAD:  # Also with the correct checksum, because otherwise few batches pass it.
        read_all(sealed(body) if body[16] >= 2 else sealed_message(body))
