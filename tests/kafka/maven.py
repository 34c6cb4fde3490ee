"""Downloads Kafka's jars from the Maven repository into a cache folder outside the checkout.

Maven downloads the jars, so the user's own settings, mirrors and local repository apply. This command fills the cache
in advance: ``python -m tests.kafka.maven 4.4.0``.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

CACHE_VARIABLE = "KAFKA_GROUP_SIDECAR_CACHE"
"""The environment variable that names another cache folder."""

_LOG4J_1 = ("log4j:log4j:1.2.17", "org.slf4j:slf4j-log4j12:1.7.36")
_JAXB = "javax.xml.bind:jaxb-api:2.3.1"  # Java 11 removed this API. Brokers before 2.0 still need it.

ARTIFACTS: dict[str, tuple[str, ...]] = {
    "4.4.0": ("org.apache.kafka:kafka_2.13:4.4.0", "org.slf4j:slf4j-reload4j:1.7.36"),
    "4.3.1": (
        "org.apache.kafka:kafka_2.13:4.3.1",
        "org.apache.kafka:kafka-tools:4.3.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.2",
    ),
    "3.9.1": ("org.apache.kafka:kafka_2.13:3.9.1", "org.slf4j:slf4j-reload4j:1.7.36"),
    "2.8.2": ("org.apache.kafka:kafka_2.13:2.8.2", *_LOG4J_1),
    "1.1.1": ("org.apache.kafka:kafka_2.12:1.1.1", *_LOG4J_1, _JAXB),
    "0.10.2.2": ("org.apache.kafka:kafka_2.12:0.10.2.2", _JAXB),
    "0.10.1.1": ("org.apache.kafka:kafka_2.11:0.10.1.1", *_LOG4J_1, _JAXB),
    "0.9.0.1": ("org.apache.kafka:kafka_2.11:0.9.0.1", *_LOG4J_1, _JAXB),
}
"""Maven coordinates by Kafka version."""
TOOLS = {"3.9.1": ("org.apache.kafka:kafka-tools:3.9.1",)}
"""The command-line tools of the versions that publish them as an artifact of their own. The broker needs no tools."""

_SPARK = "4.2.0"
CONNECTOR = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{_SPARK}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
"""The newest published version of the connector with which Spark reads Kafka. PySpark 4.3 has no connector yet."""

_STRIMZI = "1.2.0"
STRIMZI = (f"io.strimzi:api:{_STRIMZI}", f"io.strimzi:crd-generator:{_STRIMZI}")
"""Strimzi's resources as Java classes, and the program that makes CRDs of them."""

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_PROGRESS_SECONDS = 2.0


class JarsUnavailable(Exception):
    """Raised when the jars are not available. The text gives the reason, in one line if possible."""


def cache_folder() -> Path:
    """Returns the folder that keeps downloads between runs."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "kafka-group-sidecar")


def kafka_jars(version: str) -> Path:
    """Returns the folder with all jars of a Kafka version. Downloads them if they are not in the cache.

    Several processes may do this at once. Each downloads into its own folder, and the first one to rename its folder
    wins.

    Raises:
        JarsUnavailable: ``mvn`` is missing, Maven failed, or the jars are of another version.
    """
    if version not in ARTIFACTS:
        raise JarsUnavailable(f"Kafka {version} is not one of {', '.join(ARTIFACTS)}")
    target = cache_folder() / "kafka" / version
    if target.is_dir():
        _verify(target, version)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{version}-") as scratch:
        jars = Path(scratch) / "jars"
        _fetch(f"Kafka {version}", ARTIFACTS[version], Path(scratch), jars)
        _verify(jars, version)
        try:
            jars.rename(target)
        except OSError:
            _verify(target, version)  # Another process finished first.
    return target


def connector_jars() -> list[Path]:
    """Returns the jars that Spark needs to read Kafka. Downloads them if they are not in the cache.

    Raises:
        JarsUnavailable: ``mvn`` is missing, or Maven failed.
    """
    return _alone(f"Spark's Kafka connector {_SPARK}", CONNECTOR, cache_folder() / "spark" / _SPARK)


def tool_jars(version: str) -> list[Path]:
    """Returns the jars that the tools of a Kafka version need besides its own. Downloads them if necessary.

    Raises:
        JarsUnavailable: ``mvn`` is missing, or Maven failed.
    """
    coordinates = TOOLS.get(version, ())
    return (
        _alone(f"The tools of Kafka {version}", coordinates, cache_folder() / "tools" / version) if coordinates else []
    )


def other_jars(what: str, coordinates: tuple[str, ...], target: Path) -> Path:
    """Returns the folder with other jars and their dependencies. Downloads them if they are not in the cache.

    Raises:
        JarsUnavailable: ``mvn`` is missing, or Maven failed.
    """
    _fetch_once(what, coordinates, target)
    return target


def strimzi_jars() -> Path:
    """Returns the folder with the jars that make Strimzi's CRDs. See `other_jars`."""
    return other_jars(f"Strimzi {_STRIMZI}", STRIMZI, cache_folder() / "strimzi" / f"strimzi-{_STRIMZI}")


