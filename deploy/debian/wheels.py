"""Makes wheels of the project and of its locked requirements."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "group_sidecar"
REQUIREMENTS = ROOT / "requirements" / "sidecar.txt"
BUILD_FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
_WHEEL = (*PIP, "wheel", "--no-build-isolation", "--progress-bar", "off")


class BuildFailed(Exception):
    """A step failed. The text contains the command and the end of its output."""


def run(*command: str, cwd: Path = ROOT, **environment: str) -> None:
    """Runs a command with further variables in its environment.

    Raises:
        BuildFailed: the command failed.
    """
    given = {**os.environ, **environment}
    done = subprocess.run(command, cwd=cwd, env=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildFailed(f"{' '.join(command)}\n{(done.stdout + done.stderr)[-4000:]}")


def make_requirements(folder: Path) -> None:
    """Makes the wheels of all packages in requirements/sidecar.txt. pip refuses a file without its hash.

    Raises:
        BuildFailed: a package could not be downloaded, or has another hash.
    """
    run(*_WHEEL, "--require-hashes", "--wheel-dir", str(folder), "--requirement", str(REQUIREMENTS))


def make_project(scratch: Path, folder: Path, epoch: int) -> Path:
    """Makes the project's wheel in a copy of the checkout, and returns its path.

    A build in the checkout itself would delete the compiled modules that other programs use meanwhile. The build
    compiles only what has changed since the checkout was compiled, or everything if the checkout was never compiled.

    Args:
        scratch: an empty folder for the copy.
        folder: the folder for the wheel.
        epoch: SOURCE_DATE_EPOCH, the time of the files in the wheel, in seconds.

    Raises:
        BuildFailed: the project does not compile.
    """
    for name in BUILD_FILES:
        shutil.copy2(ROOT / name, scratch / name)
    packages = [link for link in (ROOT / PACKAGE).iterdir() if link.is_symlink()]
    left_out = shutil.ignore_patterns("__pycache__", "*.so")
    for each in (ROOT / PACKAGE, *(link.resolve() for link in packages)):
        shutil.copytree(each, scratch / each.name, symlinks=True, ignore=left_out)
    _reuse_compiled(scratch)
    environment = {"SOURCE_DATE_EPOCH": str(epoch), "GROUP_SIDECAR_REQUIRE_COMPILED": "1"}
    run(*_WHEEL, "--no-deps", "--wheel-dir", str(folder), str(scratch), cwd=scratch, **environment)
    [wheel] = folder.glob("kafka_group_sidecar-*.whl")
    return wheel


def _reuse_compiled(scratch: Path) -> None:
    """Copies the output of an earlier build of the checkout into the folders in which setuptools looks for it.

    setuptools skips an extension whose library is newer than its sources. mypyc does not write a generated source again
    if the source is unchanged.
    """
    for name in ("compiled", "mypy-compiling"):
        if (ROOT / "build" / name).is_dir():
            shutil.copytree(ROOT / "build" / name, scratch / "build" / name)
    built = scratch / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for library in _compiled_modules():
        target = built / library
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / library, target)


def _compiled_modules() -> list[Path]:
    """Returns the libraries of compiled modules in the checkout, relative to its root.

    Leaves out libraries of modules that are not compiled any more.
    """
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["group-sidecar"]["compiled"]
    package = ROOT / PACKAGE
    found = [each for folder in package.iterdir() if folder.is_dir() for each in folder.rglob("*.so")]
    current = [*package.glob("*.so")]
    for library in found:
        source = library.with_name(library.name.partition(".")[0])
        if source.with_suffix(".pyx").exists() or str(source.relative_to(package).with_suffix(".py")) in listed:
            current.append(library)
    return [each.relative_to(ROOT) for each in current]
