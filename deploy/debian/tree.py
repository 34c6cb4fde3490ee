"""Lays out the files of the package."""

import gzip
import os
import shutil
import sys
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

from deploy.debian.control import CONFIGURATION, FILES, NAME, debian_version, upstream_version
from deploy.debian.wheels import PIP, ROOT, run

HOME = f"usr/lib/{NAME}"
"""The virtual environment, relative to the root of the file system."""
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
SITE_PACKAGES = f"{HOME}/lib/{PYTHON}/site-packages"
DOCUMENTATION = f"usr/share/doc/{NAME}"
_COMMAND = f"""#!/{HOME}/bin/python
import sys

from group_sidecar.proxy.cli import main

sys.exit(main())
"""
_PYVENV = f"""home = /usr/bin
include-system-site-packages = false
version = {sys.version_info.major}.{sys.version_info.minor}
"""


def lay_out(tree: Path, wheels: Path, epoch: int, maintainer: str) -> None:
    """Puts all files of the package, except its control files, under a folder.

    Args:
        tree: the folder that stands for the root of the file system.
        wheels: the folder with the wheels of the project and its requirements.
        epoch: the time of all files, in seconds.
        maintainer: name and address, for the changelog.

    Raises:
        BuildFailed: the wheels cannot be installed.
    """
    _virtual_environment(tree, wheels)
    _copy(ROOT / "deploy/systemd/group-sidecar.service", tree / "usr/lib/systemd/system")
    _copy(ROOT / "deploy/examples/beside-a-broker.yaml", tree / CONFIGURATION, "sidecar.example.yaml")
    for example in (*(ROOT / "deploy/examples").glob("*.yaml"), ROOT / "deploy/systemd/group-sidecar.socket"):
        _copy(example, tree / DOCUMENTATION / "examples")
    _copy(FILES / "copyright", tree / DOCUMENTATION)
    _compress((FILES / "group-sidecar.1").read_text(), tree / "usr/share/man/man1/group-sidecar.1.gz")
    _compress(_changelog(epoch, maintainer), tree / DOCUMENTATION / "changelog.gz")
    _compress((ROOT / "CHANGELOG.md").read_text(), tree / DOCUMENTATION / "CHANGELOG.md.gz")
    _copy(FILES / "lintian-overrides", tree / "usr/share/lintian/overrides", NAME)
    _set_times_and_modes(tree, epoch)


def _virtual_environment(tree: Path, wheels: Path) -> None:
    """Makes a virtual environment without pip, for the system's Python.

    pip installs the wheels by name, because it would record the path of a wheel that is installed by path. The virtual
    environment contains no bytecode, because the package compiles the modules when it is installed, as Debian's own
    packages do.
    """
    site, programs = tree / SITE_PACKAGES, tree / HOME / "bin"
    named = sorted("==".join(wheel.name.split("-")[:2]) for wheel in wheels.glob("*.whl"))
    install = (*PIP, "install", "--no-index", "--no-deps", "--no-compile", "--find-links", str(wheels))
    run(*install, "--target", str(site), *named)
    shutil.rmtree(site / "bin", ignore_errors=True)
    programs.mkdir(parents=True)
    (tree / HOME / "pyvenv.cfg").write_text(_PYVENV)
    for name, target in (("python", f"/usr/bin/{PYTHON}"), ("python3", "python"), (PYTHON, "python")):
        (programs / name).symlink_to(target)
    (programs / "group-sidecar").write_text(_COMMAND)
    (tree / "usr/bin").mkdir()
    (tree / "usr/bin/group-sidecar").symlink_to(f"../lib/{NAME}/bin/group-sidecar")


def _copy(file: Path, folder: Path, name: str | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, folder / (name or file.name))


def _compress(text: str, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _changelog(epoch: int, maintainer: str) -> str:
    version = upstream_version()
    heading = f"{NAME} ({debian_version(version)}) unstable; urgency=medium"
    change = f"  * Release {version}. CHANGELOG.md.gz lists its changes."
    return f"{heading}\n\n{change}\n\n -- {maintainer}  {formatdate(epoch)}\n"


def _set_times_and_modes(tree: Path, epoch: int) -> None:
    """Gives all files the same time, and modes that do not depend on the umask."""
    programs = tree / HOME / "bin"
    for path in (tree, *_paths(tree)):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent == programs else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def _paths(tree: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(tree):
        yield from (Path(folder, name) for name in (*folders, *files))
