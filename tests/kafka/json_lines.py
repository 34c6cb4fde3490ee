"""Reads a file of JSON lines to which another process may be writing."""

import json
from pathlib import Path
from typing import Any


def json_lines(file: Path) -> list[dict[str, Any]]:
    """Returns the JSON objects of a file, one for each line. Other text and an unfinished line are left out."""
    lines = file.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]
