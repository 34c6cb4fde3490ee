"""The class of the fuzzer's targets, and the exception for a violated invariant."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.as_python import ROOT

CORPUS = Path(__file__).with_name("corpus")
WORK = ROOT / "build" / "fuzzing"
"""The folder for inputs that the fuzzer finds."""
INPUT_SECONDS = 60
"""Maximum time for one input. Inputs take milliseconds, but the machine may be busy with other work."""
MEMORY_MB = 1_536
"""Maximum memory of the fuzzing process."""


class Violation(AssertionError):
    """Raised when an invariant does not hold."""


def require(holds: object, what: str) -> None:
    """Raises Violation with this text if an invariant does not hold. Unlike `assert`, it works under `python -O`."""
    if not holds:
        raise Violation(what)


@dataclass(frozen=True)
class Target:
    """One target. Its module is imported when it is first used, because some targets need most of the sidecar.

    Attributes:
        name: the name on the command line, and the name of the module.
        is_compiled: whether `check` runs modules that may be compiled.
        max_bytes: the largest input that is tried.
    """

    name: str
    is_compiled: bool = False
    max_bytes: int = 4_096

    @property
    def module(self) -> Any:
        """The module, which has `check`, `seeds` and perhaps `words`."""
        return import_module(f"tests.fuzzing.{self.name}")

    def kept(self) -> list[Path]:
        """Returns the files of the kept corpus, sorted."""
        return sorted(path for path in (CORPUS / self.name).glob("*") if path.is_file())

    def inputs(self) -> list[bytes]:
        """Returns all inputs that tests replay: the kept ones, and then the seeds."""
        return [path.read_bytes() for path in self.kept()] + [*self.module.seeds()]

    def words(self) -> list[bytes]:
        """Returns words that the fuzzer inserts into inputs."""
        return [*self.module.words()] if hasattr(self.module, "words") else []

    def outcome(self, data: bytes) -> str:
        """Runs one input and returns what happened, as text that can be compared with that of another process.

        The text is the same for Python sources and for compiled modules.
        """
        return repr(self.module.check(data))
