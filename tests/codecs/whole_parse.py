"""Parses bytes that must contain exactly one value."""

from io import BytesIO
from typing import Any

from construct import Construct

from group_sidecar.codecs.primitives import WireError


def parse_whole(construct: Construct, data: bytes) -> Any:
    """Parses all of `data` and returns the value. Raises WireError if bytes remain after the value."""
    stream = BytesIO(data)
    value = construct._parse(stream, None, "")
    if left := len(data) - stream.tell():
        raise WireError(f"{left} bytes left over")
    return value
