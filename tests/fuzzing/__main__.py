"""Fuzzes targets, each for some time, and reports violations.

    python -m tests.fuzzing                          # all targets, a minute each
    python -m tests.fuzzing sessions --seconds 3600
    python -m tests.fuzzing sessions --input FILE    # runs one input, without atheris

Inputs that reach new code are kept in build/fuzzing/TARGET/found, where the next run continues. An input that violates
an invariant is written to build/fuzzing/TARGET/.
"""

import argparse
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.as_python import ROOT
from tests.fuzzing.all_targets import TARGETS
from tests.fuzzing.target import INPUT_SECONDS, MEMORY_MB, WORK, Target

SHOWN_LINES = 40


def main() -> int:
    """Returns 1 if an invariant does not hold, and 2 if atheris is missing."""
    arguments = _arguments()
    targets = [TARGETS[name] for name in arguments.targets or TARGETS]
    if arguments.input is not None:
        for target in targets:
            print(target.name, target.outcome(arguments.input.read_bytes()))
        return 0
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: pip install --require-hashes -r requirements/fuzz.txt", file=sys.stderr)
        return 2
    failed = [target.name for target in targets if not fuzz(target, arguments.seconds)]
    if failed:
        print(f"violated: {', '.join(failed)}")
    return 1 if failed else 0


def fuzz(target: Target, seconds: int) -> bool:
    """Fuzzes one target, and prints a line with the result. Returns whether all invariants held."""
    folder = WORK / target.name
    found, seeds, words = folder / "found", folder / "seeds", folder / "words"
    for each in (found, seeds):
        each.mkdir(parents=True, exist_ok=True)
    for data in target.inputs():
        (seeds / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
    # libFuzzer refuses an empty dictionary.
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words()) or '"\\x00"\n')
    command = [
        *(sys.executable, "-m", "tests.fuzzing.fuzzing_process", target.name),
        *(f"-max_total_time={seconds}", f"-timeout={INPUT_SECONDS}", f"-rss_limit_mb={MEMORY_MB}"),
        *(f"-max_len={target.max_bytes}", f"-dict={words}", f"-artifact_prefix={folder}/", "-print_final_stats=1"),
        *(str(found), str(seeds)),
    ]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    output = ended.stdout.decode(errors="replace")
    (folder / "log").write_text(output)
    print(_summary(target.name, output), flush=True)
    if ended.returncode:
        print("\n".join(_useful_lines(output)[-SHOWN_LINES:]))
        print(f"The same input again: python -m tests.fuzzing {target.name} --input {_artifact(output)}")
    return not ended.returncode


def _escaped(word: bytes) -> str:
    """Returns a word in the escaped form of libFuzzer's dictionaries."""
    return "".join(chr(each) if 32 <= each < 127 and each not in b'"\\' else f"\\x{each:02x}" for each in word)


def _summary(name: str, output: str) -> str:
    executed = re.findall(r"stat::number_of_executed_units: (\d+)", output)
    covered = re.findall(r"cov: (\d+)", output)
    compared = "compared with compiled modules: yes" in output
    return (
        f"{name}: {executed[-1] if executed else '?'} inputs, {covered[-1] if covered else '?'} branches covered"
        f"{', equal to compiled modules' if compared else ''}"
    )


def _useful_lines(output: str) -> list[str]:
    """Returns the output without libFuzzer's lines about its progress and its own stack."""
    return [line for line in output.splitlines() if not re.match(r"#\d+\s|stat::|INFO:|    #\d|MS: |0x", line)]


def _artifact(output: str) -> str:
    written = re.findall(r"Test unit written to (\S+)", output)
    return written[-1] if written else "?"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzzing", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="seconds for each target")
    parser.add_argument("--input", type=Path, help="a file with one input to run")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.targets if name not in TARGETS]:
        parser.error(f"unknown target: {', '.join(unknown)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
