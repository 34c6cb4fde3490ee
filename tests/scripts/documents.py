"""Reads the project's Markdown: which pages are written by hand, their fenced blocks and their code spans."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
GENERATED = frozenset(
    f"docs/{name}.md"
    for name in ("configuration", "metrics", "records", "tables", "conformance", "performance", "fleet-performance")
)
"""Pages that a program writes."""
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
_FENCE = re.compile(r"^ *```(?P<language>[^\n`]*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")


class Block(NamedTuple):
    """One fenced block of a page."""

    page: str
    language: str
    text: str


def pages() -> list[str]:
    """The paths of all Markdown files, relative to the root of the checkout."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found += [each for room in ("deploy", "spark", "benchmarks") for each in (ROOT / room).rglob("*.md")]
    return sorted(str(each.relative_to(ROOT)) for each in found)


def handwritten() -> list[str]:
    """The pages that no program writes."""
    return [page for page in pages() if page not in GENERATED]


def text_of(page: str) -> str:
    """The text of a page."""
    return (ROOT / page).read_text("utf-8")


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page."""
    for found in _FENCE.finditer(text_of(page)):
        yield Block(page, found["language"].strip(), found["text"])


def prose_of(page: str) -> str:
    """The text of a page without its fenced blocks."""
    return _FENCE.sub("", text_of(page))


def spans(page: str) -> list[str]:
    """The code spans of a page's prose and tables, with each line break read as one space."""
    return [" ".join(span.split()) for span in _SPAN.findall(prose_of(page))]


def anchors(page: str) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
