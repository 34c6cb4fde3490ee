"""Prepares and checks a release: the version in pyproject.toml, the sections of CHANGELOG.md, and the tag.

pyproject.toml has the version of the project. The tag, the label of the Dockerfile and the manifests must have the same
version. docs/releasing.md describes the steps.

    release.py cut VERSION        begins a release: sets the version and dates the section "Unreleased"
    release.py check TAG          fails, with the reasons, if the checkout is not ready to be published as this tag
    release.py sdist FOLDER       builds the source distribution twice, and fails if the two differ
    release.py notes VERSION      prints the section of the changelog
    release.py open VERSION       begins the work on the next version, as VERSION.dev0
"""

import datetime
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PLACEHOLDER = ".invalid"
"""The top-level domain of the addresses in pyproject.toml before the project has a public repository."""
UNRELEASED = "Unreleased"
VERSION = re.compile(r"(?P<base>\d+\.\d+\.\d+)(?:\.dev0)?")
VERSION_LINE = re.compile(r'^version = "(?P<version>[^"]+)"$', re.MULTILINE)
LABEL = re.compile(r'(?<=org\.opencontainers\.image\.version=")(?P<version>[^"]+)(?=")')
MANIFESTS = {
    "deploy/helm/kafka-group-sidecar/Chart.yaml": re.compile(r"(?<=^version: |Version: )\S+", re.MULTILINE),
    "deploy/helm/example-brokers/Chart.yaml": re.compile(r"(?<=version: )\S+"),
    "deploy/kubernetes/components/sidecar/container.yaml": re.compile(r"(?<=image: kafka-group-sidecar:)\S+"),
    "deploy/kubernetes/strimzi/gateway.yaml": re.compile(r"(?<=image: kafka-group-sidecar:)\S+"),
}
"""The places in manifests that have the version of the last release. Helm accepts no development versions."""
SECTION = re.compile(r"^## (?P<title>.+?)\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^- ", re.MULTILINE)
USES = re.compile(r"^\s*(?:- )?uses:\s*(?P<action>\S+)(?P<comment>.*)$", re.MULTILINE)
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
COMMENT = re.compile(r"\s+# v\d+(?:\.\d+)*")


_BUILD = "import sys; from setuptools.build_meta import build_sdist; print(build_sdist(sys.argv[1]))"
"""A program that calls the build hook of PEP 517. The packages of requirements/build.txt must be installed."""


class NotReady(Exception):
    """The release cannot continue. The text gives the reasons, one per line."""


def current_version(pyproject: str) -> str:
    """Returns the version in the text of pyproject.toml."""
    version: str = tomllib.loads(pyproject)["project"]["version"]
    return version


def number(version: str) -> tuple[int, ...]:
    """Returns the numbers of a version. Raises NotReady unless the version has three, with or without `.dev0`."""
    found = VERSION.fullmatch(version)
    if found is None:
        raise NotReady(f"{version} is not a version such as 1.2.3")
    return tuple(int(part) for part in found["base"].split("."))


def sections(changelog: str) -> dict[str, str]:
    """Returns the text of each section of the changelog by version. A section's date is left out of its title."""
    return {found["title"].partition(" - ")[0]: found["text"].strip() for found in SECTION.finditer(changelog)}


def cut(version: str, pyproject: str, changelog: str, today: datetime.date) -> tuple[str, str]:
    """Returns the texts of pyproject.toml and CHANGELOG.md for the release of a version.

    Raises:
        NotReady: the version is older than the current one or was released before, or there is nothing to release.
    """
    known = sections(changelog)
    if number(version) < number(current_version(pyproject)):
        raise NotReady(f"{version} is older than {current_version(pyproject)}, the version in pyproject.toml")
    if version in known:
        raise NotReady(f"CHANGELOG.md has a section {version} already")
    if not ENTRY.search(known.get(UNRELEASED, "")):
        raise NotReady(f'the section "{UNRELEASED}" of CHANGELOG.md has no entries')
    dated = f"## {UNRELEASED}\n\n## {version} - {today.isoformat()}\n"
    return set_version(pyproject, version), changelog.replace(f"## {UNRELEASED}\n", dated, 1)


def open_next(version: str, pyproject: str) -> str:
    """Returns pyproject.toml for the work on the next version. Raises NotReady if the version is not a newer one."""
    if number(version) <= number(current_version(pyproject)):
        raise NotReady(f"{version} is not newer than {current_version(pyproject)}, the version in pyproject.toml")
    return set_version(pyproject, f"{version}.dev0")


def set_version(pyproject: str, version: str) -> str:
    """Returns the text of pyproject.toml with another version."""
    return VERSION_LINE.sub(f'version = "{version}"', pyproject, count=1)


def set_label(dockerfile: str, version: str) -> str:
    """Returns the text of the Dockerfile with another version in its label."""
    return LABEL.sub(version, dockerfile)


def set_manifest(file: str, text: str, version: str) -> str:
    """Returns the text of a file of `MANIFESTS` with another version."""
    return MANIFESTS[file].sub(version, text)


