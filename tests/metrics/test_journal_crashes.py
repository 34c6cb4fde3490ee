"""The journal after a crash of the writing process, and of the machine."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from group_sidecar.metrics.journal_segments import JournalSegments
from group_sidecar.metrics.records import Record
from tests.metrics.test_journal_segments import LINE, names, record, sealed

ROUNDS = 40


def crashed(*arguments: object) -> dict[str, int]:
    """Runs `crashing_writers`. Returns the number of the last written record by boot."""
    command = [sys.executable, "-m", "tests.metrics.crashing_writers", *map(str, arguments)]
    root = Path(__file__).parents[2]
    said: dict[str, int] = json.loads(subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True).stdout)
    return said


def restarted(folder: Path) -> dict[str, list[int]]:
    """Writes after a restart. Returns the ordered numbers of the records that readers see, by boot."""
    journal = JournalSegments(folder, "next")
    journal.append(record(1))
    journal.close()
    assert journal.failures == 0
    found: dict[str, list[int]] = {}
    for path in sealed(folder):
        data = path.read_bytes()
        assert data.endswith(b"\n")
        boot = path.name.split("-")[1]
        found.setdefault(boot, []).extend(Record.from_line(line).envelope.seq for line in data.splitlines())
    assert not [name for name in names(folder) if name.startswith(".")]
    assert found.pop("next") == [1]
    return found


def test_killed_process_loses_no_written_record(tmp_path: Path) -> None:
    """A killed process loses no record that it had written and repeats none."""
    written = crashed("killed", tmp_path, ROUNDS)
    found = restarted(tmp_path)
    assert len(written) == ROUNDS
    for boot, last in written.items():
        assert found[boot] == list(range(1, len(found[boot]) + 1))
        assert len(found[boot]) >= last


def test_process_may_stop_at_any_step(tmp_path: Path) -> None:
    """A process that ends at any step of writing loses no written record and repeats none."""
    written = crashed("stopped", tmp_path)
    for boot, last in written.items():
        found = restarted(tmp_path / boot)
        assert found["other"] == [1]
        own = found.get(boot, [])
        assert own == list(range(1, len(own) + 1))
        assert len(own) >= last
    *_, whole = written.values()
    assert whole == 12
    assert len(written) > 30


def test_fsync_precedes_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment is synced before it gets its visible name, and this name is synced before the next segment appears."""
    synced: dict[int, int] = {}
    shown: list[str] = []
    kept: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def noting_fsync(file: int) -> None:
        fsync(file)
        status = os.fstat(file)
        synced[status.st_ino] = status.st_size
        if status.st_ino == tmp_path.stat().st_ino:
            kept[:] = names(tmp_path)

    def noting_rename(path: Path, target: Any) -> Path:
        assert synced.get(path.stat().st_ino) == path.stat().st_size
        assert set(shown) <= set(kept)
        shown.append(Path(target).name)
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(Path, "rename", noting_rename)
    (tmp_path / ".segment-a-00000001.jsonl").write_bytes(record(1).to_line() + b"torn")
    journal = JournalSegments(tmp_path, "b", segment_bytes=2 * LINE, total_bytes=1 << 30)
    for seq in range(1, 6):
        journal.append(record(seq))
    journal.close()
    assert shown == names(tmp_path) == kept
    assert len(shown) == 4


def test_hanging_disk_blocks_no_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """append returns while the disk hangs, and records beyond the queue are counted as dropped."""
    hangs, released = threading.Event(), threading.Event()
    fsync = os.fsync

    def hanging(file: int) -> None:
        hangs.set()
        released.wait()
        fsync(file)

    monkeypatch.setattr(os, "fsync", hanging)
    journal = JournalSegments(tmp_path, "b", queue_records=100)
    journal.append(record(1))
    thread = threading.Thread(target=journal.close)
    thread.start()
    hangs.wait()
    for seq in range(2, 1002):
        journal.append(record(seq))  # If the lock were held, this would not return.
    assert journal.records_dropped["queue_full"] == 900
    released.set()
    thread.join()
    monkeypatch.undo()
    journal.close()
    assert journal.records_written == 101
