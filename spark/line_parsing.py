"""Parses lines into records. A line that is not valid goes to quarantine with its fault.

A line is one record or an array line with many records (`array_lines`). An array line is accepted or quarantined as a
whole.

The schema, the required columns and the bounds all come from `metrics.records`; there is no second list. Spark accepts
any JSON value for a string column, so a number in place of a name is read as its digits.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import (
    ARRAY_BODIES,
    ARRAY_VERSION,
    BODIES,
    EARLIEST,
    EARLIEST_OBSERVATION,
    GREATEST,
    KINDS,
    TIMESTAMP_FORMAT,
    VERSION,
    Body,
    Envelope,
    columns,
)
from group_sidecar.metrics.records import Column as ContractColumn
from group_sidecar.spark import array_lines
from group_sidecar.spark.boolean_columns import all_of, any_of

CLOCK_SKEW = timedelta(minutes=5)
"""How far a sidecar's clock may be ahead of this job's clock. A clock further ahead would make other sidecars seem
late."""

MAX_LINE_BYTES = 16 << 20
"""Longer lines go to quarantine, and only their beginning is kept there. A sidecar writes no line of nearly this size.
An array line of several records has at most 128 KiB (`metrics.array_lines.ARRAY_LINE_BYTES`). The longest line of one
record has the kind `member`: four names of at most 32,767 bytes each (Kafka's limit), and a principal. JSON takes at
most 6 bytes for each byte, so such a line has less than 1 MiB if its principal is not longer than such a name."""
KEPT_CHARACTERS = 1_000
"""Characters of a line of more than MAX_LINE_BYTES that are kept in quarantine."""

_UNREADABLE = "_unreadable"
_NUMBERS = ("BIGINT", "DOUBLE")

Part = type[Envelope | Body]


class Fault(StrEnum):
    """Why a line is in quarantine. If several faults apply, the first of them in this list counts."""

    NOT_JSON_OBJECT = "not_json_object"
    UNKNOWN_VERSION = "unknown_version"
    UNKNOWN_KIND = "unknown_kind"
    WRONG_TYPE = "wrong_type"
    MISSING_COLUMN = "missing_column"
    OUT_OF_RANGE = "out_of_range"
    IN_FUTURE = "in_future"
    TOO_OLD = "too_old"


def record_ddl() -> str:
    """Returns the schema of a record as Spark's DDL: the envelope's columns, then those of all kinds, each once."""
    return ", ".join(f"`{name}` {sql_type}" for name, sql_type in record_types().items())


def record_types() -> dict[str, str]:
    """Returns Spark's type of each column of a record, by the column's name."""
    parts: tuple[Part, ...] = (Envelope, *BODIES)
    return {column.name: column.sql_type for part in parts for column in columns(part)}


def judged(
    lines: DataFrame,
    now: Column | None = None,
    oldest: Column | None = None,
    others: Sequence[str] = (),
    known_fault: Column | None = None,
) -> DataFrame:
    """Parses lines by the contract, and finds the fault of each line.

    Args:
        lines: `value` STRING, and `arrived_at` TIMESTAMP, when the transport received the line; null if not known.
        now: the current time; the clock's time if None. Records with times more than `CLOCK_SKEW` after `now` are
            faulty.
        oldest: records made before this time are too old. If None, only the contract limits their age.
        others: further columns of `lines` that the result has too. The contract has no columns of these names. Each
            record of an array line gets a copy, so they should be small.
        known_fault: the fault of a line, if it is known; null if the line is to be judged.

    Returns:
        A row for each record, and a row for each line with a fault. A row has the columns of the contract, as far as
        they can be parsed, and three more: `fault` (a `Fault`; null for a record), `line` (the original line; null for
        a record) and `arrived_at`. `arrived_at` is also null if it lies before `EARLIEST`, or more than `CLOCK_SKEW` in
        the future, because a file can have any date.
    """
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _UNREADABLE,
        "timestampFormat": TIMESTAMP_FORMAT,
        "allowSingleQuotes": "false",
        "allowNonNumericNumbers": "false",
    }
    now = F.current_timestamp() if now is None else now
    schema = f"{record_ddl()}, {array_lines.DDL}, `{_UNREADABLE}` STRING"
    arrived = F.when(F.col("arrived_at").between(_moment(EARLIEST), now + F.lit(CLOCK_SKEW)), F.col("arrived_at"))
    # `inline` makes Spark parse each line once. Otherwise each condition would parse lines again.
    parsed = F.inline(F.array(F.from_json("value", schema, options)))
    read = _shortened(lines).select("value", arrived.alias("arrived_at"), *others, parsed)
    fault = _fault(now, oldest)
    if known_fault is not None:
        fault = F.coalesce(known_fault, fault)
    line = F.when(F.col("fault").isNotNull(), F.col("value")).alias("line")
    lines_with_fault = read.select("*", fault.alias("fault")).select(
        *record_types(), *array_lines.COLUMNS, "fault", line, "arrived_at", *others
    )
    return array_lines.expanded(lines_with_fault, tuple(record_types()), ("fault", "line", "arrived_at", *others))


def _shortened(lines: DataFrame) -> DataFrame:
    """Returns the lines, without the rest of lines that are too long. The beginning alone is no valid JSON.

    To parse such a line takes several times its size in memory.
    """
    value = F.col("value")
    is_long = F.octet_length(value) > MAX_LINE_BYTES
    return lines.withColumn("value", F.when(is_long, F.substring(value, 1, KEPT_CHARACTERS)).otherwise(value))


def accepted(judged: DataFrame) -> DataFrame:
    """Returns the records: the columns of the contract, and `arrived_at`."""
    return judged.where(F.col("fault").isNull()).select(*record_types(), "arrived_at")


def quarantined(judged: DataFrame) -> DataFrame:
    """Returns the lines with a fault, unchanged.

    Returns:
        fault STRING: The first fault of the line.
        sidecar STRING or null: Id of the sidecar; null if it cannot be parsed.
        line STRING or null: The line; null for a message of a topic without a value.
        arrived_at TIMESTAMP or null: When the topic or the segment got the line; null if not known.
    """
    return judged.where(F.col("fault").isNotNull()).select("fault", "sidecar", "line", "arrived_at")


def _fault(now: Column, oldest: Column | None) -> Column:
    """Returns the first fault of a line; null for a record.

    Nearly all lines are records. So one condition, which looks only at the columns of the line's kind, comes first.
    """
    value, unreadable = F.col("value"), F.col(_UNREADABLE).isNotNull()
    blank = F.trim(value) == ""
    no_object = unreadable & (~F.ltrim(value).startswith("{") | F.try_parse_json(value).isNull())
    future = now + F.lit(CLOCK_SKEW)
    earliest = _moment(EARLIEST) if oldest is None else F.greatest(_moment(EARLIEST), oldest)
    is_single, is_array = F.col("version") == VERSION, F.col("version") == ARRAY_VERSION
    first_observed, last_observed = array_lines.observed(is_array)
    kind = F.col("kind")
    known_kind = F.when(is_array, kind.isin(*(body.KIND for body in ARRAY_BODIES))).otherwise(kind.isin(*KINDS))
    tests = {
        Fault.NOT_JSON_OBJECT: blank | no_object,
        Fault.UNKNOWN_VERSION: F.col("version").isNull() | ~(is_single | is_array),
        Fault.UNKNOWN_KIND: kind.isNull() | ~known_kind,
        Fault.WRONG_TYPE: unreadable,
        Fault.MISSING_COLUMN: F.when(is_array, array_lines.lacks_value()).otherwise(
            _in_envelope_or_kind(_lacks_column)
        ),
        Fault.OUT_OF_RANGE: F.when(is_array, array_lines.out_of_range()).otherwise(_in_envelope_or_kind(_out_of_range)),
        Fault.IN_FUTURE: (last_observed > future) | (F.col("emitted_at") > future),
        Fault.TOO_OLD: (F.col("emitted_at") < earliest) | (first_observed < _moment(EARLIEST_OBSERVATION)),
    }
    in_time = F.col("emitted_at").between(earliest, future)
    in_time &= (first_observed >= _moment(EARLIEST_OBSERVATION)) & (last_observed <= future)
    is_record = is_single & _is_valid(Envelope) & array_lines.of_kind(BODIES, _is_valid)
    valid = ~unreadable & in_time & (is_record | (is_array & array_lines.is_valid()))
    fault = F.coalesce(*(F.when(test, F.lit(fault.value)) for fault, test in tests.items()))
    return F.when(valid, F.lit(None)).otherwise(fault)


def _is_valid(part: Part) -> Column:
    """True if no column of this part is missing or out of range. Otherwise false or null."""
    return all_of(_is_valid_cell(column) for column in columns(part))


def _is_valid_cell(column: ContractColumn) -> Column:
    cell = F.col(column.name)
    if column.sql_type not in _NUMBERS:
        return F.lit(True) if column.nullable else cell.isNotNull()
    low = F.lit(True) if column.note.minimum is None else cell >= column.note.minimum
    valid = low & (cell <= GREATEST)
    return F.coalesce(valid, F.lit(True)) if column.nullable else valid


def _moment(text: str) -> Column:
    return F.lit(text).cast("timestamp")


def _in_envelope_or_kind(breach: Callable[[Part], Column]) -> Column:
    return any_of([breach(Envelope), *((F.col("kind") == body.KIND) & breach(body) for body in BODIES)])


def _lacks_column(part: Part) -> Column:
    return any_of(F.col(column.name).isNull() for column in columns(part) if not column.nullable)


def _out_of_range(part: Part) -> Column:
    numbers = [column for column in columns(part) if column.sql_type in _NUMBERS]
    low = (F.col(each.name) < each.note.minimum for each in numbers if each.note.minimum is not None)
    high = (F.col(each.name) > GREATEST for each in numbers)
    return any_of(F.coalesce(breach, F.lit(False)) for breach in (*low, *high))
