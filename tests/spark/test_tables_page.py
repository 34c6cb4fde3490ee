"""The page on tables has the columns, the types and the nulls of what the queries return and the store contains."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark import line_parsing
from group_sidecar.spark.line_parsing import Fault
from group_sidecar.spark.store import QUARANTINE, Store
from group_sidecar.spark.summaries import SUMMARIES
from group_sidecar.spark.tables import RECORDS, TABLES
from group_sidecar.spark.tables_page import DeclaredColumn, columns, page, record_columns
from tests.metrics.test_records import KNOWN, record
from tests.spark.queries.test_random_histories import START, Fleet
from tests.spark.record_frames import WIDTH, RecordsOfBoot, at, frame
from tests.spark.segment_files import NOW, line
from tests.spark.test_line_parsing import DAMAGED, NOON

FILE = Path(__file__).parents[2] / "docs" / "tables.md"
FOLDERS = [("day", "DATE"), ("hour", "INT")]
"""The columns that the folders of a table add."""


def lines(spark: SparkSession, *values: str | None, arrivals: Sequence[datetime | None] = (at(1), None)) -> DataFrame:
    """Returns lines and their faults, as judged at noon. Each line arrives at each of these times; None: not known."""
    arrived = [(value, moment) for value in values for moment in arrivals]
    return line_parsing.judged(spark.createDataFrame(arrived, "value STRING, arrived_at TIMESTAMP"), F.lit(at(NOON)))


def types(answer: DataFrame) -> list[tuple[str, str]]:
    """Returns the columns of a frame with their types, as the page spells them."""
    return [(name, kind.upper().replace(",", ", ")) for name, kind in answer.dtypes]


def declared_types(declared: tuple[DeclaredColumn, ...]) -> list[tuple[str, str]]:
    return [(each.name, each.sql_type) for each in declared]


def with_nulls(answer: DataFrame) -> set[str]:
    """Returns the columns that are null in some row."""
    counted = (F.count_if(F.col(name).isNull()).alias(name) for name in answer.columns)
    (row,) = answer.agg(F.count("*").alias("rows of the frame"), *counted).collect()
    assert row["rows of the frame"] > 0
    return {name for name in answer.columns if row[name]}


def nullable(declared: tuple[DeclaredColumn, ...]) -> set[str]:
    return {each.name for each in declared if each.nullable}


def test_tables_page_is_current() -> None:
    """The page on tables equals the generated page."""
    assert page() == FILE.read_text(), "renew it: python -m group_sidecar.spark.tables_page > docs/tables.md"


def test_declared_types_match_queries(spark: SparkSession) -> None:
    """The declared columns are those that the queries return for no records: names, order and types.

    A column that Spark knows to be never null is not declared as nullable.
    """
    none = lines(spark)
    tables_of_none: dict[str, DataFrame] = {name: table.compute(frame(spark), WIDTH) for name, table in TABLES.items()}
    tables_of_none[QUARANTINE] = line_parsing.quarantined(none)
    found = {(name, columns(table.query)): tables_of_none[name] for name, table in TABLES.items()}
    found[QUARANTINE, columns(line_parsing.quarantined)] = tables_of_none[QUARANTINE]
    found[RECORDS, record_columns()] = line_parsing.accepted(none)
    for name, summary in SUMMARIES.items():
        found[f"summary {name}", columns(summary.compute)] = summary.compute(tables_of_none.__getitem__)
    for (name, declared), answer in found.items():
        assert types(answer) == declared_types(declared), name
        assert {field.name for field in answer.schema if not field.nullable} & nullable(declared) == set(), name


def test_declared_types_match_the_store(spark: SparkSession, tmp_path: Path) -> None:
    """The store's Parquet files have the declared columns, and the further columns that the page names."""
    store = Store(spark, str(tmp_path))
    added = store.add(1, lines(spark, line(RecordsOfBoot().group(1, "g", 1)), "{"), NOW)
    groups = TABLES["groups"]
    store.replace("groups", groups.compute(store.records(added.hours), store.window), added.hours)
    found = {name: types(spark.read.parquet(str(tmp_path / name))) for name in ("groups", RECORDS, QUARANTINE)}
    batch = {*FOLDERS, ("batch", "STRING")}
    quarantined = declared_types(columns(line_parsing.quarantined))
    assert found["groups"] == [*declared_types(columns(groups.query)), *FOLDERS]
    assert {*found[RECORDS]} >= {*declared_types(record_columns()), *batch}
    assert {*found[QUARANTINE]} >= {*quarantined, ("name", "STRING"), *batch}


def test_records_and_quarantine_have_declared_nulls(spark: SparkSession) -> None:
    """In records and in quarantine, exactly the columns that are declared as nullable can be null."""
    records = (record(body).to_line().decode() for body, _ in KNOWN)
    judged = lines(spark, *records, *DAMAGED, None)
    assert with_nulls(line_parsing.quarantined(judged)) == nullable(columns(line_parsing.quarantined))
    assert with_nulls(line_parsing.accepted(judged)) == nullable(record_columns())


def test_summaries_have_declared_nulls(spark: SparkSession) -> None:
    """In the summaries of random histories, exactly the columns that are declared as nullable can be null."""
    random = Random(1)
    records = [record for number in range(12) for record in Fleet(random, f"{number}").records()]
    other = RecordsOfBoot("other")
    records += [other.refusal(START, "never let in", "p", 77), other.commit(START, "g", "without log end", 0, 5)]
    records += [other.heartbeat(START) | {"sample": {"never": None}}]
    others = lines(spark, *(each for each, fault in DAMAGED.items() if fault != Fault.UNKNOWN_VERSION))
    judged = others.unionByName(lines(spark, None, arrivals=(None,)))
    read = {name: table.compute(frame(spark, *records), WIDTH) for name, table in TABLES.items()}
    read[QUARANTINE] = line_parsing.quarantined(judged)
    for name, summary in SUMMARIES.items():
        assert with_nulls(summary.compute(read.__getitem__)) == nullable(columns(summary.compute)), name


def _without_columns() -> None:
    """Does nothing.

    Returns:
        nothing, something
    """


def _without_section() -> None:
    """Does nothing."""


@pytest.mark.parametrize("query", [_without_columns, _without_section])
def test_query_without_declaration_is_refused(query: Callable[[], None]) -> None:
    """A docstring that declares no columns, or declares them in another form, raises ValueError."""
    with pytest.raises(ValueError, match=r"nothing, something|_without_section"):
        columns(query)
