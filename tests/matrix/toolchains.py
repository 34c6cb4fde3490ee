"""Downloads and builds the client programs, in the cache folder that also keeps Kafka's jars.

Each build has a folder whose name contains a hash of the build's inputs. A marker file shows that a build is complete.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.kafka.maven import JarsUnavailable, cache_folder, kafka_jars, other_jars

SOURCES = Path(__file__).parent / "clients"
CONFLUENT = "@confluentinc/kafka-javascript"
STREAMS_VERSION = "4.4.0"
CONNECT_VERSION = "4.3.1"
"""The newest version whose connectors for files are available from Maven."""
_COMPILER = "jdk.compiler/com.sun.tools.javac.Main"
"""The compiler's main class. Debian's package of the Java runtime contains it, but not the command javac."""
_MARK = ".complete"
_NODE_HEADERS = Path("/usr/include/node/node.h")
"""A header of Debian's package for Node.js. Without the package, node-gyp downloads the headers."""


class Missing(Exception):
    """Raised when a client cannot run on this machine. The text gives the reason in one line."""


def java_classes(version: str) -> str:
    """Returns the class path of the Java programs with a version of the Java client. Compiles them if necessary.

    Raises:
        Missing: Java or the jars are missing.
    """
    return _java(("Steps.java", "Client.java"), f"java-{version}", _jars(lambda: kafka_jars(version)))


def streams_classes() -> str:
    """Returns the class path of the program for Kafka Streams. Raises Missing as `java_classes` does."""
    coordinates = (f"org.apache.kafka:kafka-streams:{STREAMS_VERSION}", "org.slf4j:slf4j-nop:1.7.36")
    target = cache_folder() / "matrix" / f"streams-{STREAMS_VERSION}"
    jars = _jars(lambda: other_jars("Kafka Streams", coordinates, target))
    return _java(("Steps.java", "Streams.java"), f"streams-classes-{STREAMS_VERSION}", jars)


def connect_jars() -> str:
    """Returns the class path of Kafka Connect with the connectors for files. Raises Missing as `java_classes` does."""
    coordinates = tuple(f"org.apache.kafka:connect-{part}:{CONNECT_VERSION}" for part in ("runtime", "file", "json"))
    target = cache_folder() / "matrix" / f"connect-{CONNECT_VERSION}"
    return f"{_jars(lambda: other_jars('Kafka Connect', (*coordinates, 'org.slf4j:slf4j-nop:1.7.36'), target))}/*"


def go_program(name: str) -> str:
    """Returns the path of one of the Go programs. Raises Missing if Go is missing or a build fails."""
    go, sources = _tool("go"), SOURCES / "go"

    def build(target: Path) -> None:
        _run([go, "build", "-mod=readonly", "-trimpath", "-o", f"{target}/", "./..."], sources)

    return str(built("go", [*sources.rglob("*.go"), sources / "go.mod", sources / "go.sum"], build) / name)


def node_modules() -> Path:
    """Returns the folder `node_modules` of the JavaScript programs. Raises Missing if Node.js or npm is missing."""
    npm, sources = _tool("npm"), SOURCES / "node"
    _tool("node")
    files = [sources / "package.json", sources / "package-lock.json"]

    def build(target: Path) -> None:
        for file in files:
            shutil.copy(file, target)
        _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], target)

    return built("node", files, build) / "node_modules"


def confluent_modules() -> Path:
    """Returns `node_modules` with the native part of Confluent's client, which is compiled from its own sources.

    Raises:
        Missing: Node.js, npm or a C++ compiler is missing, or the compilation fails.
    """
    modules = node_modules()
    _tool("g++")
    mark = modules.parent / ".native"
    if not mark.exists():
        environment = {"CKJS_LINKING": "dynamic"}  # A static build downloads further libraries.
        if _NODE_HEADERS.exists():
            environment["npm_config_nodedir"] = "/usr"
        build = [_tool("npm"), "exec", "--", "node-pre-gyp", "install", "--build-from-source"]
        _run(build, modules / CONFLUENT, environment)
        mark.touch()
    return modules


def python_program() -> str:
    """Returns the interpreter of the virtual environment with the Python clients. Raises Missing if pip fails."""
    file = SOURCES / "python" / "requirements.txt"

    def build(target: Path) -> None:
        venv.create(target / "venv", with_pip=True)
        pip = [str(target / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--require-hashes", "--requirement", str(file)], target)

    return str(built("python", [file], build, sys.version) / "venv/bin/python")


def built(name: str, files: Sequence[Path], build: Callable[[Path], None], more: str = "") -> Path:
    """Returns the folder of a build. Builds if the folder is not complete. Other runs wait for the build.

    Args:
        name: the name of the build. The folder's name begins with it.
        files: the files that the build depends on.
        build: fills the folder. It raises Missing if it fails.
        more: another text that the build depends on.
    """
    digest = hashlib.sha256(more.encode())
    for file in sorted(files):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    root = cache_folder() / "matrix"
    root.mkdir(parents=True, exist_ok=True)
    target = root / f"{name}-{digest.hexdigest()[:12]}"
    with (root / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / _MARK).exists():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            build(target)
            (target / _MARK).touch()
    return target


def _java(sources: Sequence[str], name: str, jars: Path) -> str:
    files, java = [SOURCES / "java" / each for each in sources], _tool("java")

    def build(target: Path) -> None:
        path = ":".join(map(str, sorted(jars.glob("*.jar"))))  # Only the command javac knows wildcards.
        _run([java, "-m", _COMPILER, "-nowarn", "-d", str(target), "-cp", path, *map(str, files)], target)

    return f"{built(name, files, build)}:{jars}/*"


def _jars(fetch: Callable[[], Path]) -> Path:
    _tool("java")
    try:
        return fetch()
    except JarsUnavailable as error:
        raise Missing(str(error)) from error


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is missing")
    return found


def _run(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise Missing(f"{Path(command[0]).name} failed: {lines[-1] if lines else done.returncode}")
