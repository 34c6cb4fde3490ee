"""Commands that run Java programs with the jars of a Kafka version."""

import functools
import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.kafka.maven import kafka_jars

JVM_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData")
"""Flags for processes that live for a minute: they start quickly and leave the other core alone. Performance data is
off, because starting JVMs lock its files, and a JVM that finds a lock prints a warning into the output of its tool."""


def java(version: str, *options: str, more_jars: Sequence[Path] = ()) -> list[str]:
    """Returns a command up to its main class or source file.

    Args:
        version: the Kafka version whose jars are the class path.
        options: further JVM options.
        more_jars: jars that follow those of Kafka on the class path.

    Raises:
        JarsUnavailable: see `kafka_jars`.
    """
    jars = kafka_jars(version)
    archive = class_archive(version)
    shared = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    return ["java", *JVM_FLAGS, *shared, *options, "-cp", ":".join((f"{jars}/*", *map(str, more_jars)))]


def class_archive(version: str) -> Path:
    """Returns the path of the archive of the classes that a broker of this version loads.

    A JVM with the archive starts in half of the CPU time. `tests.kafka.class_archives` makes the archive. Only the JVM
    that wrote an archive can read it, so the name contains the JVM's version. The archive is in the folder of the jars
    from which it was made, so it is removed together with them.
    """
    return kafka_jars(version) / f"classes-{jvm_version()}.jsa"


@functools.cache
def jvm_version() -> str:
    """Returns a short text that differs for each version of the JVM."""
    told = subprocess.run(["java", "-version"], capture_output=True, check=True).stderr
    return hashlib.sha256(told).hexdigest()[:12]
