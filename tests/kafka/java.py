"""Commands that run Java programs with the jars of a Kafka version."""

import functools
import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.kafka.maven import kafka_jars

JVM_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData")
"""Flags for processes that live for a minute: the JVM starts quickly and needs only one core. Performance data is off,
because starting JVMs lock its files, and a JVM that finds a lock prints a warning into the output of its tool."""


def java(version: str, *options: str, more_jars: Sequence[Path] = ()) -> list[str]:
    """Returns a command up to its main class or source file.

    Args:
        version: the Kafka version whose jars are the class path.
        options: further JVM options.
        more_jars: jars that follow those of Kafka on the class path.

    Raises:
        JarsUnavailable: see `kafka_jars`.
        FileNotFoundError: there is no Java.
    """
    archive = archive_path(version)
    shared = use_archive(archive) if archive.exists() else []
    return ["java", *JVM_FLAGS, *shared, *options, "-cp", ":".join((f"{archive.parent}/*", *map(str, more_jars)))]


def archive_path(version: str) -> Path:
    """Returns the path of the archive of the classes that a broker of this version loads.

    A JVM with the archive starts in half of the CPU time. `tests.kafka.class_archives` makes the archive. Only the JVM
    that wrote an archive can read it, so the name depends on the JVM's version. The archive is in the folder of the
    jars, so it is removed together with the jars from which it was made.

    Raises:
        JarsUnavailable: see `kafka_jars`.
        FileNotFoundError: there is no Java.
    """
    return kafka_jars(version) / f"classes-{jvm_digest()}.jsa"


def use_archive(archive: Path) -> list[str]:
    """Returns the options of a JVM that starts with an archive.

    The JVM ignores an archive that does not fit. The options also suppress its warning, which would be in the tool's
    output.
    """
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"]


@functools.cache
def jvm_digest(java: str = "java") -> str:
    """Returns a digest of the JVM's version. `java` is the JVM's program.

    Raises:
        FileNotFoundError: there is no such program.
    """
    output = subprocess.run([java, "-version"], capture_output=True, check=True).stderr
    return hashlib.sha256(output).hexdigest()[:12]
