"""Encodes metric families in the formats that Prometheus reads, and chooses the format for an Accept header.

`prometheus_client` writes a line in 5 to 8 us. A scrape may have hundreds of thousands of lines, so this module writes
the same line in 1 us. Tests compare these lines with those of `prometheus_client`.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from group_sidecar.metrics.metric_family import Family, MetricType, Row

LINES_AT_ONCE = 100
"""Minimum number of lines that are joined into one piece. Joining many short pieces at the end would take long."""
MAX_CACHED_LABEL_VALUES = 10_000
"""Maximum number of label values whose escaped form is cached."""
PLAIN_BELOW = 1_000_000
"""Go writes floats from this number on with an exponent."""
EXACT_BELOW = 1 << 53
"""A float represents every whole number below this number exactly."""
_NAME_ENDS = {MetricType.COUNTER.value: "_total", MetricType.INFO.value: "_info"}


class Format(NamedTuple):
    """The format of an exposition: OpenMetrics, or else the text format."""

    openmetrics: bool
    content_type: str

    @property
    def end(self) -> bytes:
        """The end marker after all families."""
        return b"# EOF\n" if self.openmetrics else b""


def choose_format(accept: str) -> Format:
    """Returns the format that an Accept header asks for."""
    try:
        _, content_type = choose_encoder(accept)
    except TypeError:  # The header is ignored, because its version is not a number.
        _, content_type = choose_encoder("")
    return Format(content_type.startswith("application/openmetrics-text"), content_type)


def encode_family(metric: Metric, *, openmetrics: bool) -> bytes:
    """Encodes a family with few lines. Gauge histograms, timestamps and exemplars are not supported."""
    escaped = Escaped()
    lines = [_head(metric.name, metric.type, metric.documentation, metric.unit, openmetrics=openmetrics)]
    for sample in metric.samples:
        labels = ",".join(f'{name}="{escaped[value]}"' for name, value in sorted(sample.labels.items()))
        lines.append(f"{sample.name}{{{labels}}}" if labels else sample.name)
        lines.append(f" {_number(sample.value)}\n")
    return "".join(lines).encode()


class FamilyText:
    """Encodes the rows of a counter, gauge or info family as text.

    Args:
        family: the family.
        openmetrics: whether the format is OpenMetrics.
        escaped: the cache of escaped label values, shared by all families of a scrape.

    Attributes:
        count: the number of rows, including rows that were not encoded.
    """

    def __init__(self, family: Family, escaped: "Escaped", *, openmetrics: bool) -> None:
        self.count = 0
        name = family.full_name.removesuffix(_NAME_ENDS.get(family.kind, ""))
        self._head = _head(name, family.kind, family.help, family.unit, openmetrics=openmetrics).encode()
        self._pieces: list[tuple[bytes, int]] = []
        self._lines: list[str] = []
        self._template = _template(family)
        self._arrange = _arrange(family.labels)
        self._escaped = escaped

    def add(self, rows: Sequence[Row], max_lines: int) -> None:
        """Counts the rows and encodes at most `max_lines` of them."""
        self.count += len(rows)
        template, arrange, escaped = self._template, self._arrange, self._escaped.__getitem__
        self._lines += [
            template % (*map(escaped, arrange(values)), _number(value)) for values, value in rows[: max(0, max_lines)]
        ]
        if len(self._lines) >= LINES_AT_ONCE:
            self._join_lines()

    def first(self, count: int) -> list[bytes]:
        """Returns the head and the first `count` lines. At least `count` rows must have been encoded."""
        self._join_lines()
        taken = [self._head]
        for piece, lines in self._pieces:
            if count < lines:
                taken += [line + b"\n" for line in piece.split(b"\n", count)[:count]]
                break
            taken.append(piece)
            count -= lines
        return taken

    def _join_lines(self) -> None:
        self._pieces.append(("".join(self._lines).encode(), len(self._lines)))
        self._lines = []


class Escaped(dict[str, str]):
    """A cache of escaped label values."""

    def __missing__(self, value: str) -> str:
        if len(self) >= MAX_CACHED_LABEL_VALUES:
            self.clear()
        escaped = self[value] = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        return escaped


def _head(name: str, kind: str, help_text: str, unit: str, *, openmetrics: bool) -> str:
    """Returns the comment lines before a family. `name`: without the suffix of the family's type."""
    help_text = help_text.replace("\\", r"\\").replace("\n", r"\n")
    if openmetrics:
        help_text = help_text.replace('"', r"\"")
        return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n" + (f"# UNIT {name} {unit}\n" if unit else "")
    name += _NAME_ENDS.get(kind, "")
    return f"# HELP {name} {help_text}\n# TYPE {name} {'gauge' if kind == MetricType.INFO else kind}\n"


def _template(family: Family) -> str:
    labels = ",".join(f'{label}="%s"' for label in sorted(family.labels))
    return f"{family.full_name}{{{labels}}} %s\n"


def _arrange(labels: Sequence[str]) -> Callable[[Sequence[str]], Sequence[str]]:
    """Returns a function that sorts label values by the labels' names."""
    places = sorted(range(len(labels)), key=labels.__getitem__)
    return itemgetter(*places) if len(places) > 1 else lambda values: values


def _number(value: float) -> str:
    """Returns a number as Go writes a float. The library's function takes twice as long for whole numbers."""
    if type(value) is int and 0 <= value < EXACT_BELOW:
        if value < PLAIN_BELOW:
            return f"{value}.0"
        digits = str(value)
        return f"{digits[0]}.{digits[1:]}".rstrip("0.") + f"e+{len(digits) - 1:02}"
    written: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return written
