"""Batches as an idempotent producer writes them, read by our reader and by kafka-python's reader."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from group_sidecar.codecs.compression import Codec
from group_sidecar.codecs.record_batch_writer import BATCH_HEADER_BYTES, RecordWriter, encode_batch
from tests.codecs.handmade_batches import all_records, only

timestamps = st.integers(min_value=0, max_value=1 << 52)
texts = st.binary(max_size=300)
written = st.lists(st.tuples(timestamps, texts, texts), min_size=1, max_size=200)
codecs = pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])


def batch(records: list[tuple[int, bytes, bytes]], codec: Codec, **marks: int) -> bytes:
    writer = RecordWriter()
    for record in records:
        writer.add(*record)
    given = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 11, **marks}
    return encode_batch(writer.encoded_records(codec), **given)


@codecs
@given(records=written)
def test_written_batch_is_read_back(codec: Codec, records: list[tuple[int, bytes, bytes]]) -> None:
    """Our reader returns the records and the header fields that the writer wrote."""
    data = batch(records, codec)
    head = only(data)
    assert (head.count, head.producer_id, head.size) == (len(records), 7, len(data))
    assert (head.transactional, head.control) == (False, False)
    assert head.max_timestamp == max(timestamp for timestamp, _, _ in records)
    assert all_records(data) == [(offset, *record) for offset, record in enumerate(records)]


@codecs
@given(records=written)
def test_kafka_python_reads_written_batch(codec: Codec, records: list[tuple[int, bytes, bytes]]) -> None:
    """kafka-python reads the records, producer fields and checksum of a written batch."""
    found = MemoryRecords(batch(records, codec)).next_batch()
    assert found.validate_crc()
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (7, 3, 11)
    assert found.attributes & 0x07 == codec
    shown = [(record.offset, record.timestamp, record.key, record.value, record.headers) for record in found]
    assert shown == [(offset, *record, []) for offset, record in enumerate(records)]


def test_size_is_known_before_encoding() -> None:
    """The writer's size equals the length of the uncompressed batch."""
    writer = RecordWriter()
    assert writer.size == BATCH_HEADER_BYTES
    for number in range(300):
        writer.add(number, b"key", bytes(number))
    assert len(encode_batch(writer.encoded_records(Codec.NONE), 1, 0, 0)) == writer.size


def test_checksum_covers_producer_fields() -> None:
    """The batch header contains the producer's id, epoch and sequence, and the checksum covers them."""
    one, other = (batch([(1, b"k", b"v")], Codec.NONE, base_sequence=sequence) for sequence in (0, 0x7FFFFFFF))
    assert struct.unpack_from(">qhi", other, 43) == (7, 3, 0x7FFFFFFF)
    assert one[:17] == other[:17]
    assert one[17:21] != other[17:21]
