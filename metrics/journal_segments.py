"""Writes the lines of the journal to disk, in segments.

`JournalSegments` has a bounded queue in memory, rotates the segments, limits their total size and age, and counts
written and dropped records. `append` never waits for the disk. `write` counts disk errors and does not raise them.
The next call of `write` tries again.

One thread appends and one thread writes. The two share only the queue. A segment is named
``.segment-<boot>-<number>.jsonl`` while it is written. When it is sealed, it is flushed to the disk and then renamed
without the dot. Spark ignores files whose names start with a dot, so it sees only complete segments.

If a sidecar is killed, the next sidecar that opens a segment in the folder seals the dead sidecar's segment, without a
torn last line. The open segment is locked with flock, so that a sidecar does not seal the segments of another live
sidecar in the same folder. The kernel releases the lock when the process ends.
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

from group_sidecar.metrics.array_lines import Line, record_count

QUEUE_FULL = "queue_full"
"""Why a record was dropped: the queue was full."""
OVER_SIZE = "over_size"
"""Why a record was dropped: the segments exceeded their total size, and the record's segment was the oldest."""
OVER_AGE = "over_age"
"""Why a record was dropped: the record's segment was older than the retention time."""
VANISHED = "vanished"
"""Why a record was dropped: another process removed the record's segment before the segment was sealed."""

OPEN_SEGMENTS = ".segment-*.jsonl"
SEALED_SEGMENTS = "segment-*.jsonl"


class Segment:
    """One segment while it is written: locked, and not yet visible to readers.

    Every method may raise OSError if the disk fails.
    """

    def __init__(self, path: Path, opened_at: float) -> None:
        self.path = path
        self.opened_at = opened_at
        self.size = 0
        self.records = 0
        self._file = path.open("xb")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def write(self, lines: Sequence[Line], limit: int) -> int:
        """Writes lines until the segment would exceed `limit` bytes, and returns the number of written lines.

        An empty segment gets at least one line.
        """
        encoded: list[bytes] = []
        size = self.size
        for each in lines:
            line = each.to_line()
            if size and size + len(line) > limit:
                break
            encoded.append(line)
            size += len(line)
        self._file.write(b"".join(encoded))
        self._file.flush()
        if os.fstat(self._file.fileno()).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "removed while it was written", str(self.path))
        self.size = size
        self.records += sum(line.count for line in lines[: len(encoded)])
        return len(encoded)

    def seal(self) -> None:
        """Makes the segment durable, and visible to readers."""
        os.fsync(self._file.fileno())
        self.path = _show(self.path)
        _sync_folder(self.path)
        self._file.close()

    def abandon(self) -> bool:
        """Closes the file without sealing it. Returns whether the file still exists and can be sealed later."""
        with suppress(OSError):
            self._file.close()
        try:
            self.path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            pass
        return True


def _show(path: Path) -> Path:
    return path.rename(path.with_name(path.name.removeprefix(".")))


def _sync_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _seal_leftover(path: Path) -> None:
    """Seals a segment of a sidecar that has ended, up to its last complete line. Skips segments of live sidecars."""
    with path.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        whole = file.read().rfind(b"\n") + 1
        if whole == 0:
            path.unlink()
            return
        file.truncate(whole)
        os.fsync(file.fileno())
        _sync_folder(_show(path))


