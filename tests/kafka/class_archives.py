"""Makes the class archives with which the JVMs of tests start faster: ``python -m tests.kafka.class_archives 4.4.0``.

A broker of each version runs once, and its JVM writes the archive when it stops (Java's application class-data
sharing). An existing archive is kept. The archives of other JVMs are removed.
"""

import signal
import sys
import tempfile
from pathlib import Path

from tests.kafka.broker import KafkaBroker
from tests.kafka.java import archive_path
from tests.kafka.processes import ProcessFailed


def make_archive(version: str) -> None:
    """Makes the archive of a version, unless it exists.

    Raises:
        JarsUnavailable: see `kafka_jars`.
        ProcessFailed: the broker did not start, or its JVM was killed before it had written the archive.
    """
    archive = archive_path(version)
    if archive.exists():
        return
    for old in archive.parent.glob("classes-*.jsa"):
        old.unlink()
    made = archive.with_suffix(".new")
    made.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        option = f"-XX:ArchiveClassesAtExit={made}"
        broker = KafkaBroker(Path(folder, "broker"), version=version, java_options=[option])
        broker.start()
        try:
            broker.wait_for_coordinator()
        finally:
            status = broker.stop()
    if status != 128 + signal.SIGTERM:
        raise ProcessFailed(f"the JVM of Kafka {version} ended with status {status}, perhaps without a whole archive")
    made.rename(archive)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        make_archive(each)
