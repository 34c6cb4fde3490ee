"""Configures the Spark session of the fleet job."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

KAFKA_CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
"""Maven coordinates of the connector that PySpark needs to read Kafka and does not contain."""

_SHUFFLE = "spark.sql.shuffle.partitions"
_REQUIRED_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # HotSpot does not compile a method of more than 8,000 bytes, and an interpreted method is three times as slow.
    # Above this limit, Spark does not use whole-stage code generation.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # The default type, INT96, has no statistics, so readers cannot skip a part of a file by its times.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # A task can write rows of this many hours without sorting them by hour.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
}
"""Settings that the job requires on every installation."""
_TASKS_PER_CORE = 4
_LARGE_INPUT_SETTINGS = {
    _SHUFFLE: str(_TASKS_PER_CORE * (os.cpu_count() or 1)),
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}
"""Settings for large inputs. The parallel collector stops all threads, but no request waits for the job: 3 million
records took 123 s of CPU time with it, and 133 s with G1."""
_SMALL_INPUT_SETTINGS = {
    _SHUFFLE: "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings for small inputs. Spark generates no code and the JVM hardly optimises, because both pay off only for large
inputs: 23 records took 21 s of CPU time with these settings, and 26 s without."""


def session(
    master: str | None = None, *, small: bool = False, jars: Sequence[str] = (), kafka: bool = False
) -> SparkSession:
    """Returns the Spark session. Settings from spark-submit stay as they are, except those that the job requires.

    Args:
        master: Spark master; None for local[*], or for the master of spark-submit.
        small: whether to start quickly instead of running fast.
        jars: additional jars that Spark needs, for instance those of the Kafka connector.
        kafka: whether Kafka is read. Without `jars`, Spark then downloads its connector through Maven.
    """
    builder = SparkSession.builder.appName("group-sidecar fleet").config(map=dict(_REQUIRED_SETTINGS))
    if master is not None:
        builder = builder.master(master)
    if not is_submitted():
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings = _settings(jars, kafka)
        if master is None or master.startswith("local"):
            # Otherwise Spark searches for an address by which other hosts reach this host, and warns if there is none.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            settings |= _SMALL_INPUT_SETTINGS if small else _LARGE_INPUT_SETTINGS
        for name, value in settings.items():
            builder = builder.config(name, value)
    return builder.getOrCreate()


def is_submitted() -> bool:
    """Whether spark-submit started this process. Spark-submit then configures Spark."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _settings(jars: Sequence[str], kafka: bool) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # Segments are small. Spark would make a task of every few segments, and each task writes a file for each hour.
        "spark.sql.files.openCostInBytes": str(256 << 10),
    }
    if jars:
        settings["spark.jars"] = ",".join(jars)
    elif kafka and not _has_connector():
        settings["spark.jars.packages"] = KAFKA_CONNECTOR
    return settings


def _has_connector() -> bool:
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    return any((home / "jars").glob("spark-sql-kafka-0-10_*.jar"))
