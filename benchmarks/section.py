"""What a benchmark hands in for a page.

Owns: the shape. Must not know: what is measured, nor where it is written.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Section(NamedTuple):
    """A part of a page.

    Attributes:
        title: its heading.
        text: Markdown: the command that measures it alone, tables, what the columns are, and what the figures say.
        charts: SVG documents by file name; `text` shows them as `charts/NAME`.
    """

    title: str
    text: str
    charts: Mapping[str, str] = {}
