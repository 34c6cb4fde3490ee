"""Record batches, compared with those that Kafka's own classes and kafka-python write."""

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.record_batches import ControlMarker, Record, batches, first_batch_size
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
    only,
    patched,
    record,
    sealed,
    sealed_message,
    varint,
)

CASES = {case.name: case for case in batch_vectors.read()}
SMALL = [case for case in CASES.values() if len(case.data) < 2_000]
PLAIN = CASES["v2-none"].data

each_case = pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
each_small_case = pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)


# Batches of Kafka's own classes.


@each_case
def test_records_match_kafka(case: Case) -> None:
    """The records read from each batch vector are those that Kafka reads."""
    assert all_records(case.data) == case.records


@each_case
def test_batch_headers_match_kafka(case: Case) -> None:
    """The batch headers read from each vector match those that Kafka reads."""
    found = list(batches(case.data))
    assert sum(batch.size for batch in found) == len(case.data)
    assert {batch.magic for batch in found} == {head.magic for head in case.heads}
    assert found[0].base_offset == case.heads[0].base_offset
    assert found[-1].next_offset == case.heads[-1].next_offset
    assert max(b.max_timestamp for b in found) == max(head.max_timestamp for head in case.heads)
    assert sum(batch.count for batch in found) == len(case.records)
    for batch, head in zip(found, case.heads, strict=False):
        assert (batch.producer_id, batch.transactional, batch.control) == (
            head.producer_id,
            head.transactional,
            head.control,
        )
        if head.magic == 2:
            assert (batch.base_offset, batch.next_offset, batch.count) == (
                head.base_offset,
                head.next_offset,
                head.records,
            )


@each_case
def test_control_markers_match_kafka(case: Case) -> None:
    """The control marker read from each vector is the one that Kafka reads."""
    known = {marker.name: marker for marker in ControlMarker}
    assert [batch.marker for batch in batches(case.data)][-1] == known.get(case.heads[-1].marker or "")


def test_vectors_cover_formats_and_codecs() -> None:
    """The batch vectors cover every format, codec and kind of batch."""
    formats = {
        f"v{magic}-{codec}{kind}"
        for magic in range(3)
        for codec in ("none", "gzip", "snappy", "lz4", *(["zstd"] if magic == 2 else []))
        for kind in ("", "-gaps", "-large", *(["-appended"] if magic else []))
    }
    cleaned = {f"{name}-cleaned" for name in ("none", "gzip", "snappy", "lz4", "zstd", "transactional", "commit")}
    others = {"transactional", "headers", "commit", "abort", "leader-change", "empty", "empty-control"}
    assert set(CASES) == formats | {f"v2-{other}" for other in others | cleaned}


def test_delete_horizon_in_base_timestamp() -> None:
    """A cleaned batch has the delete horizon in its base timestamp, and its record timestamps stay right."""
    # The delete horizon is set, and the records' timestamps are relative to it.
    for name in ("v2-none-cleaned", "v2-gzip-cleaned", "v2-commit-cleaned"):
        data = CASES[name].data
        assert data[22] & 0x40
        assert only(data).max_timestamp < int.from_bytes(data[27:35], "big")


def test_empty_batch_advances_offset() -> None:
    """An empty batch that the log cleaner kept still advances the next offset."""
    batch = only(CASES["v2-empty"].data)
    assert (batch.base_offset, batch.next_offset, batch.count, list(batch.records())) == (20, 32, 0, [])
    control = only(CASES["v2-empty-control"].data)
    assert (control.control, control.marker, control.next_offset) == (True, None, 32)


def test_other_control_record_is_no_marker() -> None:
    """A leader-change control record is not a transaction marker."""
    batch = only(CASES["v2-leader-change"].data)
    assert batch.control
    assert batch.marker is None


def test_marker_needs_control_batch() -> None:
    """A marker key in a batch without the control flag is not a marker."""
    commit = CASES["v2-commit"].data
    assert only(commit).marker is ControlMarker.COMMIT
    assert only(sealed(patched(commit, 21, b"\0\x10"))).marker is None


