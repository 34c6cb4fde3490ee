"""How a report becomes one HTML file that needs nothing else.

Owns: the templates' environment, escaping, and what the page may do. Must not know: what a report says.

Names of groups, clients and topics are any text that somebody chose. All of it is escaped where it is put into the
page, and stays within its `bdi`. The page's policy (CSP) lets run what is part of it by its hash, and fetches nothing.
"""

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from group_sidecar.spark.report.spelling import count, moment, visible

FOLDER = Path(__file__).parent / "templates"


def page(**content: Any) -> str:
    """The report as HTML."""
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


def write_whole(file: Path, text: str) -> None:
    """Writes a file so that whoever reads it sees the old one or the new one, whole. Raises OSError."""
    # In the same folder: only there is a new name all that is needed.
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
    """How a policy names what stands between two tags (CSP level 3, 2.3.1)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _built() -> Environment:
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


_environment = _built()