def _alone(what: str, coordinates: tuple[str, ...], target: Path) -> list[Path]:
    """Returns jars without their dependencies."""
    _fetch_once(what, coordinates, target, alone=True)
    return sorted(target.glob("*.jar"))


def _fetch_once(what: str, coordinates: tuple[str, ...], target: Path, *, alone: bool = False) -> None:
    """Downloads jars into a folder, unless the folder exists."""
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        jars = Path(scratch) / "jars"
        _fetch(what, coordinates, Path(scratch), jars, alone=alone)
        try:
            jars.rename(target)
        except OSError:
            assert target.is_dir()  # Another process finished first.


def _verify(jars: Path, version: str) -> None:
    """Raises JarsUnavailable unless the kafka-clients jar in the folder contains this version."""
    clients = jars / f"kafka-clients-{version}.jar"
    try:
        with zipfile.ZipFile(clients) as jar:
            properties = jar.read("kafka/kafka-version.properties").decode()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise JarsUnavailable(f"{clients} is not whole ({error}); remove {jars} and try again") from error
    if f"version={version}" not in properties.split():
        raise JarsUnavailable(f"{clients} is another version than its name says; remove {jars} and try again")


def _fetch(what: str, coordinates: tuple[str, ...], scratch: Path, jars: Path, *, alone: bool = False) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailable(f"{what} comes through Maven, and there is no mvn here: install Maven 3")
    pom = scratch / "pom.xml"
    pom.write_text(_pom(coordinates, alone=alone))
    command = [maven, "--batch-mode", "--file", str(pom), _PLUGIN]
    command += [f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
    _say(f"{what}: fetching its jars through Maven")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            errors = [line for line in _watched(process, what) if "[ERROR]" in line]
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        reason = errors[0].strip() if errors else f"mvn ended with status {process.returncode}"
        raise JarsUnavailable(f"{what} could not be fetched: {reason}")


def _watched(process: "subprocess.Popen[str]", what: str) -> Iterator[str]:
    """Yields Maven's lines, and prints a progress line every few seconds."""
    assert process.stdout is not None
    fetched, said = 0, time.monotonic()
    for line in process.stdout:
        yield line
        fetched += "Downloaded from" in line
        now = time.monotonic()
        if now - said > _PROGRESS_SECONDS:
            said = now
            _say(f"{what}: {fetched} files fetched")


def _pom(coordinates: tuple[str, ...], *, alone: bool) -> str:
    """Returns a Maven project that depends on these coordinates. `alone` excludes their own dependencies."""
    dependencies = ""
    nothing_else = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    for group, artifact, version in (map(escape, coordinate.split(":")) for coordinate in coordinates):
        dependencies += (
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version>{nothing_else if alone else ''}</dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>jars</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(versions: list[str]) -> int:
    """Downloads the jars of each named version. Returns 1, with a line about the reason, if one is not available."""
    if not versions:
        _say(f"name one or more versions: {', '.join(ARTIFACTS)}")
        return 2
    try:
        for version in versions:
            kafka_jars(version)
            tool_jars(version)
    except JarsUnavailable as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
