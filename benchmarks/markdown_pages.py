"""Writes docs/performance.md and docs/fleet-performance.md: the head, and the sections in their order.

The head names the machine and the command.
"""

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.section import Section

CHARTS = "charts"
HEAD = """\
# {title}

`{command}` measures every figure on this page and writes the page.
{meaning} explains the figures.

| | |
|---|---|
"""


class Page(NamedTuple):
    """A page. `meaning` is a link to the explanation of its numbers."""

    file: str
    title: str
    meaning: str


DATA_PATH = Page("performance.md", "Performance", "[The data path](data-path.md)")
FLEET = Page("fleet-performance.md", "Performance of the fleet's pipeline", "[The fleet](fleet.md#scale)")


def machine(load: Sequence[float]) -> dict[str, str]:
    """Returns facts about the machine. `load` is its load averages before the measurement."""
    averages = ", ".join(f"{each:.1f}" for each in load)
    return {
        "CPU": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{psutil.virtual_memory().total / 1e9:.0f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "load before it began": f"{averages} (1, 5, 15 minutes)",
    }


def _processor() -> str:
    """Returns the kernel's name of the CPU."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def markdown(page: Page, command: str, facts: Mapping[str, str], sections: Sequence[Section]) -> str:
    """Returns the whole text of a page."""
    text = HEAD.format(title=page.title, command=command, meaning=page.meaning)
    text += "".join(f"| {name} | {value} |\n" for name, value in facts.items())
    return text + "".join(f"\n## {each.title}\n\n{each.text.strip()}\n" for each in sections)


def write(folder: Path, page: Page, text: str, sections: Sequence[Section]) -> None:
    """Writes a page and its charts to a folder."""
    (folder / CHARTS).mkdir(parents=True, exist_ok=True)
    for section in sections:
        for name, chart in section.charts.items():
            (folder / CHARTS / name).write_text(chart)
    (folder / page.file).write_text(text)
