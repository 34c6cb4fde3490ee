"""CONTRIBUTING.md: the map of the code is complete, and each question about the code has one right file."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
ROOMS = sorted(each.name for each in (ROOT / "group_sidecar").iterdir() if each.is_symlink())
ALL_ANSWERED = sorted({*ROOMS} - {"demo"})
FEWEST_QUESTIONS, MOST_TERMS = 30, 40
ROW = re.compile(r"^\| (?P<first>[^|]+?) \| (?P<second>[^|]+?) \|$", re.MULTILINE)


def section(heading: str) -> str:
    """The text below a heading of CONTRIBUTING.md, until the next heading of the same level."""
    _, _, rest = CONTRIBUTING.partition(f"\n## {heading}\n")
    return rest.partition("\n## ")[0]


def rows(heading: str) -> list[tuple[str, str]]:
    """The rows of the table in a section, without its heading."""
    found = [(each["first"], each["second"]) for each in ROW.finditer(section(heading))]
    return [row for row in found if not set(row[0]) <= {"-"}][1:]


QUESTIONS = rows("Where is X decided?")
ANSWERS = {question: file.strip("`") for question, file in QUESTIONS}


def packages(room: str) -> set[str]:
    """The sub-packages of a top-level package."""
    return {each.parent.name for each in (ROOT / room).glob("*/__init__.py")}


def test_there_are_enough_questions() -> None:
    """CONTRIBUTING.md has at least FEWEST_QUESTIONS questions, and each occurs once."""
    assert len(QUESTIONS) >= FEWEST_QUESTIONS
    assert len(ANSWERS) == len(QUESTIONS)


@pytest.mark.parametrize("question", ANSWERS)
def test_named_file_exists(question: str) -> None:
    """The file that answers each question exists."""
    assert (ROOT / ANSWERS[question]).is_file()


def test_answers_are_distinct_files() -> None:
    """Each question has a file of its own as its answer."""
    assert len(set(ANSWERS.values())) == len(QUESTIONS)


def test_answers_cover_every_package() -> None:
    """The answers cover each top-level package and each sub-package of proxy."""
    places = {tuple(file.split("/")[:2]) for file in ANSWERS.values()}
    assert {room for room, _ in places} == {*ALL_ANSWERED}
    proxy = {second for room, second in places if room == "proxy"}
    assert packages("proxy") - proxy == set()


def test_map_names_every_package() -> None:
    """The map of the code names every package and the sub-packages of proxy, coordinator, codecs and spark."""
    tree = section("Packages").split("```")[1]
    named = re.findall(r"^( *)(\w+)/ ", tree, re.MULTILINE)
    top, below = ({name for indent, name in named if bool(indent) is deeper} for deeper in (False, True))
    assert {*ROOMS, "group_sidecar"} - top == set()
    assert (packages("proxy") | packages("coordinator") | packages("codecs") | packages("spark")) - below == set()


def test_glossary_is_short_and_sorted() -> None:
    """The glossary is sorted and has at most MOST_TERMS terms."""
    terms = [term for term, _ in rows("Glossary")]
    assert 0 < len(terms) <= MOST_TERMS
    assert terms == sorted(set(terms))
