"""Parses ISO times of a sidecar, and formats them for people in a time zone."""

from datetime import UTC, datetime


def parse_time(text: str) -> datetime:
    """A time in ISO 8601, with its zone. Raises ValueError."""
    read = datetime.fromisoformat(text)
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def format_time(text: object, utc: bool, *, exact: bool = False) -> str:
    """A time in UTC, then with its Z, or in this machine's zone; as it is where it is none.

    Args:
        text: in ISO 8601; None is the empty string.
        utc: whether in UTC.
        exact: with milliseconds.
    """
    if text is None:
        return ""
    try:
        at = parse_time(str(text)).astimezone(UTC if utc else None)
    except (ValueError, OverflowError):
        return str(text)
    spelled = at.replace(tzinfo=None).isoformat(" ", "milliseconds" if exact else "seconds")
    return f"{spelled}Z" if utc else spelled
