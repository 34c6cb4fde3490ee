"""The Spark session of the fleet job.

Owns: how Spark is configured where nobody else does. Must not know: what the job does with it.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

KAFKA_CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
"""Maven coordinates of what PySpark lacks to read Kafka."""

_SHUFFLE = "spark.sql.shuffle.partitions"
_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    # HotSpot compiles no method that is longer; Spark would run such a one, and be three times as slow.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # So many hours may be in one task before its rows have to be sorted by hour to be written.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
}
"""What the job is written for, wherever it runs."""
_TASKS_PER_CORE = 4
_THOROUGHLY = {
    _SHUFFLE: str(_TASKS_PER_CORE * (os.cpu_count() or 1)),
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}
"""For much data. Nobody waits for an answer meanwhile, so collections may stop everything: 3 million records cost 123 s
of CPU so, and 133 s with G1."""
_QUICKLY = {
    _SHUFFLE: "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For little data: code is neither generated nor compiled well, which pays only later. 23 records cost 21 s of CPU so,
and 26 s without."""


def session(
    master: str | None = None, *, small: bool = False, jars: Sequence[str] = (), kafka: bool = False
) -> SparkSession:
    """The Spark session. What spark-submit configures is left as it is, but for what the job is written for.

    Args:
        master: Spark master; None for local[*], or for that of spark-submit.
        small: start quickly rather than run fast.
        jars: jars that Spark needs beside its own, for instance those of the Kafka connector.
        kafka: whether Kafka is read. Where no jars are given, Spark then gets its connector through Maven.
    """
    builder = SparkSession.builder.appName("group-sidecar fleet").config(map=dict(_ALWAYS))
    if master is not None:
        builder = builder.master(master)
    if not is_submitted():
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings = _settings(jars, kafka)
        if master is None or master.startswith("local"):
            # Otherwise Spark looks for an address by which other hosts reach this one, and complains if it finds none.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            settings |= _QUICKLY if small else _THOROUGHLY
        for name, value in settings.items():
            builder = builder.config(name, value)
    return builder.getOrCreate()


def is_submitted() -> bool:
    """Whether spark-submit started this process, and so configures Spark."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _settings(jars: Sequence[str], kafka: bool) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # Segments are small: Spark would make a task of every few, each with a file in each hour.
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
