"""What a process costs: seconds, CPU, memory, of it and of all that it starts.

Owns: the watch. Must not know: what the process does.
"""

import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

_LOOK_SECONDS = 0.1


class Cost(NamedTuple):
    """What a process cost.

    Attributes:
        seconds: from its start to its end.
        cpu_seconds: of it and all that it started, in user and system mode, up to a tenth of a second before the end.
        peak_bytes: the most that they held, each at its own time, as the kernel says.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def cost(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Cost:
    """Runs a command to its end.

    Args:
        command: the program and its arguments.
        log: what it prints goes there.
        environment: of the process; this one's if None.

    Raises:
        RuntimeError: it failed.
    """
    cpu: dict[int, float] = {}
    peak: dict[int, int] = {}
    began = time.monotonic()
    with log.open("wb") as output:
        process = psutil.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        while process.poll() is None:
            with suppress(psutil.NoSuchProcess):
                for each in (process, *process.children(recursive=True)):
                    with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                        cpu[each.pid] = sum(each.cpu_times()[:2])
                        peak[each.pid] = max(peak.get(each.pid, 0), _most_held(each.pid))
            time.sleep(_LOOK_SECONDS)
    if process.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}\n{tail}")
    return Cost(time.monotonic() - began, sum(cpu.values()), sum(peak.values()))


def _most_held(pid: int) -> int:
    """The kernel's high water mark of resident memory; 0 where it has none any more."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def bytes_below(folder: Path) -> int:
    """Bytes of all files below a folder."""
    found = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            found += path.stat().st_size if path.is_file() else 0
    return found
