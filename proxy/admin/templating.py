"""Renders pages from templates: the Jinja environment with escaping and filters, and rendering in small pieces.

Names of groups, clients and topics may be any text. Every name is escaped when it is inserted into a page. Control
characters are shown as symbols, and text from right to left stays within its `bdi` element.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from group_sidecar.proxy.admin import sentences
from group_sidecar.proxy.admin.group_data import collect_in_slices

FOLDER = Path(__file__).parent

_CONTROL_PICTURES = (
    {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
)


async def render(name: str, **content: Any) -> str:
    """Renders a page piece by piece, because the data path shares this thread."""
    return "".join(await collect_in_slices(_environment.get_template(name).generate(**content)))


def visible(text: str) -> str:
    """Returns the text with a symbol for each control character: a Control Picture of Unicode, or U+FFFD."""
    return text.translate(_CONTROL_PICTURES)


def quoted(text: str) -> str:
    """Returns the text for a URL query, with all but unreserved characters percent-encoded (RFC 3986, 2.3)."""
    return quote(text, safe="")


def ranges(partitions: Iterable[int]) -> str:
    """Returns the numbers as text, with consecutive numbers as a range: "0-3, 7"."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(sorted(partitions)), lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def sentence(parts: sentences.Sentence) -> Markup:
    """Returns a sentence as HTML, with users' text isolated."""
    return Markup("").join(
        Markup("<bdi>{}</bdi>").format(visible(part)) if isinstance(part, sentences.UserText) else part
        for part in parts
    )


def _ago(at: str, now: datetime) -> str:
    return sentences.ago((now - datetime.fromisoformat(at)).total_seconds())


def _clock(at: str, now: datetime) -> str:
    """Returns the time of day, with the date if it is not today."""
    moment = datetime.fromisoformat(at).astimezone(UTC)
    return moment.strftime("%H:%M:%S" if moment.date() == now.date() else "%d %b %H:%M:%S")


def _format_status(value: object) -> str:
    """Returns a value of the status as one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_format_status(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_format_status, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _format_bypassed(bypassed: Mapping[str, Any]) -> str:
    """Returns a sentence about the clients that bypassed the sidecar although `answers.exclusive` is true."""
    commits = sentences.count(bypassed["commits"], "commit")
    members = sentences.count(bypassed["members"], "member")
    if bypassed["exclusive"]:
        effect = "None was found in the last ten minutes, so answers.exclusive is in force."
    else:
        effect = "So answers.exclusive is not in force: the broker answers."
    return f"{commits} and {members} bypassed this sidecar. {effect}"


def _build_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "address": sentences.address,
        "ago": _ago,
        "bypassed": _format_bypassed,
        "bytes": sentences.size,
        "cause": sentences.cause,
        "client": lambda who: sentence(sentences.client(who.model_dump())),
        "clock": _clock,
        "count": sentences.count,
        "duration": sentences.duration,
        "line": _format_status,
        "plain": sentences.plain,
        "quoted": quoted,
        "ranges": ranges,
        "sentence": sentence,
        "visible": visible,
    }
    return environment


_environment = _build_environment()
