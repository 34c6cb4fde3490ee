"""Formats numbers, durations, moments and names for a report."""

from datetime import UTC, datetime

_UNITS = (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1))
_TURNING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that change the direction of the text after them."""
_SIGNS = (
    {code: 0x2400 + code for code in range(0x20)}
    | {0x7F: 0x2421}
    | dict.fromkeys((*range(0x80, 0xA0), *_TURNING), 0xFFFD)
)


def number(value: float) -> str:
    """Formats a number: "1,234,567", "0.25". A number that is not whole has at most six significant digits."""
    return f"{int(value):,}" if value == int(value) else f"{value:,.6g}"


def short_number(value: float) -> str:
    """Formats a number of 0 or more for narrow spaces: "950", "12.5k", "3.2M"."""
    for letter, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= max(size, 1e4):
            return f"{value / size:,.1f}".removesuffix(".0") + letter
    return number(value)


def count(value: int, noun: str) -> str:
    """Formats a number of things: "1 group", "2,000 groups"."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def duration(seconds: float) -> str:
    """Formats a duration, which may be negative: "0 s", "40 ms", "2.5 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    unit, length, lesser, part = next(row for row in _UNITS if seconds >= row[1])
    whole, rest = int(seconds // length), int(seconds % length // part)
    return f"{whole} {unit} {rest} {lesser}" if rest else f"{whole} {unit}"


def moment(at: float) -> str:
    """Formats seconds since the epoch as date and time in UTC: "2025-01-31 09:30:00"."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def visible(text: str) -> str:
    """Replaces control characters and characters that change the direction of text by visible signs."""
    return text.translate(_SIGNS)


def truncated(text: str, characters: int) -> str:
    """Returns text as `visible` does, with at most `characters` characters.

    A text that was cut ends with an ellipsis. An empty text becomes "(empty)".
    """
    shown = visible(text) or "(empty)"
    return shown if len(shown) <= characters else shown[: characters - 1] + "…"
