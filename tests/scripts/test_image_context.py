""".dockerignore leaves out nothing that the Dockerfile copies."""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.as_python import ROOMS, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COPY = re.compile(r"^COPY (?!--from)(?P<sources>.+) \S+$", re.MULTILINE)
COPIED = [source for found in COPY.finditer((ROOT / "Dockerfile").read_text()) for source in found["sources"].split()]


def left_out(path: str) -> bool:
    """Whether .dockerignore leaves a path out: the last pattern that matches it, or a folder of it, decides."""
    out = False
    parts = Path(path).parts
    names = ["/".join(parts[: length + 1]) for length in range(len(parts))]
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        anywhere = line.startswith(("**/", "!**/"))
        if any(fnmatch(Path(name).name if anywhere else name, pattern) for name in names):
            out = not line.startswith("!")
    return out


@pytest.mark.parametrize("source", COPIED)
def test_copied_source_is_not_ignored(source: str) -> None:
    """Each path that the Dockerfile copies exists and is not in .dockerignore."""
    assert (ROOT / source).exists()
    assert not left_out(source)


def test_dockerfile_copies_build_inputs() -> None:
    """The Dockerfile copies everything that the build reads."""
    project = PROJECT["project"]
    read = {"pyproject.toml", "setup.py", project["readme"], *project["license-files"]}
    rooms = {room.name for room in ROOMS}
    assert read | rooms | {"group_sidecar"} <= set(COPIED)


def test_needed_package_files_are_not_ignored() -> None:
    """Sources and static files that the product needs are not in .dockerignore."""
    needed = [*PROJECT["tool"]["group-sidecar"]["compiled"]]
    needed += [str(each.relative_to(ROOT)) for kind in ("*.pyx", "*.h") for each in ROOT.glob(f"proxy/**/{kind}")]
    needed += ["proxy/admin/templates/layout.html", "proxy/admin/static/page.css"]
    assert [path for path in needed if left_out(path)] == []


def test_other_files_stay_out_of_image() -> None:
    """Tests, Git data and Python caches are in .dockerignore."""
    assert left_out("tests/conftest.py")
    assert left_out(".git/config")
    assert left_out("proxy/__pycache__/cli.cpython-311.pyc")
