"""The page on tables says what the questions return."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from group_sidecar.spark.summaries import SUMMARIES
from group_sidecar.spark.tables import TABLES
from group_sidecar.spark.tables_page import columns, page
from tests.spark.frames import frame

FILE = Path(__file__).parents[2] / "docs" / "tables.md"


def test_the_page_is_renewed() -> None:
    assert page() == FILE.read_text(), "renew it: python -m group_sidecar.spark.tables_page > docs/tables.md"


def test_every_column_of_a_table_is_on_the_page(spark: SparkSession) -> None:
    none = frame(spark)
    for table in TABLES.values():
        told = set(re.findall(r"\w+", columns(table.ask)))
        assert set(table.asked_of(none, "5 minutes").columns) <= told, table.name


@pytest.mark.parametrize("name", SUMMARIES)
def test_what_a_terminal_shows_of_a_summary_is_on_the_page(name: str) -> None:
    assert {*SUMMARIES[name].glance, *SUMMARIES[name].then} <= set(re.findall(r"\w+", columns(SUMMARIES[name].ask)))
