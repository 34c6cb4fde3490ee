"""One value that is all there is."""

from io import BytesIO
from typing import Any

from construct import Construct

from group_sidecar.codecs.primitives import WireError


def parse_whole(construct: Construct, data: bytes) -> Any:
    """Parses `data`, all of it. Raises WireError where bytes are left."""
    stream = BytesIO(data)
    value = construct._parse(stream, None, "")
    if left := len(data) - stream.tell():
        raise WireError(f"{left} bytes left over")
    return value
