"""Every product module has a test module: the mirrored one, or those that tests/module_map.toml names."""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.as_python import ROOMS, ROOT

TESTS = ROOT / "tests"
PRODUCT = [*ROOMS, ROOT / "benchmarks"]
SOURCES = (".py", ".pyx")
IMPORTED, THROUGH, STARTED, UNTESTED = "imported", "through", "started", "untested"


class Line(NamedTuple):
    """One line of the map. `heading` is the module that is imported instead, or a reason."""

    section: str
    heading: str
    module: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return self.module


def modules() -> list[str]:
    """The paths of all product modules, relative to the root of the checkout."""
    found = (each for room in PRODUCT for each in room.rglob("*") if each.suffix in SOURCES)
    return sorted(str(each.relative_to(ROOT)) for each in found if each.name != "__init__.py")


def mirrored(module: str) -> Path:
    """The file that holds the module's tests, if the module has a test module of its own."""
    path = Path(module)
    return TESTS / path.parent / f"test_{path.stem}.py"


def lines() -> Iterator[Line]:
    """The lines of the map."""
    table = tomllib.loads((TESTS / "module_map.toml").read_text("utf-8"))
    assert {*table} <= {IMPORTED, THROUGH, STARTED, UNTESTED}
    for module, tests in table.pop(IMPORTED).items():
        yield Line(IMPORTED, "", module, tuple(tests))
    for section, headings in table.items():
        for heading, listed in headings.items():
            for module, tests in listed.items():
                yield Line(section, heading, module, tuple(tests))


MODULES = modules()
LINES = [*lines()]
COVERED = [line for line in LINES if line.section != UNTESTED]


def import_name(module: str) -> str:
    """The dotted name by which a product module is imported."""
    name = module.rpartition(".")[0].removesuffix("/__init__").replace("/", ".")
    return name if name.startswith("benchmarks") else f"group_sidecar.{name}"


@cache
def imports(file: Path) -> frozenset[str]:
    """The dotted names that a Python file imports. A name out of a module counts as the module and as the name."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{each.name}" for each in node.names}
    return frozenset(names)


def imported_by(start: Path, files: dict[str, Path]) -> set[str]:
    """The dotted names that a file imports, itself and through those of `files`, which are given by dotted name."""
    found: set[str] = set()
    waiting, seen = [start], {start}
    while waiting:
        names = imports(waiting.pop())
        found |= names
        new = {files[name] for name in names & files.keys()} - seen
        seen |= new
        waiting += new
    return found


HELPERS = {
    ".".join(each.relative_to(ROOT).with_suffix("").parts): each
    for each in TESTS.rglob("*.py")
    if not each.name.startswith("test_")
}
PYTHON_FILES = {
    import_name(str(each.relative_to(ROOT))): each for room in PRODUCT for each in room.rglob("*.py") if each.is_file()
}


def test_every_module_has_a_test() -> None:
    """Each product module has its mirrored test module, or a line in the map."""
    named = {line.module for line in LINES}
    assert [module for module in MODULES if module not in named and not mirrored(module).exists()] == []


def test_no_line_is_superfluous() -> None:
    """Each line of the map names another existing module, and that module has no mirrored test module."""
    named = [line.module for line in LINES]
    assert sorted(named) == sorted({*named} & {*MODULES})
    assert [module for module in named if mirrored(module).exists()] == []


@pytest.mark.parametrize("line", COVERED, ids=str)
def test_named_tests_import_the_module(line: Line) -> None:
    """Each named test file exists. It imports the module or the module of the heading, itself or through helpers.

    A module under `started` runs in a process that the test starts.
    """
    assert line.tests
    assert [test for test in line.tests if not (TESTS / test).is_file()] == []
    if line.section == STARTED:
        return
    wanted = import_name(line.heading or line.module)
    assert [test for test in line.tests if wanted not in imported_by(TESTS / test, HELPERS)] == []


@pytest.mark.parametrize("line", [line for line in LINES if line.section == THROUGH], ids=str)
def test_heading_leads_to_the_module(line: Line) -> None:
    """The module of a `through` heading imports the module of each line, itself or through other product modules."""
    assert import_name(line.module) in imported_by(ROOT / line.heading, PYTHON_FILES)


@pytest.mark.parametrize("line", [line for line in LINES if line.section == UNTESTED], ids=str)
def test_untested_module_has_no_test(line: Line) -> None:
    """No test file imports a module that the map lists as untested."""
    assert line.tests == ()
    wanted = import_name(line.module)
    assert [str(each) for each in TESTS.rglob("test_*.py") if wanted in imported_by(each, HELPERS)] == []
