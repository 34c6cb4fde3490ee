"""A summary on standard output."""

import pytest
from pyspark.sql import SparkSession

from group_sidecar.spark.output import show_table
from group_sidecar.spark.summaries import Summary

SHOWN = Summary("example", lambda read: read("nothing"), "lag", ("group",), ("lag", "group", "state"), "An example.")


def test_plain_output_is_safe_and_complete(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Output that is not a terminal has whole names in order and no control characters."""
    cells = [("a" * 300, "\x1b[2Jgone", 3, 0), ("b", None, 7, 0), ("c", "", None, 0)]
    answer = spark.createDataFrame(cells, "group STRING, state STRING, lag BIGINT, other BIGINT")
    show_table(answer, SHOWN, 2)
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    assert lines[0] == ["lag", "group", "state"]
    assert lines[2:4] == [["7", "b"], ["3", "a" * 300, "\N{REPLACEMENT CHARACTER}[2Jgone"]]
    assert "first 2 rows" in printed
