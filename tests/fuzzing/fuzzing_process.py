"""Fuzzes one target under atheris. Only `python -m tests.fuzzing` starts this program.

    python -m tests.fuzzing.fuzzing_process TARGET [an option of libFuzzer ...] [FOLDER ...]

Compiled modules give no coverage, so this process imports the Python sources of the package. If the package has been
compiled, a second process runs the compiled modules, and both outcomes must be equal.
"""

import sys
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path

import atheris  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[2]


def use_sources() -> None:
    """Makes this process import only the Python sources of the package, and no compiled modules."""

    def sources(folder: str) -> FileFinder:
        if ROOT / "group_sidecar" in Path(folder).parents:
            return FileFinder(folder, (SourceFileLoader, [".py"]))
        raise ImportError

    sys.path_hooks.insert(0, sources)
    sys.path_importer_cache.clear()


def main() -> None:
    """Fuzzes until libFuzzer ends the process."""
    use_sources()
    name, *options = sys.argv[1:]
    from tests.fuzzing.all_targets import TARGETS

    target = TARGETS[name]
    with atheris.instrument_imports(include=["group_sidecar"]):
        target.module.check(b"")  # Some modules are imported only when they are used.
    from tests.fuzzing.other_build import OtherBuild
    from tests.fuzzing.target import Violation

    other = OtherBuild(name) if target.is_compiled else None
    compares = other is not None and other.is_compiled
    sys.stderr.write(f"compared with compiled modules: {'yes' if compares else 'no'}\n")

    def run(data: bytes) -> None:
        outcome = target.outcome(data)
        if other is not None and compares and (others := other.outcome(data)) != outcome:
            raise Violation(f"Python sources: {outcome}\ncompiled modules: {others}")

    atheris.Setup([sys.argv[0], *options], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
