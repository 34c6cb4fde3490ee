"""The journal: segments, rotation, limits, and failures of disks and processes."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from group_sidecar.metrics.array_lines import ArrayLine, array_line
from group_sidecar.metrics.journal_segments import JournalSegments
from group_sidecar.metrics.records import ARRAY_VERSION, ArrayEnvelope, Envelope, LogEnd, Record, timestamp

MOMENT = timestamp(0)


def record(seq: int, topic: str = "t") -> Record:
    envelope = Envelope(
        version=1, kind="log_end", sidecar="s", boot="b", seq=seq, observed_at=MOMENT, emitted_at=MOMENT
    )
    return Record(envelope=envelope, body=LogEnd(topic=topic, partition=0, offset=seq))


LINE = len(record(1).to_line())
"""The bytes of a line whose number has one digit."""


@dataclass
class Clock:
    """A clock that a test sets, in seconds since the epoch."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def sealed(folder: Path) -> list[Path]:
    return sorted(folder.glob("segment-*.jsonl"))


def health(journal: JournalSegments) -> tuple[int, int | None]:
    """Returns the number of failures of the disk, and the errno of the last one."""
    return journal.failures, journal.failure.errno if journal.failure else None


def dropped(journal: JournalSegments) -> dict[str, int]:
    """Returns the number of dropped records by reason, without zeros."""
    return {reason: number for reason, number in journal.records_dropped.items() if number}


def numbers(folder: Path) -> list[int]:
    """Returns the seq of every record in sealed segments, segment by segment."""
    return [
        Record.from_line(line).envelope.seq
        for path in sealed(folder)
        for line in path.read_bytes().splitlines(keepends=True)
    ]


def array(first: int, count: int) -> ArrayLine:
    envelope = ArrayEnvelope(
        version=ARRAY_VERSION, kind="log_end", sidecar="s", boot="b", seq=first, count=count, emitted_at=MOMENT
    )
    return array_line(envelope, [(MOMENT, LogEnd(topic="t", partition=0, offset=0))] * count)


def test_array_line_counts_as_its_records(tmp_path: Path) -> None:
    """Records are counted when they are written and when they are dropped, not lines. The queue is limited by them."""
    most = len(array(1, 9).to_line() + record(10).to_line())
    journal = JournalSegments(tmp_path, "b", queue_records=20, segment_bytes=most, total_bytes=2 * most)
    for line in (array(1, 9), record(10), array(11, 10), record(21)):
        journal.append(line)
    assert dropped(journal) == {"queue_full": 1}
    journal.close()
    assert journal.records_written == 20
    # The two segments are too much, and the first one has ten records.
    assert dropped(journal) == {"queue_full": 1, "over_size": 10}
    # The queue has room for as many records as before.
    journal.append(array(22, 20))
    assert dropped(journal)["queue_full"] == 1


def test_array_lines_of_a_vanished_segment_are_counted(tmp_path: Path) -> None:
    """If another program removes the open segment, each record on its array lines counts as dropped."""
    journal = JournalSegments(tmp_path, "b")
    journal.append(array(1, 9))
    journal.write()
    next(tmp_path.iterdir()).unlink()
    journal.append(record(10))
    journal.write()
    assert dropped(journal) == {"vanished": 9}


def test_written_segment_is_hidden_until_sealed(tmp_path: Path) -> None:
    """A segment keeps a hidden name while records are written, and gets its visible name when sealed."""
    clock = Clock()
    journal = JournalSegments(tmp_path, "b", clock=clock)
    assert not journal.due(clock.now)
    journal.append(record(1))
    assert journal.due(clock.now)
    assert names(tmp_path) == []
    journal.write()
    assert names(tmp_path) == [".segment-b-00000001.jsonl"]
    assert (journal.records_written, journal.last_flush) == (1, 100.0)
    assert not journal.due(clock.now)
    journal.append(record(2))
    journal.close()
    assert names(tmp_path) == ["segment-b-00000001.jsonl"]
    assert numbers(tmp_path) == [1, 2]
    assert journal.records_written == 2


def test_empty_journal_creates_no_file(tmp_path: Path) -> None:
    """A journal without records creates no folder and no file."""
    journal = JournalSegments(tmp_path / "none", "b")
    journal.write()
    journal.close()
    assert not (tmp_path / "none").exists()
    assert (journal.records_written, journal.last_flush, journal.failure) == (0, 0.0, None)


def test_full_segment_is_sealed(tmp_path: Path) -> None:
    """The journal seals a segment when it is full."""
    journal = JournalSegments(tmp_path, "b", segment_bytes=3 * LINE, total_bytes=99 * LINE)
    for seq in range(1, 9):
        journal.append(record(seq))
    journal.write()
    assert [path.stat().st_size for path in sealed(tmp_path)] == [3 * LINE, 3 * LINE]
    journal.close()
    assert names(tmp_path) == [f"segment-b-0000000{number}.jsonl" for number in (1, 2, 3)]
    assert numbers(tmp_path) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_long_line_has_own_segment(tmp_path: Path) -> None:
    """A line longer than a segment gets a segment of its own."""
    journal = JournalSegments(tmp_path, "b", segment_bytes=2 * LINE, total_bytes=99 * LINE)
    for each in (record(1), record(2, topic="t" * 5 * LINE), record(3)):
        journal.append(each)
    journal.close()
    assert [len(path.read_bytes().splitlines()) for path in sealed(tmp_path)] == [1, 1, 1]
    assert numbers(tmp_path) == [1, 2, 3]


