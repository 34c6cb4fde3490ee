"""What `make` and the Dockerfiles install is locked: one version of each package, and the hashes of all its files."""

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.bootstrap import install_locked
from tests.scripts.documents import ROOT
from tests.scripts.locks import LISTS, PROJECT, locked

EXTRAS = {
    "sidecar": [],
    "spark": ["spark"],
    "demo": ["demo", "spark"],
    "dev": [*PROJECT["project"]["optional-dependencies"]],
}
"""The extras of the project whose packages each list contains."""
TOOLS = {"uv": "uv", "wheels": "cibuildwheel", "fuzz": "atheris"}
"""Lists with one tool and its packages, which are not part of the project's environment."""
WHEEL = "example-1.0-py3-none-any.whl"
DOCKERFILES = ("Dockerfile", "deploy/spark/kubernetes.Dockerfile")


def declared(name: str) -> list[Requirement]:
    """The requirements of pyproject.toml that requirements/NAME.txt has to satisfy."""
    if name in TOOLS:
        return [Requirement(TOOLS[name])]
    if name == "build":
        lines = PROJECT["build-system"]["requires"]
    else:
        extras = PROJECT["project"]["optional-dependencies"]
        lines = [*PROJECT["project"]["dependencies"], *(line for extra in EXTRAS[name] for line in extras[extra])]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("name", LISTS)
def test_every_package_has_version_and_hashes(name: str) -> None:
    """Each package of a list has one version and at least one hash."""
    packages = locked(name)
    assert packages
    assert [each for each in packages.values() if not (each.version and each.hashes)] == []


@pytest.mark.parametrize("name", LISTS)
def test_list_satisfies_project(name: str) -> None:
    """Each list has a version that fits for every package that pyproject.toml requires. Otherwise run `make lock`."""
    packages = locked(name)
    for each in declared(name):
        version = packages[canonicalize_name(each.name)].version
        assert version in each.specifier, f"{each} is locked as {version}"


@pytest.mark.parametrize("name", [name for name in LISTS if name not in {"dev", *TOOLS}])
def test_lists_agree(name: str) -> None:
    """requirements/dev.txt contains the packages of the other lists, with the same hashes."""
    assert locked(name).items() <= locked("dev").items()


def example_wheel(folder: Path) -> str:
    """Writes a wheel without code, and returns its hash."""
    files = {
        "METADATA": "Metadata-Version: 2.1\nName: example\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(f"example-1.0.dist-info/{name}", text)
    return hashlib.sha256((folder / WHEEL).read_bytes()).hexdigest()


def install(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Installs a list of one line from a folder, with the command of the bootstrap."""
    (folder / "requirements").mkdir()
    (folder / "requirements" / "example.txt").write_text(line)
    command = [
        *install_locked(Path(sys.executable), "example"),
        "--no-index",
        "--find-links",
        ".",
        "--target",
        "installed",
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_right_hash_is_installed(tmp_path: Path) -> None:
    """A package whose file has the hash of the list is installed."""
    done = install(tmp_path, f"example==1.0 --hash=sha256:{example_wheel(tmp_path)}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "installed" / "example-1.0.dist-info").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"example==1.0 --hash=sha256:{'0' * 64}", "DO NOT MATCH THE HASHES"),
        ("example==1.0", "Hashes are required"),
    ],
)
def test_wrong_or_missing_hash_is_refused(tmp_path: Path, line: str, message: str) -> None:
    """A package with another hash, or a list without hashes, installs nothing."""
    example_wheel(tmp_path)
    done = install(tmp_path, line)
    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / "installed").exists()


@pytest.mark.parametrize("file", DOCKERFILES)
def test_images_install_locked_packages(file: str) -> None:
    """Each pip command of an image checks hashes, or downloads nothing. None downloads packages for building."""
    text = (ROOT / file).read_text("utf-8").replace("\\\n", " ")
    parts = [part.strip() for line in text.splitlines() if not line.startswith("#") for part in line.split("&&")]
    commands = [part for part in parts if re.search(r"\bpip (--python \S+ )?(install|wheel) ", part)]
    assert commands
    for command in commands:
        words = command.split()
        assert "--no-build-isolation" in words or "--no-index" in words, command
        if "--require-hashes" in words:
            assert (ROOT / words[-1]).exists(), command
        else:
            assert "--no-deps" in words, command
