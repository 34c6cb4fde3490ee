"""Runs tests with C code that is instrumented by AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m tests.fuzzing.sanitized                 # the modules that are written in Cython
    python -m tests.fuzzing.sanitized --all           # also those that mypyc compiles, which takes many minutes

Compiles in a copy of the checkout, and runs tests/proxy/dataplane there. GCC and its libasan and libubsan are needed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.as_python import ROOT

TESTS = ["tests/proxy/dataplane"]
LIBRARIES = ("libasan.so", "libubsan.so")
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1"
LEFT_OUT = (".git", ".venv", "build", "__pycache__", "*.so", "*.c")
_CYTHON = """
from pathlib import Path
from setuptools import Extension, setup
rooms = [each for each in Path("group_sidecar").iterdir() if each.is_dir()]
sources = [source for room in rooms for source in room.rglob("*.pyx")]
setup(ext_modules=[Extension(".".join(each.with_suffix("").parts), [str(each)]) for each in sources])
"""


def main() -> int:
    """Returns the exit status of pytest, or 2 if something is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing.sanitized", description=__doc__)
    parser.add_argument("--all", action="store_true", help="also compile with mypyc")
    parser.add_argument("tests", nargs="*", default=TESTS, help="what pytest runs; default: tests/proxy/dataplane")
    arguments = parser.parse_args()
    missing, libraries = _libraries()
    if missing:
        sys.stderr.write(f"GCC lacks {' and '.join(missing)}\n")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "checkout")
        shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        build(copy, everything=arguments.all)
        return run(copy, libraries, arguments.tests)


def _libraries() -> tuple[list[str], list[str]]:
    """Returns the names of the libraries that GCC lacks, and the paths of the libraries that it has."""
    if shutil.which("gcc") is None:
        return [*LIBRARIES], []
    paths = {
        name: subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in LIBRARIES
    }
    return [name for name, path in paths.items() if path == name], list(paths.values())


def build(copy: Path, *, everything: bool) -> None:
    """Compiles the modules in the copy. Raises CalledProcessError if a compiler fails."""
    environment = {
        **os.environ,
        "CFLAGS": FLAGS,
        "LDFLAGS": "-fsanitize=address,undefined",
        "GROUP_SIDECAR_REQUIRE_COMPILED": "1",
        "GROUP_SIDECAR_OPTIMIZE": "1",
    }
    program = ["setup.py"] if everything else ["-c", _CYTHON]
    subprocess.run([sys.executable, *program, "-q", "build_ext", "--inplace"], cwd=copy, env=environment, check=True)


def run(copy: Path, libraries: list[str], tests: list[str]) -> int:
    """Runs pytest in the copy, and returns its exit status. A report of a sanitizer ends the process."""
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        "PYTHONPATH": str(copy),
        "PYTHONMALLOC": "malloc",  # Python's own allocator would hide errors in its objects.
        "ASAN_OPTIONS": "detect_leaks=0",  # The interpreter does not free all its memory at exit.
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *tests]
    return subprocess.run(command, cwd=copy, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
