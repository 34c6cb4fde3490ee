"""One Spark session for all of these tests: it takes longer to start than they take."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from group_sidecar.spark.requirements import java_missing
from group_sidecar.spark.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that the job itself would have for a small input."""
    if missing := java_missing():
        pytest.fail(missing)
    spark = session(small=True)
    yield spark
    spark.stop()
