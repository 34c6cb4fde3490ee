"""The schemas of the fleet's tables and summaries equal their golden file, see tests/surfaces."""

from pyspark.sql import SparkSession

from tests.surfaces.golden import golden_text
from tests.surfaces.spark_tables import SCHEMAS, schemas


def test_schemas_unchanged(spark: SparkSession) -> None:
    """Each column of every table and summary keeps its name, type and position."""
    renew = "a public surface has changed; if that is meant: python -m tests.surfaces --spark"
    assert schemas(spark).splitlines() == golden_text(SCHEMAS).splitlines(), renew