# Ends of batches.


@each_small_case
def test_truncated_batch_is_left_out(case: Case) -> None:
    """Reading truncated data returns only the records of complete batches."""
    whole = all_records(case.data)
    for end in range(len(case.data)):
        for before in (b"", CASES["v2-none"].data):
            found = all_records(before + case.data[:end])
            assert found == all_records(before) + whole[: len(found) - len(all_records(before))]
            assert len(found) < len(whole) + len(all_records(before)) or not whole


@each_small_case
def test_first_batch_size(case: Case) -> None:
    """first_batch_size returns the first batch's size as soon as 12 bytes are available, and 0 before."""
    first = case.heads[0].size
    for end in range(len(case.data)):
        assert first_batch_size(case.data[:end]) == (first if end >= 12 else 0)


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 13])
def test_invalid_first_batch_size(length: int) -> None:
    """An impossible length of the first batch raises DecodeError."""
    data = patched(PLAIN, 8, length.to_bytes(4, "big", signed=True))
    for end in (12, len(data)):
        with pytest.raises(DecodeError, match="offset 1000: length: impossible"):
            first_batch_size(data[:end])
        with pytest.raises(DecodeError, match="offset 1000: length: impossible"):
            list(batches(data[:end]))


def test_no_data_has_no_batches() -> None:
    """Empty data has no batches and a first batch size of 0."""
    assert list(batches(b"")) == []
    assert first_batch_size(b"") == 0


def test_upgraded_log_mixes_formats() -> None:
    """A log with batches of formats 0, 1 and 2 is read in order."""
    cases = [CASES[name] for name in ("v0-none", "v0-lz4", "v1-none", "v1-gzip", "v1-none", "v2-none", "v2-zstd")]
    data = b"".join(case.data for case in cases)
    # A run ends if a message does not follow the last one. So the offsets of these messages must continue.
    assert [batch.magic for batch in batches(data)] == [0, 0, 1, 1, 1, 2, 2]
    assert all_records(data) == [record for case in cases for record in case.records]


def test_message_run_is_bounded() -> None:
    """A long run of old-format messages is split into consecutive batches of at most 64 KiB."""
    data = messages(1, 4_000)
    found = list(batches(data))
    assert len(found) > 2
    assert all(batch.size <= 64 << 10 for batch in found)
    assert [batch.base_offset for batch in found[1:]] == [batch.next_offset for batch in found[:-1]]
    assert [record[0] for record in all_records(data)] == list(range(4_000))


def test_message_longer_than_run() -> None:
    """A message larger than the run limit forms a batch of its own."""
    data = message(0, 5, None, bytes(100_000)) + message(0, 6, b"k", b"v")
    assert [(batch.base_offset, batch.count) for batch in batches(data)] == [(5, 1), (6, 1)]


# Batches of kafka-python.

some_bytes = st.none() | st.binary(max_size=12) | st.sampled_from((63, 64, 127, 128, 8191, 8192)).map(bytes)
some_times = st.lists(st.integers(0, 1 << 41) | st.integers(0, 200), min_size=1, max_size=70)


@settings(deadline=None)
@given(st.data(), some_times, st.integers(0, 4), st.booleans())
def test_kafka_python_format_2(data: st.DataObject, times: list[int], codec: int, transactional: bool) -> None:
    """Format 2 batches that kafka-python writes are read with the same records and header fields."""
    producer, epoch, sequence = (9, 0, 0) if transactional else (-1, -1, -1)
    # kafka-python compresses with gzip. The other codecs need packages that are not installed.
    builder = DefaultRecordBatchBuilder(2, int(codec == 1), transactional, producer, epoch, sequence, 1 << 30)
    expected: list[Record] = []
    for offset, time in enumerate(times):
        key, value = data.draw(some_bytes), data.draw(some_bytes)
        headers = data.draw(st.just([]) | st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=2))
        builder.append(offset, time, key, value, headers)
        expected.append((offset, time, key, value))
    built = bytes(builder.build())
    if codec > 1:
        attributes = bytes((built[21], built[22] | codec))
        built = sealed(patched(built[:HEAD], 21, attributes) + compressed(codec, built[HEAD:]))
    batch = only(built)
    assert list(batch.records()) == expected
    assert (batch.count, batch.next_offset, batch.max_timestamp) == (len(expected), len(expected), max(times))
    assert (batch.transactional, batch.producer_id) == (transactional, producer)


