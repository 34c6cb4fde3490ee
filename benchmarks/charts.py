"""Draws line charts as small SVG documents for light and dark pages.

Text stays text, so that it can be searched, and uses the reader's fonts. Charts have no background, and all colours
contrast with white and with black.
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
    "svg.hashsalt": "charts",  # Otherwise each run gives the parts of the document new ids.
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
    """A line with a name, as (x, y) points."""

    name: str
    points: Sequence[tuple[float, float]]


class Panel(NamedTuple):
    """One pair of axes.

    Attributes:
        title: the label of the vertical axis, with the unit.
        lines: the lines. Each x is greater than 0.
        logarithmic: whether the vertical axis is logarithmic. Otherwise it begins at 0.
    """

    title: str
    lines: Sequence[Line]
    logarithmic: bool = False


def line_chart(across: str, panels: Sequence[Panel]) -> str:
    """Returns an SVG document of panels side by side, with a common, logarithmic horizontal axis.

    Args:
        across: the label of the horizontal axis, with the unit.
        panels: the panels from left to right.
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
    """Formats a number for an axis: 250, 1.5k, 50M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
