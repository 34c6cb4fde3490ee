"""scripts/release.py: the version, the tag and the changelog agree before anything is published."""

import datetime
import tomllib

import pytest
import yaml

from scripts.release import (
    ENTRY,
    LABEL,
    MANIFESTS,
    UNRELEASED,
    NotReady,
    current_version,
    cut,
    notes,
    open_next,
    outdated,
    problems,
    sections,
    set_label,
    set_manifest,
    unpinned,
)
from tests.scripts.documents import text_of

TODAY = datetime.date(2026, 1, 31)
PYPROJECT = '[project]\nname = "example"\nversion = "0.2.0.dev0"\nurls = {Repository = "https://example.org/x"}\n'
CHANGELOG = "# Changelog\n\nText.\n\n## Unreleased\n\n### Part\n\n- New.\n\n## 0.1.0 - 2025-12-01\n\n- Old.\n"
DOCKERFILE = 'LABEL org.opencontainers.image.title="example" \\\n      org.opencontainers.image.version="0.1.0"\n'
COMMIT = "3d3c42e5aac5ba805825da76410c181273ba90b1"
PINNED = f"    - uses: actions/checkout@{COMMIT} # v7.0.1\n"


def test_cut_dates_section_and_sets_version() -> None:
    """A release gets the entries of the section "Unreleased", with its date, and leaves an empty one."""
    pyproject, changelog = cut("0.2.0", PYPROJECT, CHANGELOG, TODAY)
    assert current_version(pyproject) == "0.2.0"
    assert "## Unreleased\n\n## 0.2.0 - 2026-01-31\n\n### Part\n\n- New.\n" in changelog
    assert sections(changelog) == {UNRELEASED: "", "0.2.0": "### Part\n\n- New.", "0.1.0": "- Old."}
    dockerfile = set_label(DOCKERFILE, "0.2.0")
    assert problems("v0.2.0", pyproject, changelog, dockerfile, {"release.yml": PINNED}) == []


@pytest.mark.parametrize(
    ("version", "changelog"),
    [
        ("0.1.9", CHANGELOG),
        ("0.2", CHANGELOG),
        ("0.3.0", CHANGELOG.replace("- New.", "")),
        ("0.3.0", CHANGELOG.replace("0.1.0", "0.3.0")),
    ],
    ids=["older", "not a version", "no entries", "released"],
)
def test_cut_refuses(version: str, changelog: str) -> None:
    """An older version, text that is no version, a release without entries and a second release are refused."""
    with pytest.raises(NotReady):
        cut(version, PYPROJECT, changelog, TODAY)


def test_next_version_is_opened() -> None:
    """The work on the next version begins as a development version, and never goes back."""
    assert current_version(open_next("0.3.0", PYPROJECT)) == "0.3.0.dev0"
    with pytest.raises(NotReady):
        open_next("0.2.0", PYPROJECT)


@pytest.mark.parametrize(
    ("tag", "old", "new", "reason"),
    [
        ("v0.2.1", "", "", "is not v0.2.0"),
        ("v0.2.0", "example.org", "example.invalid", "placeholder"),
        ("v0.2.0", "## 0.2.0", "## 0.2.9", "no section 0.2.0"),
        ("v0.2.0", "## Unreleased\n", "## Unreleased\n\n- Forgotten.\n", "has entries"),
        ("v0.2.0.dev0", '"0.2.0"', '"0.2.0.dev0"', "not a version to publish"),
        ("v0.2.0", 'version="0.2.0"', 'version="0.1.0"', "the label"),
        ("v0.2.0", f"{COMMIT} # v7.0.1", "v7", "actions/checkout@v7"),
    ],
)
def test_checkout_is_not_ready(tag: str, old: str, new: str, reason: str) -> None:
    """Each thing that does not fit the tag is a reason against the release."""
    texts = (*cut("0.2.0", PYPROJECT, CHANGELOG, TODAY), set_label(DOCKERFILE, "0.2.0"), PINNED)
    pyproject, changelog, dockerfile, workflow = (text.replace(old, new) for text in texts)
    found = problems(tag, pyproject, changelog, dockerfile, {"release.yml": workflow})
    assert any(reason in line for line in found), found


@pytest.mark.parametrize(
    "line",
    [
        "- uses: actions/checkout@v7",
        f"- uses: actions/checkout@{COMMIT[:12]} # v7.0.1",
        f"- uses: actions/checkout@{COMMIT}",
        "  uses: docker://alpine:3",
        f'- uses: "actions/checkout@{COMMIT}" # v7',
    ],
)
def test_unpinned_action_is_found(line: str) -> None:
    """An action without a whole commit and a comment with its version is not pinned."""
    assert unpinned(PINNED + line) != []


def test_changelog_follows_version() -> None:
    """Each section of the changelog is a version with a date, and the version of pyproject.toml fits the newest one."""
    titles = [line.removeprefix("## ") for line in text_of("CHANGELOG.md").splitlines() if line.startswith("## ")]
    assert titles[0] == UNRELEASED
    for title in titles[1:]:
        version, _, date = title.partition(" - ")
        assert datetime.date.fromisoformat(date) <= datetime.datetime.now(datetime.UTC).date()
        assert notes(version)
    known = sections(text_of("CHANGELOG.md"))
    version = current_version(text_of("pyproject.toml"))
    if version in known:  # Released: the next change has to open the next version first.
        assert not ENTRY.search(known[UNRELEASED])


def test_manifests_get_the_version() -> None:
    """A release sets the version in each manifest, and a manifest with another version is a reason against it."""
    texts = {file: text_of(file) for file in MANIFESTS}
    released = {file: set_manifest(file, text, "7.8.9") for file, text in texts.items()}
    assert outdated("7.8.9", released) == []
    assert len(outdated("7.8.9", texts)) == len(MANIFESTS)
    charts = [yaml.safe_load(text) for file, text in released.items() if file.endswith("Chart.yaml")]
    assert [chart["version"] for chart in charts] == ["7.8.9", "7.8.9"]
    assert charts[0]["appVersion"] == charts[1]["dependencies"][0]["version"] == "7.8.9"


def test_dockerfile_has_the_version() -> None:
    """The label of the image has the version of pyproject.toml, which is static."""
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    assert "version" not in project["dynamic"]
    assert LABEL.findall(text_of("Dockerfile")) == [project["version"]]
