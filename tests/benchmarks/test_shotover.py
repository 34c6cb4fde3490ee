"""Shotover is built once from its crate, or a reason is reported. The tests use a fake cargo."""

from pathlib import Path

import pytest

from benchmarks import shotover
from benchmarks.shotover import VERSION, Unavailable

BUILDS = """\
#!/bin/sh
echo once >> "$COUNT"
mkdir -p "$4/release"
grep -q "shotover = " Cargo.toml && grep -q run_block src/main.rs && echo program > "$4/release/shotover-kafka"
"""
FAILS = """\
#!/bin/sh
echo "   Compiling cmake v0.1"
echo "error: failed to run custom build command"
echo "Caused by: no C compiler"
exit 101
"""


@pytest.fixture(name="cache")
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KAFKA_GROUP_SIDECAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COUNT", str(tmp_path / "count"))
    return tmp_path / "cache"


def put_cargo(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bin").mkdir()
    cargo = folder / "bin" / "cargo"
    cargo.write_text(text)
    cargo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{cargo.parent}:/usr/bin:/bin")


def test_shotover_is_built_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shotover is built once and taken from the cache afterwards."""
    put_cargo(tmp_path, BUILDS, monkeypatch)
    with pytest.raises(Unavailable, match="is not built"):
        shotover.built()
    program = shotover.build()
    assert program.read_text() == "program\n"
    assert program == shotover.build() == shotover.built() == cache / "shotover" / VERSION / "shotover"
    assert (tmp_path / "count").read_text() == "once\n"
    assert [each.name for each in (cache / "shotover").iterdir()] == [VERSION]


def test_failed_build_is_reported_briefly(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed build raises one line with the compiler's error and leaves no files."""
    put_cargo(tmp_path, FAILS, monkeypatch)
    with pytest.raises(Unavailable) as failed:
        shotover.build()
    assert str(failed.value) == f"Shotover {VERSION} could not be built: error: failed to run custom build command"
    assert list((cache / "shotover").iterdir()) == []


def test_missing_cargo_is_reported(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without cargo, the build raises Unavailable."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match="no cargo here"):
        shotover.build()
