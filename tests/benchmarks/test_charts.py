"""Charts are small, complete SVG documents with text as text, and equal for equal figures."""

from collections.abc import Iterator
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from benchmarks.charts import COLOURS, INK, Line, Panel, line_chart, short

SVG = "{http://www.w3.org/2000/svg}"
COST = Panel("CPU, µs per request", [Line("sidecar", [(1, 40.0), (100, 20.0), (10_000, 21.5)])])
RATES = Panel(
    "requests a second",
    [Line("direct", [(1, 9e3), (100, 4e4), (10_000, 4e4)]), Line("sidecar", [(1, 6e3), (100, 3e4), (10_000, 3e4)])],
    logarithmic=True,
)


@pytest.fixture(scope="module")
def document() -> str:
    return line_chart("connections", [COST, RATES])


def texts(document: str) -> list[str]:
    return ["".join(each.itertext()).strip() for each in ElementTree.fromstring(document).iter(f"{SVG}text")]


def line_of(document: str, colour: str) -> list[tuple[float, float]]:
    """Returns the points of the first line of this colour, relative to the top left corner of the document."""
    path = next(
        each.attrib["d"]
        for each in ElementTree.fromstring(document).iter(f"{SVG}path")
        if f"stroke: {colour}" in each.get("style", "") and "clip-path" in each.attrib
    )
    return list(_points(path))


def _points(path: str) -> Iterator[tuple[float, float]]:
    words = path.replace("M", "").replace("L", "").split()
    return ((float(x), float(y)) for x, y in zip(words[::2], words[1::2], strict=True))


def test_text_stays_text(document: str) -> None:
    """The labels of a chart are text elements."""
    assert {"connections", "CPU, µs per request", "requests a second", "direct", "sidecar"} <= set(texts(document))


def test_measured_sizes_are_on_axis() -> None:
    """The axis has the measured sizes as ticks."""
    assert {"1", "100", "10k"} <= set(texts(line_chart("connections", [COST])))


def test_single_line_has_no_legend() -> None:
    """A chart with a single line has no legend."""
    assert "sidecar" not in texts(line_chart("connections", [COST]))


def test_larger_values_are_higher() -> None:
    """Larger values are drawn higher, and larger sizes further to the right."""
    drawn = line_of(line_chart("connections", [COST]), COLOURS[0])
    assert all(left < right for (left, _), (right, _) in pairwise(drawn))
    heights = [-y for _, y in drawn]
    assert sorted(range(3), key=heights.__getitem__) == [1, 2, 0]


def test_logarithmic_steps_are_equal() -> None:
    """On logarithmic axes, each tenfold increase has the same distance."""
    doubling = Line("", [(1, 1.0), (10, 10.0), (100, 100.0)])
    (x0, y0), (x1, y1), (x2, y2) = line_of(line_chart("", [Panel("", [doubling], logarithmic=True)]), COLOURS[0])
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert y1 - y0 == pytest.approx(y2 - y1)


def test_chart_is_readable_in_both_schemes(document: str) -> None:
    """All colors of a chart contrast with light and dark pages, and no background is drawn."""
    for colour in (INK, *COLOURS):
        for page in ("#ffffff", "#0d1117"):
            assert contrast(colour, page) >= 2.5
    assert "#ffffff" not in document
    words = list(ElementTree.fromstring(document).iter(f"{SVG}text"))
    assert all(f"fill: {INK}" in each.get("style", "") for each in words)  # Text without a colour is black.


def contrast(one: str, other: str) -> float:
    """Returns the contrast of two colours by WCAG 2: from 1 for equal colours to 21 for black on white."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_same_figures_same_document(document: str) -> None:
    """The same figures produce the same document."""
    assert line_chart("connections", [COST, RATES]) == document


def test_chart_is_small(document: str) -> None:
    """A chart with two panels has fewer than 40,000 characters."""
    assert len(document) < 40_000


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.25, "0.25"),
        (12, "12"),
        (250, "250"),
        (1_000, "1k"),
        (1_500, "1.5k"),
        (50_000_000, "50M"),
        (2e9, "2G"),
    ],
)
def test_short_numbers(value: float, shown: str) -> None:
    """short abbreviates a number with k, M or G."""
    assert short(value) == shown
