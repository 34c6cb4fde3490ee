"""The JSON Schema of the records: valid lines pass, each broken rule is found, and the file is current."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from group_sidecar.metrics import records_schema
from group_sidecar.metrics.installed_version import DISTRIBUTION
from group_sidecar.metrics.record_builder import RecordBuilder
from group_sidecar.metrics.records import (
    BODIES,
    GREATEST,
    VERSION,
    Body,
    Column,
    Envelope,
    Record,
    columns,
    timestamp,
)
from group_sidecar.metrics.records_schema import DIALECT, IDENTIFIER, json_schema
from tests.metrics.metrics_world import visits_of
from tests.metrics.test_record_builder import COMPLETED, STANDING
from tests.metrics.test_records import KNOWN, record
from tests.surfaces.golden import golden_text

FILE = Path(records_schema.__file__).resolve().parent.parent / "docs" / "records.schema.json"
VALIDATOR = Draft202012Validator(json_schema())
NUMBERS = ("BIGINT", "DOUBLE")
WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""For tests that show the broken line themselves. Shrinking would only make a record's other columns smaller."""
Cells = dict[str, Any]

texts = st.text(max_size=20)
figures = st.floats(allow_nan=False, allow_infinity=False)


def values(column: Column) -> st.SearchStrategy[Any]:
    """Values of a column that the contract allows. No moment is before the earliest one of the contract."""
    least = column.note.minimum
    by_type: dict[str, st.SearchStrategy[Any]] = {
        "STRING": texts,
        "BIGINT": st.integers(-(2**63) if least is None else least, GREATEST),
        "DOUBLE": st.floats(least, GREATEST, allow_nan=False, allow_infinity=False),
        "TIMESTAMP": st.floats(1.6e9, 2**35).map(timestamp),
        "MAP<STRING, DOUBLE>": st.dictionaries(texts, figures, max_size=3),
    }
    found = by_type[column.sql_type]
    return st.none() | found if column.nullable else found


def parts(part: type[Envelope | Body], **fixed: Any) -> st.SearchStrategy[Any]:
    given_values = {column.name: values(column) for column in columns(part) if column.name not in fixed}
    return st.builds(part, **given_values, **{name: st.just(value) for name, value in fixed.items()})


def records_of(kind: type[Body]) -> st.SearchStrategy[Record]:
    return st.builds(Record, envelope=parts(Envelope, version=VERSION, kind=kind.KIND), body=parts(kind))


any_record = st.sampled_from(BODIES).flatmap(records_of)


def cells_of(written: Record) -> Cells:
    cells: Cells = json.loads(written.to_line())
    return cells


def faults(cells: object) -> list[str]:
    """The messages of the validator about a line. An empty list means that the line is a record."""
    return [error.message for error in VALIDATOR.iter_errors(cells)]


def test_schema_is_valid() -> None:
    """The schema follows draft 2020-12. Its `$id` has the project's name and names no host."""
    Draft202012Validator.check_schema(json_schema())
    assert json_schema()["$schema"] == DIALECT == Draft202012Validator.META_SCHEMA["$id"]
    assert IDENTIFIER.split(":")[:2] == ["urn", DISTRIBUTION]


def test_every_column_is_described() -> None:
    """Each column of the envelope and of each kind has its meaning, and each kind has its own."""
    schema = json_schema()
    told = {kind: schema["$defs"][kind] for kind in schema["properties"]["kind"]["enum"]}
    assert [*told] == [body.KIND for body in BODIES]
    for body in BODIES:
        assert told[body.KIND]["description"] == (body.__doc__ or "")
        notes = {name: each["description"] for name, each in told[body.KIND]["properties"].items()}
        assert notes == {column.name: column.note.text for column in columns(body)}
    envelope = {column.name: schema["properties"][column.name]["description"] for column in columns(Envelope)}
    assert envelope == {column.name: column.note.text for column in columns(Envelope)}


def test_file_is_current_and_standalone() -> None:
    """The file in docs equals the module's output, which needs only the standard library."""
    command = [sys.executable, "-S", "-m", records_schema.__name__]
    made = subprocess.run(command, cwd=FILE.parent.parent, capture_output=True, check=True)
    assert made.stdout == FILE.read_bytes(), f"renew it: python -m {records_schema.__name__} > docs/{FILE.name}"


def test_golden_lines_are_valid() -> None:
    """Each line of the golden surface is a record, and there is one of each kind."""
    lines = [json.loads(line) for line in json.loads(golden_text("records.json"))["lines"]]
    assert [line["kind"] for line in lines] == [body.KIND for body in BODIES]
    assert [faults(line) for line in lines] == [[]] * len(BODIES)


@pytest.mark.parametrize("body", [body for body, _ in KNOWN], ids=lambda body: body.KIND)
def test_example_lines_are_valid(body: Body) -> None:
    """The example of each kind is a record."""
    assert faults(cells_of(record(body))) == []


def test_lines_of_a_sidecar_are_valid() -> None:
    """What a sidecar writes of its groups, of its own figures and of a fact is a record."""
    builder = RecordBuilder("broker-1")
    snapshot = builder.snapshot(visits_of(STANDING), STANDING.log_ends.items(), {"groups": 2.0}, 1.7e9)
    written = [*(line for line in snapshot if isinstance(line, Record)), *builder.records_of([COMPLETED], 1.7e9)]
    assert {each.body.KIND for each in written} == {"heartbeat", "group", "commit", "log_end", "rebalance"}
    assert [faults(cells_of(each)) for each in written] == [[]] * len(written)


