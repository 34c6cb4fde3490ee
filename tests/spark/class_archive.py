"""Makes the class archive with which Spark's JVM starts faster: ``python -m tests.spark.class_archive``.

One batch of a small fleet runs, and its JVM writes the archive when it ends (Java's application class-data sharing).
The archive is in the virtual environment, because only PySpark's jars at this path can be used with it.
"""

import os
import shlex
import sys
import tempfile
from pathlib import Path

import pyspark

from group_sidecar.spark import line_sources
from group_sidecar.spark.ingest import ingest
from group_sidecar.spark.spark_session import session
from group_sidecar.spark.store import Store
from tests.kafka.java import jvm_version
from tests.spark.segment_files import NOW, segments_in_order, tell

_SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
"""The environment variable with the arguments of the JVMs that PySpark starts."""


def use() -> None:
    """Makes this process and its children start Spark with the archive, if it exists."""
    if (archive := _archive()).exists():
        os.environ[_SUBMIT_ARGS] = _submit_args(f"-XX:SharedArchiveFile={archive}")


def make() -> None:
    """Makes the archive, unless it exists.

    Raises:
        FileNotFoundError: the JVM wrote no archive.
    """
    if (archive := _archive()).exists():
        return
    with tempfile.TemporaryDirectory(dir=sys.prefix) as scratch:
        made, journals = Path(scratch, "classes.jsa"), Path(scratch, "journals")
        os.environ[_SUBMIT_ARGS] = _submit_args(f"-Xlog:disable -XX:ArchiveClassesAtExit={made}")
        spark = session(small=True)
        tell(journals, tuple(segments_in_order()))
        ingest(Store(spark, str(Path(scratch, "store"))), line_sources.files(spark, str(journals)), 0, NOW)
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        spark.stop()
        gateway.proc.stdin.close()  # PySpark's JVM ends when its standard input does.
        gateway.proc.wait()
        made.rename(archive)


def _archive() -> Path:
    return Path(sys.prefix, f"spark-{pyspark.__version__}-classes-{jvm_version()}.jsa")


def _submit_args(options: str) -> str:
    return f"--conf {shlex.quote(f'spark.driver.defaultJavaOptions={options}')} pyspark-shell"


if __name__ == "__main__":
    make()
