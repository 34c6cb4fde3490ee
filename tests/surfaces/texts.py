"""How surfaces become text, and how a command is run in this process."""

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

PROSE = ("title", "description", "summary")
"""Keys of JSON schemas and of OpenAPI whose texts are for people."""
SETTINGS = "GROUP_SIDECAR"
"""All variables of the project begin with it."""

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?")
_PORT = re.compile(r'(127\.0\.0\.1:|"port": )(?!9092\b)[1-9]\d{3,4}\b')
"""A port that the system has chosen; 9092 is never one."""


class Ran(NamedTuple):
    """What came of a command."""

    status: int
    out: str
    err: str

    def text(self, heading: str) -> str:
        """All of it under a heading. Each line shows its stream."""
        lines = [f"== {heading}", f"status {self.status}"]
        lines += [f"out| {line}" for line in self.out.splitlines()]
        lines += [f"err| {line}" for line in self.err.splitlines()]
        return "".join(f"{line.rstrip()}\n" for line in lines)


def as_json(value: object) -> str:
    """A value as indented JSON. The order of keys is kept."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def without_prose(schema: Any) -> Any:
    """A JSON schema or an OpenAPI document without titles, descriptions and summaries.

    A property may have one of these names. Properties are therefore kept, whatever they are called.
    """
    if isinstance(schema, list):
        return [without_prose(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if key in ("properties", "$defs", "schemas", "paths"):
            kept[key] = {name: without_prose(item) for name, item in value.items()}
        elif key not in PROSE:
            kept[key] = without_prose(value)
    return kept


def steady(text: str) -> str:
    """A text with zeros for what is different at each run: moments, and ports of the loopback interface."""
    return _PORT.sub(r"\g<1>0", _MOMENT.sub(lambda found: re.sub(r"\d", "0", found[0]), text))


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Of the project's variables, only these are set. Terminals are 200 columns wide, and without color."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(SETTINGS)}
    usual = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    with patch.dict(os.environ, {**kept, **usual, **variables}, clear=True):
        yield


@contextmanager
def empty_folder() -> Iterator[Path]:
    """An empty folder that is the working directory for the length of a with statement."""
    with TemporaryDirectory() as folder, chdir(folder):
        yield Path(folder)


def ran(main: Callable[[], object], *argv: str, variables: Mapping[str, str] | None = None) -> Ran:
    """Runs a program's `main` in this process. What it prints is kept."""
    out, err = io.StringIO(), io.StringIO()
    status: object = 0
    with patch.object(sys, "argv", [*argv]), environment(variables or {}), redirect_stdout(out), redirect_stderr(err):
        try:
            status = main()
        except SystemExit as ended:
            status = ended.code
    return Ran(status if isinstance(status, int) else 0, out.getvalue(), err.getvalue())