@settings(deadline=None)
@given(st.data(), some_times, st.integers(0, 1), st.integers(0, 3))
def test_kafka_python_formats_0_and_1(data: st.DataObject, times: list[int], magic: int, codec: int) -> None:
    """Format 0 and 1 messages that kafka-python writes are read with the same records."""
    builder = LegacyRecordBatchBuilder(magic, int(codec == 1), 1 << 30)
    expected: list[Record] = []
    for offset, time in enumerate(times):
        key, value = data.draw(some_bytes), data.draw(some_bytes)
        builder.append(offset, timestamp=time, key=key, value=value)
        expected.append((offset, time if magic else -1, key, value))
    built = bytes(builder.build())
    if codec == 1:  # A compressed message has the offset of the last message in it.
        built = patched(built, 0, (len(times) - 1).to_bytes(8, "big"))
    elif codec:
        built = message(magic, len(times) - 1, None, compressed(codec, built), attributes=codec)
    assert all_records(built) == expected


# By hand.


@pytest.mark.parametrize("magic", [0, 1])
def test_negative_length_is_null(magic: int) -> None:
    """Any negative key or value length of an old-format message is read as null."""
    whole = message(magic, 3, None, None)
    (found,) = all_records(sealed_message(patched(whole, 18 + 8 * magic, b"\xff\xff\xff\xfe\x80\0\0\0")))
    assert found[2:] == (None, None)


def test_max_timestamp_may_precede_last() -> None:
    """The largest timestamp of a run is found even if an earlier message has it."""
    late = sealed_message(patched(message(1, 3, None, b"late"), 18, (5_000).to_bytes(8, "big")))
    assert only(late + message(1, 4, None, b"early")).max_timestamp == 5_000


def test_log_append_time_of_compressed_message() -> None:
    """Log append time of a compressed message replaces its inner timestamps. Format 0 has no timestamps."""
    inside = zlib.compress(messages(1, 2), wbits=31)
    given = only(message(1, 101, None, inside, attributes=9))
    assert given.max_timestamp == 1_101
    assert [record[:2] for record in given.records()] == [(100, 1_101), (101, 1_101)]
    kept = only(message(1, 101, None, inside, attributes=1))
    assert kept.max_timestamp == 1_001
    assert [record[:2] for record in kept.records()] == [(100, 1_000), (101, 1_001)]
    # Format 0 has no timestamps, whatever the attributes are.
    without = only(message(0, 1, None, zlib.compress(messages(0, 2), wbits=31), attributes=9))
    assert without.max_timestamp == -1
    assert [record[:2] for record in without.records()] == [(0, -1), (1, -1)]


def test_handmade_batch() -> None:
    """A batch assembled by hand is read."""
    assert all_records(batch_of(ONE)) == [(0, 0, b"k", b"v")]


def padded(number: int) -> bytes:
    """Encodes a varint with more bytes than necessary."""
    short = varint(number)
    return bytes((*(byte | 0x80 for byte in short), *(4 - len(short)) * [0x80], 0))


def test_overlong_varints() -> None:
    """Varints with more bytes than necessary are read."""
    body = (padded(3), padded(0), padded(1), b"k", padded(1), b"v", padded(0))
    whole = record(*body)
    assert all_records(batch_of(padded(len(whole) - 1) + whole[1:])) == [(0, 3, b"k", b"v")]
