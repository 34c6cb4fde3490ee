"""Makes the class archives with which the JVMs of tests start faster: ``python -m tests.kafka.class_archives 4.4.0``.

A broker of each version runs once, and its JVM writes the archive when it stops (Java's application class-data
sharing). The program first downloads jars that are not in the cache. It keeps an archive that exists.
"""

import sys
import tempfile
from pathlib import Path

from tests.kafka.broker import KafkaBroker
from tests.kafka.java import class_archive


def make(version: str) -> None:
    """Makes the archive of a version, unless it exists. Several processes may do this at once; the last one wins.

    Raises:
        ProcessFailed: the broker did not start.
        FileNotFoundError: the broker's JVM wrote no archive.
    """
    archive = class_archive(version)
    if archive.exists():
        return
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".classes-") as folder:
        made = Path(folder) / "classes.jsa"
        broker = KafkaBroker(
            Path(folder) / "broker", version=version, java_options=[f"-XX:ArchiveClassesAtExit={made}"]
        )
        broker.start()
        try:
            broker.wait_for_coordinator()
        finally:
            broker.stop()
        made.rename(archive)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        make(each)
