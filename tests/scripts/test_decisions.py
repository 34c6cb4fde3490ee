"""docs/decisions: every decision has the same sections, and the table of decisions agrees with the files."""

import re
from pathlib import Path

import pytest

from tests.scripts.documents import DECISIONS, ROOT

SECTIONS = ["Context", "Decision", "Consequences"]
MOST_WORDS = 450
LINK = r"\[\d{4}\]\((\d{4}-[\w-]+\.md)\)"
STATUS = re.compile(rf"accepted|(?:extended|superseded) by {LINK}(?: and {LINK})?(?: \([^()]+\))?")
ROW = re.compile(r"^\| (\d+) \| \[(.+)\]\((\d{4}-[\w-]+\.md)\) \| (.+) \|$", re.MULTILINE)


def status(decision: Path) -> str:
    """The status of a decision, with its line breaks read as spaces."""
    found = re.search(r"^Status: (.+?)\n\n", decision.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return " ".join(found[1].split())


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda each: each.stem)
def test_decision_has_all_sections(decision: Path) -> None:
    """Each decision has its number, all sections with text, and at most MOST_WORDS words."""
    text = decision.read_text("utf-8")
    number = int(decision.stem[:4])
    assert text.startswith(f"# {number}. ")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    bodies = re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]
    assert all(body.strip() for body in bodies)
    assert len(text.split()) <= MOST_WORDS


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda each: each.stem)
def test_status_names_later_decisions(decision: Path) -> None:
    """The status of a decision is valid and names only existing, later decisions."""
    found = STATUS.fullmatch(status(decision))
    assert found is not None
    later = [name for name in found.groups() if name]
    assert [name for name in later if not (decision.parent / name).is_file() or name <= decision.name] == []


def test_numbers_have_no_gap() -> None:
    """The decisions are numbered without gaps."""
    assert [int(each.stem[:4]) for each in DECISIONS] == [*range(1, len(DECISIONS) + 1)]


def test_table_lists_every_decision() -> None:
    """The table lists each decision with its number, title, file and status."""
    rows = ROW.findall((ROOT / "docs" / "decisions" / "README.md").read_text("utf-8"))
    expected = []
    for each in DECISIONS:
        shown = re.sub(LINK, lambda link: link[1][:4], status(each)).partition(" (")[0]
        title = each.read_text("utf-8").partition("\n")[0].partition(". ")[2]
        expected.append((str(int(each.stem[:4])), title, each.name, shown))
    assert rows == expected
