"""Measures the cost of a process and its descendants: seconds, CPU time and memory."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import psutil

_LOOK_SECONDS = 0.1
_LOOKS_A_SECOND = 10
"""How often per second the process tree is polled. Memory is polled only once per second, because the kernel walks all
pages for it."""


class Cost(NamedTuple):
    """The cost of a process.

    Attributes:
        seconds: from its start to its end.
        cpu_seconds: user and system time of the process and its descendants, up to a tenth of a second before the end.
        peak_bytes: the maximum memory of the process and its descendants together, sampled once per second. Shared
            memory counts once.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def cost(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Cost:
    """Runs a command to its end.

    Args:
        command: the program and its arguments.
        log: the file for its output.
        environment: the environment of the process; this process's environment if None.

    Raises:
        RuntimeError: the command failed.
    """
    cpu: dict[int, float] = {}
    peak = 0
    began = time.monotonic()
    with log.open("wb") as output:
        process = psutil.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        for look in count():
            if process.poll() is not None:
                break
            held = 0
            for each in _alive(process):
                with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                    cpu[each.pid] = sum(each.cpu_times()[:2])
                    if look % _LOOKS_A_SECOND == 0:
                        held += each.memory_full_info().pss
            peak = max(peak, held)
            time.sleep(_LOOK_SECONDS)
    if process.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}\n{tail}")
    return Cost(time.monotonic() - began, sum(cpu.values()), peak)


def _alive(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def bytes_below(folder: Path) -> int:
    """Returns the bytes of all files below a folder."""
    found = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            found += path.stat().st_size if path.is_file() else 0
    return found
