"""Array lines: what they contain, when they are full, and how they are halved."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from group_sidecar.metrics.array_lines import (
    ARRAY_LINE_BYTES,
    ArrayBuilder,
    ArrayLine,
    Row,
    array_line,
    is_surely_valid,
    record_count,
    records_of,
)
from group_sidecar.metrics.records import (
    ARRAY_BODIES,
    ARRAY_RECORDS,
    ARRAY_VERSION,
    EARLIEST_OBSERVATION,
    GREATEST,
    ArrayEnvelope,
    Body,
    Commit,
    Group,
    LogEnd,
    Record,
    Timestamp,
    timestamp,
)
from group_sidecar.metrics.records_schema import json_schema
from tests.metrics.test_records_schema import parts
from tests.surfaces.golden import golden_text

VALIDATOR = Draft202012Validator(json_schema())
MADE = timestamp(1.7e9)
SEEN = timestamp(1.6e9)


def line_of(rows: Sequence[Row], seq: int = 7) -> ArrayLine:
    return array_line(envelope_of(rows, seq), rows)


def envelope_of(rows: Sequence[Row], seq: int = 7) -> ArrayEnvelope:
    return ArrayEnvelope(
        version=ARRAY_VERSION,
        kind=rows[0][1].KIND,
        sidecar='"count":9,"emitted_at":"","columns":',
        boot="b",
        seq=seq,
        count=len(rows),
        emitted_at=MADE,
    )


def log_end(offset: int = 1, topic: str = "t") -> Row:
    return SEEN, LogEnd(topic=topic, partition=0, offset=offset)


rows_of_a_kind = st.sampled_from(ARRAY_BODIES).flatmap(
    lambda kind: st.lists(
        st.tuples(st.floats(0, 1.7e9).map(timestamp), parts(kind)), min_size=1, max_size=7
    )
)  # fmt: skip


@given(rows=rows_of_a_kind)
def test_round_trip(rows: list[tuple[Timestamp, Body]]) -> None:
    """Any records are written as one valid line, and read back unchanged under numbers that follow one another."""
    written = line_of(rows).to_line()
    assert (written.count(b"\n"), written[-1:]) == (1, b"\n")
    assert VALIDATOR.is_valid(json.loads(written))
    records = records_of(written)
    assert [(record.envelope.observed_at, record.body) for record in records] == rows
    assert [record.envelope.seq for record in records] == [*range(7, 7 + len(rows))]
    assert {(each.envelope.emitted_at, each.envelope.sidecar, each.envelope.version) for each in records} == {
        (MADE, envelope_of(rows).sidecar, ARRAY_VERSION)
    }


@given(rows=rows_of_a_kind)
def test_halves_have_the_same_records(rows: list[tuple[Timestamp, Body]]) -> None:
    """Halving a line again and again gives single records, each under its own number."""
    line = line_of(rows)
    parts = [line]
    while any(each.count > 1 for each in parts):
        parts = [half for each in parts for half in (each.halves() or [each])]
    assert [*map(record_count, (each.to_line() for each in parts))] == [1] * len(rows)
    assert [record for each in parts for record in records_of(each.to_line())] == list(records_of(line.to_line()))
    assert parts[0].halves() == ()


def test_golden_array_lines_are_valid() -> None:
    """Each array line of the golden surface is valid, and there is one of each kind."""
    lines = json.loads(golden_text("records.json"))["array_lines"]
    assert [json.loads(line)["kind"] for line in lines] == [body.KIND for body in ARRAY_BODIES]
    assert all(VALIDATOR.is_valid(json.loads(line)) for line in lines)
    assert [len(records_of(line.encode())) for line in lines] == [2] * len(lines)


def test_records_are_counted_without_parsing() -> None:
    """The number of records of a segment is that of its single records and of the records on its array lines."""
    single = Record.from_line(json.loads(golden_text("records.json"))["lines"][0].encode()).to_line()
    array = line_of([log_end(topic='"count":5,"emitted_at":"x","columns":')] * 3).to_line()
    assert record_count(single + array + single + array) == 8


def test_line_is_full_at_the_largest_number_of_records() -> None:
    """A builder is full with the largest number of records, which make one line."""
    builder = ArrayBuilder()
    assert [builder.add(log_end(number)) for number in range(ARRAY_RECORDS)] == [False] * (ARRAY_RECORDS - 1) + [True]
    [line] = builder.take(envelope_of(builder.rows))
    assert line.count == ARRAY_RECORDS
    assert len(line.encoded) < ARRAY_LINE_BYTES
    assert builder.rows == []


@pytest.mark.parametrize("character", ["x", "☂", "\u0001"])
def test_line_has_a_largest_size(character: str) -> None:
    """A line of several records keeps the largest size, however many bytes a character takes."""
    builder = ArrayBuilder()
    lines: list[ArrayLine] = []
    for number in range(300):
        if builder.add(log_end(number, character * 4_000)):
            lines += builder.take(envelope_of(builder.rows, number - len(builder.rows) + 2))
    lines += builder.take(envelope_of(builder.rows, 300 - len(builder.rows) + 1)) if builder.rows else ()
    sizes = [len(line.encoded) for line in lines]
    assert max(sizes) <= ARRAY_LINE_BYTES
    records = [record for line in lines for record in records_of(line.encoded)]
    assert [record.envelope.seq for record in records] == [*range(1, 301)]
    assert {len(record.body.topic) for record in records if isinstance(record.body, LogEnd)} == {4_000}
    assert [record.body.offset for record in records if isinstance(record.body, LogEnd)] == [*range(300)]


def test_long_record_has_a_line_of_its_own() -> None:
    """A record that exceeds the largest size is on a line of its own, and not lost."""
    builder = ArrayBuilder()
    assert [builder.add(log_end(topic=text)) for text in ("t", "x" * ARRAY_LINE_BYTES)] == [False, True]
    assert [line.count for line in builder.take(envelope_of(builder.rows))] == [1, 1]


GROUP = Group(
    group="g", protocol="classic", state="Stable", protocol_type="", assignor="", generation=0, members=0, max_size=None
)
COMMIT = Commit(group="g", topic="t", partition=0, offset=1, leader_epoch=-1)


@pytest.mark.parametrize(
    ("body", "observed_at", "valid"),
    [
        (COMMIT, SEEN, True),
        (COMMIT, MADE, True),
        (replace(COMMIT, offset=GREATEST), EARLIEST_OBSERVATION, True),
        (replace(COMMIT, offset=GREATEST + 1), SEEN, False),
        (replace(COMMIT, offset=-1), SEEN, False),
        (replace(COMMIT, leader_epoch=-2), SEEN, False),
        (COMMIT, timestamp(1.7e9 + 0.001), False),
        (COMMIT, "1969-12-30T23:59:59.999Z", False),
        (GROUP, SEEN, True),
        (replace(GROUP, max_size=-1), SEEN, False),
    ],
)
def test_what_an_array_line_may_contain(body: Body, observed_at: Timestamp, valid: bool) -> None:
    """A record is on an array line only if the contract allows it, so that it cannot make others faulty."""
    assert is_surely_valid((observed_at, body), MADE) is valid


def changed(**changes: Any) -> bytes:
    cells = json.loads(line_of([log_end(), log_end()]).to_line()) | changes
    return json.dumps({name: cell for name, cell in cells.items() if cell is not ...}).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 4_000,
        b"[]",
        changed(version=3),
        changed(kind="member"),
        changed(kind=["log_end"]),
        changed(kind=...),
        changed(count=3),
        changed(count="2"),
        changed(count=0),
        changed(seq=...),
        changed(columns=[]),
        changed(columns={}),
        changed(columns={"observed_at": [SEEN], "topic": ["t"], "partition": [1], "offset": [1]}),
        changed(columns={"observed_at": [SEEN] * 2, "topic": ["t", None], "partition": [1, 2], "offset": [1, 2]}),
    ],
    ids=lambda line: line[:40].decode() + str(len(line)),
)
def test_other_lines_are_refused(line: bytes) -> None:
    """A line that lacks something, or has another version or kind, has no records."""
    with pytest.raises(ValueError):
        records_of(line)