def outdated(version: str, manifests: dict[str, str]) -> list[str]:
    """Returns a reason for each manifest whose version is not `version`. `manifests`: the texts by file."""
    return [
        f"{file} has another version than {version}"
        for file, text in manifests.items()
        if {*MANIFESTS[file].findall(text)} != {version}
    ]


def problems(tag: str, pyproject: str, changelog: str, dockerfile: str, workflows: dict[str, str]) -> list[str]:
    """Returns the reasons why a checkout cannot be published as a tag.

    Args:
        tag: the tag, `v` and the version.
        pyproject: the text of pyproject.toml.
        changelog: the text of CHANGELOG.md.
        dockerfile: the text of the Dockerfile.
        workflows: the texts of the workflows by name.
    """
    project: dict[str, Any] = tomllib.loads(pyproject)["project"]
    version, known = project["version"], sections(changelog)
    found = [f"the address {name} in pyproject.toml is a placeholder" for name in placeholders(project["urls"])]
    if tag != f"v{version}":
        found.append(f"the tag {tag} is not v{version}, the version in pyproject.toml")
    if {*LABEL.findall(dockerfile)} != {version}:
        found.append(f"the label of the Dockerfile is not {version}")
    if ".dev" in version:
        found.append(f"{version} is not a version to publish: run `scripts/release.py cut VERSION` first")
    if not ENTRY.search(known.get(version, "")):
        found.append(f"CHANGELOG.md has no section {version} with entries")
    if ENTRY.search(known.get(UNRELEASED, "")):
        found.append(f'the section "{UNRELEASED}" of CHANGELOG.md has entries that the release contains')
    return found + [f"{name}: {action}" for name, text in workflows.items() for action in unpinned(text)]


def placeholders(urls: dict[str, str]) -> list[str]:
    """Returns the names of addresses that nobody has set yet."""
    return [name for name, url in urls.items() if url.split("/")[2].endswith(PLACEHOLDER)]


def unpinned(workflow: str) -> list[str]:
    """Returns the actions of a workflow that are not pinned by a commit with its version in a comment."""
    return [
        found["action"]
        for found in USES.finditer(workflow)
        if not found["action"].startswith("./")
        and not (PINNED.fullmatch(found["action"]) and COMMENT.fullmatch(found["comment"]))
    ]


def check(tag: str) -> None:
    """Raises NotReady with all reasons why the checkout cannot be published as the tag."""
    workflows = {each.name: each.read_text("utf-8") for each in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
    pyproject = read("pyproject.toml")
    found = problems(tag, pyproject, read("CHANGELOG.md"), read("Dockerfile"), workflows)
    found += outdated(current_version(pyproject), {file: read(file) for file in MANIFESTS})
    if found:
        raise NotReady("\n".join(found))


def build_sdist(folder: Path) -> Path:
    """Builds the source distribution twice, with two different umasks, and returns the file.

    Raises:
        NotReady: the build failed, or the two files differ.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        files = [_built(Path(scratch, str(mask)), mask) for mask in (0o022, 0o077)]
        if files[0].read_bytes() != files[1].read_bytes():
            raise NotReady("two builds of the source distribution differ")
        return Path(shutil.copy(files[0], folder))


def _built(folder: Path, mask: int) -> Path:
    folder.mkdir()
    command = [sys.executable, "-c", _BUILD, str(folder)]
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, umask=mask, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotReady(f"{done.stdout}{done.stderr}")
    return folder / done.stdout.splitlines()[-1]


def read(name: str) -> str:
    """Returns the text of a file of the checkout."""
    return (ROOT / name).read_text("utf-8")


def write(name: str, text: str) -> None:
    """Writes a file of the checkout."""
    (ROOT / name).write_text(text, "utf-8")


def notes(version: str) -> str:
    """Returns the changelog's section of a version. Raises NotReady if there is none."""
    try:
        return sections(read("CHANGELOG.md"))[version]
    except KeyError:
        raise NotReady(f"CHANGELOG.md has no section {version}") from None


def main(arguments: list[str]) -> int:
    """Runs one of the five commands, and prints the reasons of a failure to standard error. Returns the status."""
    try:
        match arguments:
            case ["cut", version]:
                today = datetime.datetime.now(datetime.UTC).date()
                pyproject, changelog = cut(version, read("pyproject.toml"), read("CHANGELOG.md"), today)
                write("pyproject.toml", pyproject)
                write("CHANGELOG.md", changelog)
                write("Dockerfile", set_label(read("Dockerfile"), version))
                for file in MANIFESTS:
                    write(file, set_manifest(file, read(file), version))
            case ["check", tag]:
                check(tag)
            case ["sdist", folder]:
                print(build_sdist(Path(folder)))
            case ["notes", version]:
                print(notes(version))
            case ["open", version]:
                write("pyproject.toml", open_next(version, read("pyproject.toml")))
                write("Dockerfile", set_label(read("Dockerfile"), f"{version}.dev0"))
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except NotReady as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
