"""Lines become records; what is no record goes to quarantine, with its fault.

Owns: reading a line by the contract, its faults, deduplication. Must not know: what records are asked.

The schema, the columns that must be there and the bounds all come from `metrics.records`; there is no second list.
Spark reads any JSON value where a string is due, so a number in place of a name passes as its digits.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from enum import StrEnum
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import (
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

CLOCK_SKEW = timedelta(minutes=5)
"""How far ahead of this job's clock a sidecar's may be. One that is further ahead would make others seem late."""

_UNREADABLE = "_unreadable"

Part = type[Envelope | Body]


class Fault(StrEnum):
    """Why a line is in quarantine: the first of these that holds."""

    NOT_JSON_OBJECT = "not_json_object"
    UNKNOWN_VERSION = "unknown_version"
    UNKNOWN_KIND = "unknown_kind"
    WRONG_TYPE = "wrong_type"
    MISSING_COLUMN = "missing_column"
    OUT_OF_RANGE = "out_of_range"
    IN_FUTURE = "in_future"
    TOO_OLD = "too_old"


def record_ddl() -> str:
    """The schema of a line as Spark's DDL: the envelope's columns, then those of all kinds, each once."""
    return ", ".join(f"`{name}` {sql_type}" for name, sql_type in _types().items())


def _types() -> dict[str, str]:
    parts: tuple[Part, ...] = (Envelope, *BODIES)
    return {column.name: column.sql_type for part in parts for column in columns(part)}


def judged(lines: DataFrame, now: Column | None = None, oldest: Column | None = None) -> DataFrame:
    """Reads lines by the contract, and judges them.

    Args:
        lines: `value` STRING, and `arrived_at` TIMESTAMP: when the transport took it; null where that is not known.
        now: the moment that the future begins at; the current time if None.
        oldest: records that were made before are too old; None if only those are that the contract does not allow.

    Returns:
        The columns of the contract, as far as they can be read; `fault` (a `Fault`; null for a record), `line` (as it
        was; null for a record) and `arrived_at` (null too where it is before the contract's time or in the future: the
        date of a file is whatever somebody set it to).
    """
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _UNREADABLE,
        "timestampFormat": TIMESTAMP_FORMAT,
        "allowSingleQuotes": "false",
        "allowNonNumericNumbers": "false",
    }
    now = F.current_timestamp() if now is None else now
    schema = f"{record_ddl()}, `{_UNREADABLE}` STRING"
    # Spark would read a line anew for each column that a condition names, did the columns not come out of `inline`.
    arrived = F.when(F.col("arrived_at").between(_moment(EARLIEST), now + F.lit(CLOCK_SKEW)), F.col("arrived_at"))
    read = lines.select("value", arrived.alias("arrived_at"), F.inline(F.array(F.from_json("value", schema, options))))
    fault = _fault(now, oldest).alias("fault")
    line = F.when(F.col("fault").isNotNull(), F.col("value")).alias("line")
    return read.select("*", fault).select(*_types(), "fault", line, "arrived_at")


def accepted(judged: DataFrame) -> DataFrame:
    """The records among judged lines: the columns of the contract, and `arrived_at`."""
    return judged.where(F.col("fault").isNull()).select(*_types(), "arrived_at")


def quarantined(judged: DataFrame) -> DataFrame:
    """The others: `fault`, `sidecar` (null where not even that can be read), `line` as it was, `arrived_at`."""
    return judged.where(F.col("fault").isNotNull()).select("fault", "sidecar", "line", "arrived_at")


def deduplicated(records: DataFrame) -> DataFrame:
    """Each record once, however often its line was written: (sidecar, boot, seq) is its name.

    It arrived when the first of its lines did: what is answered of it must not depend on which of them is read first.
    """
    name = ("sidecar", "boot", "seq")
    arrived = F.min("arrived_at").alias("arrived_at")
    # Which columns there are, the contract says: a Declarative Pipeline may not ask a frame.
    rest = (F.first(column).alias(column) for column in _types() if column not in name)
    return records.groupBy(*name).agg(*rest, arrived).select(*_types(), "arrived_at")


def _fault(now: Column, oldest: Column | None) -> Column:
    value, unreadable = F.col("value"), F.col(_UNREADABLE).isNotNull()
    blank = F.trim(value) == ""
    no_object = unreadable & (~F.ltrim(value).startswith("{") | F.try_parse_json(value).isNull())
    future = now + F.lit(CLOCK_SKEW)
    outdated = (F.col("emitted_at") < _moment(EARLIEST)) | (F.col("observed_at") < _moment(EARLIEST_OBSERVATION))
    if oldest is not None:
        outdated |= F.col("emitted_at") < oldest
    tests = {
        Fault.NOT_JSON_OBJECT: blank | no_object,
        Fault.UNKNOWN_VERSION: F.col("version").isNull() | (F.col("version") != VERSION),
        Fault.UNKNOWN_KIND: F.col("kind").isNull() | ~F.col("kind").isin(*KINDS),
        Fault.WRONG_TYPE: unreadable,
        Fault.MISSING_COLUMN: _in_envelope_or_kind(_lacks),
        Fault.OUT_OF_RANGE: _in_envelope_or_kind(_exceeds),
        Fault.IN_FUTURE: (F.col("observed_at") > future) | (F.col("emitted_at") > future),
        Fault.TOO_OLD: outdated,
    }
    return F.coalesce(*(F.when(test, F.lit(fault.value)) for fault, test in tests.items()))


def _moment(text: str) -> Column:
    return F.lit(text).cast("timestamp")


def _in_envelope_or_kind(breach: Callable[[Part], Column]) -> Column:
    return _any([breach(Envelope), *((F.col("kind") == body.KIND) & breach(body) for body in BODIES)])


def _lacks(part: Part) -> Column:
    return _any(F.col(column.name).isNull() for column in columns(part) if not column.nullable)


def _exceeds(part: Part) -> Column:
    numbers = [column for column in columns(part) if column.sql_type in ("BIGINT", "DOUBLE")]
    low = (F.col(each.name) < each.note.minimum for each in numbers if each.note.minimum is not None)
    high = (F.col(each.name) > GREATEST for each in numbers)
    return _any(F.coalesce(breach, F.lit(False)) for breach in (*low, *high))


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(or_, conditions, F.lit(False))
