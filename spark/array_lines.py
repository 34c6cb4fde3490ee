"""Array lines, which have many records of one kind: their schema, their faults, and their records.

An array line is valid if all of its records are valid. So the conditions here are about whole arrays: the least and the
greatest value of an array decide whether all of its values are within the bounds.
"""

from collections.abc import Callable, Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import (
    ARRAY_BODIES,
    ARRAY_RECORDS,
    ARRAY_VERSION,
    GREATEST,
    ArrayEnvelope,
    Body,
    array_columns,
    columns,
)
from group_sidecar.metrics.records import Column as ContractColumn
from group_sidecar.spark.boolean_columns import all_of, any_of

_COUNT, _ARRAYS = "count", "columns"
COLUMNS = (_COUNT, _ARRAYS)
"""The columns of an array line that a single record lacks."""
_NUMBERS = ("BIGINT", "DOUBLE")
_POSITION, _VALUES = "_position", "_values"

_TYPES = {column.name: column.sql_type for body in ARRAY_BODIES for column in array_columns(body)}
DDL = f"`{_COUNT}` BIGINT, `{_ARRAYS}` STRUCT<{', '.join(f'`{n}`: ARRAY<{t}>' for n, t in _TYPES.items())}>"
"""The types of `COLUMNS` in Spark's DDL."""


def expanded(lines: DataFrame, names: Sequence[str], others: Sequence[str]) -> DataFrame:
    """Returns a row for each record of a valid array line, and one unchanged row for each other line.

    Args:
        lines: the columns `names`, `COLUMNS` and `others`, which include `fault`.
        names: the columns of a record.
        others: the columns that are the same for all records of a line.
    """
    arrays = (F.coalesce(_array(name), F.array().cast(f"ARRAY<{_TYPES[name]}>")).alias(name) for name in _TYPES)
    # Readers ignore the array of a column that the line's kind lacks. Such an array may be longer than `count`.
    values = F.slice(F.arrays_zip(*arrays), 1, F.col(_COUNT).cast("INT"))
    values = F.when(F.col("fault").isNull() & (F.col("version") == ARRAY_VERSION), values)
    # `outer` keeps the lines that have no arrays.
    rows = lines.select(*names, *others, F.posexplode_outer(values).alias(_POSITION, _VALUES))
    is_part = F.col(_POSITION).isNotNull()
    cells = {name: F.when(is_part, F.col(_VALUES)[name]).otherwise(F.col(name)) for name in _TYPES}
    cells["seq"] = F.col("seq") + F.coalesce(F.col(_POSITION), F.lit(0))
    return rows.select(*(cells.get(name, F.col(name)).alias(name) for name in names), *others)


def observed(is_array: Column) -> tuple[Column, Column]:
    """Returns the earliest and the latest time of observation of a line, which may be an array line or a record."""
    single, several = F.col("observed_at"), _array("observed_at")
    return (
        F.when(is_array, F.array_min(several)).otherwise(single),
        F.when(is_array, F.array_max(several)).otherwise(single),
    )


def is_valid() -> Column:
    """True if no value of an array line is missing or out of range. Otherwise false or null. Times are not checked."""
    counts = F.col(_COUNT).between(1, ARRAY_RECORDS) & (F.col("seq") >= 1) & (_last_seq() <= GREATEST)
    envelope = (F.col(column.name).isNotNull() for column in columns(ArrayEnvelope))
    return all_of([counts, *envelope]) & of_kind(
        ARRAY_BODIES, lambda body: all_of(map(_is_valid_array, array_columns(body)))
    )


def of_kind(bodies: Iterable[type[Body]], condition: Callable[[type[Body]], Column]) -> Column:
    """Returns the condition of the line's kind; null for a kind that is not among these bodies."""
    first, *others = bodies
    chain = F.when(F.col("kind") == first.KIND, condition(first))
    for body in others:
        chain = chain.when(F.col("kind") == body.KIND, condition(body))
    return chain


def lacks_value() -> Column:
    """True if an array line lacks a column of its envelope, or the `count` values of an array. Never null."""
    envelope = (F.col(column.name).isNull() for column in columns(ArrayEnvelope))
    lacking = of_kind(ARRAY_BODIES, lambda body: any_of(map(_lacks_value, array_columns(body))))
    return any_of([*envelope, F.coalesce(lacking, F.lit(False))])


def out_of_range() -> Column:
    """True if a number of an array line is out of range, or an array line has too few or too many records."""
    counts = ~F.col(_COUNT).between(1, ARRAY_RECORDS) | (F.col("seq") < 1) | (_last_seq() > GREATEST)
    return counts | of_kind(ARRAY_BODIES, lambda body: any_of(map(_out_of_range, array_columns(body))))


def _array(name: str) -> Column:
    return F.col(_ARRAYS)[name]


def _last_seq() -> Column:
    # Without these bounds, the sum could exceed BIGINT.
    return F.least(F.col("seq"), F.lit(GREATEST)) + F.least(F.col(_COUNT), F.lit(GREATEST)) - 1


def _is_valid_array(column: ContractColumn) -> Column:
    array = _array(column.name)
    complete = F.size(array) == F.col(_COUNT)
    if column.nullable:
        complete = array.isNull() | complete
    else:
        complete &= ~_has_null(array)
    return complete & ~_out_of_range(column)


def _lacks_value(column: ContractColumn) -> Column:
    array = _array(column.name)
    incomplete = F.size(array) != F.col(_COUNT)
    if column.nullable:
        return array.isNotNull() & incomplete
    return array.isNull() | incomplete | _has_null(array)


def _out_of_range(column: ContractColumn) -> Column:
    """Whether an array has a number that is out of range. Never null."""
    if column.sql_type not in _NUMBERS:
        return F.lit(False)
    array = _array(column.name)
    breach = F.array_max(array) > GREATEST
    if column.note.minimum is not None:
        breach |= F.array_min(array) < column.note.minimum
    return F.coalesce(breach, F.lit(False))


def _has_null(array: Column) -> Column:
    return F.exists(array, lambda value: value.isNull())
