"""A flame graph contains nothing about the machine on which it was made."""

import pytest

from benchmarks.flame_graphs import cleaned

TITLE = '<text id="title" fill="rgb(0,0,0)" x="50.0000%" y="24.00">'
SPOKEN = " (10 samples, 0.95%)</title>"


def test_title_is_replaced() -> None:
    """The title of a flame graph is replaced by the given one."""
    command = f"{TITLE}/home/me/.venv/bin/py-spy record --pid 7 --output /tmp/graph.svg</text>"
    assert cleaned(command, "Heartbeat") == f"{TITLE}Heartbeat</text>"


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ("Session.close (proxy/dataplane/session.py)", "Session.close (group_sidecar/proxy/dataplane/session.py)"),
        ("run (trio/_core/_run.py)", "run (trio/_core/_run.py)"),
        ("main (/home/me/.venv/bin/group-sidecar)", "main (group-sidecar)"),
        ("&lt;lambda&gt; (/opt/my lib/x.py)", "&lt;lambda&gt; (x.py)"),
        ("0x7f97fe8a71f5 (libc.so.6)", "(libc.so.6)"),
        ("__init__ (&lt;string&gt;)", "__init__ (&lt;string&gt;)"),
        ("of.proxy (other/proxy/x.py)", "of.proxy (other/proxy/x.py)"),
    ],
)
def test_frames_name_installed_files(frame: str, expected: str) -> None:
    """Frames name files relative to the installation, without paths of the machine."""
    graph = f"<title>{frame}{SPOKEN}<text>{frame}</text>"
    assert cleaned(graph, "") == f"<title>{expected}{SPOKEN}<text>{expected}</text>"
