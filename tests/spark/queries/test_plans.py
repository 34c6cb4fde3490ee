"""Spark's plan of each query: how often it reads the records, and which operators it uses."""

import re

import pytest
from pyspark.sql import DataFrame, SparkSession

from group_sidecar.spark.summaries import SUMMARIES
from group_sidecar.spark.tables import TABLES
from tests.spark.record_frames import WIDTH, RecordsOfBoot, frame

SCANS = {"lag": 2, "group_lag": 2, "metrics": 2}
"""The tables that read the records more than once, and how often: for two kinds of records, or for two columns."""

DEAR = r"CartesianProduct|NestedLoop|Window|Python|Arrow|collect_list|collect_set"


def plan(answer: DataFrame) -> str:
    """Returns the physical plan of a query."""
    return str(answer._jdf.queryExecution().executedPlan())


@pytest.fixture(scope="module")
def records(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    folder = str(tmp_path_factory.mktemp("records") / "records")
    frame(spark, RecordsOfBoot().heartbeat(1)).write.parquet(folder)
    return spark.read.parquet(folder)


@pytest.mark.parametrize("name", TABLES)
def test_tables_avoid_expensive_operators(name: str, records: DataFrame) -> None:
    """The plan of each table reads the records as often as expected and has no expensive operators."""
    found = plan(TABLES[name].compute(records, WIDTH))
    assert found.count("FileScan parquet") == SCANS.get(name, 1)
    assert re.findall(DEAR, found) == []
    # The most frequent records are not sorted. Aggregations sort only because of structs, text and maps.
    if name in ("lag", "group_lag", "sidecars"):
        assert "Sort" not in found


def test_summaries_avoid_expensive_operators(records: DataFrame) -> None:
    """The plan of each summary has no expensive operators."""
    for name, summary in SUMMARIES.items():
        if name != "quarantine":
            found = plan(summary.compute(lambda table: TABLES[table].compute(records, WIDTH)))
            assert re.findall(DEAR, found) == [], name
