"""The docstring of each package is a map: it names every module and every sub-package."""

import ast
import re
from pathlib import Path

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from tests.as_python import ROOMS, ROOT

MESSAGES = ROOT / "codecs" / "messages"
"""A folder with one module per API. The names of the modules are the map."""
PACKAGES = sorted({found.parent for room in ROOMS for found in room.rglob("__init__.py")} - {MESSAGES})
SOURCES = (".py", ".pyx")


def entries(package: Path) -> set[str]:
    """The names that a map of this package has to contain; sub-packages end in a slash."""
    modules = {each.stem for each in package.iterdir() if each.suffix in SOURCES and not each.stem.startswith("__")}
    folders = {f"{each.name}/" for each in package.iterdir() if (each / "__init__.py").exists()}
    return modules | folders


@pytest.mark.parametrize("package", PACKAGES, ids=lambda each: str(each.relative_to(ROOT)))
def test_map_names_every_module(package: Path) -> None:
    """The docstring of each package names all its modules and sub-packages."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    named = {name for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", docstring) for name in re.split(r"[,\s]+", span)}
    assert entries(package) - named == set()


def test_messages_are_named_like_their_apis() -> None:
    """Each module of messages is named like an API of Kafka, except the KIP-40 draft."""
    draft = "group_metadata"  # KIP-40, which no Kafka release has: no key in the table of APIs
    names = {draft} | {key.name.lower() for key in ApiKey}
    assert entries(MESSAGES) - names == set()
