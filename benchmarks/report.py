"""docs/performance.md, written as a whole.

Owns: the head, with the machine and the command, and the order and place of what the sections hand in. Must not know:
what is measured.
"""

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from benchmarks.section import Section

PAGE, CHARTS = "performance.md", "charts"
HEAD = """\
# Performance

Written by `{command}`, which measures every figure on this page: nothing here is typed in. What they say is in
[The data path](data-path.md).

| | |
|---|---|
"""


def machine(load: Sequence[float]) -> dict[str, str]:
    """Where it was measured; `load`: the machine's load averages before it began."""
    averages = ", ".join(f"{each:.1f}" for each in load)
    return {
        "CPU": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{psutil.virtual_memory().total / 1e9:.0f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "load before it began": f"{averages} (1, 5, 15 minutes)",
    }


def _processor() -> str:
    """What the kernel calls the CPU."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def page(command: str, facts: Mapping[str, str], sections: Sequence[Section]) -> str:
    """The whole of it, in Markdown."""
    text = HEAD.format(command=command) + "".join(f"| {name} | {value} |\n" for name, value in facts.items())
    return text + "".join(f"\n## {each.title}\n\n{each.text.strip()}\n" for each in sections)


def write(folder: Path, text: str, sections: Sequence[Section]) -> None:
    """Writes the page and its charts into the folder."""
    (folder / CHARTS).mkdir(parents=True, exist_ok=True)
    for section in sections:
        for name, chart in section.charts.items():
            (folder / CHARTS / name).write_text(chart)
    (folder / PAGE).write_text(text)
