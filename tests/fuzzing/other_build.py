"""Runs inputs in another process with the installed modules, which may be compiled.

The fuzzing process runs Python sources, because atheris measures coverage only in these. Both results must be equal.

    python -m tests.fuzzing.other_build TARGET

reads inputs from standard input and writes results to standard output, each after its length in four bytes.
"""

import os
import subprocess
import sys
from typing import IO

from group_sidecar.proxy.dataplane import tls_records
from tests.as_python import ROOT

LENGTH_BYTES = 4


def is_compiled() -> bool:
    """Whether this process runs compiled modules."""
    return not tls_records.__file__.endswith(".py")


def write(stream: IO[bytes], data: bytes) -> None:
    """Writes data after its length."""
    stream.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    stream.flush()


def read(stream: IO[bytes]) -> bytes | None:
    """Reads data after its length, or None at the end of the stream."""
    length = stream.read(LENGTH_BYTES)
    return stream.read(int.from_bytes(length, "big")) if len(length) == LENGTH_BYTES else None


class OtherBuild:
    """The other process. It ends together with this process, because its standard input then ends.

    Attributes:
        is_compiled: whether the process runs compiled modules. Otherwise there is nothing to compare.
    """

    def __init__(self, target: str) -> None:
        command = [sys.executable, "-m", "tests.fuzzing.other_build", target]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.is_compiled = self._next() == "compiled"

    def outcome(self, data: bytes) -> str:
        """Returns the outcome of an input in the other process, or the text of its exception."""
        assert self._process.stdin is not None
        write(self._process.stdin, data)
        return self._next()

    def _next(self) -> str:
        assert self._process.stdout is not None
        answer = read(self._process.stdout)
        if answer is None:
            raise RuntimeError(f"the other process ended with {self._process.wait()}")
        return answer.decode("utf-8", "surrogateescape")


def main(name: str) -> None:
    """Runs all inputs of the standard input."""
    from tests.fuzzing.all_targets import TARGETS

    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # Text that is printed must not get between the results.
    TARGETS[name].outcome(b"")  # The first input takes long, because it imports modules.
    write(answers, b"compiled" if is_compiled() else b"sources")
    while (data := read(sys.stdin.buffer)) is not None:
        try:
            outcome = TARGETS[name].outcome(data)
        except Exception as error:  # noqa: BLE001  The fuzzing process reports it.
            outcome = f"raised {type(error).__name__}: {error}"
        write(answers, outcome.encode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    main(sys.argv[1])
