"""All modules that have to be compiled are compiled from the current sources. `make plain` removes them on purpose."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from tests.as_python import ROOT, run_as_python

NAMED: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["group-sidecar"]["compiled"]
ALL = [*NAMED, *(str(each.relative_to(ROOT)) for each in sorted(ROOT.glob("proxy/**/*.pyx")))]
CAN = shutil.which("cc") is not None and Path(sysconfig.get_path("include"), "Python.h").exists()
AS_PYTHON = "import pytest; sys.exit(pytest.main(sys.argv[2:]))"


def module(file: str) -> str:
    return f"group_sidecar.{file.rpartition('.')[0].replace('/', '.')}"


@pytest.mark.skipif(not CAN, reason="there is no C compiler, or Python without its headers")
@pytest.mark.skipif(
    not (ROOT / ".venv" / ".dev").exists(), reason="`make plain` took it away, or `make` did not install"
)
@pytest.mark.parametrize("file", ALL)
def test_listed_modules_are_compiled(file: str) -> None:
    """Each module to be compiled is imported from a compiled extension."""
    found = importlib.import_module(module(file)).__file__
    assert found is not None
    assert found.endswith(tuple(EXTENSION_SUFFIXES))


def test_makefile_lists_compiled_modules() -> None:
    """The Makefile lists the compiled modules, so that make rebuilds them after an edit."""
    said = subprocess.run(["make", "-pn", "plain"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    [line] = [line for line in said.splitlines() if line.startswith("COMPILED :=")]
    assert line.split()[2:] == NAMED


def test_uncompiled_modules_pass_tests() -> None:
    """The core tests pass with the modules as plain Python."""
    tests = [
        "dataplane/test_session.py",
        "handlers/test_dispatcher.py",
        "dataplane/test_poller.py",
        "listeners/test_server.py",
        "dataplane/test_connections.py",
    ]
    files = [str(ROOT / "tests" / "proxy" / name) for name in tests]
    ran = run_as_python(AS_PYTHON, "-q", "-o", "cache_dir=build/pytest-python", *files)
    assert ran.returncode == 0, ran.stdout


CAPTURE = """
import json, runpy, sys
import mypyc.build, setuptools
def mypycify(files, *, opt_level, **options):
    return [setuptools.Extension("by_mypyc", [], extra_compile_args=[opt_level])]
def setup(*, ext_modules, **_):
    print(json.dumps([[each.optional, each.extra_compile_args] for each in ext_modules]))
mypyc.build.mypycify, setuptools.setup = mypycify, setup
sys.argv = ["setup.py", "bdist_wheel"]
runpy.run_path("setup.py")
"""
"""Prints the extensions that setup.py would build, without generating or compiling anything."""


@pytest.mark.parametrize(
    ("environment", "optional", "level"),
    [
        ({}, True, "2"),
        ({"GROUP_SIDECAR_REQUIRE_COMPILED": "1"}, False, "2"),
        ({"GROUP_SIDECAR_REQUIRE_COMPILED": "0", "GROUP_SIDECAR_OPTIMIZE": "1"}, True, "1"),
    ],
)
def test_compiling_may_be_required(environment: dict[str, str], optional: bool, level: str, tmp_path: Path) -> None:
    """An installation continues without an extension that does not compile, unless the environment requires all."""
    for file in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, tmp_path)
    pyx = tmp_path / "group_sidecar" / "proxy" / "any.pyx"
    pyx.parent.mkdir(parents=True)
    pyx.touch()
    command = [sys.executable, "-c", CAPTURE]
    given = {**os.environ, **environment}
    ran = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [[optional, [f"-O{level}", "-g0"]], [optional, [level]]]
