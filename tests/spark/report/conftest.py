"""One report of a fleet, and one browser, for all tests that read them. Both take longer to make than to read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from group_sidecar.spark.report import write_report
from tests.page.browser import Browser
from tests.spark.report.fleet_tables import TITLE, fleet, tables


@pytest.fixture(scope="session")
def report_file(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on a fleet that has an example of everything a report shows."""
    file = tmp_path_factory.mktemp("report") / "fleet.html"
    write_report(tables(spark, fleet()), file, title=TITLE)
    return file


@pytest.fixture(scope="session")
def report_browser() -> Iterator[Browser]:
    """One browser for all tests, because its start takes longer than most tests."""
    with Browser() as browser:
        yield browser
