"""Writes the package's control files: name, version, what it depends on, checksums and maintainer scripts."""

import hashlib
import re
import shutil
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from deploy.debian.shared_libraries import glibc_version, packages
from deploy.debian.wheels import ROOT

NAME = "kafka-group-sidecar"
FILES = Path(__file__).parent / "files"
SCRIPTS = ("postinst", "prerm", "postrm")
CONFIGURATION = "etc/group-sidecar"
"""The folder whose files dpkg treats as configuration: an upgrade keeps the administrator's changes."""
_PRE_RELEASE = re.compile(r"\.?(a|b|rc|dev)(?=\d)")


def upstream_version() -> str:
    """Returns the version in pyproject.toml."""
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return version


def debian_version(version: str) -> str:
    """Returns a Python version as Debian writes it: 1.0rc1 becomes 1.0~rc1. `~` sorts before the end of a version."""
    return _PRE_RELEASE.sub(r"~\1", version)


def dependencies(libraries: Sequence[Path]) -> list[str]:
    """Returns the packages that these compiled modules and this Python's minor version need.

    Compiled modules work with one minor version of Python only.
    """
    major, minor = sys.version_info[:2]
    glibc = ".".join(map(str, glibc_version(libraries)))
    python = [f"python3 (>= {major}.{minor}~)", f"python3 (<< {major}.{minor + 1})"]
    return [*python, f"libc6 (>= {glibc})", *packages(libraries), "adduser"]


def write_control(tree: Path, architecture: str, maintainer: str) -> None:
    """Writes the folder DEBIAN of a tree that is otherwise complete."""
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    kibibytes = sum(-(-path.stat().st_size // 1024) for path in files) + sum(1 for _ in tree.rglob("*/"))
    libraries = [path for path in files if ".so" in path.suffixes]
    fields = {
        "@VERSION@": debian_version(upstream_version()),
        "@ARCHITECTURE@": architecture,
        "@MAINTAINER@": maintainer,
        "@SIZE@": str(kibibytes),
        "@DEPENDS@": ", ".join(dependencies(libraries)),
    }
    text = (FILES / "control").read_text()
    for name, value in fields.items():
        text = text.replace(name, value)
    folder = tree / "DEBIAN"
    folder.mkdir()
    (folder / "control").write_text(text)
    named = {str(path.relative_to(tree)): path for path in files}
    (folder / "conffiles").write_text("".join(f"/{name}\n" for name in named if name.startswith("etc/")))
    sums = {name: hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() for name, path in named.items()}
    listed = [f"{checksum}  {name}\n" for name, checksum in sums.items() if not name.startswith("etc/")]
    (folder / "md5sums").write_text("".join(listed))
    for script in SCRIPTS:
        shutil.copyfile(FILES / script, folder / script)
        (folder / script).chmod(0o755)
