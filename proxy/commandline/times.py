"""Parses ISO times of a sidecar, and formats them for people in a time zone."""

from datetime import UTC, datetime


def parse_time(text: str) -> datetime:
    """Parses a time in ISO 8601. A time without a zone is UTC. Raises ValueError if the text is not a time."""
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def age_seconds(text: str | None, now: datetime) -> float | None:
    """Returns the seconds since a time in ISO 8601; None if there is no text, or the text is not a time."""
    try:
        return (now - parse_time(text)).total_seconds() if text is not None else None
    except (ValueError, OverflowError):
        return None


def format_time(text: object, utc: bool, *, exact: bool = False) -> str:
    """Returns a time for people, in UTC with a Z or in this machine's zone with its distance from UTC.

    Text that is not a time is returned as is.

    Args:
        text: the time in ISO 8601. None returns the empty string.
        utc: whether the result is in UTC.
        exact: whether the result has milliseconds.
    """
    if text is None:
        return ""
    try:
        at = parse_time(str(text)).astimezone(UTC if utc else None)
    except (ValueError, OverflowError):
        return str(text)
    formatted = at.isoformat(" ", "milliseconds" if exact else "seconds")
    return f"{formatted.removesuffix('+00:00')}Z" if utc else formatted
