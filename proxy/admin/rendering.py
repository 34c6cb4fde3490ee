"""How pages are made of templates.

Owns: the environment: escaping, the filters that templates have, and that a large page is made a little at a time. Must
not know: what stands on which page.

Names of groups, clients and topics are any text that somebody chose. All of it is escaped where it is put into a page;
what does not print is shown as a sign for it; and text that runs from right to left stays within its `bdi`.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from group_sidecar.proxy.admin import words
from group_sidecar.proxy.admin.reading import made

FOLDER = Path(__file__).parent

_SIGNS = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


async def render(name: str, **content: Any) -> str:
    """A page, made a piece at a time, for the data path shares this thread."""
    return "".join(await made(_environment.get_template(name).generate(**content)))


def visible(text: str) -> str:
    """Text with a sign in place of each control character (Unicode's Control Pictures)."""
    return text.translate(_SIGNS)


def quoted(text: str) -> str:
    """Text as it may stand in a query: all but unreserved characters percent-encoded (RFC 3986, 2.3)."""
    return quote(text, safe="")


def ranges(partitions: Iterable[int]) -> str:
    """Numbers with runs drawn together: "0-3, 7"."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(sorted(partitions)), lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def sentence(parts: words.Sentence) -> Markup:
    """A sentence as HTML; in it, what others chose is kept apart."""
    return Markup("").join(
        Markup("<bdi>{}</bdi>").format(visible(part)) if isinstance(part, words.Name) else part for part in parts
    )


def _ago(at: str, now: datetime) -> str:
    return words.ago((now - datetime.fromisoformat(at)).total_seconds())


def _clock(at: str, now: datetime) -> str:
    """The time of day; with the date where that is another."""
    moment = datetime.fromisoformat(at).astimezone(UTC)
    return moment.strftime("%H:%M:%S" if moment.date() == now.date() else "%d %b %H:%M:%S")


def _cells(value: object) -> str:
    """What a mapping of the status says, in a line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_cells(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_cells, value)) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _built() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "address": words.address,
        "ago": _ago,
        "bytes": words.size,
        "cause": words.cause,
        "client": lambda who: sentence(words.client(who.model_dump())),
        "clock": _clock,
        "count": words.count,
        "duration": words.duration,
        "line": _cells,
        "plain": words.plain,
        "quoted": quoted,
        "ranges": ranges,
        "sentence": sentence,
        "visible": visible,
    }
    return environment


_environment = _built()
