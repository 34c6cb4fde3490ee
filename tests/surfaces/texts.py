"""Converts surfaces to text, and runs commands in this process."""

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
"""Keys of JSON schemas and of OpenAPI documents that contain prose."""
SETTINGS = "GROUP_SIDECAR"
"""The prefix of all environment variables of the project."""

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?")
_PORT = re.compile(r'(127\.0\.0\.1:|"port": )(?!9092\b)[1-9]\d{3,4}\b')
"""Matches a port that the system has chosen, which is never 9092."""


class Ran(NamedTuple):
    """The result of a command."""

    status: int
    out: str
    err: str

    def text(self, heading: str) -> str:
        """Returns the result as text under a heading. Each line is marked with its stream."""
        lines = [f"== {heading}", f"status {self.status}"]
        lines += [f"out| {line}" for line in self.out.splitlines()]
        lines += [f"err| {line}" for line in self.err.splitlines()]
        return "".join(f"{line.rstrip()}\n" for line in lines)


def as_json(value: object) -> str:
    """Returns a value as indented JSON, with its keys in their order."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def without_prose(schema: Any) -> Any:
    """Returns a JSON schema or an OpenAPI document without titles, descriptions and summaries.

    A property may have one of these names. Therefore properties are kept, whatever their names are.
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
    """Returns a text in which times and ports of the loopback interface are zeros, because these differ in each run."""
    return _PORT.sub(r"\g<1>0", _MOMENT.sub(lambda found: re.sub(r"\d", "0", found[0]), text))


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets only these environment variables of the project. Terminals are 200 columns wide, and without color."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(SETTINGS)}
    usual = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    with patch.dict(os.environ, {**kept, **usual, **variables}, clear=True):
        yield


@contextmanager
def empty_folder() -> Iterator[Path]:
    """Creates an empty folder that is the working directory for the length of a with statement."""
    with TemporaryDirectory() as folder, chdir(folder):
        yield Path(folder)


def ran(main: Callable[[], object], *argv: str, variables: Mapping[str, str] | None = None) -> Ran:
    """Runs a program's `main` in this process. Returns its output and its exit status."""
    out, err = io.StringIO(), io.StringIO()
    status: object = 0
    with patch.object(sys, "argv", [*argv]), environment(variables or {}), redirect_stdout(out), redirect_stderr(err):
        try:
            status = main()
        except SystemExit as ended:
            status = ended.code
    return Ran(status if isinstance(status, int) else 0, out.getvalue(), err.getvalue())
