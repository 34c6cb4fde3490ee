"""What the image is built from: nothing that the Dockerfile copies is left out by .dockerignore."""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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
def test_copied_source_is_not_left_out(source: str) -> None:
    assert (ROOT / source).exists()
    assert not left_out(source)


def test_everything_that_the_build_reads_is_copied() -> None:
    project = PROJECT["project"]
    read = {"pyproject.toml", "setup.py", project["readme"], *project["license-files"]}
    packages = {place for name, place in PROJECT["tool"]["setuptools"]["package-dir"].items() if "." not in place}
    assert read | packages <= set(COPIED)


def test_what_lies_in_the_rooms_is_not_left_out() -> None:
    needed = [*PROJECT["tool"]["group-sidecar"]["compiled"]]
    needed += [str(each.relative_to(ROOT)) for kind in ("*.pyx", "*.h") for each in ROOT.glob(f"*/{kind}")]
    needed += ["proxy/admin/templates/layout.html", "proxy/admin/static/page.css"]
    assert [path for path in needed if left_out(path)] == []


def test_nothing_else_gets_into_the_image() -> None:
    assert left_out("tests/conftest.py")
    assert left_out(".git/config")
    assert left_out("proxy/__pycache__/cli.cpython-311.pyc")
