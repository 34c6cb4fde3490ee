"""`make sbom` lists the packages of each image in CycloneDX's format."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.scripts.documents import ROOT
from tests.scripts.locks import PROJECT, locked

IMAGES = ("sidecar", "spark")


@pytest.fixture(scope="module")
def written() -> Path:
    """The folder that `make sbom` writes. The virtual environment is left as it is."""
    subprocess.run(["make", "-o", ".venv/.dev", "sbom"], cwd=ROOT, check=True, capture_output=True)
    return ROOT / "build" / "sbom"


def read(file: Path) -> dict[str, Any]:
    """The content of a list."""
    content: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return content


def faults(content: dict[str, Any]) -> object:
    """What CycloneDX's own schema finds wrong, or None."""
    version = SchemaVersion.from_version(content["specVersion"])
    return JsonStrictValidator(version).validate_str(json.dumps(content))


@pytest.mark.parametrize("image", IMAGES)
def test_list_follows_schema(written: Path, image: str) -> None:
    """Each list follows the schema of CycloneDX, and a list without a name of a package does not."""
    content = read(written / f"{image}.json")
    assert faults(content) is None
    del content["components"][0]["name"]
    assert faults(content) is not None


@pytest.mark.parametrize("image", IMAGES)
def test_list_has_all_packages(written: Path, image: str) -> None:
    """Each list describes this project, and has the locked packages with their versions, addresses and hashes."""
    content = read(written / f"{image}.json")
    described = content["metadata"]["component"]
    assert (described["name"], described["version"]) == (PROJECT["project"]["name"], PROJECT["project"]["version"])
    listed = {
        each["purl"]: sum(len(reference["hashes"]) for reference in each["externalReferences"])
        for each in content["components"]
    }
    assert listed == {f"pkg:pypi/{name}@{each.version}": each.hashes for name, each in locked(image).items()}
