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
from group_sidecar.spark.environment import java_command, java_missing
from group_sidecar.spark.ingest import ingest
from group_sidecar.spark.spark_session import session
from group_sidecar.spark.store import Store
from tests.kafka.java import jvm_digest, use_archive
from tests.kafka.processes import GIVE_UP_SECONDS, ProcessFailed
from tests.spark.segment_files import NOW, segments_in_order, tell

_SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
"""The environment variable with the arguments of the JVMs that PySpark starts."""


def use_class_archive() -> None:
    """Makes this process and its children start Spark with the archive, if Java and the archive exist."""
    if (archive := _archive()) is not None and archive.exists():
        os.environ[_SUBMIT_ARGS] = _submit_args(*use_archive(archive))


def make_class_archive() -> None:
    """Makes the archive, unless it exists. Does nothing without Java, or if the path has a blank: Spark splits options.

    Raises:
        ProcessFailed: the JVM failed before it had written the archive.
        TimeoutExpired: the JVM did not end.
    """
    archive = _archive()
    if archive is None or archive.exists():
        return
    made = archive.with_suffix(".new")
    made.unlink(missing_ok=True)
    os.environ[_SUBMIT_ARGS] = _submit_args(f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable")
    with tempfile.TemporaryDirectory() as folder:
        journals = Path(folder, "journals")
        tell(journals, tuple(segments_in_order()))
        spark = session(small=True)
        ingest(Store(spark, str(Path(folder, "store"))), line_sources.files(spark, str(journals)), 0, NOW)
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        spark.stop()
        gateway.proc.stdin.close()  # PySpark's JVM ends when its standard input does.
        if status := gateway.proc.wait(GIVE_UP_SECONDS):
            raise ProcessFailed(f"Spark's JVM ended with status {status}, perhaps without a whole archive")
    made.rename(archive)


def _archive() -> Path | None:
    java = None if java_missing() else java_command()
    if java is None or " " in sys.prefix:
        return None
    return Path(sys.prefix, f"spark-{pyspark.__version__}-classes-{jvm_digest(java)}.jsa")


def _submit_args(*options: str) -> str:
    setting = f"spark.driver.defaultJavaOptions={' '.join(options)}"
    return f"--conf {shlex.quote(setting)} pyspark-shell"


if __name__ == "__main__":
    make_class_archive()
