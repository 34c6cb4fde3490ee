"""Builds Shotover, a proxy written in Rust, from its crate into a cache folder outside the repository.

Cargo downloads the crate, so the user's own settings and mirrors apply. `python -m benchmarks.shotover` fills the
cache in advance. If the build fails, it prints one line with the reason, and the benchmarks run without Shotover.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.kafka.maven import cache_folder

VERSION = "0.7.3"

_MANIFEST = f"""\
[package]
name = "shotover-kafka"
version = "{VERSION}"
edition = "2021"

[dependencies]
shotover = {{ version = "={VERSION}", default-features = false, features = ["kafka"] }}
"""
_MAIN = """\
fn main() {
    shotover::runner::Shotover::new().run_block();
}
"""
_PROGRESS_SECONDS = 4.0


class Unavailable(Exception):
    """Raised when Shotover is not available. The text gives the reason in one line."""


def built() -> Path:
    """Returns the program in the cache. Raises Unavailable if it has not been built."""
    program = cache_folder() / "shotover" / VERSION / "shotover"
    if not program.exists():
        raise Unavailable(f"Shotover {VERSION} is not built; `python -m benchmarks.shotover` does it, with cargo")
    return program


def build() -> Path:
    """Builds the program if it is not in the cache. A build takes minutes.

    Raises:
        Unavailable: cargo is missing, or the build failed.
    """
    target = cache_folder() / "shotover" / VERSION
    if target.exists():
        return built()
    cargo = shutil.which("cargo")
    if cargo is None:
        raise Unavailable(f"Shotover {VERSION} is built by cargo, and there is no cargo here")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{VERSION}-") as scratch:
        folder = Path(scratch)
        (folder / "src").mkdir()
        (folder / "Cargo.toml").write_text(_MANIFEST)
        (folder / "src" / "main.rs").write_text(_MAIN)
        _run([cargo, "build", "--release", "--target-dir", str(folder / "target")], folder)
        done = folder / "done"
        done.mkdir()
        (folder / "target" / "release" / "shotover-kafka").rename(done / "shotover")
        try:
            done.rename(target)
        except OSError:
            pass  # Another process finished first.
    return built()


def _run(command: list[str], folder: Path) -> None:
    """Runs cargo and prints a progress line every few seconds. Raises Unavailable if cargo fails."""
    log, began = folder / "log", time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
    try:
        while process.poll() is None:
            try:
                process.wait(_PROGRESS_SECONDS)
            except subprocess.TimeoutExpired:
                _say(f"Shotover {VERSION}: {time.monotonic() - began:.0f} s, {_last_line(log)}")
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode:
        raise Unavailable(f"Shotover {VERSION} could not be built: {_reason(log)}")


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip()[:80] for line in reversed(lines) if line.strip()), "no word yet")


def _reason(log: Path) -> str:
    """Returns the first line in which cargo reports an error, or the last line if there is no such line."""
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip() for line in lines if line.startswith("error")), _last_line(log))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        build()
    except Unavailable as error:
        _say(str(error))
