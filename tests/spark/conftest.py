"""One Spark session for all tests in this folder, because it takes longer to start than the tests take."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from group_sidecar.spark.environment import java_missing
from group_sidecar.spark.spark_session import session
from tests.spark.class_archive import use_class_archive

use_class_archive()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that the job itself uses for a small input."""
    if missing := java_missing():
        pytest.fail(missing)
    spark = session(small=True)
    yield spark
    spark.stop()