def test_old_segment_is_sealed(tmp_path: Path) -> None:
    """The journal seals a segment after segment_seconds."""
    clock = Clock()
    journal = JournalSegments(tmp_path, "b", segment_seconds=10, clock=clock)
    journal.append(record(1))
    journal.write()
    clock.now += 9.9
    assert not journal.due(clock.now)
    journal.write()
    assert sealed(tmp_path) == []
    clock.now += 0.1
    assert journal.due(clock.now)
    journal.write()
    assert numbers(tmp_path) == [1]


def test_clock_set_back_seals_segment(tmp_path: Path) -> None:
    """A clock that is set back makes the open segment due for sealing."""
    clock = Clock()
    journal = JournalSegments(tmp_path, "b", clock=clock)
    journal.append(record(1))
    journal.write()
    clock.now -= 50.0
    assert journal.due(clock.now)
    journal.write()
    assert numbers(tmp_path) == [1]


def test_full_queue_drops_newest(tmp_path: Path) -> None:
    """A full queue drops the newest records and counts them."""
    journal = JournalSegments(tmp_path, "b", queue_records=3)
    for seq in range(1, 6):
        journal.append(record(seq))
    assert dropped(journal) == {"queue_full": 2}
    journal.write()
    journal.append(record(6))
    journal.close()
    assert numbers(tmp_path) == [1, 2, 3, 6]


def test_oldest_segments_over_size_are_dropped(tmp_path: Path) -> None:
    """Beyond total_bytes, the journal deletes the oldest segments and counts their records."""
    journal = JournalSegments(tmp_path, "b", segment_bytes=2 * LINE, total_bytes=6 * LINE)
    for seq in range(1, 10):
        journal.append(record(seq))
        journal.write()
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 6 * LINE
    journal.close()
    assert numbers(tmp_path) == [7, 8, 9]
    assert dropped(journal) == {"over_size": 6}
    assert journal.records_written == 9


def test_expired_segments_are_dropped(tmp_path: Path) -> None:
    """The journal deletes segments older than retention_seconds and counts their records."""
    clock = Clock(1_000_000.0)
    journal = JournalSegments(tmp_path, "b", segment_seconds=10, retention_seconds=100, clock=clock)
    for seq, age in ((1, 101.0), (2, 100.5), (3, 99.5)):
        for line in (seq, seq + 10):
            journal.append(record(line))
        journal.write()
        clock.now += 10
        journal.write()
        path = tmp_path / f"segment-b-0000000{seq}.jsonl"
        os.utime(path, (0, clock.now + 10 * (3 - seq) - age + 10))
    assert dropped(journal) == {}
    journal.append(record(4))
    journal.write()
    clock.now += 10
    journal.write()
    assert numbers(tmp_path) == [3, 13, 4]
    assert dropped(journal) == {"over_age": 4}


def test_segment_over_size_and_age(tmp_path: Path) -> None:
    """A segment that is both over size and over age is counted as dropped once."""
    clock = Clock(1_000_000.0)
    journal = JournalSegments(
        tmp_path, "b", segment_bytes=LINE, total_bytes=3 * LINE, retention_seconds=100, clock=clock
    )
    for number, age in ((1, 500), (2, 400), (3, 300), (4, 50)):
        path = tmp_path / f"segment-a-0000000{number}.jsonl"
        path.write_bytes(record(number).to_line())
        os.utime(path, (0, clock.now - age))
    journal.append(record(5))
    journal.close()
    os.utime(sealed(tmp_path)[-1], (0, clock.now))
    assert numbers(tmp_path) == [4, 5]
    assert dropped(journal) == {"over_size": 3}


def test_total_size_needs_two_segments(tmp_path: Path) -> None:
    """A total size smaller than two segments raises ValueError."""
    with pytest.raises(ValueError, match="no room"):
        JournalSegments(tmp_path, "b", segment_bytes=100, total_bytes=199)


WRITER = """
import sys
from pathlib import Path
from group_sidecar.metrics.journal_segments import JournalSegments
from tests.metrics.test_journal_segments import record

journal = JournalSegments(Path(sys.argv[1]), "killed")
for seq in range(1, 4):
    journal.append(record(seq))
journal.write()
print(journal.records_written, flush=True)
sys.stdin.read()
"""