class JournalSegments:
    """Writes records to segments in a folder.

    Attributes:
        records_written: number of records written to the disk.
        records_dropped: number of dropped records by reason. `queue_full` drops the newest records, `over_size` and
            `over_age` drop the oldest.
        last_flush: time of the last write, in seconds since the epoch; 0 before the first write.
        failures: how often the disk failed.
        failure: the error of the last attempt to write; None if the attempt succeeded.
    """

    def __init__(
        self,
        folder: Path,
        boot: str,
        *,
        queue_records: int = 65_536,
        segment_bytes: int = 8 << 20,
        segment_seconds: float = 10.0,
        total_bytes: int = 256 << 20,
        retention_seconds: float = 604_800.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Creates an empty queue. Does not access the disk.

        Args:
            folder: the folder of the segments, created when it is first needed. If several sidecars use one folder,
                `total_bytes` and `retention_seconds` hold for the segments of all of them.
            boot: id of this start of the sidecar, which makes the names of its segments unique.
            queue_records: maximum number of records in memory.
            segment_bytes: a segment is sealed before it exceeds this size. A longer line has a segment of its own.
            segment_seconds: a segment is sealed when it is this old.
            total_bytes: largest total size of all segments, including the open one.
            retention_seconds: how long a segment is kept after its last write.
            clock: seconds since the epoch.

        Raises:
            ValueError: `total_bytes` has no room for one sealed and one open segment.
        """
        if total_bytes < 2 * segment_bytes:
            raise ValueError(f"a journal of {total_bytes} bytes has no room for two segments of {segment_bytes} bytes")
        self._folder = folder
        self._boot = boot
        self._queue_records = queue_records
        self._segment_bytes = segment_bytes
        self._segment_seconds = segment_seconds
        self._total_bytes = total_bytes
        self._retention_seconds = retention_seconds
        self._clock = clock

        self._lock = Lock()
        self._queue: list[Line] = []
        self._in_hand: list[Line] = []
        self._held = 0
        self._segment: Segment | None = None
        self._number = 0

        self.records_written = 0
        self.records_dropped = dict.fromkeys((QUEUE_FULL, OVER_SIZE, OVER_AGE, VANISHED), 0)
        self.last_flush = 0.0
        self.failures = 0
        self.failure: OSError | None = None

    def append(self, line: Line) -> None:
        """Queues a line, or drops it and counts its records if the queue is full. Never waits for the disk."""
        with self._lock:
            if self._held + line.count <= self._queue_records:
                self._queue.append(line)
                self._held += line.count
            else:
                self.records_dropped[QUEUE_FULL] += line.count

    def due(self, now: float) -> bool:
        """Whether `write` has work: queued records, or a segment that is old enough to be sealed."""
        return bool(self._queue or self._in_hand) or self._too_old(now)

    def write(self) -> None:
        """Writes the queued records, and seals a full or old segment. Blocks on the disk."""
        self._attempt(self._write)

    def close(self) -> None:
        """Writes the queued records and seals the segment. Blocks on the disk."""
        self._attempt(self._write_and_seal)

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self._failed(error)
            segment, self._segment = self._segment, None
            if segment is not None and not segment.abandon():
                self.records_dropped[VANISHED] += segment.records
        else:
            self.failure = None

    def _failed(self, error: OSError) -> None:
        self.failure = error
        self.failures += 1

    def _write(self) -> None:
        now = self._clock()
        with self._lock:
            # Records that remain from an earlier failure are written first.
            self._in_hand += self._queue
            self._queue = []
        while self._in_hand:
            segment = self._segment or self._open(now)
            count = segment.write(self._in_hand, self._segment_bytes)
            records = sum(line.count for line in self._in_hand[:count])
            with self._lock:
                del self._in_hand[:count]
                self._held -= records
            self.records_written += records
            self.last_flush = now
            if self._in_hand:
                self._seal()
        if self._too_old(now):
            self._seal()

    def _write_and_seal(self) -> None:
        self._write()
        self._seal()

    def _open(self, now: float) -> Segment:
        self._folder.mkdir(parents=True, exist_ok=True)
        for leftover in sorted(self._folder.glob(OPEN_SEGMENTS)):
            # A leftover that cannot be sealed must not block new segments.
            try:
                _seal_leftover(leftover)
            except OSError as error:
                self._failed(error)
        self._number += 1
        self._segment = Segment(self._folder / f".segment-{self._boot}-{self._number:08}.jsonl", now)
        return self._segment

    def _too_old(self, now: float) -> bool:
        segment = self._segment
        # If the clock was set back, the age is negative. The segment is then sealed at once.
        return segment is not None and not 0 <= now - segment.opened_at < self._segment_seconds

    def _seal(self) -> None:
        if self._segment is not None:
            self._segment.seal()
            self._segment = None
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        sizes: dict[Path, int] = {}
        ages: dict[Path, tuple[int, str]] = {}
        for path in self._folder.glob(SEALED_SEGMENTS):
            with suppress(FileNotFoundError):
                status = path.stat()
                sizes[path] = status.st_size
                ages[path] = (status.st_mtime_ns, path.name)
        excess = sum(sizes.values()) - (self._total_bytes - self._segment_bytes)
        oldest = (self._clock() - self._retention_seconds) * 1e9
        for path in sorted(sizes, key=ages.__getitem__):
            if excess > 0:
                self._drop(path, OVER_SIZE)
            elif ages[path][0] < oldest:
                self._drop(path, OVER_AGE)
            else:
                return
            excess -= sizes[path]

    def _drop(self, path: Path, reason: str) -> None:
        # A collector of segments may have moved the file away meanwhile. No record is lost in this case.
        with suppress(FileNotFoundError):
            records = record_count(path.read_bytes())
            path.unlink()
            self.records_dropped[reason] += records
