"""Flame graphs of a running process, by py-spy.

Owns: how a process is sampled, and that a graph tells nothing of the machine it was made on. Must not know: what the
process does meanwhile.

A thread counts when the system says that it could run, also where it has just been woken or waits for a processor. So
`epoll_wait` is drawn wider than the CPU that it takes, the more so the busier the machine; `perf` tells that of system
calls exactly. py-spy reads another process's memory, which some systems allow to root alone.
"""

import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kafka.processes import ChildProcess

PY_SPY = Path(sys.executable).with_name("py-spy")
RATE = 200
"""Samples a second."""
_WRITE_SECONDS = 60

_TITLE = re.compile(r'(<text id="title"[^>]*>)[^<]*')
_ROOM = re.compile(r"\((?=(?:codecs|coordinator|metrics|policies|proxy)/)")
_FOLDER = re.compile(r"\(/[^()<]*/")
_ADDRESS = re.compile(r">0x[0-9a-f]+ (?=\()")


@contextmanager
def recorded(process: int, file: Path, title: str) -> Iterator[None]:
    """Has a process sampled for the length of a with statement, and writes the flame graph, an SVG.

    Raises:
        FileNotFoundError: py-spy is not installed.
        ProcessFailed: it could not begin.
        RuntimeError: it wrote nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / "graph.svg"
        how = ["--native", "--nolineno", "--rate", str(RATE), "--output", str(graph), "--pid", str(process)]
        with ChildProcess([str(PY_SPY), "record", *how], Path(folder) / "py-spy.log") as spy:
            spy.wait_until(lambda: "Sampling" in spy.tail())
            yield
            if spy.stop(how=signal.SIGINT, seconds=_WRITE_SECONDS) or not graph.exists():
                raise RuntimeError(f"py-spy wrote no flame graph\n{spy.tail()}")
        file.write_text(cleaned(graph.read_text(), title))


def cleaned(graph: str, title: str) -> str:
    """A graph of py-spy under another title, with the files of the package called as they are installed.

    Its own title is its command line. Other files keep at most the folders of their package. An address, which is all
    that is known of some functions, is left out.
    """
    graph = _TITLE.sub(lambda found: found[1] + title, graph)
    return _FOLDER.sub("(", _ROOM.sub("(group_sidecar/", _ADDRESS.sub(">", graph)))
