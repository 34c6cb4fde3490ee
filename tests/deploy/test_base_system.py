"""A copy of the base system is Debian bookworm, can install packages, and leaves nothing behind."""

import subprocess
from pathlib import Path

import pytest

from tests.deploy.base_system import base_system, inside, unavailable, writable_copy

pytestmark = [
    pytest.mark.skipif(unavailable() is not None, reason=str(unavailable())),
    pytest.mark.timeout(900),  # The first run on a machine downloads the packages.
]


def run(root: Path, *command: str) -> str:
    return subprocess.run(inside(root, *command), capture_output=True, text=True, check=True, timeout=60).stdout


def test_copies_are_separate_and_removed(tmp_path: Path) -> None:
    """Each copy is Debian bookworm and runs commands as process 1. A change of one copy is in no other copy."""
    with writable_copy(tmp_path / "one") as one, writable_copy(tmp_path / "two") as two:
        assert "VERSION_CODENAME=bookworm" in run(one, "cat", "/etc/os-release").splitlines()
        assert run(one, "sh", "-c", "echo $$; touch /changed; ls /changed") == "1\n/changed\n"
        assert not (two / "changed").exists()
        assert str(one) not in Path("/proc/mounts").read_text()
    assert [*tmp_path.iterdir()] == []


def test_cached_file_is_made_once() -> None:
    """A second call returns the same file, without making it again."""
    first = base_system()
    made = first.stat().st_mtime_ns
    assert base_system() == first
    assert first.stat().st_mtime_ns == made
