"""Records flame graphs of a running process with py-spy.

py-spy samples a thread if the system reports that the thread could run, even if it was only just woken or waits for a
processor. So `epoll_wait` is drawn wider than its CPU time, and more so on a busy machine. `perf` reports the CPU time
of system calls exactly. py-spy reads the memory of another process, which some systems allow only to root.

Graphs contain no paths or addresses of the machine on which they were made.
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
"""Samples per second."""
_WRITE_SECONDS = 60

_TITLE = re.compile(r'(<text id="title"[^>]*>)[^<]*')
_ROOM = re.compile(r"\((?=(?:codecs|coordinator|metrics|policies|proxy)/)")
_FOLDER = re.compile(r"\(/[^()<]*/")
_ADDRESS = re.compile(r">0x[0-9a-f]+ (?=\()")


@contextmanager
def recorded(process: int, file: Path, title: str) -> Iterator[None]:
    """Samples a process during a with statement and writes the flame graph as SVG.

    Raises:
        FileNotFoundError: py-spy is not installed.
        ProcessFailed: py-spy could not start.
        RuntimeError: py-spy wrote no graph.
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
    """Returns a graph of py-spy with another title and without paths of this machine.

    py-spy's own title is its command line. Files of this project begin with `group_sidecar/`, as in the installed
    package. Other files keep at most the folders of their package. Addresses of functions without a name are removed.
    """
    graph = _TITLE.sub(lambda found: found[1] + title, graph)
    return _FOLDER.sub("(", _ROOM.sub("(group_sidecar/", _ADDRESS.sub(">", graph)))
