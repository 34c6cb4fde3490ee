"""Sets up what `make` needs on a fresh machine: the virtual environment and Debian packages.

Runs under any Python 3.11 or later, without other packages. Every slow step shows its progress. The output of a step is
kept in build/bootstrap/, and the end of this output is shown after a failure.

    bootstrap.py venv NAME        .venv with the packages of requirements/NAME.txt
    bootstrap.py project          compiles the project, and installs it into .venv
    bootstrap.py system           Java, Maven, Prometheus, Chromium and systemd's tools, where they are missing and may
                                  be installed; for root also buildah, crun, debootstrap and systemd-nspawn, which test
                                  the image and the Debian package
    bootstrap.py proxies          Java, Maven and HAProxy; the benchmarks can do without HAProxy
    bootstrap.py java             Java alone; does not fail without it
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOGS = ROOT / "build" / "bootstrap"

JAVA_AT_LEAST = 17
PROGRESS_SECONDS = 4.0
LOG_TAIL_LINES = 25


class SetupFailed(Exception):
    """The set-up cannot continue. The text is for the user of make."""


def run(what: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Runs a command with its output in a log, and prints a progress line every few seconds.

    Raises:
        SetupFailed: the command failed. The text contains the end of the command's output.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{what.split()[0]}.log"
    started = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **(environment or {})}, stdout=output, stderr=subprocess.STDOUT
        )
        while True:
            try:
                status = process.wait(PROGRESS_SECONDS)
                break
            except subprocess.TimeoutExpired:
                say(f"{what}: {time.monotonic() - started:.0f} s, {last_line(log)}")
    if status:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
        raise SetupFailed(f"{tail}\n{what} failed: {' '.join(command)}")


def last_line(log: Path) -> str:
    """Returns the last line of the output, short enough for a progress line."""
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip()[:80] for line in reversed(lines) if line.strip()), "no word yet")


def say(line: str) -> None:
    """Prints a line without buffering."""
    print(line, flush=True)


def make_venv(name: str) -> None:
    """Creates .venv if it does not exist, and installs the packages of requirements/NAME.txt into it.

    The packages for building come first. A package without a wheel, such as pyspark, needs them too.
    """
    if not PYTHON.exists():
        say(f"venv: creating .venv with Python {sys.version.split()[0]}")
        require_ensurepip()
        try:
            run("venv", [sys.executable, "-m", "venv", str(VENV)])
        except SetupFailed:
            shutil.rmtree(VENV, ignore_errors=True)  # The next run would treat a partial .venv as complete.
            raise
    say(f"packages: installing the packages of requirements/{name}.txt")
    run("tools for building", install_locked(PYTHON, "build"))
    run("packages", install_locked(PYTHON, name))


def install_project() -> None:
    """Compiles the project, and installs it into .venv so that edits of its Python sources take effect."""
    say("project: compiling and installing the project")
    run("project", [*pip_install(PYTHON), "--no-deps", "--editable", "."])


def install_locked(python: Path, name: str) -> list[str]:
    """Returns the command that installs the packages of requirements/NAME.txt. pip refuses a file without its hash."""
    return [*pip_install(python), "--require-hashes", "--requirement", f"requirements/{name}.txt"]


def pip_install(python: Path) -> list[str]:
    """Returns the command that installs packages.

    Build isolation is off, because pip would download packages for building without a check of their hashes.
    """
    options = ("--disable-pip-version-check", "--progress-bar", "off", "--no-build-isolation")
    return [str(python), "-m", "pip", "install", *options]


def require_ensurepip() -> None:
    """Makes sure that venv can install pip. Debian has ensurepip in a package of its own."""
    if importable("ensurepip") and importable("venv"):
        return
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    apt_install([package], f"this Python has no ensurepip, so it cannot make .venv: install the package {package}")


def importable(module: str) -> bool:
    """Whether a fresh interpreter finds a module."""
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def java_version() -> int:
    """Returns the feature version of the `java` on the path, or 0 if there is none."""
    if shutil.which("java") is None:
        return 0
    output = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(found[1]) if found else 0


def haproxy() -> str | None:
    """Returns the path of HAProxy, or None if it is not installed."""
    return in_sbin("haproxy")


def in_sbin(command: str) -> str | None:
    """Returns the path of a command that Debian installs to /usr/sbin, or None. That folder may not be on the path."""
    return shutil.which(command) or shutil.which(command, path="/usr/sbin")


@dataclass(frozen=True)
class Need:
    """A command that the project runs, and the Debian package that contains it."""

    name: str
    package: str
    present: Callable[[], bool]


JAVA = Need(f"Java {JAVA_AT_LEAST}", "openjdk-17-jre-headless", lambda: java_version() >= JAVA_AT_LEAST)
MAVEN = Need("Maven (mvn)", "maven", lambda: shutil.which("mvn") is not None)
HAPROXY = Need("HAProxy", "haproxy", lambda: haproxy() is not None)
PROMETHEUS = Need("Prometheus", "prometheus", lambda: all(map(shutil.which, ("prometheus", "promtool"))))
CHROMIUM = Need("Chromium", "chromium", lambda: shutil.which("chromium") is not None)
BUILDAH = Need("buildah", "buildah", lambda: shutil.which("buildah") is not None)
CRUN = Need("crun", "crun", lambda: shutil.which("crun") is not None)
SYSTEMD = Need("systemd-analyze", "systemd", lambda: shutil.which("systemd-analyze") is not None)
NSPAWN = Need("systemd-nspawn", "systemd-container", lambda: shutil.which("systemd-nspawn") is not None)
DEBOOTSTRAP = Need("debootstrap", "debootstrap", lambda: in_sbin("debootstrap") is not None)
CHROMEDRIVER = Need("chromedriver", "chromium-driver", lambda: shutil.which("chromedriver") is not None)


def install_system(needs: Sequence[Need]) -> None:
    """Installs the packages of missing commands.

    Raises SetupFailed with the names of the missing commands if an installation is not allowed or fails.
    """
    missing = [need for need in needs if not need.present()]
    if not missing:
        return
    packages = [need.package for need in missing]
    names = ", ".join(need.name for need in missing)
    apt_install(packages, f"missing: {names}; on Debian: apt-get install {' '.join(packages)}")
    left = ", ".join(need.name for need in missing if not need.present())
    if left:
        raise SetupFailed(f"still missing after installation: {left}")


def apt_install(packages: list[str], otherwise: str) -> None:
    """Installs Debian packages. Raises SetupFailed with the text `otherwise` if that is not allowed or fails."""
    prefix = apt_prefix()
    if prefix is None:
        raise SetupFailed(otherwise)
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    say(f"apt: installing {' '.join(packages)}")
    try:
        run("apt update", [*prefix, "update"], quiet)
        chosen = [available(package) for package in packages]
        run("apt install", [*prefix, "install", "-y", "--no-install-recommends", *chosen], quiet)
    except SetupFailed as error:
        raise SetupFailed(f"{error}\n{otherwise}") from None


def apt_prefix() -> list[str] | None:
    """Returns the apt-get command with the rights that it needs, or None if apt-get or these rights are missing."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return ["apt-get"]
    if shutil.which("sudo") is None:
        return None
    allowed = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0
    return ["sudo", "-n", "DEBIAN_FRONTEND=noninteractive", "apt-get"] if allowed else None


def available(package: str) -> str:
    """Returns the package, or the default Java if this release of Debian does not have the package."""
    if not package.startswith("openjdk-"):
        return package
    known = subprocess.run(["apt-cache", "show", package], capture_output=True, check=False).returncode == 0
    return package if known else "default-jre-headless"


def main(arguments: list[str]) -> int:
    """Runs one of the five commands, and prints a failure to standard error. Returns the exit status."""
    try:
        match arguments:
            case ["venv", name]:
                make_venv(name)
            case ["project"]:
                install_project()
            case ["system"]:
                install_system((JAVA, MAVEN, PROMETHEUS, CHROMIUM, CHROMEDRIVER, SYSTEMD))
                if os.geteuid() == 0:  # Only root can enter a Debian base system, so nobody else can test the image.
                    install_system((BUILDAH, CRUN, DEBOOTSTRAP, NSPAWN))
            case ["proxies"]:
                install_system((JAVA, MAVEN))
                with contextlib.suppress(SetupFailed):  # The benchmarks report missing proxies.
                    install_system((HAPROXY,))
            case ["java"]:
                with contextlib.suppress(SetupFailed):  # The demo reports what it lacks without Java.
                    install_system((JAVA,))
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except SetupFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
