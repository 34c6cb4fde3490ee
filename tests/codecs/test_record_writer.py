"""Batches as an idempotent producer writes them: read by our reader, and by kafka-python's."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from group_sidecar.codecs.compression import Codec
from group_sidecar.codecs.record_writer import HEAD_BYTES, RecordWriter, batch_of
from tests.codecs.batches import all_records, only

timestamps = st.integers(min_value=0, max_value=1 << 52)
texts = st.binary(max_size=300)
written = st.lists(st.tuples(timestamps, texts, texts), min_size=1, max_size=200)
codecs = pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])


def batch(records: list[tuple[int, bytes, bytes]], codec: Codec, **marks: int) -> bytes:
    writer = RecordWriter()
    for record in records:
        writer.add(*record)
    given = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 11, **marks}
    return batch_of(writer.contents(codec), **given)


@codecs
@given(records=written)
def test_our_reader_finds_what_was_written(codec: Codec, records: list[tuple[int, bytes, bytes]]) -> None:
    data = batch(records, codec)
    head = only(data)
    assert (head.count, head.producer_id, head.size) == (len(records), 7, len(data))
    assert (head.transactional, head.control) == (False, False)
    assert head.max_timestamp == max(timestamp for timestamp, _, _ in records)
    assert all_records(data) == [(offset, *record) for offset, record in enumerate(records)]


@codecs
@given(records=written)
def test_so_does_kafka_pythons(codec: Codec, records: list[tuple[int, bytes, bytes]]) -> None:
    found = MemoryRecords(batch(records, codec)).next_batch()
    assert found.validate_crc()
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (7, 3, 11)
    assert found.attributes & 0x07 == codec
    told = [(record.offset, record.timestamp, record.key, record.value, record.headers) for record in found]
    assert told == [(offset, *record, []) for offset, record in enumerate(records)]


def test_the_size_is_known_before_it_is_written() -> None:
    writer = RecordWriter()
    assert writer.size == HEAD_BYTES
    for number in range(300):
        writer.add(number, b"key", bytes(number))
    assert len(batch_of(writer.contents(Codec.NONE), 1, 0, 0)) == writer.size


def test_the_head_says_who_wrote_it_and_the_checksum_covers_that() -> None:
    one, other = (batch([(1, b"k", b"v")], Codec.NONE, base_sequence=sequence) for sequence in (0, 0x7FFFFFFF))
    assert struct.unpack_from(">qhi", other, 43) == (7, 3, 0x7FFFFFFF)
    assert one[:17] == other[:17]
    assert one[17:21] != other[17:21]
