"""Tests the soak test with a short run, and with a sidecar that leaks."""

import os
import textwrap
from pathlib import Path
from xml.etree import ElementTree

from tests.soak.report import chart, text
from tests.soak.run import soak
from tests.soak.verdict import trend

_SECONDS = 30.0
_LEAKING_SECONDS = 15.0
_SHORT_RUN_TOLERANCE = 0.25
"""The tolerance of a short run. It is larger, because a sidecar allocates its working memory in the first minutes."""
_LEAK = textwrap.dedent(
    """
    import os, sys, threading, time

    def leak(kept=[]):
        while True:
            kept.append((os.open(os.devnull, os.O_RDONLY), b"x" * 500_000))
            time.sleep(0.1)

    if sys.argv[0].endswith("group-sidecar"):
        threading.Thread(target=leak, daemon=True).start()
    """
)
"""A leak. Python runs a module with the name sitecustomize at its start. Each second the module allocates 5 MB and ten
descriptors that it never frees."""


def test_short_run(tmp_path: Path) -> None:
    """All kinds of clients work, each change around the sidecar is made, and memory and descriptors stay in bounds."""
    result = soak(tmp_path, _SECONDS)
    assert result.failures == []
    assert min(result.changes[kind] for kind in ("reloads", "certificate changes", "restarts of the broker")) > 0
    assert trend("memory", [each.anonymous for each in result.points], tolerance=_SHORT_RUN_TOLERANCE).is_flat
    assert next(each for each in result.trends if each.name == "descriptors").is_flat
    assert "| memory (anonymous) |" in text(result)
    assert ElementTree.fromstring(chart(result.points)).tag.endswith("svg")


def test_leaking_sidecar_fails(tmp_path: Path) -> None:
    """A leak of memory and descriptors in the sidecar fails the run, and the report names both series."""
    folder = tmp_path / "leak"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_LEAK)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    result = soak(tmp_path / "run", _LEAKING_SECONDS, {"PYTHONPATH": path})
    grown = {each.name for each in result.trends if not each.is_flat}
    assert {"memory (anonymous)", "memory (RSS)", "descriptors"} <= grown
    assert not result.passed
    assert text(result).endswith("FAILED")
