"""The source distribution is complete and reproducible, and its metadata suits a package index."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from scripts import check_wheel
from scripts.check_wheel import compiled_modules
from scripts.release import build_sdist
from tests.scripts.documents import ROOT, text_of

PROJECT = tomllib.loads(text_of("pyproject.toml"))
SOURCE_DATE = 1_700_000_000
ABSOLUTE = re.compile(r"\]\((?P<target>[^)\s]+)\)")
FOREIGN = re.compile(r"__pycache__|\.pyc$|\.so$|\.c$|\.venv|/tests/|/build/|\.hypothesis|\.git|/docs/")
"""Files of a checkout that belong in no distribution."""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of one source date, which was built twice and is the same both times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", str(SOURCE_DATE))
        return build_sdist(tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def unpacked(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the source distribution unpacks to."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    [found] = folder.iterdir()
    return found


@pytest.fixture(scope="module")
def metadata(unpacked: Path) -> Message:
    """The metadata of the source distribution."""
    return Parser().parsestr((unpacked / "PKG-INFO").read_text("utf-8"))


def python_files(folder: Path, target: Path) -> dict[str, bytes]:
    """The files that setuptools would put into a wheel built in a folder, without compiled modules."""
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(target)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {str(each.relative_to(target)): each.read_bytes() for each in target.rglob("*") if each.is_file()}


def test_archive_has_no_traces_of_machine(packed: Path) -> None:
    """All entries are files of the source date with one mode and no owner, in order, and none is a cache or a test."""
    with tarfile.open(packed) as archive:
        entries = archive.getmembers()
    owners = {(each.uid, each.gid, each.uname, each.gname) for each in entries}
    assert owners == {(0, 0, "", "")}
    assert {(each.isfile(), each.mode, each.mtime) for each in entries} == {(True, 0o644, SOURCE_DATE)}
    names = [each.name for each in entries]
    assert names == sorted(names)
    assert [name for name in names if FOREIGN.search(name)] == []


def test_wheel_from_sdist_has_same_files(unpacked: Path, tmp_path: Path) -> None:
    """The source distribution builds a wheel with the same files as the checkout, though it has no symbolic links."""
    assert [each for each in unpacked.rglob("*") if each.is_symlink()] == []
    expected = python_files(ROOT, tmp_path / "checkout")
    assert python_files(unpacked, tmp_path / "sdist") == expected
    assert "group_sidecar/proxy/admin/templates/layout.html" in expected


def test_sources_of_compiled_modules_are_in_sdist(unpacked: Path) -> None:
    """The source distribution has the sources of all compiled modules, and what the build and its test read."""
    headers = [str(each.relative_to(ROOT)) for each in (ROOT / "proxy").rglob("*.h")]
    needed = [f"group_sidecar/{each}" for each in (*PROJECT["tool"]["group-sidecar"]["compiled"], *headers)]
    needed += ["requirements/build.txt", "requirements/sidecar.txt", "scripts/check_wheel.py", "CHANGELOG.md"]
    assert headers
    assert [each for each in needed if not (unpacked / each).is_file()] == []
    commands = PROJECT["tool"]["cibuildwheel"]
    named = re.findall(r"\{project\}/(\S+)", " ".join(str(each) for each in commands.values()))
    assert named
    assert [each for each in named if not (unpacked / each).is_file()] == []


def test_check_of_wheels_knows_all_compiled_modules() -> None:
    """The check of wheels expects each listed module and each Cython module."""
    cython = list(ROOT.glob("proxy/**/*.pyx"))
    assert cython
    assert len(compiled_modules()) == len(PROJECT["tool"]["group-sidecar"]["compiled"]) + len(cython)
    assert "group_sidecar.proxy.dataplane.session" in compiled_modules()


def test_check_of_wheels_sends_request_through_sidecar(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check passes for the installed sidecar, and fails for a broker that replies with an error."""
    check_wheel.check_forwarding()
    monkeypatch.setattr(check_wheel, "SUPPORTED_ERROR", 42)
    with pytest.raises(check_wheel.CheckFailed):
        check_wheel.check_forwarding()


def test_check_of_wheels_refuses_module_that_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that was loaded from its Python source fails the check, and the check names it."""
    monkeypatch.setattr(check_wheel, "compiled_modules", lambda: ["json"])
    with pytest.raises(check_wheel.CheckFailed, match="json is "):
        check_wheel.check_compiled()


def test_metadata_passes_strict_check(packed: Path) -> None:
    """twine accepts the metadata and renders the description as a package index does."""
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", str(packed)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_description_has_no_relative_link(metadata: Message) -> None:
    """Each link of README.md leads to a file of the release in the description, and each picture to its bytes."""
    repository = PROJECT["project"]["urls"]["Repository"]
    relative = [each for each in ABSOLUTE.findall(text_of("README.md")) if "://" not in each]
    shown = [each for each in ABSOLUTE.findall(str(metadata.get_payload())) if each.startswith(repository)]
    place = f"v{PROJECT['project']['version']}" if ".dev" not in PROJECT["project"]["version"] else "main"
    kinds = ["raw" if each.endswith((".png", ".svg")) else "blob" for each in relative]
    assert shown == [f"{repository}/{kind}/{place}/{each}" for kind, each in zip(kinds, relative, strict=True)]
    assert {"raw", "blob"} == {*kinds}


def test_metadata_describes_project(metadata: Message) -> None:
    """The metadata has the version, the license, the addresses, and the classifiers of the supported Python."""
    project = PROJECT["project"]
    assert (metadata["Name"], metadata["Version"]) == (project["name"], project["version"])
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    addresses = dict(each.split(", ") for each in metadata.get_all("Project-URL", []))
    assert addresses == project["urls"]
    assert {"Repository", "Documentation", "Changelog", "Issues"} == {*addresses}
    assert "Programming Language :: Python :: 3.11" in metadata.get_all("Classifier", [])


@pytest.mark.long
def test_wheel_from_sdist_is_compiled(unpacked: Path, tmp_path: Path) -> None:
    """The source distribution builds a complete compiled wheel. It takes three minutes of a core."""
    code = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=unpacked, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        compiled = {name.partition(".")[0].replace("/", ".") for name in archive.namelist() if name.endswith(".so")}
    assert {*compiled_modules()} <= compiled
