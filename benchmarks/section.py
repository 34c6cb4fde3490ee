"""The result of a benchmark, as a section of a page."""

from collections.abc import Mapping
from typing import NamedTuple


class Section(NamedTuple):
    """A part of a page.

    Attributes:
        title: the heading.
        text: Markdown: the command that measures the section alone, tables, the meaning of their columns, and
            conclusions.
        charts: SVG documents by file name. `text` refers to them as `charts/NAME`.
    """

    title: str
    text: str
    charts: Mapping[str, str] = {}
