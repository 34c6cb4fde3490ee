"""The formats that Prometheus reads.

Owns: which format an Accept header asks for, and how families become lines of it. Must not know: where families come
from, HTTP.

`prometheus_client` writes a line in 5 to 8 us, and this the same line in one: of single groups, topics and partitions
there are hundreds of thousands. Tests hold both together.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from group_sidecar.metrics.family import Family, Kind, Row

LINES_AT_ONCE = 100
"""Lines that are put together: of many short pieces it would take long to make one."""
MOST_ESCAPED = 10_000
"""Label values remembered with what they look like in a line."""
PLAIN_BELOW = 1_000_000
"""From there on Go writes a float with an exponent."""
EXACT_BELOW = 1 << 53
"""Up to there a float holds every whole number."""
_NAME_ENDS = {Kind.COUNTER.value: "_total", Kind.INFO.value: "_info"}


class Format(NamedTuple):
    """A format: OpenMetrics, or else the text format."""

    openmetrics: bool
    content_type: str

    @property
    def end(self) -> bytes:
        """What stands behind all families."""
        return b"# EOF\n" if self.openmetrics else b""


def choose_format(accept: str) -> Format:
    """The format that an Accept header asks for."""
    try:
        _, content_type = choose_encoder(accept)
    except TypeError:  # A version parameter that is not numbers: as if there were none.
        _, content_type = choose_encoder("")
    return Format(content_type.startswith("application/openmetrics-text"), content_type)


def text_of(metric: Metric, *, openmetrics: bool) -> bytes:
    """A family of few lines, of any type but gauge histograms, without timestamps or exemplars."""
    escaped = Escaped()
    lines = [_head(metric.name, metric.type, metric.documentation, metric.unit, openmetrics=openmetrics)]
    for sample in metric.samples:
        labels = ",".join(f'{name}="{escaped[value]}"' for name, value in sorted(sample.labels.items()))
        lines.append(f"{sample.name}{{{labels}}}" if labels else sample.name)
        lines.append(f" {_number(sample.value)}\n")
    return "".join(lines).encode()


class FamilyText:
    """The rows of a family, as text; counter, gauge or info.

    Args:
        family: what it is of.
        openmetrics: the format.
        escaped: shared by all families of a scrape.

    Attributes:
        count: how many rows there were, those without text included.
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

    def add(self, rows: Sequence[Row], room: int) -> None:
        """Takes rows. Only so many of them as there is room for become text."""
        self.count += len(rows)
        template, arrange, escaped = self._template, self._arrange, self._escaped.__getitem__
        self._lines += [
            template % (*map(escaped, arrange(values)), _number(value)) for values, value in rows[: max(0, room)]
        ]
        if len(self._lines) >= LINES_AT_ONCE:
            self._put_together()

    def first(self, count: int) -> list[bytes]:
        """The head, and of the lines so many; as many must have had room."""
        self._put_together()
        taken = [self._head]
        for piece, lines in self._pieces:
            if count < lines:
                taken += [line + b"\n" for line in piece.split(b"\n", count)[:count]]
                break
            taken.append(piece)
            count -= lines
        return taken

    def _put_together(self) -> None:
        self._pieces.append(("".join(self._lines).encode(), len(self._lines)))
        self._lines = []


class Escaped(dict[str, str]):
    """Label values as they stand between quotes."""

    def __missing__(self, value: str) -> str:
        if len(self) >= MOST_ESCAPED:
            self.clear()
        escaped = self[value] = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        return escaped


def _head(name: str, kind: str, told: str, unit: str, *, openmetrics: bool) -> str:
    """What stands before a family. `name`: without the end that its type has."""
    told = told.replace("\\", r"\\").replace("\n", r"\n")
    if openmetrics:
        told = told.replace('"', r"\"")
        return f"# HELP {name} {told}\n# TYPE {name} {kind}\n" + (f"# UNIT {name} {unit}\n" if unit else "")
    name += _NAME_ENDS.get(kind, "")
    return f"# HELP {name} {told}\n# TYPE {name} {'gauge' if kind == Kind.INFO else kind}\n"


def _template(family: Family) -> str:
    labels = ",".join(f'{label}="%s"' for label in sorted(family.labels))
    return f"{family.full_name}{{{labels}}} %s\n"


def _arrange(labels: Sequence[str]) -> Callable[[Sequence[str]], Sequence[str]]:
    """Puts label values into the order of the labels' names."""
    places = sorted(range(len(labels)), key=labels.__getitem__)
    return itemgetter(*places) if len(places) > 1 else lambda values: values


def _number(value: float) -> str:
    """As Go writes a float. The library's own function takes twice as long, and most numbers are whole."""
    if type(value) is int and 0 <= value < EXACT_BELOW:
        if value < PLAIN_BELOW:
            return f"{value}.0"
        digits = str(value)
        return f"{digits[0]}.{digits[1:]}".rstrip("0.") + f"e+{len(digits) - 1:02}"
    written: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return written
