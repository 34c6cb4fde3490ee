"""Renders a report as one self-contained HTML file.

Names of groups, clients and topics can be any text. The templates escape each name and isolate it in a `bdi` element.
The page's Content-Security-Policy allows only the page's own scripts and styles, by their hashes, and no requests.
"""

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from group_sidecar.spark.report.formatting import count, moment, visible

FOLDER = Path(__file__).parent / "templates"


def page(**content: Any) -> str:
    """Returns the report as HTML."""
    style, script = (FOLDER.joinpath(name).read_text() for name in ("report.css", "report.js"))
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    return _environment.get_template("report.html").render(
        style=Markup(style),
        script=Markup(script),
        policy=policy,
        **content,
    )


def replace_file(file: Path, text: str) -> None:
    """Replaces a file atomically: a reader sees either the old or the new text. Raises OSError."""
    # A rename is atomic only within one file system, so the unfinished file is in the same folder.
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8", errors="replace") as output:
            output.write(text)
            output.flush()
            os.fsync(output.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _hash(text: str) -> str:
    """Returns the hash by which a Content-Security-Policy allows an inline script or style (CSP level 3, 2.3.1)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _make_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {"count": count, "moment": moment, "visible": visible}
    return environment


_environment = _make_environment()
