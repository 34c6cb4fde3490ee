"""Parses the lines of the journals as they arrive, into records or quarantine."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from group_sidecar.spark import line_parsing, line_sources


@dp.temporary_view
def judged() -> DataFrame:
    """Returns every line of the journals, with its fault."""
    spark = SparkSession.active()
    return line_parsing.judged(line_sources.files_stream(spark, str(spark.conf.get("spark.group_sidecar.input"))))


@dp.table
def records() -> DataFrame:
    """Returns the lines that are records. A record that was written twice occurs twice."""
    return line_parsing.accepted(SparkSession.active().readStream.table("judged"))


@dp.table
def quarantine() -> DataFrame:
    """Returns the other lines, with their faults."""
    return line_parsing.quarantined(SparkSession.active().readStream.table("judged"))
