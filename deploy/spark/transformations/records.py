"""Lines become records or go to quarantine, as they come."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from group_sidecar.spark import intake, sources


@dp.temporary_view
def judged() -> DataFrame:
    """Every line of the journals, and what is wrong with it."""
    spark = SparkSession.active()
    return intake.judged(sources.files_stream(spark, str(spark.conf.get("spark.group_sidecar.input"))))


@dp.table
def records() -> DataFrame:
    """The lines that are records. One that was written twice is here twice."""
    return intake.accepted(SparkSession.active().readStream.table("judged"))


@dp.table
def quarantine() -> DataFrame:
    """The others, with what is wrong with them."""
    return intake.quarantined(SparkSession.active().readStream.table("judged"))
