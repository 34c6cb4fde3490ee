"""Builds the Debian package of the sidecar for this machine's architecture and this Python's minor version.

    python -m deploy.debian [--output FOLDER] [--wheel FILE]

The build needs dpkg-deb, the packages of requirements/build.txt, and a package index or pip's cache. Without `--wheel`
it makes the project's wheel and reuses compiled modules of the checkout. The same sources, SOURCE_DATE_EPOCH and tools
give the same package. Prints the path of the package.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.debian.control import NAME, debian_version, upstream_version, write_control
from deploy.debian.tree import lay_out
from deploy.debian.wheels import ROOT, BuildFailed, make_project, make_requirements, run

MAINTAINER = "kafka-group-sidecar maintainers <kafka-group-sidecar@packages.invalid>"


def build(output: Path, wheel: Path | None = None) -> Path:
    """Builds the package and returns its path.

    Args:
        output: the folder for the package. It is created.
        wheel: a wheel of the project. Without it, the project is built from the checkout.

    Raises:
        BuildFailed: a step failed.
    """
    epoch, architecture = _epoch(), _output_of("dpkg", "--print-architecture")
    maintainer = _maintainer()
    package = output.resolve() / f"{NAME}_{debian_version(upstream_version())}_{architecture}.deb"
    package.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{NAME}-") as scratch:
        source, wheels, tree = (Path(scratch, name) for name in ("source", "wheels", "tree"))
        for folder in (source, wheels, tree):
            folder.mkdir()
        if wheel:
            shutil.copy2(wheel, wheels)
        else:
            make_project(source, wheels, epoch)
        make_requirements(wheels)
        lay_out(tree, wheels, epoch, maintainer)
        write_control(tree, architecture, maintainer)
        command = ("dpkg-deb", "--root-owner-group", "-Zxz", "-z2", "--build", str(tree), str(package))
        run(*command, SOURCE_DATE_EPOCH=str(epoch))
    return package


def _epoch() -> int:
    """Returns SOURCE_DATE_EPOCH, or else the time of the last commit, or else of the changelog, in seconds."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    try:
        return int(_output_of("git", "-C", str(ROOT), "log", "-1", "--format=%ct"))
    except (BuildFailed, ValueError):
        return int((ROOT / "CHANGELOG.md").stat().st_mtime)


def _maintainer() -> str:
    """Returns the maintainer that Debian's variables DEBFULLNAME and DEBEMAIL name, or a placeholder."""
    name, address = os.environ.get("DEBFULLNAME"), os.environ.get("DEBEMAIL")
    return f"{name} <{address}>" if name and address else MAINTAINER


def _output_of(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildFailed(f"{' '.join(command)}: {error}") from None


def main() -> int:
    """Parses the arguments, builds the package, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m deploy.debian", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "debian", help="default: build/debian")
    parser.add_argument("--wheel", type=Path, help="a wheel of the project, instead of building one")
    given = parser.parse_args()
    try:
        print(build(given.output, given.wheel))
    except BuildFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
