"""The page on tables has the columns that the queries return."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from group_sidecar.spark.summaries import SUMMARIES
from group_sidecar.spark.tables import TABLES
from group_sidecar.spark.tables_page import columns, page
from tests.spark.record_frames import frame

FILE = Path(__file__).parents[2] / "docs" / "tables.md"


def test_tables_page_is_current() -> None:
    """The page on tables equals the generated page."""
    assert page() == FILE.read_text(), "renew it: python -m group_sidecar.spark.tables_page > docs/tables.md"


def test_page_has_every_table_column(spark: SparkSession) -> None:
    """Each column of every table is on the page."""
    none = frame(spark)
    for table in TABLES.values():
        told = set(re.findall(r"\w+", columns(table.ask)))
        assert set(table.compute(none, "5 minutes").columns) <= told, table.name


@pytest.mark.parametrize("name", SUMMARIES)
def test_page_has_terminal_columns(name: str) -> None:
    """Each column that a terminal shows of a summary is on the page."""
    assert {*SUMMARIES[name].terminal_columns, *SUMMARIES[name].then_by} <= set(
        re.findall(r"\w+", columns(SUMMARIES[name].ask))
    )
