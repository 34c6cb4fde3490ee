"""One report of a fleet for all tests that look at it: asking takes longer than looking. And a browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from group_sidecar.spark.report import write_report
from tests.page.browser import Browser
from tests.spark.report.fleet_tables import TITLE, fleet, tables


@pytest.fixture(scope="session")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on a fleet that has something of everything."""
    file = tmp_path_factory.mktemp("report") / "fleet.html"
    write_report(tables(spark, fleet()), file, title=TITLE)
    return file


@pytest.fixture(scope="session")
def opened() -> Iterator[Browser]:
    """One browser; starting it takes longer than most tests."""
    with Browser() as browser:
        yield browser