@given(written=any_record)
def test_written_records_are_valid(written: Record) -> None:
    """Every record within the contract's bounds is written as a valid line, which is read back unchanged."""
    assert faults(cells_of(written)) == []
    assert Record.from_line(written.to_line()) == written


@given(written=any_record, data=st.data())
def test_readers_ignore_the_rest(written: Record, data: st.DataObject) -> None:
    """A line is still valid with an unknown column, with a null of another kind, or without a column that may be null.

    The reader of the contract takes each of these lines as the same record.
    """
    own = [*columns(Envelope), *columns(type(written.body))]
    cells = cells_of(written)
    others = sorted({column.name for body in BODIES for column in columns(body)} - {column.name for column in own})
    cells |= {"colour": data.draw(st.none() | texts | st.integers()), data.draw(st.sampled_from(others)): None}
    for column in own:
        if column.nullable and cells[column.name] is None:
            del cells[column.name]
    assert faults(cells) == []
    assert Record.from_line(json.dumps(cells).encode()) == written


def _wrong_values(column: Column) -> list[Any]:
    """Values that the contract does not allow in a column."""
    wrong: list[Any] = [] if column.nullable else [None]
    if column.sql_type not in NUMBERS:
        wrong += [7, True, ["a"]]
        wrong += [{"a": None}, {"a": "b"}] if column.sql_type.startswith("MAP") else [{"a": 1.0}]
    else:
        wrong += ["1", True, [1], {}, GREATEST + 1]
        wrong += [] if column.note.minimum is None else [column.note.minimum - 1]
        wrong += [0.5] if column.sql_type == "BIGINT" else []
    if column.sql_type == "TIMESTAMP":
        good = timestamp(1.7e9)
        wrong += ["", "yesterday", good[:-1], good + "\n", good.replace("Z", "+01"), good.replace("T", " "), good[:10]]
        wrong += ["2025-13-01T00:00:00.000Z", "2025-01-32T00:00:00.000Z", "2025-01-31T24:00:00.000Z"]
        wrong += ["٢٠٢٥-01-31T00:00:00.000Z"]
    others: dict[str, list[Any]] = {"version": [0, VERSION + 1], "kind": ["", "weather"]}
    return wrong + others.get(column.name, [])


def _broken(written: Record) -> Iterator[Cells]:
    """The lines that break one rule of the record's own columns."""
    cells = cells_of(written)
    for column in (*columns(Envelope), *columns(type(written.body))):
        if not column.nullable:
            yield {name: cell for name, cell in cells.items() if name != column.name}
        for wrong in _wrong_values(column):
            yield cells | {column.name: wrong}


@pytest.mark.parametrize("kind", BODIES, ids=lambda body: body.KIND)
@given(data=st.data())
@settings(max_examples=5, phases=WITHOUT_SHRINKING)
def test_broken_rule_is_found(kind: type[Body], data: st.DataObject) -> None:
    """A line that lacks any required column, or has any wrong value in any column, is not valid."""
    written = data.draw(records_of(kind))
    assert [cells for cells in _broken(written) if VALIDATOR.is_valid(cells)] == []


@given(written=any_record)
@settings(max_examples=20, phases=WITHOUT_SHRINKING)
def test_column_has_one_type_in_all_kinds(written: Record) -> None:
    """A line with a column of another kind in a wrong type is not valid, because one schema reads all records."""
    own = {column.name for column in columns(type(written.body))}
    others = [column for body in BODIES for column in columns(body) if column.name not in own]
    cells = cells_of(written)
    wrong = {column.name: "1" if column.sql_type in NUMBERS else 1 for column in others}
    assert [name for name in wrong if VALIDATOR.is_valid(cells | {name: wrong[name]})] == []


@given(written=any_record, data=st.data())
def test_reader_takes_what_is_valid(written: Record, data: st.DataObject) -> None:
    """The reader of the contract takes each valid line, with the values of the line. It refuses only invalid lines."""
    cells = cells_of(written)
    for name in data.draw(st.lists(st.sampled_from(sorted(cells)), max_size=2, unique=True)):
        if data.draw(st.booleans()):
            del cells[name]
        else:
            cells[name] = data.draw(st.none() | st.integers() | texts | st.sampled_from([body.KIND for body in BODIES]))
    line = json.dumps(cells).encode()
    if faults(cells):
        return
    read = cells_of(Record.from_line(line))
    assert read == {name: cells.get(name) for name in read}


def test_line_without_kind_has_one_fault() -> None:
    """A line without its kind lacks only the kind: no columns of any kind are required of it."""
    cells = cells_of(record(KNOWN[0][0]))
    del cells["kind"]
    assert faults(cells) == ["'kind' is a required property"]


@pytest.mark.parametrize("line", [None, True, 7, "text", [], [{}]], ids=repr)
def test_other_json_is_invalid(line: object) -> None:
    """JSON that is not an object is not a record."""
    assert faults(line) != []