@contextmanager
def writer(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Runs another process that has written three records and has not sealed them."""
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, folder], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "3\n"
            yield process
        finally:
            process.kill()


def test_segment_of_killed_process_is_sealed(tmp_path: Path) -> None:
    """The next start seals the segment of a killed process without its torn last line."""
    with writer(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    left = tmp_path / ".segment-killed-00000001.jsonl"
    with left.open("ab") as file:
        file.write(record(4).to_line()[:-20])
    journal = JournalSegments(tmp_path, "next")
    journal.append(record(11))
    journal.write()
    assert names(tmp_path) == [".segment-next-00000001.jsonl", "segment-killed-00000001.jsonl"]
    assert numbers(tmp_path) == [1, 2, 3]
    journal.close()


def test_segment_of_live_process_is_kept(tmp_path: Path) -> None:
    """A journal leaves the open segment of another live process alone."""
    with writer(tmp_path):
        journal = JournalSegments(tmp_path, "other")
        journal.append(record(11))
        journal.close()
        assert names(tmp_path) == [".segment-killed-00000001.jsonl", "segment-other-00000001.jsonl"]


def test_leftover_without_whole_line_is_removed(tmp_path: Path) -> None:
    """A leftover segment without a complete line is deleted."""
    (tmp_path / ".segment-killed-00000001.jsonl").write_bytes(record(1).to_line()[:-1])
    journal = JournalSegments(tmp_path, "next")
    journal.append(record(2))
    journal.close()
    assert names(tmp_path) == ["segment-next-00000001.jsonl"]


def test_unsealable_leftover_blocks_nothing(tmp_path: Path) -> None:
    """A leftover segment that cannot be sealed counts as a failure and does not prevent writing."""
    (tmp_path / ".segment-killed-00000001.jsonl").mkdir()
    journal = JournalSegments(tmp_path, "next")
    journal.append(record(1))
    journal.close()
    assert numbers(tmp_path) == [1]
    assert health(journal) == (1, None)


def test_folder_creation_failure_recovers(tmp_path: Path) -> None:
    """The journal counts failures to create its folder and writes the queued records once this succeeds."""
    folder = tmp_path / "journal"
    folder.write_text("in the way")
    journal = JournalSegments(folder, "b", queue_records=2)
    for seq in (1, 2, 3):
        journal.append(record(seq))
        journal.write()
    assert health(journal) == (3, errno.EEXIST)
    assert journal.records_written == 0
    assert journal.records_dropped["queue_full"] == 1
    assert journal.due(0.0)

    folder.unlink()
    journal.write()
    journal.append(record(4))
    journal.close()
    assert numbers(folder) == [1, 2, 4]
    assert health(journal) == (3, None)
    assert journal.records_written == 3


def test_removed_folder_is_recreated(tmp_path: Path) -> None:
    """A removed folder counts as a failure, its lost record is counted, and the journal recreates the folder."""
    folder = tmp_path / "journal"
    journal = JournalSegments(folder, "b")
    journal.append(record(1))
    journal.write()
    shutil.rmtree(folder)
    journal.append(record(2))
    journal.write()
    assert health(journal) == (1, errno.ENOENT)
    assert dropped(journal) == {"vanished": 1}
    journal.close()
    assert numbers(folder) == [2]
    assert health(journal) == (1, None)


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Limits each file to `size` bytes, as if the disk were full: EFBIG in place of ENOSPC."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_loses_no_record(tmp_path: Path) -> None:
    """A full disk loses no record and leaves no torn line. Records may be written twice."""
    journal = JournalSegments(tmp_path, "b")
    for seq in (1, 2, 3):
        journal.append(record(seq))
    with no_file_larger_than(2 * LINE + 10):
        journal.write()
    assert health(journal) == (1, errno.EFBIG)
    journal.append(record(4))
    journal.close()
    assert numbers(tmp_path) == [1, 2, 1, 2, 3, 4]
    assert health(journal) == (1, None)
    assert dropped(journal) == {}


def test_failed_seal_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that could not be sealed is sealed by a later call."""
    journal = JournalSegments(tmp_path, "b")
    journal.append(record(1))

    def fails(_: int) -> None:
        raise OSError(errno.EIO, "the disk is ill")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        journal.close()
    assert health(journal) == (1, errno.EIO)
    assert names(tmp_path) == [".segment-b-00000001.jsonl"]
    journal.append(record(2))
    journal.close()
    assert numbers(tmp_path) == [1, 2]
    assert dropped(journal) == {}


def test_append_while_other_thread_writes(tmp_path: Path) -> None:
    """Records appended while another thread writes are all written, in order."""
    journal = JournalSegments(tmp_path, "b", segment_bytes=40 * LINE, total_bytes=1 << 30)
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            journal.write()

    thread = threading.Thread(target=write)
    thread.start()
    for seq in range(1, 5001):
        journal.append(record(seq))
    done.set()
    thread.join()
    journal.close()
    assert numbers(tmp_path) == list(range(1, 5001))
    assert journal.records_written == 5000


def test_bounded_queue_with_concurrent_writer(tmp_path: Path) -> None:
    """With a concurrent writer, each record is either written or counted as dropped."""
    journal = JournalSegments(tmp_path, "b", queue_records=50)
    appended = 0

    def write() -> None:
        for _ in range(20):
            journal.write()

    thread = threading.Thread(target=write)
    thread.start()
    while thread.is_alive():
        appended += 1
        journal.append(record(appended))
    thread.join()
    journal.close()
    assert journal.records_written + journal.records_dropped["queue_full"] == appended
    assert len(numbers(tmp_path)) == journal.records_written
