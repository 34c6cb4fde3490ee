"""Settings that name a file or a folder."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

_UNUSABLE = re.compile("[\0\n\r\ud800-\udfff]")


def _usable(path: Path) -> Path:
    """Returns the path. Raises ValueError if no file can have this path, or if the path has more than one line."""
    if _UNUSABLE.search(str(path)):
        raise ValueError("contains a line end, a null character or a lone surrogate")
    return path


ConfiguredPath = Annotated[Path, AfterValidator(_usable)]
"""The path of a file or a folder."""
