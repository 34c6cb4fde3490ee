"""Every file, link, module and setting that a page names exists, and the lines of hand-written pages are wrapped."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.scripts.documents import ROOT, anchors, handwritten, pages, prose_of, spans, text_of

LONGEST_LINE = 120
LONGEST_README = 150
FILE = re.compile(
    r"(?<![\w/.<>*-])((?:[\w.-]+/)+[\w.-]+\.(?:py|pyx|h|md|html|css|js|yml|svg|png)|[\w-]+\.(?:pyx?|md))(?![\w/*])"
)
ROOMS = "codecs|coordinator|policies|metrics|proxy|spark|demo|tests|benchmarks|deploy|scripts|docs"
PATH = re.compile(rf"(?:{ROOMS})/[\w./-]*")
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
NUMBER = re.compile(r"\[0*(?P<number>\d+)\]\((?:decisions/)?(?P<target>0\d+)-[\w-]+\.md\)")
CODE_NAME = re.compile(r"[A-Z]\w+\.(?!md$)[a-z_]\w+|[a-z_]\w*\(\)|_?[a-z0-9]+(?:_[a-z0-9]+)+|[A-Z]+(?:_[A-Z]+)+")
MODULE = re.compile(r"\bpython -m ([\w.]+)")
SECTIONS = "admin_access|gateway|own_connection|policies|answers|offsets_log|limits|journal|metrics|log"
SETTING = re.compile(rf"(?:{SECTIONS})(?:\.[a-z_]+)+")
RETIRED_WORDS = re.compile(
    r"(?i)\b(?:desks?|glances?|errands?|ghosts?|haunted|seats?|blamed?|pasts|whence|whoever|whom)\b"
)
EXAMPLES = frozenset(
    {
        "codecs/messages/NAME.py",
        "policies/group_max_session_timeout_ms.py",
        "tests/policies/test_group_max_session_timeout_ms.py",
        "NNNN-title.md",
    }
)
"""Files that a reader has to create."""
EXAMPLE_SETTINGS = frozenset({"policies.group_max_session_timeout_ms"})
METRIC_PREFIX = re.compile(r"^(?:group_sidecar_)?(?:fleet_)?")
FOREIGN_NAMES = frozenset(
    {
        "SCM_RIGHTS",
        "SO_REUSEPORT",
        "client_connections_total",
        "cpu_shares",
        "io_uring_enter",
        "sched_setattr",
        "source_fish",
        "source_zsh",
    }
)
"""Names of the operating system, of Docker and of shells, and names that a decision rejected."""


def settings() -> set[str]:
    """The names of all settings, sections and their parts included."""
    rows = re.findall(r"^\| `([\w.]+)[^`]*` \|", text_of("docs/configuration.md"), re.MULTILINE)
    return {".".join(name.split(".")[:length]) for name in rows for length in range(1, name.count(".") + 2)}


def sources() -> str:
    """The text of all sources of the product and its tests, and of the Prometheus rules."""
    files = [
        each
        for room in ROOMS.split("|")
        for kind in ("*.py", "*.pyx", "*.h", "*.yml")
        for each in (ROOT / room).rglob(kind)
    ]
    return "\n".join(each.read_text("utf-8") for each in files if each.parent != Path(__file__).parent)


SETTINGS = settings()


@pytest.mark.parametrize("page", pages())
def test_named_files_exist(page: str) -> None:
    """Each named file exists, by its path from the root, relative to the page, or as a unique file name."""
    named = set(FILE.findall(re.sub(r"https?://\S+", "", text_of(page)))) - EXAMPLES
    beside = ("", "docs", "docs/decisions", "deploy/prometheus", "deploy/grafana")
    missing = {
        name
        for name in named
        if not any((ROOT / folder / name).resolve().is_file() for folder in (*beside, str((ROOT / page).parent)))
        and not ("/" not in name and [*ROOT.glob(f"[a-z]*/**/{name}")])
    }
    assert missing == set()


@pytest.mark.parametrize("page", pages())
def test_named_folders_exist(page: str) -> None:
    """Each folder that a page names exists."""
    named = {span for span in spans(page) if PATH.fullmatch(span)}
    assert {path for path in named - EXAMPLES if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("page", pages())
def test_links_have_targets(page: str) -> None:
    """Each relative link leads to an existing file and, if given, an existing heading."""
    broken = []
    for target in LINK.findall(text_of(page)):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        found = ((ROOT / page).parent / file).resolve() if file else ROOT / page
        if not found.exists() or (anchor and anchor not in anchors(str(found.relative_to(ROOT)))):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", pages())
def test_decision_links_have_own_number(page: str) -> None:
    """The number in each link to a decision equals the number of the linked file."""
    assert [found[0] for found in NUMBER.finditer(text_of(page)) if int(found["number"]) != int(found["target"])] == []


@pytest.mark.parametrize("page", pages())
def test_named_modules_exist(page: str) -> None:
    """Each module that a page runs with python -m exists."""
    named = set(MODULE.findall(text_of(page)))
    assert {name for name in named if importlib.util.find_spec(name) is None} == set()


@pytest.mark.parametrize("page", handwritten())
def test_named_settings_exist(page: str) -> None:
    """Each setting that a page names exists."""
    named = {span.partition(":")[0] for span in spans(page)}
    wrong = {name for name in named if SETTING.fullmatch(name)} - SETTINGS - EXAMPLE_SETTINGS
    assert {name for name in wrong if not name.startswith("policies.group_max_size.overrides")} == set()


def test_named_code_exists() -> None:
    """Each code name in a code span occurs in the sources."""
    text = sources()
    named = {(page, span) for page in handwritten() for span in spans(page) if CODE_NAME.fullmatch(span)}
    parts = {key: [METRIC_PREFIX.sub("", name) for name in re.findall(r"\w+", key[1])] for key in named}
    missing = {key for key, names in parts.items() if not all(name in text for name in names)}
    assert {key for key in missing if key[1] not in FOREIGN_NAMES} == set()


@pytest.mark.parametrize("page", handwritten())
def test_retired_words_are_absent(page: str) -> None:
    """No hand-written page uses a retired word."""
    assert RETIRED_WORDS.findall(prose_of(page)) == []


@pytest.mark.parametrize("page", handwritten())
def test_lines_are_wrapped(page: str) -> None:
    """Lines of hand-written pages are wrapped, except table rows, headings and lines that are one link."""
    long = [line for line in text_of(page).splitlines() if len(line) > LONGEST_LINE]
    assert [line for line in long if not line.lstrip().startswith(("|", "#", "[", "!["))] == []


def test_readme_is_short() -> None:
    """README.md has at most LONGEST_README lines and contains the make commands for the demo and the tests."""
    readme = text_of("README.md")
    assert len(readme.splitlines()) <= LONGEST_README
    assert "\nmake demo" in readme
    assert "\nmake test" in readme
