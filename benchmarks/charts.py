"""Line charts as small SVG documents, readable on light and on dark pages.

Owns: how charts look. Must not know: what is shown.

Text stays text, so that it can be searched, and uses the reader's fonts. Nothing has a background, and all colours
stand out from white and from black.
"""

import io
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

INK = "#7d8590"
COLOURS = ("#2f81f7", "#d9822b", "#2da44e", "#a371f7")
PANEL_INCHES = (4.2, 2.6)
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "charts",  # Otherwise each run names the document's parts anew.
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": INK,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}


class Line(NamedTuple):
    """What is called `name`, as (x, y)."""

    name: str
    points: Sequence[tuple[float, float]]


class Panel(NamedTuple):
    """One pair of axes.

    Attributes:
        title: what its vertical axis is, with the unit.
        lines: what it shows; x is more than 0.
        logarithmic: whether the vertical axis is; otherwise it begins at 0.
    """

    title: str
    lines: Sequence[Line]
    logarithmic: bool = False


def line_chart(across: str, panels: Sequence[Panel]) -> str:
    """An SVG document of panels side by side, over one quantity, which is drawn on a logarithmic scale.

    Args:
        across: what the horizontal axis is, with the unit.
        panels: from left to right.
    """
    width, height = PANEL_INCHES
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(width * len(panels), height), layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _draw(axes, panel, across)
        document = io.StringIO()
        figure.savefig(document, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return document.getvalue()


def _draw(axes: Axes, panel: Panel, across: str) -> None:
    for line, colour in zip(panel.lines, COLOURS, strict=False):
        xs, ys = zip(*line.points, strict=True)
        axes.plot(xs, ys, marker="o", markersize=3.5, linewidth=1.6, color=colour, label=line.name)
    axes.set_title(panel.title, loc="left", fontsize=9)
    axes.set_xlabel(across)
    axes.set_xscale("log")
    ticks = sorted({x for line in panel.lines for x, _ in line.points})
    axes.set_xticks(ticks, [short(x) for x in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    if panel.logarithmic:
        heights = [y for line in panel.lines for _, y in line.points]
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1,) if max(heights) > 100 * min(heights) else (1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.grid(visible=True, axis="y")
    if len(panel.lines) > 1:
        axes.legend()


def short(value: float) -> str:
    """A number for an axis: 250, 1.5k, 50M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
