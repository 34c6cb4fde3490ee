"""Reads the lists of locked packages in requirements/."""

import re
import tomllib
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.scripts.documents import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LISTS = sorted(file.stem for file in (ROOT / "requirements").glob("*.txt"))
_HASH = re.compile(r" --hash=sha256:[0-9a-f]{64}\b")


class Locked(NamedTuple):
    """One package of a list."""

    requirement: Requirement
    hashes: int

    @property
    def version(self) -> str:
        """The only version that the requirement allows."""
        [part] = self.requirement.specifier
        assert part.operator == "=="
        assert "*" not in part.version
        return part.version


def locked(name: str) -> dict[str, Locked]:
    """The packages of requirements/NAME.txt by name."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found = [Locked(Requirement(line.partition(" --hash=")[0]), len(_HASH.findall(line))) for line in lines]
    return {canonicalize_name(each.requirement.name): each for each in found}
